"""`stuck-producer`: calls into a client do not return, or return without having done anything.

For the liveness objective, no send and no transaction of a writer has completed, though it tries. A completion is an
answer, ok or fail; `info` is none, but where its error is a broker's no (`refused_writes.REFUSALS`). That it tries
shows in two ways: its operations end as `info`, one after the other, or one of them has been open all the time. The
latter is told by the marks: `through` is held at a process's oldest open operation. Only marks are believed whose
slices are all here, so that a completion which is merely late in coming makes nobody stuck. Where nothing failed here,
and only marks told that an operation was open, it ends with the mark that tells that none is any more: the operation
may have come back in other partitions, and the next here be long in coming. The same holds of a life that inherited
since when its name is stuck, and has lived for `GOING` without trying here.

It is reported where the writer sends; a writer that has been stuck since it was born (its producer id never came) has
sent nowhere, and is reported in the topic that its start row names (`sends_to`), everywhere where it names none. Who is
stuck is named by the probe's own name where its start row tells one, and by its run, since other hosts have a probe of
that name: a life that ends with an error and is followed by another does not begin anew, the next life inherits since
when.

Where the partition is not there, nobody is stuck in it: somebody has deleted its topic, and what was under way comes
back once its timeouts are over. That it is not there is the observer's word, until the observer is told of its log
again; where that took longer than `BUSY`, everybody begins anew.

A client may wait on after the broker that it waited for has come back (librdkafka 5456). A probe that is told so gives
it up (`probes.kafka.coordinator_watch`); where none is, that is told of as what it is, a writer that cannot go on, as
every application with that client is; the evidence says when a broker was away meanwhile, by this partition's observer.

While its host stood still, or its journal could not be written (`rules.settling.standstills`), it tried nothing: it
begins anew, and so does the life that follows one that broke off.

A transactional producer that does not get its producer id tells so in every partition (`init`). That is a call without
an answer, or one that was refused, where it sends. That it got one answers neither: it has yet to write something. It
ends only that it is refused its producer id.

It is judged in log time, by what is known of that writer and of the partition alone. A writer whose operations come
back with errors alone is not stuck, but refused: that is `refused-writes` (`refused_writes`), told of by what is kept
here.

State: ten values for each writer that lives, the last `LINEAGE` names that ended with an error, the newest `EARLY`
marks that came before the slices that they count, and what happened after the last tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rules.arrays.columns import CLOSE, FAIL, INFO, INIT, OFFSETS, OK, START, Columns, marks_of_living
from rules.arrays.intervals import EMPTY, Bools, Ints, distinct, each, indices
from rules.checks.conditions import refused_writes
from rules.checks.ends.not_there import listed, not_there
from rules.kept.check import Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.kept.report import Report
from rules.kept.state import NEVER, State
from rules.settling import standstills
from rules.settling.completeness import LATE
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import natural
from rules.vocabulary.slices import LOGIN_REFUSED, NO_LOGIN

NAME: Final = "stuck-producer"
BUSY: Final = 5 * SECOND
"""A mark that is held back by less than this shows an ordinary operation under way."""
GOING: Final = 2 * BUSY
"""A life that is this old and has no operation open for long has got beyond its beginning."""
LINEAGE: Final = 256
"""More names than the fleets of one log have writers."""
EARLY: Final = 256
"""So many marks are kept that came before the slices that they count: what the others say of an operation that is open,
the next mark of its process says again."""
GONE: Final = (*standstills.BROKEN_OFF, "host-lost", "_CRASHED")
"""Errors of close rows that tell of a process that went away, and not of a client that failed."""


@dataclass(slots=True)
class Producer:
    """One writer's life. `failing`: when the first of its operations was invoked that has had no answer since the last
    one that had; -1 while there is none. `answered`: when it had its last answer here, `written`: its last that was no
    refusal. `timeout`: of its transactions, in microseconds, -1 where it told none."""

    who: str
    born: int
    sends: int = 0  # 1: it has sent to this partition
    failing: int = -1
    answered: int = -1
    written: int = -1
    seen: int = -1  # the newest mark that was believed
    error: str = ""  # of `LOGIN_REFUSED`, in which its name's last life ended
    timeout: int = -1
    inherits: int = 0  # 1: it has tried nothing yet, and goes on from where its name's last life ended


@dataclass(slots=True)
class Sightings(Table):
    """When the observer was told of the partition's log, in any order."""

    at: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Held(Table):
    """Marks, told at `at`, that say of a process's first slices that an operation invoked at `through` was open."""

    at: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    slices: Ints = field(default_factory=lambda: EMPTY)
    through: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Producers:
    """`lives`: by process. `failed`: [name, since when it had no answer, when it closed, by which error of
    `LOGIN_REFUSED`] of lives that ended with an error, which the name's next life goes on from. `refused`: see
    `refused_writes`; `ready`: [name, when it got a producer id last]. `absent`: since when the partition is not there,
    -1 while it is; `again`: when it was there again last. `waiting`: what happened after the last tick, see `_BEGUN`;
    `seen`: when the partition was seen after it; `early`: marks that wait for the slices that they count."""

    lives: dict[int, Producer] = field(default_factory=dict, metadata={"of": Producer})
    failed: list[list[Any]] = field(default_factory=list)
    refused: refused_writes.Refused = field(default_factory=list)
    ready: list[list[Any]] = field(default_factory=list)
    absent: int = -1
    again: int = -1
    waiting: list[list[Any]] = field(default_factory=list)
    seen: Sightings = field(default_factory=Sightings)
    early: Held = field(default_factory=Held)


