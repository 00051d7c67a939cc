"""What stands out in new rows of the probe log, beside those before them.

A healthy canary's second of rows says nothing but that all goes on: each reader goes on where it was, each value is
polled once and where it was acknowledged, the ends of the logs move up. Its verdicts may wait for the seconds that
follow, and be given for all of them at once, which costs a part of it. What stands out may not wait.

No verdict rests on this. Whatever rows are checked together, the checks come to the same findings: what is overlooked
here is found with the next rows that are checked, and what is shown for nothing costs a batch. So this may guess: it
knows no host's clock, no hole in a log and no late row. It looks across partitions, at columns, and remembers of each
reader, writer and partition a few numbers, of as many of them as `latest.MOST`.
"""

from __future__ import annotations

import pyarrow as pa

from rules.triage.observed import Observed
from rules.triage.pace import Pace
from rules.triage.rows import Rows
from rules.triage.values import Values


class Triage:
    """The signs in the rows of one commit of the probe log after the other."""

    def __init__(self) -> None:
        self._observed = Observed()
        self._values = Values()
        self._pace = Pace()

    def signs(self, slices: pa.Table) -> list[str]:
        """What stands out in these rows, in words; nothing in a healthy second's. No rows at all are a second in which
        nobody did anything. `slices` has the columns
        `rows.WANTED` of any partitions. Raises what Arrow and numpy do where a column holds something else."""
        rows = Rows.of(slices) if len(slices) else None
        signs = [*self._observed.look(rows), *self._values.look(rows)] if rows is not None else []
        return [*signs, "less is done than before"] if self._pace.fell(rows) else signs
