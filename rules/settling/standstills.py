"""When nobody tried anything: a host stood still, or its probes could not write their journals.

A container that was frozen, a virtual machine that was paused, a host that was down: no call was tried there in that
time, so that none has failed, and nobody was too slow. It shows in the host's marks, which come every second else, and
in its processes, none of which invoked or completed anything in between. (Where only the probe log was away, marks are
missing, and rows of that time come with the next of them.)

Where the disk of the journals is full, probes stop, for what cannot be logged must not be sent. Their lives *break
off*: they say so, or nothing more can be written, and the committer finds them dead once there is room again. Until
then it cannot append either, so that its last mark before tells through when they lived. Here and there a row finds
room meanwhile. It is the same where a process was killed: what it tried last, nobody knows.

A process alone may stand still as well, where each has its own: it was frozen, or starved. A probe says several times
a second that it lives, whatever it waits for; of one that does not, its host's committer tells nothing while it tells
of others (`probes.log.commits.lives`).

Who must do something within a time (`stuck-producer`, `stuck-consumer`) begins anew when the host goes on, and whoever
broke off was not stuck between the last mark that tells of it as living and its end. Where nobody read meanwhile, what
must be polled within a time (`unseen`) has as long from then on; one reader of another host that went on is enough for
it to be due as ever. What was due before is due.

State: the newest `KEPT` of each host and of each process; when the last `READ_KEPT` readers that are forgotten were at
work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from rules.arrays.columns import Columns, all_marks
from rules.arrays.intervals import Ints, among, each, indices
from rules.kept.state import NEVER, Host, Process, State
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import DIED, UNWRITABLE

STANDSTILL: Final = 25 * SECOND
"""A host under load gives a thread its turn far sooner; and a batch may lack marks that come with a later one."""
KEPT: Final = 8
READ_KEPT: Final = 64
"""All readers of a host may break off at once."""
BROKEN_OFF: Final = (DIED, UNWRITABLE)
"""Errors of close rows."""


def note(state: State, columns: Columns, read: dict[int, int]) -> None:
    """Note when hosts stood still before these rows. `read`: through when each mark row says that journals were read;
    `Host.now` is still that of the marks before them. A committer's marks come with the rows that they count; one that
    is older than those before it, because it comes late, tells of nothing that came after it."""
    for committer in each(columns.process[list(read)]) if read else ():
        host = state.hosts.get(committer)
        if host is None:
            host = state.hosts[committer] = Host()
        marked = sorted(at for row, at in read.items() if columns.process[row] == committer and at > host.now)
        listed = [host.now, *marked] if host.now >= 0 else marked
        if any(later - at > STANDSTILL for at, later in pairwise(listed)):
            times = np.array(listed, np.int64)
            ran = _ran(state, columns, committer)
            _note(host, np.concatenate((times, ran[(ran > times.min()) & (ran < times.max())])))


def _ran(state: State, columns: Columns, committer: int) -> Ints:
    """When the host's processes invoked and completed something."""
    told = all_marks(columns)
    there = [number for number, process in state.processes.items() if process.host == committer]
    rows = indices(among(columns.process, [*there, *told.process[told.host == committer].tolist()]))
    return np.concatenate((columns.invoked[rows], columns.completed[rows]))


def _note(host: Host, times: Ints) -> None:
    times = np.sort(times)
    for i in indices(np.diff(times) > STANDSTILL).tolist():
        host.stood.append([int(times[i]), int(times[i + 1])])
    del host.stood[:-KEPT]


def spoken(state: State, columns: Columns, read: dict[int, int]) -> dict[int, list[int]]:
    """By host, through when its committer had read journals by its marks: by those of these rows (`read`), and by the
    newest before them; in order."""
    times: dict[int, list[int]] = {}
    for committer in each(columns.process[list(read)]) if read else ():
        host = state.hosts.get(committer)
        marked = {at for row, at in read.items() if columns.process[row] == committer}
        times[committer] = sorted(marked | ({host.now} if host is not None and host.now >= 0 else set()))
    return times


def note_stood(process: Process, at: int, spoke: Sequence[int]) -> None:
    """Its host tells of it at this time: note since when it had told of others only, if that was for long. `spoke`: its
    host's marks (`spoken`); where there was none meanwhile the host stood still, or the probe log was away."""
    since = process.vouched
    if since >= 0 and at - since > STANDSTILL and bisect_right(spoke, since) < bisect_left(spoke, at):
        process.stood = [*process.stood, [since, at]][-KEPT:]