(
    _ABSENT,
    _PRESENT,
    _BEGUN,
    _TIMES_OUT,
    _READY,
    _NOT_READY,
    _ANSWERED,
    _REFUSED,
    _UNANSWERED,
    _HELD,
    _FAILED,
    _ENDED,
) = range(12)
"""What happened: [time, one of these, process, its invocation (of those `_IN_TURN` its slice), its name where it
begun, or the error]. `_TIMES_OUT`: it told the timeout of its transactions, which stands in place of its invocation. Of
what was `_REFUSED` the error is followed by how long it took, in microseconds. `_READY`, `_NOT_READY`: it has its
producer id, or was not given one. `_HELD`: a mark says that an operation invoked then was still open. `_FAILED`,
`_ENDED`: it closed, with an error of its client or without. `_ABSENT`, `_PRESENT`: the observer says that the partition
is not there, or is."""
_IN_TURN: Final = frozenset({_READY, _NOT_READY, _REFUSED, _FAILED, _ENDED})
"""These wait for all that their process did before: an acknowledgement may be late, and who was not given a producer id
closes at once."""
_OVER: Final = frozenset({_FAILED, _ENDED})
"""Of them, these wait for `LATE`: whoever is over is not stuck any more, whatever is missing of what it did."""


def arrive(own: Producers, new: News) -> None:
    """Take in new rows: starts, closes, what completed, and marks."""
    columns, state = new.columns, new.state
    _look(own, new)
    rare = new.where(START, CLOSE)
    for row in rare.tolist():
        own.waiting += _life(columns, row, state.topic)
    held = _held_marks(own, state, columns)
    for time, number, through in zip(held.at.tolist(), held.process.tolist(), held.through.tolist(), strict=True):
        own.waiting.append([time, _HELD, number, through, ""])
    own.waiting += _beginnings(columns, new.where(INIT))
    waiting = {event[2] for event in own.waiting}
    rows = distinct(new.sent.row)
    errors = _refusals(columns, rows)
    unsure = columns.type == INFO
    unsure[list(errors)] = True
    failing = set(each(columns.process[rows[unsure[rows]]]))
    refused = refused_writes.names(own.refused)
    for number in each(columns.process[rows]):
        mine = rows[columns.process[rows] == number]
        one = own.lives.get(number)
        watched = one is not None and (
            one.failing >= 0 or one.who in refused or f"{NAME}:{one.who}" in state.open_conditions
        )
        if number in failing or number in waiting or watched or one is None:
            marks = [event[0] for event in own.waiting if event[1] == _HELD and event[2] == number]
            for row in _telling(columns, mine, unsure, marks).tolist():
                kind = _REFUSED if row in errors else _UNANSWERED if unsure[row] else _ANSWERED
                told = columns.slice if kind == _REFUSED else columns.invoked
                own.waiting.append([int(columns.completed[row]), kind, number, int(told[row]), errors.get(row, "")])
        else:
            newest = int(columns.completed[mine].max())
            one.answered, one.written = max(one.answered, newest), max(one.written, newest)
            one.sends = 1


def fold(own: Producers, passage: Passage) -> None:
    """Go through what happened up to the last tick, in the order of time."""
    ripe = [event for event in own.waiting if _is_ripe(event, passage)]
    seen = own.seen.at[own.seen.at <= passage.end]
    own.seen.at = own.seen.at[own.seen.at > passage.end]
    if own.absent >= 0 or any(event[1] == _ABSENT for event in ripe):
        ripe += [[time, _PRESENT, -1, -1, ""] for time in seen.tolist()]
    if ripe:
        own.waiting = [event for event in own.waiting if not _is_ripe(event, passage)]
        for event in sorted(ripe):
            _follow(own, event, passage.report)
    _forget(own, passage.state, passage.end, passage.report)


