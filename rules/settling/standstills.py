"""When a host stood still: nothing ran there, neither its probes nor its committer.

A container that was frozen, a virtual machine that was paused, a host that was down: no call was tried there in that
time, so that none has failed, and nobody was too slow. It shows in the host's marks, which come every second else, and
in its processes, none of which invoked or completed anything in between. (Where only the probe log was away, marks are
missing, and rows of that time come with the next of them.) Who must do something within a time (`stuck-producer`,
`stuck-consumer`) begins anew when the host goes on.

State: the newest `KEPT` of each host.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.columns import Columns, all_marks
from rules.arrays.intervals import Ints, among, indices
from rules.kept.state import Host, State
from rules.vocabulary.objectives import SECOND

STANDSTILL: Final = 25 * SECOND
"""A host under load gives a thread its turn far sooner; and a batch may lack marks that come with a later one."""
KEPT: Final = 8


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
    """[from, to] of when the host of a process stood still, in the order of their times."""
    process = state.processes.get(number)
    host = state.hosts.get(process.host) if process is not None else None
    return host.stood if host is not None else []


def went_on(state: State, number: int, time: int) -> int:
    """When the host of a process went on last before `time`, -1 where it never stood still."""
    return max((end for _, end in of_process(state, number) if end <= time), default=-1)
