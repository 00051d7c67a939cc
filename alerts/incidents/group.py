"""One incident as it grows, from its first finding on; `alerts.incidents.grouping` says what belongs to it."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from alerts.event import FindingEvent
from alerts.incidents.cut_logs import SIGNS, SOON
from alerts.incidents.incident import LISTED, Became, Incident, holds_since
from alerts.incidents.judged import is_condition
from alerts.incidents.keys import LOST_COMMIT, REFLECTED, Key, is_of_the_cluster, subject_of
from alerts.incidents.outage import tellable_from
from rules.vocabulary.conditions import WAIT_ON_THE_CLUSTER
from rules.vocabulary.policy import SEVERITIES

PAUSE: Final = timedelta(seconds=30)
"""Conditions come and go: one that has ended for less than this has not been told to be over."""
LATE: Final = timedelta(seconds=60)
"""What belongs to an incident, and is found when that is over, is told to go on when it has stood for so long: checks
that are behind find in one batch that it began, and in another that it ended."""
PLACES: Final = 10_000
SUSPECTED: Final = "suspected"
_WAITS: Final = WAIT_ON_THE_CLUSTER | SIGNS | {SUSPECTED}
"""What another incident may explain that is told a moment later, and what may turn out to be nothing in that time."""


@dataclass(slots=True)
class Group:
    """One incident as it grows: `first` names it, and never changes."""

    first: FindingEvent
    kind: Literal["violation", "condition"]
    since: datetime
    last: datetime
    counted: datetime
    findings: int = 0
    places: dict[str, None] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    late: dict[str, datetime] = field(default_factory=dict)
    """Those that were found when it was over (`_is_late`), and when they were counted, the oldest first."""
    closed: datetime | None = None
    """Machine time at which the last of its conditions closed, None while one is open or there is none."""
    closed_at: datetime | None = None
    """The same in log time."""
    violations: datetime | None = None
    """Machine time of its newest violation."""
    own: dict[str, FindingEvent] = field(default_factory=dict)
    """Those of its own name that are open, by id, the oldest first."""
    own_closed: tuple[datetime, datetime] | None = None
    """When the last of its own name closed, machine time and log time, None while one is open; others may go on."""
    folded: Counter[str] = field(default_factory=Counter)
    topics: set[str] = field(default_factory=set)
    keys: set[Key] = field(default_factory=set)
    undone: dict[tuple[str, int], int] = field(default_factory=dict)
    """By consumer group and partition, the highest offset that was committed and is gone."""
    newest: FindingEvent | None = None
    """What began its present spell."""
    latest: FindingEvent | None = None
    """The last violation of its own name."""
    began: datetime | None = None
    """Log time of its first finding, of whichever spell."""
    held: datetime | None = None
    """Since when a condition of its own name has held in its present spell, by the log: it may be found later."""
    spells: int = 1
    earlier: deque[tuple[datetime, datetime]] = field(default_factory=lambda: deque(maxlen=LISTED))
    said_earlier: deque[str] = field(default_factory=lambda: deque(maxlen=LISTED))
    now_places: dict[str, None] = field(default_factory=dict)
    """Those of the present spell."""
    became: Became | None = None
    not_before: datetime | None = None
    """Nobody is told of it before that: a part of it has been told as a loss, and the rest is about to be."""
    previous: Group | None = None
    """As it stood when the spell before the present one had ended, None where something of that went on."""

    @classmethod
    def begun(cls, event: FindingEvent) -> Group:
        """One of which nothing is taken yet, that this finding will name."""
        kind: Literal["violation", "condition"] = "condition" if is_condition(event) else "violation"
        return cls(first=event, kind=kind, since=event.at, last=event.at, counted=event.counted)

    @property
    def occurrence(self) -> str:
        """What names this one of all incidents of its finding's: the finding may be told again long after."""
        return f"{self.first.id}@{int(self.first.at.timestamp() * 1000)}"

    @property
    def due(self) -> datetime:
        """Before this nobody is told of its present spell."""
        newest = self.newest or self.first
        if self.first.anomaly not in _WAITS:
            return newest.counted
        due = tellable_from(newest, SOON) if self.first.anomaly in SIGNS else tellable_from(newest)
        return max(due, self.not_before or due)

    def turn_into(self, loss: FindingEvent, incident: str) -> None:
        """What was missing is told as a loss, in the incident of this id. Of what is still missing nobody is told in
        the same moment, if nobody was before."""
        if loss.counted < self.due:
            self.not_before = tellable_from(loss)
        self.became = Became(loss.anomaly, incident)

    def is_milder_than(self, event: FindingEvent) -> bool:
        return SEVERITIES.index(self.first.severity) > SEVERITIES.index(event.severity)

    def was_nothing(self, closed: datetime) -> bool:
        """Was it over, then, before anybody was told of it, and is nothing left to tell: a suspicion, or what is told
        as a loss?"""
        alone = self.spells == 1 and not self.open and not self.folded and self.violations is None
        lost = self.became is not None and self.became.lost
        return alone and closed < self.due and (lost or self.first.anomaly == SUSPECTED)

    def ended(self, now: datetime, hold: timedelta) -> datetime | None:
        """Machine time from which it counts as over, None while it goes on."""
        if self.open or self._is_outlasted(now):
            return None
        ends = [self.closed] if self.closed is not None else []
        if self.violations is not None:
            ends.append(self.violations + hold)
        end = max(ends, default=self.counted)
        return end if end <= now else None

    def _is_outlasted(self, now: datetime) -> bool:
        """Has what was found when it was over stood for so long that it must go on?"""
        return now - next(iter(self.late.values()), now) > LATE

    def _is_late(self, event: FindingEvent) -> bool:
        """Was it over when this was found, which it explains, or which began before it was over?"""
        if self.open or self.own_closed is None:
            return False
        own = event.anomaly == self.first.anomaly
        return event.at <= self.own_closed[1] if own else event.implied_by is not None

    def stands(self, finding: str) -> bool:
        """Is this condition a part of it, and open?"""
        return finding in self.open or finding in self.late

    def repeats(self, event: FindingEvent) -> bool:
        """Does a transform reflect again what its group had committed, and this incident tells to be gone? It does so
        when it comes back, however long after."""
        offset, group = (event.evidence.get(name) for name in ("input_offset", "group"))
        if event.anomaly != REFLECTED or offset is None or group is None:
            return False
        return bool(offset < self.undone.get((group, event.partition), 0))

    def begins_again(self, event: FindingEvent) -> bool:
        """Is this another spell of it, and not the same one that had ended for a moment? What came with it may go on:
        the cause has ended. An outage in which somebody was answered for a moment is found again half a minute later:
        while what waits on it goes on nobody was told that it was over, and it was not."""
        if event.event != "opened" or event.anomaly != self.first.anomaly or self.own or self.own_closed is None:
            return False
        told, ended = self.own_closed
        if self.open and holds_since(event.anomaly, event.evidence, event.at) - ended < PAUSE:
            return False
        return event.at > ended and (event.at - ended >= PAUSE or event.counted - told >= PAUSE)

    def begin_again(self, event: FindingEvent) -> None:
        assert self.own_closed is not None
        self.previous = None if self.open else self._as_it_stands()
        self.earlier.append((self.since, self.closed_at or self.own_closed[1]))
        self.said_earlier.append((self.newest or self.first).message)
        self.since, self.newest, self.held = event.at, event, None
        self.spells += 1
        self.findings, self.folded, self.now_places, self.became = 0, Counter(), {}, None
        self.not_before = None

    def _as_it_stands(self) -> Group:
        return replace(
            self,
            places=dict(self.places),
            now_places=dict(self.now_places),
            folded=Counter(self.folded),
            topics=set(self.topics),
            earlier=self.earlier.copy(),
            said_earlier=self.said_earlier.copy(),
            open=set(),
            late={},
            own={},
            keys=set(),
            previous=None,
        )

    def count(self, event: FindingEvent) -> None:
        """One more finding that only says again what this one does."""
        more = 1 + int(event.evidence.get("more_of_the_same", 0))
        self.findings += more
        self.folded[event.anomaly] += more

    def take(self, event: FindingEvent) -> None:
        """One more finding of it, which is not the end of a condition."""
        if self.begins_again(event):
            self.begin_again(event)
        before = self.earlier[-1][1] if self.earlier else min(event.at, event.decidable)
        self.since, self.last = min(self.since, max(event.at, before)), max(self.last, event.at)
        self.began = min(self.began or event.at, event.at)
        self.counted = max(self.counted, event.counted)
        more = 1 + int(event.evidence.get("more_of_the_same", 0))
        self.findings += more
        self.topics.add(event.topic)
        if event.anomaly == LOST_COMMIT and len(self.undone) < PLACES:
            what = event.evidence.get("group", ""), event.partition
            self.undone[what] = max(self.undone.get(what, 0), event.evidence.get("committed", 0))
        own = event.anomaly == self.first.anomaly
        if own:
            for places in (self.places, self.now_places):
                if len(places) < PLACES:
                    places.setdefault(subject_of(event))
        else:
            self.folded[event.anomaly] += more
        if event.event != "opened":
            self.violations = event.counted
            self.latest = event if own else self.latest
            return
        if self._is_late(event):
            self.late.setdefault(event.id, event.counted)
            return
        self.open.add(event.id)
        self.closed = self.closed_at = None
        if own:
            self.own[event.id] = event
            self.own_closed = None
            self.held = min(self.held or event.at, max(event.decidable, before))

    def shut(self, event: FindingEvent) -> None:
        """A condition of it is over, or goes on elsewhere."""
        if event.id in self.late:
            if self._is_outlasted(event.counted) and not self.open:
                self.closed, self.closed_at = event.counted, max(event.at, self.since)
            del self.late[event.id]
            return
        self.open.discard(event.id)
        self.last = max(self.last, event.at)
        self.own.pop(event.id, None)
        if event.anomaly == self.first.anomaly and not self.own:
            self.own_closed = event.counted, max(event.at, self.since)
        if not self.open:
            self.closed, self.closed_at = event.counted, max(event.at, self.since)

    def absorb(self, other: Group) -> None:
        """Another incident, of violations, that turned out to follow from this one."""
        self.folded[other.first.anomaly] += other.findings - other.folded.total()
        self.folded += other.folded
        self.findings += other.findings
        self.topics |= other.topics
        self.undone = {
            what: max(self.undone.get(what, 0), other.undone.get(what, 0)) for what in self.undone | other.undone
        }
        self.since, self.last = min(self.since, other.since), max(self.last, other.last)
        self.began = min(self.began or self.since, other.since)
        self.counted = max(self.counted, other.counted)

    def end_as_part(self, became: Became, cause: FindingEvent) -> None:
        """It is over, since another one tells of it."""
        self.became, self.violations = became, None
        self.closed, self.closed_at = cause.counted, max(cause.at, self.since)

    @property
    def goes_on(self) -> FindingEvent | None:
        """What is open of it where the condition that names its present spell has ended."""
        newest = self.newest or self.first
        return next(iter(self.own.values())) if self.own and newest.id not in self.own else None

    def incident(self, ended: datetime | None, name: str) -> Incident:
        """As it is told: `ended` is the machine time from which it is over, `name` the cluster's, if it has one."""
        first, newest, goes_on = self.first, self.newest or self.first, self.goes_on
        still = "" if goes_on is None else f"in {subject_of(goes_on)}, {goes_on.message}"
        message, still, *said_earlier = (
            re.sub(rf"(?<!\w){re.escape(first.cluster)}(?!\w)", name, one) if name else one
            for one in (newest.message, still, *self.said_earlier)
        )
        latest = self.latest.message if self.latest is not None else ""
        until = None if ended is None else (self.closed_at or self.last) if self.kind == "condition" else self.last
        places, ever = ([place for place in known if place] for known in (self.now_places, self.places))
        return Incident(
            id=first.id,
            occurrence=self.occurrence,
            anomaly=first.anomaly,
            kind=self.kind,
            severity=first.severity,
            cluster=first.cluster,
            cluster_name=name,
            topic="" if is_of_the_cluster(first) else first.topic,
            message=message,
            evidence=newest.evidence,
            since=self.since,
            last=self.last,
            until=until,
            own_until=self.own_closed[1] if until is not None and self.own_closed is not None else None,
            told=first.counted,
            ended=ended,
            subjects=tuple(places[:LISTED]),
            places=len(places),
            findings=self.findings,
            standing=len(self.open),
            folded=dict(self.folded),
            topics=frozenset(self.topics),
            due=self.due,
            latest="" if latest == newest.message else f"in {subject_of(self.latest)}: {latest}" if self.latest else "",
            goes_on=still,
            held=self.held,
            began=self.began or self.since,
            spells=self.spells,
            earlier=tuple(self.earlier),
            said_earlier=tuple(said_earlier),
            ever=tuple(ever[:LISTED]) if self.spells > 1 else (),
            became=self.became,
            previous=self.previous.incident(self.previous.closed, name) if self.previous is not None else None,
        )
