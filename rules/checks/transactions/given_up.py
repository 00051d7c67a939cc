"""Indefinite transactions of which nobody will ever hear more, and which a broken broker may still make visible.

Part of `transaction_outcomes`. A run that readers went over without seeing it is written down. When a value of it is
polled after all, however late, it is recognised: the transaction is visible, and a `zombie-write` where it must not be.
What it wrote here is then no longer absent, which is told to stage 2 (`AGAIN`), and waits again: who is shown the one
value may not have come to the next. What a reader goes over after that without seeing it is absent. Nor may he have
come to the other partitions: what is absent there is told so `AWAITED` after that.

State: what was given up in one step is a *part*, a chunk of some `PART` runs, or some more where one operation wrote
them, and each run has an entry in the hot value, dropped when the log start has passed it; at most `KEPT`. So a step
reads those parts alone of which a value is polled, and writes one for every `PART` runs that it gives up. Of the
transactions that were shown within `AWAITED`, the newest `AWAITED_KEPT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from rules.arrays import intervals
from rules.arrays.columns import INFO, TXN, Runs
from rules.arrays.intervals import among, indices
from rules.checks.transactions import zombie_writes
from rules.checks.transactions.transaction_evidence import of_row
from rules.checks.transactions.transaction_runs import LATE, WAITING, GivenUp, Outcomes, Written, name_of
from rules.kept.check import Asked, Passage
from rules.kept.chunks import chunk_names
from rules.kept.codec import concat, names, take
from rules.kept.facts import Transactions
from rules.kept.state import Polls
from rules.settling import listed_ends
from rules.settling.frontier import TICK
from rules.vocabulary.objectives import SECOND

KEPT: Final = 4096
PART: Final = 64
AWAITED: Final = 3_600 * SECOND
"""By then an audit has read the log again."""
AWAITED_KEPT: Final = 1024
AGAIN: Final = "visible_again"
"""What a fact tells that a value of the transaction is visible that had been absent: of this partition, only what is
told to be absent at a later log time than this still is."""


def part_name(part: int) -> str:
    """The chunk that holds a part."""
    return f"given-up.{part:x}"


def needs(own: Outcomes, asked: Asked) -> Iterable[str]:
    """The parts of which something is polled, and those that may be made."""
    columns, polls = asked.columns, asked.state.polls
    sent = columns.sent
    unsure = (columns.type[sent.row] == INFO) & (columns.f[sent.row] == TXN)
    needed = new_parts(own, int(np.count_nonzero(own.written.type == INFO) + np.count_nonzero(unsure)))
    given = own.given_up
    if len(given):
        writer, seq, length = (
            np.append(getattr(polls, name), getattr(columns.polled, name)) for name in ("writer", "seq", "length")
        )
        seen = intervals.merge_grouped(writer, seq, seq + length)
        hit = intervals.touched_grouped(seen, given.writer, given.seq, given.seq + given.length)
        parts = intervals.each(given.part[hit])
        back = take(given, among(given.part, parts))
        needed.update(map(part_name, parts), chunk_names(back.writer, back.seq, back.length))
    return needed


def new_parts(own: Outcomes, runs: int) -> set[str]:
    """Those that are made if so many runs are given up."""
    return {part_name(own.parts + i) for i in range(-(-runs // PART))}


def give_up(own: Outcomes, passage: Passage, operations: list[Written]) -> None:
    """Write down the runs of these operations, of which nothing has been polled yet."""
    part: list[dict[str, Any]] = []
    for i, rows in enumerate(operations):
        part += [_record(own, passage, rows, k) for k in range(len(rows))]
        own.given_up = concat(own.given_up, _entries(own.parts, passage, rows))
        more = passage.chunks.declares(part_name(own.parts + 1))  # runs may have been divided in this step
        if (len(part) >= PART and more) or i == len(operations) - 1:
            passage.chunks.put(part_name(own.parts), orjson.dumps(part))
            own.parts, part = own.parts + 1, []


def _entries(part: int, passage: Passage, rows: Written) -> GivenUp:
    until = rows.high.copy()
    for i in indices(until < 0).tolist():
        until[i] = listed_ends.end_after(passage.state, int(rows.at[i]), int(rows.boot[i]))
    return GivenUp(np.full(len(rows), part), rows.writer, rows.seq, rows.length, until)


def _record(own: Outcomes, passage: Passage, rows: Written, i: int) -> dict[str, Any]:
    asked = zombie_writes.suspects(own, passage.state, take(rows, slice(i, i + 1)))
    fenced = zombie_writes.fenced(own, passage.state, rows, i) if len(asked) else None
    return {name: int(getattr(rows, name)[i]) for name in names(Written)} | {
        "transactional_id": name_of(own, rows, i),
        "fenced": None if fenced is None else [fenced.why, fenced.evidence],
        "about": of_row(passage.state, own, rows, i).evidence,
        "given_up": -(-max(int(rows.due.max()), int(rows.at.max())) // TICK) * TICK,
    }


class _Shown(NamedTuple):
    """When an operation was shown after all, by whose clock."""

    at: int
    boot: int


def recognise(own: Outcomes, passage: Passage) -> None:
    """Look the polls up that are folded now."""
    polls, given = passage.polls, own.given_up
    if not len(given) or not len(polls):
        return
    seen = intervals.merge_grouped(polls.writer, polls.seq, polls.seq + polls.length)
    hit = intervals.touched_grouped(seen, given.writer, given.seq, given.seq + given.length)
    for part in intervals.each(given.part[hit]):
        stored = passage.chunks.blob(part_name(part))
        records: list[dict[str, Any]] = [] if stored is None else list(orjson.loads(stored))
        shown: dict[tuple[int, int], _Shown] = {}
        for record in records:
            _look_up(passage, record, take(polls, polls.writer == record["writer"]), shown)
        back = [record for record in records if (record["process"], record["op"]) in shown]
        _await(own, passage, back, shown)
        for record in back:
            _wait_again(own, record, shown[record["process"], record["op"]])
        left = [record for record in records if record not in back]
        passage.chunks.put(part_name(part), orjson.dumps(left) if left else None)
        known = own.given_up
        gone = np.zeros(len(known), bool)
        for record in back:
            gone |= (known.part == part) & (known.writer == record["writer"]) & (known.seq == record["seq"])
        own.given_up = take(known, ~gone)


def _await(
    own: Outcomes, passage: Passage, back: list[dict[str, Any]], shown: Mapping[tuple[int, int], _Shown]
) -> None:
    """Note of these, which were shown after all, when what else they wrote will have been."""
    first = {
        record["txn"]: [shown[record["process"], record["op"]].at, record["txn"], record["type"]] for record in back
    }
    own.shown_late += [first[txn] for txn in sorted(first)]
    own.shown_late = passage.report.newest(own.shown_late, AWAITED_KEPT, "transactions that were shown after all")


def tell_awaited(own: Outcomes, passage: Passage) -> None:
    """Tell of transactions that were shown after all that this was long ago."""
    over = [entry for entry in own.shown_late if entry[0] + AWAITED <= passage.end]
    if over:
        own.shown_late = [entry for entry in own.shown_late if entry not in over]
        at, txn, type_ = np.array(over, np.int64).T
        passage.report.facts.add("awaited", -(-(at + AWAITED) // TICK) * TICK, of=Transactions(txn, type_))


def _look_up(passage: Passage, record: dict[str, Any], mine: Polls, shown: dict[tuple[int, int], _Shown]) -> None:
    """Tell of the first value of this run that was polled, if any; `mine` are the polls of its writer."""
    mine = take(mine, (mine.seq < record["seq"] + record["length"]) & (record["seq"] < mine.seq + mine.length))
    if not len(mine):
        return
    hit = int(mine.at.argsort(kind="stable")[0])
    seq = max(record["seq"], int(mine.seq[hit]))
    _tell(passage, record, seq, int(mine.offset[hit] + seq - mine.seq[hit]), int(mine.at[hit]))
    operation, one = (record["process"], record["op"]), _Shown(int(mine.at[hit]), int(mine.boot[hit]))
    shown[operation] = min(shown.get(operation, one), one)


def _wait_again(own: Outcomes, record: dict[str, Any], shown: _Shown) -> None:
    """Put a run back to those that wait, as if it had been sent when a value of its operation was shown."""
    if record["offset"] < 0:
        return  # nobody can tell that he went over it
    row = Written(*(np.array([record[name]]) for name in names(Written)))
    if record["transactional_id"] is not None:
        if record["transactional_id"] not in own.names:
            own.names.append(record["transactional_id"])
        row.name[:] = own.names.index(record["transactional_id"])
    row.invoked[:], row.boot[:] = shown
    row.at[:] = max(shown.at, record["given_up"])
    row.due[:], row.shown[:], row.fate[:] = -1, LATE, WAITING
    own.written = concat(own.written, row)


def _tell(passage: Passage, record: dict[str, Any], seq: int, offset: int, at: int) -> None:
    """A value of a run that was given up was polled."""
    report = passage.report
    passage.revealed.add((record["process"], record["op"]))
    one, writer = np.array([at]), np.array([record["writer"]])
    report.facts.add(
        "visible",
        one,
        of=Transactions(np.array([record["txn"]]), np.array([record["type"]])),
        runs=Runs(one, writer, np.array([seq]), np.array([offset]), np.array([1])),
        about=[orjson.dumps(record["about"] | {AGAIN: record["given_up"]}).decode()],
    )
    told = {name: record[name] for name in ("process", "op", "txn", "transactional_id", "writer")} | {"seq": seq}
    if record["fenced"] is not None:
        zombie_writes.report(told, zombie_writes.Fenced(*record["fenced"]), report, at=at)
    if record["said"]:
        report_misleading(record["process"], record["op"], record["writer"], seq, passage, at=at)


def report_misleading(process: int, op: int, writer: int, seq: int, passage: Passage, *, at: int) -> None:
    """`misleading-error`: the client was told that it failed, and this value of it was polled."""
    passage.report.add(
        "misleading-error",
        (process, op),
        f"operation {op} of {passage.state.called(process)} was told that it failed, and its write is visible",
        at=at,
        evidence={"process": process, "op": op, "writer": writer, "seq": seq},
    )


def forget(own: Outcomes, passage: Passage) -> None:
    """Drop the runs that the log start has passed, and the oldest of too many."""
    kept = own.given_up
    gone = (kept.until >= 0) & (kept.until <= passage.state.log_start)
    over = np.arange(len(kept)) < len(kept) - KEPT
    passage.report.drop("indefinite transactions that nobody was shown", int((over & ~gone).sum()))
    gone |= over
    if gone.any():
        own.given_up = take(kept, ~gone)
        parts = intervals.distinct(kept.part[gone])
        for part in parts[~among(parts, own.given_up.part)].tolist():
            passage.chunks.put(part_name(part), None)
