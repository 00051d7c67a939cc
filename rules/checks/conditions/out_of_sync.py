"""`replicas-out-of-sync`, `under-min-isr`: replicas of probe partitions have not been in sync for long, or too many.

A broker that is away is asked no more once others lead its partitions, and nothing waits on it: one more, and something
does. Then fewer replicas are in sync than a write needs. Leaders answer, and accept nothing, tell readers of nothing
new, and where the group's or the transactions' own partition is one of these nobody is coordinated: that explains what
waits (`rules.kept.outages`). Where none is in sync from the beginning, nobody leads the partition: its
one broker is away, and that it answers nobody is `cluster-unreachable`.

Observers tell which brokers have replicas of a partition, and which of these are in sync, whenever that changes and
once a minute, and now and then how many a write needs. `replicas-out-of-sync` holds when they have told for `AFTER`
that a broker's are not, until they tell that they are, or that it has none any more. `under-min-isr` holds when they
have told for the liveness objective, less `UNNOTICED`, that too few are, and for `SHORTLY` where brokers had answered
nobody until then: the controller takes one broker after the other for dead, and what waits has waited since the first
was silent. Both are judged tick by tick in log time, and what an observer told before the newest that is known is
passed over.

What is acknowledged has been written, whatever was told: brokers since Kafka 3.7 need no more replicas in sync than a
partition has. So too few are in sync since the last write, of a process on that observer's host, that was sent after
the observer was told so, and acknowledged: its second one since then, as the first may have been under way.

A broker is one condition, whatever number of partitions it has replicas of, and so are too few replicas of a cluster:
each partition tells stage 2 that it holds here (`rules.across.shared_conditions`).

State: when the replicas were told last, which are not in sync since when, since when too few are, the last `SPELLS`
times of that, who has written in the last, `WRITERS` at most, and what was told after the last tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import orjson

from rules.arrays.columns import OFFSETS
from rules.arrays.intervals import Ints
from rules.checks.ends.not_there import not_there
from rules.kept.check import Check, News, Passage
from rules.kept.codec import empty
from rules.kept.report import Report
from rules.kept.state import SendMoves, State
from rules.vocabulary.conditions import OUT_OF_SYNC, UNDER_MIN_ISR
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import whole

AFTER: Final = 120 * SECOND
"""A broker that is restarted by the book is back by then, or nearly."""
UNNOTICED: Final = 10 * SECOND
"""A broker that dies is in sync until the controller has missed it for this long: what waits on it waits since then."""
RECENT: Final = 15 * SECOND
"""Brokers answer nobody until their partitions are led by others, and too few are in sync at about that time."""
SHORTLY: Final = 5 * SECOND
AGAIN: Final = 60 * SECOND
"""It is told again while it lasts, so that stage 2 can forget a partition that is gone."""
KEPT: Final = 4_096
"""What was told since the last tick: while log time stands still nobody is told of more than that."""
TOLD: Final = "words of observers on replicas"
REPLICAS: Final = "replicas_on"
IN_SYNC: Final = "in_sync"
NEEDED: Final = "min_insync"
SPELLS: Final = 8
WRITERS: Final = 64
REMEMBERED: Final = 600 * SECOND
"""Far longer than what waited goes on after it."""

_TOLD, _WRITTEN, _TICK = range(3)


@dataclass(slots=True)
class OutOfSync:
    """`newest`: when the replicas were told last, -1 for never; `replicas`, `in_sync`: the brokers, as told then;
    `missing`: [broker, since when its replica is not in sync, when stage 2 was told of it last or -1], as many as there
    are replicas; `needed`: how many have to be in sync, -1 where that is not told yet; `few`: [since when too few are,
    or brokers were silent before, when that was called long, when enough were again, since when observers have told so]
    of the last spells, -1 for not yet, and `told` when stage 2 was told of the one that lasts; `wrote`: of which
    processes a write was acknowledged while it lasts; `by`: the observer that was told last; `heard`: [time, replicas
    and in sync, None where they are not told, how many are needed or -1, the observer] of what was told after the last
    tick, the last `KEPT`."""

    newest: int = -1
    replicas: list[int] = field(default_factory=list)
    in_sync: list[int] = field(default_factory=list)
    missing: list[list[int]] = field(default_factory=list)
    needed: int = -1
    few: list[list[int]] = field(default_factory=list)
    told: int = -1
    wrote: list[int] = field(default_factory=list)
    by: int = -1
    heard: list[list[Any]] = field(default_factory=list)
    topic: str = ""


def arrive(own: OutOfSync, new: News) -> None:
    """Take in what observers tell of the replicas. A partition that is not there has none."""
    columns, asked = new.columns, new.where(OFFSETS)
    new.report.outages.few = own.few
    if columns.tells("settings"):
        _hear(own, new, asked)
    if own.missing or own.heard or _lasts(own):
        gone = [[int(columns.completed[row]), [], [], -1, -1] for row in not_there(columns, asked).tolist()]
        own.heard = new.report.newest([*own.heard, *gone], KEPT, TOLD)


def _hear(own: OutOfSync, new: News, asked: Ints) -> None:
    """Note what these rows tell of replicas."""
    columns, settings = new.columns, new.columns.table["settings"]
    for row in asked[settings.is_valid().to_numpy()[asked]].tolist():
        told = dict(settings[row].as_py())
        needed, brokers = whole(told.get(NEEDED, "")), REPLICAS in told and IN_SYNC in told
        if needed is not None:
            own.topic = columns.table["topic"][row].as_py()
        if brokers or needed is not None:
            present = [_brokers(told, REPLICAS), _brokers(told, IN_SYNC)] if brokers else [None, None]
            entry = [int(columns.completed[row]), *present, -1 if needed is None else needed, int(columns.process[row])]
            own.heard = new.report.newest([*own.heard, entry], KEPT, TOLD)


def fold(own: OutOfSync, passage: Passage) -> None:
    """Go through the ticks, and tell of which brokers it holds, and no longer."""
    passage.report.outages.few = own.few
    if not own.missing and not own.heard and not own.few:
        return
    end = passage.end
    events: list[tuple[int, int, Any]] = [(one[0], _TOLD, one[1:]) for one in own.heard if one[0] <= end]
    sends = passage.sends if _may_be_few(own) else empty(SendMoves)
    written = sends.last >= 0
    events += [
        (at, _WRITTEN, who) for at, who in zip(sends.at[written].tolist(), sends.process[written].tolist(), strict=True)
    ]
    events += [(time, _TICK, None) for time in passage.at.tolist()]
    own.heard = [one for one in own.heard if one[0] > end]
    for time, kind, what in sorted(events, key=lambda event: event[:2]):
        if kind == _TICK:
            _tick(own, time, passage.report)
        elif kind == _WRITTEN:
            _write(own, time, what, passage)
        elif time >= own.newest:
            _take(own, time, what, passage.report)
    own.few = [spell for spell in own.few if spell[2] < 0 or spell[2] >= passage.at[0] - REMEMBERED]
    passage.report.outages.few = own.few


def _take(own: OutOfSync, time: int, told_then: list[Any], report: Report) -> None:
    """What ends is told as it was until now: at its end nothing is wrong."""
    replicas, in_sync, needed, own.by = told_then
    own.newest, needed = time, needed if needed >= 0 else own.needed
    if replicas is None or in_sync is None:
        replicas, in_sync = own.replicas, own.in_sync
    few = len(in_sync) < needed and bool(replicas)
    if not few and _lasts(own):
        _end_few(own, time, report)
    away = [broker for broker in replicas if broker not in in_sync]
    for broker, since, told in own.missing:
        if broker not in away and told >= 0:
            _tell(own, "ended", broker, since, max(time, told), report)  # it may come late
    own.replicas, own.in_sync, own.needed = replicas, in_sync, needed
    own.missing = [one for one in own.missing if one[0] in away]
    known = {one[0] for one in own.missing}
    own.missing += [[broker, time, -1] for broker in away if broker not in known]
    if few and in_sync and not _lasts(own):
        own.few = [*own.few, [_silent_since(time, report), -1, -1, time]][-SPELLS:]


def _write(own: OutOfSync, time: int, process: int, passage: Passage) -> None:
    """A write of this process was acknowledged."""
    if not _lasts(own) or time <= own.few[-1][3] or not _on_one_host(passage.state, process, own.by):
        return
    if process not in own.wrote:
        own.wrote = [*own.wrote, process][-WRITERS:]
        return
    spell = own.few[-1]
    if spell[1] < 0:
        spell[0] = max(spell[0], time)
        return
    _end_few(own, time, passage.report)
    own.few = [*own.few, [spell[2], -1, -1, spell[3]]][-SPELLS:]


def _on_one_host(state: State, process: int, other: int) -> bool:
    """Whether both are known to live by the same clock."""
    one, two = state.processes.get(process), state.processes.get(other)
    return one is not None and two is not None and one.boot == two.boot


def _end_few(own: OutOfSync, time: int, report: Report) -> None:
    spell = own.few[-1]
    if own.told >= 0:
        _tell_few(own, "ended", spell, max(time, own.told), report)
    spell[2], own.told, own.wrote = max(time, own.told), -1, []


def _tick(own: OutOfSync, time: int, report: Report) -> None:
    for one in own.missing:
        broker, since, told = one
        if time - since >= AFTER and (told < 0 or time - told >= AGAIN):
            one[2] = time
            _tell(own, "holds", broker, since, time, report)
    if not _lasts(own):
        return
    spell = own.few[-1]
    if time >= _due(spell, report) and (own.told < 0 or time - own.told >= AGAIN):
        spell[1] = time if spell[1] < 0 else spell[1]
        own.told = time
        _tell_few(own, "holds", spell, time, report)


def _may_be_few(own: OutOfSync) -> bool:
    """Are too few in sync now, or may they be by what was told since? Else nobody asks who has written."""
    needed: int = max([own.needed, *(one[3] for one in own.heard)])
    in_sync = [len(one[2]) for one in own.heard if one[2] is not None] + [len(own.in_sync)] * bool(own.replicas)
    return min(in_sync, default=needed) < needed


def _lasts(own: OutOfSync) -> bool:
    """Are too few in sync now?"""
    return bool(own.few) and own.few[-1][2] < 0


def _silent_since(time: int, report: Report) -> int:
    """Since when brokers have answered nobody, where they have not until about this time; else this time."""
    silent = (since for since, _, end in report.outages.silent() if since <= time and (end < 0 or time - end <= RECENT))
    return min(silent, default=time)


def _due(spell: list[int], report: Report) -> int:
    """When too few have been in sync for long."""
    liveness = report.objectives.liveness
    return max(spell[0] + max(liveness - UNNOTICED, liveness // 2), spell[3] + SHORTLY)


def _tell(own: OutOfSync, kind: Literal["holds", "ended"], broker: int, since: int, at: int, report: Report) -> None:
    told = {
        "anomaly": OUT_OF_SYNC,
        "subject": [broker],
        "decidable": since + AFTER if kind == "holds" else at,
        "message": f"replicas on broker {broker} have not been in sync for {(at - since) / 1e6:.0f} s",
        "evidence": {"broker": broker, "since": since, "replicas": own.replicas, "in_sync": own.in_sync},
    }
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


def _tell_few(own: OutOfSync, kind: Literal["holds", "ended"], spell: list[int], at: int, report: Report) -> None:
    only = f"only broker {', '.join(map(str, own.in_sync))}" if own.in_sync else "no broker"
    to, lack = "", f"{only} is (of {', '.join(map(str, own.replicas))})"
    if own.needed > len(own.replicas):  # so it is set for this topic, and others may be as they were
        to, there = f" to {own.topic}", "there is 1" if len(own.replicas) == 1 else f"there are {len(own.replicas)}"
        lack = f"{there}, on broker {', '.join(map(str, own.replicas))}, whatever broker comes back"
    told = {
        "anomaly": UNDER_MIN_ISR,
        "subject": [],
        "decidable": _due(spell, report) if kind == "holds" else at,
        "message": f"a write{to} needs {own.needed} replicas in sync, and {lack}: nothing can be written",
        "evidence": {
            "replicas": own.replicas,
            "in_sync": own.in_sync,
            "min_insync": own.needed,
            "since": spell[0],
        },
    }
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


def _brokers(told: Mapping[str, str], name: str) -> list[int]:
    return sorted(number for one in told[name].split(",") if (number := whole(one)) is not None)


CHECK: Final = Check(OUT_OF_SYNC, OutOfSync, arrive=arrive, fold=fold, live_only=True)
