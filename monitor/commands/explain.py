"""`offsetwatch explain ID`: one incident, or one finding, so that somebody believes it and knows what to do.

An id may be cut to as many digits as tell it apart. Read from the tables alone.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from alerts.evidence import words
from alerts.incidents.grouping import Incidents
from alerts.incidents.incident import RUNBOOK, Incident, clock, explanation, span, where
from monitor.commands.findings import STYLE, Filter, place, read
from monitor.commands.overview import gather
from monitor.errors import UserError
from rules.vocabulary.catalogue import CATALOGUE

SHOWN: Final = 10
"""Findings of an incident that are shown one by one; the others are counted."""
_LEAST_ID: Final = 4


@dataclass(frozen=True, slots=True)
class Explained:
    """`incident`: None for what is only counted. `findings`: rows of `CURRENT`, the oldest first."""

    incident: Incident | None
    findings: Sequence[Mapping[str, Any]]


def find(tables: Path, wanted: str, now: datetime) -> Explained:
    """The incident that this id names, the newest of it, or that the finding is a part of. Raises UserError where
    there is none, or several."""
    if len(wanted) < _LEAST_ID:
        raise UserError(f"{wanted}: give at least {_LEAST_ID} digits of the id")
    overview, incidents = gather(tables, now, Filter())
    rows = sorted(read(tables, Filter()), key=lambda row: (row["first_at"], row["id"]))
    ids = sorted({row["id"] for row in rows if row["id"].startswith(wanted)})
    if not ids:
        raise UserError(f"no finding and no incident has the id {wanted}: offsetwatch findings lists them")
    if len(ids) > 1:
        raise UserError(f"{wanted} may be {', '.join(ids[:5])}{' and others' * (len(ids) > 5)}: give more digits")
    of = incidents.of(ids[0])
    incident = next((one for one in overview.incidents if one.occurrence == of), None)
    if incident is None:
        return Explained(None, [row for row in rows if row["id"] == ids[0]])
    return Explained(incident, _members(incidents, incident, rows))


def _members(
    incidents: Incidents, incident: Incident, rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:  # fmt: skip
    return [row for row in rows if incidents.of(row["id"]) == incident.occurrence]


def lines(explained: Explained, now: datetime, width: int) -> Iterator[Text]:
    """The screen."""
    incident = explained.incident
    first = explained.findings[0]
    anomaly = incident.anomaly if incident is not None else first["anomaly"]
    severity = incident.severity if incident is not None else first["severity"]
    head = Text(severity, style=STYLE[severity])
    yield head.append(f" {anomaly}", style="bold").append(f" in {where(incident) if incident else place(first)}")
    if incident is not None:
        state = "open" if incident.open else "over"
        lasted = span(((now if incident.open else incident.until or incident.last) - incident.since).total_seconds())
        yield Text(f"{state}, since {clock(incident.since)}, {'for' if incident.open else 'lasted'} {lasted}")
        yield Text("")
        yield from _wrapped(explanation(incident), width)
    else:
        yield Text("only counted: it judges nothing, and nobody is told of it")
    entry = CATALOGUE.get(anomaly)
    yield Text("")
    if entry is not None:
        yield from _wrapped(f"{anomaly}: {entry.meaning}", width)
    yield Text(f"What to do: {RUNBOOK}#{anomaly.lower()}")
    yield Text("")
    yield Text(f"Findings ({len(explained.findings)})", style="bold")
    for row in explained.findings[:SHOWN]:
        at = row["first_at"].astimezone(UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]
        yield Text(f"{row['id']} {at} {row['anomaly']} {place(row)}")
        yield from _wrapped(row["message"], width, "  ")
        yield from _wrapped(words(row["anomaly"], json.loads(row["evidence"])), width, "    ", style="dim")
    left = len(explained.findings) - SHOWN
    if left > 0:
        yield Text(f"and {left} more: offsetwatch findings --all --since {_since(explained.findings[SHOWN])}")


def _since(row: Mapping[str, Any]) -> str:
    at: datetime = row["first_at"]
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _wrapped(text: str, width: int, indent: str = "", style: str = "") -> Iterator[Text]:
    for line in textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False):
        yield Text(line, style=style)
