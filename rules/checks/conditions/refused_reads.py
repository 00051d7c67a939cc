"""`refused-reads`: a reader does not come to read.

For the liveness objective each life of a name has ended with an error before it had come to read, or one was told by a
broker that it may not and has heard nothing else since (a group's member is told once, and waits). Coming to read is
whatever it did beside being born: an answer of its group, a poll, a send. Where it was stuck in the cluster's silence,
`cluster-unreachable` explains that.

Nobody is stuck (`stuck-consumer`) who holds no partition, and what nobody reads is not `unseen`: without this a canary
that may not read finds nothing wrong.

It is told by the reader's own name where its start row tells one, and in the topic that this says it reads
(`reads_from`), everywhere where it says none. A life that ended in order, or whose process went
away, begins anew, and so does one whose host stood still (`rules.settling.standstills`). It is over when a life of that
name has come to read, when the partition is not there any more, and when nobody bears the name.

What a broker says of the group to a client that gave itself its partitions and has come to read is no refusal: such a
client needs the group for its offsets at most, and where it reads nothing (nobody sends there) nothing else is heard.

State: the lives that have not come to read yet, the newest `KEPT` names that ended so, and as many that came, and what
happened after the last tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from rules.arrays.columns import ASSIGN, CLOSE, OFFSETS, OK, POLL, POSITION, REGISTER, SEND, START, TXN, Columns
from rules.arrays.intervals import indices
from rules.checks.conditions.refused_writes import SELDOM
from rules.checks.conditions.stuck_producers import GONE
from rules.checks.ends.not_there import not_there
from rules.kept.check import Check, News, Passage
from rules.kept.report import Report
from rules.settling import standstills
from rules.settling.completeness import LATE
from rules.settling.frontier import TICK

NAME: Final = "refused-reads"
KEPT: Final = 64
_OF_ITS_GROUP: Final = frozenset(
    {
        "GROUP_AUTHORIZATION_FAILED",
        "GROUP_MAX_SIZE_REACHED",
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_GROUP_ID",
        "INVALID_SESSION_TIMEOUT",
        "UNSUPPORTED_ASSIGNOR",
    }
)
REFUSALS: Final = _OF_ITS_GROUP | {
    "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "UNSUPPORTED_VERSION",
}
"""Errors by which a broker answers that this client may not read, however often it asks."""
_COMES: Final = (ASSIGN, POLL, POSITION, SEND, TXN, REGISTER)
"""Whoever did one of these, and a poll without an error, has got beyond its beginning."""


@dataclass(slots=True)
class Unborn:
    """A life that has not come to read yet. `refused`: when a broker told it first that it may not; -1 for never."""

    who: str
    born: int
    refused: int = -1
    error: str = ""


@dataclass(slots=True)
class Reads:
    """`lives`: by process. `failed`: [name, since when it does not come to read, when its last life ended, by which
    error, process]; `came`: [name, when one of it had come to read last, or had ended otherwise]. `waiting`: [time, one
    of these, process, its slice, its name (of a refusal its run), the error] that happened after the last tick, see
    `_BEGUN`. `elsewhere`: the processes that are known and read another topic."""

    lives: dict[int, Unborn] = field(default_factory=dict, metadata={"of": Unborn})
    failed: list[list[Any]] = field(default_factory=list)
    came: list[list[Any]] = field(default_factory=list)
    waiting: list[list[Any]] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)


_ABSENT, _BEGUN, _CAME, _REFUSED, _FAILED, _ENDED, _GROUP_REFUSED = range(7)
"""`_BEGUN`: it means to read. `_GROUP_REFUSED`: its group does so, it gave itself its partitions. `_FAILED`, `_ENDED`:
it closed, with an error of its client or without. `_ABSENT`: the observer says that the partition is not there."""


def arrive(own: Reads, new: News) -> None:
    """Take in what those did that have not come to read yet, as far as is known, and who is refused."""
    columns = new.columns
    for row in new.where(START).tolist():
        if not columns.table["mode"][row].is_valid:
            continue
        told = dict(columns.table["settings"][row].as_py() or ())
        run, number = columns.table["run"][row].as_py(), int(columns.process[row])
        if told.get("reads_from", new.state.topic) != new.state.topic:
            own.elsewhere.append(number)
        else:
            own.waiting.append(_entry(columns, row, _BEGUN, _called(number, told.get("name", ""), run)))
    asked = new.where(POLL, CLOSE)
    errors = columns.table["error"].take(asked).to_pylist() if len(asked) and columns.tells("error") else []
    said = {row: error for row, error in zip(asked.tolist(), errors, strict=False) if error is not None}
    for row, error in said.items():
        if columns.f[row] == POLL and error in REFUSALS:
            kind = _GROUP_REFUSED if error in _OF_ITS_GROUP and not columns.subscribed[row] else _REFUSED
            own.waiting.append([*_entry(columns, row, kind, columns.table["run"][row].as_py()), error])
    watched = {event[2] for event in own.waiting} | own.lives.keys()
    watched |= {number for number, process in new.state.processes.items() if not process.next}  # begun, for all we know
    if watched or own.failed:
        absent = columns.completed[not_there(columns, new.where(OFFSETS))].tolist()
        own.waiting += [[time, _ABSENT, -1, -1, "", ""] for time in absent]
    if not watched:
        return
    came = new.fresh & columns.where(*_COMES)
    came[list(said)] = False
    for number in watched.intersection(columns.process.tolist()):
        mine = indices(came & (columns.process == number))
        if len(mine):
            times = columns.completed[mine]
            ends = dict.fromkeys((int(mine[times.argmin()]), int(mine[times.argmax()])))
            own.waiting += [_entry(columns, row, _CAME, "") for row in ends]
    for row in new.where(CLOSE).tolist():
        if int(columns.process[row]) in watched:
            error = said.get(row, "")
            kind = _ENDED if columns.type[row] == OK or error in GONE else _FAILED
            own.waiting.append([*_entry(columns, row, kind, ""), error])


def _entry(columns: Columns, row: int, kind: int, who: str) -> list[Any]:
    return [int(columns.completed[row]), kind, int(columns.process[row]), int(columns.slice[row]), who]


def _called(number: int, name: str, run: str) -> str:
    return f"{name} of run {run}" if name else str(number)


def fold(own: Reads, passage: Passage) -> None:
    """Go through what happened up to the last tick, in the order of time, and tell of those who wait in vain."""
    ripe = [event for event in own.waiting if _is_ripe(event, passage)]
    if ripe:
        own.waiting = [event for event in own.waiting if not _is_ripe(event, passage)]
        for event in sorted(ripe):
            _follow(own, event, passage.report)
    state, report = passage.state, passage.report
    own.elsewhere = [number for number in own.elsewhere if number in state.processes]
    for number, one in list(own.lives.items()):
        process = state.processes.get(number)
        if process is None:
            del own.lives[number]
        elif one.refused >= 0:
            through = min(passage.end, process.told_through, standstills.over(state, number))
            since = max(_since(own, one.who, one.refused), standstills.went_on(state, number, through))
            if through - since >= report.objectives.liveness:
                decidable = since + report.objectives.liveness
                _tell([one.who, since, through, one.error, number], decidable, report)
            if process.complete and 0 <= process.closed <= passage.end:
                _over_unsaid(own, number, process.closed, report)
    _forget(own, passage.end, report)


def _is_ripe(event: list[Any], passage: Passage) -> bool:
    """Has its time come, and is all here that its process did before? Whoever is over is waited for no longer than
    `LATE`."""
    time, kind, number, slice_, *_ = event
    process = passage.state.processes.get(number)
    in_turn = process is None or slice_ < process.next or (kind == _FAILED and time <= passage.end - LATE)
    return bool(time <= passage.end) and in_turn


def _follow(own: Reads, event: list[Any], report: Report) -> None:
    time, kind, number, _, who, *error = event
    if kind == _ABSENT:
        for known in [entry[0] for entry in own.failed]:
            _end(own, known, time, report)
        for one in own.lives.values():
            one.born, one.refused = time, -1
            report.condition(NAME, None, at=time, evidence={"reader": one.who}, subject=(one.who,))
    elif kind == _BEGUN:
        own.lives[number] = Unborn(who, time)
    elif (kind == _REFUSED and number not in own.elsewhere) or (kind == _GROUP_REFUSED and number in own.lives):
        process = report.state.processes.get(number)
        name = process.name if process is not None else ""
        one = own.lives.setdefault(number, Unborn(_called(number, name, who), time))
        one.refused, one.error = (time if one.refused < 0 else one.refused), *error
    elif kind in (_CAME, _FAILED, _ENDED) and number in own.lives:
        one = own.lives.pop(number)
        if kind == _FAILED:
            _fail(own, number, one, time, error[0], report)
        else:
            _end(own, one.who, time, report)


def _fail(own: Reads, number: int, one: Unborn, time: int, error: str, report: Report) -> None:
    """A life ended before it had come to read. Lives of a name may be heard of in any order."""
    came = next((at for who, at in own.came if who == one.who), -1)
    if time <= came:
        return
    if one.error and error not in REFUSALS:
        error = one.error
    went_on = standstills.went_on(report.state, number, time)
    entry: list[Any] = [one.who, max(one.born, came), time, error, number]
    known = next((entry for entry in own.failed if entry[0] == one.who), entry)
    entry = [one.who, max(min(known[1], entry[1]), went_on), *max(known[2:], entry[2:])]
    own.failed = [entry for entry in own.failed if entry[0] != one.who] + [entry]
    own.failed = report.newest(own.failed, KEPT, "readers that do not come to read")
    if entry[2] - entry[1] >= report.objectives.liveness:
        # Not before: until it ended it might have come to read, and an outage that began meanwhile explains its end.
        _tell(entry, entry[2], report)


def _since(own: Reads, who: str, begun: int) -> int:
    """Since when a name does not come to read, of which a life began then: since an earlier one ended so."""
    return next((entry[1] for entry in own.failed if entry[0] == who and entry[1] <= begun), begun)


def _end(own: Reads, who: str, time: int, report: Report) -> None:
    """It had come to read then, or means to no more. What is known of later lives may be the beginning of more."""
    came = max([time, *(at for name, at in own.came if name == who)])
    own.came = [entry for entry in own.came if entry[0] != who] + [[who, came]]
    del own.came[:-KEPT]
    known = next((entry for entry in own.failed if entry[0] == who), None)
    if known is not None and known[2] > time:
        known[1] = max(known[1], time)
    elif known is not None:
        own.failed.remove(known)
    report.condition(NAME, None, at=time, evidence={"reader": who}, subject=(who,))


def _forget(own: Reads, end: int, report: Report) -> None:
    """End it for names of which no life has begun for long."""
    borne = {one.who for one in own.lives.values()}
    for who, _, last, _, _ in list(own.failed):
        over = last + SELDOM * report.objectives.liveness
        if who not in borne and over <= end:
            _end(own, who, over, report)
    failed = {entry[0] for entry in own.failed}
    for key in [key for key in report.state.open_conditions if key.startswith(f"{NAME}:")]:
        who = key.partition(":")[2]
        if who not in borne | failed:
            report.condition(NAME, None, at=end, evidence={"reader": who}, subject=(who,))


def _over_unsaid(own: Reads, number: int, closed: int, report: Report) -> None:
    """A life is over, and no row of it said how: it is told at the tick after that, however much is judged at once."""
    who = own.lives.pop(number).who
    if who not in {one.who for one in own.lives.values()} | {entry[0] for entry in own.failed}:
        report.condition(NAME, None, at=-(-closed // TICK) * TICK, evidence={"reader": who}, subject=(who,))


def _tell(failed: list[Any], decidable: int, report: Report) -> None:
    who, since, time, error, number = failed
    why = f"it is refused with {error}" if error in REFUSALS else f"each client of it ends by {error}"
    message = f"{who} has not come to read for {(time - since) / 1e6:.0f} s: {why}"
    evidence = {"process": number, "reader": who, "error": error, "since": since}
    report.condition(NAME, message, at=time, since=decidable, evidence=evidence, subject=(who,))


CHECK: Final = Check(NAME, Reads, arrive=arrive, fold=fold, live_only=True, rests=True)
