"""From the events of findings to incidents. Pure: no clock, no I/O.

    incidents = Incidents()
    incidents.take(events)          # as they were counted, live or from the findings table
    incidents.at(now)               # the incidents, the newest first

What is grouped:

- A violation joins the incident of its anomaly, severity and topic while that goes on, whatever the partition; else one
  that concerns the same transaction, value or offset; else it begins one. A loss joins that of a
  loss alone.
- Conditions of one anomaly and topic are one incident with their partitions inside. Those about the set-up of a
  cluster, or about processes (`OF_THE_CLUSTER`), are one incident per cluster.
- What another finding explains (`implied_by`) is folded under that, or waits for it, `CAUSE_WITHIN` at most.
- What waits on a cluster, and was due while that answered nobody, is explained by `cluster-unreachable`, also where its
  own partition could not know (`explains`). Where that is told later than what it explains, this is folded under it
  then. Nobody is told of such a condition for `SHORTLY` (`due`): an incident of which nothing is left by then has never
  been one, and one of which somebody may have been told ends as a part of the other (`became`).
- What is only classified, and what the policy allows, is counted.

An incident of violations goes on until none was counted for `hold`: violations stand for ever, and people want to know
whether it still happens. One of conditions goes on while one of them is open, and again where one opens within `again`
of its end: where it had been over for `PAUSE`, that is another spell of it, with a beginning, findings and places of
its own. Both are measured in machine time (`counted`), which is when somebody can be told; when things happened is
log time. Events in the order of their counting give the same incidents however they come in: a restart reads them from
the table and has the ids that were told before.

An incident never changes what names it. So a finding joins one that is at least as severe, and begins its own else.

What is missing (`MISSING`) may turn out to be lost: where a loss is found in a place where it is open, or has just
ended, its incident says what it became.

Bounds: of an incident `LINKS` transactions, values and offsets by which others join it, `PLACES` places and `LISTED`
earlier spells; `WAITING` findings whose cause is not here yet, and as many that stand alone and may still be explained.
Incidents that ended longer ago than `kept` are forgotten, unless it is None.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from alerts.event import FindingEvent
from alerts.incidents.incident import LISTED, LOSSES, Became, Incident, Names, nameless
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.conditions import UNREACHABLE, WAIT_ON_THE_CLUSTER
from rules.vocabulary.policy import SEVERITIES
from rules.vocabulary.times import from_micros

HOLD: Final = timedelta(minutes=15)
AGAIN: Final = timedelta(minutes=5)
CAUSE_WITHIN: Final = timedelta(seconds=60)
SHORTLY: Final = timedelta(seconds=5)
"""Before this nobody is told of a condition that waits on the cluster: partitions tell of one outage within seconds of
each other."""
PAUSE: Final = timedelta(seconds=30)
"""Conditions come and go: one that has ended for less than this has not been told to be over."""
KEPT: Final = timedelta(hours=24)
MISSING: Final = frozenset({"suspected", "unseen"})
"""Conditions that end when what is missing is found, and when it is found to be lost."""
LINKS: Final = 2_000
PLACES: Final = 10_000
WAITING: Final = 10_000

OF_THE_CLUSTER: Final = frozenset(
    {
        "cluster-unreachable", "evidence-gap", "evidence-late", "stuck-close", "stuck-consumer", "stuck-producer",
        "under-replicated-probe-topic", "unsafe-config", "unverifiable", "window-overflow",
    }
)  # fmt: skip
"""Conditions that concern how a cluster is set up, or a process that works on many topics: one fact, and not one a
topic."""

_SOONER: Final = frozenset({"unseen", "stuck-close"})
"""Conditions that wait on a cluster for less than an outage has to last."""
JUDGED: Final = frozenset({"critical", "warning"})
_NAMES: Final = ("writer", "host", "process", "group", "transactional_id")

Kind = Literal["violation", "condition"]
Key = tuple[Any, ...]


def kind_of(anomaly: str) -> str:
    """violation, condition or classified; an anomaly that this version does not know counts as a violation."""
    entry = CATALOGUE.get(anomaly)
    return entry.kind if entry is not None else "violation"


def judged(event: FindingEvent) -> bool:
    """Is it about something that somebody should know of?"""
    return event.severity in JUDGED and kind_of(event.anomaly) != "classified"


@dataclass(slots=True)
class _Group:
    """One incident as it grows."""

    first: FindingEvent
    kind: Kind
    since: datetime
    last: datetime
    counted: datetime
    findings: int = 0
    places: dict[str, None] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    closed: datetime | None = None
    """Machine time at which the last of its conditions closed, None while one is open or there is none."""
    closed_at: datetime | None = None
    """The same in log time."""
    violations: datetime | None = None
    """Machine time of its newest violation."""
    own: set[str] = field(default_factory=set)
    """Those of its own name that are open."""
    own_closed: tuple[datetime, datetime] | None = None
    """When the last of its own name closed, machine time and log time, None while one is open; others may go on."""
    folded: Counter[str] = field(default_factory=Counter)
    topics: set[str] = field(default_factory=set)
    keys: set[Key] = field(default_factory=set)
    newest: FindingEvent | None = None
    """What began its present spell."""
    began: datetime | None = None
    """Log time of its first finding, of whichever spell."""
    spells: int = 1
    earlier: deque[tuple[datetime, datetime]] = field(default_factory=lambda: deque(maxlen=LISTED))
    now_places: dict[str, None] = field(default_factory=dict)
    """Those of the present spell."""
    became: Became | None = None

    def ended(self, now: datetime, hold: timedelta) -> datetime | None:
        """Machine time from which it counts as over, None while it goes on."""
        if self.open:
            return None
        ends = [self.closed] if self.closed is not None else []
        if self.violations is not None:
            ends.append(self.violations + hold)
        end = max(ends, default=self.counted)
        return end if end <= now else None

    def begins_again(self, event: FindingEvent) -> bool:
        """Is this another spell of it, and not the same one that had ended for a moment? What came with it may go on:
        the cause has ended."""
        if event.event != "opened" or event.anomaly != self.first.anomaly or self.own or self.own_closed is None:
            return False
        told, ended = self.own_closed
        return event.at > ended and (event.at - ended >= PAUSE or event.counted - told >= PAUSE)

    def begin_again(self, event: FindingEvent) -> None:
        assert self.own_closed is not None
        self.earlier.append((self.since, self.closed_at or self.own_closed[1]))
        self.since, self.newest = event.at, event
        self.spells += 1
        self.findings, self.folded, self.now_places, self.became = 0, Counter(), {}, None


@dataclass(slots=True)
class _Outage:
    """The newest time for which a cluster answered nobody, as it was told: `since` the last answer, `called` when that
    was long enough, `until` the next answer."""

    finding: str
    since: datetime
    called: datetime
    until: datetime | None = None

    def explains(self, event: FindingEvent) -> bool:
        """Was it due in that time, and because of it? One that had to wait as long as an outage has to last was due
        when the outage was called, or hardly before; one that waits for less, at any time in it."""
        early = self.since if event.anomaly in _SOONER else self.called - SHORTLY
        return early <= event.decidable and (self.until is None or event.decidable <= self.until + SHORTLY)


class Incidents:
    """All incidents of the events taken so far."""

    def __init__(
        self,
        *,
        hold: timedelta = HOLD,
        again: timedelta = AGAIN,
        kept: timedelta | None = KEPT,
        names: Names = nameless,
    ) -> None:
        self._hold = hold
        self._names = names
        self._again = again
        self._kept = kept
        self._groups: dict[int, _Group] = {}
        self._by_key: dict[Key, int] = {}
        self._numbers = 0
        self._waiting: deque[FindingEvent] = deque()
        self._alone: dict[str, FindingEvent] = {}
        """Open, and explained by nothing so far; by the finding's id."""
        self._outages: dict[str, _Outage] = {}
        """By cluster."""
        self._missing: dict[Key, dict[str, tuple[int, datetime | None]]] = {}
        """By place, what is missing there: the finding, its incident, and when it closed."""
        self._members: dict[str, int] = {}
        self.classified: Counter[tuple[str, str]] = Counter()
        """Events that are only counted, by anomaly and severity."""

    def take(self, events: Iterable[FindingEvent]) -> None:
        """Take the events of one or several batches in, in the order of their counting."""
        for event in sorted(events, key=_order):
            self._promote(event.counted)
            if not judged(event):
                if event.event != "closed":
                    self.classified[event.anomaly, event.severity] += 1
            elif event.event == "closed":
                self._close(event)
            elif event.event == "opened" and event.implied_by is None and event.anomaly in WAIT_ON_THE_CLUSTER:
                self._take_alone(event)
            elif event.implied_by is not None and self._cause(event) is None:
                self._waiting.append(event)
                if len(self._waiting) > WAITING:
                    self._add(self._waiting.popleft())
            else:
                self._add(event)
                self._follow(event.id)
                if event.anomaly == UNREACHABLE:
                    self._explain(event)
        self._forget()

    def at(self, now: datetime) -> list[Incident]:
        """The incidents as they stand at this machine time, the newest first."""
        self._promote(now)
        made = [
            _incident(group, group.ended(now, self._hold), self._names(group.first.cluster))
            for group in self._groups.values()
        ]
        return sorted(made, key=lambda one: (one.since, one.id), reverse=True)

    def of(self, finding: str) -> str | None:
        """The occurrence of the incident that this finding was told in last. None unless everything is kept."""
        number = self._members.get(finding)
        return _occurrence(self._groups[number]) if number is not None else None

    def places(self, occurrence: str) -> list[str]:
        """All places of an incident, of which it lists the first itself; `PLACES` at most, none where it is unknown."""
        found = (group.places for group in self._groups.values() if _occurrence(group) == occurrence)
        return [place for places in found for place in places if place]

    # One event

    def _add(self, event: FindingEvent) -> None:
        keys = list(_keys(event))
        number = self._found(event, keys)
        if number is None:
            number = self._numbers = self._numbers + 1
            self._groups[number] = _Group(
                first=event, kind=_kind(event), since=event.at, last=event.at, counted=event.counted
            )
        group = self._groups[number]
        self._leave(event, number)
        if self._kept is None:
            self._members[event.id] = number
        if group.begins_again(event):
            group.begin_again(event)
        before = group.earlier[-1][1] if group.earlier else event.at
        group.since, group.last = min(group.since, max(event.at, before)), max(group.last, event.at)
        group.began = min(group.began or event.at, event.at)
        group.counted = max(group.counted, event.counted)
        group.findings += 1 + int(event.evidence.get("more_of_the_same", 0))
        group.topics.add(event.topic)
        if event.anomaly == group.first.anomaly:
            for places in (group.places, group.now_places):
                if len(places) < PLACES:
                    places.setdefault(_subject(event))
        else:
            group.folded[event.anomaly] += 1
        if event.event == "opened":
            group.open.add(event.id)
            group.closed = group.closed_at = None
            if event.anomaly == group.first.anomaly:
                group.own.add(event.id)
                group.own_closed = None
            if event.anomaly in MISSING:
                self._missing.setdefault(_place(event), {})[event.id] = number, None
        else:
            group.violations = event.counted
        for key in keys:
            self._register(key, number, event)
        if event.anomaly in LOSSES:
            self._tell_missing(event, group)

    def _register(self, key: Key, number: int, event: FindingEvent) -> None:
        """Let others join the incident by this key, unless it leads to another one that goes on."""
        group = self._groups[number]
        known = self._by_key.get(key)
        if key[0] == "finding":
            free = True  # a condition is where it was told last
        elif key[0] == "group" and _kind(event) == "condition" and event.anomaly != group.first.anomaly:
            free = False  # the next one of its name may be explained by nothing
        else:
            free = known is None or known == number or not self._goes_on(known, event)
        if free and (len(group.keys) < LINKS or key[0] == "group" or event.event == "opened"):
            self._by_key[key] = number
            group.keys.add(key)

    def _found(self, event: FindingEvent, keys: list[Key]) -> int | None:
        """The incident that it belongs to."""
        if event.implied_by is not None:
            cause = self._cause(event)
            if cause is not None:
                return cause
        for key in keys:
            if key[0] == "finding" and event.event == "opened":
                continue  # what was explained and is opened again stands for itself
            number = self._by_key.get(key)
            if number is not None and self._goes_on(number, event) and self._says(number, event):
                return number
        return None

    def _says(self, number: int, event: FindingEvent) -> bool:
        """Does the incident's name say what this finding does? People are told of an incident once, and of a loss they
        must be told: it is an incident of its own, also where something was seen of it before."""
        return event.anomaly not in LOSSES or self._groups[number].first.anomaly in LOSSES

    def _goes_on(self, number: int, event: FindingEvent) -> bool:
        """Does the incident still go on at this event, or again, and is it as severe?"""
        group = self._groups.get(number)
        if group is None or SEVERITIES.index(group.first.severity) > SEVERITIES.index(event.severity):
            return False
        ended = group.ended(event.counted, self._hold)
        if ended is None:
            return True
        return group.kind == "condition" and event.counted - ended <= self._again

    def _leave(self, event: FindingEvent, number: int) -> None:
        """A condition is open in one incident: the one that it was told in last."""
        before = self._by_key.get(("finding", event.id))
        if before is not None and before != number and before in self._groups:
            self._shut(self._groups[before], event)

    def _close(self, event: FindingEvent) -> None:
        for waiting in [one for one in self._waiting if one.id == event.id]:
            self._waiting.remove(waiting)
        self._alone.pop(event.id, None)
        outage = self._outages.get(event.cluster)
        if outage is not None and outage.finding == event.id:
            outage.until = event.at
        missing = self._missing.get(_place(event), {})
        if event.id in missing:
            missing[event.id] = missing[event.id][0], event.at
        number = self._by_key.get(("finding", event.id))
        if number is not None and number in self._groups:
            self._shut(self._groups[number], event)

    def _shut(self, group: _Group, event: FindingEvent) -> None:
        if event.id in group.open:
            group.open.discard(event.id)
            if event.id != group.first.id and event.event == "closed":
                group.keys.discard(("finding", event.id))
                self._by_key.pop(("finding", event.id), None)
            group.last = max(group.last, event.at)
            group.own.discard(event.id)
            if event.anomaly == group.first.anomaly and not group.own:
                group.own_closed = event.counted, max(event.at, group.since)
            if not group.open:
                group.closed, group.closed_at = event.counted, max(event.at, group.since)

    # What waits on a cluster

    def _take_alone(self, event: FindingEvent) -> None:
        """A condition that waits on the cluster opened, and its partition knows nothing that explains it."""
        outage = self._outages.get(event.cluster)
        if outage is not None and outage.explains(event) and not self._stands(event):
            explained = replace(event, implied_by=outage.finding)
            if self._cause(explained) is not None:
                self._add(explained)
                return
        self._add(event)
        if len(self._alone) < WAITING:
            self._alone[event.id] = event

    def _stands(self, event: FindingEvent) -> bool:
        """Is it open already? Then it was explained, and is opened again because it outlasts that."""
        number = self._by_key.get(("finding", event.id))
        return number is not None and number in self._groups and event.id in self._groups[number].open

    def _explain(self, away: FindingEvent) -> None:
        """A cluster answers nobody: what was told alone, and waits on it, is folded under that."""
        outage = _Outage(away.id, _since(away), away.decidable)
        self._outages[away.cluster] = outage
        number = self._by_key["finding", away.id]
        for event in [one for one in self._alone.values() if one.cluster == away.cluster and outage.explains(one)]:
            del self._alone[event.id]
            alone = self._by_key.get(("finding", event.id))
            self._add(replace(event, implied_by=away.id))
            if alone is not None and alone != number and alone in self._groups:
                self._end_as_part(alone, self._groups[number], away)

    def _end_as_part(self, number: int, cause: _Group, away: FindingEvent) -> None:
        """An incident of which nothing is left: no other finding joins it any more."""
        group = self._groups[number]
        if group.open:
            return
        for key in [key for key in group.keys if self._by_key.get(key) == number]:
            del self._by_key[key]
        if group.spells == 1 and away.counted - group.first.counted <= SHORTLY:
            del self._groups[number]
        else:
            group.became = Became(cause.first.anomaly, cause.first.id)
            group.closed, group.closed_at = away.counted, max(away.at, group.since)

    # What is missing, and what is lost

    def _tell_missing(self, loss: FindingEvent, group: _Group) -> None:
        """What was missing in this place has become a loss."""
        place = _place(loss)
        for finding, (number, closed) in list(self._missing.get(place, {}).items()):
            missing = self._groups.get(number)
            if missing is None or (closed is not None and loss.at - closed > SHORTLY):
                del self._missing[place][finding]
            elif missing.first.anomaly in MISSING:
                missing.became = Became(loss.anomaly, group.first.id)

    # What waits for its cause

    def _cause(self, event: FindingEvent) -> int | None:
        number = self._by_key.get(("finding", event.implied_by))
        return number if number is not None and self._goes_on(number, event) else None

    def _follow(self, cause: str) -> None:
        for event in [one for one in self._waiting if one.implied_by == cause]:
            self._waiting.remove(event)
            self._add(event)

    def _promote(self, now: datetime) -> None:
        """What has waited for its cause long enough stands for itself."""
        while self._waiting and now - self._waiting[0].counted > CAUSE_WITHIN:
            self._add(self._waiting.popleft())

    # Bounds

    def _forget(self) -> None:
        if self._kept is None or not self._groups:
            return
        newest = max(group.counted for group in self._groups.values())
        for number, group in list(self._groups.items()):
            ended = group.ended(newest, self._hold)
            if ended is not None and newest - ended > self._kept:
                del self._groups[number]
                for key in group.keys:
                    if self._by_key.get(key) == number:
                        del self._by_key[key]


