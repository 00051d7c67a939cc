"""`checks-stalled`: the checks have failed, or a batch of them does not end, and they begin again.

It is timed by the machine's clock, like everything about the job itself, and opened by whoever keeps the job at work.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.times import micros

NAME: Final = "checks-stalled"


def stalled(event: Event, now: datetime, since: datetime, why: str = "") -> Finding:
    """The condition's event: nothing has been checked `since` then. `why`: one line on what ended them."""
    opened = event == "opened"
    lasted = round((now - since).total_seconds(), 3)
    return Finding(
        anomaly=NAME,
        cluster="",
        event=event,
        message=f"Nothing is being checked: {why}." if opened else f"The checks go on, after {lasted:.0f} s.",
        evidence={"why": why} if opened else {"lasted_s": lasted},
        at=micros(since if opened else now),
        decidable=micros(now),
    )
