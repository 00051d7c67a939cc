"""What was dropped because more waited than is kept, and how that is told.

What cannot be decided yet waits. Where more waits than a partition keeps, verdicts are lost, and that is never silent:
whoever drops says so to the report (`Report.drop`, `Report.newest`), and the condition `window-overflow` tells once, by
what was dropped, that it is so. It is over when nothing of it has been dropped for `QUIET` of log time, and says then
how much it was.

State: an entry for each kind of thing that is being dropped, of which there are as many as rules name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rules.kept.state import State
from rules.vocabulary.objectives import SECOND

if TYPE_CHECKING:
    from rules.kept.report import Report

NAME: Final = "window-overflow"
QUIET: Final = 600 * SECOND


def note(state: State, what: str, number: int) -> None:
    """So many of these were dropped, if any."""
    if number <= 0:
        return
    count, since, _ = state.dropped.get(what, [0, state.tick, 0])
    state.dropped[what] = [count + number, since, state.tick]  # -1 before the first tick: see `tell`


def tell(state: State, at: int, report: Report) -> None:
    """Open the condition of what is dropped, and close it when that is over."""
    for what, (count, began, ended) in list(state.dropped.items()):
        since, last = (at if time < 0 else time for time in (began, ended))
        state.dropped[what] = [count, since, last]
        over = at >= last + QUIET
        report.condition(
            NAME,
            None
            if over
            else f"more {what} wait for a verdict than are kept: the oldest are dropped, and none is given on them",
            at=at,
            since=since,
            evidence={"what": what, "dropped": count, "since": since},
            subject=(what,),
        )
        if over:
            del state.dropped[what]
