"""Where a partition's evidence begins, when rows before that have been aged out of the probe log.

State that is rebuilt from an aged log meets processes in mid-life: their first slices are gone for ever, and nobody
must wait for them. What those slices said is unknown, among other things what they polled. So two things are told to a
partition before its first step:

- *where each process's log begins*: its slices below that number are neither waited for nor counted as missing;
- *since when all of it is there* (`State.begins`): a value sent before that time may have been polled by a slice that
  is gone, so its absence from later polls proves nothing. It is never called lost, unseen or suspected.

What is seen stays proven: a duplicate or an aborted read that lies in the rows which are left is found as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rules.engine import order
from rules.kept.state import Process, State, dump
from rules.vocabulary.objectives import SECOND

MARGIN: Final = 600 * SECOND
"""Log time after the last slice that is gone, during which absence is not judged: the hosts' clocks may differ, and a
send may take long. Far more than either."""


def begun(gone: Mapping[int, tuple[int, int]]) -> bytes:
    """The hot value of a partition of whose processes the first slices are gone, before its first step.

    `gone`: process -> (how many of its slices are gone, a log time by which the last of them had completed)."""
    state = State(begins=max((time for _, time in gone.values()), default=-1 - MARGIN) + MARGIN)
    for process, (slices, time) in gone.items():
        state.processes[process] = Process(next=slices, first=time)
    return dump(state, order.KINDS)
