"""`cluster-unreachable`: no request of any probe to a partition's leader has been answered for the liveness objective.

An answer is whatever only the leader can have said: an acknowledgement, records, offsets, an error of its own to the
observer. What comes back only with another broker's word (that the partition has no leader) is none. Of an operation
that needs several answers it is known that the leader's came between its beginning and its end. So one that began while
nobody was answered ends that when it ends, and not when it began: whoever tries again in the middle of an outage is
answered after it. That somebody asks
is told by the observer, which asks each second, whatever the traffic is: rows of its own say that nothing came back. It
holds once nobody has been answered for so long, and the observer has asked in vain all the time, until somebody is
answered, or no observer lives that asks.

Who asked is told with it, by run: of a topic that one host alone works on, the others are not asked, and it may be that
host's network.

A cluster that is away is one condition, whatever number of partitions it has, and so is a part of it: each partition
tells stage 2 that it holds here, and with whom (`rules.across.shared_conditions`). The brokers are those that the
observer names: the partition's leader, as it was known last, and all that answered nobody when it asked. Here it
explains what waits on the cluster (`rules.kept.outages`); a silent broker that leads other partitions only explains
what a writer waits for.

It is judged tick by tick in log time. A log that is late may hold an answer, which then ends it.

State: the last answer, what was asked since, the last `KEPT` spells without an answer (`REMEMBERED`), and what happened
after the last tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from rules.arrays.columns import OFFSETS, OK, POLL, SEND, TXN, Columns
from rules.arrays.intervals import EMPTY, Bools, Ints, heads, indices
from rules.kept.check import Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.kept.outages import Outages
from rules.kept.report import Report
from rules.vocabulary.conditions import UNREACHABLE
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import whole
from rules.vocabulary.slices import LOGIN_REFUSED

RECENT: Final = 15 * SECOND
"""The observer asks at least this often, a new life of it included."""
AGAIN: Final = 60 * SECOND
"""It is told again while it lasts, so that stage 2 can forget a partition that is gone."""
KEPT: Final = 8
REMEMBERED: Final = 600 * SECOND
"""Far longer than what waited on the cluster goes on after it, or than an observer that lives does not ask."""
NO_LEADER: Final = ("LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE")
WORDS: Final = ("leader", "silent", "brokers")

_ANSWERED, _ASKED, _NAMED, _NOT_NAMED, _TICK = range(5)
"""What happened: somebody was answered, the observer was not, it named brokers that do not answer, or none any more."""


@dataclass(slots=True)
class Answers(Table):
    """When the leader answered, in the order of time, the last answer of each second: not before `since`, and by
    `at`."""

    at: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Reach:
    """`answered`: when the leader answered last; `asked`, `unanswered`: when the first and the newest of the observer's
    requests since then were invoked and given up, `asker`: which observer's, `words`: what it said then; `runs`: whose
    observers have asked in vain since, at most `KEPT`; `opened`: when the cluster was called away, `told` when last. -1
    where there is none. `spells` and `elsewhere`: see `rules.kept.outages`; the last of `elsewhere` has no end while
    the observer names a broker that does not answer. `answers` and `waiting` ([time, what happened, invoked, asker,
    words]) are those after the last tick."""

    answered: int = -1
    asked: int = -1
    unanswered: int = -1
    asker: int = -1
    opened: int = -1
    told: int = -1
    words: dict[str, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    spells: list[list[int]] = field(default_factory=list)
    elsewhere: list[list[int]] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    waiting: list[list[Any]] = field(default_factory=list)


def arrive(own: Reach, new: News) -> None:
    """Take in who was answered and who was not."""
    columns = new.columns
    told, silent = _questions(columns, new.fresh)
    own.answers = _seconds(concat(own.answers, _answers(columns, new.fresh, told)))
    for row in silent.tolist():
        words = _words(columns, row) | {name: columns.table[name][row].as_py() for name in ("error", "run")}
        invoked, asker = int(columns.invoked[row]), int(columns.process[row])
        own.waiting.append([int(columns.completed[row]), _ASKED, invoked, asker, words])
    if own.waiting or own.elsewhere or columns.tells("settings"):
        for row in indices(told).tolist():
            named = _words(columns, row)
            if named or own.waiting or own.elsewhere:
                kind = _NAMED if "silent" in named else _NOT_NAMED
                own.waiting.append([int(columns.completed[row]), kind, int(columns.invoked[row]), -1, {}])
    new.report.outages = _outages(own, new.report)


def fold(own: Reach, passage: Passage) -> None:
    """Go through the ticks, and tell when the leader is away, and when no longer."""
    end = passage.end
    ripe = int(own.answers.at.searchsorted(end, side="right"))
    answers, own.answers = take(own.answers, slice(ripe)), take(own.answers, slice(ripe, None))
    if own.unanswered < 0 and not own.waiting:
        own.answered = max([own.answered, *answers.since.tolist()])
    else:
        told = zip(answers.at.tolist(), answers.since.tolist(), strict=True)
        events = [[time, _ANSWERED, since, -1, {}] for time, since in told]
        events += [event for event in own.waiting if event[0] <= end]
        events += [[time, _TICK, time, -1, {}] for time in passage.at.tolist()]
        own.waiting = [event for event in own.waiting if event[0] > end]
        for time, kind, invoked, asker, words in sorted(events, key=lambda event: event[:4]):
            if kind == _ANSWERED:
                _answer(own, invoked, time, passage.report)
            elif kind == _ASKED:
                _ask(own, time, invoked, asker, words)
            elif kind == _TICK:
                _tick(own, time, passage.report)
            else:
                _name(own, time, invoked, kind == _NAMED, passage.report)
    if own.spells or own.elsewhere:
        own.spells = [spell for spell in own.spells if spell[2] >= end - REMEMBERED]
        own.elsewhere = [spell for spell in own.elsewhere if spell[2] < 0 or spell[2] >= end - REMEMBERED]
    passage.report.outages = _outages(own, passage.report)


def _outages(own: Reach, report: Report) -> Outages:
    now = [[_since(own), own.opened, -1]] if own.unanswered >= 0 else []
    return Outages(report.place.cluster, report.objectives, own.spells + now, own.elsewhere)


def _seconds(answers: Answers) -> Answers:
    """The last of each second, ascending; what is known of any other in that second is known of it."""
    if len(answers) < 2:
        return answers
    answers = take(answers, answers.at.argsort(kind="stable"))
    first = heads(answers.at // SECOND)
    return Answers(np.maximum.reduceat(answers.at, first), np.maximum.reduceat(answers.since, first))


def _words(columns: Columns, row: int) -> dict[str, str]:
    """What the observer says of brokers in this row."""
    told = dict(columns.table["settings"][row].as_py() or ())
    return {name: told[name] for name in WORDS if name in told}


def _questions(columns: Columns, fresh: Bools) -> tuple[Bools, Ints]:
    """The observer's questions to the leader: which were answered, and the rows of those that were not."""
    asked = fresh & (columns.f == OFFSETS) & (columns.committed < 0)
    told: Bools = asked & ((columns.log_start >= 0) | (columns.log_end >= 0) | (columns.last_stable >= 0))
    silent = []
    for row in indices(asked & ~told).tolist():
        error = columns.table["error"][row].as_py()
        if error is None or columns.table["group"][row].as_py() is not None:
            continue
        if error.startswith("_") or error in NO_LEADER:
            silent.append(row)
        else:
            told[row] = True
    return told, np.array(silent, np.int64)


