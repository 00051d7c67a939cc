"""`evidence-gap`: the commit of the probe log that the stream wants next has been cleaned away, or one of its files is
lost (`damage`).

The condition opens when the stream says so and closes when a new query goes on with what is left: after the state has
been rebuilt from that, where it fell behind. It is timed by the machine's clock, like everything about the job itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.times import micros
from streaming_jobs.history.damage import Damage, told

NAME: Final = "evidence-gap"


_BEHIND: Final = (
    "The checks fell behind what the probe log keeps; their state is being rebuilt from the rows that are left."
)
_LOST: Final = "The checks go on without its rows, and hold nothing against anybody that rests on them."
_OVER: Final = "The checks go on, with the rows of the probe log that are left."


def gap(
    event: Event, clusters: Iterable[str], now: datetime, why: str = "", damaged: Sequence[Damage] = ()
) -> list[Finding]:
    """The condition's event for each cluster whose partitions are known; the nameless one stands for none known.
    `damaged`: files that are lost, where that is the reason."""
    opened = event == "opened"
    message = (f"{told(damaged)} {_LOST}" if damaged else _BEHIND) if opened else _OVER
    why = why or told(damaged)
    return [
        Finding(
            anomaly=NAME,
            cluster=cluster,
            event=event,
            message=message,
            evidence={"error": why} if opened else {},
            at=micros(now),
            decidable=micros(now),
        )
        for cluster in sorted(clusters)
    ]


def open_gaps(current: pa.Table) -> list[str]:
    """The clusters whose condition is open, of `findings.current_findings`."""
    rows = current.filter(pc.and_(pc.equal(current["anomaly"], NAME), pc.equal(current["state"], "open")))
    found: list[str] = rows["cluster"].to_pylist()
    return found
