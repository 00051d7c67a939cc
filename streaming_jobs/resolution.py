"""Stage 2 on the driver: the facts of a batch's partitions through `rules.across.resolution`, its state in a Delta
table.

The table `resolution` has one row: the batch that wrote it, the state before and the state after that batch. A batch
that is run again begins with the state before it, and so finds the same. A batch without facts changes nothing.

**A rule that raises** leaves the state as it was before the batch and opens `check-failed` for the checks across
partitions, once: the facts of that batch are lost to them, until a rebuild.
"""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rules.across.resolution import TRANSACTION_SCHEMA, resolve
from rules.kept.state import UnknownFormat
from rules.vocabulary.finding import FINDING_SCHEMA, Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from streaming_jobs.schemas import RESOLUTION
from streaming_jobs.tables import Table

log = logging.getLogger(__name__)


class Resolution:
    """Stage 2 of one query. `begin`: the state that a rebuild begins with, whatever the table holds; where it is not
    given, the state is the table's."""

    def __init__(
        self, table: Table, app: str, objectives: Objectives, begin: tuple[bytes | None] | None = None
    ) -> None:
        self._table = table
        self._app = app
        self._objectives = objectives
        rows = table.read().to_pylist()
        self._row: dict[str, Any] | None = rows[0] if rows else None
        self._failed = False
        self._pending: dict[str, Any] | None = None
        if begin is not None:
            self._row = {"app": app, "batch": -1, "before": None, "after": begin[0]}

    @property
    def state(self) -> bytes | None:
        """The state after the last batch."""
        return None if self._row is None else self._row["after"]

    def take(self, number: int, facts: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The findings (`FINDING_SCHEMA`) and the outcomes of transactions (`TRANSACTION_SCHEMA`) that a batch's facts
        lead to; `keep` is to follow once they are written.

        Raises `UnknownFormat` where the state was written by another version."""
        self._pending = None
        if not facts.num_rows:
            return FINDING_SCHEMA.empty_table(), TRANSACTION_SCHEMA.empty_table()
        before = self.state
        if self._row is not None and (self._row["app"], self._row["batch"]) == (self._app, number):
            before = self._row["before"]
        try:
            resolved = resolve(before, facts, self._objectives)
        except UnknownFormat:
            raise
        except Exception as error:  # a check that crashed means unknown, not passed
            log.exception("the checks across partitions failed on batch %s", number)
            found = [] if self._failed else [_failure(facts, error)]
            self._failed = True
            return _judged(found), TRANSACTION_SCHEMA.empty_table()
        self._pending = {"app": self._app, "batch": number, "before": before, "after": resolved.stored}
        return _judged(resolved.findings), resolved.transactions

    def keep(self, number: int, *, always: bool = False) -> None:
        """Write the state that `take` came to; `always`: also where it has not changed."""
        row = self._pending
        if row is None and always:
            row = {"app": self._app, "batch": number, "before": self.state, "after": self.state}
        if row is None:
            return
        rows = pa.Table.from_pylist([row], schema=RESOLUTION)
        self._table.write(rows, mode="overwrite", app_id=f"{self._app}:resolution", batch=number)
        self._row, self._pending = row, None


def _judged(findings: list[Finding]) -> pa.Table:
    return findings_table((f, severity(f.anomaly, f.context)) for f in findings)


def _failure(facts: pa.Table, error: Exception) -> Finding:
    at = int(pc.max(facts["at"]).as_py())
    said = f"{type(error).__name__}: {error}".splitlines()[0][:500]
    return Finding(
        anomaly="check-failed",
        cluster=facts["cluster"][0].as_py(),
        topic_id="",
        topic="",
        partition=-1,
        subject=("across partitions",),
        event="opened",
        message="A rule failed across partitions: what one partition alone cannot decide is unknown from here on.",
        evidence={"error": said, "facts": facts.num_rows},
        at=at,
        decidable=at,
    )
