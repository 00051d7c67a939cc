"""`offsetwatch explain ID`: one incident, or one finding, so that somebody believes it and knows what to do.

An id may be cut to as many digits as tell it apart. Read from the tables alone: the findings, and of the probe log what
every client did with the first finding's records.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.text import Text

from alerts.event import parsed
from alerts.evidence import words
from alerts.incidents.incident import RUNBOOK, Incident, clock, explanation, span, where
from monitor.commands.findings import STYLE
from monitor.incidents.explained import SHOWN, Explained, began, named, shown
from monitor.incidents.findings import place
from monitor.incidents.overview import silence_words
from monitor.incidents.published import looks_like
from rules.vocabulary.catalogue import CATALOGUE

OTHERS: Final = 5
"""So many of an id's other incidents are named."""


def lines(explained: Explained, now: datetime, width: int) -> Iterator[Text]:
    """The screen."""
    incident = explained.incident
    first = explained.findings[0]
    anomaly = incident.anomaly if incident is not None else first["anomaly"]
    severity = incident.severity if incident is not None else first["severity"]
    head = Text(severity, style=STYLE[severity])
    yield head.append(f" {anomaly}", style="bold").append(f" in {where(incident) if incident else place(first)}")
    if name := first["cluster_name"]:
        yield Text(f"cluster {name}, {first['cluster']}")
    if incident is not None:
        state = "open" if incident.open else "over"
        lasted = span(incident.held_for(now).total_seconds())
        yield Text(f"{state}, since {clock(incident.holds_since)}, {'for' if incident.open else 'lasted'} {lasted}")
        if incident.silence is not None:
            yield from _wrapped(silence_words(incident.silence, now), width)
        yield from _wrapped(_others(explained.others), width)
        yield Text("")
        yield from _wrapped(named(explanation(incident), explained.names), width)
    else:
        yield Text("only counted: it judges nothing, and nobody is told of it")
    entry = CATALOGUE.get(anomaly)
    yield Text("")
    if entry is not None:
        yield from _wrapped(f"{anomaly}: {entry.meaning}", width)
    if like := looks_like(explained.findings):
        yield from _wrapped(f"It looks like {like}", width)
    yield Text(f"What to do: {RUNBOOK}#{anomaly.lower()}")
    if explained.witnesses:
        yield Text("")
        yield Text("Who did what with the first of its records", style="bold")
        for one in explained.witnesses:
            who = explained.names.get(one.process, f"process {one.process}")
            told = (
                f"{one.at.astimezone(UTC).strftime('%m-%d %H:%M:%S.%f')[:-3]} {who} {named(one.did, explained.names)}"
            )
            yield from _wrapped(told, width, "", "  ")
    if explained.then:
        yield Text("")
        yield Text("What the cluster did then, by what the probes were told of this partition", style="bold")
        for change in explained.then:
            yield from _wrapped(
                f"{change.at.astimezone(UTC).strftime('%m-%d %H:%M:%S')} {change.told}", width, "", "  "
            )
    yield Text("")
    yield Text(f"Findings ({len(explained.findings)})", style="bold")
    for row in shown(explained):
        at = began(row).astimezone(UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]
        yield Text(f"{row['id']} {at} {row['anomaly']} {place(row)}", overflow="fold")
        yield from _wrapped(named(row["message"], explained.names), width, "  ")
        yield from _wrapped(words(row["anomaly"], parsed(row["evidence"])), width, "    ", style="dim")
    left = len(explained.findings) - SHOWN
    if left > 0:
        yield Text(f"and {left} more: offsetwatch findings --all --since {_time(min(map(began, explained.findings)))}")


def _others(others: Sequence[Incident]) -> str:
    """That the same was found at other times, and how to ask for it."""
    if not others:
        return ""
    times = [_time(one.holds_since) for one in others[:OTHERS]]
    more = f" and {len(others) - OTHERS} more" if len(others) > OTHERS else ""
    return f"This id had other incidents, since {', '.join(times)}{more}: explain them with --at and the time."


def _time(at: datetime) -> str:
    """As options take it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wrapped(text: str, width: int, indent: str = "", further: str | None = None, style: str = "") -> Iterator[Text]:
    after = indent if further is None else further
    for line in textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=after, break_on_hyphens=False):
        yield Text(line, style=style)
