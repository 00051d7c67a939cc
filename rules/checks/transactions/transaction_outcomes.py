"""What became of transactions and indefinite sends, whose fate another partition or another life may decide.

The runs of a transaction wait here until it is known what readers make of them. They are *visible* once a value of
theirs was polled; a value is *absent* once that is proven (`absent_values`). Whether a transaction is torn, or an
indefinite one's absence is a loss, two partitions decide together, from the facts that each of them tells
(`rules.across.resolution`): absent values of all transactions, visible ones of aborted and indefinite ones. Of an ok
transaction that is visible nothing is told: whoever misses a value of it looks the others up. So a healthy transaction
makes no fact, and an aborted one makes one for each partition that it touched.

What can be decided here is

- `zombie-write` (`zombie_writes`);
- `misleading-error`: the client was told that the write failed, and it is visible;
- `G1b` (`partial_reads`).

An indefinite operation of which everything here is absent, or something visible, is told to the checks that follow
(`Passage.refused`, `Passage.revealed`); one that failed, where something is visible.

State: the runs that wait. They are those of the grace time where readers read, and those that log time has not come to;
of the others certain ones at most `CERTAIN_KEPT`, and indefinite ones at most `INDEFINITE_KEPT`. What is more waits in
chunks (`set_aside`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import numpy as np
import orjson

from rules.arrays import intervals
from rules.arrays.columns import FAIL, INFO, OK, TXN, Runs
from rules.arrays.intervals import EMPTY, Bools, Ints, each, indices
from rules.checks.records import losses
from rules.checks.transactions import absent_values, given_up, partial_reads, set_aside, transaction_runs, zombie_writes
from rules.checks.transactions.absent_values import Absent
from rules.checks.transactions.transaction_evidence import note_next, of_row
from rules.checks.transactions.transaction_runs import ABSENT, JUDGED, SEEN, WAITING, Outcomes, Written, name_of
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.chunks import chunk_names, values
from rules.kept.codec import concat, take
from rules.kept.facts import Transactions
from rules.settling.frontier import TICK

NAMES_KEPT: Final = 64
CERTAIN_KEPT: Final = 4096
INDEFINITE_KEPT: Final = 64
GUARDS_KEPT: Final = 256
EXAMPLES: Final = 3
"""Of a run, so many stretches of absent values are told."""


def needs(own: Outcomes, asked: Asked) -> Iterable[str]:
    """The values that wait, and what was given up."""
    rows = own.written
    names = chunk_names(rows.writer, rows.seq, rows.length) | set(given_up.needs(own, asked))
    return names | set_aside.needs(own, asked, (CERTAIN_KEPT, INDEFINITE_KEPT))


def arrive(own: Outcomes, new: News) -> None:
    """New rows of transactions, and new indefinite sends."""
    own.written = concat(own.written, transaction_runs.arrive(own, new))


def fold(own: Outcomes, passage: Passage) -> None:
    """Decide what can be decided now; all there is, where the history is finished."""
    returned = set_aside.take_back(own, passage)
    given_up.recognise(own, passage)
    given_up.tell_awaited(own, passage)
    partial_reads.judge(own, passage.polls, passage.report, list_each=passage.finished)
    if len(own.written):
        _decide(own, passage, returned)
    set_aside.wake(own, passage)
    given_up.forget(own, passage)
    _forget_names(own)
    passage.lives = partial(_lives, own)


def _decide(own: Outcomes, passage: Passage, returned: int) -> None:
    grace, now = passage.report.objectives.grace, int(passage.at[-1])
    ripe: Bools = (own.written.at <= now) | passage.finished
    whole, some = _polled(passage, own.written)
    _show(own, passage, indices(ripe & some & (own.written.shown == 0)), whole)
    _judge_zombies(own, passage, ripe)
    absent_values.find_places(own, passage.state, ripe)
    absent_values.suspect(own, passage, ripe & ~whole & (own.written.txn >= 0), returned)
    rows = own.written
    if len(rows) > len(whole):  # runs that were passed in part have been split
        ripe, (whole, some) = (rows.at <= now) | passage.finished, _polled(passage, rows)
    _note_guards(own, passage, ripe & ~whole)
    _tell_what_is_absent(own, passage, *absent_values.judge(own, passage, ripe & ~whole & (rows.txn >= 0), some))
    if passage.finished:
        _end_operations(own, passage, whole)
        own.written = Written()
        return
    old = rows.at < now - 30 * grace
    gone = (rows.type != INFO) & (whole | (rows.fate != WAITING) | ((rows.offset < 0) & old))
    gone |= (rows.txn < 0) & ((rows.shown != 0) | old)
    gone &= ripe & ~_awaits_lives(rows)
    gone |= _end_operations(own, passage, ripe & whole)
    own.written = take(rows, ~gone)
    note_next(own.written, take(rows, gone))  # the others can be asked as long as they are here
    _bound(own, passage)


def _polled(passage: Passage, rows: Written) -> tuple[Bools, Bools]:
    """Of which rows all values were polled, and of which some."""
    seen = passage.chunks.having("polled", values(rows.writer, rows.seq, rows.length))
    whole = intervals.contained_grouped(*seen, rows.writer, rows.seq, rows.seq + rows.length)
    if whole.all():
        return whole, whole
    return whole, intervals.touched_grouped(seen, rows.writer, rows.seq, rows.seq + rows.length)


def _show(own: Outcomes, passage: Passage, chosen: Ints, whole: Bools) -> None:
    """A value of each of these rows was polled, for the first time; all of them, of the `whole` ones."""
    rows, report = own.written, passage.report
    if not len(chosen):
        return
    rows.shown[chosen] = SEEN
    kind = rows.type[chosen]
    told = chosen[(kind != OK) | (passage.finished & ((rows.alone[chosen] == 0) | ~whole[chosen]))]
    told = told[rows.txn[told] >= 0]
    plain = (rows.type[told] == OK) & whole[told]  # only of finished histories, and of those nearly all there are
    few = take(rows, told[plain])
    report.facts.add("visible", few.at, of=Transactions(few.txn, few.type), runs=transaction_runs.runs_of(few))
    for i in told[~plain].tolist():
        _tell_visible(own, passage, rows, i)
    for i in chosen[(rows.said[chosen] == 1) & (kind == INFO)].tolist():
        seq, _, at = _first_seen(passage, rows, i)
        who = int(rows.process[i]), int(rows.op[i]), int(rows.writer[i])
        given_up.report_misleading(*who, seq, passage, at=at)
    unsure = chosen[kind != OK]
    passage.revealed |= set(zip(rows.process[unsure].tolist(), rows.op[unsure].tolist(), strict=True))


def _awaits_lives(rows: Written) -> Bools:
    """Visible ones of which a later life may still turn up that had fenced them."""
    waits = (rows.shown == SEEN) & (rows.name >= 0) & (rows.boot >= 0) & (rows.txn >= 0) & (rows.type != FAIL)
    return np.asarray(waits, bool)


def _judge_zombies(own: Outcomes, passage: Passage, ripe: Bools) -> None:
    """Judge those that are visible, once all inits that had returned before their commits are known. Of one that was
    never invoked that is its own process's, which may come after it."""
    rows = own.written
    through = passage.end if passage.finished else passage.gate.told_through()
    ready = indices(ripe & _awaits_lives(rows) & ((rows.at <= through) | (rows.ended < 0)))
    if not passage.finished:
        never = rows.ended[ready] < 0
        known = [zombie_writes.is_known(passage.state, rows, i, through) for i in ready[never].tolist()]
        never[never] = ~np.array(known, bool)
        ready = ready[~never]
    few = take(rows, ready)
    for k in zombie_writes.suspects(own, passage.state, few).tolist():
        why = zombie_writes.fenced(own, passage.state, few, k)
        if why is not None:
            seq, _, at = _first_seen(passage, few, k)
            zombie_writes.report(_named(own, few, k, seq), why, passage.report, at=at)
    rows.shown[ready] = JUDGED


