"""`evidence-gap`: the commit of the probe log that the stream wants next has been cleaned away.

The condition opens when the stream says so and closes when the state has been rebuilt from the rows that are left and
handed over to a new query. It is timed by the machine's clock, like everything about the job itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.times import micros

NAME: Final = "evidence-gap"


def gap(event: Event, clusters: Iterable[str], now: datetime, why: str = "") -> list[Finding]:
    """The condition's event for each cluster whose partitions are known; the nameless one stands for none known."""
    opened = event == "opened"
    message = (
        "The checks fell behind what the probe log keeps; their state is being rebuilt from the rows that are left."
        if opened
        else "The checks' state has been rebuilt from the probe log."
    )
    return [
        Finding(
            anomaly=NAME,
            cluster=cluster,
            topic_id="",
            topic="",
            partition=-1,
            subject=(),
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
