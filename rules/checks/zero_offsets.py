"""`spurious-zero-offset`: an acknowledgement or a committed offset is 0 while a higher one was known before.

A committed 0 is spurious only if nobody asked for it: it waits until all that may have is here. "Before" is concluded
only within one clock domain: the monotonic clock of one boot, or, where a history has no boots
(a file), its own time. What was known must have completed before the zero was invoked: that an offset above 0 was is
enough, and the highest of those that are here by then is told. Zero positions and polls of a
process that stood higher are found where its steps are judged, in `rules.checks.poll_order`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from rules.arrays.columns import COMMIT, FAIL, OFFSETS, OK, group_names
from rules.arrays.intervals import Ints, indices
from rules.checks import known_ends
from rules.kept.check import Check, News, Passage
from rules.kept.state import State
from rules.settling.clocks import domains
from rules.settling.gate import Evidence

ZEROS_KEPT: Final = 16
"""Zeros of a partition that wait to hear of a higher offset before them: those that came first."""


@dataclass(slots=True)
class Zeros:
    """By domain, and for committed offsets by domain and group ("domain|group"), the earliest [time, offset] above 0
    that was known, and the highest (`top`, `committed_top`), for as many as there were boots and groups.
    `acknowledged`: [domain, invoked, writer, seq, process, op, completed], and `committed`: [key, invoked, answered,
    completed, process, boot, highest known before] of the zeros that wait, at most `ZEROS_KEPT` of each; `asked`: when
    somebody asked first for 0, by key."""

    above: dict[str, list[int]] = field(default_factory=dict)
    top: dict[str, list[int]] = field(default_factory=dict)
    acknowledged: list[tuple[str, int, int, int, int, int, int]] = field(default_factory=list)
    committed_above: dict[str, list[int]] = field(default_factory=dict)
    committed_top: dict[str, list[int]] = field(default_factory=dict)
    committed: list[list[Any]] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)


class _Times(NamedTuple):
    """The rows' domains, and their times in them."""

    names: list[str]
    domain: Ints
    invoked: Ints
    completed: Ints


class _Told(NamedTuple):
    """The offsets above 0 that new rows tell, and when and by whose clock they had."""

    domain: Ints
    at: Ints
    top: Ints


def arrive(own: Zeros, new: News) -> None:
    """Learn the offsets that new rows tell, and judge the zeros among them."""
    times = _Times(*domains(new.columns))
    _judge_acknowledged(own, new, times, _learn(own, new, times))
    _judge_committed(own, new, times)


def _judge_acknowledged(own: Zeros, new: News, times: _Times, told: _Told) -> None:
    columns, acknowledged = new.columns, new.acknowledged
    names, domain, invoked, _ = times
    for i in indices(acknowledged.offset == 0).tolist():
        row = int(acknowledged.row[i])
        if invoked[row] >= 0:
            own.acknowledged.append(
                (
                    names[int(domain[row])], int(invoked[row]), int(acknowledged.writer[i]), int(acknowledged.seq[i]),
                    int(columns.process[row]), int(columns.op[row]), int(columns.completed[row]),
                )
            )  # fmt: skip
    kept = []
    for zero in own.acknowledged:
        boot, when, writer, seq, process, op, at = zero
        known = own.above.get(boot)
        if known is None or known[0] >= when:
            kept.append(zero)
            continue
        here = told.top[(told.domain == (names.index(boot) if boot in names else -1)) & (told.at < when)]
        own_top = own.top[boot][1] if own.top[boot][0] < when else 0
        top = max(known[1], own_top, _top_before(new.state, boot, when), int(here.max(initial=0)))
        new.report.add(
            "spurious-zero-offset",
            ("acknowledgement", writer, seq),
            f"value {writer}/{seq} was acknowledged at offset 0 when offset {top} was known before",
            at=at,
            evidence={"writer": writer, "seq": seq, "known": top, "process": process, "op": op},
        )
    own.acknowledged = kept[:ZEROS_KEPT]