def _named(own: Outcomes, rows: Written, i: int, seq: int) -> dict[str, Any]:
    return {
        "process": int(rows.process[i]),
        "op": int(rows.op[i]),
        "txn": int(rows.txn[i]),
        "transactional_id": name_of(own, rows, i),
        "writer": int(rows.writer[i]),
        "seq": seq,
    }


def _first_seen(passage: Passage, rows: Written, i: int) -> tuple[int, int, int]:
    """The first value of row `i` that was polled, where it stands (-1 if that is unknown), and when a value of it was
    polled first, not before the operation ended."""
    writer, low, high = int(rows.writer[i]), int(rows.seq[i]), int(rows.seq[i] + rows.length[i])
    one = np.array([writer]), np.array([low]), np.array([high])
    seen = passage.chunks.having("polled", one)
    seq = int(seen[1].min()) if len(seen[1]) else low
    polls = passage.polls
    mine = (polls.writer == writer) & (polls.seq < high) & (low < polls.seq + polls.length)
    at = max(int(rows.at[i]), int(polls.at[mine].min())) if mine.any() else int(rows.at[i])
    if rows.offset[i] >= 0:
        return seq, int(rows.offset[i]) + seq - low, at
    holds = indices(mine & (polls.seq <= seq) & (seq < polls.seq + polls.length))
    return seq, int(polls.offset[holds[0]] + seq - polls.seq[holds[0]]) if len(holds) else -1, at


