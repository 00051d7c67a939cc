"""`stuck-producer` and `stuck-close`: calls into a client that do not return, or return without having done anything.

`stuck-producer`: for the liveness objective, no send and no transaction of a writer has completed, though it tries. A
completion is an answer, ok or fail; `info` is none. That it tries shows in two ways: its operations end as `info`, one
after the other, or one of them has been open all the time. The latter is told by the marks: `through` is held at a
process's oldest open operation. Only marks are believed whose slices are all here, so that a completion which is
merely late in coming makes nobody stuck.

It is reported where the writer sends, and everywhere for a writer that has been stuck since it was born (its producer
id never came). Who is stuck is named by the probe's own name where its start row tells one: a life that ends with an
error and is followed by another does not begin anew, the next life inherits since when.

`stuck-close`: a close row says that the client's close did not return. It is over when a later close row of the process
says ok, or the process is forgotten.

State: nine values for each writer that lives, and the last `LINEAGE` names that ended with an error.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np

from rules.arrays.columns import CLOSE, INFO, OK, START, Columns, Runs, marks
from rules.arrays.intervals import Bools, distinct
from rules.kept.report import Report
from rules.kept.state import State
from rules.vocabulary.objectives import SECOND, Objectives

BUSY: Final = 5 * SECOND
"""A mark that is held back by less than this shows an ordinary operation under way."""
LINEAGE: Final = 64
STUCK_CLOSE: Final = ("_CLOSE_STUCK", "_STUCK_CLOSE")
GONE: Final = ("process-died", "host-lost", "_CRASHED")
"""Errors of close rows that tell of a process that went away, and not of a client that failed."""

PRODUCERS: Final = "producers"
FAILING: Final = "failing-names"


@dataclass(slots=True)
class Producer:
    """One writer's life. `failing`: when the first of its operations was invoked that has had no answer since the last
    one that had; -1 while there is none. `answered`: when it had its last answer here."""

    process: int
    who: str
    born: int
    sends: int = 0  # 1: it has sent to this partition
    failing: int = -1
    answered: int = -1
    seen: int = -1  # the newest mark that was believed


def follow_producers(
    state: State, columns: Columns, fresh: Bools, sent: Runs, objectives: Objectives, report: Report
) -> None:
    """Take in new rows: starts, closes, what completed, and marks. `sent`: the new rows' runs."""
    producers = {entry[0]: Producer(*entry) for entry in state.notes.get(PRODUCERS, [])}
    rare = np.flatnonzero(fresh & columns.where(START, CLOSE))
    events: list[tuple[int, int, int, int]] = []  # time, kind, process, row or through
    for row in rare.tolist():
        kind = 0 if columns.f[row] == START else 3
        events.append((int(columns.completed[row]), kind, int(columns.process[row]), row))
        if kind == 3:
            _judge_close(state, columns, row, report)
    held = _held_marks(state, columns)
    rows = distinct(sent.row)
    if len(rows):
        unsure = set(distinct(columns.process[rows[columns.type[rows] == INFO]]).tolist())
        for number in distinct(columns.process[rows]).tolist():
            own = rows[columns.process[rows] == number]
            one = producers.get(number)
            watched = one is not None and (one.failing >= 0 or f"stuck-producer:{one.who}" in state.open_conditions)
            if number in unsure or number in held or watched or one is None or len(rare):
                events += [(int(columns.completed[r]), 1, number, r) for r in _telling(columns, own).tolist()]
            else:
                one.answered = max(one.answered, int(columns.completed[own].max()))
                one.sends = 1
    events += [(time, 2, number, through) for number, told in held.items() for time, through in told]
    for time, kind, number, what in sorted(events):
        if kind == 0:
            _begin(state, producers, columns, what, objectives)
        elif kind == 1:
            one = producers.setdefault(number, Producer(number, str(number), int(columns.invoked[what])))
            _complete(one, columns, what, time, objectives, report)
        elif number in producers:
            if kind == 2:
                _hold(producers[number], time, what, objectives, report)
            else:
                _end(state, producers.pop(number), columns, what, time, report)
    _forget(state, producers, objectives, report)
    state.notes[PRODUCERS] = [list(astuple(one)) for one in producers.values()]


def _held_marks(state: State, columns: Columns) -> dict[int, list[tuple[int, int]]]:
    """By process, (time, through) of the marks that show an operation open for long, and whose slices are here."""
    times, processes, slices, through = marks(columns)
    found: dict[int, list[tuple[int, int]]] = {}
    for i in np.flatnonzero(times - through >= BUSY).tolist():
        process = state.processes.get(int(processes[i]))
        if process is not None and slices[i] <= process.next:
            found.setdefault(int(processes[i]), []).append((int(times[i]), int(through[i])))
    return found


