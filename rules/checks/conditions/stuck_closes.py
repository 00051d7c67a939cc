"""`stuck-close`: closing a client does not return.

A close row of the process says so; the client is left behind, and its thread with it. It is over when a later close row
of the process says ok, when its committer says that the process ended some other way, or when nobody knows of it any
more (`rules.settling.completeness.REMEMBERED`): its log is complete with the row that says that it does not return.

State: who hangs, the close rows after the last tick, and what marks say meanwhile of the ends of those that hang.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rules.arrays.columns import CLOSE, OK, all_marks
from rules.arrays.intervals import among, indices
from rules.kept.check import Check, News, Passage
from rules.kept.state import State

NAME: Final = "stuck-close"
ERRORS: Final = ("_CLOSE_STUCK", "_STUCK_CLOSE")


@dataclass(slots=True)
class Closes:
    """`hanging`: those for whom it is open. `waiting`: [time, process, since] of the closes after the last tick; since
    when it does not return, -1 where it has, or the process ended."""

    hanging: list[int] = field(default_factory=list)
    waiting: list[list[int]] = field(default_factory=list)


def arrive(own: Closes, new: News) -> None:
    """Note who closed, whose close does not return, and who of these ended."""
    columns = new.columns
    for row in new.where(CLOSE).tolist():
        returned = columns.type[row] == OK
        if returned or columns.table["error"][row].as_py() in ERRORS:
            since = -1 if returned else int(columns.invoked[row])
            own.waiting.append([int(columns.completed[row]), int(columns.process[row]), since])
    hanging = [*own.hanging, *(number for _, number, since in own.waiting if since >= 0)]
    if not hanging:
        return
    # Of one that is over, and forgotten, nobody waits for a row.
    late = columns.where(CLOSE) & (columns.type == OK) & ~new.fresh
    for row in indices(late & among(columns.process, hanging)).tolist():
        own.waiting.append([int(columns.completed[row]), int(columns.process[row]), -1])
    told = all_marks(columns)
    for i in indices((told.ended >= 0) & among(told.process, hanging)).tolist():
        own.waiting.append([int(told.at[i]), int(told.process[i]), -1])


def _open(state: State) -> list[int]:
    """Those whose close does not return."""
    return [int(key.partition(":")[2]) for key in state.open_conditions if key.startswith(NAME)]


def fold(own: Closes, passage: Passage) -> None:
    """Open and close it in the order of time, and close it for those who are forgotten."""
    state, report = passage.state, passage.report
    if not own.waiting and not own.hanging:
        return
    awaited = {number for number, process in state.processes.items() if process.ahead}  # that it hangs may come yet
    ready = [entry for entry in own.waiting if entry[0] <= passage.end and (entry[2] >= 0 or entry[1] not in awaited)]
    own.waiting = [entry for entry in own.waiting if entry not in ready]
    for at, number, since in sorted(ready):
        message = f"closing the client of {state.called(number)} does not return" if since >= 0 else None
        evidence = {"process": number} if since < 0 else {"process": number, "since": since}
        report.condition(NAME, message, at=at, since=since, evidence=evidence, subject=(number,))
    own.hanging = _open(state)
    if own.hanging:
        known = state.processes.keys() | {entry[0] for entry in state.gone}
        for number in [number for number in own.hanging if number not in known]:
            report.condition(NAME, None, at=passage.end, evidence={"process": number}, subject=(number,))
            own.hanging.remove(number)


CHECK: Final = Check(
    NAME, Closes, arrive=arrive, fold=fold, live_only=True, rows=frozenset({CLOSE}), looks_back=True, rests=True
)