def _is_ripe(event: list[Any], passage: Passage) -> bool:
    """Has its time come, and its turn?"""
    time, kind, number, slice_, _ = event
    process = passage.state.processes.get(number) if kind in _IN_TURN else None
    in_turn = process is None or slice_ < process.next or (kind in _OVER and time <= passage.end - LATE)
    return bool(time <= passage.end) and in_turn


def _life(columns: Columns, row: int, topic: str) -> list[list[Any]]:
    """What a start or a close row tells; -1 for the invocation of a start that is no writer's to this topic."""
    time, number, invoked = (int(column[row]) for column in (columns.completed, columns.process, columns.invoked))
    if columns.f[row] == START:
        told = dict(columns.table["settings"][row].as_py() or ())
        writes = "writer" in told and told.get("sends_to", topic) == topic
        who = f"{told['name']} of run {columns.table['run'][row].as_py()}" if told.get("name") else str(number)
        begun = [time, _BEGUN, number, invoked if writes else -1, who]
        timeout = natural(told.get("transaction.timeout.ms")) * 1000
        return [begun, [time, _TIMES_OUT, number, timeout, ""]] if writes and 0 < timeout < NEVER else [begun]
    error = columns.table["error"][row].as_py()
    failed = columns.type[row] != OK and error not in GONE
    kind, why = _FAILED if failed else _ENDED, error if error in LOGIN_REFUSED else ""
    return [[time, kind, number, int(columns.slice[row]), why]]


def _beginnings(columns: Columns, rows: Ints) -> list[list[Any]]:
    """Which producers got their producer id, and which did not."""
    errors = columns.table["error"].take(rows).to_pylist() if len(rows) else []
    of = (columns.completed[rows], columns.type[rows], columns.process[rows], columns.slice[rows])
    return [
        [time, _READY if outcome == OK else _NOT_READY, number, slice_, error or ""]
        for time, outcome, number, slice_, error in zip(*(column.tolist() for column in of), errors, strict=True)
    ]


def _refusals(columns: Columns, rows: Ints) -> dict[int, str]:
    """Which of the rows were refused, by which error and after how long. A transaction that was aborted on purpose has
    none."""
    failed = rows[columns.type[rows] != OK]
    if not len(failed):
        return {}
    found = zip(failed.tolist(), columns.table["error"].take(failed).to_pylist(), strict=True)
    return {
        row: f"{error} {columns.completed[row] - columns.invoked[row]}"
        for row, error in found
        if error is not None and (columns.type[row] == FAIL or error in refused_writes.REFUSALS)
    }


def _look(own: Producers, new: News) -> None:
    """Note what the observer says of the partition: there is its log, or there is no such partition."""
    columns = new.columns
    rows = new.where(OFFSETS)
    told = listed(columns, rows)
    own.seen.at = np.concatenate((own.seen.at, columns.completed[rows[told]]))
    for row in not_there(columns, rows).tolist():
        own.waiting.append([int(columns.completed[row]), _ABSENT, int(columns.process[row]), -1, ""])


def _follow(own: Producers, event: list[Any], report: Report) -> None:
    time, kind, number, invoked, name = event
    if kind == _ABSENT:
        _miss(own, time, report)
    elif kind == _PRESENT:
        if own.absent >= 0 and time - own.absent > BUSY:
            own.again = time
        own.absent = -1
    elif kind == _BEGUN:
        if invoked >= 0:
            _begin(own, number, time, name, report.objectives.liveness)
    elif kind in (_ANSWERED, _REFUSED, _UNANSWERED):
        one = own.lives.setdefault(number, Producer(str(number), invoked if kind != _REFUSED else time))
        first, one.sends = not one.sends, 1
        if kind == _UNANSWERED:
            if first and invoked - max(one.born, _ready_at(own, one.who)) >= GOING:
                one.failing = -1  # it has got beyond its beginning: what it inherited is over
            _fail(own, number, time, invoked, report)
            return
        if time >= one.answered:
            one.answered, one.failing = time, -1
            _tell(number, one, False, time, time, report)
        if kind == _ANSWERED:
            one.written = max(one.written, time)
            refused_writes.end(own.refused, one.who, time, report)
        elif time > one.written and own.absent < 0:
            error, _, took = name.partition(" ")
            if not (error in refused_writes.FENCES and 0 <= one.timeout <= int(took)):
                refusal = refused_writes.Refusal(one.who, number, time, error, one.written)
                refused_writes.refuse(own.refused, refusal, report)
    elif number in own.lives:
        if kind == _TIMES_OUT:
            own.lives[number].timeout = invoked
        elif kind == _HELD:
            _hold(own, number, time, invoked, report)
        elif kind == _READY:
            _note_ready(own, own.lives[number].who, time, report)
        elif kind == _NOT_READY:
            _note_not_ready(own, number, time, name, report)
        else:
            _end(own, number, time, kind == _FAILED, name, report)