def _answers(columns: Columns, fresh: Bools, told: Bools) -> Answers:
    """When the leader is known to have answered. An operation over several partitions ends with the last of them, and a
    question of several parts with the last of these: it answered at some time in between."""
    ok = columns.type == OK
    at_once = (told | (fresh & columns.where(POLL))) & ok
    some_time = told | (fresh & columns.where(SEND, TXN) & ok)
    rows = indices(at_once | some_time)
    since = np.where(at_once[rows], columns.completed[rows], columns.invoked[rows])
    return Answers(columns.completed[rows], since)


def _ask(own: Reach, time: int, invoked: int, asker: int, words: dict[str, str]) -> None:
    """The observer asked, and gave up."""
    if time <= own.answered:
        return
    if own.asked < 0:
        own.asked = invoked
    own.unanswered, own.asker, own.words = max(own.unanswered, time), asker, words
    run = words.get("run")
    if run and run not in own.runs:
        own.runs = sorted([*own.runs, run])[:KEPT]


def _answer(own: Reach, since: int, time: int, report: Report) -> None:
    """Somebody was answered, at the earliest at `since`, at the latest at `time`."""
    if since <= own.answered:
        return
    within = own.asked >= 0 and since > own.asked
    if own.asked < 0 or within:
        _end(own, time, report)
    own.answered = time if within else since


