"""What the report draws over time, asked of the database: latency, availability, unseen records, lag, what happened.

Every answer has a bounded number of rows: time is cut into `BUCKETS` pieces at most. What would take too much is not
asked, and said to be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from monitor.diagrams.chart import COLOURS, Series
from monitor.diagrams.timeline import Happening
from monitor.postmortem.database import Database

BUCKETS: Final = 120
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 86_400)
MOST_RECORDS: Final = 6_000_000
"""Records whose way is followed one by one; of more, unseen records and lag are not drawn."""
UNANSWERED: Final = " silent"
OUT_OF_SYNC: Final = " out of sync"
"""How the rows of a broker's happenings are called, after its name."""
_TOGETHER: Final = timedelta(seconds=15)
"""A broker that is told silent again within this time has been silent all along."""
_HAPPENINGS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Figures:
    """`sent`, `polled`: records; `clients`: how many had a part. `rows`: of the probe log, of any kind. `observations`:
    of the observer, `unanswered` those that failed without a word of which broker was silent. Latencies in
    milliseconds, lag in seconds."""

    sent: int
    polled: int
    clients: int
    operations: int
    not_ok: int
    rows: int
    observations: int
    unanswered: int
    latency: Sequence[Series] = ()
    availability: Sequence[Series] = ()
    unseen: Sequence[Series] = ()
    lag: Sequence[Series] = ()
    left_out: Sequence[str] = field(default_factory=tuple)


