"""How a running demonstration looks: a live screen on a terminal, lines of text everywhere else. Pure rendering.

The demonstration makes a `Snapshot` twice a second; what is shown follows from it alone.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from alerts.event import FindingEvent
from alerts.evidence import words
from alerts.incidents.judged import kind_of
from alerts.partition_metrics import readers_lag
from monitor.commands.findings import STYLE

LINE: Final = 80
EVENTS_SHOWN: Final = 6
PARTITIONS_SHOWN: Final = 12
"""Of each topic: with more, the screen would overflow; all are in the metrics and tables."""

WIDE: Final = {"log_end": "log end", "last_stable": "stable", "frontier": "settled"}
NARROW: Final = {"last_stable": "stable", "frontier": "settled"}
WIDE_FROM: Final = 100
"""Columns of the terminal from which two topics' tables with all of their columns stand side by side."""
_HEAD_LINES: Final = 7
MESSAGE_LINES: Final = 3
"""Of a finding's message: all of it is in the status page and the report."""
_LEAST_FINDINGS: Final = 4 + MESSAGE_LINES + 2
"""Lines that the newest finding needs: a blank one, the heading, itself, how many came before, and how many of less."""


@dataclass(frozen=True, slots=True)
class StoryLine:
    """A line of the story, `elapsed` seconds after the start. `found`: it is what the story is about."""

    elapsed: float
    line: str
    found: bool = False


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
    told: Sequence[StoryLine] = field(default=())
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
    """The whole live screen, not larger than the terminal from 80 x 24 on. What happened and what was found come
    first; partitions are shown as far as there is room."""
    limit = "" if now.limit is None else f" of {now.limit:.0f} s"
    head = Text.assemble(
        ("Offsetwatch demo", "bold"),
        f"  {now.cluster}" if now.cluster else "",
        f"  {now.elapsed:.0f} s{limit}  ",
        ("Ctrl-C stops it", "dim"),
    )
    served = Text.assemble("page     ", (now.url or "-", "underline" if now.url else "dim"))
    step = Text.assemble("now      ", (now.step, "bold cyan"), overflow="ellipsis", no_wrap=True)
    parts: list[RenderableType] = [head, served, step, Text(), _figures(now)]
    room = height - _HEAD_LINES - _LEAST_FINDINGS
    told = now.told[-max(0, room - 1) :]
    if told:
        parts += [Text(), *(_told(one) for one in told)]
        room -= len(told) + 1
    if tables := _fitting(list(_partitions(now.states, WIDE if width >= WIDE_FROM else NARROW)), width, room - 1):
        parts += [Text(), tables]
        room -= _height(tables, width) + 1
    parts += [Text(), Rule("findings", style="dim", align="left")]
    parts += list(_findings(now, width, _LEAST_FINDINGS - 4 + max(0, room)))
    return Group(*parts)


def _told(told: StoryLine) -> Text:
    style = "bold red" if told.found else ""
    return Text.assemble((f"{told.elapsed:4.0f} s  ", "dim"), (told.line, style), overflow="ellipsis", no_wrap=True)


def _fitting(tables: list[Table], width: int, room: int) -> RenderableType | None:
    """As many of the tables, side by side, as have room; None where not even one has."""
    for count in range(len(tables), 0, -1):
        shown = Columns(tables[:count], padding=(0, 4))
        if _height(shown, width) <= room:
            return shown
    return None


def _height(shown: RenderableType, width: int) -> int:
    console = Console(width=width, file=io.StringIO())
    return len(console.render_lines(shown, console.options.update(height=None), pad=False))


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


def _findings(now: Snapshot, width: int, room: int) -> Iterator[RenderableType]:
    """The newest findings, as many as `room` lines hold, and one at least."""
    if not now.events:
        yield Text("none", style="dim")
    left, shown = room, 0
    # What is broken before what is only slow or away.
    newest = now.events[::-1]
    ranked = sorted(newest, key=lambda event: kind_of(event.anomaly) == "condition")
    for event in ranked[:EVENTS_SHOWN]:
        lines = list(_finding(event, width))
        left -= len(lines)
        if shown and left < 0:
            break
        shown += 1
        yield from lines
    if len(now.events) > shown:
        yield Text(f"         and {len(now.events) - shown} more", style="dim")
    if now.allowed:
        yield Text(f"{now.allowed:,} more are observations, or allowed by the policy: no alert", style="dim")


def _finding(event: FindingEvent, width: int) -> Iterator[Text]:
    found = f"found {event.latency:.1f} s after it could be decided" if event.event != "closed" else ""
    yield Text.assemble(
        f"{event.counted:%H:%M:%S} ",
        (f"{event.severity} ", STYLE.get(event.severity, "")),
        (event.anomaly, "bold"),
        f" {event.event} in {_place(event)}  ",
        (found, "dim"),
        overflow="ellipsis",
        no_wrap=True,
    )
    for said in textwrap.wrap(event.message, width - 9, max_lines=MESSAGE_LINES, placeholder=" …"):
        yield Text(f"         {said}")
    yield Text(f"         {words(event.anomaly, event.evidence)}", style="dim", overflow="ellipsis", no_wrap=True)


def line(now: Snapshot) -> str:
    """The figures, on one line unless they are too wide for 80 columns."""
    figures = (
        f"acked {now.acknowledged:,} ({now.acknowledged_rate:.0f}/s), polled {now.polled:,}"
        f" ({now.polled_rate:.0f}/s), checks {_seconds(now.checked_until)} behind"
    )
    return wrapped_at(now.elapsed, figures)


def _place(event: FindingEvent) -> str:
    return f"{event.topic}/{event.partition}" if event.topic else event.cluster or "all clusters"


def worth_telling(events: Sequence[FindingEvent]) -> list[FindingEvent]:
    """Those of these events that are told line by line: of a condition, which many partitions may share, the first that
    opens, as all of them are counted at the end."""
    told: list[FindingEvent] = []
    seen: set[str] = set()
    for event in events:
        if kind_of(event.anomaly) != "condition":
            told.append(event)
        elif event.event == "opened" and event.anomaly not in seen:
            seen.add(event.anomaly)
            told.append(event)
    return told


def event_lines(event: FindingEvent) -> Iterator[str]:
    """One event of a finding, with its evidence, 80 columns wide."""
    yield from _wrapped(f"{event.severity} {event.anomaly} {event.event} in {_place(event)}", "        ")
    yield from _wrapped(event.message, "          ")
    if kind_of(event.anomaly) != "condition":
        yield from _wrapped(f"evidence: {words(event.anomaly, event.evidence)}", "          ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, LINE, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def at(elapsed: float, line: str) -> str:
    """A line with the seconds since the start."""
    return f"{elapsed:4.0f} s  {line}"


def wrapped_at(elapsed: float, line: str) -> str:
    """As `at`, over several lines where it is wider than 80 columns."""
    return textwrap.fill(at(elapsed, line), LINE, subsequent_indent=" " * 8, break_long_words=False)
