"""`evidence-late`: what one process did, or all on one host, is not known as far as the rest. It names them.

Log time goes on without a process that is late (`rules.settling.completeness`), and what does not need its log is
judged on time. What needs it waits, however long: this says for whom. These hold a process back, each longer than log
time waits for anybody: an *operation* of it is open, or its committer has not read on; *rows* of it are missing that
its committer has counted; its committer does not tell of its *journals* any more, though it has not closed; its whole
*host* is silent while others are not; or the host goes on, and is behind another one by its *clock*, or its log comes
so much later than that one's. Of the last three all processes of a host are told as one. One that is told as behind is
so until it is less than half as much: clocks that are half a minute apart would else come and go.

While a host stood still (`rules.settling.standstills`) nobody there was late: probes that were frozen in the middle of
an operation have as long as ever to end it when they go on.

Where the checks catch up, a host that is down already is seen to be behind all at once. Whether it goes on, its next
mark says; where none comes it is silent, and is told as that half a minute later.

Each partition tells stage 2, which tells it once (`rules.across.shared_conditions`). An operation that is open while
the cluster answers nobody waits on the cluster.

A host is named as its processes say that it is called, by the run of its probes, and by its committer.

State: for each that is late, since when, and when it was told last; of several hosts, when each went on last; of each
host, its run and what it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import orjson

from rules.arrays.columns import START
from rules.kept.check import Check, News, Passage
from rules.kept.report import Report
from rules.kept.state import NEVER, State
from rules.settling import standstills
from rules.settling.completeness import LATE, lateness
from rules.vocabulary.conditions import EVIDENCE_LATE
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import HOSTNAME

AGAIN: Final = 60 * SECOND
"""It is told again while it lasts, so that stage 2 can forget a partition that is gone."""
_GOES_ON: Final = 2


@dataclass(slots=True)
class Going:
    """A host's time, and the newest time of all hosts when it was first heard of. `behind`: 1 since it was seen to be
    late, and `_GOES_ON` once it has gone on while it was."""

    now: int
    heard: int
    behind: int = 0


@dataclass(slots=True)
class Late:
    """`told`: [subject, number, since, told last, why]: a process, or a host or its journals, by its committer.
    `hosts`: by committer, where there are several. `names`: [committer, run of the newest process there, what that says
    the host is called]; `starting`: [process, the same] of those of which it is not known yet where they are."""

    told: list[list[Any]] = field(default_factory=list)
    hosts: dict[int, Going] = field(default_factory=dict, metadata={"of": Going})
    names: list[list[Any]] = field(default_factory=list)
    starting: list[list[Any]] = field(default_factory=list)


class _Names(NamedTuple):
    """The run of a host's probes, and what the host is called, "" where nobody said."""

    run: str
    hostname: str


_Named = Mapping[int, _Names]
"""By committer."""


_Hold = Literal["operation", "rows", "journals", "host", "clock"]


class _Held(NamedTuple):
    """Why somebody is late: the log time through which it is known, and what is told of it. `stood`: for how long its
    host stood still since then, in microseconds."""

    since: int
    hold: _Hold
    message: str
    evidence: dict[str, Any]
    stood: int = 0


def arrive(own: Late, new: News) -> None:
    """Which run new processes belong to, and what they say their host is called."""
    columns = new.columns
    runs, settings = columns.table["run"], columns.table["settings"]
    for row in new.where(START).tolist():
        hostname = dict(settings[row].as_py() or ()).get(HOSTNAME, "")
        own.starting.append([int(columns.process[row]), runs[row].as_py(), hostname])


def _note_names(own: Late, state: State) -> None:
    waiting, names = [], {committer: told for committer, *told in own.names}
    for process, *told in own.starting:
        known = state.processes.get(process)
        if known is not None and known.host >= 0:
            names[known.host] = told
        elif known is not None:
            waiting.append([process, *told])
    own.starting = waiting
    own.names = [[host, *told] for host, told in names.items() if host in state.hosts]


def fold(own: Late, passage: Passage) -> None:
    """Tell who is late now, and who no longer is."""
    state, report = passage.state, passage.report
    if own.starting:
        _note_names(own, state)
    names = {committer: _Names(*told) for committer, *told in own.names}
    now, silent = state.now, _silent(own, state)
    if passage.gate.known_through() >= now - LATE and not any(host.silent for host in state.hosts.values()):
        held = {}  # nobody can be later than that, by the clock of any host
    else:
        going_on = {committer for committer, going in own.hosts.items() if going.behind == _GOES_ON}
        held = _held(state, silent, going_on, names)
    if not held and not own.told:
        return
    known = {(kind, number): [since, told, hold] for kind, number, since, told, hold in own.told}
    held |= _still_behind(state, silent, names, known.keys() - held.keys())
    kept = []
    for (kind, number), one in held.items():
        since, told, hold = known.pop((kind, number), (one.since, -1, one.hold))
        if told < 0 and one.hold == "operation" and report.outages.undecided(EVIDENCE_LATE, now, state.run_of(number)):
            continue
        if told < 0 or now - told >= AGAIN or hold == "clock" != one.hold:
            told = now
            _tell("holds", (kind, number), one, now, report, state.run_of(number))
        kept.append([kind, number, since, told, one.hold])
    for (kind, number), (since, *_) in known.items():
        _tell("ended", (kind, number), _Held(since, "operation", "", {}), now, report)
    own.told = kept


