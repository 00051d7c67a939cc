"""`evidence-late`: what one process did, or all on one host, is not known as far as the rest. It names them.

Log time goes on without a process that is late (`rules.settling.completeness`), and what does not need its log is
judged on time. What needs it waits, however long: this says for whom. Four things hold a process back, each longer
than log time waits for anybody: an *operation* of it is open, or its committer has not read on; *rows* of it are
missing that its committer has counted; its committer does not tell of its *journal* any more, though it has not closed;
or its whole *host* is silent while others are not. Of the last two all processes of a host are told as one.

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
    """`told`: [subject, number, since, told last]: a process, or a host or its journals, by its committer."""

    told: list[list[Any]] = field(default_factory=list)


class _Held(NamedTuple):
    """Why somebody is late: the log time through which it is known, and what is told of it."""

    since: int
    hold: Literal["operation", "rows", "journals", "host"]
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
        _tell("ended", (kind, number), _Held(since, "operation", "", {}), now, report)
    own.told = kept


def _held(state: State) -> dict[tuple[str, int], _Held]:
    found: dict[tuple[str, int], _Held] = {}
    together: dict[tuple[Literal["host", "journals"], int], list[int]] = {}
    for number, process, through in lateness(state):
        since = through if through >= 0 else process.first
        host = state.hosts[process.host]
        if host.silent:
            together.setdefault(("host", process.host), []).append(host.now)
        elif process.marks or host.now - process.marked <= LATE:
            found["process", number] = _of_process(number, process, since, host.now)
        else:
            together.setdefault(("journals", process.host), []).append(max(since, process.marked))
    for (hold, committer), times in together.items():
        since, processes = min(times), len(times)
        of = f"of the host of committer {committer}"
        message = (
            f"nothing has come {of} for {_seconds(state.now - since)} s, nor what {processes} processes did there"
            if hold == "host"
            else f"{processes} processes {of} have not closed, and nothing is told of them for"
            f" {_seconds(state.now - since)} s"
        )
        found[hold, committer] = _Held(since, hold, message, {"host": committer, "processes": processes})
    return found


def _of_process(number: int, process: Process, since: int, now: int) -> _Held:
    told = {"process": number, "host": process.host}
    if process.marks:
        rows = process.marks[-1][0] - process.next
        message = f"{rows} rows of process {number} are missing: it is known as of {_seconds(now - since)} s ago"
        return _Held(since, "rows", message, told | {"rows": rows})
    message = f"process {number} is known as of {_seconds(now - since)} s ago, since when an operation of it is open"
    return _Held(since, "operation", message, told)


def _seconds(micros: int) -> int:
    return round(micros / 1e6)


def _tell(kind: Literal["holds", "ended"], subject: tuple[str, int], one: _Held, at: int, report: Report) -> None:
    evidence = {**one.evidence, "hold": one.hold} if kind == "holds" else {subject[0]: subject[1]}
    told = {
        "anomaly": NAME,
        "subject": list(subject),
        "decidable": min(one.since + LATE, at) if kind == "holds" else at,
        "waits": one.hold == "operation",
        "message": one.message,
        "evidence": {**evidence, "since": one.since, "behind_s": round((at - one.since) / 1e6, 3)},
    }
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


CHECK: Final = Check(NAME, Late, fold=fold, live_only=True)
