"""What `/incidents/ID` says, made from the evidence. Pure: no clock, no I/O, no HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from alerts.event import parsed
from alerts.evidence import words
from alerts.incidents.incident import RUNBOOK, clock, explanation, span
from monitor.diagrams.space_time_svg import Row, rows, svg
from monitor.incidents.explained import SHOWN, Explained, began, named, shown
from monitor.incidents.findings import place
from monitor.incidents.log_around import Standing
from monitor.incidents.overview import silence_words
from monitor.incidents.published import looks_like
from monitor.status.evidence import Evidence
from monitor.status.overview_view import where_first
from monitor.status.runbook import Paragraph
from rules.vocabulary.catalogue import CATALOGUE

_NAMED: Final = 4
"""Processes that are named in one cell of a table; the others are counted."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a finding's evidence: its value in words, and what the catalogue says that it means."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class ToldFinding:
    """One finding."""

    id: str
    at: str
    anomaly: str
    where: str
    message: str
    state: str
    implied_by: str | None
    fields: Sequence[Field]


@dataclass(frozen=True, slots=True)
class LogRow:
    """One value at one offset, with names."""

    offset: int
    value: str
    sent_by: str
    given_to: str
    passed_by: str
    in_focus: bool


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """`diagram`: SVG, empty where there is none; `operations`: the same in words; `looks_like`: a
    published defect, empty where none is known; `silenced`: that nobody is told of it, and why, empty where somebody
    is; `runbook`: where to read on, a link or a file's name; `to_do`: its paragraphs, if they are installed."""

    now: datetime
    id: str
    anomaly: str
    severity: str
    open: bool
    where: str
    places: str
    times: str
    explanation: str
    meaning: str
    decided: str
    looks_like: str
    silenced: str
    to_do: Sequence[Paragraph]
    runbook: str
    witnesses: Sequence[tuple[str, str, str]]
    diagram: str
    operations: Sequence[Row]
    log: Sequence[LogRow]
    findings: Sequence[ToldFinding]
    more: int
    stands_for: int
    """How many findings those are, where one tells of more of the same; 0 where each tells of one."""


def page(evidence: Evidence, now: datetime, to_do: Mapping[str, Sequence[Paragraph]], runbook_url: str) -> IncidentPage:
    """The whole page."""
    explained, names = evidence.explained, evidence.explained.names
    first, incident = explained.findings[0], explained.incident
    anomaly = incident.anomaly if incident is not None else first["anomaly"]
    entry = CATALOGUE.get(anomaly)
    return IncidentPage(
        now=now,
        id=incident.id if incident is not None else first["id"],
        anomaly=anomaly,
        severity=incident.severity if incident is not None else first["severity"],
        open=incident is not None and incident.open,
        where=where_first(incident) if incident is not None else place(first),
        places=_places(explained),
        times=_times(explained, now),
        explanation=named(explanation(incident), names) if incident is not None else named(first["message"], names),
        meaning=entry.meaning if entry is not None else "",
        decided=_DECIDED[entry.decided] if entry is not None else "",
        looks_like=looks_like(explained.findings),
        silenced=silence_words(incident.silence, now) if incident is not None and incident.silence is not None else "",
        to_do=to_do.get(anomaly, ()),
        runbook=f"{runbook_url.rstrip('#') or RUNBOOK}#{anomaly.lower()}",
        witnesses=[
            (_precise(one.at), names.get(one.process, f"process {one.process}"), named(one.did, names))
            for one in explained.witnesses
        ],
        diagram=svg(evidence.diagram) if evidence.diagram is not None else "",
        operations=[one for one in rows(evidence.diagram) if one.in_focus] if evidence.diagram is not None else (),
        log=[_log_row(one, names) for one in evidence.log],
        findings=[_told(row, names) for row in shown(explained)],
        more=max(len(explained.findings) - SHOWN, 0),
        stands_for=_stands_for(explained),
    )


_DECIDED: Final = {
    "at once": "What was seen proves it; it was told at once.",
    "on settlement": "It rests on absence, or on what a later row could change: it was told once the log of every "
    "process that matters was complete past that point, and the grace time over.",
    "on resolution": "Another partition proved it.",
    "while it lasts": "It is open while it lasts, and closes by itself.",
}


def _times(explained: Explained, now: datetime) -> str:
    incident = explained.incident
    if incident is None:
        return f"{clock(explained.findings[0]['first_at'])}; only counted: it judges nothing, and nobody is told of it"
    lasted = span(incident.held_for(now).total_seconds())
    return f"since {clock(incident.holds_since)}, {'for' if incident.open else 'lasted'} {lasted}"


def _places(explained: Explained) -> str:
    """All places where there are several, as many as the incident lists; of several clusters, which one."""
    incident = explained.incident
    told = []
    if incident is not None and incident.places > 1:
        more = incident.places - len(incident.subjects)
        told.append(", ".join(incident.subjects) + (f" and {more} more" if more > 0 else ""))
    if name := explained.findings[0]["cluster_name"]:
        told.append(f"cluster {name}, {explained.findings[0]['cluster']}")
    return "; ".join(told)


def _stands_for(explained: Explained) -> int:
    number = explained.incident.findings if explained.incident is not None else 0
    return number if number > len(explained.findings) else 0


def _told(row: Mapping[str, Any], names: Mapping[int, str]) -> ToldFinding:
    return ToldFinding(
        id=row["id"],
        at=_precise(began(row)),
        anomaly=row["anomaly"],
        where=place(row),
        message=named(row["message"], names),
        state=row["state"],
        implied_by=row["implied_by"],
        fields=[_field(row["anomaly"], name, value) for name, value in parsed(row["evidence"]).items()],
    )


def _field(anomaly: str, name: str, value: Any) -> Field:
    entry = CATALOGUE.get(anomaly)
    known = entry.field(name) if entry is not None else None
    return Field(
        name, words(anomaly, {name: value}).removeprefix(f"{name}="), known.meaning if known is not None else ""
    )


def _log_row(one: Standing, names: Mapping[int, str]) -> LogRow:
    if one.value is None:
        value = "no record that is known"
    else:
        value = f"{names.get(one.value[0], f'writer {one.value[0]}')}/{one.value[1]}"
    return LogRow(
        one.offset, value, _who(one.sent_by, names), _who(one.given_to, names), _who(one.passed_by, names), one.in_focus
    )


def _who(processes: Sequence[int], names: Mapping[int, str]) -> str:
    said = [names.get(one, f"process …{one % 10_000:04d}") for one in processes]
    more = len(said) - _NAMED
    return ", ".join(said[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _precise(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