def _telling(columns: Columns, own: Any) -> Any:
    """Of one writer's rows, those that change anything: all without an answer, and the answers next to them."""
    own = own[np.argsort(columns.completed[own], kind="stable")]
    unsure = columns.type[own] == INFO
    keep = unsure.copy()
    keep[1:] |= unsure[:-1]
    keep[0] = keep[-1] = True
    return own[keep]


def _begin(state: State, producers: dict[int, Producer], columns: Columns, row: int, objectives: Objectives) -> None:
    told = dict(columns.table["settings"][row].as_py() or ())
    if "writer" not in told:
        return
    number, born = int(columns.process[row]), int(columns.completed[row])
    known = producers.get(number) or Producer(number, "", born)
    known.who, known.born = told.get("name") or str(number), born
    for name, failing, closed in state.notes.get(FAILING, []):
        if name == known.who and 0 <= born - closed <= objectives.liveness and known.answered < 0:
            known.failing = failing
    producers[number] = known


def _complete(one: Producer, columns: Columns, row: int, time: int, objectives: Objectives, report: Report) -> None:
    one.sends = 1
    if columns.type[row] != INFO:
        if time >= one.answered:
            one.answered, one.failing = time, -1
            _tell(one, False, time, time, report)
        return
    if time < one.answered:
        return
    invoked = max(int(columns.invoked[row]), one.answered)
    one.failing = invoked if one.failing < 0 else min(one.failing, invoked)
    if time - one.failing >= objectives.liveness:
        _tell(one, True, one.failing + objectives.liveness, time, report)


def _hold(one: Producer, time: int, through: int, objectives: Objectives, report: Report) -> None:
    """A mark says that an operation invoked at `through` was still open at `time`."""
    if time <= one.seen or through < one.answered - BUSY:
        return
    one.seen = time
    stillborn = not one.sends and through - one.born <= SECOND
    since = through if one.failing < 0 else min(one.failing, through)
    if (one.sends or stillborn) and time - since >= objectives.liveness:
        _tell(one, True, since + objectives.liveness, time, report)


def _end(state: State, one: Producer, columns: Columns, row: int, time: int, report: Report) -> None:
    """It closed. If it had failed, its name's next life goes on from there, else nobody is stuck any more."""
    opened = f"stuck-producer:{one.who}" in state.open_conditions
    error = columns.table["error"][row].as_py()
    if columns.type[row] != OK and error not in GONE and (opened or one.failing >= 0):
        failing = state.notes.setdefault(FAILING, [])
        since = one.failing if one.failing >= 0 else one.born
        failing[:] = [entry for entry in failing if entry[0] != one.who] + [[one.who, since, time]]
        del failing[:-LINEAGE]
        return
    _tell(one, False, time, time, report)


def _forget(state: State, producers: dict[int, Producer], objectives: Objectives, report: Report) -> None:
    """Close what is open for names that nobody bears any more: their lives ended, and no other has followed."""
    for number in [n for n in producers if n not in state.processes]:
        del producers[number]
    bearers = {one.who for one in producers.values()}
    ended = {name: closed for name, _, closed in state.notes.get(FAILING, [])}
    for key in list(state.open_conditions):
        name, _, who = key.partition(":")
        if name == "stuck-producer" and who not in bearers and state.now - ended.get(who, -1) > objectives.liveness:
            report.condition(name, False, "", at=state.now, evidence={"writer": who}, subject=(who,))
        if name == "stuck-close" and int(who) not in state.processes:
            report.condition(name, False, "", at=state.now, evidence={"process": int(who)}, subject=(int(who),))


def _tell(one: Producer, holds: bool, since: int, time: int, report: Report) -> None:
    report.condition(
        "stuck-producer",
        holds,
        f"no send and no transaction of {one.who} has completed for {(time - one.failing) / 1e6:.0f} s"
        if one.failing >= 0
        else f"an operation of {one.who} does not return",
        at=time,
        since=since,
        evidence={"process": one.process, "writer": one.who, "answered": one.answered},
        subject=(one.who,),
    )


def _judge_close(state: State, columns: Columns, row: int, report: Report) -> None:
    number, time = int(columns.process[row]), int(columns.completed[row])
    process = state.processes.get(number)
    if columns.type[row] == OK:
        report.condition("stuck-close", False, "", at=time, evidence={"process": number}, subject=(number,))
    elif columns.table["error"][row].as_py() in STUCK_CLOSE and process is not None:
        report.condition(
            "stuck-close",
            True,
            f"closing the client of process {number} does not return",
            at=time,
            since=int(columns.invoked[row]),
            evidence={"process": number, "since": int(columns.invoked[row])},
            subject=(number,),
        )
        if process.closes_at > int(columns.slice[row]) + 1:  # a later row that came first says that it did
            report.condition(
                "stuck-close", False, "", at=process.closed, evidence={"process": number}, subject=(number,)
            )
