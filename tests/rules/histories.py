"""Histories in a line each: every call adds one operation's slice, numbered and timed as a real process would.

    h = History()
    h.send("w", 0, 5, at=100)      # writer w, seq 0 .. 4, acknowledged at offsets 100 .. 104
    h.poll("r", [("w", 0, 5, 100)])

Time is in seconds and advances by itself; `h.mark()` lets a committer vouch for everything so far.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from rules.across.lookups import Question, answer, is_lost, is_ripe, own_rows, polls_of, read_through, values_of
from rules.step import Stepped, Stored, step
from rules.store import MemoryStore
from rules.vocabulary.finding import Finding, Recheck
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Irregular, Mark, Place, Run, Slice, to_table
from rules.vocabulary.times import EPOCH

START = EPOCH + timedelta(days=20_000)
SEARCHES: Final = "HISTORIES" in os.environ
"""Set by `make search`, which looks further than each change needs."""


def number(name: str) -> int:
    """A stable 31-bit id for a name."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


class History:
    """Rows of one cluster and topic, partition 0 unless told otherwise."""

    def __init__(self) -> None:
        self.rows: list[Slice] = []
        self.time = 0.0
        self._slices: dict[tuple[int, int], int] = defaultdict(int)
        self._ops: dict[int, int] = defaultdict(int)
        self.processes: list[str] = []

    def at(self, seconds: float) -> datetime:
        return START + timedelta(seconds=seconds)

    def row(
        self, process: str, f: Any, *, partition: int = 0, type: Any = "ok", op: int | None = None, **more: Any
    ) -> Slice:
        p = number(process)
        if process not in self.processes and process != "committer":
            self.processes.append(process)
        if op is None:
            op = self._ops[p]
        self._ops[p] = max(self._ops[p], op + 1)
        self.time += 0.001
        invoked = more.pop("invoked", self.at(self.time))
        self.time += 0.001
        completed = more.pop("completed", self.at(self.time))
        slice_number = self._slices[p, partition]
        self._slices[p, partition] += 1
        made = Slice(
            cluster="c",
            topic_id="t",
            topic="topic",
            partition=partition,
            run="run",
            process=p,
            op=op,
            slice=slice_number,
            f=f,
            type=type,
            invoked=invoked,
            completed=completed,
            **more,
        )
        self.rows.append(made)
        return made

    def start(self, process: str, **settings: str) -> Slice:
        return self.row(process, "start", settings=settings)

    def assign(self, process: str, *, assigned: bool = True, f: str = "assign", **more: Any) -> Slice:
        return self.row(process, f, assigned=assigned, mode=f if f != "revoke" else "subscribe", **more)

    def send(self, writer: str, seq: int, length: int = 1, at: int | None = None, **more: Any) -> Slice:
        return self.row(writer, "send", sent=[Run(number(writer), seq, at, length)], **more)

    def poll(self, process: str, runs: Sequence[tuple[str, int, int, int]], **more: Any) -> Slice:
        """`runs` are (writer, seq, length, offset)."""
        more.setdefault("mode", "assign")
        more.setdefault("isolation", "read_committed")
        return self.row(process, "poll", polled=[Run(number(w), s, o, n) for w, s, n, o in runs], **more)

    def txn(
        self,
        process: str,
        sends: Sequence[tuple[str, int, int, int | None]] = (),
        polls: Sequence[tuple[str, int, int, int]] = (),
        **more: Any,
    ) -> Slice:
        """Sends and polls as (writer, seq, length, offset)."""
        more.setdefault("mode", "assign")
        more.setdefault("isolation", "read_committed")
        return self.row(
            process,
            "txn",
            sent=[Run(number(w), s, o, n) for w, s, n, o in sends],
            polled=[Run(number(w), s, o, n) for w, s, n, o in polls],
            **more,
        )

    def irregular(self, process: str, *records: Irregular, **more: Any) -> Slice:
        return self.row(process, "poll", irregular=records, mode="assign", isolation="read_committed", **more)

    def observe(self, *, start: int = 0, end: int, stable: int | None = None) -> Slice:
        return self.row(
            "observer", "offsets", log_start=start, log_end=end, last_stable=end if stable is None else stable
        )

    def mark(self, after: float = 0.0, *, partition: int = 0) -> Slice:
        """`after` seconds pass, and the committer vouches for every process of this history."""
        self.time += after
        now = self.at(self.time)
        marks = [Mark(number(p), self._slices[number(p), partition], now) for p in self.processes]
        return self.row("committer", "mark", partition=partition, marks=marks, invoked=now, completed=now)

    def table(self) -> pa.Table:
        return to_table(self.rows)


