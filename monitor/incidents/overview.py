"""What stands now: incidents, how far things have been checked, and the verdict, which is one sentence.

Read from the tables alone: nothing else needs to run, so how far things have been checked is part of the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from alerts.event import recorded
from alerts.incidents.grouping import CAUSE_WITHIN, HOLD, Incidents
from alerts.incidents.incident import Incident, Names, nameless, of_cluster, where
from alerts.incidents.judged import JUDGED, kind_of
from alerts.incidents.silence import Silence
from alerts.silences import Silences, silenced
from monitor.incidents.ages import age
from monitor.incidents.findings import Filter, of_incidents, tables_of
from rules.vocabulary.conditions import EVIDENCE_STALLED, EXPLAIN_WHAT_WAITS
from rules.vocabulary.times import rfc3339
from streaming_jobs.location import TableLocation
from streaming_jobs.tables.delta_tables import read_table

SILENT: Final = timedelta(seconds=60)
"""Nothing was checked for so long: nobody can say that all is well."""
ID: Final = 6
"""Digits of an id that are shown: as many as tell apart what one screen holds."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How far things have been checked, in log time: by the partition that is furthest (`newest`) and by the one that
    is least far (`through`), of those that still get rows. `failed`: partitions whose checks broke. `late`: of several
    clusters those, by their names, of which something is not checked so far as the others."""

    newest: datetime | None
    through: datetime | None
    failed: Sequence[str] = ()
    late: Sequence[str] = ()


_CAUSES: Final = (*EXPLAIN_WHAT_WAITS, "refused-writes", "refused-reads")
"""Conditions that say why, in the order in which one explains the next."""


@dataclass(frozen=True, slots=True)
class Overview:
    """`incidents`: the newest first. `counted`: by anomaly and severity, findings that nobody is told of. `kept`: of a
    probe log that was kept: `now` is its end, and its incidents stand in no table. `silences`: those that are
    active, that which ends first being the first. `before`: spells of incidents that were over before their present
    ones, each by itself, the newest first. `no_room`: the tables lack what is found now, and why. `others`: how many
    are open that were not asked for."""

    now: datetime
    incidents: Sequence[Incident]
    counted: Mapping[tuple[str, str], int]
    checked: Checked
    kept: bool = False
    silences: Sequence[Silence] = ()
    no_room: str | None = None
    rebuilding: bool = False
    others: int = 0
    before: Sequence[Incident] = ()

    @property
    def open(self) -> list[Incident]:
        """Those that are open: the worst first, of these what is proven about data, then what explains others, and then
        the oldest."""
        standing = (one for one in self.incidents if one.open)
        return sorted(standing, key=lambda one: (one.severity, _rank(one), one.since, one.id))

    @property
    def over(self) -> list[Incident]:
        return [one for one in self.incidents if not one.open]


def _rank(incident: Incident) -> int:
    """What to read first of several that are equally severe: records that are wrong or gone, then what names a cause,
    and last what may wait on that."""
    if incident.kind == "violation":
        return 0
    return _CAUSES.index(incident.anomaly) + 1 if incident.anomaly in _CAUSES else len(_CAUSES) + 1


def gather(
    tables: TableLocation, now: datetime, wanted: Filter, hold: timedelta = HOLD, names: Names = nameless
) -> tuple[Overview, Incidents]:
    """The overview of a monitor's tables, and everything it was made from. Raises UserError where no tables are."""
    return overview_of(
        read_table(tables_of(tables), "findings"), read_table(tables, "partition_state"), now, wanted, hold, names
    )


def overview_of(
    events: pa.Table, states: pa.Table, now: datetime, wanted: Filter, hold: timedelta = HOLD, names: Names = nameless
) -> tuple[Overview, Incidents]:
    """The same of the rows of `findings` and `partition_state`."""
    incidents = Incidents(hold=hold, kept=None, names=names)
    if wanted.cluster is not None:
        events, states = (rows.filter(pc.equal(rows["cluster"], wanted.cluster)) for rows in (events, states))
    if wanted.until is not None:
        events = _begun_by(events, wanted.until)
    incidents.take(recorded(of_incidents(events).to_pylist()))
    counted = only_counted(events, wanted) + Counter(
        {key: n for key, n in incidents.classified.items() if key[1] in JUDGED and _passes(wanted, *key)}
    )
    known = checked(states, names)
    every = incidents.at(_stood(now, known, events))
    found = [one for one in every if concerns(one, wanted)]
    others = sum(one.open for one in every) - sum(one.open for one in found)
    # Of a spell that was over before nobody knows any more where it was, and what came with it.
    whole = replace(wanted, since=None, until=None, states=())
    then = replace(wanted, topics=(), partition=None, anomalies=())
    of_these = (one for one in every if concerns(one, whole))
    past = [spell for one in of_these for spell in one.past_spells if concerns(spell, then)]
    before = sorted(past, key=lambda one: (one.since, one.id), reverse=True)
    return Overview(now, found, counted, known, others=others, before=before), incidents


