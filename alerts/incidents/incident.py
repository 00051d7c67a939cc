"""An incident: one thing that somebody is woken by, with everything inside that follows from it.

Its id is that of its first finding. What tells receivers apart, and never changes while it lasts, is said by the first
finding too: anomaly, severity, cluster, topic. What grows (places, findings, other anomalies) is counted, and listed up
to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from alerts.incidents.silence import Silence
from rules.vocabulary.policy import Severity

LISTED: Final = 20
"""Subjects of an incident that are listed; the others are counted."""

RUNBOOK: Final = "docs/runbook.md"

Names = Callable[[str], str]
"""How people call the cluster with this id; "" where it has no name."""


def nameless(cluster: str) -> str:
    """The names where there is one cluster, which needs none."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """`occurrence`: the id with the time of its first finding: a condition that comes back after long has the same id.
    `cluster` is the cluster's id, `cluster_name` how people call it, "" where there is but one.
    `since`, `last` and `until` are log time: when the first finding spoke, when the newest did, and, once it is
    over, when it ended. `told`: machine time of its first finding's record. `ended`: machine time from which it counts
    as over, None while it is open. `subjects`: the places (topic/partition), or whoever it is about, where a finding
    names no place; `LISTED` at most of the `places` that there are. `folded`: findings of other anomalies that follow
    from it or concern the same records, by name. `standing`: conditions of it that are open. `topics`: of all
    its findings, "" among them where one concerns none. `silence`: under which nobody is told of it, or was told when
    it ended."""

    id: str
    occurrence: str
    anomaly: str
    kind: Literal["violation", "condition"]
    severity: Severity
    cluster: str
    cluster_name: str = ""
    topic: str
    message: str
    evidence: Mapping[str, Any]
    since: datetime
    last: datetime
    until: datetime | None
    told: datetime
    ended: datetime | None
    subjects: Sequence[str]
    places: int
    findings: int
    standing: int
    folded: Mapping[str, int]
    topics: frozenset[str]
    silence: Silence | None = None

    @property
    def open(self) -> bool:
        return self.ended is None

    @property
    def place(self) -> str:
        """Where it is, in a few words: the first place, and how many more there are."""
        first = self.subjects[0] if self.subjects else self.topic
        return first if self.places <= 1 else f"{first} +{self.places - 1}"

    @property
    def runbook(self) -> str:
        """The section that says what to do."""
        return f"{RUNBOOK}#{self.anomaly.lower()}"


def summary(incident: Incident) -> str:
    """One short line: what, where, how bad."""
    return f"{incident.anomaly} in {where(incident)} ({incident.severity})"


def where(incident: Incident) -> str:
    """The place in words: one by its name, several by their number and the first of them."""
    if incident.places <= 1:
        first = incident.subjects[0] if incident.subjects else incident.topic
        return f"{first}{of_cluster(incident)}" if first else _cluster(incident)
    within = f"{incident.topic}{of_cluster(incident)}" if incident.topic else _cluster(incident)
    return f"{within}, {incident.places} places ({_listed(incident.subjects, incident.places)})"


def of_cluster(incident: Incident) -> str:
    """What follows the name of a place, where there are several clusters: of which one it is."""
    return f" of {incident.cluster_name}" if incident.cluster_name else ""


def explanation(incident: Incident) -> str:
    """What happened, in sentences: the first finding's, how many there are, what came with it, how long it lasted."""
    said = [_sentence(incident.message)]
    if incident.findings > 1:
        spread = f" in {incident.places} places" if incident.places > 1 else ""
        said.append(f"{incident.findings} findings so far{spread}.")
    if incident.folded:
        said.append(f"With it came {_counted(incident.folded)}.")
    if incident.until is not None:
        lasted = (incident.until - incident.since).total_seconds()
        ended = "The last of it was seen" if incident.kind == "violation" else "It ended"
        said.append(f"{ended} at {clock(incident.until)}, {span(lasted)} after it began.")
    return " ".join(said)


def clock(at: datetime) -> str:
    """A time for people: date and time, UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(seconds: float) -> str:
    """A span for people: the two largest units of it."""
    whole = round(seconds)
    if whole < 1:
        return "less than a second"
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, whole = divmod(whole, size)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")


def _counted(folded: Mapping[str, int]) -> str:
    return ", ".join(f"{number} × {name}" for name, number in sorted(folded.items(), key=lambda one: (-one[1], one[0])))


def _listed(subjects: Sequence[str], places: int) -> str:
    shown = list(subjects[:3])
    return ", ".join(shown) + (f" and {places - len(shown)} more" if places > len(shown) else "")


def _cluster(incident: Incident) -> str:
    called = incident.cluster_name or incident.cluster
    return f"cluster {called}" if called else "the monitor itself"
