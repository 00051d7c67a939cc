"""What stands now, for somebody who was asleep two minutes ago: the verdict, what is open, what is over, what is only
counted.

Read from the tables alone: nothing else needs to run, so how far things have been checked is part of the verdict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from alerts.event import recorded
from alerts.incidents.grouping import JUDGED, Incidents, kind_of
from alerts.incidents.incident import Incident, where
from monitor.commands.findings import STYLE, Filter, tables_of
from streaming_jobs.tables.delta_tables import read_table

SILENT: Final = timedelta(seconds=60)
"""Nothing was checked for so long: nobody can say that all is well."""
SHORT: Final = {"critical": "crit", "warning": "warn"}
ID: Final = 6
"""Digits of an id that are shown: as many as tell apart what one screen holds."""
WIDE: Final = 100
_LEAST_MESSAGE: Final = 20
_LONG_NUMBER: Final = re.compile(r"\d{13,}")


@dataclass(frozen=True, slots=True)
class Checked:
    """How far things have been checked, in log time: by the partition that is furthest (`newest`) and by the one that
    is least far (`through`), of those that still get rows. `failed`: partitions whose checks broke."""

    newest: datetime | None
    through: datetime | None
    failed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Overview:
    """`incidents`: the newest first. `counted`: by anomaly and severity, findings that nobody is told of."""

    now: datetime
    incidents: Sequence[Incident]
    counted: Mapping[tuple[str, str], int]
    checked: Checked

    @property
    def open(self) -> list[Incident]:
        """Those that are open, the worst and then the oldest first."""
        return sorted((one for one in self.incidents if one.open), key=lambda one: (one.severity, one.since, one.id))

    @property
    def over(self) -> list[Incident]:
        return [one for one in self.incidents if not one.open]


def gather(tables: Path, now: datetime, wanted: Filter) -> tuple[Overview, Incidents]:
    """The overview of a monitor's tables, and everything it was made from. Raises UserError where no tables are."""
    events = read_table(tables_of(tables), "findings")
    judging = pc.is_in(events["severity"], value_set=pa.array(sorted(JUDGED)))
    incidents = Incidents(kept=None)
    incidents.take(recorded(events.filter(judging).to_pylist()))
    counted = _counted(events.filter(pc.invert(judging)), wanted) + Counter(
        {key: number for key, number in incidents.classified.items() if _passes(wanted, *key)}
    )
    found = [one for one in incidents.at(now) if concerns(one, wanted)]
    return Overview(now, found, counted, checked(read_table(tables, "partition_state"))), incidents


def concerns(incident: Incident, wanted: Filter) -> bool:
    """Does the incident hold anything of what is asked for?"""
    states = {"open"} if incident.open else set()
    states.add("raised" if incident.kind == "violation" else "open" if incident.open else "closed")
    return (
        (not wanted.anomalies or bool({incident.anomaly, *incident.folded} & set(wanted.anomalies)))
        and (not wanted.severities or incident.severity in wanted.severities)
        and (not wanted.kinds or incident.kind in wanted.kinds)
        and (not wanted.states or bool(states & set(wanted.states)))
        and (wanted.topic is None or any(_topic(s) == wanted.topic for s in (incident.topic, *incident.subjects)))
        and (wanted.partition is None or any(s.endswith(f"/{wanted.partition}") for s in incident.subjects))
        and (wanted.since is None or incident.open or incident.last >= wanted.since)
        and (wanted.until is None or incident.since <= wanted.until)
    )


def checked(states: pa.Table) -> Checked:
    """How far the rows of `partition_state` say that things have been checked."""
    rows = [row for row in states.select(_STATE).to_pylist() if row["now"] is not None]
    newest = max((row["now"] for row in rows), default=None)
    if newest is None:
        return Checked(None, None)
    live = [row for row in rows if newest - row["now"] <= SILENT and row["check_failed"] is None]
    through = min((row["checked_through"] for row in live if row["checked_through"] is not None), default=None)
    failed = sorted(f"{row['topic']}/{row['partition']}" for row in rows if row["check_failed"] is not None)
    return Checked(newest, through, failed)


_STATE: Final = ["topic", "partition", "now", "checked_through", "check_failed"]


def _counted(events: pa.Table, wanted: Filter) -> Counter[tuple[str, str]]:
    """Findings, each once, however often it was recorded."""
    events = events.filter(pc.not_equal(events["event"], "closed"))
    for column, least, most in (("at", wanted.since, wanted.until),):
        if least is not None:
            events = events.filter(pc.greater_equal(events[column], pa.scalar(least, events[column].type)))
        if most is not None:
            events = events.filter(pc.less_equal(events[column], pa.scalar(most, events[column].type)))
    for column, value in (("topic", wanted.topic), ("partition", wanted.partition)):
        if value is not None:
            events = events.filter(pc.equal(events[column], value))
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


def _topic(subject: str) -> str:
    return subject.rpartition("/")[0] or subject


# In words


def verdict(overview: Overview) -> str:
    """What somebody needs who reads one line."""
    checked, now = overview.checked, overview.now
    if checked.newest is None:
        return f"Nothing has been checked yet: is the monitor running? {_standing(overview, 'is')}."
    at = _clock(checked.newest, now, seconds=True)
    if now - checked.newest > SILENT:
        silent = age(now - checked.newest)
        return f"NOTHING HAS BEEN CHECKED FOR {silent}, since {at} UTC: is the monitor running? " + (
            f"Then, {_standing(overview, 'was')}."
        )
    standing = _standing(overview, "is")
    return f"{standing[:1].upper()}{standing[1:]}; {_health(overview, checked.newest)}"


