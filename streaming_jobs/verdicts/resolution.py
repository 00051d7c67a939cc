"""Stage 2 on the driver: the facts of a batch's partitions through `rules.across.resolution`, its state in a Delta
table.

The table `across` is a log of what each batch changed: a row for each name, with its new value or none. The state after
a batch is what its rows and those of earlier batches come to; so a batch that is run again begins with the state before
it, and finds the same. Every `COMPACT_AFTER` batches that change anything, or when most of the rows are overwritten,
the table is replaced by the whole state before that batch, without what has expired, and the batch's own changes: what
is written grows with what happens, and not with what is kept. A batch without facts writes nothing.

**A rule that raises** leaves the state as it was before the batch and opens `check-failed` for the checks across
partitions, once: the facts of that batch are lost to them, until a rebuild.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.across.resolution import TRANSACTION_SCHEMA, Resolved, check_format, expired, resolve
from rules.kept.state import UnknownFormat
from rules.vocabulary.finding import FINDING_SCHEMA, Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from streaming_jobs.tables.delta_tables import Table
from streaming_jobs.tables.schemas import ACROSS

log = logging.getLogger(__name__)

COMPACT_AFTER: Final = 256
ROWS_KEPT: Final = 4_096
"""So many rows are left alone, however many of them are overwritten."""

_PACKED: Final = pa.schema([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])


class Resolution:
    """Stage 2 of one query. `begin`: the state that a rebuild begins with, whatever the table holds; where it is not
    given, the state is the table's."""

    def __init__(
        self, table: Table, app: str, objectives: Objectives, begin: tuple[bytes | None] | None = None
    ) -> None:
        self._table = table
        self._app = app
        self._objectives = objectives
        self._now = -1
        self._failed = False
        self._pending: tuple[int, dict[str, bytes | None]] | None = None
        self._stored: dict[str, bytes] = {}
        self._rows = self._batches = 0
        self._whole = begin is not None  # the table is to be replaced by what we have
        self._last: pa.Table | None = None if begin is not None else table.read()
        if begin is not None and begin[0] is not None:
            self._stored = unpacked(begin[0])

    @property
    def state(self) -> bytes | None:
        """The state after the last batch."""
        self._load(None)
        return packed(self._stored) if self._stored else None

    def take(self, number: int, facts: pa.Table) -> Resolved:
        """What a batch's facts lead to; `keep` is to follow once that is written.

        Raises `UnknownFormat` where the state was written by another version."""
        self._pending = None
        if not facts.num_rows:
            return _nothing()
        self._load(number)
        self._now = max(self._now, int(pc.max(facts["at"]).as_py()))
        try:
            resolved = resolve(self._stored, facts, self._objectives)
        except UnknownFormat:
            raise
        except Exception as error:  # a check that crashed means unknown, not passed
            log.exception("the checks across partitions failed on batch %s", number)
            found = [] if self._failed else [_failure(facts, error)]
            self._failed = True
            return Resolved({}, found, [], TRANSACTION_SCHEMA.empty_table())
        self._pending = (number, resolved.changes)
        return resolved

    def keep(self, number: int, *, always: bool = False) -> None:
        """Write what `take` changed; `always`: also where that is nothing."""
        changes = self._pending[1] if self._pending is not None else {}
        self._pending = None
        if not changes and not always:
            return
        self._load(number)
        if self._whole or self._batches >= COMPACT_AFTER or self._rows > ROWS_KEPT + 4 * len(self._stored):
            for name in expired(self._stored, self._now):
                del self._stored[name]
            rows, mode = _listed(self._app, number - 1, self._stored) + _listed(self._app, number, changes), "overwrite"
            self._rows, self._batches, self._whole = 0, 0, False
        else:
            rows, mode = _listed(self._app, number, changes), "append"
        table = pa.Table.from_pylist(rows, schema=ACROSS)
        self._table.write(table, mode=mode, app_id=f"{self._app}:across", batch=number)  # type: ignore[arg-type]
        self._rows, self._batches = self._rows + len(rows), self._batches + 1
        _change(self._stored, changes)

    def _load(self, number: int | None) -> None:
        """Take the state from the table, as it was before batch `number` where this query wrote that before."""
        rows, self._last = self._last, None
        if rows is None:
            return
        self._whole = rows.num_rows > 0 and rows["app"][0].as_py() != self._app
        if number is not None and not self._whole:
            rows = rows.filter(pc.less(rows["batch"], number))
        self._rows, self._batches = rows.num_rows, len(rows["batch"].unique())
        for row in sorted(rows.to_pylist(), key=lambda row: row["batch"]):
            _change(self._stored, {row["name"]: row["value"]})
        check_format(self._stored)


def _listed(app: str, batch: int, changes: Mapping[str, bytes | None]) -> list[dict[str, object]]:
    return [{"app": app, "batch": batch, "name": name, "value": value} for name, value in changes.items()]


def _change(stored: dict[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    for name, value in changes.items():
        if value is None:
            stored.pop(name, None)
        else:
            stored[name] = value


def packed(stored: Mapping[str, bytes]) -> bytes:
    """The whole state as one value, for a rebuild that may be stopped."""
    rows = [{"name": name, "value": value} for name, value in stored.items()]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _PACKED, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=_PACKED))
    return bytes(sink.getvalue().to_pybytes())


def unpacked(state: bytes) -> dict[str, bytes]:
    """What `packed` made one value of."""
    return {row["name"]: row["value"] for row in pa.ipc.open_stream(state).read_all().to_pylist()}


def judged(findings: list[Finding]) -> pa.Table:
    """The findings with their severities (`FINDING_SCHEMA`)."""
    if not findings:
        return FINDING_SCHEMA.empty_table()
    return findings_table((f, severity(f.anomaly, f.context)) for f in findings)


def _nothing() -> Resolved:
    return Resolved({}, [], [], TRANSACTION_SCHEMA.empty_table())


def _failure(facts: pa.Table, error: Exception) -> Finding:
    at = int(pc.max(facts["at"]).as_py())
    said = f"{type(error).__name__}: {error}".splitlines()[0][:500]
    return Finding(
        anomaly="check-failed",
        cluster=facts["cluster"][0].as_py(),
        subject=("across partitions",),
        event="opened",
        message="A rule failed across partitions: what one partition alone cannot decide is unknown from here on.",
        evidence={"error": said, "facts": facts.num_rows},
        at=at,
        decidable=at,
    )
