"""One incident, or one finding, with everything that explains it: its findings, and who did what with its records.

An id may be cut to as many digits as tell it apart. Read from the tables alone: the findings, and of the probe log what
every client did with the first finding's records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alerts.event import parsed
from alerts.incidents.grouping import HOLD, Incidents
from alerts.incidents.incident import LOSSES, Incident, Names, nameless
from alerts.incidents.keys import offset_of
from alerts.incidents.silence import Silence
from alerts.silences import silenced
from monitor.config.config import Config
from monitor.errors import UserError
from monitor.incidents.cluster_then import Change, cluster_then
from monitor.incidents.findings import Filter, tables_of
from monitor.incidents.findings import named as with_name
from monitor.incidents.overview import overview_of
from monitor.incidents.room import no_room
from monitor.incidents.witnesses import FindingSubject, Witness, around, asked, names, witnesses
from streaming_jobs.location import TableLocation
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current

SHOWN: Final = 10
"""Findings of an incident that are shown one by one; the others are counted."""
_LEAST_ID: Final = 4
_LONG: Final = re.compile(r"(?<!\d)\d{6,19}(?!\d)")
_TWICE: Final = re.compile(r"(?<!\S)([a-z][\w.-]*) \(\1\)", re.IGNORECASE)
_ID: Final = re.compile(r"(?P<process>process )?(?<!\d)(?P<id>\d{6,19})(?!\d)")


class UnknownId(UserError):
    """The tables hold nothing of this id."""


class Wanted(NamedTuple):
    """An id, or its first digits; of several incidents of it that which was the newest `at` a time, None for now."""

    id: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """`incident`: None for what is only counted. `findings`: rows of `CURRENT`, the oldest first. `witnesses`: what
    clients did with the records of the finding that names it; `then`: what the cluster did around that time; `names`:
    how probes call these, and those that findings name; `others`: incidents of the same id, the newest first."""

    incident: Incident | None
    findings: Sequence[Mapping[str, Any]]
    witnesses: Sequence[Witness] = ()
    then: Sequence[Change] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    others: Sequence[Incident] = ()


def find(
    tables: TableLocation,
    history: TableLocation,
    wanted: Wanted,
    now: datetime,
    hold: timedelta = HOLD,
    called: Names = nameless,
) -> Explained:
    """The incident that this id names, or that the finding is a part of. Raises UserError where there is none, or
    several ids."""
    events = read_table(tables_of(tables), "findings")
    found = _found_then(events, read_table(tables, "partition_state"), wanted, now, hold, called)
    about = subject(found)
    saw = witnesses(history, about) if about is not None else []
    processes = mentioned(found) | {one.process for one in saw}
    place = about or around(naming(found))
    then = cluster_then(history, _in_this_spell(found, place)) if place is not None else []
    return replace(found, witnesses=saw, then=then, names=names(history, processes))


def find_where_there_is_room(config: Config, wanted: str, found: Callable[[], Explained]) -> Explained:
    """What `found` finds. Where the tables do not know the id, and a disk is full, the error says that too: it may be
    that of a page which came since."""
    try:
        return found()
    except UnknownId:
        why = no_room(config)
        if why is None:
            raise
        raise UserError(f"the tables hold nothing with the id {wanted} yet. {why}") from None


def under_silences(found: Explained, silences: Sequence[Silence], now: datetime) -> Explained:
    """The same, with the silence under which its incident is, or ended."""
    if found.incident is None:
        return found
    (incident,) = silenced([found.incident], silences, now)
    return replace(found, incident=incident)


def naming(found: Explained) -> Mapping[str, Any]:
    """The finding that it is explained by: the first of its own name. What was told before may belong to it too, and a
    condition that began again has the finding of its first time."""
    incident = found.incident
    if incident is None:
        return found.findings[0]
    own = (row for row in found.findings if row["anomaly"] == incident.anomaly and row["at"] >= incident.since)
    return next(own, found.findings[0])


def _in_this_spell(found: Explained, place: FindingSubject) -> FindingSubject:
    incident = found.incident
    if incident is None or incident.kind != "condition":
        return place
    return replace(place, at=max(place.at, incident.since))


def subject(found: Explained) -> FindingSubject | None:
    """Which records that finding is about, None where it names none."""
    first = naming(found)
    return asked(first, parsed(first["evidence"]))


def shown(found: Explained) -> list[Mapping[str, Any]]:
    """The `SHOWN` findings that tell most: the first of each name, the incident's own name and losses before others,
    then the second of each, and so on."""
    own = found.incident.anomaly if found.incident is not None else ""
    ranks: dict[str, int] = {}
    for row in found.findings:
        ranks.setdefault(row["anomaly"], len(ranks))
    counted: Counter[str] = Counter()
    order = []
    for row in found.findings:
        name = row["anomaly"]
        order.append((counted[name], name != own, name not in LOSSES, ranks[name]))
        counted[name] += 1
    return [found.findings[i] for i in sorted(range(len(order)), key=order.__getitem__)[:SHOWN]]


def began(row: Mapping[str, Any]) -> datetime:
    """When what a finding tells began: of a condition that came back, its newest spell."""
    at: datetime = row["at"]
    if row["state"] == "open":
        return at
    lasted = parsed(row["evidence"]).get("lasted_s") if row["state"] == "closed" else None
    first: datetime = row["first_at"]
    return first if lasted is None else max(first, at - timedelta(seconds=float(lasted)))


def mentioned(found: Explained) -> set[int]:
    """The long numbers that its findings name: processes and writers, among others."""
    told = " ".join(f"{row['message']} {row['evidence']}" for row in shown(found))
    return {int(number) for number in _LONG.findall(told)}


def _found_then(
    events: pa.Table, states: pa.Table, wanted: Wanted, now: datetime, hold: timedelta, called: Names
) -> Explained:
    """As `found_in`; what was told before the newest of it began is told as it was then: an earlier incident, or an
    earlier spell of this one."""
    found = found_in(events, states, wanted.id, now, hold, called)
    later: list[Incident] = []
    while wanted.at is not None and found.incident is not None and found.incident.holds_since > wanted.at:
        events = _before(events, found, found.incident.since)
        if not _tells_of(events, wanted.id):
            break
        later.append(found.incident)
        found = found_in(events, states, wanted.id, now, hold, called)
    others = [one for one in found.others if one not in later]
    return replace(found, others=(*later, *others))


def _before(events: pa.Table, found: Explained, since: datetime) -> pa.Table:
    """What was recorded before anything of an incident that began then: the finding that it began with may be told by
    another one since."""
    members = pc.is_in(events["id"], value_set=pa.array([row["id"] for row in found.findings], pa.string()))
    of_it = pc.or_(pc.equal(events["at"], since), pc.and_(members, pc.greater_equal(events["at"], since)))
    came = events.filter(pc.and_(of_it, pc.not_equal(events["event"], "closed")))
    return events.filter(pc.less(events["recorded"], pc.min(came["recorded"]))) if len(came) else events.slice(0, 0)


def _tells_of(events: pa.Table, wanted: str) -> bool:
    return bool(pc.any(pc.starts_with(events["id"], wanted)).as_py())


def found_in(
    events: pa.Table, states: pa.Table, wanted: str, now: datetime, hold: timedelta = HOLD, called: Names = nameless
) -> Explained:
    """What the id names among the rows of `findings`, without what the probe log says of it. Raises UserError where
    that is nothing, or several."""
    if len(wanted) < _LEAST_ID:
        raise UserError(f"{wanted}: give at least {_LEAST_ID} digits of the id")
    overview, incidents = overview_of(events, states, now, Filter(), hold, called)
    rows = [with_name(row, called) for row in current(events).to_pylist()]
    rows.sort(key=lambda row: (row["first_at"], row["id"]))
    ids = sorted({row["id"] for row in rows if row["id"].startswith(wanted)})
    if not ids:
        raise UnknownId(f"no finding and no incident has the id {wanted}: offsetwatch findings lists them")
    if len(ids) > 1:
        raise UserError(f"{wanted} may be {', '.join(ids[:5])}{' and others' * (len(ids) > 5)}: give more digits")
    incident = _named_by(ids[0], overview.incidents, incidents.of(ids[0]))
    if incident is None:
        return Explained(None, [row for row in rows if row["id"] == ids[0]])
    others = [one for one in overview.incidents if one.id == incident.id and one is not incident]
    return Explained(incident, _members(incidents, incident, rows), others=others)


def _named_by(wanted: str, incidents: Sequence[Incident], of: str | None) -> Incident | None:
    """The incident in which the finding was told last, `of`, or the newest that has its id, where that began later:
    what an incident is named after may be part of another one by now, and it go on, or begin again, without."""
    last = next((one for one in incidents if one.occurrence == of), None)
    own = next((one for one in incidents if one.id == wanted), None)
    return own if own is not None and (last is None or own.since > last.since) else last


def _members(incidents: Incidents, incident: Incident, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Its findings, the oldest first; of one moment, in the order of their places."""

    def order(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["first_at"], row["topic"], row["partition"], offset_of(parsed(row["evidence"])), row["id"]

    return sorted((row for row in rows if incidents.of(row["id"]) == incident.occurrence), key=order)


def named(text: str, names: Mapping[int, str]) -> str:
    """The text with the probes' names for the ids that it tells: a value is its writer's name and a number. Where the
    name stands before the id, once is enough."""

    def name(found: re.Match[str]) -> str:
        known = names.get(int(found["id"]))
        return found.group() if known is None else f"{known}" if found["process"] else f"{known}:{found['id'][-4:]}"

    return _TWICE.sub(r"\1", _ID.sub(name, text))
