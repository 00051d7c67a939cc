"""Stage 2 on the driver: the facts of a batch's partitions through `rules.across.resolution`, its state in a Delta
table.

The state is a mapping of names to bytes, and the table `resolution` holds what each batch changed of it: one row a
name, without a value where it was deleted. The state before a batch is what all earlier ones add up to, so that a batch
that is run again finds the same. Once in `COMPACT_EVERY` writes the table is written anew: the state before that batch,
and what the batch changed. A batch that changes nothing writes nothing.

What stage 2 asks of the probe log (`rules.across.lookups`) is part of the state, under names of its own, until it is
answered (`streaming_jobs.lookups`): a question outlives the process.

**A rule that raises** leaves the state as it was before the batch and opens `check-failed` for the checks across
partitions, once: the facts of that batch are lost to them, until a rebuild.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rules.across.lookups import Question
from rules.across.resolution import TRANSACTION_SCHEMA, expired, resolve
from rules.kept.state import UnknownFormat
from rules.vocabulary.finding import FINDING_SCHEMA, Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from streaming_jobs.schemas import RESOLUTION
from streaming_jobs.tables import Table

log = logging.getLogger(__name__)

COMPACT_EVERY: Final = 256
"""Batches whose changes lie in the table one beside the other; as often it is looked for what has expired."""
BEFORE: Final = -1
"""The batch of what was there before all of a query's own batches."""
_ASKED: Final = "asked|"

State = dict[str, bytes]


class Resolution:
    """Stage 2 of one query. `begin`: the state that a rebuild begins with, whatever the table holds; where it is not
    given, the state is the table's."""

    def __init__(
        self, table: Table, app: str, objectives: Objectives, begin: tuple[Mapping[str, bytes]] | None = None
    ) -> None:
        self._table = table
        self._app = app
        self._objectives = objectives
        self._failed = False
        self._answered: set[str] = set()
        self._writes = 0
        self._whole = begin is not None
        self._before: State = {}
        self._after: State = {} if begin is None else dict(begin[0])
        self._batch = BEFORE
        self._pending: tuple[State, dict[str, bytes | None]] | None = None
        if begin is None:
            self._read()

    def _read(self) -> None:
        rows = sorted(self._table.read().to_pylist(), key=lambda row: row["batch"])
        if not rows:
            return
        # Another query's state stands as it is, and is the beginning of this one's.
        mine = all(row["app"] == self._app for row in rows)
        self._whole, last = not mine, rows[-1]["batch"]
        for row in rows:
            if row["batch"] < last:
                _change(self._before, {row["name"]: row["value"]})
            _change(self._after, {row["name"]: row["value"]})
        if mine:
            self._batch = last

    @property
    def state(self) -> State:
        """The state after the last batch."""
        return self._after

    def questions(self) -> dict[str, Question]:
        """What the probe log is to tell, by the name under which it stands in the state."""
        return {
            name: _question(value)
            for name, value in self._after.items()
            if name.startswith(_ASKED) and name not in self._answered
        }

    def answered(self, names: Iterable[str]) -> None:
        """These questions are answered: the next batch that changes anything takes them out."""
        self._answered.update(names)

    def take(self, number: int, facts: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The findings (`FINDING_SCHEMA`) and the outcomes of transactions (`TRANSACTION_SCHEMA`) that a batch's facts
        lead to; `keep` is to follow once they are written.

        Raises `UnknownFormat` where the state was written by another version."""
        self._pending = None
        if not facts.num_rows:
            return FINDING_SCHEMA.empty_table(), TRANSACTION_SCHEMA.empty_table()
        before = self._before if self._batch == number else self._after
        try:
            resolved = resolve(before, facts, self._objectives)
        except UnknownFormat:
            raise
        except Exception as error:  # a check that crashed means unknown, not passed
            log.exception("the checks across partitions failed on batch %s", number)
            found = [] if self._failed else [_failure(facts, error)]
            self._failed = True
            return _judged(found), TRANSACTION_SCHEMA.empty_table()
        changes = dict(resolved.changes)
        for asked in resolved.questions:
            name = f"{_ASKED}{asked.txn:x}|{asked.cluster}"
            known = before.get(name)
            joined = asked if known is None else _question(known).joined(asked)
            changes[name] = orjson.dumps([joined.cluster, joined.txn, joined.invoked, joined.completed, joined.facts])
        changes |= dict.fromkeys(name for name in self._answered if name in before and name not in changes)
        if (self._writes + 1) % COMPACT_EVERY == 0:
            changes |= dict.fromkeys(expired(before, int(pc.max(facts["at"]).as_py())))
        self._pending = before, changes
        return _judged(resolved.findings), resolved.transactions

    def keep(self, number: int, *, always: bool = False) -> None:
        """Write what `take` has changed; `always`: the whole state, also where nothing has changed."""
        before, changes = self._pending or (self._after, {})
        self._pending = None
        if not changes and not always:
            return
        self._writes += 1
        whole = always or self._whole or self._writes % COMPACT_EVERY == 0
        listed = [(BEFORE if always or self._whole else number - 1, n, v) for n, v in before.items()] if whole else []
        listed += [(number, name, value) for name, value in changes.items()]
        rows = [{"app": self._app, "batch": batch, "name": name, "value": value} for batch, name, value in listed]
        table = pa.Table.from_pylist(rows, schema=RESOLUTION)
        mode = "overwrite" if whole else "append"
        self._table.write(table, mode=mode, app_id=f"{self._app}:resolution", batch=number)
        after = dict(before)
        _change(after, changes)
        self._answered = {name for name in self._answered if name in after}
        self._before, self._after, self._batch, self._whole = before, after, number, False


def _change(state: State, changes: Mapping[str, bytes | None]) -> None:
    for name, value in changes.items():
        if value is None:
            state.pop(name, None)
        else:
            state[name] = value


def _question(value: bytes) -> Question:
    cluster, txn, invoked, completed, facts = orjson.loads(value)
    return Question(cluster, txn, invoked, completed, tuple(facts))


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
