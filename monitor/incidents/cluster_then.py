"""What the cluster did around a finding, by what the observer and the clients logged of one partition.

Who led it and in which epoch, who was in sync, who coordinated the groups and transactional ids at work in it, which
brokers did not answer, or throttled us, where its log went back, what clients were told that was no success.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from monitor.incidents.silences import silences
from monitor.incidents.witnesses import FindingSubject
from rules.vocabulary.slices import DIED
from streaming_jobs.location import TableLocation, opened

AROUND: Final = timedelta(seconds=90)
"""Longer than the observer takes to tell of an unchanged leader again."""
_LED_BEFORE: Final = timedelta(seconds=75)
"""So far before that time it has told who leads: whose an answer is that comes at its beginning is known by that."""
_EVER: Final = datetime.min.replace(tzinfo=UTC)
_SHOWN: Final = 12
_COLUMNS: Final = (
    "process",
    "f",
    "type",
    "error",
    "invoked",
    "completed",
    "settings",
    "log_start",
    "log_end",
    "last_stable",
    "group",
    "transactional_id",
    "end_invoked",
    "op",
    "topic",
    "partition",
)
_OF_OBSERVERS: Final = (
    "process",
    "op",
    "topic",
    "partition",
    "type",
    "error",
    "invoked",
    "completed",
    "settings",
    "log_start",
    "log_end",
    "last_stable",
)
_COORDINATED: Final = {
    "group_coordinator": ("group", "group"),
    "transaction_coordinator": ("transactional_id", "transactional id"),
}
"""The settings that tell of a coordinator: the column that names whose it is, and what that is called."""
_NAMED: Final = 3
_NOBODY: Final = "nobody"
_ON_PURPOSE: Final = "_CRASHED"
"""The error of operations whose client the probes abandoned (`probes.unrest`): it says nothing of the cluster."""
_DIED: Final = (DIED, "host-lost")
"""What recovery writes for a process: when it ended such a row does not say."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """Something that changed, or was told for the first time."""

    at: datetime
    told: str


def cluster_then(history: TableLocation, about: FindingSubject) -> list[Change]:
    """What changed around the finding's time, in the order of time; empty where there is no log, or it says nothing."""
    log = opened(history)
    if log is None:
        return []
    field, kind = pc.field, pa.timestamp("us", tz="UTC")
    begin, end = about.at - AROUND, about.at + AROUND
    days = sorted({one.astimezone(UTC).date() for one in (begin - _LED_BEFORE, about.at, end)})
    known = field("date").isin(days) & (field("completed") <= pa.scalar(end, kind))
    then = known & (field("completed") >= pa.scalar(begin, kind))
    wanted = (
        then
        & (field("topic_id") == about.topic_id if about.topic_id else field("topic") == about.topic)
        & (field("partition") == about.partition)
        & ((field("f") == "offsets") | field("error").is_valid() | (field("f") == "txn") & field("settings").is_valid())
    )
    dataset = log.to_pyarrow_dataset()
    named = then & (field("topic") == about.topic) & (field("partition") == about.partition) & (field("f") == "offsets")
    ids = dataset.to_table(columns=["cluster", "topic", "topic_id", "completed"], filter=named)
    remade = list(_remade(ids, about.topic_id))
    rows = dataset.to_table(columns=list(_COLUMNS), filter=wanted).to_pylist()
    rows.sort(key=lambda row: row["completed"])
    observed = _observed(rows)
    if not any("silent" in dict(row["settings"] or ()) for row in observed):
        return sorted(remade + changes(rows))
    # Whether a broker answers is told by all partitions that it leads, and this one may have another leader.
    observers = sorted({row["process"] for row in observed})
    asked = (
        known
        & (field("completed") >= pa.scalar(begin - _LED_BEFORE, kind))
        & (field("f") == "offsets")
        & field("group").is_null()
        & field("process").isin(observers)
    )
    questions = dataset.to_table(columns=list(_OF_OBSERVERS), filter=asked).to_pylist()
    return sorted(remade + changes(rows, questions, begin))


def changes(
    rows: Sequence[Mapping[str, Any]],
    asked: Sequence[Mapping[str, Any]] | None = None,
    begin: datetime = _EVER,
) -> list[Change]:
    """The changes in these rows of the probe log, which are in the order of time; the first `_SHOWN` of each kind.
    `asked`: what the observers asked about any partition, where that is more than these rows, as that from before
    `begin` is, of which no change is told."""
    observed = _observed(rows)
    found = [
        *_leaders(observed),
        *_coordinators(rows),
        *_silences(observed if asked is None else asked, begin),
        *_throttled(observed),
        *_ends(observed),
        *_errors(rows),
        *_long(rows),
    ]
    return sorted(found)


