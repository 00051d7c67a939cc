"""`cluster-unreachable`: no request of any probe to a partition's leader has been answered for the liveness objective.

An answer is whatever only the leader can have said: an acknowledgement, records, offsets, an error of its own to the
observer. What comes back only with another broker's word (that the partition has no leader) is none. Of an operation
that needs several answers it is known that the leader's came between its beginning and its end. So one that began while
nobody was answered ends that when it ends, and not when it began: whoever tries again in the middle of an outage is
answered after it. That somebody asks
is told by the observer, which asks each second, whatever the traffic is: rows of its own say that nothing came back. It
holds once nobody has been answered for so long, and the observer has asked in vain all the time, until somebody is
answered, or no observer lives that asks. While its host stands still (`rules.settling.standstills`) or its log is late
nobody knows that it asks, and nothing is told that was not told before.

Who asked is told with it, by run. Where one run's observer asks in vain, none of that run is answered, and others are
meanwhile, that is a condition of its own, of that run: it may be the network of its host. It explains what waits there.

A cluster that is away is one condition, whatever number of partitions it has, and so is a part of it: each partition
tells stage 2 that it holds here, and with whom (`rules.across.shared_conditions`). The brokers are those that the
observer names: the partition's leader, as it was known last, and all that answered nobody when it asked. Here it
explains what waits on the cluster (`rules.kept.outages`); a silent broker that leads other partitions only explains
what a writer waits for.

It is judged tick by tick in log time. A log that is late may hold an answer, which then ends it.

State: for all together and for each of `RUNS_KEPT` runs the last answer, what was asked since, and the last spells
without an answer (`REMEMBERED`, `KEPT` at most); and what happened after the last tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from rules.arrays.columns import FEW, OFFSETS, OK, POLL, SEND, TXN, Columns
from rules.arrays.intervals import EMPTY, Bools, Ints, each, heads, indices
from rules.checks.conditions.reachability import RECENT, Side
from rules.kept.check import Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.kept.outages import OfOneRun, Outages
from rules.kept.report import Report
from rules.settling import standstills
from rules.vocabulary.conditions import UNREACHABLE
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import whole
from rules.vocabulary.slices import NO_LOGIN

AGAIN: Final = 60 * SECOND
"""It is told again while it lasts, so that stage 2 can forget a partition that is gone."""
REMEMBERED: Final = 600 * SECOND
"""Far longer than what waited on the cluster goes on after it, or than an observer that lives does not ask."""
NO_LEADER: Final = ("LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE")
WORDS: Final = ("leader", "silent", "brokers")
RUNS_KEPT: Final = 64
_MANY: Final = 2**20
"""More than a step has rows of different runs."""

_ANSWERED, _ASKED, _NAMED, _NOT_NAMED, _TICK = range(5)
"""What happened: somebody was answered, the observer was not, it named brokers that do not answer, or none any more."""


@dataclass(slots=True)
class Answers(Table):
    """When the leader answered somebody of a run (its number in `Reach.runs`), in the order of time, the last answer of
    each second: not before `since`, and by `at`."""

    at: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    run: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Reach:
    """`whole`: of all together; `alone`: of each run, at most `RUNS_KEPT`. `answers` and `waiting` ([time, what it is,
    invoked, asker, words]) are those after the last tick; `runs`: the names of the runs that they are of."""

    whole: Side = field(default_factory=Side)
    alone: dict[str, Side] = field(default_factory=dict, metadata={"of": Side})
    runs: list[str] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    waiting: list[list[Any]] = field(default_factory=list)

    def of(self, run: str) -> Side:
        """That of a run; where there are too many, one makes room that does not ask in vain, and was answered longest
        ago."""
        if run not in self.alone:
            if len(self.alone) >= RUNS_KEPT:
                del self.alone[min(self.alone, key=self._lasts)]
            self.alone[run] = Side()
        return self.alone[run]

    def _lasts(self, run: str) -> tuple[bool, int]:
        return self.alone[run].unanswered >= 0, self.alone[run].answered


def arrive(own: Reach, new: News) -> None:
    """Take in who was answered and who was not."""
    columns = new.columns
    told, silent = _questions(columns, new.fresh)
    own.answers = _seconds(concat(own.answers, _answers(own, columns, new.fresh, told)))
    for row in silent.tolist():
        words = _words(columns, row) | {name: columns.table[name][row].as_py() for name in ("error", "run")}
        invoked, asker = int(columns.invoked[row]), int(columns.process[row])
        own.waiting.append([int(columns.completed[row]), _ASKED, invoked, asker, words])
    elsewhere = any(side.elsewhere for side in own.alone.values())
    if own.waiting or elsewhere or columns.tells("settings"):
        for row in indices(told).tolist():
            named = _words(columns, row)
            if named or own.waiting or elsewhere:
                kind, run = _NAMED if "silent" in named else _NOT_NAMED, columns.table["run"][row].as_py()
                own.waiting.append([int(columns.completed[row]), kind, int(columns.invoked[row]), -1, {"run": run}])
    new.report.outages = _outages(own, new.report)


def fold(own: Reach, passage: Passage) -> None:
    """Go through the ticks, and tell when the leader is away, and when no longer."""
    end = passage.end
    ripe = int(own.answers.at.searchsorted(end, side="right"))
    answers, own.answers = take(own.answers, slice(ripe)), take(own.answers, slice(ripe, None))
    if not own.waiting and all(side.unanswered < 0 for side in (own.whole, *own.alone.values())):
        for run in each(answers.run):
            latest = int(answers.since[answers.run == run].max())
            for side in (own.whole, own.of(own.runs[run])):
                side.answered = max(side.answered, latest)
    else:
        told = zip(answers.at.tolist(), answers.since.tolist(), answers.run.tolist(), strict=True)
        events = [[time, _ANSWERED, since, -1, {"run": own.runs[run]}] for time, since, run in told]
        events += [event for event in own.waiting if event[0] <= end]
        events += [[time, _TICK, time, -1, {}] for time in passage.at.tolist()]
        for event in sorted(events, key=lambda event: event[:4]):
            _follow(own, event, passage.report)
        own.waiting = [event for event in own.waiting if event[0] > end]
    for side in (own.whole, *own.alone.values()):
        side.forget(int(passage.at[0]) - REMEMBERED)  # what waited in this step is judged after this
    if not len(own.answers):
        own.runs = []
    passage.report.outages = _outages(own, passage.report)


def _follow(own: Reach, event: list[Any], report: Report) -> None:
    time, kind, invoked, asker, words = event
    if kind == _TICK:
        for run in ("", *own.alone):
            _tick(own, run, time, report)
        return
    run = words.get("run") or ""
    for name, side in ((run, own.of(run)), ("", own.whole)):  # who ends what is told of all is not left alone by that
        if kind == _ANSWERED:
            if side.answers(invoked):
                _end(own, name, time, report)
            side.answer(invoked, time)
        elif kind == _ASKED:
            side.ask(time, invoked, asker, words)
        else:
            side.name(time, invoked, kind == _NAMED, report.objectives.liveness)


def _outages(own: Reach, report: Report) -> Outages:
    alone = (
        {run: OfOneRun(side.all_spells, side.elsewhere) for run, side in own.alone.items()}
        if len(own.alone) > 1
        else {}
    )
    return Outages(report.place.cluster, report.objectives, own.whole.all_spells, own.whole.elsewhere, alone=alone)


def _seconds(answers: Answers) -> Answers:
    """The last of each second and run, ascending; what is known of any other in that second is known of it."""
    if len(answers) < 2:
        return answers
    answers = take(answers, np.lexsort((answers.at, answers.run, answers.at // SECOND)))
    first = heads(answers.at // SECOND * _MANY + answers.run)
    at, since = np.maximum.reduceat(answers.at, first), np.maximum.reduceat(answers.since, first)
    return take(Answers(at, since, answers.run[first]), at.argsort(kind="stable"))


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


def _answers(own: Reach, columns: Columns, fresh: Bools, told: Bools) -> Answers:
    """When the leader is known to have answered. An operation over several partitions ends with the last of them, and a
    question of several parts with the last of these: it answered at some time in between."""
    ok = columns.type == OK
    at_once = (told | (fresh & columns.where(POLL))) & ok
    some_time = told | (fresh & columns.where(SEND, TXN) & ok)
    rows = indices(at_once | some_time)
    since = np.where(at_once[rows], columns.completed[rows], columns.invoked[rows])
    return Answers(columns.completed[rows], since, _runs(own, columns, rows))


def _runs(own: Reach, columns: Columns, rows: Ints) -> Ints:
    """The numbers of the rows' runs."""
    if not len(rows):
        return EMPTY
    column = columns.arrays["run"]
    if len(column) < FEW:
        told = column.to_pylist()
        names = list(dict.fromkeys([told[row] for row in rows.tolist()]))
        index = np.array([names.index(told[row]) for row in rows.tolist()])
    else:
        encoded = column.take(rows).dictionary_encode()
        names, index = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    own.runs += [name for name in names if name not in own.runs]
    numbers = np.array([own.runs.index(name) for name in names])
    return np.asarray(numbers[index], np.int64)