def _top_before(state: State, boot: str, when: int) -> int:
    """The highest offset that was known before this time of the boot, as far as it is remembered from steps before
    this one (`rules.checks.known_ends`); -1 for none."""
    known = state.checks.get(known_ends.CHECK.name)
    if known is None or (boot and boot not in state.boot_names):
        return -1
    domain, step = (state.boot_names.index(boot), known_ends.STEP * 1000) if boot else (-1, known_ends.STEP)
    return int(known_ends.known_before(known.tops, np.array([domain]), np.array([when // step]))[0])


def _learn(own: Zeros, new: News, times: _Times) -> _Told:
    """Note, for each domain, the earliest time at which an offset above 0 was known."""
    names, domain, _, completed = times
    acked, polled, told = new.acknowledged, new.polled, indices(new.fresh & (new.columns.log_end > 0))
    row = np.concatenate((acked.row, polled.row, told))
    known = (np.where(runs.offset >= 0, runs.offset + runs.length - 1, -1) for runs in (acked, polled))
    top = np.concatenate((*known, new.columns.log_end[told]))
    keep = (top > 0) & (completed[row] >= 0)
    row, top = row[keep], top[keep]
    for number, name in enumerate(names):
        here = indices(domain[row] == number)
        if len(here):
            first = here[int(np.argmin(completed[row[here]]))]
            when = [int(completed[row[first]]), int(top[first])]
            own.above[name] = min(own.above.get(name, when), when)
            highest = here[int(np.argmax(top[here]))]
            when = [int(completed[row[highest]]), int(top[highest])]
            own.top[name] = _higher(own.top.get(name, when), when)
    return _Told(domain[row], completed[row], top)


def _higher(one: list[int], other: list[int]) -> list[int]:
    """Of two [time, offset] the higher offset; of the same the earlier one."""
    return max(one, other, key=lambda told: (told[1], -told[0]))


def _judge_committed(own: Zeros, new: News, times: _Times) -> None:
    columns, names = new.columns, times.names
    _, domain, invoked, completed = times
    rows = new.where(COMMIT, OFFSETS)
    rows = rows[(columns.type[rows] != FAIL) & (columns.committed[rows] >= 0)]
    groups = group_names(columns) if len(rows) else {}
    for row in rows.tolist():
        key = f"{names[int(domain[row])]}|{groups.get(row, '')}"
        offset, ok = int(columns.committed[row]), columns.type[row] == OK
        if offset > 0 and ok:
            when = [int(completed[row]), offset]
            own.committed_above[key] = min(own.committed_above.get(key, when), when)
            own.committed_top[key] = _higher(own.committed_top.get(key, when), when)
            for zero in own.committed:
                if zero[0] == key and when[0] < zero[1]:
                    zero[6] = max(zero[6], offset)
        elif offset == 0 and columns.f[row] == COMMIT:
            own.asked[key] = min(own.asked.get(key, int(invoked[row])), int(invoked[row]))
        elif offset == 0 and ok and len(own.committed) < ZEROS_KEPT:
            told = int(columns.completed[row]), int(columns.process[row]), int(columns.boot[row])
            top = own.committed_top.get(key)
            known = top[1] if top is not None and top[0] < invoked[row] else -1
            own.committed.append([key, int(invoked[row]), int(completed[row]), *told, known])


def fold(own: Zeros, passage: Passage) -> None:
    """Decide the committed zeros as far as everything is here that may have asked for them."""
    kept, report = [], passage.report
    for zero in own.committed:
        key, when_read, answered, at, process, boot, top = zero
        known = own.committed_above.get(key)
        if _asked_for(own, key, answered):
            continue
        evidence = passage.gate.ask(0, at, boot=boot)
        if known is None or known[0] >= when_read or evidence is Evidence.NOT_YET:
            kept.append(zero)
            continue
        if evidence is Evidence.UNVERIFIABLE:
            continue
        group = key.partition("|")[2]
        top = max(top, known[1])
        if report.once(f"committed-zero:{group}:{known[1]}"):
            report.add(
                "spurious-zero-offset",
                ("committed", group),
                f"the committed offset of group {group} reads 0 when {top} was committed before",
                at=at,
                evidence={"group": group, "known": top, "process": process},
            )
    own.committed = kept


def _asked_for(own: Zeros, key: str, answered: int) -> bool:
    """May somebody of the group have asked for 0 before it was told? By another clock nobody knows."""
    domain, _, group = key.partition("|")
    for other, asked in own.asked.items():
        where, _, whose = other.partition("|")
        if whose == group and (where != domain or asked <= answered):
            return True
    return False


CHECK: Final = Check("spurious-zero-offset", Zeros, arrive=arrive, fold=fold)