def _remade(observed: pa.Table, topic_id: str) -> Iterator[Change]:
    """When the topic that has or had this id was first seen with another one than before; other clusters may have one
    of its name."""
    by_id = observed.group_by(["cluster", "topic", "topic_id"]).aggregate([("completed", "min")])
    seen = by_id.sort_by("completed_min").to_pylist()
    clusters = {row["cluster"] for row in seen if row["topic_id"] == topic_id}
    for row in [row for row in seen if row["cluster"] in clusters][1:]:
        yield Change(row["completed_min"], f"{row['topic']} has another id: it was deleted and made anew")


def _observed(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["f"] == "offsets" and row["group"] is None]


def _leaders(rows: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    """Who leads, by what is told of it: `led_by` whenever it is known, `leader` where that does not answer. While
    nobody leads, nobody is told to be in sync: who was before counts. What is told with an earlier epoch than before is
    what a broker knew that has been away: nothing that happened then."""
    before: tuple[str, ...] = ()
    in_sync, told, asked, newest = "", 0, _EVER, -1
    for row in rows:
        settings = dict(row["settings"] or ())
        if "led_by" not in settings:
            continue
        now = tuple(settings.get(name, "") for name in ("led_by", "leader_epoch", "in_sync"))
        if now[1].isdecimal():
            if int(now[1]) < newest:
                continue
            newest = int(now[1])
        if now == before or told == _SHOWN:
            asked = row["completed"] if now[2] else asked
            continue
        if not before and now[0] in settings.get("silent", "").split(","):
            before = now  # what the observer had been told before that one fell silent
            continue
        told += 1
        leader = f"{_broker(now[0])} leads"
        unclean = ""
        if before and before[0] != now[0]:
            leader += f", after {before[0]}"
            if in_sync and now[0].isdecimal() and now[0] not in in_sync.split(","):
                ago = (row["completed"] - asked).total_seconds()
                unclean = f"; {ago:.1f} s before it was not in sync: an unclean election, unless it caught up meanwhile"
        epoch = f", leader epoch {now[1]}" if now[1] else ""
        yield Change(row["completed"], f"{leader}{epoch}, in sync: {now[2].replace(',', ', ') or 'nobody'}{unclean}")
        before = now
        if now[2]:
            in_sync, asked = now[2], row["completed"]


def _coordinators(rows: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    """Who coordinates what: at first a line for each broker, then each that moved, those of one second together."""
    stood: dict[tuple[str, str], str] = {}
    first: dict[str, _Coordinated] = {}
    moved: dict[tuple[datetime, str, str], _Coordinated] = {}
    for row in rows:
        for setting, broker in dict(row["settings"] or ()).items():
            if setting not in _COORDINATED:
                continue
            column, kind = _COORDINATED[setting]
            name, at = row[column] or "without a name", row["completed"]
            before = stood.get((kind, name))
            if before is None and row["error"]:
                continue  # what the observer had been told before: it does not answer
            stood[kind, name] = broker
            if before is None:
                first.setdefault(broker, _Coordinated(at)).add(kind, name)
            elif before != broker:
                moved.setdefault((at.replace(microsecond=0), broker, before), _Coordinated(at)).add(kind, name)
    for broker, whose in first.items():
        yield Change(whose.at, f"{_broker(broker)} coordinates {whose}")
    for (_, broker, before), whose in islice(moved.items(), _SHOWN):
        after = f", after broker {before}" if before != _NOBODY else ""
        yield Change(whose.at, f"{_broker(broker)} coordinates {whose}{after}")


@dataclass(slots=True)
class _Coordinated:
    """Groups and transactional ids that one broker coordinates from about then on: names by kind."""

    at: datetime
    names: dict[str, list[str]] = dataclass_field(default_factory=dict)

    def add(self, kind: str, name: str) -> None:
        self.names.setdefault(kind, []).append(name)

    def __str__(self) -> str:
        listed = (f"{kind}{'s' * (len(names) > 1)} {_some(names)}" for kind, names in sorted(self.names.items()))
        return ", ".join(listed)


def _broker(told: str) -> str:
    return _NOBODY if told == _NOBODY else f"broker {told}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _silences(rows: Sequence[Mapping[str, Any]], begin: datetime) -> Iterator[Change]:
    for at, told in islice((one for one in silences(rows) if one[0] >= begin), 2 * _SHOWN):
        yield Change(at, told)


def _throttled(rows: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    """Which brokers held back what they answered our clients, by a quota: from when to when, for how long at most."""
    spells: list[_Throttling] = []
    last: dict[str, _Throttling] = {}
    for row in rows:
        at = row["completed"]
        for one in filter(None, dict(row["settings"] or ()).get("throttled", "").split(",")):
            broker, seconds = one.split(":")[:2]  # and for which part of the time, from some version on
            spell = last.get(broker)
            if spell is None or at - spell.until > _APART:
                spell = last[broker] = _Throttling(broker, at, at, 0.0)
                spells.append(spell)
            spell.until, spell.longest = at, max(spell.longest, float(seconds))
    for spell in spells[:_SHOWN]:
        yield Change(
            spell.since,
            f"broker {spell.broker} held back what it answered our clients, by a quota, for {spell.longest:.1f} s at"
            f" most, until {spell.until.astimezone(UTC):%H:%M:%S}",
        )


@dataclass(slots=True)
class _Throttling:
    broker: str
    since: datetime
    until: datetime
    longest: float


_APART: Final = timedelta(seconds=5)
"""Longer than between two rows of an observer that is told of it."""


def _ends(rows: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    """Where the log went back, or lost its beginning, as one observer after itself saw it: two ask side by side, and
    perhaps by clocks that differ."""
    told = 0
    saw_first: dict[tuple[str, int], int] = {}
    known: dict[int, dict[str, int]] = {}
    for row in rows:
        process, at = row["process"], row["completed"]
        before = known.setdefault(process, {})
        for name, words in (("log_end", "the log's end"), ("last_stable", "the last stable offset")):
            now, last = row[name], before.get(name)
            if now is None or last is None or now >= last or saw_first.setdefault((name, now), process) != process:
                continue
            if (told := told + 1) <= _SHOWN:
                yield Change(at, f"{words} went back from {last} to {now}")
        start, first = row["log_start"], before.get("log_start")
        gone = start is not None and first is not None and start > first
        if gone and saw_first.setdefault(("log_start", start), process) == process and (told := told + 1) <= _SHOWN:
            yield Change(at, f"the log starts at {start}, before at {first}")
        before |= {name: row[name] for name in ("log_end", "last_stable", "log_start") if row[name] is not None}


def _errors(rows: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    """What clients were told that was no success: each error with how often, and until when."""
    counted: Counter[str] = Counter()
    first: dict[str, datetime] = {}
    last: dict[str, datetime] = {}
    for row in rows:
        if row["error"] is not None and row["error"] != _ON_PURPOSE:
            counted[row["error"]] += 1
            first.setdefault(row["error"], row["completed"])
            last[row["error"]] = row["completed"]
    for error, times in counted.most_common(_SHOWN):
        often = f"{times} operations here ended with" if times > 1 else "an operation here ended with"
        until = f", the last {last[error].astimezone(UTC):%H:%M:%S}" if times > 1 else ""
        yield Change(first[error], f"{often} {error}{until}")


def _long(rows: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    """Operations that took long, and whose outcome nobody was told: in which call they hung."""
    told = 0
    for row in rows:
        took = (row["completed"] - row["invoked"]).total_seconds()
        if row["f"] not in ("send", "txn", "init") or row["type"] != "info" or took < _LONG_S:
            continue
        if row["error"] == _ON_PURPOSE or (told := told + 1) > _SHOWN:
            continue
        whose = f" of {row['transactional_id']}" if row["transactional_id"] else ""
        what = {"send": "a send", "init": f"init_transactions{whose}"}.get(row["f"], f"a transaction{whose}")
        if row["error"] in _DIED:
            yield Change(row["invoked"], f"{what} began, and was under way when its process ended ({row['error']})")
            continue
        where = ""
        if row["f"] == "txn":
            ended = row["end_invoked"]
            where = "; its commit or abort was not called: it hung in what comes before, sends or the group's offsets"
            if ended is not None:
                until, rest = ((b - a).total_seconds() for a, b in pairwise((row["invoked"], ended, row["completed"])))
                where = f": {until:.0f} s until its commit or abort was called, {rest:.0f} s in that call"
        yield Change(
            row["invoked"], f"{what} began that had no answer, for {took:.0f} s, and ended with {row['error']}{where}"
        )


_LONG_S: Final = 10.0
"""Seconds; the longest that an operation of a healthy cluster takes."""