def _side(own: Reach, run: str) -> Side:
    return own.alone[run] if run else own.whole


def _tick(own: Reach, run: str, time: int, report: Report) -> None:
    """All of this is known through the tick."""
    side, liveness = _side(own, run), report.objectives.liveness
    if side.unanswered < 0:
        return
    if time - side.unanswered > (REMEMBERED if _lives(side, report) else liveness + RECENT):
        _end(own, run, time, report)  # nobody asks any more: nothing is known of what would come back
        return
    if side.told >= 0:
        due = time - side.told >= AGAIN
    else:
        due = time - side.since >= liveness and time - side.unanswered <= RECENT and _goes_on(own, side, time, report)
    if side.opened < 0 and due and (not run or own.whole.opened >= 0 or _others_are_answered(own, time)):
        side.opened = time
    if side.opened >= 0 and due and (not run or _stands_alone(own, side, time)):
        side.told = time
        _tell(own, run, "holds", side.since + liveness, time, report)


def _others_are_answered(own: Reach, time: int) -> bool:
    """Is somebody answered, whoever else is not?"""
    return time - own.whole.answered <= RECENT


def _stands_alone(own: Reach, side: Side, time: int) -> bool:
    """Is it told of a run by itself? Where nobody at all is answered, that is told of all together; and all are back at
    about the same time, not at the same moment."""
    if side.told >= 0:
        return True
    back = max((end for since, _, end in own.whole.spells if end - since > RECENT), default=-1)
    return own.whole.opened < 0 and _others_are_answered(own, time) and time - back > RECENT


