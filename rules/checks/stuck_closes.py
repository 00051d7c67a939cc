"""`stuck-close`: closing a client does not return.

A close row of the process says so; the client is left behind, and its thread with it. It is over when a later close row
of the process says ok, whichever of the two comes first, or when the process is forgotten.

State: none but the open condition.
"""

from __future__ import annotations

from typing import Final

from rules.arrays.columns import CLOSE, OK
from rules.kept.check import Check, News, Stateless
from rules.kept.report import Report

NAME: Final = "stuck-close"
ERRORS: Final = ("_CLOSE_STUCK", "_STUCK_CLOSE")


def arrive(own: Stateless, new: News) -> None:
    """Open and close it by the new close rows, and close it for those who are forgotten."""
    for row in new.where(CLOSE).tolist():
        _judge(new, row)
    state = new.state
    for key in [k for k in state.open_conditions if k.startswith(NAME)]:
        number = int(key.partition(":")[2])
        if number not in state.processes:
            _end(number, state.now, new.report)


def _judge(new: News, row: int) -> None:
    columns, report = new.columns, new.report
    number, since = int(columns.process[row]), int(columns.invoked[row])
    process = new.state.processes.get(number)
    if columns.type[row] == OK:
        _end(number, int(columns.completed[row]), report)
    elif columns.table["error"][row].as_py() in ERRORS and process is not None:
        report.condition(
            NAME,
            True,
            f"closing the client of process {number} does not return",
            at=int(columns.completed[row]),
            since=since,
            evidence={"process": number, "since": since},
            subject=(number,),
        )
        if process.closes_at > int(columns.slice[row]) + 1:  # a later row that came first says that it did
            _end(number, process.closed, report)


def _end(number: int, at: int, report: Report) -> None:
    report.condition(NAME, False, "", at=at, evidence={"process": number}, subject=(number,))


CHECK: Final = Check(NAME, Stateless, arrive=arrive, live_only=True)