def _silent(own: Late, state: State) -> set[int]:
    """The hosts that have not gone on for long, whatever their clocks say."""
    known = own.hosts if len(state.hosts) > 1 else {}
    own.hosts = {}
    for committer, host in state.hosts.items() if len(state.hosts) > 1 else ():
        before = known.get(committer)
        going = Going(host.now, state.now) if before is None or before.now != host.now else before
        if state.now - host.now <= LATE // 2:
            going.behind = 0
        elif before is not None and before.behind and going is not before:
            going.behind = _GOES_ON
        elif not going.behind:
            going.behind = int(state.now - host.now > LATE)
        own.hosts[committer] = going
    return {committer for committer, going in own.hosts.items() if state.now - going.heard > LATE}


def _held(state: State, silent: Set[int], going_on: Set[int], names: _Named) -> dict[tuple[str, int], _Held]:
    found: dict[tuple[str, int], _Held] = {}
    together: dict[tuple[_Hold, int], list[int]] = {}
    for number, process, through in lateness(state):
        since = through if through >= 0 else process.first
        host = state.hosts[process.host]
        stood = standstills.within(host, since, host.now)
        if process.host in silent:
            together.setdefault(("host", process.host), []).append(host.now)
        elif host.now - since - stood <= LATE:
            if process.host in going_on:
                together.setdefault(("clock", process.host), []).append(host.now)
        elif process.marks or host.now - process.marked <= LATE:
            found["process", number] = _of_process(state, number, since, host.now, names)._replace(stood=stood)
        else:
            together.setdefault(("journals", process.host), []).append(max(since, process.marked))
    for (hold, committer), times in together.items():
        if hold == "clock":
            one = _behind(committer, min(times), len(times), state, names)
        else:
            one = _of_host(hold, committer, min(times), len(times), state.now, names)
        found["journals" if hold == "journals" else "host", committer] = one
    return found


def _still_behind(
    state: State, silent: set[int], names: _Named, told: Set[tuple[str, int]]
) -> dict[tuple[str, int], _Held]:
    """Of those that were told as late, the hosts that are hardly less behind than when they were."""
    found: dict[tuple[str, int], _Held] = {}
    for kind, committer in told:
        host = state.hosts.get(committer)
        if kind != "host" or host is None or committer in silent or state.now - host.now <= LATE // 2:
            continue
        if processes := sum(one.host == committer and one.known_through != NEVER for one in state.processes.values()):
            found[kind, committer] = _behind(committer, host.now, processes, state, names)
    return found


def _behind(committer: int, since: int, processes: int, state: State, names: _Named) -> _Held:
    """A host whose clock is behind another's, or whose log is. Which of the two clocks is wrong nobody knows here."""
    newest = max(state.hosts, key=lambda number: state.hosts[number].now)
    before = f"{_name(committer, names)} is {_seconds(state.now - since)} s behind"
    if newest == committer:
        message = f"{before} what was told before its last boot, by its clock"
    else:
        message = f"{before} {_name(newest, names)}, by either's clock or because its log comes late"
    return _Held(since, "clock", message, _evidence(committer, names, processes) | {"newest": newest})


def _name(committer: int, names: _Named) -> str:
    if committer not in names:
        return f"the host of committer {committer}"
    run, hostname = names[committer]
    if hostname:
        return f"the host {hostname} (run {run}, committer {committer})"
    return f"the host of run {run} (committer {committer})"


def _evidence(committer: int, names: _Named, processes: int) -> dict[str, Any]:
    hostname = names[committer].hostname if committer in names else ""
    return {"host": committer, **({"hostname": hostname} if hostname else {}), "processes": processes}


def _of_host(hold: _Hold, committer: int, since: int, processes: int, now: int, names: _Named) -> _Held:
    of, seconds = _name(committer, names), _seconds(now - since)
    message = {
        "host": f"nothing has come of {of} for {seconds} s, nor what {processes} processes did there",
        "journals": f"{processes} processes of {of} have not closed, and nothing is told of them for {seconds} s",
    }
    return _Held(since, hold, message[hold], _evidence(committer, names, processes))


def _of_process(state: State, number: int, since: int, now: int, names: _Named) -> _Held:
    process, of = state.processes[number], state.called(number)
    told = {"process": number, "host": process.host}
    if process.host in names:
        run, hostname = names[process.host]
        of += f" of run {run}" + (f" on {hostname}" if hostname else "")
    if process.marks:
        rows = process.marks[-1][0] - process.next
        message = f"{rows} rows of {of} are missing: it is known as of {_seconds(now - since)} s ago"
        return _Held(since, "rows", message, told | {"rows": rows})
    message = f"{of} is known as of {_seconds(now - since)} s ago, since when an operation of it is open"
    return _Held(since, "operation", message, told)


def _seconds(micros: int) -> int:
    return round(micros / 1e6)


def _tell(
    kind: Literal["holds", "ended"], subject: tuple[str, int], one: _Held, at: int, report: Report, run: str = ""
) -> None:
    evidence = {**one.evidence, "hold": one.hold} if kind == "holds" else {subject[0]: subject[1]}
    told = {
        "anomaly": EVIDENCE_LATE,
        "subject": list(subject),
        "decidable": min(one.since + one.stood + LATE, at) if kind == "holds" else at,
        "waits": one.hold == "operation",
        "run": run,
        "message": one.message,
        "evidence": {**evidence, "since": one.since, "behind_s": round((at - one.since) / 1e6, 3)},
    }
    report.facts.add(kind, np.array([at]), about=[orjson.dumps(told).decode()])


CHECK: Final = Check(EVIDENCE_LATE, Late, arrive=arrive, fold=fold, live_only=True, rows=frozenset({START}))