def _held_marks(own: Producers, state: State, columns: Columns) -> Held:
    """The marks that show an operation open for long, and whose slices are here; the others wait for them."""
    told = concat(own.early, _of_interest(own, state, columns))
    if not len(told):
        return told
    here = {number: process.next for number, process in state.processes.items()}
    ready = told.slices <= np.array([here.get(number, -1) for number in told.process.tolist()], np.int64)
    own.early = take(take(told, ~ready), slice(-EARLY, None))
    return take(told, ready)


def _of_interest(own: Producers, state: State, columns: Columns) -> Held:
    """The marks that are held back by an operation, and of each process the first after them that is not; of a life
    that may inherit that its name is stuck, the first that shows that it has got beyond its beginning."""
    told = Held(*marks_of_living(columns))
    told = take(told, np.lexsort((told.at, told.process)))
    held = told.at - told.through >= BUSY
    stuck = {number: one for number, one in own.lives.items() if f"{NAME}:{one.who}" in state.open_conditions}
    born = {event[2]: event[0] for event in own.waiting if event[1] == _BEGUN and event[3] >= 0}
    born |= {number: one.born for number, one in stuck.items() if not one.sends}
    if not held.any() and not stuck and not born:
        return take(told, held)
    first = np.append(True, np.diff(told.process) != 0)[: len(told)]
    after = np.append(False, held[:-1])[: len(told)] & ~first
    keep = held | after | (first & np.isin(told.process, np.array([*stuck], np.int64)))
    for number, time in born.items():
        keep[indices((told.process == number) & ~held & (told.at >= time + GOING))[:1]] = True
    return take(told, keep)


def _telling(columns: Columns, own: Ints, unsure: Bools, marks: list[int]) -> Ints:
    """Of one writer's rows, those that change anything: all without an answer, or refused, the answers next to them,
    and the last before each of these marks: one that is answered here is not stuck here, whatever else it has open."""
    own = own[np.argsort(columns.completed[own], kind="stable")]
    unsure = unsure[own]
    keep = unsure.copy()
    keep[columns.completed[own].searchsorted(marks, side="right") - 1] = True
    keep[1:] |= unsure[:-1]
    keep[:-1] |= unsure[1:]  # since when there has been no answer
    keep[0] = keep[-1] = True
    kept: Ints = own[keep]
    return kept


def _begin(own: Producers, number: int, born: int, name: str, liveness: int) -> None:
    known = own.lives.setdefault(number, Producer(name, born))
    known.who, known.born = name, born
    for entry in own.failed:
        failed, failing, closed, error = entry
        if failed == name and 0 <= born - closed <= liveness and known.answered < 0 and own.absent < 0:
            known.failing, known.error, known.inherits = max(failing, own.again), error, 1
            own.failed = [one for one in own.failed if one is not entry]  # one life goes on from there, and no other
            return


def _miss(own: Producers, time: int, report: Report) -> None:
    """There is no such partition: who waited for it waits for nothing."""
    if own.absent < 0:
        own.absent = time
    for number, one in own.lives.items():
        one.failing = -1
        _tell(number, one, False, time, time, report)
    for entry in list(own.refused):
        refused_writes.end(own.refused, entry[0], time, report)


def _fail(own: Producers, number: int, time: int, invoked: int, report: Report) -> None:
    """An operation ended without an answer."""
    one = own.lives[number]
    if time < one.answered or own.absent >= 0:
        return
    one.inherits = 0
    went_on = max(standstills.went_on(report.state, number, time), _told_last(report.state, number, time))
    since = max(invoked, one.answered, own.again)
    one.failing = max(since if one.failing < 0 else min(one.failing, since), went_on)
    if time - one.failing >= report.objectives.liveness:
        _tell(number, one, True, one.failing + report.objectives.liveness, time, report)


def _told_last(state: State, number: int, time: int) -> int:
    """Until when, last before `time`, what it did is missing for good: it may have been answered then; -1 for never."""
    ends = [min(hole[2], time) for hole in state.holes if hole[0] == number and hole[1] < time]
    return max(ends, default=-1)


