"""`nonmonotonic-send`, `int-nonmonotonic-send`, `int-send-skip`: the order in which a process's writes lie in the log.

A process's next operation (ok or info) that sends to a partition must lie after its last one, and inside one operation
each send after the one before. `int-send-skip`, a hole between two sends of one operation that holds values of others,
is what interleaving writers make all day long, and allowed by default: a finished history lists each, a live partition
counts them. A write whose place is unknown concludes nothing.

Acknowledged offsets tell the places; a process's rows are compared in the order of its operations, once they are
complete, and only what is out of order, or has a hole, waits for the log around it to be settled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Columns, Runs
from rules.arrays.intervals import Ints, each, indices
from rules.kept.check import FOREVER, Check, News, Passage
from rules.kept.state import Moved, SendMoves, SendSteps, concat, take
from rules.settling.moves import sent_to
from rules.settling.window import duplicate_in, indexed, known_by


@dataclass(slots=True)
class Sent:
    """The offset of the last record that a process sent, -1 where unknown, and by which operation."""

    offset: int
    op: int


@dataclass(slots=True)
class Sends:
    """`steps`: what is out of order or has a hole, until its offsets are settled; no more than the open window has
    runs. `last`: of each living process. `skips`: how many
    operations have a hole, since the start."""

    steps: SendSteps = field(default_factory=SendSteps)
    last: dict[int, Sent] = field(default_factory=dict, metadata={"of": Sent})
    skips: int = 0


def arrive(own: Sends, new: News) -> None:
    """Note the steps inside new operations."""
    own.steps = concat(own.steps, inside(new.columns, sent_to(new.columns, new.sent, new.visible)))


def inside(columns: Columns, sent: Runs) -> SendSteps:
    """The steps between the runs of each new operation that are not plainly consecutive."""
    before, after = slice(None, -1), slice(1, None)
    end = sent.offset + sent.length
    steps = (sent.row[before] == sent.row[after]) & (end[before] != sent.offset[after])
    steps &= (sent.offset[before] >= 0) & (sent.offset[after] >= 0)
    at = indices(steps)
    row = sent.row[at]
    return SendSteps(
        columns.process[row],
        columns.op[row],
        columns.op[row],
        end[at] - 1,
        sent.offset[at + 1],
        np.ones(len(at), np.int64),
    )


def fold(own: Sends, passage: Passage) -> None:
    """Compare what processes sent, in the order of their operations, and decide what is settled."""
    _walk(own, passage.sends)
    own.last = {number: sent for number, sent in own.last.items() if number in passage.state.processes}
    _judge(own, passage)


def _walk(own: Sends, moves: SendMoves) -> None:
    """Compare each operation's first place with where the process's last operation ended; keep what is out of order."""
    if not len(moves):
        return
    m = take(moves, np.lexsort((moves.slice, moves.process)))
    head = np.concatenate(([True], m.process[1:] != m.process[:-1]))
    numbers = m.process[head].tolist()
    carried = [own.last.get(number, Sent(-1, -1)) for number in numbers]
    previous = np.concatenate(([-1], m.last[:-1]))
    previous_op = np.concatenate(([-1], m.op[:-1]))
    previous[head] = [one.offset for one in carried]
    previous_op[head] = [one.op for one in carried]
    wrong = (previous >= 0) & (m.first >= 0) & (m.first <= previous)
    if wrong.any():
        w = indices(wrong)
        none = np.zeros(len(w), np.int64)
        steps = SendSteps(m.process[w], previous_op[w], m.op[w], previous[w], m.first[w], none)
        own.steps = concat(own.steps, steps)
    tails = np.append(indices(head)[1:], len(m)) - 1
    for number, tail in zip(numbers, tails.tolist(), strict=True):
        own.last[number] = Sent(int(m.last[tail]), int(m.op[tail]))


def _judge(own: Sends, passage: Passage) -> None:
    """Decide the steps whose offsets are settled, at the tick at which they were, by what was known then of values that
    stand further on, too."""
    pending, state, advance = own.steps, passage.state, passage.advance
    highest = np.maximum(pending.first, pending.previous)
    ripe = highest < (FOREVER if advance is None else state.settled)
    if not ripe.any():
        return
    decided, own.steps = take(pending, ripe), take(pending, ~ripe)
    if advance is None:
        _decide(own, passage, decided, state.moved, np.full(len(decided), passage.at[-1]))
        return
    at = advance.all_settled_at(highest[ripe])
    knew = intervals.distinct(state.moved.known).searchsorted(at, side="right")  # between two of these nothing was new
    for one in each(knew):
        mine = knew == one
        _decide(own, passage, take(decided, mine), known_by(state.moved, int(at[mine][0])), at[mine])


def _decide(own: Sends, passage: Passage, decided: SendSteps, moved: Moved, at: Ints) -> None:
    """Decide these, each at its tick, by the values that have `moved`; skips are listed of a finished history."""
    state = passage.state
    index, first, previous, sure = indexed(state, moved, decided.first, decided.previous)
    back = sure & (first <= previous)
    over = sure & intervals.touched(index.start, index.end, previous + 1, first)
    own.skips += int(over.sum())
    for i in indices(back | over if passage.finished else back).tolist():
        process, op, internal = int(decided.process[i]), int(decided.op[i]), bool(decided.internal[i])
        order = "nonmonotonic-send" if back[i] else "send-skip"
        passage.report.add(
            f"int-{order}" if internal else order,
            (process, op, int(decided.first[i])) if internal else (process, op),
            f"{state.called(process)} wrote at offset {decided.first[i]} after offset {decided.previous[i]}",
            at=int(at[i]),
            evidence={
                "process": process,
                "op": op,
                "previous_op": int(decided.previous_op[i]),
                "previous_offset": int(decided.previous[i]),
                "offset": int(decided.first[i]),
            },
            context={"idempotent": "false" if process in state.not_idempotent_processes else "true"}
            | duplicate_in(state, moved, int(decided.first[i]), int(decided.previous[i])),
        )


CHECK: Final = Check("send-order", Sends, arrive=arrive, fold=fold, rows=frozenset({"sent"}))