class Store:
    """Keeps states as a job would, so that a history can be stepped through in parts."""

    def __init__(self, objectives: Objectives | None = None) -> None:
        self.objectives = objectives or Objectives()
        self.store = MemoryStore(self.objectives)
        self.findings: list[Finding] = []
        self.last: dict[Place, Stepped] = {}
        self.rows: list[pa.Table] = []
        self.questions: dict[tuple[str, int], Question] = {}
        self.transactions: list[dict[str, Any]] = []
        self.rechecks: list[tuple[Place, Recheck]] = []

    @property
    def stored(self) -> dict[Place, Stored]:
        return self.store.stored

    def feed(self, rows: Sequence[Slice] | pa.Table, *, finished: bool = False) -> list[Finding]:
        """One step with these rows; returns its findings."""
        table = rows if isinstance(rows, pa.Table) else to_table(rows)
        out = step({}, table, self.objectives, finished=True) if finished else self.store.step(table)
        self.rows.append(table)
        return self._take(out, finished=finished)

    def settle(self) -> list[Finding]:
        """A step without rows, after which log time is not held back any longer."""
        return self._take(self.store.settle())

    def _take(self, out: dict[Place, Stepped], *, finished: bool = False) -> list[Finding]:
        new: list[Finding] = [finding for stepped in out.values() for finding in stepped.findings]
        facts = [stepped.facts for stepped in out.values() if stepped.facts.num_rows]
        if facts:
            resolved = self.store.resolve(pa.concat_tables(facts), finished=finished)
            self.transactions.extend(resolved.transactions.to_pylist())
            new.extend(resolved.findings)
            for asked in resolved.questions:
                known = self.questions.get(asked.key)
                self.questions[asked.key] = asked if known is None else known.joined(asked)
        self.rechecks.extend((place, r) for place, stepped in out.items() for r in stepped.rechecks)
        self.last.update(out)
        new.extend(self._looked_up())
        self.findings.extend(new)
        return new

    def _looked_up(self) -> list[Finding]:
        """Answer what was asked of ok transactions, from all rows so far, once each."""
        if not self.questions:
            return []
        rows = pa.concat_tables(self.rows).combine_chunks()  # a table of a thousand pieces is slow to look through
        self.rows = [rows]
        through = read_through(
            (p.cluster, one.summary["topic"], p.partition, one.summary["read_through"]) for p, one in self.last.items()
        )
        found = []
        for key, question in list(self.questions.items()):
            wrote = values_of(question, rows.filter(own_rows([question])))
            if not is_ripe(question, wrote, through):
                continue
            finding = answer(question, wrote, rows.filter(polls_of([wrote])))
            if finding is not None:
                found.append(finding)
            if finding is not None or is_lost(question, wrote):
                del self.questions[key]
        return found


def seeds(few: int) -> range:
    """Seeds of random histories and orders; ten times as many where `make search` looks further."""
    return range(10 * few if SEARCHES else few)


def singly(rows: Iterable[Slice]) -> Iterator[pa.Table]:
    """Each row as a table of its own. One table is made of all of them, since one of a single row costs as much."""
    table = to_table(rows)
    return (table.slice(i, 1) for i in range(table.num_rows))


def without(rows: Iterable[Slice], others: Iterable[Slice]) -> list[Slice]:
    """The rows but these very ones. To compare rows by what they say takes longer, in a long history, than to judge
    them."""
    left_out = {id(row) for row in others}
    return [row for row in rows if id(row) not in left_out]


def found(findings: Sequence[Finding]) -> set[tuple[str, tuple[int | str, ...]]]:
    """(anomaly, subject) of the violations among them."""
    from rules.vocabulary.catalogue import CATALOGUE

    return {(f.anomaly, f.subject) for f in findings if CATALOGUE[f.anomaly].kind == "violation"}
