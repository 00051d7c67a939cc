"""Processes that are over, though nothing says so: the end of their log is missing for good, and is not waited for.

A host tells in each mark of all that live there, and of those that are over until that is in the log. So whoever was
there, and is not told of by the first mark behind appends that are missing for good, was over in these. And whoever is
told of no more while its host goes on is given up as rows are that do not come. One that comes back all the same (it
was frozen for longer than anybody lets it) is heard of no more.
"""

from __future__ import annotations

from collections.abc import Iterable

from rules.arrays.columns import Columns
from rules.kept.state import Host, Process, State


def note_behind_a_gap(state: State, columns: Columns, marks: Iterable[int]) -> None:
    """These mark rows, all of them taken in, say that appends before them are missing for good."""
    for row in marks:
        host, at, boot = int(columns.process[row]), int(columns.completed[row]), int(columns.boot[row])
        for process in state.processes.values():
            if process.host == host and process.vouched < at and process.closes_at < 0:
                _end(process, at, boot)


def give_up(process: Process, host: Host, after: int) -> None:
    """End it where its host has gone on for so long (microseconds), and told of it no more."""
    if process.closes_at < 0 <= process.vouched < host.now - after:
        _end(process, process.vouched + after, host.boots[-1][0] if host.boots else -1)


def _end(process: Process, at: int, boot: int) -> None:
    """It was over by then."""
    process.lost_by = at if process.lost_by < 0 else min(process.lost_by, at)
    process.over_boot, process.lost, process.unsaid = boot, True, True
    process.closed, process.closes_at = max(process.closed, at), process.next
    process.marks.append([process.next, process.through, at])