def of_process(state: State, number: int, remembered: Last | None = None) -> list[list[int]]:
    """[from, to] of when a process tried nothing, as far as is known, in the order of their times. It may be over and
    forgotten, and be judged all the same: its last rows came late, or it waited for what another host saw.
    `remembered`: what was known of it then."""
    last = known(state, number) or remembered
    if last is None:
        return []
    host = state.hosts.get(last.host)
    stood = host.stood if host is not None else []
    if (process := state.processes.get(number)) is not None and process.stood:
        stood = sorted([*stood, *process.stood])
    return [*stood, [last.through, last.broke_off]] if last.through < last.broke_off else stood


def over(state: State, number: int) -> int:
    """When a life that is complete was over; NEVER where it is not, or nobody knows."""
    last = known(state, number)
    return last.over if last is not None and last.over >= 0 else NEVER


class Last(NamedTuple):
    """Of a process that is forgotten: its committer, through when it was at work, when it broke off (-1 if it did not),
    and when it was over."""

    host: int
    through: int
    broke_off: int
    over: int


def last_known(process: Process) -> Last:
    return Last(process.host, _worked_through(process), process.broke_off, process.closed if process.complete else -1)


def known(state: State, number: int) -> Last | None:
    """What is known of a process, while it lives and for a while after."""
    process = state.processes.get(number) or state.departed.get(number)
    if process is not None:
        return last_known(process)
    told = next((entry[2:] for entry in reversed(state.gone) if entry[0] == number), [])
    return Last(*told) if told else None  # an earlier version kept nothing of it


def went_on(state: State, number: int, time: int) -> int:
    """Until when a process tried nothing, last before `time`; -1 where it always did."""
    return max((end for _, end in of_process(state, number) if end <= time), default=-1)


def within(host: Host, since: int, through: int) -> int:
    """For how long a host stood still between two times, in microseconds, as far as is known."""
    return sum(max(0, min(end, through) - max(start, since)) for start, end in host.stood)


def note_read(state: State, process: Process) -> None:
    """A process is forgotten. Note when it was there, if it read."""
    if process.reads and (told := list(_read(process))) not in state.read_here:  # it may be forgotten again
        state.read_here.append(told)
        del state.read_here[:-READ_KEPT]


class _Read(NamedTuple):
    """A reader of the committer `host` was at work in [first, through): since it was assigned."""

    first: int
    through: int
    broke_off: int  # 1: it is not known what it tried after that
    host: int


def _read(process: Process) -> _Read:
    begun = process.assigned_at if process.assigned_at >= 0 else NEVER
    return _Read(begun, _worked_through(process), int(process.broke_off >= 0), process.host)


def _worked_through(process: Process) -> int:
    """Through when it was at work, as far as is known."""
    if process.broke_off >= 0:
        return min(max(process.vouched, process.first), process.broke_off)
    return process.closed if process.closed >= 0 else NEVER


def unread(state: State) -> list[tuple[int, int]]:
    """From when to when nobody read here because those who did stood still or had broken off; in the order of their
    times. Where one of a host broke off its disk was full, and those who found room for longer do not stand for the
    others: nobody counts there until another reader has begun."""
    lives = [_Read(*entry) for entry in state.read_here]
    lives += [_read(process) for process in state.processes.values() if process.reads]
    away: dict[int, list[list[int]]] = {}
    for host in {life.host for life in lives}:
        begun = sorted(life.first for life in lives if life.host == host)
        ends = {life.through for life in lives if life.host == host and life.broke_off}
        known = state.hosts.get(host)
        away[host] = [[end, next((one for one in begun if one > end), NEVER)] for end in sorted(ends)]
        away[host] += known.stood if known is not None else []
    at_work = [span for life in lives for span in _without((life.first, life.through), sorted(away[life.host]))]
    found = []
    for end in sorted({start for spans in away.values() for start, _ in spans}):
        if not any(start <= end < through for start, through in at_work):
            found.append((end, min((start for start, _ in at_work if start > end), default=NEVER)))
    return found


def _without(span: tuple[int, int], away: list[list[int]]) -> list[tuple[int, int]]:
    """The parts of a span outside these, which ascend."""
    since, through = span
    parts = []
    for start, end in away:
        parts.append((since, min(start, through)))
        since = max(since, end)
    return [(start, end) for start, end in [*parts, (since, through)] if start < end]
