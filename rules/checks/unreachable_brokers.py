"""`cluster-unreachable`: no request of any probe to a partition's leader has been answered for the liveness objective.

An answer is whatever only the leader can have said: an acknowledgement, records, offsets, an error of its own to the
observer. That
somebody asks is told by the observer, which asks each second, whatever the traffic is: rows of its own that say that
nothing came back. It holds at a mark of the observer's own host once nobody has been answered for so long, and the
observer has asked in vain all the time, until somebody is answered, or nobody asks any more. What comes back only with
another broker's word (that the partition has no leader) is no answer of the leader.

A cluster that is away is one condition, whatever number of partitions it has, and so is a part of it: each partition
tells stage 2 that it holds here, and with whom (`rules.across.shared_conditions`). The brokers are those that the
observer names: the partition's leader, as it was known last, and all that answered nobody when it asked. Here it
explains what waits on the cluster (`rules.kept.outages`); a silent broker that leads other partitions only explains
what a writer waits for.

It is judged when rows arrive, in the order of their times; a log that is late may hold an answer, which then ends it.

State: the last answer, what was asked since, and the last `KEPT` spells without an answer
(`REMEMBERED`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from rules.arrays.columns import MARK, OFFSETS, OK, POLL, SEND, TXN, Columns, marks
from rules.arrays.intervals import Bools, Ints, distinct
from rules.kept.check import Check, News
from rules.kept.outages import UNREACHABLE, Outages
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import whole

RECENT: Final = 15 * SECOND
"""The observer asks at least this often, a new life of it included."""
AGAIN: Final = 60 * SECOND
"""It is told again while it lasts, so that stage 2 can forget a partition that is gone."""
KEPT: Final = 8
REMEMBERED: Final = 600 * SECOND
"""Far longer than what waited on the cluster goes on after it."""
NO_LEADER: Final = ("LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE")


@dataclass(slots=True)
class Reach:
    """`answered`: when the leader answered last; `asked`, `unanswered`: when the first and the newest request since
    then were invoked and given up, by the observer `asker`, which said `words` (leader, silent, brokers, error);
    `opened`: when the cluster was called away, `told` when last. -1 where there is none. `spells` and `elsewhere`: see
    `rules.kept.outages`; the last of `elsewhere` has no end while the observer names a broker that does not answer."""

    answered: int = -1
    asked: int = -1
    unanswered: int = -1
    asker: int = -1
    opened: int = -1
    told: int = -1
    words: dict[str, str] = field(default_factory=dict)
    spells: list[list[int]] = field(default_factory=list)
    elsewhere: list[list[int]] = field(default_factory=list)


def arrive(own: Reach, new: News) -> None:
    """Take in who was answered and who was not, and what of that explains the conditions of this step."""
    columns = new.columns
    told, silent = _questions(columns, new.fresh)
    answers = _answers(columns, new.fresh, told)
    if own.unanswered < 0 and not len(silent):
        own.answered = max(own.answered, int(answers.max(initial=-1)))
    else:
        for time, _, row in sorted(_events(own, new, answers, silent)):
            if row == _ANSWER:
                _answer(own, time, new)
            elif row == _TICK:
                _tick(own, time, new)
            elif row == _OTHER_TICK:
                _expire(own, time, new)
            elif int(columns.completed[row]) > own.answered:
                _ask(own, columns, row)
    _look_elsewhere(own, new, told)
    if own.spells or own.elsewhere:
        oldest = new.state.now - REMEMBERED
        own.spells = [spell for spell in own.spells if spell[2] >= oldest]
        own.elsewhere = [spell for spell in own.elsewhere if spell[2] < 0 or spell[2] >= oldest]
    if own.spells or own.unanswered >= 0 or own.elsewhere:
        now = [[_since(own), own.opened, -1]] if own.unanswered >= 0 else []
        report = new.report
        report.outages = Outages(report.place.cluster, report.objectives, own.spells + now, own.elsewhere)


_ANSWER, _TICK, _OTHER_TICK = -1, -2, -3


def _look_elsewhere(own: Reach, new: News, told: Bools) -> None:
    """What the observer says of other brokers, in the rows in which this partition's leader answered."""
    columns, going_on = new.columns, bool(own.elsewhere) and own.elsewhere[-1][2] < 0
    if not going_on and columns.table["settings"].null_count == len(columns):
        return
    rows = np.flatnonzero(told)
    for row in rows[np.argsort(columns.completed[rows], kind="stable")].tolist():
        silent = dict(columns.table["settings"][row].as_py() or ()).get("silent")
        if silent and not going_on:
            since = int(columns.invoked[row])
            own.elsewhere = [*own.elsewhere, [since, since + new.report.objectives.liveness, -1]][-KEPT:]
        elif not silent and going_on:
            spell, ended = own.elsewhere[-1], int(columns.completed[row])
            own.elsewhere[-1] = [spell[0], spell[1] if spell[1] <= ended else -1, ended]
        going_on = bool(silent)


