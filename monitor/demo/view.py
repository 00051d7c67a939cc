"""How a running demonstration looks: a live screen on a terminal, lines of text everywhere else. Pure rendering.

The demonstration makes a `Snapshot` twice a second; what is shown follows from it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from alerts.event import FindingEvent
from alerts.evidence import words
from alerts.metrics import readers_lag
from monitor.commands.findings import STYLE

EVENTS_SHOWN: Final = 6
PARTITIONS_SHOWN: Final = 12
"""Of each topic: with more, the screen would overflow; all are in the metrics and tables."""

WIDE: Final = {"log_end": "log end", "last_stable": "stable", "frontier": "settled"}
NARROW: Final = {"last_stable": "stable", "frontier": "settled"}
WIDE_FROM: Final = 100
"""Columns of the terminal from which two topics' tables with all of their columns stand side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One moment. Rates are records per second over the last seconds, times are seconds; None: not known yet.

    `states`: the last row of `partition_state` of each partition. `checked_until`: how far the checks' log time lags
    behind the clock, for the partition furthest behind. `events`: of findings that judge, the oldest first;
    `allowed`: how many others there were, observations and what the policy allows."""

    step: str
    elapsed: float
    limit: float | None = None
    cluster: str = ""
    url: str | None = None
    sent: int = 0
    acknowledged: int = 0
    polled: int = 0
    errors: int = 0
    committed: int = 0
    aborted: int = 0
    sent_rate: float = 0.0
    acknowledged_rate: float = 0.0
    polled_rate: float = 0.0
    states: Sequence[Mapping[str, Any]] = field(default=())
    checked_until: float | None = None
    batches: int = 0
    batch_seconds: float | None = None
    rows_rate: float | None = None
    unread_commits: int | None = None
    events: Sequence[FindingEvent] = ()
    allowed: int = 0

    @property
    def readers_lag(self) -> int | None:
        """Records that the furthest-behind reader of any partition has not read."""
        lags = [lag for state in self.states for lag in readers_lag(state).values()]
        return max(lags) if lags else None


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def screen(now: Snapshot, *, width: int, height: int) -> RenderableType:
    """The whole live screen, not larger than the terminal from 80 x 24 on, with the usual number of partitions."""
    limit = "" if now.limit is None else f" of {now.limit:.0f} s"
    head = Text.assemble(
        ("Offsetwatch demo", "bold"), f"  {now.cluster}" if now.cluster else "", f"  {now.elapsed:.0f} s{limit}  ",
        ("Ctrl-C stops it", "dim"),
    )  # fmt: skip
    served = Text.assemble("metrics  ", (now.url or "-", "underline" if now.url else "dim"))
    step = Text.assemble("now      ", (now.step, "bold cyan"), overflow="ellipsis", no_wrap=True)
    parts: list[RenderableType] = [head, served, step, Text(), _figures(now)]
    tables = list(_partitions(now.states, WIDE if width >= WIDE_FROM else NARROW))
    used = len(parts) + 3 + _lines(tables)
    if tables:
        parts += [Text(), Columns(tables, padding=(0, 4))]
    parts += [Text(), Rule("findings", style="dim", align="left")]
    room = max(1, (height - used - 5) // 3)
    parts += list(_findings(now.events, now.allowed, min(EVENTS_SHOWN, room)))
    return Group(*parts)


def _figures(now: Snapshot) -> Table:
    shown = Table.grid(padding=(0, 3))
    for _ in range(4):
        shown.add_column()
    shown.add_row(
        Text("probes", style="dim"),
        f"sent {now.sent:,} ({now.sent_rate:.0f}/s)",
        f"acked {now.acknowledged:,} ({now.acknowledged_rate:.0f}/s)",
        f"polled {now.polled:,} ({now.polled_rate:.0f}/s)",
    )
    shown.add_row(
        Text("", style="dim"),
        f"txns {now.committed:,} + {now.aborted:,} aborted",
        f"client errors {now.errors:,}",
        f"readers' lag {_count(now.readers_lag)} records",
    )
    shown.add_row(
        Text("checks", style="dim"),
        f"log time {_seconds(now.checked_until)} behind",
        f"batch {_seconds(now.batch_seconds)}",
        f"{_count(None if now.rows_rate is None else round(now.rows_rate))} rows/s, {now.batches:,} batches",
    )
    return shown


def _partitions(states: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Iterator[Table]:
    """One compact table for each topic."""
    for topic in sorted({state["topic"] for state in states}):
        shown = Table(
            box=None,
            pad_edge=False,
            header_style="dim",
            padding=(0, 1),
            title=topic,
            title_justify="left",
            title_style="",
        )
        shown.add_column("part.")
        for heading in (*columns.values(), "lag", "unseen"):
            shown.add_column(heading, justify="right")
        mine = sorted((state for state in states if state["topic"] == topic), key=lambda state: state["partition"])
        for state in mine[:PARTITIONS_SHOWN]:
            lag = max(readers_lag(state).values(), default=None)
            shown.add_row(
                str(state["partition"]),
                *(_count(state[name]) for name in columns),
                _count(lag),
                Text(_count(state["unseen"]), style="yellow" if state["unseen"] else ""),
            )
        yield shown


def _lines(tables: Sequence[Table]) -> int:
    return max((table.row_count + 3 for table in tables), default=0)


def _findings(events: Sequence[FindingEvent], allowed: int, shown: int) -> Iterator[RenderableType]:
    if not events:
        yield Text("none", style="dim")
    for event in reversed(events[-shown:]):
        yield Text.assemble(
            f"{event.counted:%H:%M:%S} ", (f"{event.severity} ", STYLE.get(event.severity, "")),
            (event.anomaly, "bold"), f" {event.event} in {_place(event)}  ",
            (f"found {event.latency:.1f} s after it could be decided" if event.event != "closed" else "", "dim"),
        )  # fmt: skip
        yield Text(f"         {event.message}")
        yield Text(f"         {words(event.anomaly, event.evidence)}", style="dim", overflow="ellipsis", no_wrap=True)
    if len(events) > shown:
        yield Text(f"         and {len(events) - shown} earlier", style="dim")
    if allowed:
        yield Text(
            f"{allowed:,} more are observations or allowed by the policy: recorded, counted, no alert", style="dim"
        )


def line(now: Snapshot) -> str:
    """The figures on one line."""
    return (
        f"{now.elapsed:4.0f} s  sent {now.sent:,} ({now.sent_rate:.0f}/s)  acked {now.acknowledged:,} "
        f"({now.acknowledged_rate:.0f}/s)  polled {now.polled:,} ({now.polled_rate:.0f}/s)  "
        f"readers' lag {_count(now.readers_lag)}  checks {_seconds(now.checked_until)} behind  "
        f"batch {_seconds(now.batch_seconds)}  findings {len(now.events)}, noted {now.allowed}"
    )


def _place(event: FindingEvent) -> str:
    return f"{event.topic}/{event.partition}" if event.topic else event.cluster or "all clusters"


def event_lines(event: FindingEvent) -> Iterator[str]:
    """One event of a finding, with its evidence."""
    yield f"finding {event.event}: {event.severity} {event.anomaly} in {_place(event)}: {event.message}"
    yield f"  evidence: {words(event.anomaly, event.evidence)}"