def _goes_on(own: Reach, side: Side, time: int, report: Report) -> bool:
    """Is it known that the observer which asked last was there then, and asked on?"""
    process = report.state.processes.get(side.asker)
    if process is not None and process.told_through < time:
        return False
    asked = [(since, at) for at, kind, since, asker, _ in own.waiting if kind == _ASKED and asker == side.asker]
    stood_within = [[since, at] for since, at in asked if at - since > RECENT]
    stood = standstills.of_process(report.state, side.asker)
    return not any(start < time < end for start, end in [*stood, *stood_within])


def _lives(side: Side, report: Report) -> bool:
    """Does the observer live that asked last? It may not have come to asking again."""
    process = report.state.processes.get(side.asker)
    return process is not None and not process.complete


def _end(own: Reach, run: str, time: int, report: Report) -> None:
    side = _side(own, run)
    if side.unanswered < 0:
        return
    ended = max(time, side.opened)
    if side.told >= 0:
        _tell(own, run, "ended", ended, ended, report)
    if not run and side.opened >= 0:
        for one in own.alone.values():
            one.left_alone(ended)
    side.end(ended)


def _tell(own: Reach, run: str, kind: Any, decidable: int, at: int, report: Report) -> None:
    side = _side(own, run)
    silent, brokers = _numbers(side.silent(at)), _numbers(side.words.get("brokers", "").split(","))
    seconds = f"{(at - side.since) / 1e6:.0f} s"
    whole = silent == brokers
    if not silent:
        whom = f"the leader of partition {report.place.partition} of {report.state.topic}"
    elif whole:
        whom = f"any broker ({', '.join(map(str, brokers))})"
    elif silent[-1] not in brokers and brokers:
        whom = f"broker {', '.join(map(str, silent))}, named as a leader and none of {', '.join(map(str, brokers))},"
    else:
        whom = f"broker {', '.join(map(str, silent))} (of {', '.join(map(str, brokers))})"
    error = side.words.get("error")
    why = f"; {NO_LOGIN[error]}" if error in NO_LOGIN else ""
    others = sorted(name for name, one in own.alone.items() if run and at - one.answered <= RECENT and name != run)
    if run:
        message = f"no request of run {run} to {whom} has been answered for {seconds}{why}"
        message += f", those of run {', '.join(others)} are" if others else ""
    else:
        asked = f"asked by the observer of run {', '.join(side.runs)}"
        message = f"no request to {whom} has been answered for {seconds}{why} ({asked})"
    told = {
        "anomaly": UNREACHABLE,
        "subject": [run] if run else [],
        "decidable": decidable,
        "message": message,
        "evidence": {
            "brokers": silent,
            "known_brokers": brokers,
            "whole_cluster": whole and bool(silent) and not run,
            "since": side.since,
            "error": error,
            "runs": side.runs,
        }
        | ({"run": run, "answered": others} if run else {}),
    }
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


def _numbers(listed: list[str]) -> list[int]:
    return sorted(number for one in listed if (number := whole(one)) is not None)


CHECK: Final = Check(UNREACHABLE, Reach, arrive=arrive, fold=fold, live_only=True)
