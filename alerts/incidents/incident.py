"""An incident: one thing that somebody is woken by, with everything inside that follows from it.

Its id is that of its first finding. What tells receivers apart, and never changes while it lasts, is said by the first
finding too: anomaly, severity, cluster, topic. What grows (places, findings, other anomalies) is counted, and listed up
to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from alerts.incidents.keys import REFLECTED
from alerts.incidents.remade_topics import Remade
from alerts.incidents.silence import Silence
from rules.vocabulary.conditions import EXPLAIN_WHAT_WAITS, OUT_OF_SYNC, WAIT_ON_THE_CLUSTER
from rules.vocabulary.policy import Severity
from rules.vocabulary.times import from_micros

LISTED: Final = 20
"""Subjects of an incident that are listed; the others are counted."""

MOMENT: Final = timedelta(seconds=10)
RUNBOOK: Final = "docs/runbook.md"
SAY_SINCE_WHEN: Final = frozenset({*EXPLAIN_WHAT_WAITS, OUT_OF_SYNC})
LOSSES: Final = frozenset({"lost-write", "vanished-record"})
"""Records that were there, or should be, are gone."""
_SAY_TWICE: Final = frozenset({REFLECTED, "duplicate"})
"""What says itself that inputs are counted twice: of one that stands twice nobody expects anything else."""

Names = Callable[[str], str]
"""How people call the cluster with this id; "" where it has no name."""


def nameless(cluster: str) -> str:
    """The names where there is one cluster, which needs none."""
    return ""


def holds_since(anomaly: str, evidence: Mapping[str, Any], found: datetime) -> datetime:
    """Since when a condition has held that was found then: what explains others, and what is found when it has lasted
    for minutes, say since when they do."""
    answered = evidence.get("since") if anomaly in SAY_SINCE_WHEN else None
    return min(found, from_micros(answered)) if isinstance(answered, int) else found


@dataclass(frozen=True, slots=True)
class Became:
    """What an incident turned out to be: another one, of this anomaly and with this id."""

    anomaly: str
    id: str

    @property
    def lost(self) -> bool:
        """Is it a loss?"""
        return self.anomaly in LOSSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """`occurrence`: the id with the time of its first finding: a condition that comes back after long has the same
    id. `cluster` is the cluster's id, `cluster_name` how people call it, "" where there is but one. `since`, `last`
    and `until` are log time: when the first finding spoke, when the newest did, and, once it is over, when it ended;
    `held`: since when its conditions held, `own_until`: when those of its own name had ended, while others of it
    went on. A condition that begins again soon is the same incident: `since`, `message`, `evidence`, `subjects`,
    `places`, `findings` and `folded` are of its present spell, the last of `spells`; `earlier` are the newest of
    those before, each with its beginning and end, `said_earlier` what these said, `ever` the subjects of all, and
    `began` is when the first began; `previous`: as it was when the spell before had ended. `became`: what it turned
    out to be. `told`: machine time of its first finding's record. `due`: machine time from which people are told of
    its present spell. `ended`: machine time from which it counts as over, None while it is open. `subjects`: the
    places (topic/partition), or whoever it is about, where a finding names no place; `LISTED` at most of the
    `places` that there are. `folded`: findings of other anomalies that follow from it or concern the same records,
    by name. `latest`: where the last violation of its own name was, and what it says, "" where `message` says that;
    `goes_on`: the same of a condition of its own name that is open, where that of `message` has ended. `standing`:
    conditions of it that are open. `topics`: of all its findings, "" among them where one concerns none. `silence`:
    under which nobody is told of it, or was told when it ended. `remade`: topics that were made anew about when its
    present spell began; `throttled`: the incident that tells of a quota then, where nobody was answered."""

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
    own_until: datetime | None = None
    due: datetime | None = None
    held: datetime | None = None
    began: datetime | None = None
    spells: int = 1
    earlier: Sequence[tuple[datetime, datetime]] = ()
    said_earlier: Sequence[str] = ()
    ever: Sequence[str] = ()
    became: Became | None = None
    latest: str = ""
    goes_on: str = ""
    previous: Incident | None = None
    remade: Remade | None = None
    throttled: str | None = None

    @property
    def open(self) -> bool:
        return self.ended is None

    def tellable(self, now: datetime) -> bool:
        """May people be told of it? What another incident may explain waits a moment for that."""
        return self.due is None or now >= self.due

    @property
    def momentary(self) -> bool:
        """Was it a condition that waits on the cluster, and over in `MOMENT`, before anybody could be told of it?
        Nobody can do anything about that, and whoever is woken by it finds nothing. Where it comes back it is none."""
        if self.anomaly not in WAIT_ON_THE_CLUSTER or self.spells > 1:
            return False
        if self.due is None or self.ended is None or self.until is None:
            return False
        return self.ended <= self.due and self.until - self.since <= MOMENT

    @property
    def first_since(self) -> datetime:
        """When it began for the first time."""
        return self.began or self.since

    @property
    def reached(self) -> Sequence[str]:
        """The subjects of all its spells, `LISTED` at most."""
        return self.ever or self.subjects

    @property
    def stretches(self) -> Sequence[tuple[datetime, datetime | None]]:
        """When it stood, spell by spell, of those before the newest; the last has no end while it is open."""
        return (*self.earlier, (self.since, None if self.open else self.until or self.last))

    @property
    def past_spells(self) -> Sequence[Incident]:
        """Each of its spells before the present one by itself, the oldest first: what it said, from when to when. Where
        it was then, and how much of it there was, is not known any more."""
        told = zip(self.earlier, self.said_earlier, strict=True)
        first = self.spells - len(self.earlier)
        nothing: dict[str, Any] = {"evidence": {}, "subjects": (), "places": 0, "findings": 0, "standing": 0}
        nothing |= {"folded": {}, "earlier": (), "said_earlier": (), "ever": (), "latest": "", "goes_on": ""}
        nothing |= {"held": None, "own_until": None, "became": None, "previous": None, "throttled": None, "due": None}
        return [
            replace(self, **nothing, message=said, since=since, last=end, until=end, ended=end, began=since, spells=n)
            for n, ((since, end), said) in enumerate(told, first)
        ]

    @property
    def holds_since(self) -> datetime:
        """Since when it has held: what explains other conditions since it began, any other condition since it was one,
        which may have been found later, and a violation since it was found."""
        return min(holds_since(self.anomaly, self.evidence, self.since), self.held or self.since)

    def held_for(self, now: datetime) -> timedelta:
        """For how long its present spell has held, or did."""
        return (now if self.open else self.until or self.last) - self.holds_since

    @property
    def rested(self) -> timedelta | None:
        """For how long it had been over before it began again, None where it has not."""
        return max(self.holds_since - self.earlier[-1][1], timedelta(0)) if self.earlier else None

    @property
    def lost(self) -> bool:
        """Was it about what is missing, and is that lost?"""
        return self.became is not None and self.became.lost and self.kind == "condition"

    @property
    def absorbed(self) -> bool:
        """Is it told by another incident, of which it is a part?"""
        return self.became is not None and not self.lost

    @property
    def losses(self) -> Sequence[str]:
        """The names of the losses that were found with it, and that its own name does not say."""
        return [name for name in sorted(LOSSES & self.folded.keys()) if self.anomaly not in LOSSES]

    @property
    def harm(self) -> Sequence[str]:
        """The names of what was found with it that is worse for somebody than its own name says: losses, and inputs
        that a transform counted twice."""
        return sorted(
            [*self.losses, *((REFLECTED,) if REFLECTED in self.folded and self.anomaly not in _SAY_TWICE else ())]
        )

    @property
    def short(self) -> str:
        """What happened, for a line of a list: the harm that its name does not say comes first."""
        message = self.goes_on or self.message
        return f"with {' and '.join(self.harm)}: {message}" if self.harm else message

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
    """One short line: what, with which harm, where, how bad."""
    harm = f" with {' and '.join(incident.harm)}" if incident.harm else ""
    return f"{incident.anomaly}{harm} in {where(incident)} ({incident.severity})"


def where(incident: Incident) -> str:
    """The place in words: one by its name, several by their number and the first of them."""
    if incident.places <= 1:
        first = incident.subjects[0] if incident.subjects else incident.topic
        return f"{first}{of_cluster(incident)}" if first else _cluster(incident)
    of_one = incident.topic and incident.topics <= {incident.topic, ""}
    within = f"{incident.topic}{of_cluster(incident)}" if of_one else _cluster(incident)
    return f"{within}, {incident.places} places ({_listed(incident.subjects, incident.places)})"


def of_cluster(incident: Incident) -> str:
    """What follows the name of a place, where there are several clusters: of which one it is."""
    return f" of {incident.cluster_name}" if incident.cluster_name else ""


def explanation(incident: Incident) -> str:
    """What happened, in sentences: the newest spell's first finding, whether it is the first spell, how many findings
    there are and what the last of them says, what came with it, how long it lasted, what became of it."""
    said = [_sentence(incident.message)]
    if incident.goes_on:
        said.append(f"That is over; {_with_end(incident.goes_on)}")
    if incident.remade is not None:
        topics = incident.remade.topics
        more = f" and {len(topics) - 1} more probe topics" if len(topics) > 1 else ""
        said.append(f"{topics[0]}{more} had been deleted and made anew at {clock(incident.remade.at)}.")
    if incident.throttled is not None:
        said.append(f"Brokers held answers back by a quota then: throttled, incident {incident.throttled}.")
    if incident.rested is not None:
        said.append(
            f"It began again at {clock(incident.holds_since)}, after it had been over for"
            f" {span(incident.rested.total_seconds())}: the {_ordinal(incident.spells)} time, first found at"
            f" {clock(incident.first_since)}."
        )
    if incident.findings > 1:
        spread = f" in {incident.places} places" if incident.places > 1 else ""
        said.append(f"{incident.findings} findings so far{spread}.")
    if incident.latest:
        said.append(f"The last, {incident.latest}.")
    if incident.folded:
        said.append(f"With it came {_counted(incident.folded)}.")
    if incident.until is not None:
        said.append(_ended(incident, incident.until))
    if incident.became is not None:
        told = f"{incident.became.anomaly}, incident {incident.became.id}"
        said.append(f"What was missing is lost: {told}." if incident.lost else f"It is part of {told}.")
    return " ".join(said)


def _ended(incident: Incident, until: datetime) -> str:
    """When it was over, and how long it lasted: an outage since the last answer, all else since it was found."""
    began = incident.holds_since
    if incident.kind == "violation":
        said = "The last of it was seen"
    elif incident.absorbed:
        return f"It is told there since {clock(until)}."
    else:
        said = "It ended"
    own = incident.own_until
    if incident.folded and own is not None and began <= own < until:
        return (
            f"It ended at {clock(own)}, {span((own - began).total_seconds())} after it began, and the last of what came"
            f" with it at {clock(until)}."
        )
    return f"{said} at {clock(until)}, {span((until - began).total_seconds())} after it began."


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
    return f"{text[:1].upper()}{_with_end(text[1:])}"


def _with_end(text: str) -> str:
    return text + ("" if text.endswith((".", "!", "?")) else ".")


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else endings.get(number % 10, 'th')}"


def _counted(folded: Mapping[str, int]) -> str:
    """Losses before all else, then what was found most often."""
    ordered = sorted(folded.items(), key=lambda one: (one[0] not in LOSSES, -one[1], one[0]))
    return ", ".join(f"{number} × {name}" for name, number in ordered)


def _listed(subjects: Sequence[str], places: int) -> str:
    shown = list(subjects[:3])
    return ", ".join(shown) + (f" and {places - len(shown)} more" if places > len(shown) else "")


def _cluster(incident: Incident) -> str:
    called = incident.cluster_name or incident.cluster
    return f"cluster {called}" if called else "the monitor itself"
