"""`spurious-zero-offset`: an acknowledgement or a committed offset is 0 while a higher one was known before.

"Before" is concluded only within one clock domain: the monotonic clock of one boot, or, where a history has no boots
(a file), its own time. What was known must have completed before the zero was invoked. Zero positions and polls of a
process that stood higher are found where its steps are judged, in `rules.checks.poll_order`.
"""

from __future__ import annotations

import numpy as np

from rules.arrays.columns import COMMIT, FAIL, OFFSETS, OK, Columns, Runs
from rules.arrays.intervals import Bools, Ints
from rules.kept.report import Report
from rules.kept.state import State
from rules.settling.clocks import domains

ZEROS_KEPT = 16
"""Zeros of a partition that wait to hear of a higher offset before them: those that came first."""


def judge_zeros(state: State, columns: Columns, fresh: Bools, acknowledged: Runs, polled: Runs, report: Report) -> None:
    """`acknowledged` and `polled`: the new runs with known offsets."""
    names, domain, invoked, completed = domains(columns)
    _learn(state, names, domain, completed, columns, fresh, acknowledged, polled)
    for i in np.flatnonzero(acknowledged.offset == 0).tolist():
        row = int(acknowledged.row[i])
        if invoked[row] >= 0:
            state.zeros.append(
                (
                    names[int(domain[row])], int(invoked[row]), int(acknowledged.writer[i]), int(acknowledged.seq[i]),
                    int(columns.process[row]), int(columns.op[row]), int(columns.completed[row]),
                )
            )  # fmt: skip
    kept = []
    for zero in state.zeros:
        boot, when, writer, seq, process, op, at = zero
        known = state.above_zero.get(boot)
        if known is None or known[0] >= when:
            kept.append(zero)
            continue
        report.add(
            "spurious-zero-offset",
            ("acknowledgement", writer, seq),
            f"value {writer}/{seq} was acknowledged at offset 0 when offset {known[1]} was known before",
            at=at,
            evidence={"writer": writer, "seq": seq, "known": known[1], "process": process, "op": op},
        )
    state.zeros = kept[:ZEROS_KEPT]
    _judge_committed(state, names, domain, invoked, completed, columns, fresh, report)


def _learn(
    state: State,
    names: list[str],
    domain: Ints,
    completed: Ints,
    columns: Columns,
    fresh: Bools,
    acked: Runs,
    polled: Runs,
) -> None:
    """Note, for each domain, the earliest time at which an offset above 0 was known."""
    row = np.concatenate((acked.row, polled.row, np.flatnonzero(fresh & (columns.log_end > 0))))
    top = np.concatenate(
        (
            acked.offset + acked.length - 1,
            polled.offset + polled.length - 1,
            columns.log_end[fresh & (columns.log_end > 0)],
        )
    )
    keep = (top > 0) & (completed[row] >= 0)
    row, top = row[keep], top[keep]
    for number, name in enumerate(names):
        own = np.flatnonzero(domain[row] == number)
        if len(own):
            first = own[int(np.argmin(completed[row[own]]))]
            when = [int(completed[row[first]]), int(top[first])]
            state.above_zero[name] = min(state.above_zero.get(name, when), when)


def _judge_committed(
    state: State, names: list[str], domain: Ints, invoked: Ints, completed: Ints, columns: Columns, fresh: Bools,
    report: Report,
) -> None:  # fmt: skip
    rows = np.flatnonzero(fresh & columns.where(COMMIT, OFFSETS) & (columns.type != FAIL) & (columns.committed >= 0))
    groups = columns.table["group"]
    for row in rows.tolist():
        key = f"{names[int(domain[row])]}|{groups[row].as_py() or ''}"
        offset, ok = int(columns.committed[row]), columns.type[row] == OK
        if offset > 0 and ok:
            when = [int(completed[row]), offset]
            state.committed_above_zero[key] = min(state.committed_above_zero.get(key, when), when)
        elif offset == 0 and columns.f[row] == COMMIT:
            if key not in state.committed_zero_invoked:
                state.committed_zero_invoked.append(key)  # somebody asked for it
        elif offset == 0 and ok and len(state.committed_zeros) < ZEROS_KEPT:
            zero = (key, int(invoked[row]), int(columns.completed[row]), int(columns.process[row]))
            state.committed_zeros.append(zero)
    kept = []
    for zero in state.committed_zeros:
        key, when_read, at, process = zero
        known = state.committed_above_zero.get(key)
        if key in state.committed_zero_invoked:
            continue
        if known is None or known[0] >= when_read:
            kept.append(zero)
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
    state.committed_zeros = kept
