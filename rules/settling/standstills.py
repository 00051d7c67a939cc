"""When nobody tried anything: a host stood still, or its probes could not write their journals.

A container that was frozen, a virtual machine that was paused, a host that was down: no call was tried there in that
time, so that none has failed, and nobody was too slow. It shows in the host's marks, which come every second else, and
in its processes, none of which invoked or completed anything in between. (Where only the probe log was away, marks are
missing, and rows of that time come with the next of them.)

Where the disk of the journals is full, probes stop, for what cannot be logged must not be sent. Their lives *break
off*: they say so, or nothing more can be written, and the committer finds them dead once there is room again. Until
then it cannot append either, so that its last mark before tells through when they lived. Here and there a row finds
room meanwhile. It is the same where a process was killed: what it tried last, nobody knows.

Who must do something within a time (`stuck-producer`, `stuck-consumer`) begins anew when the host goes on, and whoever
broke off was not stuck between the last mark that tells of it as living and its end. Where nobody read meanwhile, what
must be polled within a time (`unseen`) has as long from then on; one reader elsewhere that went on is enough for it to
be due as ever. What was due before is due.

State: the newest `KEPT` of each host; when the last `READ_KEPT` readers that are forgotten were at work.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.columns import Columns, all_marks
from rules.arrays.intervals import Ints, among, indices
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
    for committer in np.unique(columns.process[list(read)]).tolist() if read else ():
        host = state.hosts.setdefault(committer, Host())
        marked = [at for row, at in read.items() if columns.process[row] == committer and at > host.now]
        times = np.array([host.now, *marked] if host.now >= 0 else marked, np.int64)
        if _longest(times) > STANDSTILL:
            ran = _ran(state, columns, committer)
            _note(host, np.concatenate((times, ran[(ran > times.min()) & (ran < times.max())])))


def _ran(state: State, columns: Columns, committer: int) -> Ints:
    """When the host's processes invoked and completed something."""
    told = all_marks(columns)
    there = [number for number, process in state.processes.items() if process.host == committer]
    rows = indices(among(columns.process, [*there, *told.process[told.host == committer].tolist()]))
    return np.concatenate((columns.invoked[rows], columns.completed[rows]))


def _longest(times: Ints) -> int:
    return int(np.diff(np.sort(times)).max(initial=0))


def _note(host: Host, times: Ints) -> None:
    times = np.sort(times)
    for i in indices(np.diff(times) > STANDSTILL).tolist():
        host.stood.append([int(times[i]), int(times[i + 1])])
    del host.stood[:-KEPT]


def of_process(state: State, number: int) -> list[list[int]]:
    """[from, to] of when a process tried nothing, as far as is known, in the order of their times."""
    process = state.processes.get(number)
    if process is None:
        return []
    stood, through = _stood(state, process), _worked_through(process)
    return [*stood, [through, process.broke_off]] if through < process.broke_off else stood


def _stood(state: State, process: Process) -> list[list[int]]:
    host = state.hosts.get(process.host)
    return host.stood if host is not None else []


def went_on(state: State, number: int, time: int) -> int:
    """Until when a process tried nothing, last before `time`; -1 where it always did."""
    return max((end for _, end in of_process(state, number) if end <= time), default=-1)


def note_read(state: State, process: Process) -> None:
    """A process is forgotten. Note when it was there, if it read."""
    if process.reads:
        state.read_here.append([process.first, _worked_through(process), int(process.broke_off >= 0)])
        del state.read_here[:-READ_KEPT]


def _worked_through(process: Process) -> int:
    """Through when it was at work, as far as is known."""
    if process.broke_off >= 0:
        return min(max(process.vouched, process.first), process.broke_off)
    return process.closed if process.closed >= 0 else NEVER


def unread(state: State) -> list[tuple[int, int]]:
    """From when to when nobody read here because those who did stood still or had broken off; in the order of their
    times."""
    at_work, ends = list[tuple[int, int]](), set[int]()
    for first, through, broke_off in state.read_here:
        at_work.append((first, through))
        if broke_off:
            ends.add(through)
    for process in state.processes.values():
        if not process.reads:
            continue
        since, through = process.first, _worked_through(process)
        for start, end in _stood(state, process):
            if since < start < through:
                at_work.append((since, start))
                ends.add(start)
            since = max(since, end)
        if since < through:
            at_work.append((since, through))
        if process.broke_off >= 0:
            ends.add(through)
    found = []
    for end in sorted(ends):
        if not any(start <= end < through for start, through in at_work):
            found.append((end, min((start for start, _ in at_work if start > end), default=NEVER)))
    return found
