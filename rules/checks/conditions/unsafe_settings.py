"""`under-replicated-probe-topic` and `unsafe-config`: settings that do not give the safety that was promised.

The observer's rows tell what the cluster says of the probe topic, start rows what a client was started with. The newest
row counts, in log time, whatever the order in which they come. A topic is under-replicated where it has fewer replicas,
or fewer in-sync replicas to acknowledge, than were asked for, or where nobody made it (`created_by` says `auto`). A
topic is unsafe with unclean leader election, or where compaction may delete what is judged; a writer is unsafe without
idempotence or acks=all, unless it says of itself that it is none (`idempotent=false`): what was meant is no fault.
A topic that the observer says is not there promises nothing, until it is told of its settings again.

State: for each kind of statement, when it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from rules.arrays.columns import CLOSE, OFFSETS, START
from rules.arrays.intervals import indices
from rules.checks.ends.not_there import not_there
from rules.kept.check import Check, News
from rules.kept.report import Report
from rules.kept.state import State
from rules.vocabulary.settings import ASKED, natural

_COMPACTED: Final = ("cleanup.policy",)
"""Whose condition it is that compaction may delete what is judged. Unclean leader election is the topic's own."""


@dataclass(slots=True)
class Settings:
    """`told`: when the topic's settings that count were told, -1 for never."""

    told: int = -1


def arrive(own: Settings, new: News) -> None:
    """Open and close both conditions by the new rows."""
    state, columns, fresh, report = new.state, new.columns, new.fresh, new.report
    closing = fresh & columns.where(CLOSE)
    gone = np.zeros(len(columns), dtype=bool)
    gone[not_there(columns, new.where(OFFSETS))] = True
    if not columns.tells("settings") and not (closing | gone).any() and not _open(state):
        return
    has = columns.table["settings"].is_valid().to_numpy() & fresh & columns.where(OFFSETS, START) | closing | gone
    for row in indices(has)[np.argsort(columns.completed[has], kind="stable")].tolist():
        at, number = int(columns.completed[row]), int(columns.process[row])
        if columns.f[row] == CLOSE:
            _end(number, at, report)
            continue
        if gone[row]:
            if at >= own.told:
                own.told = at
                _forget_topic(at, report)
            continue
        told = {name: value for name, value in columns.table["settings"][row].as_py() if name != ASKED}
        if columns.f[row] == START:
            process = state.processes.get(number)
            _judge_client(number, told, at, report)
            if process is not None and process.closed >= 0:
                _end(number, process.closed, report)
        elif "replicas_asked" in told and at >= own.told:  # and not only which brokers do not answer
            own.told = at
            _judge_topic(told, at, report)
    for key in _open(state):
        number = int(key.partition(":")[2])
        if number not in state.processes:
            _end(number, state.now, report)


def _open(state: State) -> list[str]:
    """Those of clients."""
    topic = ":".join(("unsafe-config", *_COMPACTED))
    return [key for key in state.open_conditions if key.startswith("unsafe-config:") and key != topic]


def _end(number: int, at: int, report: Report) -> None:
    report.condition("unsafe-config", None, at=at, evidence={"process": number}, subject=(number,))


def _judge_topic(told: Mapping[str, str], at: int, report: Report) -> None:
    few = [
        f"{what} {told[have]} of {told[want]}"
        for what, have, want in (
            ("replicas", "replicas", "replicas_asked"),
            ("min in-sync replicas", "min_insync", "min_insync_asked"),
        )
        if 0 <= natural(told.get(have)) < natural(told.get(want))
    ]
    if told.get("created_by") == "auto":
        few.append("created automatically")
    report.condition(
        "under-replicated-probe-topic",
        f"the probe topic has {', '.join(few)}" if few else None,
        at=at,
        evidence=dict(told),
    )
    unclean, policy = told.get("unclean_leader_election") == "true", told.get("cleanup_policy", "")
    for subject, unsafe in (
        ((), "unclean leader election is on" if unclean else None),
        (_COMPACTED, f"cleanup.policy is {policy}" if "compact" in policy else None),
    ):  # one may come while the other is open
        report.condition(
            "unsafe-config",
            f"of the probe topic, {unsafe}" if unsafe else None,
            at=at,
            evidence=dict(told),
            subject=subject,
        )


def _forget_topic(at: int, report: Report) -> None:
    """The partition is not there any more."""
    for name, subject in (("under-replicated-probe-topic", ()), ("unsafe-config", ()), ("unsafe-config", _COMPACTED)):
        report.condition(name, None, at=at, evidence={}, subject=subject)


def _judge_client(number: int, told: Mapping[str, str], at: int, report: Report) -> None:
    if "writer" not in told or told.get("idempotent") == "false":
        return
    unsafe = {}
    if told.get("enable.idempotence", "true").lower() == "false":
        unsafe["enable.idempotence"] = told["enable.idempotence"]
    if told.get("acks", "all") not in ("all", "-1"):
        unsafe["acks"] = told["acks"]
    report.condition(
        "unsafe-config",
        f"{report.state.called(number)} writes with {' and '.join(f'{k}={v}' for k, v in unsafe.items())}"
        if unsafe
        else None,
        at=at,
        evidence={"process": number, **unsafe},
        subject=(number,),
    )


CHECK: Final = Check("unsafe-settings", Settings, arrive=arrive, live_only=True)
