"""How far the evidence is complete: slice counters, marks, and the horizon that follows from them.

What is missing must be complete before it is called lost. Each process numbers its slices of a partition without gaps,
and each host's committer marks, once a second, up to which slice and which time a process's log is in the table. A
committer that catches up marks, as its own time, that through which it has read all journals to their ends. A mark is
*fulfilled* once all the slices that it counts are here. A process is judged by the marks of its own host alone.

The *horizon* is the log time to which ticks may go: through it, everything that had completed is here, of every process
that log time waits for. It does not wait for an operation that is open for long (what it may still bring is waited for
by whoever needs it, see `rules.settling.gate`), nor for a process or a host that is `LATE`. Their rows are taken when
they come; verdicts that need them wait, however long it takes.

What never comes leaves a *hole*: an interval of one process's log time of which something is missing for good. Slices
that are missing `GIVEN_UP` after the host's own clock had passed the mark that counts them are given up, and at once
where that mark says that appends before it are missing for good (an evidence topic has lost them); a life that
was lost with its host, or whose journal is broken, misses what it did from its last mark until it was over. Nothing
outside the interval suffers. Slices that were given up, and come after all, are taken as ever.

A process is forgotten when it is over, all of its log is here and followed, and log time has passed it. No life is
forgotten before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import CLOSE, MARK, START, SUBSCRIBE, Columns, all_marks, journals_read
from rules.arrays.intervals import Bools, Ints, each, heads, indices
from rules.kept.state import NEVER, Hole, Host, Process, State
from rules.settling import clocks, declared_gone, retrying_writers, standstills, unsaid_ends
from rules.settling.boots import boots_after_its, note_mark
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import APPENDS_MISSING

LATE: Final = 30 * SECOND
GIVEN_UP: Final = 600 * SECOND
REMEMBERED: Final = 180 * SECOND
"""How long it is remembered of a process that it is forgotten: marks and rows may come out of their order."""
MARKS_KEPT: Final = 128
HOLES_KEPT: Final = 256


def new_rows(state: State, columns: Columns) -> Bools:
    """Which rows are here for the first time; counts them in. Rows of one process may come in any order."""
    fresh = np.ones(len(columns), bool)
    order = np.lexsort((columns.slice, columns.process))
    process, number, completed = columns.process[order], columns.slice[order], columns.completed[order]
    listed, begins = number.tolist(), heads(process)
    bounds = [*begins.tolist(), len(process)]
    forgotten = {entry[0] for entry in state.gone}
    for who, head, end in zip(process[begins].tolist(), bounds[:-1], bounds[1:], strict=True):
        if who in forgotten:
            fresh[order[head:end]] = False
            continue
        known = state.processes.get(who)
        if known is None:
            known = state.processes[who] = state.departed.pop(who, Process())
        after, plain = known.next + end - head, not (known.ahead or known.missing)
        if plain and listed[head:end] == list(range(known.next, after)):  # as nearly always: just the next ones
            known.next = after
            continue
        numbers, times = number[head:end], completed[head:end]
        repeated = np.concatenate(([False], numbers[1:] == numbers[:-1])) | (numbers < known.next)
        if known.missing:
            repeated &= ~intervals.touched(*_spans(known.missing), numbers, numbers + 1)
            _found_again(state, who, known, numbers)
        if known.ahead:
            repeated |= intervals.touched(*_spans(known.ahead), numbers, numbers + 1)
        if repeated.any():
            fresh[order[head:end][repeated]] = False
            numbers, times = numbers[~repeated], times[~repeated]
        later = numbers >= known.next
        _count(known, numbers[later], times[later])
    return fresh


def _spans(listed: list[list[int]]) -> tuple[Ints, Ints]:
    start, end = np.array([one[:2] for one in listed], np.int64).reshape(-1, 2).T
    return start, end


def _found_again(state: State, number: int, process: Process, numbers: Ints) -> None:
    """Slices that had been given up are here after all."""
    start, end = intervals.subtract(*_spans(process.missing), *intervals.merge(numbers, numbers + 1))
    process.missing = [[low, high] for low, high in zip(start.tolist(), end.tolist(), strict=True)]
    if not process.missing and process.lost_by < 0:
        state.holes = [hole for hole in state.holes if hole[0] != number]


def _count(process: Process, numbers: Ints, times: Ints) -> None:
    """Count these slices in, which had completed then; they ascend, and none was here before."""
    if not len(numbers):
        return
    first, last = int(numbers[0]), int(numbers[-1])
    if not process.ahead and first == process.next and last - first == len(numbers) - 1:
        process.next = last + 1
        return
    start, end = _spans(process.ahead)
    merged = intervals.merge(np.append(start, numbers), np.append(end, numbers + 1))
    at = {one[0]: one[2] for one in process.ahead} | dict(zip(numbers.tolist(), times.tolist(), strict=True))
    waiting = []
    for low, high in zip(*(bounds.tolist() for bounds in merged), strict=True):
        through = max((one[3] for one in process.ahead if low <= one[0] < high), default=-1)
        waiting.append([low, high, at[low], through])
    process.ahead = waiting
    _close_up(process)


def _close_up(process: Process) -> None:
    """What came too early, and has nothing missing before it, counts."""
    while process.ahead and process.ahead[0][0] <= process.next:
        _, end, _, through = process.ahead.pop(0)
        process.next, process.through = max(process.next, end), max(process.through, through)


def note_lives(state: State, columns: Columns) -> None:
    """What start, close and mark rows tell of processes, and which rows came first."""
    committers = set()
    read, declared = _read_by_marks(columns), declared_gone.declarations(columns)
    by_hosts = {row: at for row, at in read.items() if row not in declared}
    spoke = standstills.spoken(state, columns, by_hosts)
    standstills.note(state, columns, by_hosts)
    for row in indices(columns.where(START, CLOSE, MARK)).tolist():
        number = int(columns.process[row])
        process = state.processes.get(number)
        if row in declared:
            committers.add(number)  # who declares is no host
        elif columns.f[row] == MARK:
            host, at = state.hosts.setdefault(number, Host()), int(columns.completed[row])
            note_mark(host, read[row], int(columns.boot[row]), at, int(columns.op[row]))
            committers.add(number)
        elif process is None:
            continue
        elif columns.f[row] == CLOSE and process.declared >= 0:
            continue  # it is over
        elif columns.f[row] == CLOSE:
            # A close that did not return, and then did, has two rows.
            process.closes_at = max(process.closes_at, int(columns.slice[row]) + 1)
            process.closed = max(process.closed, int(columns.completed[row]))
            if columns.table["error"][row].as_py() in standstills.BROKEN_OFF:
                process.broke_off = int(columns.completed[row])
        else:
            _note_settings(state, columns, row)
    said = [*(host.now for host in state.hosts.values()), *(read[row] for row in declared)]
    state.now = max([state.now, *(at - state.held for at in said)])
    for number in committers:
        state.processes.pop(number, None)  # a committer vouches for others and has nothing to be complete itself
    _note_first_rows(state, columns)
    _note_marks(state, columns, declared, spoke)


def _read_by_marks(columns: Columns) -> dict[int, int]:
    """Through when each mark row says that the journals of its host had been read."""
    rows = indices(columns.where(MARK))
    return dict(zip(rows.tolist(), journals_read(columns, rows).tolist(), strict=True)) if len(rows) else {}


def _note_first_rows(state: State, columns: Columns) -> None:
    """Since when each process is known, by which clock, and whether it reads or writes."""
    for number in each(columns.process):
        process = state.processes.get(number)
        if process is not None and (process.boot < 0 or process.first < 0 or process.through < 0):
            mine = columns.process == number
            process.boot = int(columns.boot[mine.argmax()])
            began = int(columns.invoked[mine].min())
            process.first = began if process.first < 0 else min(process.first, began)
    reading = columns.where(SUBSCRIBE) | (columns.assigned >= 0) | _going_to_read(columns)
    polled, sent = ({*columns.process[runs.row].tolist()} for runs in (columns.polled, columns.sent))
    for number in polled.union(columns.process[reading].tolist()):
        if number in state.processes:
            state.processes[number].reads = True
    for number in sent:
        if number in state.processes:
            state.processes[number].writes = True
    for number in polled.union(sent, columns.process[columns.assigned == 1].tolist()):
        if number in state.processes:
            state.processes[number].elsewhere = _BELIED


def _going_to_read(columns: Columns) -> Bools:
    """The rows of processes that begin, and say how they will read: more of theirs may be underway for long."""
    begins = columns.where(START)
    for row in indices(begins).tolist() if START in columns.functions else ():
        begins[row] = columns.table["mode"][row].is_valid
    return begins


_SAID: Final = 1
_BELIED: Final = 2


def _is_of_other_topics(told: Mapping[str, str], topic: str, *, reads: bool) -> bool:
    """Does a start row tell of one that reads or writes, and of neither here?"""
    sends = "writer" in told
    here = (reads and told.get("reads_from", topic) == topic) or (sends and told.get("sends_to", topic) == topic)
    return (reads or sends) and not here


def _note_settings(state: State, columns: Columns, row: int) -> None:
    settings = columns.table["settings"][row].as_py()
    if not settings:
        return
    told = dict(settings)
    process = state.processes[int(columns.process[row])]
    process.name, process.audits = told.get("name", ""), "audit" in told
    if _is_of_other_topics(told, state.topic, reads=columns.table["mode"][row].is_valid):
        process.elsewhere = process.elsewhere or _SAID
    process.run = columns.table["run"][row].as_py()
    writer = retrying_writers.writer_told(told)
    if writer >= 0:
        process.writer = writer
    retrying_writers.note(state, int(columns.process[row]), told)


def _note_marks(state: State, columns: Columns, declared: frozenset[int], spoke: Mapping[int, Sequence[int]]) -> None:
    told = all_marks(columns)
    forgotten = {entry[0] for entry in state.gone}
    order = np.lexsort((told.at, told.through, told.slices, told.process))
    boots = columns.boot[told.row]
    fields = (told.process, told.slices, told.through, told.at, told.host, columns.op[told.row], told.ended, boots)
    entries = zip(order.tolist(), *(one[order].tolist() for one in fields), strict=True)
    behind_a_gap = _behind_missing_appends(columns)
    for i, number, slices, through, at, host, append, ended, boot in entries:
        if number in forgotten:
            continue
        declares = int(told.row[i]) in declared
        process = _told_of(state, number, at, declares=declares, lives=ended < 0)
        if process is None:
            if slices == 0 or number in state.departed:
                continue  # it has no row here, or is declared gone, and none is missing
            # None of its rows is here: it has been awaited since this mark.
            process = state.processes[number] = Process(first=through)
        if declares and process.declared >= 0:
            continue  # that was said before
        if declares:
            declared_gone.declare(process, at)
        else:
            process.host = host
            if process.declared >= 0:
                continue
        if process.boot != boot:
            through = clocks.told_later(state, process.boot, through)
        if ended < 0:
            standstills.note_stood(process, at, spoke.get(host, ()))
            process.vouched = at if at > process.vouched else process.vouched
        else:
            if told.lost[i]:
                process.lost_by = ended if process.lost_by < 0 else min(process.lost_by, ended)
                process.over_boot, process.lost = boot, True
            process.closed = max(process.closed, ended)
            process.closes_at = max(process.closes_at, slices)
        process.marks.append([slices, through, at])
        if behind_a_gap and int(told.row[i]) in behind_a_gap:
            process.let_go = max(process.let_go, slices)
        process.heard = append if append > process.heard else process.heard
    if behind_a_gap:
        unsaid_ends.note_behind_a_gap(state, columns, behind_a_gap)


def _told_of(state: State, number: int, at: int, *, declares: bool, lives: bool) -> Process | None:
    """The process that a mark tells of; None where nothing is known of it, or nothing new is said of one that was
    declared gone."""
    process = state.processes.get(number) or state.departed.get(number)
    if process is None or process.declared < 0:
        return process
    if not declares and declared_gone.told_by_its_host(process, at, lives=lives):
        state.departed.pop(number, None)
        state.processes[number] = process
    return state.processes.get(number)


def _behind_missing_appends(columns: Columns) -> set[int]:
    """The mark rows that say so of appends of their committer before them."""
    if not columns.tells("error"):
        return set()
    error = columns.table["error"]
    return {row for row in indices(columns.where(MARK)).tolist() if error[row].as_py() == APPENDS_MISSING}


def horizon(state: State) -> int:
    """The log time to which ticks may go, in microseconds; -1 while nothing is known. Where nobody lives any more, as
    in a topic that was deleted, no host is waited for: none of them has anything to tell.

    Fulfils marks, gives up what is overdue, and forgets processes that are over."""
    if state.now < 0:
        return -1
    for host in state.hosts.values():
        host.silent = int(state.now - host.now > LATE)
    awaited = [host.now for host in state.hosts.values() if not host.silent]
    earliest = min([*awaited, state.now])
    for number, process in list(state.processes.items()):
        _fulfil(state, number, process)
        if process.complete:
            if state.tick > process.closed and _all_said(state, process) and _is_followed(state, number):
                del state.processes[number]
                if process.reads and not process.lost and process.host in state.hosts:  # it ended in order
                    state.hosts[process.host].reads = 1
                if process.declared >= 0:
                    declared_gone.leave(state, number, process)
                else:
                    state.gone.append([number, state.now, *standstills.last_known(process)])
                standstills.note_read(state, process)
            continue
        if process.is_gone:
            continue  # its journal is not there any more
        its, told = state.hosts.get(process.host), process.told_through
        now = state.now if its is None else its.now
        if now - told <= LATE and (its is None or now > state.now - LATE):
            earliest = min(earliest, told)
    state.gone = [entry for entry in state.gone if state.now - entry[1] <= REMEMBERED]
    lived = bool(state.processes or state.gone or declared_gone.lately(state, REMEMBERED))
    return state.now if lived and all(process.complete for process in state.processes.values()) else earliest


def _is_followed(state: State, number: int) -> bool:
    """Was all followed that it polled? The last may come long after its end, and is followed from where it stood."""
    return not ((state.moves.process == number) & (state.moves.first >= 0)).any()


def _all_said(state: State, process: Process) -> bool:
    """Has its host spoken since it was over? Then no mark of it is still to come."""
    host = state.hosts.get(process.host) if process.declared < 0 else None
    return state.now > process.closed if host is None else host.now > process.closed


def _fulfil(state: State, number: int, process: Process) -> None:
    """Take the marks whose slices are all here, and give up what is overdue."""
    host = state.hosts.get(process.host)
    if host is not None and (len(host.boots) > 1 or process.is_gone):
        _outlive(state, number, process, host)
    if host is not None:
        unsaid_ends.give_up(process, host, GIVEN_UP)
    for mark in process.marks if process.ahead else ():
        for later in process.ahead:
            if mark[0] <= later[1]:
                later[3] = max(later[3], mark[1])
    waiting = []
    for mark in process.marks:
        slices, through, at = mark
        if slices > process.next:
            waiting.append(mark)
        else:
            process.through = through if through > process.through else process.through
            process.marked = at if at > process.marked else process.marked
    if waiting:
        waiting = [mark for mark in waiting if mark[1] > process.through or mark[2] > process.marked]
        waiting = waiting[:1] + waiting[1:][-MARKS_KEPT:]  # the first tells since when something is overdue
    process.marks = waiting
    if process.lost_by >= 0 and process.complete:
        span = _here_through(process), process.lost_by
        _dig(state, number, process, span, unknown=not process.next)
        if _left_by_readers(state, process):
            of_others = Hole(-1, *span, 1, 0, state.now, process.boot, process.over_boot, span[1])
            if not any(entry[:3] == [*of_others[:3]] for entry in state.holes):
                _remember(state, of_others)
        process.lost_by = -1
    while process.marks:
        slices, through, at = process.marks[0]
        if slices > process.let_go and not _is_overdue(state, process, host, at):
            break
        _give_up(state, number, process, slices, at)
        process.marks.pop(0)
        process.through, process.marked = max(process.through, through), max(process.marked, at)


def _is_overdue(state: State, process: Process, host: Host | None, at: int) -> bool:
    """Are the rows that a mark of that time counts not waited for any longer?"""
    if process.declared >= 0:
        return declared_gone.is_given_up(state, process)
    return host is not None and host.now - at > GIVEN_UP


def _left_by_readers(state: State, process: Process) -> bool:
    """Its host went down with it, and all that had read there had ended in order by what is known: with their journals,
    their successors may be gone without a trace."""
    if not process.lost or process.over_boot in (-1, process.boot):
        return False
    of_host = [other for other in state.processes.values() if other.host == process.host and other.reads]
    if any(other.boot == process.boot and (other.lost or other.closes_at < 0) for other in of_host):
        return False  # what these did is missing as well, and known to be
    host = state.hosts.get(process.host)
    return bool(of_host) or (host is not None and bool(host.reads))


def _outlive(state: State, number: int, process: Process, host: Host) -> None:
    """A process is over by the time that its host was booted anew. One that the host has not mentioned since, for long,
    has left no journal: what it did last is missing for good."""
    if process.boot >= 0 and len(host.boots) > 1:
        later = boots_after_its(process, host)
        if later:
            process.over_boot, at, process.over_at = later[0]
            process.over_by = min(at, clocks.first_done(state, process.over_boot) - 1)  # before its first mark
    if process.is_gone and process.closes_at < 0 and host.boots[-1][1] < host.now - GIVEN_UP:
        slices = max([process.next, *(one[1] for one in process.ahead)])
        process.closes_at, process.closed, process.lost_by = slices, process.over_by, process.over_by


def _give_up(state: State, number: int, process: Process, slices: int, at: int) -> None:
    """The slices below `slices` that are not here, and should be since `at`, are not waited for any longer."""
    start, end = intervals.subtract(np.array([process.next]), np.array([slices]), *_spans(process.ahead))
    gone = [[low, high] for low, high in zip(start.tolist(), end.tolist(), strict=True)]
    if not gone:
        return
    begun, unknown = _here_through(process), not process.next
    read_by = min([at, *(one[2] for one in process.ahead if one[0] == gone[-1][1])])
    process.missing = (process.missing + gone)[-MARKS_KEPT:]
    process.next = slices
    _close_up(process)
    # What stood open when the last mark was fulfilled may be among them, and completed long after; but not after the
    # row that follows. What it sent or committed may take effect later than it completed.
    _dig(state, number, process, (begun, at), unknown=unknown, read_by=read_by)


def _here_through(process: Process) -> int:
    """Through when all that it did is here; -1 where not even its first slice is: nobody knows when it began."""
    return process.through if process.through >= 0 else process.first if process.next else -1


def _dig(
    state: State, number: int, process: Process, span: tuple[int, int], *, unknown: bool, read_by: int | None = None
) -> None:
    """Something that `process` did in `span` is missing for good. `unknown`: so is the row that tells what it is.
    `read_by`: by when it had polled what it did, if not by the end."""
    writes = process.writer >= 0 or process.writes
    boots = process.boot, process.over_boot if process.complete else process.boot
    hole = Hole(
        number,
        *span,
        int(process.reads or unknown),
        int(writes or unknown),
        state.now + state.held,
        *boots,
        span[1] if read_by is None else read_by,
        int(process.unsaid or read_by is not None),
    )
    if process.writer >= 0:
        state.lost_writers.append(process.writer)
    _remember(state, hole)


def _remember(state: State, hole: Hole) -> None:
    state.holes.append(list(hole))
    if len(state.holes) > HOLES_KEPT:  # those of the oldest become one: more is unverifiable, and nothing less
        state.holes[:2] = [list(_joined(Hole(*state.holes[0]), Hole(*state.holes[1])))]


def _joined(a: Hole, b: Hole) -> Hole:
    return Hole(
        -1,
        min(a.start, b.start),
        max(a.end, b.end),
        a.reads | b.reads,
        a.writes | b.writes,
        max(a.known, b.known),
        read_by=max(a.read_by, b.read_by),
        went_on=a.went_on | b.went_on,
    )


def lateness(state: State) -> list[tuple[int, Process, int]]:
    """The processes whose evidence is behind their own host's clock, or whose host is silent: (number, process, since
    when, in log time)."""
    found = []
    for number, process in state.processes.items():
        host = state.hosts.get(process.host)
        if process.known_through == NEVER or host is None or process.declared >= 0:
            continue
        if host.silent or host.now - process.known_through > LATE:
            found.append((number, process, process.known_through))
    return found


def awaited_from(state: State, apart: int) -> list[int]:
    """The offsets from which on readers go on whose rows come later than log time waited: where they stood when they
    were heard of last, or at the beginning of what is known where they have told nothing yet. On a host that is late,
    and not for `GIVEN_UP`, others may have begun meanwhile. Clocks are `apart`: what a reader has told that is within
    reach may wait for log time, where its own is ahead."""
    late = any(host.now < state.tick and state.now - host.now <= GIVEN_UP for host in state.hosts.values())
    return [state.index_from] * late + [
        max(process.position, 0)
        for process in state.processes.values()
        if process.may_read and (process.told_through < state.tick or (apart and process.position >= state.index_from))
    ]