def _begun_by(events: pa.Table, until: datetime) -> pa.Table:
    """Without what began later, which would be told in place of what was then: another spell of an incident, or what
    explains others. What explains may be told a moment after."""
    return events.filter(pc.or_(pc.equal(events["event"], "closed"), pc.less_equal(events["at"], until + CAUSE_WITHIN)))


def with_silences(overview: Overview, silences: Silences, no_room: str | None, *, rebuilding: bool = False) -> Overview:
    """The same with the silences, what a full disk does (`monitor.incidents.room`), and whether a rebuild is not
    done."""
    held, now = silences.all(), overview.now
    return replace(
        overview,
        incidents=silenced(overview.incidents, held, now),
        silences=in_order(one for one in held if one.active(now)),
        no_room=no_room,
        rebuilding=rebuilding,
    )


def in_order(silences: Iterable[Silence]) -> list[Silence]:
    """Silences, that which ends first being the first."""
    return sorted(silences, key=lambda one: (one.until, one.id))


def _stood(now: datetime, known: Checked, events: pa.Table) -> datetime:
    """When things stood as they are told: an incident is not over because nobody looks any more."""
    if known.newest is None or now - known.newest <= SILENT:
        return now
    return max(known.newest, pc.max(events["recorded"]).as_py() or known.newest)


def concerns(incident: Incident, wanted: Filter) -> bool:
    """Does the incident hold anything of what is asked for?"""
    states = {"open"} if incident.open else set()
    states.add("raised" if incident.kind == "violation" else "open" if incident.open else "closed")
    return (
        (not wanted.anomalies or bool({incident.anomaly, *incident.folded} & set(wanted.anomalies)))
        and (not wanted.severities or incident.severity in wanted.severities)
        and (not wanted.kinds or incident.kind in wanted.kinds)
        and (not wanted.states or bool(states & set(wanted.states)))
        and (not wanted.topics or any(_topic(s) in wanted.topics for s in (incident.topic, *incident.reached)))
        and (wanted.partition is None or any(s.endswith(f"/{wanted.partition}") for s in incident.reached))
        and (wanted.since is None or incident.open or incident.last >= wanted.since)
        and (wanted.until is None or incident.holds_since <= wanted.until)
    )


def checked(states: pa.Table, names: Names = nameless) -> Checked:
    """How far the rows of `partition_state` say that things have been checked."""
    return checked_rows(states.select(_STATE).to_pylist(), names)


def checked_rows(states: Iterable[Mapping[str, Any]], names: Names = nameless) -> Checked:
    """The same of rows as objects."""
    rows = [row for row in states if row["now"] is not None]
    newest = max((row["now"] for row in rows), default=None)
    if newest is None:
        return Checked(None, None)
    live = [row for row in rows if newest - row["now"] <= SILENT and row["check_failed"] is None]
    through = min((row["checked_through"] for row in live if row["checked_through"] is not None), default=None)
    failed = sorted(f"{row['topic']}/{row['partition']}" for row in rows if row["check_failed"] is not None)
    behind = {r["cluster"] for r in live if newest - (r["checked_through"] or newest) > SILENT}
    late = sorted(names(cluster) or cluster for cluster in behind) if len({r["cluster"] for r in live}) > 1 else ()
    return Checked(newest, through, failed, late)


_STATE: Final = ["cluster", "topic", "partition", "now", "checked_through", "check_failed"]


def only_counted(events: pa.Table, wanted: Filter) -> Counter[tuple[str, str]]:
    """By anomaly and severity the findings that nobody is told of, each once, however often it was recorded."""
    judging = pc.is_in(events["severity"], value_set=pa.array(sorted(JUDGED)))
    events = events.filter(pc.and_(pc.invert(judging), pc.not_equal(events["event"], "closed")))
    for column, least, most in (("at", wanted.since, wanted.until),):
        if least is not None:
            events = events.filter(pc.greater_equal(events[column], pa.scalar(least, events[column].type)))
        if most is not None:
            events = events.filter(pc.less_equal(events[column], pa.scalar(most, events[column].type)))
    for column, values in (("topic", wanted.topics), ("partition", _one(wanted.partition))):
        if values:
            events = events.filter(pc.is_in(events[column], value_set=pa.array(values, events[column].type)))
    once = events.group_by(["id", "anomaly", "severity"]).aggregate([])
    by = once.group_by(["anomaly", "severity"]).aggregate([("id", "count")]).to_pylist()
    return Counter(
        {
            (row["anomaly"], row["severity"]): row["id_count"]
            for row in by
            if _passes(wanted, row["anomaly"], row["severity"])
        }
    )