def _ready_at(own: Producers, who: str) -> int:
    """When a name got a producer id last; -1 for never."""
    return next((at for name, at in own.ready if name == who), -1)


def _note_ready(own: Producers, who: str, time: int, report: Report) -> None:
    known = max(time, _ready_at(own, who))
    own.ready = [entry for entry in own.ready if entry[0] != who] + [[who, known]]
    del own.ready[:-LINEAGE]
    refused_writes.ready(own.refused, who, time, report)


def _note_not_ready(own: Producers, number: int, time: int, error: str, report: Report) -> None:
    one = own.lives[number]
    if error not in refused_writes.REFUSALS:
        _fail(own, number, time, one.born, report)
        return
    ready = _ready_at(own, one.who)
    if time > ready and own.absent < 0:
        refusal = refused_writes.Refusal(one.who, number, time, error, one.written, True, ready)
        refused_writes.refuse(own.refused, refusal, report)


def _hold(own: Producers, number: int, time: int, through: int, report: Report) -> None:
    """A mark says that an operation invoked at `through` was still open at `time`, or that none had been for long."""
    one = own.lives[number]
    if time <= one.seen or through < one.answered - BUSY or own.absent >= 0:
        return
    if through < one.born - SECOND:
        return  # a clock was set ahead meanwhile: nobody has an operation open since before it was born
    one.seen = time
    if time - through < BUSY:
        going = not one.sends and time - one.born >= GOING and f"{NAME}:{one.who}" in report.state.open_conditions
        if one.failing < 0 or going:
            one.failing = -1
            _tell(number, one, False, time, time, report)
        return
    stillborn = through - one.born <= SECOND
    went_on = standstills.went_on(report.state, number, time)
    since = max(through if one.failing < 0 else min(one.failing, through), own.again, went_on)
    if (one.sends or stillborn) and time - since >= report.objectives.liveness:
        _tell(number, one, True, since + report.objectives.liveness, time, report)


def _end(own: Producers, number: int, time: int, failed: bool, error: str, report: Report) -> None:
    """It closed. If it had failed, its name's next life goes on from there, else nobody is stuck any more."""
    one = own.lives.pop(number)
    if one.inherits and not one.sends and time - max(one.born, _ready_at(own, one.who)) >= GOING:
        one.failing = -1  # it had got beyond its beginning, and fails by what it did elsewhere
    if failed and (one.failing >= 0 or f"{NAME}:{one.who}" in report.state.open_conditions):
        since = one.failing if one.failing >= 0 else one.born
        own.failed = [entry for entry in own.failed if entry[0] != one.who] + [[one.who, since, time, error]]
        del own.failed[:-LINEAGE]
        return
    _tell(number, one, False, time, time, report)


def _forget(own: Producers, state: State, end: int, report: Report) -> None:
    """Close what is open for names that nobody bears any more: their lives ended, and no other has followed."""
    for number in [n for n in own.lives if n not in state.processes]:
        del own.lives[number]
    if own.refused:
        refused_writes.forget(own.refused, own.lives, end, report)
    for key in [k for k in state.open_conditions if k.startswith(NAME)]:
        who = key.partition(":")[2]
        ended = next((closed for name, _, closed, _ in own.failed if name == who), -1)
        borne = any(one.who == who for one in own.lives.values())
        if not borne and end - ended > report.objectives.liveness:
            report.condition(NAME, None, at=end, evidence={"writer": who}, subject=(who,))


def _tell(number: int, one: Producer, holds: bool, since: int, time: int, report: Report) -> None:
    evidence = {"process": number, "writer": one.who, "answered": one.answered}
    message = (
        f"no send and no transaction of {one.who} has completed for {(time - one.failing) / 1e6:.0f} s"
        if one.failing >= 0
        else f"an operation of {one.who} does not return"
    )
    if holds:
        began = since - report.objectives.liveness
        evidence |= {"began": began}
        if one.error:
            message += f"; {NO_LOGIN[one.error]}"
            evidence |= {"error": one.error}
        away = report.outages.over(began, time)
        if away is not None:
            # Another broker may lead since then: that the one that did not answer does so is not known.
            evidence |= {"away_from": away[0], "away_until": away[1]}
            message += (
                f", though all leaders answer again, after {(away[1] - away[0]) / 1e6:.0f} s in which one did not"
            )
    report.condition(NAME, message if holds else None, at=time, since=since, evidence=evidence, subject=(one.who,))


CHECK: Final = Check(NAME, Producers, arrive=arrive, fold=fold, live_only=True)
