"""`replicas-out-of-sync`: replicas of probe partitions on a broker have not been in sync for long.

A broker that is away is asked no more once others lead its partitions, and nothing waits on it: one more, and something
does. Observers tell which brokers have replicas of a partition, and which of these are in sync, whenever that changes
and once a minute. The condition holds when they have told for `AFTER` that a broker's are not, until they tell that
they are, or that it has none any more. It is judged tick by tick in log time, and what an observer told before the
newest that is known is passed over.

A broker is one condition, whatever number of partitions it has replicas of: each partition tells stage 2 that it holds
here (`rules.across.shared_conditions`).

State: when the replicas were told last, which are not in sync since when, and what was told after the last tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import orjson

from rules.arrays.columns import OFFSETS
from rules.arrays.intervals import indices
from rules.checks.not_there import not_there
from rules.kept.check import Check, News, Passage
from rules.kept.report import Report
from rules.vocabulary.conditions import OUT_OF_SYNC
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import whole

AFTER: Final = 120 * SECOND
"""A broker that is restarted by the book is back by then, or nearly."""
AGAIN: Final = 60 * SECOND
"""It is told again while it lasts, so that stage 2 can forget a partition that is gone."""
KEPT: Final = 256
"""What was told since the last tick: while log time stands still nobody is told of more than that."""
REPLICAS: Final = "replicas_on"
IN_SYNC: Final = "in_sync"

_TOLD, _TICK = range(2)


@dataclass(slots=True)
class OutOfSync:
    """`newest`: when the replicas were told last, -1 for never; `replicas`, `in_sync`: the brokers, as told then;
    `missing`: [broker, since when its replica is not in sync, when stage 2 was told of it last or -1], as many as there
    are replicas; `waiting`: [time, replicas, in sync] of what was told after the last tick, the last `KEPT`."""

    newest: int = -1
    replicas: list[int] = field(default_factory=list)
    in_sync: list[int] = field(default_factory=list)
    missing: list[list[int]] = field(default_factory=list)
    waiting: list[list[Any]] = field(default_factory=list)


def arrive(own: OutOfSync, new: News) -> None:
    """Take in what observers tell of the replicas. A partition that is not there has none."""
    columns, asked = new.columns, new.where(OFFSETS)
    if own.missing or own.waiting:
        gone = [[int(columns.completed[row]), [], []] for row in not_there(columns, asked).tolist()]
        own.waiting = [*own.waiting, *gone][-KEPT:]
    if not columns.tells("settings"):
        return
    settings = columns.table["settings"]
    has = settings.is_valid().to_numpy() & new.fresh & columns.where(OFFSETS)
    for row in indices(has).tolist():
        told = dict(settings[row].as_py())
        if REPLICAS in told and IN_SYNC in told:
            at, replicas, in_sync = int(columns.completed[row]), _brokers(told, REPLICAS), _brokers(told, IN_SYNC)
            own.waiting = [*own.waiting, [at, replicas, in_sync]][-KEPT:]


def fold(own: OutOfSync, passage: Passage) -> None:
    """Go through the ticks, and tell of which brokers it holds, and no longer."""
    if not own.missing and not own.waiting:
        return
    end = passage.end
    events: list[tuple[int, int, Any]] = [(one[0], _TOLD, one[1:]) for one in own.waiting if one[0] <= end]
    events += [(time, _TICK, None) for time in passage.at.tolist()]
    own.waiting = [one for one in own.waiting if one[0] > end]
    for time, kind, brokers in sorted(events, key=lambda event: event[:2]):
        if kind == _TICK:
            _tick(own, time, passage.report)
        elif time >= own.newest:
            replicas, in_sync = brokers
            _take(own, (time, replicas, in_sync), passage.report)


def _take(own: OutOfSync, told_then: tuple[int, list[int], list[int]], report: Report) -> None:
    time, replicas, in_sync = own.newest, own.replicas, own.in_sync = told_then
    away = [broker for broker in replicas if broker not in in_sync]
    for broker, since, told in own.missing:
        if broker not in away and told >= 0:
            _tell(own, "ended", broker, since, max(time, told), report)  # it may come late
    own.missing = [one for one in own.missing if one[0] in away]
    known = {one[0] for one in own.missing}
    own.missing += [[broker, time, -1] for broker in away if broker not in known]


def _tick(own: OutOfSync, time: int, report: Report) -> None:
    for one in own.missing:
        broker, since, told = one
        if time - since >= AFTER and (told < 0 or time - told >= AGAIN):
            one[2] = time
            _tell(own, "holds", broker, since, time, report)


def _tell(own: OutOfSync, kind: Literal["holds", "ended"], broker: int, since: int, at: int, report: Report) -> None:
    told = {
        "anomaly": OUT_OF_SYNC,
        "subject": [broker],
        "decidable": since + AFTER if kind == "holds" else at,
        "message": f"replicas on broker {broker} have not been in sync for {(at - since) / 1e6:.0f} s",
        "evidence": {"broker": broker, "since": since, "replicas": own.replicas, "in_sync": own.in_sync},
    }
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


def _brokers(told: Mapping[str, str], name: str) -> list[int]:
    return sorted(number for one in told[name].split(",") if (number := whole(one)) is not None)


CHECK: Final = Check(OUT_OF_SYNC, OutOfSync, arrive=arrive, fold=fold, live_only=True)