def _questions(columns: Columns, fresh: Bools) -> tuple[Bools, Ints]:
    """The observer's questions to the leader: which were answered, and the rows of those that were not."""
    asked = fresh & (columns.f == OFFSETS) & (columns.committed < 0)
    told: Bools = asked & ((columns.log_start >= 0) | (columns.log_end >= 0) | (columns.last_stable >= 0))
    silent = []
    for row in np.flatnonzero(asked & ~told).tolist():
        error = columns.table["error"][row].as_py()
        if error is None or columns.table["group"][row].as_py() is not None:
            continue
        if error.startswith("_") or error in NO_LEADER:
            silent.append(row)
        else:
            told[row] = True
    return told, np.array(silent, np.int64)


def _answers(columns: Columns, fresh: Bools, told: Bools) -> Ints:
    """When the leader is known to have answered. An operation over several partitions ends with the last of them, and a
    question of several parts with the last of these: then its invocation is what is known."""
    at_once = (told | (fresh & (columns.f == POLL))) & (columns.type == OK)
    some_time = told | (fresh & columns.where(SEND, TXN) & (columns.type == OK))
    return np.concatenate((columns.completed[at_once], columns.invoked[some_time & ~at_once]))


def _events(own: Reach, new: News, answers: Ints, silent: Ints) -> list[tuple[int, int, int]]:
    """(time, order among equals, row or what else it is) of all that matters while somebody is not answered."""
    columns = new.columns
    events = [(time, 0, _ANSWER) for time in distinct(answers).tolist()]
    events += [(int(columns.completed[row]), 1, row) for row in silent.tolist()]
    askers = {own.asker, *columns.process[silent].tolist()}
    times, processes, slices, _ = marks(columns)
    ticks = set()
    for i in np.flatnonzero(np.isin(processes, [*askers])).tolist():
        asker = new.state.processes.get(int(processes[i]))
        if asker is not None and slices[i] <= asker.next:
            ticks.add(int(times[i]))
    others = set(columns.completed[columns.f == MARK].tolist()) - ticks
    return events + [(time, 2, _TICK) for time in ticks] + [(time, 2, _OTHER_TICK) for time in others]


def _ask(own: Reach, columns: Columns, row: int) -> None:
    """The observer asked, and gave up."""
    if own.asked < 0:
        own.asked = int(columns.invoked[row])
    own.unanswered = max(own.unanswered, int(columns.completed[row]))
    own.asker = int(columns.process[row])
    said = dict(columns.table["settings"][row].as_py() or ())
    own.words = {name: said[name] for name in ("leader", "silent", "brokers") if name in said}
    own.words["error"] = columns.table["error"][row].as_py()


def _answer(own: Reach, time: int, new: News) -> None:
    """Somebody was answered."""
    if time <= own.answered:
        return
    _end(own, time, new)
    own.answered = time


def _tick(own: Reach, time: int, new: News) -> None:
    """The observer's log is here up to this time."""
    _expire(own, time, new)
    if own.unanswered < 0:
        return
    since, liveness = _since(own), new.report.objectives.liveness
    if own.opened < 0 and time - since >= liveness and time - own.unanswered <= RECENT:
        own.opened = time
    if own.opened >= 0 and (own.told < 0 or time - own.told >= AGAIN):
        own.told = time
        _tell(own, "holds", since + liveness, time, new)


def _since(own: Reach) -> int:
    """Since when nobody has been answered, as far as somebody asked."""
    return own.answered if 0 <= own.asked <= own.answered + RECENT else own.asked


def _expire(own: Reach, time: int, new: News) -> None:
    """Nobody asks any more: nothing is known of what would come back."""
    if own.unanswered >= 0 and time - own.unanswered > new.report.objectives.liveness + RECENT:
        _end(own, time, new)


def _end(own: Reach, time: int, new: News) -> None:
    if own.opened >= 0:
        _tell(own, "ended", time, max(time, own.opened), new)
    if own.unanswered >= 0:
        own.spells = [*own.spells, [_since(own), own.opened, max(time, own.opened)]][-KEPT:]
    own.asked = own.unanswered = own.asker = own.opened = own.told = -1
    own.words = {}


def _tell(own: Reach, kind: Any, decidable: int, at: int, new: News) -> None:
    silent, brokers = (_numbers(own.words.get(name, "")) for name in ("silent", "brokers"))
    seconds = f"{(at - _since(own)) / 1e6:.0f} s"
    whole = silent == brokers
    if not silent:
        whom = f"the leader of partition {new.report.place.partition} of {new.state.topic}"
    elif whole:
        whom = f"any broker ({', '.join(map(str, brokers))})"
    else:
        whom = f"broker {', '.join(map(str, silent))} (of {', '.join(map(str, brokers))})"
    told = {
        "anomaly": UNREACHABLE,
        "subject": [],
        "decidable": decidable,
        "message": f"no request to {whom} has been answered for {seconds}",
        "evidence": {
            "brokers": silent,
            "known_brokers": brokers,
            "whole_cluster": whole and bool(silent),
            "since": _since(own),
            "error": own.words.get("error"),
        },
    }
    new.report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


def _numbers(listed: str) -> list[int]:
    return sorted(number for one in listed.split(",") if (number := whole(one)) is not None)


CHECK: Final = Check(UNREACHABLE, Reach, arrive=arrive, live_only=True)