def _occurrence(group: _Group) -> str:
    return f"{group.first.id}@{int(group.first.at.timestamp() * 1000)}"


def _order(event: FindingEvent) -> tuple[datetime, datetime, bool, bool, str]:
    """As counted, and within a batch in log time; at one moment openings before ends, causes before what they
    explain."""
    return event.counted, event.at, event.event == "closed", event.implied_by is not None, event.id


def _place(event: FindingEvent) -> Key:
    return event.cluster, event.topic_id, event.partition


def _since(away: FindingEvent) -> datetime:
    """Since when nobody was answered."""
    told = away.evidence.get("since")
    return from_micros(told) if isinstance(told, int) else away.decidable - SHORTLY


def _kind(event: FindingEvent) -> Kind:
    return "condition" if kind_of(event.anomaly) == "condition" else "violation"


def _keys(event: FindingEvent) -> Iterator[Key]:
    """By what an event finds its incident, the strongest first."""
    yield "finding", event.id
    topic = "" if event.anomaly in OF_THE_CLUSTER else event.topic
    yield "group", event.cluster, event.anomaly, topic, event.severity
    if _kind(event) == "violation":
        place = (event.cluster, event.topic_id, event.partition)
        evidence = event.evidence
        if evidence.get("txn") is not None:
            yield "transaction", event.cluster, evidence["txn"]
        skipped = evidence.get("skipped")
        for one in (evidence, *(skipped if isinstance(skipped, list) else ())):
            yield from _records(place, one)


