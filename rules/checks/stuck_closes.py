"""`stuck-close`: closing a client does not return.

A close row of the process says so; the client is left behind, and its thread with it. It is over when a later close row
of the process says ok, or when the process is forgotten.

State: the close rows after the last tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rules.arrays.columns import CLOSE, OK
from rules.kept.check import Check, News, Passage

NAME: Final = "stuck-close"
ERRORS: Final = ("_CLOSE_STUCK", "_STUCK_CLOSE")


@dataclass(slots=True)
class Closes:
    """`waiting`: [time, process, since] of the closes after the last tick; since when it does not return, -1 where it
    has."""

    waiting: list[list[int]] = field(default_factory=list)


def arrive(own: Closes, new: News) -> None:
    """Note who closed, and whose close does not return."""
    columns = new.columns
    for row in new.where(CLOSE).tolist():
        returned = columns.type[row] == OK
        if returned or columns.table["error"][row].as_py() in ERRORS:
            since = -1 if returned else int(columns.invoked[row])
            own.waiting.append([int(columns.completed[row]), int(columns.process[row]), since])


def fold(own: Closes, passage: Passage) -> None:
    """Open and close it in the order of time, and close it for those who are forgotten."""
    state, report = passage.state, passage.report
    for at, number, since in sorted(entry for entry in own.waiting if entry[0] <= passage.end):
        message = f"closing the client of {state.called(number)} does not return" if since >= 0 else None
        evidence = {"process": number} if since < 0 else {"process": number, "since": since}
        report.condition(NAME, message, at=at, since=since, evidence=evidence, subject=(number,))
    own.waiting = [entry for entry in own.waiting if entry[0] > passage.end]
    for key in [k for k in state.open_conditions if k.startswith(NAME)]:
        number = int(key.partition(":")[2])
        if number not in state.processes:
            report.condition(NAME, None, at=passage.end, evidence={"process": number}, subject=(number,))


CHECK: Final = Check(NAME, Closes, arrive=arrive, fold=fold, live_only=True, rows=frozenset({CLOSE}))
