"""`spurious-zero-offset`: an acknowledgement or a committed offset is 0 while a higher one was known before.

A committed 0 is spurious only if nobody asked for it: it waits until all that may have is here. Where something of a
log is missing for good, somebody may have asked for it there, and that explains each zero until an offset above 0 is
committed that was acknowledged so much later (`UNDERWAY`) that it took effect after it. "Before" is concluded only
within one clock domain: the monotonic clock of one boot, or, where a history has no boots (a file), its own time. What
was known must have completed before the zero was invoked: that an offset above 0 was is enough, and the highest of
those that are here by then is told. A zero before which none was waits for such a one, which may come late, until all
that was invoked before it is here: then there is none. Zero positions and polls of a process that stood higher are
found where its steps are judged, in `poll_order`.

State: what waits. Of acknowledgements the newest `ZEROS_KEPT`, beside those that log time has not come to: whatever
shows that an older one is spurious shows it of the newer ones, and what is dropped is told (`rules.kept.dropped`). Of
each group's zeros, by each clock, `READINGS_KEPT`: of more, every second one of the older half goes. The newest is
spurious if any of them is, so that no verdict is lost by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from rules.arrays.columns import COMMIT, FAIL, OFFSETS, OK, group_names
from rules.arrays.intervals import EMPTY, Ints, each, indices, newest
from rules.checks.ends import known_ends
from rules.kept.check import FOREVER, Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.kept.state import State
from rules.settling.clocks import domains
from rules.settling.gate import Evidence
from rules.vocabulary.objectives import SECOND

ZEROS_KEPT: Final = 4096
READINGS_KEPT: Final = 16
UNDERWAY: Final = 600 * SECOND
"""What was asked for so long before, by whichever clock, has taken effect."""


@dataclass(slots=True)
class Acknowledged(Table):
    """Values that were acknowledged at offset 0: invoked when, by the clock of `boot` (a number of `State.boot_names`,
    -1 for none), and, in log time, completed `at`."""

    boot: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Zeros:
    """By domain, and for committed offsets by domain and group ("domain|group"), the earliest [time, offset] above 0
    that was known, and the highest (`top`, `committed_top`), for as many as there were boots and groups; when one was
    committed last, and that in log time (`committed_last`). `acknowledged`, and `committed`: [key, invoked, answered,
    completed, process, boot, highest known before, when one was committed last before], are the zeros that wait;
    `asked`: when somebody asked first for 0, by key."""

    above: dict[str, list[int]] = field(default_factory=dict)
    top: dict[str, list[int]] = field(default_factory=dict)
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    committed_above: dict[str, list[int]] = field(default_factory=dict)
    committed_top: dict[str, list[int]] = field(default_factory=dict)
    committed_last: dict[str, list[int]] = field(default_factory=dict)
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
    columns, runs = new.columns, new.acknowledged
    names, invoked = times.names, times.invoked
    zeros = indices(runs.offset == 0)
    zeros = zeros[invoked[runs.row[zeros]] >= 0]
    row = runs.row[zeros]
    waiting = concat(
        own.acknowledged,
        Acknowledged(
            columns.boot[row],
            invoked[row],
            runs.writer[zeros],
            runs.seq[zeros],
            columns.process[row],
            columns.op[row],
            columns.completed[row],
        ),
    )
    if not len(waiting):
        return
    spurious = np.zeros(len(waiting), bool)
    for number in each(waiting.boot):
        boot = _name_of(new.state, number)
        if boot in own.above:
            spurious |= (waiting.boot == number) & (waiting.invoked > own.above[boot][0])
    for i in indices(spurious).tolist():
        boot, when = _name_of(new.state, int(waiting.boot[i])), int(waiting.invoked[i])
        here = told.top[(told.domain == (names.index(boot) if boot in names else -1)) & (told.at < when)]
        own_top = own.top[boot][1] if own.top[boot][0] < when else 0
        top = max(own.above[boot][1], own_top, _top_before(new.state, boot, when), int(here.max(initial=0)))
        writer, seq = int(waiting.writer[i]), int(waiting.seq[i])
        evidence = {"writer": writer, "seq": seq, "known": top} | {
            name: int(getattr(waiting, name)[i]) for name in ("process", "op")
        }
        new.report.add(
            "spurious-zero-offset",
            ("acknowledgement", writer, seq),
            f"value {writer}/{seq} was acknowledged at offset 0 when offset {top} was known before",
            at=int(waiting.at[i]),
            evidence=evidence,
        )
    waiting = take(waiting, ~spurious)
    kept = newest(waiting.at, ZEROS_KEPT, new.state.tick)
    new.report.drop("acknowledgements at offset 0", len(kept) - int(kept.sum()))
    own.acknowledged = take(waiting, kept)


def _name_of(state: State, number: int) -> str:
    return state.boot_names[number] if number >= 0 else ""


def _top_before(state: State, boot: str, when: int) -> int:
    """The highest offset that was known before this time of the boot, as far as it is remembered from steps before this
    one (`known_ends`); -1 for none."""
    known = state.checks.get(known_ends.CHECK.name)
    if known is None:
        return -1
    domain, step = (state.boot_names.index(boot), known_ends.STEP * 1000) if boot else (-1, known_ends.STEP)
    found, _ = known_ends.known_before(known.tops, np.array([domain]), np.array([when // step]))
    return int(found[0])


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
            last = [when[0], int(columns.completed[row])]
            own.committed_last[key] = max(own.committed_last.get(key, last), last)
            for zero in own.committed:
                if zero[0] == key and when[0] < zero[1]:
                    zero[6], zero[7] = max(zero[6], offset), max(zero[7], last[1])
        elif offset == 0 and columns.f[row] == COMMIT:
            own.asked[key] = min(own.asked.get(key, int(invoked[row])), int(invoked[row]))
        elif offset == 0 and ok:
            told = int(columns.completed[row]), int(columns.process[row]), int(columns.boot[row])
            known = [
                one[1] if one is not None and one[0] < invoked[row] else -1
                for one in (own.committed_top.get(key), own.committed_last.get(key))
            ]
            own.committed.append([key, int(invoked[row]), int(completed[row]), *told, *known])
            _thin_out(own, key)


def _thin_out(own: Zeros, key: str) -> None:
    """Of too many zeros of one group, by one clock, those go that neighbours stand for."""
    mine = sorted((zero for zero in own.committed if zero[0] == key), key=lambda zero: int(zero[1]))
    if len(mine) > READINGS_KEPT:
        gone = mine[1 : READINGS_KEPT // 2 : 2]
        own.committed = [zero for zero in own.committed if zero not in gone]


def fold(own: Zeros, passage: Passage) -> None:
    """Decide the committed zeros as far as everything is here that may have asked for them, and let those go before
    which nothing was known."""
    _let_go(own, passage)
    kept, report = [], passage.report
    for zero in own.committed:
        key, when_read, answered, at, process, boot, top, last = zero
        since, highest = own.committed_above.get(key, (FOREVER, -1))
        if _asked_for(own, key, answered):
            continue
        start = max(last - UNDERWAY, 0)
        evidence = passage.gate.ask(start, at, boot=boot)
        if evidence is not Evidence.COMPLETE:  # what was given up may come after all
            kept.append(zero)
            continue
        if since >= when_read or start <= passage.state.holes_forgotten:
            continue
        group = key.partition("|")[2]
        top = max(top, highest)
        if report.once(f"committed-zero:{group}:{highest}"):
            report.add(
                "spurious-zero-offset",
                ("committed", group),
                f"the committed offset of group {group} reads 0 when {top} was committed before",
                at=at,
                evidence={"group": group, "known": top, "process": process},
            )
    own.committed = kept


def _let_go(own: Zeros, passage: Passage) -> None:
    """Drop the acknowledgements before which nothing was known, and nothing will be."""
    waiting = own.acknowledged
    if not len(waiting):
        return
    sound = np.zeros(len(waiting), bool)
    for boot in each(waiting.boot):
        mine = indices(waiting.boot == boot)
        sound[mine] = passage.gate.complete(np.zeros(len(mine), np.int64), waiting.at[mine], boot=boot)
    own.acknowledged = take(waiting, ~sound)


def _asked_for(own: Zeros, key: str, answered: int) -> bool:
    """May somebody of the group have asked for 0 before it was told? By another clock nobody knows."""
    domain, _, group = key.partition("|")
    for other, asked in own.asked.items():
        where, _, whose = other.partition("|")
        if whose == group and (where != domain or asked <= answered):
            return True
    return False


CHECK: Final = Check("spurious-zero-offset", Zeros, arrive=arrive, fold=fold)
