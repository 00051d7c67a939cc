"""`evidence-late`: what one process did, or all on one host, is not known as far as the rest. It names them.

Log time goes on without a process that is late (`rules.settling.completeness`), and what does not need its log is
judged on time. What needs it waits, however long: this says for whom. Four things hold a process back, each longer
than log time waits for anybody: an *operation* of it is open, *rows* of it are missing that its committer has counted,
its committer does not tell of its *journal* any more, or its whole *host* is silent while others are not. A host's
processes are not told singly.

Each partition tells stage 2, which tells it once (`rules.across.shared_conditions`). An operation that is open while
the cluster answers nobody waits on the cluster.

State: for each that is late, since when, and when it was told last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import orjson

from rules.kept.check import Check, Passage
from rules.kept.report import Report
from rules.kept.state import Process, State
from rules.settling.completeness import LATE, lateness
from rules.vocabulary.objectives import SECOND

NAME: Final = "evidence-late"
AGAIN: Final = 60 * SECOND
"""It is told again while it lasts, so that stage 2 can forget a partition that is gone."""


@dataclass(slots=True)
class Late:
    """`told`: [subject, number, since, told last], the subject being a host (its committer) or a process."""

    told: list[list[Any]] = field(default_factory=list)


class _Held(NamedTuple):
    """Why somebody is late: the log time through which it is known, and what is told of it."""

    since: int
    hold: Literal["operation", "rows", "journal", "host"]
    message: str
    evidence: dict[str, Any]


def fold(own: Late, passage: Passage) -> None:
    """Tell who is late now, and who no longer is."""
    state, report = passage.state, passage.report
    now, held = state.now, _held(state)
    if not held and not own.told:
        return
    known = {(kind, number): [since, told] for kind, number, since, told in own.told}
    kept = []
    for (kind, number), one in held.items():
        since, told = known.pop((kind, number), (one.since, -1))
        if told < 0 and one.hold == "operation" and report.outages.undecided(NAME, now):
            continue
        if told < 0 or now - told >= AGAIN:
            told = now
            _tell("holds", (kind, number), one, now, report)
        kept.append([kind, number, since, told])
    for (kind, number), (since, _) in known.items():
        _tell("ended", (kind, number), _Held(since, "host" if kind == "host" else "operation", "", {}), now, report)
    own.told = kept


def _held(state: State) -> dict[tuple[str, int], _Held]:
    found: dict[tuple[str, int], _Held] = {}
    silent: dict[int, int] = {}
    for number, process, through in lateness(state):
        if state.hosts[process.host].silent:
            silent[process.host] = silent.get(process.host, 0) + 1
        else:
            found["process", number] = _of_process(state, number, process, through)
    for committer, processes in silent.items():
        since = state.hosts[committer].now
        found["host", committer] = _Held(
            since, "host",
            f"nothing has come from the host of committer {committer} for {_seconds(state.now - since)} s, nor what"
            f" {processes} processes did there",
            {"host": committer, "processes": processes},
        )  # fmt: skip
    return found


def _of_process(state: State, number: int, process: Process, through: int) -> _Held:
    since = through if through >= 0 else process.first
    seconds = _seconds(state.hosts[process.host].now - since)
    told = {"process": number, "host": process.host}
    if process.marks:
        rows = process.marks[-1][0] - process.next
        message = f"{rows} rows of process {number} are missing from the log, which is known as of {seconds} s ago"
        return _Held(since, "rows", message, told | {"rows": rows})
    if state.hosts[process.host].now - process.marked > LATE:
        message = f"the committer of process {number} has told nothing of it for {seconds} s, and it has not closed"
        return _Held(since, "journal", message, told)
    return _Held(since, "operation", f"an operation of process {number} has been open for {seconds} s", told)


def _seconds(micros: int) -> int:
    return round(micros / 1e6)


def _tell(kind: Literal["holds", "ended"], subject: tuple[str, int], one: _Held, at: int, report: Report) -> None:
    told = {
        "anomaly": NAME,
        "subject": list(subject),
        "decidable": min(one.since + LATE, at) if kind == "holds" else at,
        "waits": one.hold == "operation",
        "message": one.message,
        "evidence": {
            **one.evidence, subject[0]: subject[1], "hold": one.hold, "since": one.since,
            "behind_s": round((at - one.since) / 1e6, 3),
        },
    }  # fmt: skip
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


CHECK: Final = Check(NAME, Late, fold=fold, live_only=True)