def _standing(overview: Overview, verb: str) -> str:
    standing = overview.open
    if not standing:
        return f"no incident {verb} open"
    worst = standing[0]
    since = f"since {_clock(worst.since, overview.now, seconds=True)}"
    more = f" and {worst.places - 1} more" if worst.places > 1 else ""
    what = f"{worst.anomaly} in {f'{worst.subjects[0]}{more}' if worst.subjects else where(worst)}"
    if len(standing) == 1:
        return f"1 incident {'' if verb == 'is' else 'was '}open: {what}, {worst.severity}, {since}"
    bad = sum(one.severity == "critical" for one in standing)
    were = "" if verb == "is" else "were "
    return f"{len(standing)} incidents {were}open, {bad or 'none'} critical, first {what}, {since}"


def _health(overview: Overview, newest: datetime) -> str:
    checked = overview.checked
    rest = "everything else healthy" if overview.open else "everything healthy"
    if checked.failed:
        more = f" and {len(checked.failed) - 1} more" if len(checked.failed) > 1 else ""
        rest = f"the checks of {checked.failed[0]}{more} have failed: nobody knows how these are"
    through = checked.through or newest
    at = _clock(through, overview.now, seconds=True)
    if newest - through > SILENT:
        return f"{rest}, but some is checked only through {at} UTC, {age(overview.now - through)} ago"
    return f"{rest}, checked through {at} UTC"


def lines(overview: Overview, width: int, *, limit: int) -> Iterator[Text]:
    """The screen below the verdict: what is open, what is over, what is only counted."""
    shown = 0
    for title, incidents in (("Open", overview.open), ("Over", overview.over)):
        if not incidents:
            continue
        yield Text("")
        cut = incidents[: max(limit - shown, 0)]
        shown += len(cut)
        rest = f", the first {len(cut)} are shown (--limit)" if len(cut) < len(incidents) else ""
        yield Text(f"{title} ({len(incidents)}{rest})", style="bold")
        dated = any(one.since.date() != overview.now.date() for one in cut)
        clusters = len({one.cluster for one in overview.incidents if one.cluster}) > 1
        for one in cut:
            yield row(one, overview.now, width, dated=dated, clusters=clusters)
    if overview.counted:
        yield Text("")
        counts = sorted(overview.counted.items(), key=lambda one: (-one[1], one[0]))
        said = ", ".join(
            f"{number} {anomaly}{' (allowed)' * (severity == 'allowed')}" for (anomaly, severity), number in counts
        )
        yield Text(f"Only counted: {said}; --all lists them", style="dim")
    if overview.incidents:
        first = (overview.open or overview.over)[0]
        yield Text("")
        yield Text(f"What happened, and what to do: offsetwatch explain {first.id[:ID]}")


def row(incident: Incident, now: datetime, width: int, *, dated: bool = False, clusters: bool = False) -> Text:
    """One incident on one line. The anomaly's name is never cut; place and message share what is left. `clusters`:
    there are several, so that each is named."""
    ends = now if incident.open else incident.until or incident.last
    clock = _clock(incident.since, now, seconds=width >= WIDE)
    time_of_day = 8 if width >= WIDE else 5
    head = f"{incident.id[:ID]} {clock:>{time_of_day + 6 * dated}} {age(ends - incident.since):>3} "
    own = incident.findings - sum(incident.folded.values())
    times = f" ×{own}" if own > max(incident.places, 1) else ""
    room = width - len(head) - len(SHORT[incident.severity]) - 1 - len(incident.anomaly) - len(times)
    message = _LONG_NUMBER.sub(lambda number: f"…{number.group()[-4:]}", " ".join(incident.message.split()))
    place = f"{incident.cluster[:ID]} {incident.place}".strip() if clusters else incident.place
    if place:
        place = f" {_cut_head(place, max(room - 2 - min(_LEAST_MESSAGE, len(message)), room // 2))}"
    line = Text(head)
    line.append(SHORT[incident.severity], style=STYLE[incident.severity] if incident.open else "")
    line.append(" ")
    line.append(incident.anomaly, style="bold" if incident.open else "")
    line.append(f"{times}{place}")
    line.append(f" {_cut(message, room - len(place) - 1)}", style="dim")
    return line


def age(span: timedelta) -> str:
    """A span in its largest unit: 14m."""
    seconds = max(int(span.total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _clock(at: datetime, now: datetime, *, seconds: bool) -> str:
    """The time of day; with the date where it is not today's."""
    at = at.astimezone(UTC)
    day = (
        "" if at.date() == now.astimezone(UTC).date() else at.strftime("%m-%d " if at.year == now.year else "%Y-%m-%d ")
    )
    return day + at.strftime("%H:%M:%S" if seconds else "%H:%M")


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…" if room > 1 else ""


def _cut_head(text: str, room: int) -> str:
    """Names of topics differ at their end, which holds the partition too; they are cut between two words of theirs."""
    if len(text) <= room:
        return text
    left = text[len(text) - room + 1 :]
    words = re.split(r"(?<=[-._ ])", left, maxsplit=1)
    return "…" + (words[1] if len(words) > 1 and "/" in words[1] else left)