def _records(place: Key, evidence: Mapping[str, Any]) -> Iterator[Key]:
    if isinstance(evidence.get("writer"), int) and isinstance(evidence.get("seq"), int):
        yield "value", *place, evidence["writer"], evidence["seq"]
    if isinstance(evidence.get("offset"), int) and evidence["offset"] > 0:
        yield "offset", *place, evidence["offset"]


def _subject(event: FindingEvent) -> str:
    """topic/partition; where it is about no partition, whoever it is about."""
    if event.topic:
        return f"{event.topic}/{event.partition}" if event.partition >= 0 else event.topic
    for name in _NAMES:
        if event.evidence.get(name) is not None:
            told = event.evidence[name]
            return str(told) if isinstance(told, str) else f"{name} {told}"
    return ""


def _incident(group: _Group, ended: datetime | None, name: str) -> Incident:
    first, newest = group.first, group.newest or group.first
    message = re.sub(rf"(?<!\w){re.escape(first.cluster)}(?!\w)", name, newest.message) if name else newest.message
    until = None if ended is None else (group.closed_at or group.last) if group.kind == "condition" else group.last
    places, ever = ([place for place in known if place] for known in (group.now_places, group.places))
    return Incident(
        id=first.id, occurrence=_occurrence(group),
        anomaly=first.anomaly, kind=group.kind, severity=first.severity, cluster=first.cluster,
        cluster_name=name,
        topic="" if first.anomaly in OF_THE_CLUSTER else first.topic,
        message=message, evidence=newest.evidence, since=group.since, last=group.last, until=until,
        own_until=group.own_closed[1] if until is not None and group.own_closed is not None else None,
        told=first.counted, ended=ended, subjects=tuple(places[:LISTED]), places=len(places), findings=group.findings,
        standing=len(group.open), folded=dict(group.folded), topics=frozenset(group.topics),
        due=newest.counted + (SHORTLY if first.anomaly in WAIT_ON_THE_CLUSTER else timedelta(0)),
        began=group.began or group.since, spells=group.spells, earlier=tuple(group.earlier),
        ever=tuple(ever[:LISTED]) if group.spells > 1 else (), became=group.became,
    )  # fmt: skip
