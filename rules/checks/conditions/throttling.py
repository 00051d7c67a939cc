"""`throttled`: brokers hold back what they answer the probes' clients, by a quota.

A client that has sent or read more than its quota allows is told for how long its next answer is held back. Where that
is seconds each time, records and readers wait for longer than their objectives, though nothing is wrong with the
cluster: that explains what waits (`rules.kept.outages`). Observers tell of it for as long as it goes on. For how long
an answer is held back differs from one to the next, by what stands in the quota's windows: it begins with the first
that is held back for `SOME` and has ended when none has been for `BETWEEN`, and it holds when it has gone on for the
liveness objective, less `UNNOTICED`, and one of them was held back for `LONG`. A quota on requests holds none back for
more than a second, and one after the other: a client to which that happens `NEARLY_ALWAYS` counts like that. It is
judged tick by tick in log time.

A canary whose answers are all held back for less goes on, more slowly: that is a matter of its metrics, and explains
nothing.

It is one condition of a cluster, whatever number of brokers and partitions: each partition tells stage 2 that it holds
here (`rules.across.shared_conditions`).

State: the last `SPELLS` times of that, with what was told of the one that lasts, and what was told after the last tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import orjson

from rules.arrays.columns import OFFSETS
from rules.kept.check import Check, News, Passage
from rules.kept.report import Report
from rules.vocabulary.conditions import THROTTLED
from rules.vocabulary.objectives import SECOND, Objectives
from rules.vocabulary.settings import whole

SOME: Final = SECOND
LONG: Final = 5 * SECOND
"""An answer that is held back for so long is one of a few within the liveness objective."""
NEARLY_ALWAYS: Final = 0.8
"""Of the last seconds, as a client of the observer's host tells it."""
UNNOTICED: Final = 10 * SECOND
"""What waits is due by the liveness objective: it is called so long before."""
BETWEEN: Final = 15 * SECOND
"""Longer than between two rows of an observer that is told of it, which is held back as well."""
AGAIN: Final = 60 * SECOND
"""It is told again while it lasts, so that stage 2 can forget a partition that is gone."""
KEPT: Final = 4_096
"""Rows since the last tick, one a second: while log time stands still for longer, what was told first is let go."""
MOST: Final = 86_400 * SECOND
"""Nobody holds an answer back for longer: what is told beyond that is no number that a client was told."""
SETTING: Final = "throttled"
SPELLS: Final = 8
REMEMBERED: Final = 600 * SECOND
"""Far longer than what waited goes on after it."""

_TOLD, _TICK = range(2)


@dataclass(slots=True)
class Throttling:
    """`since`: since when answers are held back, -1 for none is; `last`: when that was told last; `brokers`; `longest`:
    for how long one was at most; `long`: was that long? `told`: when stage 2 was told of it, -1 for never. `spells`:
    [since, when that was called long, when it ended] of the last times in which one was, -1 for not yet. `waiting`:
    [time, for how long, whether that is long, brokers] of what was told after the last tick, the last `KEPT`."""

    since: int = -1
    last: int = -1
    brokers: list[int] = field(default_factory=list)
    longest: int = 0
    long: bool = False
    told: int = -1
    spells: list[list[int]] = field(default_factory=list)
    waiting: list[list[Any]] = field(default_factory=list)


def arrive(own: Throttling, new: News) -> None:
    """Take in what observers tell."""
    new.report.outages.throttled = own.spells
    columns, asked = new.columns, new.where(OFFSETS)
    if not len(asked) or not columns.tells("settings"):
        return
    settings = columns.table["settings"]
    for row in asked[settings.is_valid().to_numpy()[asked]].tolist():
        told = _held_back(dict(settings[row].as_py()))
        if told:
            longest = max(one.micros for one in told)
            long = longest >= LONG or any(one.share >= NEARLY_ALWAYS for one in told)
            entry = [int(columns.completed[row]), longest, long, sorted(one.broker for one in told)]
            own.waiting = new.report.newest([*own.waiting, entry], KEPT, "words of observers on quotas")