def _tick(own: Reach, time: int, report: Report) -> None:
    """All of this is known through the tick."""
    since, liveness = _since(own), report.objectives.liveness
    if own.unanswered >= 0 and time - own.unanswered > (REMEMBERED if _lives(own, report) else liveness + RECENT):
        _end(own, time, report)  # nobody asks any more: nothing is known of what would come back
    if own.unanswered < 0:
        return
    if own.opened < 0 and time - since >= liveness and time - own.unanswered <= RECENT:
        own.opened = time
    if own.opened >= 0 and (own.told < 0 or time - own.told >= AGAIN):
        own.told = time
        _tell(own, "holds", since + liveness, time, report)


def _lives(own: Reach, report: Report) -> bool:
    """Does the observer live that asked last? It may not have come to asking again."""
    process = report.state.processes.get(own.asker)
    return process is not None and not process.complete


def _name(own: Reach, time: int, invoked: int, silent: bool, report: Report) -> None:
    """The observer, which this partition's leader answered, named brokers that do not answer, or none."""
    going_on = bool(own.elsewhere) and own.elsewhere[-1][2] < 0
    if silent and not going_on:
        own.elsewhere = [*own.elsewhere, [invoked, invoked + report.objectives.liveness, -1]][-KEPT:]
    elif going_on and not silent:
        since, opened, _ = own.elsewhere[-1]
        own.elsewhere[-1] = [since, opened if opened <= time else -1, time]


def _since(own: Reach) -> int:
    """Since when nobody has been answered, as far as somebody asked."""
    return own.answered if 0 <= own.asked <= own.answered + RECENT else own.asked


def _end(own: Reach, time: int, report: Report) -> None:
    if own.unanswered < 0:
        return
    ended = max(time, own.opened)
    if own.opened >= 0:
        _tell(own, "ended", ended, ended, report)
    own.spells = [*own.spells, [_since(own), own.opened, ended]][-KEPT:]
    own.asked = own.unanswered = own.asker = own.opened = own.told = -1
    own.words, own.runs = {}, []


def _tell(own: Reach, kind: Any, decidable: int, at: int, report: Report) -> None:
    silent, brokers = (_numbers(own.words.get(name, "")) for name in ("silent", "brokers"))
    seconds = f"{(at - _since(own)) / 1e6:.0f} s"
    whole = silent == brokers
    if not silent:
        whom = f"the leader of partition {report.place.partition} of {report.state.topic}"
    elif whole:
        whom = f"any broker ({', '.join(map(str, brokers))})"
    else:
        whom = f"broker {', '.join(map(str, silent))} (of {', '.join(map(str, brokers))})"
    error = own.words.get("error")
    why = f"; the login is refused ({error})" if error in LOGIN_REFUSED else ""
    told = {
        "anomaly": UNREACHABLE,
        "subject": [],
        "decidable": decidable,
        "message": f"no request to {whom} has been answered for {seconds}{why} (asked by run {', '.join(own.runs)})",
        "evidence": {
            "brokers": silent,
            "known_brokers": brokers,
            "whole_cluster": whole and bool(silent),
            "since": _since(own),
            "error": error,
            "runs": own.runs,
        },
    }
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


def _numbers(listed: str) -> list[int]:
    return sorted(number for one in listed.split(",") if (number := whole(one)) is not None)


CHECK: Final = Check(UNREACHABLE, Reach, arrive=arrive, fold=fold, live_only=True)
