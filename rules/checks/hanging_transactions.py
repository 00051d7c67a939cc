"""`hanging-transaction` and `unrecovered-transaction`: the last stable offset stands still while the log grows.

An open transaction holds the last stable offset at its first record, and a healthy one for no longer than its timeout.
`hanging-transaction` holds once observers have seen the last stable offset at one place, with records beyond it, for
longer than the longest `transaction.timeout.ms` that any client of the log started with, and `SLACK`.

When init_transactions has returned, whatever earlier lives of that transactional id had left open has been ended, and
its markers are written. `unrecovered-transaction` holds when the last stable offset is still where it was before that
call returned, a grace time after it, and the only transactions that can hold it there are of earlier lives of that id.
Which these are follows from the log: transactions begun before the place was held, whose end is unknown or later, and
which wrote where the place is. If any other could hold it, nothing is concluded.

State: the place held, the last `KEPT` indefinite or long transactions, `rules.settling.transactional_ids` for the
lives.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

import numpy as np

from rules.arrays.columns import INFO, OFFSETS, START, TXN, Columns, Runs
from rules.arrays.intervals import Bools, Ints
from rules.kept.report import Report
from rules.kept.state import Moves, State
from rules.settling.transactional_ids import initialised
from rules.vocabulary.objectives import SECOND, Objectives

SLACK: Final = 15 * SECOND
USUAL_TIMEOUT: Final = 60 * SECOND
"""Kafka's own default of transaction.timeout.ms, where no client's start row has told one."""
KEPT: Final = 64

HELD: Final = "held"
LONGEST: Final = "longest-timeout"
DOUBTFUL: Final = "doubtful-transactions"


@dataclass(slots=True)
class Doubtful:
    """A transaction that sent here and whose end is unknown or came late. `first`: its first offset, -1 if unknown;
    `below`: the log end observed first after it, beyond which it wrote nothing, -1 while not observed."""

    name: str
    process: int
    txn: int
    invoked: int
    completed: int
    indefinite: int
    first: int
    below: int = -1


def note_transactions(state: State, columns: Columns, fresh: Bools, sent: Runs, objectives: Objectives) -> None:
    """Remember what may hold the last stable offset, and how long a transaction may last. `sent`: the new runs."""
    for row in np.flatnonzero(fresh & columns.where(START)).tolist():
        told = dict(columns.table["settings"][row].as_py() or ()).get("transaction.timeout.ms", "")
        if told.isdigit():
            longest = state.notes.setdefault(LONGEST, [0])
            longest[0] = max(longest[0], int(told) * 1000)
    late = (columns.type == INFO) | (columns.completed - columns.invoked >= objectives.grace)
    rows = np.flatnonzero(fresh & columns.where(TXN) & late)
    if not len(rows):
        return
    kept = state.notes.setdefault(DOUBTFUL, [])
    for row in rows.tolist():
        own = sent.row == row
        name = columns.table["transactional_id"][row].as_py()
        if not own.any():
            continue
        known = sent.offset[own][sent.offset[own] >= 0]
        one = Doubtful(
            name or "", int(columns.process[row]), int(columns.txn[row]), int(columns.invoked[row]),
            int(columns.completed[row]), int(columns.type[row] == INFO), int(known.min()) if len(known) else -1,
        )  # fmt: skip
        kept.append(list(astuple(one)))
    kept.sort(key=lambda entry: entry[4])
    del kept[:-KEPT]


def follow_stable(state: State, at: Ints, moves: Moves, objectives: Objectives, report: Report) -> None:
    """Go through the ticks `at` with the moves up to the last of them, in canonical order."""
    rows = np.flatnonzero((moves.f == OFFSETS) & (moves.stable >= 0) & (moves.end >= 0))
    if not len(rows):
        return
    held, since = state.notes.get(HELD, [-1, -1])
    limit = max(state.notes.get(LONGEST, [0])[0] or USUAL_TIMEOUT, 0) + SLACK
    doubtful = [Doubtful(*entry) for entry in state.notes.get(DOUBTFUL, [])]
    ticks = at[np.minimum(np.searchsorted(at, moves.at[rows]), len(at) - 1)].tolist()
    for i, tick in zip(rows.tolist(), ticks, strict=True):
        time, stable, end = int(moves.at[i]), int(moves.stable[i]), int(moves.end[i])
        if doubtful:
            doubtful = _narrow(doubtful, time, stable, end)
        if end <= stable or stable != held:
            if held >= 0:
                _close(state, tick, report)
            held, since = (stable, time) if end > stable else (-1, -1)
            continue
        if time - since >= limit:
            report.condition(
                "hanging-transaction",
                True,
                f"the last stable offset stands at {held} for {(time - since) / 1e6:.0f} s, and the log ends at {end}",
                at=tick,
                since=since + limit,
                evidence={"last_stable": held, "log_end": end, "since": since},
            )
        if doubtful:
            _judge_recovery(state, doubtful, held, since, time, tick, objectives, report)
    state.notes[HELD] = [held, since]
    state.notes[DOUBTFUL] = [list(astuple(one)) for one in doubtful]


def _close(state: State, tick: int, report: Report) -> None:
    for key in list(state.open_conditions):
        name, _, subject = key.partition(":")
        if name in ("hanging-transaction", "unrecovered-transaction"):
            who = (subject,) if subject else ()
            report.condition(name, False, "", at=tick, evidence={}, subject=who)


def _narrow(doubtful: list[Doubtful], time: int, stable: int, end: int) -> list[Doubtful]:
    """Learn from an observation how far each of them can have written; drop those that it has gone past."""
    for one in doubtful:
        if one.below < 0 and time > one.completed:
            one.below = end
    return [one for one in doubtful if one.below < 0 or stable < one.below]


def _judge_recovery(
    state: State, doubtful: list[Doubtful], held: int, since: int, time: int, tick: int, objectives: Objectives,
    report: Report,
) -> None:  # fmt: skip
    holders = [
        one
        for one in doubtful
        if one.invoked <= since and one.first in (-1, held) and (one.indefinite or one.completed >= time)
    ]
    names = {one.name for one in holders}
    if len(names) != 1 or not (name := names.pop()):
        return
    for life in initialised(state, name):
        settled = since < life.completed <= time - objectives.grace
        if settled and all(one.process != life.process and one.completed <= life.completed for one in holders):
            report.condition(
                "unrecovered-transaction",
                True,
                f"init_transactions of {name} returned, and an earlier life's transaction still holds offset {held}",
                at=tick,
                since=life.completed + objectives.grace,
                evidence={
                    "transactional_id": name,
                    "earlier": holders[0].process,
                    "later": life.process,
                    "txn": holders[0].txn,
                    "last_stable": held,
                },
                subject=(name,),
            )
            return
