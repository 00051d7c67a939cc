"""What became of each write whose fate another partition or another life may decide: transactions and indefinite sends.

A transaction's records wait here until they were polled, or until their place is settled and nobody polled them. Then
the partition tells stage 2 (`rules.across.resolution`) that a value of the transaction is `visible`, or that one is
`absent` although a reader in assign mode passed its acknowledged offset; whether the transaction is torn, or an
indefinite one's absence is a loss, is decided there. What can be decided here is:

- `zombie-write`: a visible value whose commit was invoked after `init_transactions` of a later life of the same
  transactional id had returned, or, in a transaction that did not certainly fail (that is `G1a`), was never invoked.
  Times are compared within one boot's monotonic clock only.
- `misleading-error`: the client was told that the write failed, and it is visible.
- `G1b`: an operation polled a part of the transaction's records.

Bounded by the transactions of the grace time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import orjson
import pyarrow.compute as pc

from rules.arrays import intervals
from rules.arrays.columns import FAIL, INFO, SEND, TXN, Columns, Runs
from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.chunks import Chunks, chunk_names, values
from rules.kept.codec import Table, concat, take
from rules.kept.report import Report
from rules.kept.state import Polls, State
from rules.settling import transactional_ids

NAMES_KEPT: Final = 64
FOREVER: Final = 2**62

SAYS_FAILURE: Final = frozenset(
    {
        "INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "_FENCED",
        "TRANSACTION_COORDINATOR_FENCED", "CONCURRENT_TRANSACTIONS", "NOT_LEADER_FOR_PARTITION", "NOT_ENOUGH_REPLICAS",
        "LEADER_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
        "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "UNKNOWN_TOPIC_OR_PART", "KAFKA_STORAGE_ERROR",
        "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG", "INVALID_RECORD", "POLICY_VIOLATION", "_STATE",
        "_PURGE_QUEUE",
    }
)  # fmt: skip
"""Errors that say that it was not done. Timeouts and lost connections say that nobody knows."""


@dataclass(slots=True)
class Written(Table):
    """Runs of transactions, and of indefinite sends, until it is known what became of them.

    `type` is a code of `rules.arrays.columns`; `alone`: 1 if the transaction wrote this run and nothing else; `ended`:
    when its commit was invoked, by the monotonic clock of `boot`, -1 if never; `boot` and `name` are numbers of
    `Outcomes.boots` and `Outcomes.names`, -1 for none; `said`: 1 if the client was told that it failed."""

    process: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    txn: Ints = field(default_factory=lambda: EMPTY)
    type: Ints = field(default_factory=lambda: EMPTY)
    alone: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    ended: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    name: Ints = field(default_factory=lambda: EMPTY)
    said: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Outcomes:
    """`written` waits; `boots` and `names` (transactional ids) are numbered by their places here, at most some more
    than `written` needs. `partial_reads` counts `G1b` since the start."""

    written: Written = field(default_factory=Written)
    boots: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    partial_reads: int = 0


def needs(own: Outcomes, asked: Asked) -> Iterable[str]:
    """The values that wait."""
    return chunk_names(own.written.writer, own.written.seq, own.written.length)


def arrive(own: Outcomes, new: News) -> None:
    """New rows of transactions, and new indefinite sends."""
    columns, sent = new.columns, new.sent
    unsure = columns.type[sent.row] == INFO
    of_txn = (columns.f[sent.row] == TXN) & (columns.txn[sent.row] >= 0)
    kept = sent.take(of_txn | ((columns.f[sent.row] == SEND) & unsure))
    kept = kept.take(columns.invoked[kept.row] >= new.state.begins)  # what may have been polled by rows that are gone
    if not len(kept):
        return
    table, row = columns.table, kept.row
    alone = np.ones(len(columns), bool)
    if table["txn_partitions"].null_count < len(columns):
        alone = np.asarray(pc.fill_null(pc.list_value_length(table["txn_partitions"]), 0).to_numpy()) < 2
    rows_with_one_run = np.bincount(row, minlength=len(columns)) == 1
    said = np.zeros(len(columns), np.int64)
    if table["error"].null_count < len(columns):
        for i in intervals.distinct(row[columns.type[row] == INFO]).tolist():
            said[i] = table["error"][i].as_py() in SAYS_FAILURE
    ended = np.asarray(pc.fill_null(table["mono_end_invoked"], -1).to_numpy(), np.int64)
    if table["txn_intent"].null_count < len(columns):  # of these a commit was never invoked
        aborts = pc.fill_null(pc.equal(table["txn_intent"], "abort"), False)
        ended = np.where(np.asarray(aborts.to_numpy(), bool), -1, ended)
    made = Written(
        columns.process[row], columns.op[row], columns.txn[row], columns.type[row].astype(np.int64),
        (alone & rows_with_one_run)[row].astype(np.int64), columns.completed[row], ended[row],
        _coded(own.boots, columns, "boot", row), _coded(own.names, columns, "transactional_id", row), said[row],
        kept.writer, kept.seq, kept.offset, kept.length,
    )  # fmt: skip
    own.written = concat(own.written, made)


def _coded(known: list[str], columns: Columns, column: str, rows: Ints) -> Ints:
    """Names as their numbers in `known`, which grows; -1 for none."""
    encoded = columns.table[column].combine_chunks().dictionary_encode()
    numbers = np.full(len(encoded.dictionary) + 1, -1, np.int64)
    index = np.asarray(pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False), np.int64)
    wanted = index[rows]
    for i in intervals.distinct(wanted[wanted < len(encoded.dictionary)]).tolist():
        name = encoded.dictionary[i].as_py()
        if name not in known:
            known.append(name)
        numbers[i] = known.index(name)
    return numbers[wanted]


def fold(own: Outcomes, passage: Passage) -> None:
    """Decide what is complete up to where log time has come; all there is, where the history is finished."""
    state, chunks, report, end = passage.state, passage.chunks, passage.report, passage.end
    judge_parts(own, passage.polls, report, list_each=passage.finished)
    grace, finished = report.objectives.grace, passage.finished
    waiting = own.written
    if not len(waiting):
        return
    ripe = waiting.at <= end
    left = chunks.lacking("polled", values(waiting.writer, waiting.seq, waiting.length))
    gone = intervals.contained_grouped(*left, waiting.writer, waiting.seq, waiting.seq + waiting.length)
    seen = chunks.having("polled", values(waiting.writer, waiting.seq, waiting.length))
    whole = intervals.contained_grouped(*seen, waiting.writer, waiting.seq, waiting.seq + waiting.length)
    settled = (waiting.offset >= 0) & (waiting.offset + waiting.length <= state.settled)
    settled &= finished | (state.log_start_at >= end - grace)
    given_up = (waiting.at < end - 2 * grace) & (waiting.offset < 0)
    given_up |= waiting.at < end - 30 * grace
    decided = ripe & (whole | settled | given_up)
    if finished:
        decided[:] = True
    if decided.any():
        own.written = take(waiting, ~decided)
        now = take(waiting, decided)
        whole, gone, settled = whole[decided], gone[decided], (settled | finished)[decided]
        visible = ~gone
        _tell_visible(now, visible, report)
        if visible.any():
            _judge_zombies(own, state, take(now, visible), report)
            _judge_errors(take(now, visible), report)
        missing = ~whole & settled & (now.offset >= 0)
        if missing.any() and not state.holes:
            _tell_absent(state, chunks, take(now, missing), visible[missing], report)
    _forget_names(own)


def _tell_visible(now: Written, visible: Bools, report: Report) -> None:
    told = take(now, visible & (now.txn >= 0) & (now.alone == 0))
    report.facts.add("visible", told.at, txn=told.txn, outcome=told.type, runs=_runs(told))


def _tell_absent(state: State, chunks: Chunks, now: Written, visible: Bools, report: Report) -> None:
    passed = state.passed
    for i in np.flatnonzero((now.txn >= 0) & ((now.alone == 0) | visible)).tolist():
        low, high = int(now.offset[i]), int(now.offset[i] + now.length[i])
        start, end = max(low, state.log_start), high
        if start >= end:
            continue
        a, b = intervals.intersect(np.array([start]), np.array([end]), passed.start, passed.end)
        shift = int(now.seq[i]) - low
        lost = chunks.lacking("polled", (np.full(len(a), now.writer[i], np.int64), a + shift, b + shift))
        n = len(lost[0])
        if not n:
            continue
        one, few = np.full(n, i), slice(0, 3)  # a few examples are enough
        runs = Runs(one, lost[0], lost[1], lost[1] - shift, lost[2] - lost[1])
        report.facts.add(
            "absent", now.at[one][few], txn=now.txn[one][few], outcome=now.type[one][few], runs=runs.take(few)
        )
        if now.alone[i]:  # the whole transaction is here: its other part was seen here
            whole = take(now, slice(i, i + 1))
            report.facts.add("visible", whole.at, txn=whole.txn, outcome=whole.type, runs=_seen(chunks, whole))
        if now.type[i] == INFO:
            _guard(state, take(now, slice(i, i + 1)), lost, shift, report)


def _seen(chunks: Chunks, one: Written) -> Runs:
    writer, start, end = chunks.having("polled", values(one.writer, one.seq, one.length))
    return Runs(one.process[:1], writer[:1], start[:1], start[:1] + one.offset[0] - one.seq[0], (end - start)[:1])


def _guard(state: State, one: Written, lost: tuple[Ints, Ints, Ints], shift: int, report: Report) -> None:
    """If the transaction is visible, its acknowledgements are part of the log: where another value stands, the offset
    is inconsistent."""
    log = state.log
    told: list[str] = []
    for writer, start, end in zip(*(a.tolist() for a in lost), strict=True):
        for i in np.flatnonzero((log.offset < end - shift) & (log.offset + log.length > start - shift)).tolist():
            for offset in range(
                max(start - shift, int(log.offset[i])), min(end - shift, int(log.offset[i] + log.length[i]))
            ):
                there = (int(log.writer[i]), int(log.seq[i] + offset - log.offset[i]))
                own = (writer, offset + shift)
                if there != own and len(told) < 100:
                    told.append(_inconsistent(offset, sorted((there, own))))
    report.facts.add(
        "guarded", np.repeat(one.at, len(told)), txn=np.repeat(one.txn, len(told)),
        outcome=np.repeat(one.type, len(told)), about=told,
    )  # fmt: skip


def _inconsistent(offset: int, found: list[tuple[int, int]]) -> str:
    finding = {
        "anomaly": "inconsistent-offsets",
        "subject": [offset],
        "message": f"offset {offset} holds 2 values: {' and '.join(f'{w}/{s}' for w, s in found)}",
        "evidence": {"offset": offset, "values": [{"writer": w, "seq": s} for w, s in found]},
    }
    return orjson.dumps(finding).decode()


def _runs(of: Written) -> Runs:
    return Runs(of.process, of.writer, of.seq, of.offset, of.length)


def _judge_zombies(own: Outcomes, state: State, seen: Written, report: Report) -> None:
    """`seen`: records of which some were polled."""
    named = (seen.name >= 0) & (seen.type != FAIL) & (seen.txn >= 0) & (seen.boot >= 0)
    if not named.any():
        return
    names = {number: own.names[number] for number in intervals.distinct(seen.name[named]).tolist()}
    known = {number: transactional_ids.initialised(state, name) for number, name in names.items()}
    taken_over = [number for number, inits in known.items() if len(inits) > 1]
    named &= np.isin(seen.name, np.array(taken_over, np.int64)) | ((seen.ended < 0) & (seen.type == INFO))
    for i in np.flatnonzero(named).tolist():
        boot = own.boots[int(seen.boot[i])]
        inits = [one for one in known[int(seen.name[i])] if one.boot == boot and one.mono >= 0]
        ended = int(seen.ended[i])
        until = ended if ended >= 0 else FOREVER
        # A process may take the same id again, when a transform's partition comes back to it.
        mine = max((one.mono for one in inits if one.process == seen.process[i] and one.mono <= until), default=None)
        if mine is None:
            continue
        if ended < 0:
            if seen.type[i] == INFO:
                _report_zombie(own, seen, i, "its commit was never invoked", {}, report)
            continue
        later = [one for one in inits if one.process != seen.process[i] and mine < one.mono < ended]
        if later:
            after = min(later, key=lambda one: one.mono)
            _report_zombie(
                own, seen, i, f"its commit was invoked after process {after.process} had taken the id over",
                {"later_process": after.process, "late_by_s": round((ended - after.mono) / 1e9, 6)}, report,
            )  # fmt: skip


def _report_zombie(
    own: Outcomes, seen: Written, i: int, why: str, more: dict[str, int | float], report: Report
) -> None:
    report.add(
        "zombie-write",
        (int(seen.process[i]), int(seen.op[i])),
        f"transaction {seen.txn[i]} of process {seen.process[i]} is visible, and {why}",
        at=int(seen.at[i]),
        evidence={
            "process": int(seen.process[i]),
            "op": int(seen.op[i]),
            "txn": int(seen.txn[i]),
            "transactional_id": own.names[int(seen.name[i])],
            "writer": int(seen.writer[i]),
            "seq": int(seen.seq[i]),
            **more,
        },
    )


def _judge_errors(seen: Written, report: Report) -> None:
    for i in np.flatnonzero((seen.said == 1) & (seen.type == INFO)).tolist():
        report.add(
            "misleading-error",
            (int(seen.process[i]), int(seen.op[i])),
            f"operation {seen.op[i]} of process {seen.process[i]} was told that it failed, and its write is visible",
            at=int(seen.at[i]),
            evidence={
                "process": int(seen.process[i]),
                "op": int(seen.op[i]),
                "writer": int(seen.writer[i]),
                "seq": int(seen.seq[i]),
            },
        )


def judge_parts(own: Outcomes, polled: Polls, report: Report, *, list_each: bool = False) -> None:
    """`G1b`: operations that polled a part of a transaction's records. It is legal and frequent where polls are short:
    a finished history lists each, a live partition counts them."""
    rows = take(own.written, own.written.txn >= 0)
    if not len(rows) or not len(polled):
        return
    end = polled.seq + polled.length
    same = (polled.process[1:] == polled.process[:-1]) & (polled.op[1:] == polled.op[:-1])
    same &= (polled.writer[1:] == polled.writer[:-1]) & (end[:-1] == polled.seq[1:])
    goes_on = np.concatenate((same, [False]))  # the next run of the operation takes the writer's numbers up
    came_on = np.concatenate(([False], same))
    rows = take(rows, np.lexsort((rows.seq, rows.writer)))
    for writer in intervals.distinct(rows.writer).tolist():
        low, high = np.searchsorted(rows.writer, (writer, writer + 1))
        starts, ends = rows.seq[low:high], (rows.seq + rows.length)[low:high]
        mine = np.flatnonzero(polled.writer == writer)
        for edge, joined in ((polled.seq, came_on), (end, goes_on)):  # strictly inside a transaction
            cuts = mine[~joined[mine]]
            at = np.searchsorted(starts, edge[cuts], side="left") - 1
            cut = (at >= 0) & (edge[cuts] < ends[np.maximum(at, 0)])
            own.partial_reads += int(cut.sum())
            for k in np.flatnonzero(cut & list_each).tolist():
                reader = [int(polled.process[cuts[k]]), int(polled.op[cuts[k]])]
                _report_part(rows, int(low + at[k]), reader, int(edge[cuts[k]]), report)


def _report_part(rows: Written, row: int, reader: list[int], seq: int, report: Report) -> None:
    report.add(
        "G1b",
        (int(rows.txn[row]), reader[0], reader[1]),
        f"operation {reader[1]} of process {reader[0]} polled a part of transaction {rows.txn[row]}, cut at value"
        f" {rows.writer[row]}/{seq}",
        at=int(rows.at[row]),
        evidence={
            "txn": int(rows.txn[row]), "process": reader[0], "op": reader[1], "writer": int(rows.writer[row]),
            "seq": seq,
        },
    )  # fmt: skip


def _forget_names(own: Outcomes) -> None:
    """Drop the names and boots that no undecided record needs, when they have become many."""
    for names, column in ((own.names, "name"), (own.boots, "boot")):
        if len(names) > NAMES_KEPT:
            numbers = getattr(own.written, column)
            used = [number for number in np.unique(numbers).tolist() if number >= 0]
            setattr(own.written, column, np.where(numbers < 0, -1, np.searchsorted(used, numbers)).astype(np.int64))
            names[:] = [names[number] for number in used]


CHECK: Final = Check("transaction-outcomes", Outcomes, needs=needs, arrive=arrive, fold=fold)
