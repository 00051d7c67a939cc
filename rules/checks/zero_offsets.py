"""`spurious-zero-offset`: an acknowledgement or a committed offset is 0 while a higher one was known before.

A committed 0 is spurious only if nobody asked for it: it waits until all that may have is here. "Before" is concluded
only within one clock domain: the monotonic clock of one boot, or, where a history has no boots
(a file), its own time. What was known must have completed before the zero was invoked. Zero positions and polls of a
process that stood higher are found where its steps are judged, in `rules.checks.poll_order`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rules.arrays.columns import COMMIT, FAIL, OFFSETS, OK, group_names
from rules.arrays.intervals import Ints, indices
from rules.kept.check import Check, News, Passage
from rules.settling.clocks import domains
from rules.settling.gate import Evidence

ZEROS_KEPT: Final = 16
"""Zeros of a partition that wait to hear of a higher offset before them: those that came first."""


@dataclass(slots=True)
class Zeros:
    """By domain, and for committed offsets by domain and group ("domain|group"), the earliest [time, offset] above 0
    that was known, for as many as there were boots and groups. `acknowledged`: [domain, invoked, writer, seq, process,
    op, completed], and `committed`: [key, invoked, answered, completed, process, boot] of the zeros that wait, at most
    `ZEROS_KEPT` of each; `asked`: when somebody asked first for 0, by key."""

    above: dict[str, list[int]] = field(default_factory=dict)
    acknowledged: list[tuple[str, int, int, int, int, int, int]] = field(default_factory=list)
    committed_above: dict[str, list[int]] = field(default_factory=dict)
    committed: list[tuple[str, int, int, int, int, int]] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)


class _Times(NamedTuple):
    """The rows' domains, and their times in them."""

    names: list[str]
    domain: Ints
    invoked: Ints
    completed: Ints


def arrive(own: Zeros, new: News) -> None:
    """Learn the offsets that new rows tell, and judge the zeros among them."""
    times = _Times(*domains(new.columns))
    _learn(own, new, times)
    _judge_acknowledged(own, new, times)
    _judge_committed(own, new, times)


def _judge_acknowledged(own: Zeros, new: News, times: _Times) -> None:
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
        new.report.add(
            "spurious-zero-offset",
            ("acknowledgement", writer, seq),
            f"value {writer}/{seq} was acknowledged at offset 0 when offset {known[1]} was known before",
            at=at,
            evidence={"writer": writer, "seq": seq, "known": known[1], "process": process, "op": op},
        )
    own.acknowledged = kept[:ZEROS_KEPT]


def _learn(own: Zeros, new: News, times: _Times) -> None:
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
        elif offset == 0 and columns.f[row] == COMMIT:
            own.asked[key] = min(own.asked.get(key, int(invoked[row])), int(invoked[row]))
        elif offset == 0 and ok and len(own.committed) < ZEROS_KEPT:
            told = int(columns.completed[row]), int(columns.process[row]), int(columns.boot[row])
            own.committed.append((key, int(invoked[row]), int(completed[row]), *told))


def fold(own: Zeros, passage: Passage) -> None:
    """Decide the committed zeros as far as everything is here that may have asked for them."""
    kept, report = [], passage.report
    for zero in own.committed:
        key, when_read, answered, at, process, boot = zero
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
        if report.once(f"committed-zero:{group}:{known[1]}"):
            report.add(
                "spurious-zero-offset",
                ("committed", group),
                f"the committed offset of group {group} reads 0 when {known[1]} was committed before",
                at=at,
                evidence={"group": group, "known": known[1], "process": process},
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