def figures(database: Database, begin: datetime, end: datetime) -> Figures:
    """All figures of the range; the database holds no other operations."""
    step = _step(begin, end)
    of = {"step": str(step)}
    times = [begin + timedelta(seconds=step) * n for n in range(int((end - begin).total_seconds() // step) + 1)]
    (totals,) = database.run(_TOTALS)
    sent, polled, clients, operations, not_ok, rows, observations, unanswered = (int(one or 0) for one in totals)
    pace = list(database.run(_PACE, of))
    left = []
    unseen: Sequence[Series] = ()
    lag: Sequence[Series] = ()
    if sent + polled <= MOST_RECORDS:
        list(database.run(_ACKNOWLEDGED))
        unseen = [_standing(list(database.run(_UNSEEN, of)), times)]
        lag = _worst(_named(list(database.run(_LAG, of)), times))
    else:
        left.append(
            f"unseen records and lag: {sent + polled:,} records are more than {MOST_RECORDS:,}; narrow the range"
        )
    return Figures(
        sent,
        polled,
        clients,
        operations,
        not_ok,
        rows,
        observations,
        unanswered,
        latency=[
            *_named([(row[1], row[0], row[2]) for row in pace], times),
            *_named([("slowest of a hundred", row[0], row[3]) for row in pace if row[1] == "send"], times),
        ],
        availability=_named([(row[1], row[0], row[4]) for row in pace], times),
        unseen=unseen,
        lag=lag,
        left_out=left,
    )


def happenings(database: Database) -> list[Happening]:
    """What the observer and the clients told: brokers that were silent, or whose replicas were out of sync, leaders and
    coordinators that moved, partitions that nobody led, topics made anew, clients that came and went."""
    found = list(_silences(database.run(_SILENT)))
    found += _out_of_sync(database.run(_IN_SYNC).fetch(_HAPPENINGS))
    found += _moves(database.run(_MOVES).fetch(_HAPPENINGS))
    found += [
        Happening(at, None, "change", "topics made anew", f"{topic} was deleted and made anew")
        for at, topic in database.run(_REMADE).fetch(_HAPPENINGS)
    ]
    found += [
        Happening(at, None, "client", f"clients {what.partition(':')[0]}", f"{client} {what}")
        for at, client, what in database.run(_LIVES).fetch(_HAPPENINGS)
    ]
    return sorted(found)


def _silences(rows: Iterable[tuple[Any, ...]]) -> Iterator[Happening]:
    """Stretches of time in which a broker did not answer; without a name, in which observations just failed; of a
    group, in which nobody could be told what it has committed."""
    open_: dict[str, tuple[datetime, datetime]] = {}
    for at, broker in rows:
        begin, last = open_.get(broker, (at, at))
        if at - last > _TOGETHER:
            yield _silence(broker, begin, last)
            begin = at
        open_[broker] = begin, at
    for broker, (begin, last) in open_.items():
        yield _silence(broker, begin, last)


def _out_of_sync(rows: Iterable[tuple[Any, ...]]) -> Iterator[Happening]:
    """Stretches of time in which some of a broker's replicas were not in sync: as where it was away for too short a
    time to be called silent. One that a broker has no more lacks nothing. Rows are (when, partition, replicas, those in
    sync), in the order of time."""
    lacking: dict[str, set[str]] = {}
    since: dict[str, tuple[datetime, set[str]]] = {}
    for at, partition, replicas, in_sync in rows:
        away = set(filter(None, replicas.split(","))).difference(in_sync.split(","))
        for broker in away:
            lacking.setdefault(broker, set()).add(partition)
            since.setdefault(broker, (at, set()))[1].add(partition)
        for broker in since.keys() - away:
            lacking[broker].discard(partition)
            if not lacking[broker]:
                yield _lack(broker, *since.pop(broker), at)
    for broker, (begin, partitions) in since.items():
        yield _lack(broker, begin, partitions, None)


def _lack(broker: str, begin: datetime, partitions: set[str], end: datetime | None) -> Happening:
    lasted = f"for {(end - begin).total_seconds():.0f} s" if end is not None else "from here on"
    count = len(partitions)
    told = f"the replicas of {count} partition{'s' * (count != 1)} on broker {broker} were not in sync {lasted}"
    return Happening(begin, end, "change", f"broker {broker}{OUT_OF_SYNC}", told)


def _moves(rows: Iterable[tuple[Any, ...]]) -> Iterator[Happening]:
    """Changes of leaders and coordinators, and stretches of time in which a partition had no leader. Rows are (when,
    "leaders" or "coordinators", of what, who it was before, who it is), in the order of time."""
    leaderless: dict[str, datetime] = {}
    for at, which, what, before, now in rows:
        if which == "leaders" and now == _NOBODY:
            leaderless[what] = at
        elif which == "leaders" and what in leaderless:
            begin = leaderless.pop(what)
            lasted = f"{(at - begin).total_seconds():.0f} s"
            yield Happening(begin, at, "fault", "no leader", f"{what} had no leader for {lasted}")
        else:
            done = "led" if which == "leaders" else "coordinated"
            yield Happening(at, None, "change", which, f"{what} {done} by {_broker(now)}, after {_broker(before)}")
    for what, begin in leaderless.items():
        yield Happening(begin, None, "fault", "no leader", f"{what} had no leader from here on")


def _broker(name: str) -> str:
    return name if name == _NOBODY else f"broker {name}"


def _silence(broker: str, begin: datetime, last: datetime) -> Happening:
    seconds = (last - begin).total_seconds()
    lasted = f"for {seconds:.0f} s" if seconds >= 1 else "for a moment"
    if group := broker.removeprefix("group ") if broker.startswith("group ") else "":
        why = "its coordinator did not answer, or a transaction held them"
        return Happening(
            begin, last, "change", "offsets unread", f"the offsets of {group} could not be read {lasted}: {why}"
        )
    if not broker:
        return Happening(begin, last, "fault", "observer unanswered", f"observations were not answered {lasted}")
    return Happening(begin, last, "fault", f"broker {broker}{UNANSWERED}", f"broker {broker} did not answer {lasted}")


def _step(begin: datetime, end: datetime) -> int:
    whole = (end - begin).total_seconds()
    return next((one for one in _STEPS if one * BUCKETS >= whole), _STEPS[-1])


def _named(rows: Sequence[tuple[str, datetime, float]], times: Sequence[datetime]) -> list[Series]:
    by: dict[str, dict[datetime, float]] = {}
    for name, at, value in rows:
        by.setdefault(name, {})[at] = value
    return [Series(name, _filled(points, times)) for name, points in by.items()]


def _filled(points: dict[datetime, float], times: Sequence[datetime]) -> list[tuple[datetime, float | None]]:
    """A point for each piece of time that has a number, and a break where it has none for more than one."""
    found: list[tuple[datetime, float | None]] = []
    gap = times[1] - times[0] if len(times) > 1 else timedelta(0)
    for at in sorted(points):
        if found and gap and at - found[-1][0] > 3 * gap:
            found.append((found[-1][0] + gap, None))
        found.append((at, points[at]))
    return found


def _worst(series: Sequence[Series]) -> list[Series]:
    ranked = sorted(series, key=lambda one: -max((value or 0.0 for _, value in one.points), default=0.0))
    return ranked[:COLOURS]


def _standing(changes: Sequence[tuple[datetime, int]], times: Sequence[datetime]) -> Series:
    """How many stand at the end of each piece of time, from how many came and went within it."""
    of, standing, points = dict(changes), 0, []
    for at in sorted({*times, *of}):
        standing += of.get(at, 0)
        points.append((at, float(standing)))
    return Series("acknowledged, and polled by nobody yet", points)


_NOBODY: Final = "nobody"
"""What the observer says of a partition without a leader."""
_BUCKET: Final = "time_bucket(to_seconds($step::int), {}, timestamptz 'epoch')"
_TOTALS: Final = """
select
    sum(sent_records), sum(polled_records), count(distinct process) filter (f in ('send', 'poll', 'txn')),
    (select count(*) from writes), (select count(*) from writes where failed),
    count(*), count(distinct (process, op)) filter (f = 'offsets'),
    count(distinct (process, op)) filter (
        f = 'offsets' and type <> 'ok' and settings['silent'] is null and "group" is null
    )
from operations
"""
_PACE: Final = f"""
select
    {_BUCKET.format("invoked")} as piece, f, median(took_ms), quantile_cont(took_ms, 0.99),
    100.0 * count(*) filter (not failed) / count(*)
from writes
group by all order by piece, f
"""
_ACKNOWLEDGED: Final = """
create or replace temp table acknowledged as
select topic_id, partition, writer, seq, min(completed) as told
from records where did = 'sent' and type = 'ok' group by all
"""
_UNSEEN: Final = f"""
with given as (
    select topic_id, partition, writer, seq, min(completed) as told
    from records where did = 'polled' group by all
),
changes as (
    select told, 1 as change from acknowledged
    union all
    select greatest(g.told, a.told), -1 from acknowledged a join given g using (topic_id, partition, writer, seq)
)
select {_BUCKET.format("told")} as piece, sum(change)::bigint from changes group by all order by piece
"""
_LAG: Final = f"""
with given as (
    select topic_id, partition, writer, first_seq + records - 1 as seq, client, completed as told
    from runs where did = 'polled'
        and process not in (select process from clients where kind = 'audit')
)
select g.client, {_BUCKET.format("g.told")} as piece,
    max(greatest(date_diff('millisecond', a.told, g.told), 0)) / 1000.0
from given g join acknowledged a using (topic_id, partition, writer, seq)
group by all order by piece
"""
_SILENT: Final = """
select distinct date_trunc('second', time) as time, broker
from (
    select unnest([invoked, completed]) as time, coalesce(asked, '') as broker
    from unanswered where "group" is null and (asked is not null or settings['silent'] is null)
    union all
    select completed, 'group ' || "group" from unanswered where "group" is not null
)
order by time, broker
"""
_MOVES: Final = """
with told as (
    select completed as time, 'leaders' as which, topic || '/' || partition as what, settings['led_by'] as broker
    from operations where settings['led_by'] is not null
    union
    select completed, 'coordinators', 'group ' || "group", settings['group_coordinator']
    from operations where settings['group_coordinator'] is not null
    union
    select completed, 'coordinators', 'transactional id ' || transactional_id, settings['transaction_coordinator']
    from operations where settings['transaction_coordinator'] is not null
),
moves as (select *, lag(broker) over (partition by which, what order by time) as before from told)
select time, which, what, before, broker from moves where before <> broker order by time
"""
_IN_SYNC: Final = """
with told as (
    select completed as time, topic || '/' || partition as what, settings['replicas_on'] as replicas,
        settings['in_sync'] as in_sync
    from operations where settings['in_sync'] is not null and settings['replicas_on'] is not null
),
changes as (select *, lag(replicas || ' ' || in_sync) over (partition by what order by time) as before from told)
select time, what, replicas, in_sync from changes
where before is distinct from replicas || ' ' || in_sync
order by time, what
"""
_REMADE: Final = """
select time, topic
from (
    select
        topic, min(completed) as time,
        row_number() over (partition by cluster, topic order by min(completed)) as ordinal
    from operations
    where f = 'offsets' and topic_id <> ''
    group by cluster, topic, topic_id
)
where ordinal > 1
order by time
"""
_LIVES: Final = """
select min(completed) as time, client, case
           when f = 'start' then 'started'
           when any_value(error) = '_CRASHED' then 'was abandoned by the canary on purpose'
           else 'ended: ' || any_value(error)
       end as what
from operations
where (f = 'start' or (f = 'close' and error is not null))
group by process, client, f
order by time
"""