def fold(own: Throttling, passage: Passage) -> None:
    """Go through the ticks, and tell whether it holds."""
    passage.report.outages.throttled = own.spells
    if not own.waiting and not own.spells and own.since < 0:
        return
    end = passage.end
    events: list[tuple[int, int, int, bool, list[int]]] = [(at, _TOLD, *one) for at, *one in own.waiting if at <= end]
    own.waiting = [one for one in own.waiting if one[0] > end]
    if events or own.since >= 0:
        events += [(time, _TICK, 0, False, []) for time in passage.at.tolist()]
    for time, kind, longest, long, brokers in sorted(events):
        if kind == _TOLD:
            _take(own, time, longest, brokers, long=long)
        else:
            _tick(own, time, passage.report)
    own.spells = [spell for spell in own.spells if spell[2] < 0 or spell[2] >= passage.at[0] - REMEMBERED]
    passage.report.outages.throttled = own.spells


def _take(own: Throttling, time: int, longest: int, brokers: list[int], *, long: bool) -> None:
    if own.since < 0:
        if time <= own.last:
            return  # it comes late
        own.since, own.brokers, own.longest, own.long, own.told = time, [], 0, False, -1
    own.last = max(own.last, time)
    own.brokers = sorted({*own.brokers, *brokers})
    if long and not own.long:
        own.spells = [*own.spells, [own.since, -1, -1]][-SPELLS:]
    own.longest, own.long = max(own.longest, longest), own.long or long


def _tick(own: Throttling, time: int, report: Report) -> None:
    if own.since < 0:
        return
    if time - own.last > BETWEEN:
        if own.told >= 0:
            _tell(own, "ended", max(own.last, own.told), report)
        if own.long:
            own.spells[-1][2] = own.last
        own.since = -1
    elif own.long and own.last >= _due(own, report.objectives) and (own.told < 0 or time - own.told >= AGAIN):
        spell = own.spells[-1]
        spell[1] = time if spell[1] < 0 else spell[1]
        own.told = time
        _tell(own, "holds", time, report)


def _due(own: Throttling, objectives: Objectives) -> int:
    """When answers have been held back for long."""
    return own.since + max(objectives.liveness - UNNOTICED, objectives.liveness // 2)


def _tell(own: Throttling, kind: Literal["holds", "ended"], at: int, report: Report) -> None:
    longest = round(own.longest / SECOND, 1)
    who = f"broker {', '.join(map(str, own.brokers))} {'holds' if len(own.brokers) == 1 else 'hold'}"
    told = {
        "anomaly": THROTTLED,
        "subject": [],
        "decidable": _due(own, report.objectives) if kind == "holds" else at,
        "message": f"{who} back what the probes' clients are answered, by a quota, for up to {longest} s each time",
        "evidence": {"brokers": own.brokers, "longest_s": longest, "since": own.since},
    }
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


class _Broker(NamedTuple):
    """For how long it held an answer back, and for which part of the time those to one client (0 where that is not
    told)."""

    broker: int
    micros: int
    share: float


def _held_back(told: Mapping[str, str]) -> list[_Broker]:
    """Who holds answers back, as an observer told it, and not for a moment alone."""
    found = []
    for one in filter(None, told.get(SETTING, "").split(",")):
        broker, *numbers = one.split(":")
        number = whole(broker)
        try:
            seconds, share = (float(value) for value in (*numbers, "0")[:2])
        except ValueError:
            continue
        counts = SOME <= seconds * SECOND <= MOST or (seconds >= 0 and NEARLY_ALWAYS <= share <= 1)
        if number is not None and counts:
            found.append(_Broker(number, round(min(seconds * SECOND, MOST)), share))
    return found


CHECK: Final = Check(
    THROTTLED,
    Throttling,
    arrive=arrive,
    fold=fold,
    live_only=True,
    rows=frozenset({OFFSETS}),
    looks_back=True,
    rests=True,
)