def _tell_visible(own: Outcomes, passage: Passage, rows: Written, i: int) -> None:
    seq, offset, at = _first_seen(passage, rows, i)
    one = np.array([at])
    passage.report.facts.add(
        "visible",
        one,
        of=Transactions(rows.txn[i : i + 1], rows.type[i : i + 1]),
        runs=Runs(one, rows.writer[i : i + 1], np.array([seq]), np.array([offset]), np.array([1])),
        about=[orjson.dumps(of_row(passage.state, own, rows, i).evidence).decode()],
    )


def _tell_what_is_absent(own: Outcomes, passage: Passage, wholly: Ints, partly: list[Absent]) -> None:
    """Tell stage 2 of these rows, of which all values are absent, and of these parts of others. Of aborted transactions
    there is nothing more to tell, and of those there are many."""
    rows = own.written
    aborted = (rows.type[wholly] == FAIL) & (rows.shown[wholly] == 0)
    few = take(rows, wholly[aborted])
    at = absent_values.known_at(rows, wholly[aborted], passage)
    passage.report.facts.add("absent", at, of=Transactions(few.txn, few.type), runs=transaction_runs.runs_of(few))
    for one in (*absent_values.all_of(rows, wholly[~aborted], passage), *partly):
        _tell_absent(own, passage, rows, one)


def _tell_absent(own: Outcomes, passage: Passage, rows: Written, one: Absent) -> None:
    """Tell what is absent of a run, with what somebody has to know who judges it."""
    i, facts = one.row, passage.report.facts
    kind = int(rows.type[i])
    few = slice(0, EXAMPLES)
    n = len(one.seq[few])
    same = np.full(n, i)
    shift = int(rows.seq[i] - rows.offset[i])
    runs = Runs(same, rows.writer[same], one.seq[few], one.seq[few] - shift, (one.end - one.seq)[few])
    about: dict[str, Any] = {}
    if kind != FAIL:
        about = of_row(passage.state, own, rows, i).evidence | {
            "invoked": int(rows.invoked[i]),
            "completed": int(rows.at[i]),
        }
    lost = np.full(len(one.seq), rows.writer[i]), one.seq, one.end
    told_here = kind == INFO and losses.tells(passage.state.checks["lost-write"], passage.chunks, lost)
    if told_here:
        about["told_here"] = True
    facts.add(
        "absent",
        np.full(n, one.at),
        of=Transactions(rows.txn[same], rows.type[same]),
        runs=runs,
        about=[orjson.dumps(about).decode() if about else None] * n,
    )
    if kind == INFO and not told_here:
        _guard(own, passage, rows, one)


def _note_guards(own: Outcomes, passage: Passage, among: Bools) -> None:
    """Note what else stands where an indefinite run was acknowledged, while the log is known there. If the transaction
    is visible, its acknowledgements are part of the log, and the offset is inconsistent."""
    rows, log, over = own.written, passage.state.log, 0
    wanted = indices(among & (rows.type == INFO) & (rows.offset >= 0) & (rows.fate == WAITING))
    for i in wanted.tolist():
        start, end = int(rows.offset[i]), int(rows.offset[i] + rows.length[i])
        own_label = (log.writer == rows.writer[i]) & (log.offset - log.seq == rows.offset[i] - rows.seq[i])
        for k in indices((log.offset < end) & (log.offset + log.length > start) & ~own_label).tolist():
            for offset in range(max(start, int(log.offset[k])), min(end, int(log.offset[k] + log.length[k]))):
                there = [int(log.writer[k]), int(log.seq[k] + offset - log.offset[k])]
                guard = [int(rows.process[i]), int(rows.op[i]), offset, *there]
                if guard in own.guards:
                    continue
                if len(own.guards) < GUARDS_KEPT:
                    own.guards.append(guard)
                else:
                    over += 1
    passage.report.drop("values where a transaction may stand", over)


def _guard(own: Outcomes, passage: Passage, rows: Written, one: Absent) -> None:
    """Tell what was noted of the run that is absent."""
    i = one.row
    shift = int(rows.seq[i] - rows.offset[i])
    told: list[str] = []
    for guard in own.guards:
        process, op, offset, writer, seq = guard
        if (process, op) == (rows.process[i], rows.op[i]):
            for start, end in zip(one.seq.tolist(), one.end.tolist(), strict=True):
                if start <= offset + shift < end:
                    told.append(_inconsistent(offset, sorted(((writer, seq), (int(rows.writer[i]), offset + shift)))))
    same = np.full(len(told), i)
    passage.report.facts.add(
        "guarded", np.full(len(told), one.at), of=Transactions(rows.txn[same], rows.type[same]), about=told
    )


