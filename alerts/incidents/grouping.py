"""From the events of findings to incidents. Pure: no clock, no I/O.

    incidents = Incidents()
    incidents.take(events)          # as they were counted, live or from the findings table
    incidents.at(now)               # the incidents, the newest first

What is grouped:

- A violation joins the incident that is named for its anomaly, of its severity and topic, while that goes on,
  whatever the partition; else one that concerns the same transaction, value or offset; else one of the same log
  within `AFTER` of it, where both tell of the log's order; else, where it tells of a record that is not as ours are,
  one of such in another topic within `AFTER` of it, and likewise where it tells of one that was shown before it was
  committed, or never was; else it begins one. What tells of groups' committed offsets joins first of all what told of
  such within `AFTER`, or takes it in where it was milder, and so does what a transform of such a group has reflected
  twice, at any time where its group's commits of that are told to be gone. A loss joins that of a loss alone, and takes
  in what told of the same record by the order of its log, and of no other partition. What came with an incident of
  another name takes nothing of its own name with it: people are told of that when it happens.
- Conditions of one anomaly and topic are one incident with their partitions inside. Those about the set-up of a
  cluster, or about processes (`OF_THE_CLUSTER`), are one incident per cluster. Who is refused for want of the same
  right, or by the same login, is in one with all others, whatever their conditions are called.
- What another finding explains (`implied_by`) is folded under that, or waits for it, `CAUSE_WITHIN` at most. A
  violation that is found when the incident of what explains it is over is counted there, and begins nothing.
- What waits on a cluster, and was due while that answered nobody, or had too few replicas in sync, is explained by
  `cluster-unreachable` or `under-min-isr`, also where its own partition could not know (`explains`). Where that is told
  later than what it explains, this is folded under it then. Nobody is told of such a condition for `SHORTLY` (`due`):
  an incident of which nothing is left by then has never been one, and one of which somebody may have been told ends as
  a part of the other (`became`).
- What nobody has polled (`unseen`) in a place where a reader may not read, and who is stuck in a topic where somebody
  is refused for want of a right, is folded under what says so, whichever is told first.
- What follows from logs that were cut is folded under the `log-truncation` of its cluster
  (`alerts.incidents.cut_logs`), also what was found just before it. Of a sign that this may explain nobody is told for
  `SOON`. How what such a log's offsets held before differs from what they hold now is counted there without
  end, and keeps nothing open.
- Of a suspicion, too, nobody is told for `SHORTLY`: one that is over by then has never been an incident, nor has what
  was missing, and is told as a loss by then. Where a part of what is missing is told as a loss by then, nobody is told
  of the rest for as long again.
- What one log's order was like when an incident told of it that is over, as a rebuild of the state may find later, is
  counted there, and so is a cycle of the time of an incident that told what was shown too early.
- What is only classified, and what the policy allows, is counted. That a topic was made anew is said with what was
  found about then.

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

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from alerts.event import FindingEvent
from alerts.incidents.cut_logs import AFTER, MISSING, TRUNCATION, CutLogs, Cuts
from alerts.incidents.group import Group
from alerts.incidents.incident import LOSSES, Became, Incident, Names, nameless
from alerts.incidents.judged import is_condition, judged
from alerts.incidents.keys import (
    EXPOSED,
    IN_A_MOMENT,
    NAMED_FOR,
    OF_A_GROUP,
    OF_A_LOG,
    OF_A_RECORD,
    OF_AN_INPUT,
    OF_GROUPS,
    REFLECTED,
    SHOWN_TOO_EARLY,
    SIGNS_IN_A_LOG,
    SIGNS_OF_EXPOSURE,
    TELLS,
    Key,
    is_refused,
    keys_of,
    offset_of,
    place_of,
    subject_of,
)
from alerts.incidents.outage import SHORTLY, Outage
from alerts.incidents.refusals import Refusals, explains
from alerts.incidents.remade_topics import REMADE, RemadeTopics
from rules.vocabulary.conditions import EXPLAIN_WHAT_WAITS, THROTTLED, UNREACHABLE, WAIT_ON_THE_CLUSTER
from rules.vocabulary.policy import SEVERITIES
from rules.vocabulary.times import EPOCH

HOLD: Final = timedelta(minutes=15)
AGAIN: Final = timedelta(minutes=5)
CAUSE_WITHIN: Final = timedelta(seconds=60)
KEPT: Final = timedelta(hours=24)
LINKS: Final = 2_000
WAITING: Final = 10_000


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
        self._groups: dict[int, Group] = {}
        self._by_key: dict[Key, int] = {}
        self._numbers = 0
        self._waiting: deque[FindingEvent] = deque()
        self._alone: dict[str, FindingEvent] = {}
        """Open, and explained by nothing so far; by the finding's id."""
        self._outages: dict[tuple[str, str], Outage] = {}
        """By cluster, and what it is called."""
        self._refusals = Refusals()
        self._cuts = Cuts()
        self._remade = RemadeTopics()
        self._missing: dict[Key, dict[str, tuple[int, datetime | None]]] = {}
        """By place, what is missing there: the finding, its incident, and when it closed."""
        self._members: dict[str, int] = {}
        self.classified: Counter[tuple[str, str]] = Counter()
        """Events that are only counted, by anomaly and severity."""
        self._newest = EPOCH

    def take(self, events: Iterable[FindingEvent]) -> None:
        """Take the events of one or several batches in, in the order of their counting."""
        for event in sorted(events, key=_order):
            self._newest = max(self._newest, event.counted)
            self._promote(event.counted)
            if not judged(event):
                if event.anomaly == REMADE:
                    self._remade.note(event)
                if event.event != "closed":
                    self.classified[event.anomaly, event.severity] += 1
            elif event.event == "closed":
                self._close(event)
            elif (past := self._said(event)) is not None:
                self._add_to_past(past, event)
            elif event.event == "opened" and event.implied_by is None and event.anomaly in WAIT_ON_THE_CLUSTER:
                self._take_alone(event)
            elif event.implied_by is not None and self._cause(event) is None:
                self._waiting.append(event)
                if len(self._waiting) > WAITING:
                    self._add(self._waiting.popleft())
            else:
                self._add(event)
                self._follow(event.id)
                if event.anomaly in EXPLAIN_WHAT_WAITS:
                    self._explain(event)
            if event.event == "opened" and is_refused(event) and ("finding", event.id) in self._by_key:
                self._refusals.note(event)
                wait = [one for one in self._alone.values() if explains(event, one)]
                self._take_in([one for one in wait if not self._is_of_a_refusal(one)], event)
        self._forget()

    def at(self, now: datetime) -> list[Incident]:
        """The incidents as they stand at this machine time, the newest first. Whoever asks may have a clock that is
        behind that of the machine where they were counted: what has been counted has happened."""
        now = max(now, self._newest)
        self._promote(now)
        made = [self._made(group, now) for group in self._groups.values()]
        return sorted(made, key=lambda one: (one.since, one.id), reverse=True)

    def _made(self, group: Group, now: datetime) -> Incident:
        cluster = group.first.cluster
        made = group.incident(group.ended(now, self._hold), self._names(cluster))
        throttled = self._outages.get((cluster, THROTTLED)) if group.first.anomaly == UNREACHABLE else None
        return replace(
            made,
            remade=self._remade.about(cluster, made.since),
            throttled=throttled.finding if throttled is not None and throttled.holds(made.since) else None,
        )

    def of(self, finding: str) -> str | None:
        """The occurrence of the incident that this finding was told in last. None unless everything is kept."""
        number = self._members.get(finding)
        return self._groups[number].occurrence if number is not None else None

    def places(self, occurrence: str) -> list[str]:
        """All places of an incident, of which it lists the first itself; `PLACES` at most, none where it is unknown."""
        found = (group.places for group in self._groups.values() if group.occurrence == occurrence)
        return [place for places in found for place in places if place]

    # One event

    def _add(self, event: FindingEvent) -> None:
        keys = list(keys_of(event))
        number = self._found(event, keys)
        if number is None:
            number = self._numbers = self._numbers + 1
            self._groups[number] = Group.begun(event)
            self._take_milder(event, number, keys)
        group = self._groups[number]
        self._leave(event, number)
        if self._kept is None:
            self._members[event.id] = number
        group.take(event)
        if event.event == "opened" and event.anomaly in MISSING:
            self._missing.setdefault(place_of(event), {})[event.id] = number, None
        for key in keys:
            self._register(key, number, event)
        if event.anomaly in TELLS:
            self._take_reflected(event, number, keys)
        if event.anomaly == TRUNCATION:
            self._tell_cut(event, number)
        if event.anomaly in LOSSES:
            self._tell_missing(event, group)
            self._take_signs(event, number, keys)

    def _take_milder(self, event: FindingEvent, number: int, keys: list[Key]) -> None:
        """What was told of groups' committed offsets a moment before, and is milder than what begins an incident now,
        is a part of that: one fact, by its worst name. What a transform reflects twice is of its group's offsets."""
        other = next((self._by_key.get(key) for key in keys if key[0] in (OF_GROUPS, OF_A_GROUP)), None)
        group = self._groups.get(other) if other is not None else None
        if other is None or group is None or group.kind != "violation" or group.became is not None:
            return
        goes_on = group.is_milder_than(event) and group.ended(event.counted, self._hold) is None
        if goes_on and abs(event.at - group.last) <= AFTER:
            self._fold(other, number, event)

    def _take_reflected(self, event: FindingEvent, number: int, keys: list[Key]) -> None:
        """What the transform of a group has reflected twice was told a moment before, and belongs to its group's
        commits, which are told to be gone where those of another group had been."""
        other = next((self._by_key.get(key) for key in keys if key[0] == OF_A_GROUP), None)
        group = self._groups.get(other) if other is not None else None
        if other is None or group is None or other == number or group.first.anomaly != REFLECTED:
            return
        if group.became is not None or self._groups[number].is_milder_than(group.first):
            return
        if group.ended(event.counted, self._hold) is None and abs(event.at - group.last) <= AFTER:
            self._fold(other, number, event)

    def _take_signs(self, loss: FindingEvent, number: int, keys: list[Key]) -> None:
        """What was told of the same record a moment before, by the order of its log alone, is a sign of its loss."""
        for key in keys:
            other = self._by_key.get(key) if key[0] in OF_A_RECORD else None
            sign = self._groups.get(other) if other is not None else None
            if other is None or sign is None or other == number or sign.first.anomaly not in SIGNS_IN_A_LOG:
                continue
            elsewhere = sign.places.keys() - {subject_of(loss)}
            milder = self._groups[number].is_milder_than(sign.first)
            if not elsewhere and not milder and sign.became is None and self._goes_on(other, loss):
                self._fold(other, number, loss)

    def _said(self, event: FindingEvent) -> int | None:
        """The number of the incident that has said already what this finding says, and that it does not keep open: of a
        cut, but for what was found about when the log was cut, as long as that goes on; or one that is over, of what
        explains this violation, or of the same log's order at that time. A loss is said where one was."""
        for cuts in self._cuts.saying(event):
            group = self._groups.get(cuts.number)
            if self._goes_on(cuts.number, event) and cuts.near(event.at):
                continue
            if event.anomaly not in LOSSES or (group is not None and LOSSES & group.folded.keys()):
                return cuts.number
        if event.implied_by is not None and not is_condition(event):
            number = self._by_key.get(("finding", event.implied_by))
            if number is not None and self._is_over(number, event):
                return number
        number = None
        if event.anomaly in SIGNS_IN_A_LOG:
            number = self._by_key.get((OF_A_LOG, *place_of(event)))
        elif event.anomaly in SIGNS_OF_EXPOSURE:
            number = self._by_key.get((EXPOSED, event.cluster))
        if number is None or not self._is_over(number, event):
            return None
        past = self._groups[number]
        return number if past.since - AFTER <= event.at <= past.last + AFTER else None

    def _is_over(self, number: int, event: FindingEvent) -> bool:
        """Is this an incident that has ended, and as severe as the event?"""
        past = self._groups.get(number)
        if past is None or past.is_milder_than(event):
            return False
        return past.ended(event.counted, self._hold) is not None

    def _add_to_past(self, number: int, event: FindingEvent) -> None:
        """What an incident has said already: it is counted there, and neither goes on nor begins again with it."""
        if number not in self._groups:
            self.classified[event.anomaly, event.severity] += 1
            return
        self._groups[number].count(event)
        if self._kept is None:
            self._members[event.id] = number

    def _register(self, key: Key, number: int, event: FindingEvent) -> None:
        """Let others join the incident by this key, unless it leads to another one that goes on."""
        group = self._groups[number]
        known = self._by_key.get(key)
        if key[0] == "finding":
            free = True  # a condition is where it was told last
        elif key[0] == "group" and event.anomaly != group.first.anomaly:
            free = False  # the next one of its name may be elsewhere, or have nothing to do with it
        elif key[0] == OF_A_GROUP and event.anomaly == REFLECTED != group.first.anomaly:
            free = False  # that a group reflects something twice says nothing of its commits
        elif key[0] == OF_A_LOG and event.anomaly in LOSSES:
            free = True  # what is found next in this log is a sign of that, and of nothing before it
        elif key[0] == EXPOSED and group.first.anomaly not in SHOWN_TOO_EARLY:
            free = False  # a cycle, or an input that is reflected twice, may have another cause
        else:
            free = known is None or known == number or not self._goes_on(known, event)
            if known is not None and not free and key[0] in IN_A_MOMENT:
                # What follows joins what was found about its own time, and that one no more.
                free = event.at - self._groups[known].last > AFTER
        if free and (len(group.keys) < LINKS or key[0] == "group" or event.event == "opened"):
            self._by_key[key] = number
            group.keys.add(key)

    def _found(self, event: FindingEvent, keys: list[Key]) -> int | None:
        """The incident that it belongs to."""
        if event.implied_by is not None:
            cause = self._cause(event)
            if cause is not None:
                return cause
        for key in keys:  # an input that stands twice is told already, whatever else has happened
            number = self._by_key.get(key) if key[0] == OF_AN_INPUT else None
            if number is not None and self._goes_on(number, event) and self._says(number, event):
                return number
        cut = next((number for number in self._cuts.holding(event) if self._goes_on(number, event)), None)
        if cut is not None or event.anomaly == TRUNCATION:
            return cut
        for key in keys:
            if key[0] == "finding" and event.event == "opened":
                continue  # what was explained and is opened again stands for itself
            number = self._by_key.get(key)
            if number is not None and self._goes_on(number, event) and self._says(number, event):
                group = self._groups[number]
                if key[0] in IN_A_MOMENT and abs(event.at - group.last) > AFTER and not group.repeats(event):
                    continue  # another fault of the same log, or of groups
                return number
        return None

    def _says(self, number: int, event: FindingEvent) -> bool:
        """Does the incident's name say what this finding does? People are told of an incident once, and of a loss they
        must be told: it is an incident of its own, also where something was seen of it before."""
        return event.anomaly not in LOSSES or self._groups[number].first.anomaly in LOSSES

    def _goes_on(self, number: int, event: FindingEvent) -> bool:
        """Does the incident still go on at this event, or again, and is it as severe?"""
        group = self._groups.get(number)
        if group is None or group.is_milder_than(event):
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
        self._refusals.end(event)
        outage = self._outages.get((event.cluster, event.anomaly))
        if outage is not None and outage.finding == event.id:
            outage.until = event.at
        missing = self._missing.get(place_of(event), {})
        if event.id in missing:
            missing[event.id] = missing[event.id][0], event.at
        number = self._by_key.get(("finding", event.id))
        if number is not None and number in self._groups:
            group = self._groups[number]
            self._shut(group, event)
            if group.was_nothing(event.counted):
                self._drop(number, group)

    def _drop(self, number: int, group: Group) -> None:
        """There is no such incident, or no longer."""
        self._let_go(number, group)
        del self._groups[number]
        for finding in [finding for finding, member in self._members.items() if member == number]:
            del self._members[finding]

    def _let_go(self, number: int, group: Group) -> None:
        """No other finding joins it any more."""
        for key in [key for key in group.keys if self._by_key.get(key) == number]:
            del self._by_key[key]

    def _shut(self, group: Group, event: FindingEvent) -> None:
        if not group.stands(event.id):
            return
        if event.id != group.first.id and event.event == "closed":
            group.keys.discard(("finding", event.id))
            self._by_key.pop(("finding", event.id), None)
        group.shut(event)

    # What waits on a cluster

    def _take_alone(self, event: FindingEvent) -> None:
        """A condition that waits on the cluster opened, and its partition knows nothing that explains it."""
        known = (self._outages.get((event.cluster, name)) for name in EXPLAIN_WHAT_WAITS)
        for outage in [one for one in known if one is not None]:
            explained = replace(event, implied_by=outage.finding)
            if outage.explains(event) and not self._stands(event) and self._cause(explained) is not None:
                self._add(explained)
                return
        refusal = None if self._stands(event) else next(self._refusals.of(event), None)
        self._add(replace(event, implied_by=refusal))
        if len(self._alone) < WAITING:
            self._alone[event.id] = event

    def _stands(self, event: FindingEvent) -> bool:
        """Is it open already? Then it was explained, and is opened again because it outlasts that."""
        number = self._by_key.get(("finding", event.id))
        return number is not None and number in self._groups and self._groups[number].stands(event.id)

    def _is_of_a_refusal(self, event: FindingEvent) -> bool:
        """Is it part of what tells that a right is wanting? Another right may have been taken away since."""
        number = self._by_key.get(("finding", event.id))
        return number is not None and number in self._groups and is_refused(self._groups[number].first)

    def _explain(self, away: FindingEvent) -> None:
        """A cluster answers nobody, or accepts nothing: what was told alone, and waits on it, is folded under that."""
        outage = Outage.told(away)
        self._outages[away.cluster, away.anomaly] = outage
        self._take_in(
            [one for one in self._alone.values() if one.cluster == away.cluster and outage.explains(one)], away
        )

    def _take_in(self, explained: Iterable[FindingEvent], cause: FindingEvent) -> None:
        """These were told alone, and are folded under what explains them."""
        number = self._by_key["finding", cause.id]
        for event in explained:
            del self._alone[event.id]
            alone = self._by_key.get(("finding", event.id))
            self._add(replace(event, implied_by=cause.id))
            if alone is not None and alone != number and alone in self._groups:
                self._end_as_part(alone, self._groups[number], cause)

    def _end_as_part(self, number: int, cause: Group, away: FindingEvent) -> None:
        """An incident of which nothing is left: no other finding joins it any more."""
        group = self._groups[number]
        if group.open:
            return
        self._let_go(number, group)
        if group.spells == 1 and away.counted <= group.due:
            self._drop(number, group)
        else:
            group.end_as_part(Became(cause.first.anomaly, cause.first.id), away)

    # Logs that were cut

    def _tell_cut(self, cut: FindingEvent, number: int) -> None:
        """A log was cut: signs of it that were told just before are folded under that."""
        cuts = self._cuts.note(cut, number)
        for other, group in list(self._groups.items()):
            if (
                group.first.cluster != cut.cluster
                or group.became is not None
                or not cuts.explains(group.first.anomaly, group.places)
            ):
                continue
            if (
                self._goes_on(other, cut)
                and group.began is not None
                and cuts.near(group.began)
                and cuts.near(group.last)
            ):
                self._fold(other, number, cut)
        self._take_missing(cut, number, cuts)

    def _take_missing(self, cut: FindingEvent, number: int, cuts: CutLogs) -> None:
        """What was called missing in this log just before: readers had gone over what was written there again."""
        for finding, (other, closed) in list(self._missing.get(place_of(cut), {}).items()):
            group = self._groups.get(other)
            event = group.own.get(finding) if group is not None and other != number else None
            if group is None or event is None or closed is not None or not cuts.near(event.at):
                continue
            self._alone.pop(finding, None)
            self._add(replace(event, implied_by=cut.id))
            self._end_as_part(other, self._groups[number], cut)

    def _fold(self, number: int, under: int, cause: FindingEvent) -> None:
        """All of an incident of violations belongs to another one."""
        group, told = self._groups[number], self._groups[under]
        told.absorb(group)
        for finding, member in self._members.items():
            if member == number:
                self._members[finding] = under
        self._end_as_part(number, told, cause)

    # What is missing, and what is lost

    def _tell_missing(self, loss: FindingEvent, group: Group) -> None:
        """What was missing in this place has become a loss."""
        place = place_of(loss)
        for finding, (number, closed) in list(self._missing.get(place, {}).items()):
            missing = self._groups.get(number)
            if missing is None or (closed is not None and loss.at - closed > SHORTLY):
                del self._missing[place][finding]
            elif missing.first.anomaly in MISSING:
                missing.turn_into(loss, group.first.id)
                if missing.was_nothing(loss.counted):
                    self._drop(number, missing)

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
                self._drop(number, group)


def _order(event: FindingEvent) -> tuple[Any, ...]:
    """As counted, and within a batch in log time; at one moment openings before ends, causes before what they explain,
    losses, which begin incidents of their own, before signs of them, and what is worse before what is milder. One fact
    with several names is called by the one that says most; of many of one name, as of all that was skipped at once, the
    first that stands in its partition comes first, and the last last."""
    explained, loss = event.implied_by is not None, event.anomaly in LOSSES
    worth = SEVERITIES.index(event.severity), NAMED_FOR.index(event.anomaly) if event.anomaly in NAMED_FOR else -1
    stands = event.topic, event.partition, offset_of(event.evidence)
    return event.counted, event.at, event.event == "closed", explained, not loss, worth, stands, event.id