def _passes(wanted: Filter, anomaly: str, severity: str) -> bool:
    return (
        (not wanted.anomalies or anomaly in wanted.anomalies)
        and (not wanted.severities or severity in wanted.severities)
        and (not wanted.kinds or kind_of(anomaly) in wanted.kinds)
        and (not wanted.states or "raised" in wanted.states)
    )


def _one(value: int | None) -> Sequence[int]:
    return () if value is None else (value,)


def _topic(subject: str) -> str:
    return subject.rpartition("/")[0] or subject


# In words


def verdict(overview: Overview, *, by_monitor: bool = False) -> str:
    """What somebody needs who reads one line. `by_monitor`: it is the running monitor that says it, and so does not
    ask whether one runs."""
    if overview.no_room is not None and not by_monitor:
        return f"{overview.no_room} By the tables: {verdict(replace(overview, no_room=None), by_monitor=True)}"
    checked, now = overview.checked, overview.now
    asked = "." if by_monitor else _asked(overview)
    if checked.newest is None:
        standing = _standing(overview, "is")
        return f"Nothing has been checked yet{asked} {standing[:1].upper()}{standing[1:]}."
    at = clock(checked.newest, now, seconds=True)
    if now - checked.newest > SILENT:
        silent = age(now - checked.newest)
        return f"NOTHING HAS BEEN CHECKED FOR {silent}, since {at} UTC{asked} " + (
            f"Then, {_standing(overview, 'was')}."
        )
    standing = _standing(overview, "is")
    return f"{standing[:1].upper()}{standing[1:]}; {_health(overview, checked.newest)}"


def _asked(overview: Overview) -> str:
    """What to look at where nothing is checked: a monitor that was there has said that no rows came, or begun to read
    the log again."""
    if overview.rebuilding:
        return ": the checks' state is being rebuilt, if the monitor is running."
    if any(one.anomaly == EVIDENCE_STALLED for one in overview.open):
        return ": no rows came, are the probes running, and the monitor?"
    return ": is the monitor running?"


def silence_words(silence: Silence, now: datetime) -> str:
    """What is silenced, until when, why and by whom."""
    until = clock(silence.until, now, seconds=False)
    by = f", by {silence.by}" if silence.by else ""
    return f"Silenced until {until} UTC: {silence.place} ({silence.because}{by}); {silence.id}"


def silence_json(silence: Silence) -> dict[str, Any]:
    """A silence for programs: times as RFC 3339 in UTC."""
    return {
        "id": silence.id,
        "cluster": silence.cluster,
        "topic": silence.topic or None,
        "since": rfc3339(silence.since),
        "until": rfc3339(silence.until),
        "because": silence.because,
        "by": silence.by,
    }


def _standing(overview: Overview, verb: str) -> str:
    told, others = _asked_for(overview, verb), overview.others
    if not others:
        return told
    return (
        f"{told}{', and' if overview.open else ' but'} {others} that {'was' if others == 1 else 'were'} not asked for"
    )


def _asked_for(overview: Overview, verb: str) -> str:
    standing = overview.open
    if not standing:
        return f"no incident {verb} open"
    worst = standing[0]
    since = f"since {clock(worst.holds_since, overview.now, seconds=True)}"
    more = f" and {worst.places - 1} more" if worst.places > 1 else ""
    what = f"{worst.anomaly} in {f'{worst.subjects[0]}{of_cluster(worst)}{more}' if worst.subjects else where(worst)}"
    if len(standing) == 1:
        return f"1 incident {'' if verb == 'is' else 'was '}open: {what}, {worst.severity}, {since}"
    bad = sum(one.severity == "critical" for one in standing)
    were = "" if verb == "is" else "were "
    return f"{len(standing)} incidents {were}open, {bad or 'none'} critical, first {what}, {since}"


def _health(overview: Overview, newest: datetime) -> str:
    checked = overview.checked
    rest = "everything else healthy" if overview.open or overview.others else "everything healthy"
    if checked.failed:
        more = f" and {len(checked.failed) - 1} more" if len(checked.failed) > 1 else ""
        rest = f"the checks of {checked.failed[0]}{more} have failed: nobody knows how these are"
    through = checked.through or newest
    at = clock(through, overview.now, seconds=True)
    if newest - through > SILENT:
        some = f"some of {' and '.join(checked.late)}" if checked.late else "some"
        return f"{rest}, but {some} is checked only through {at} UTC, {age(overview.now - through)} ago"
    return f"{rest}, checked through {at} UTC"


def clock(at: datetime, now: datetime, *, seconds: bool) -> str:
    """The time of day; with the date where it is not today's."""
    at = at.astimezone(UTC)
    day = (
        "" if at.date() == now.astimezone(UTC).date() else at.strftime("%m-%d " if at.year == now.year else "%Y-%m-%d ")
    )
    return day + at.strftime("%H:%M:%S" if seconds else "%H:%M")