def _inconsistent(offset: int, found: list[tuple[int, int]]) -> str:
    finding = {
        "anomaly": "inconsistent-offsets",
        "subject": [offset],
        "message": f"offset {offset} holds 2 values: {' and '.join(f'{w}/{s}' for w, s in found)}",
        "evidence": {"offset": offset, "values": [{"writer": w, "seq": s} for w, s in found]},
    }
    return orjson.dumps(finding).decode()


def _end_operations(own: Outcomes, passage: Passage, whole: Bools) -> Bools:
    """The rows of indefinite transactions of which every row is decided, or polled as a `whole`. What showed nothing
    is written down, and where all of it is absent, whoever waits for the operation is told."""
    rows = own.written
    ended, nowhere = np.zeros(len(rows), bool), list[Written]()
    by_operation: dict[tuple[int, int], list[int]] = {}
    for i in indices((rows.type == INFO) & (rows.txn >= 0)).tolist():
        by_operation.setdefault((int(rows.process[i]), int(rows.op[i])), []).append(i)
    waits = _awaits_lives(rows)
    for operation, listed in by_operation.items():
        mine = np.array(listed)
        shown, fates = bool((rows.shown[mine] > 0).any()), rows.fate[mine]
        if ((fates == WAITING) & ~whole[mine]).any() or waits[mine].any():
            continue
        ended[mine] = True
        own.guards = [guard for guard in own.guards if (guard[0], guard[1]) != operation]
        if shown:
            continue
        if (fates == ABSENT).all():
            passage.refused[operation] = -(-int(rows.due[mine].max()) // TICK) * TICK
        nowhere.append(take(rows, mine))
    if not passage.finished:
        given_up.give_up(own, passage, nowhere)
    return ended


def _bound(own: Outcomes, passage: Passage) -> None:
    """Set the oldest aside where too many wait. Those that log time has not come to cannot have been judged: what one
    step brings, and what is held back, waits as it is. What is missed is asked for by whoever tells of a loss: it goes
    last."""
    rows = own.written
    if len(rows) <= INDEFINITE_KEPT:
        return
    reached: Bools = (rows.at <= passage.end) & (rows.txn >= 0)
    missed = (rows.type == OK) & (rows.shown == 0) & ((rows.due >= 0) | (rows.high <= passage.state.highest_polled))
    over = [
        _oldest(rows, indices(reached & (rows.type == INFO)), INDEFINITE_KEPT),
        _oldest(rows, indices(reached & (rows.type != INFO) & ~missed), CERTAIN_KEPT),
        _oldest(rows, indices(reached & missed), CERTAIN_KEPT),
    ]
    chosen = np.concatenate(over)
    if len(chosen):
        set_aside.put_aside(own, passage, chosen[np.lexsort((rows.op[chosen], rows.process[chosen], rows.at[chosen]))])


def _oldest(rows: Written, of: Ints, most: int) -> Ints:
    """Of more than `most` the oldest, whole operations, so that some more fit in until there are too many again."""
    if len(of) <= most:
        return EMPTY
    last = int(np.sort(rows.at[of])[len(of) - most + most // 8 - 1])
    return of[indices(rows.at[of] <= last)]


def _lives(own: Outcomes) -> dict[tuple[str, int], int]:
    """By transactional id and process, when the first operation was invoked of those that wait."""
    name, process, invoked = (
        np.append(getattr(own.written, column), getattr(own.aside, column)) for column in ("name", "process", "invoked")
    )
    order = np.lexsort((invoked, process, name))
    name, process, invoked = name[order], process[order], invoked[order]
    first = np.ones(len(name), bool)
    first[1:] = (name[1:] != name[:-1]) | (process[1:] != process[:-1])
    first &= name >= 0
    names = [own.names[number] for number in name[first].tolist()]
    return dict(zip(zip(names, process[first].tolist(), strict=True), invoked[first].tolist(), strict=True))


def _forget_names(own: Outcomes) -> None:
    """Drop the names that no undecided record needs, when they have become many."""
    if len(own.names) > NAMES_KEPT:
        used = [number for number in each(np.append(own.written.name, own.aside.name)) if number >= 0]
        for kept in (own.written, own.aside):
            kept.name = np.where(kept.name < 0, -1, np.searchsorted(used, kept.name)).astype(np.int64)
        own.names = [own.names[number] for number in used]


CHECK: Final = Check(
    transaction_runs.NAME, Outcomes, needs=needs, arrive=arrive, fold=fold, rows=frozenset({TXN, "error"}), rests=True
)
"""An indefinite send counts where an error told its client that it had failed."""
