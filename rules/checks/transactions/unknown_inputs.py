"""Which inputs a group's transforms take for a stranger's: records of a run that their host does not know yet.

Part of `transforms`. Where a transform lists records of a run as a stranger's, what writers of that run sent is no
input of its group's, as far as its polls that list them went, and further on until the group's next transform begins,
or as long as the one lives that listed them last: another one of the group that begins meanwhile may never be given the
partition.

State: each run that a group does not know, until the group's next transform has begun, the one that listed it is over,
and all is settled that it was said of; the writers that live, those of what is not settled, and the newest
`WRITERS_KEPT` beside them. Of more than `PAIRS_KEPT` runs the oldest are dropped, which is told (`rules.kept.dropped`):
of their groups no input is told until they begin again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rules.arrays.columns import FOREIGN, Runs, irregulars, said_to_stand_here
from rules.arrays.intervals import Bools, Ints, among, indices
from rules.kept.check import FOREVER, News
from rules.kept.report import Report
from rules.kept.state import Process, State

PAIRS_KEPT: Final = 256
WRITERS_KEPT: Final = 256


@dataclass(slots=True)
class UnknownInputs:
    """`strange_runs`: [group, run that it does not know, offsets of the polls that list such records, from and until,
    when the last of them was, whose that was, when that one closed, -1 while that is not known]; `blind`: groups of
    which some of these were dropped, and when the last of those was; `born`: when the newest transform of each group
    began; `wrote`: [writer, run] of those that send here."""

    strange_runs: list[list[Any]] = field(default_factory=list)
    blind: dict[str, int] = field(default_factory=dict)
    born: dict[str, int] = field(default_factory=dict)
    wrote: list[list[Any]] = field(default_factory=list)


def note_start(own: UnknownInputs, new: News, row: int, told: dict[str, str]) -> None:
    """A process began, as its settings tell: a transform of a group, or somebody who sends here."""
    if new.columns.table["kind"][row].as_py() == "transform" and told.get("group.id"):
        began = int(new.columns.completed[row])
        own.born[told["group.id"]] = max(began, own.born.get(told["group.id"], -1))
    if told.get("writer", "").isdecimal() and told.get("sends_to") == new.state.topic:
        own.wrote.append([int(told["writer"]), new.columns.table["run"][row].as_py()])


def note_strangers(own: UnknownInputs, new: News, groups: dict[int, str]) -> None:
    """Which runs the transforms do not know: they list records of them that were meant for this partition. `groups`:
    those of the transforms, by process."""
    if not new.columns.tells("irregular"):
        return
    odd = irregulars(new.columns)
    odd = odd.take(new.fresh[odd.row] & (odd.status == FOREIGN))
    here, writer, _ = said_to_stand_here(new.columns, odd)
    told = odd.listed.field("run").take(pa.array(odd.at))
    process, polled = new.columns.process[odd.row], new.columns.polled
    known = {(one[0], one[1]): one for one in own.strange_runs}
    wrote = {(one[0], one[1]) for one in own.wrote}
    for i in indices(here & among(process, groups)).tolist():
        group, run, row = groups[int(process[i])], told[i].as_py() or "", int(odd.row[i])
        if (int(writer[i]), run) not in wrote:
            wrote.add((int(writer[i]), run))
            own.wrote.append([int(writer[i]), run])
        mine = (polled.row == row) & (polled.offset >= 0)
        low = int(min(odd.offset[i], polled.offset[mine].min(initial=FOREVER)))
        high = int(max(odd.offset[i], (polled.offset + polled.length)[mine].max(initial=0) - 1))
        if (group, run) not in known:
            known[group, run] = [group, run, low, high, -1, -1, -1]
            own.strange_runs.append(known[group, run])
        entry, at = known[group, run], int(new.columns.completed[row])
        entry[2:4] = min(entry[2], low), max(entry[3], high)
        if at >= entry[4]:
            entry[4:] = at, int(process[i]), -1


def unknown_to(own: UnknownInputs, group: str, runs: Runs, times: Ints, processes: Mapping[int, Process]) -> Bools:
    """Which of these inputs, settled at these `times`, the group's transforms take for a stranger's, or may do so."""
    if group in own.blind:
        return np.ones(len(runs), bool)
    found = np.zeros(len(runs), bool)
    for of, run, low, high, at, process, closed in own.strange_runs:
        if of == group:
            theirs = {int(writer) for writer, name in own.wrote if name == run}
            goes_on = (at >= own.born.get(group, -1)) | (times <= _over(process, closed, processes))
            found |= among(runs.writer, theirs) & (runs.offset >= low) & ((runs.offset <= high) | goes_on)
    return found


def _over(process: int, closed: int, processes: Mapping[int, Process]) -> int:
    """When it was over, `FOREVER` while it lives, -1 where nobody knows any more."""
    if closed < 0 and process in processes:
        closed = processes[process].closed
        return FOREVER if closed < 0 else closed
    return closed


def forget(own: UnknownInputs, state: State, report: Report) -> None:
    """Drop what is settled, and what is too much."""
    for one in own.strange_runs:
        one[6] = max(one[6], state.processes[one[5]].closed if one[5] in state.processes else -1)
    own.strange_runs = [
        one
        for one in own.strange_runs
        if one[4] >= own.born.get(one[0], -1)
        or one[3] >= state.settled
        or _over(one[5], one[6], state.processes) == FOREVER
    ]
    own.blind = {group: at for group, at in own.blind.items() if at >= own.born.get(group, -1)}
    over = len(own.strange_runs) - PAIRS_KEPT
    if over > 0:
        own.strange_runs.sort(key=lambda one: int(one[4]))
        for group, _, _, _, at, *_ in own.strange_runs[:over]:
            own.blind[group] = max(at, own.blind.get(group, -1))
        del own.strange_runs[:over]
        report.drop("runs that transforms do not know", over)
    if len(own.wrote) > WRITERS_KEPT:
        writing = {process.writer for process in state.processes.values()} | set(state.log.writer.tolist())
        last = len(own.wrote) - WRITERS_KEPT
        own.wrote = [one for i, one in enumerate(own.wrote) if i >= last or one[0] in writing]
