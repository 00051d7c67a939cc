"""`offsetwatch explain ID`: one incident, or one finding, so that somebody believes it and knows what to do.

An id may be cut to as many digits as tell it apart. Read from the tables alone: the findings, and of the probe log what
every client did with the first finding's records.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from alerts.evidence import words
from alerts.incidents.grouping import Incidents
from alerts.incidents.incident import RUNBOOK, Incident, clock, explanation, span, where
from monitor.commands.findings import STYLE, Filter, place, read
from monitor.commands.overview import gather
from monitor.commands.witnesses import Witness, asked, names, witnesses
from monitor.errors import UserError
from rules.vocabulary.catalogue import CATALOGUE

SHOWN: Final = 10
"""Findings of an incident that are shown one by one; the others are counted."""
_LEAST_ID: Final = 4
_LONG: Final = re.compile(r"(?<!\d)\d{6,19}(?!\d)")
_ID: Final = re.compile(r"(?P<process>process )?(?<!\d)(?P<id>\d{6,19})(?!\d)")


@dataclass(frozen=True, slots=True)
class Explained:
    """`incident`: None for what is only counted. `findings`: rows of `CURRENT`, the oldest first. `witnesses`: what
    clients did with the first finding's records; `names`: how probes call these, and those that findings name."""

    incident: Incident | None
    findings: Sequence[Mapping[str, Any]]
    witnesses: Sequence[Witness] = ()
    names: Mapping[int, str] = field(default_factory=dict)


def find(tables: Path, history: Path, wanted: str, now: datetime) -> Explained:
    """The incident that this id names, the newest of it, or that the finding is a part of. Raises UserError where
    there is none, or several."""
    found = _found(tables, wanted, now)
    first = found.findings[0]
    about = asked(first, json.loads(first["evidence"]))
    saw = witnesses(history, about) if about is not None else []
    told = " ".join(f"{row['message']} {row['evidence']}" for row in found.findings[:SHOWN])
    processes = {one.process for one in saw} | {int(number) for number in _LONG.findall(told)}
    return replace(found, witnesses=saw, names=names(history, processes))


def _found(tables: Path, wanted: str, now: datetime) -> Explained:
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
        yield from _wrapped(_named(explanation(incident), explained.names), width)
    else:
        yield Text("only counted: it judges nothing, and nobody is told of it")
    entry = CATALOGUE.get(anomaly)
    yield Text("")
    if entry is not None:
        yield from _wrapped(f"{anomaly}: {entry.meaning}", width)
    yield Text(f"What to do: {RUNBOOK}#{anomaly.lower()}")
    if explained.witnesses:
        yield Text("")
        yield Text("Who did what with the first of its records", style="bold")
        for one in explained.witnesses:
            who = explained.names.get(one.process, f"process {one.process}")
            told = (
                f"{one.at.astimezone(UTC).strftime('%m-%d %H:%M:%S.%f')[:-3]} {who} {_named(one.did, explained.names)}"
            )
            yield from _wrapped(told, width, "", "  ")
    yield Text("")
    yield Text(f"Findings ({len(explained.findings)})", style="bold")
    for row in explained.findings[:SHOWN]:
        at = row["first_at"].astimezone(UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]
        yield Text(f"{row['id']} {at} {row['anomaly']} {place(row)}", overflow="fold")
        yield from _wrapped(_named(row["message"], explained.names), width, "  ")
        yield from _wrapped(words(row["anomaly"], json.loads(row["evidence"])), width, "    ", style="dim")
    left = len(explained.findings) - SHOWN
    if left > 0:
        yield Text(f"and {left} more: offsetwatch findings --all --since {_since(explained.findings[SHOWN])}")


def _since(row: Mapping[str, Any]) -> str:
    at: datetime = row["first_at"]
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _named(text: str, names: Mapping[int, str]) -> str:
    """The text with the probes' names for the ids that it tells: a value is its writer's name and a number."""

    def name(found: re.Match[str]) -> str:
        known = names.get(int(found["id"]))
        return found.group() if known is None else f"{known}" if found["process"] else f"{known}:{found['id'][-4:]}"

    return _ID.sub(name, text)


def _wrapped(text: str, width: int, indent: str = "", further: str | None = None, style: str = "") -> Iterator[Text]:
    after = indent if further is None else further
    for line in textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=after, break_on_hyphens=False):
        yield Text(line, style=style)
