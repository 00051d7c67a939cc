"""What is kept of groups, commits and reads between steps for `committed_offsets`, and what bounds it.

The groups' names, at most `GROUPS` (others are not followed, which is told). Of each group the newest `COMMITS_KEPT`
commits that may yet be missed, and the newest `READS_KEPT` reads by a process, in each clock domain in which a process
lives, and the newest `DOMAINS` beside these; and all since the group's log was last complete, at most `WAITING_KEPT`,
and what log time has not come to. Commits of unknown outcome, at most `UNSURE_KEPT`: any lower offset may be one. Which
commits were ever invoked (`invoked_commits`). The groups of living processes and of those of whose groups reads wait,
at most `MEMBERS_KEPT`, when as many of these joined, and which of them hold the partition, at most `HOLDS_KEPT`
changes. The newest `TOLD_KEPT` verdicts. What is dropped of what waits is told (`rules.kept.dropped`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from rules.arrays.intervals import EMPTY, Ints, among, each, indices
from rules.checks.committed import invoked_commits
from rules.checks.committed.commit_rows import DONE, NEVER, Commits, Holds, Joins, Members, Reads
from rules.checks.committed.invoked_commits import ANY, Invoked, InvokedCommits
from rules.checks.committed.unknown_commits import UnknownCommits
from rules.kept.chunks import Chunks
from rules.kept.codec import Table, concat, take
from rules.kept.report import Report
from rules.kept.state import Hole, State
from rules.settling.gate import APART

GROUPS: Final = 64
COMMITS_KEPT: Final = 4
READS_KEPT: Final = 2
DOMAINS: Final = 16
WAITING_KEPT: Final = 16_384
HOLDS_KEPT: Final = 4096
MEMBERS_KEPT: Final = 1024
"""Of more, who is not known to be a member may be one, and who is not known to have joined proves nothing."""
UNSURE_KEPT: Final = 256
TOLD_KEPT: Final = 64
"""An older verdict that is given once more is the same finding."""
SLACK: Final = 64
WEEK: Final = 7 * 24 * 60
T = TypeVar("T", bound=Table)


@dataclass(slots=True)
class Floors(Table):
    """Of the commits of a group and domain that are not kept any more: when the last one had completed, and the highest
    offset."""

    group: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    completed: Ints = field(default_factory=lambda: EMPTY)
    highest: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Committed:
    """`groups`: their names by number, None where one is free; `subscribed`: those that were subscribed to. `commits`,
    `told`: the newest, and those since the log was last complete; so many of the first commits were `compared` with all
    that had come by then; `waiting`: reads that are not judged yet; `first`: what was told first of groups of which
    nothing was known. `unsure`: commits of which nobody knows whether they took place, or when; of offsets up to
    `unsure_to` any may be one. `unknown`: where members' logs are missing. `retention`: [as of when, minutes] of what
    groups have committed; `made_anew`: since when processes say that the topic was made anew under them, -1 where none
    does; `observed`: the newest time at which the partition was; `kept`: how many entries were left when the last were
    forgotten. `pending`: [when, anomaly, subject, message, evidence, at, group, domain, since,
    acknowledged, asked, beyond] of verdicts that wait for the partition to be observed after `when`, and before that,
    where `since` is a time, for the log of the group through `when`; of a lost commit by when that was `acknowledged`,
    and since when it was `asked` for; `beyond` is an end of the log (`Reads.end`) where the verdict holds only of what
    lies above it, else -1; `losses`: [group, told, domain, acknowledged, asked] of the newest that
    were told; `unclear`: [anomaly, *subject] of those of `pending` for which it is not known yet whether something is
    missing in between; `reported`: of all."""

    groups: list[str | None] = field(default_factory=lambda: [""])
    commits: Commits = field(default_factory=Commits)
    compared: int = 0
    floors: Floors = field(default_factory=Floors)
    waiting: Reads = field(default_factory=Reads)
    told: Reads = field(default_factory=Reads)
    first: Invoked = field(default_factory=Invoked)
    invoked: InvokedCommits = field(default_factory=InvokedCommits)
    unsure: Invoked = field(default_factory=Invoked)
    unsure_to: int = -1
    unknown: UnknownCommits = field(default_factory=UnknownCommits)
    members: Members = field(default_factory=Members)
    holds: Holds = field(default_factory=Holds)
    joins: Joins = field(default_factory=Joins)
    subscribed: list[int] = field(default_factory=list)
    retention: list[int] = field(default_factory=lambda: [-1, WEEK])
    made_anew: int = -1
    observed: int = -1
    kept: int = 0
    pending: list[list[Any]] = field(default_factory=list)
    losses: list[list[Any]] = field(default_factory=list)
    unclear: list[list[Any]] = field(default_factory=list)
    reported: list[list[Any]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [name or "" for name in self.groups]


def number_of_group(groups: list[str | None], name: str) -> int:
    """The group's number, a new one where it has none yet; -1 where there is none left."""
    if name in groups:
        return groups.index(name)
    if None in groups:
        groups[groups.index(None)] = name
        return groups.index(name)
    if len(groups) > GROUPS:
        return -1
    groups.append(name)
    return len(groups) - 1


def note_members(own: Committed, new: set[tuple[int, int, int, int]]) -> None:
    """Note which groups processes are of: entries of `Members`."""
    table = own.members
    columns = (table.process, table.group, table.reads, table.domain)
    more = new - {*zip(*(column.tolist() for column in columns), strict=True)} if new else new
    if more:
        own.members = concat(table, Members(*np.array(sorted(more), np.int64).T))


def note_joins(own: Committed, new: Joins) -> None:
    """Note when processes joined their groups, each once."""
    both = concat(own.joins, new)
    both = take(both, np.lexsort((both.invoked, both.process)))
    own.joins = take(both, indices(np.diff(both.process, prepend=-1) != 0))


def note_unsure(own: Committed, new: Invoked) -> None:
    """Note commits of which nobody knows whether they took place."""
    both = np.unique(
        np.stack((np.append(own.unsure.offset, new.offset), np.append(own.unsure.group, new.group))), axis=1
    )
    more = both.shape[1] - UNSURE_KEPT
    if more > 0:
        own.unsure_to = max(own.unsure_to, int(both[0, more - 1]))
    offset, group = both[:, both[0] > own.unsure_to]
    own.unsure = Invoked(group, offset)


def spoil(own: Committed) -> None:
    """Note since when a lower commit may have taken the place of each: since one was invoked that completed after it
    had been invoked. Where such a one may have been dropped before they could be compared, nothing is known: since
    ever."""
    commits, fresh = own.commits, np.arange(len(own.commits)) >= own.compared
    for group, domain in {*zip(commits.group[fresh].tolist(), commits.domain[fresh].tolist(), strict=True)}:
        rows = indices((commits.group == group) & (commits.domain == domain))
        floor = own.floors.completed[(own.floors.group == group) & (own.floors.domain == domain)].max(initial=-1)
        new, old = rows[fresh[rows]], rows[~fresh[rows]]
        _compare(commits, new, rows)
        _compare(commits, old, new)
        commits.spoiled[new[commits.invoked[new] <= floor]] = -1
    own.compared = len(commits)


def _compare(commits: Commits, rows: Ints, others: Ints) -> None:
    """Note since when one of the others, of which there are some, may have taken the place of each of these."""
    offset, completed, invoked = commits.offset[others], commits.completed[others], commits.invoked[others]
    for part in np.array_split(rows, -(-len(rows) // 512)) if len(rows) else ():
        later = (offset < commits.offset[part][:, None]) & (completed >= commits.invoked[part][:, None])
        since = np.where(later, invoked, NEVER).min(axis=1)
        commits.spoiled[part] = np.minimum(commits.spoiled[part], since)


def is_full(own: Committed) -> bool:
    """Is it time to forget something?"""
    return len(own.commits) + len(own.told) + len(own.holds) + len(own.members) >= own.kept + SLACK


def forget(own: Committed, report: Report, late: set[int], until: tuple[int, int]) -> None:
    """Keep what later reads need. `late` are the groups whose log is not complete up to the first of the times `until`;
    to the second everybody's is."""
    state = report.state
    asked_for = [*state.processes, *(hole[0] for hole in state.holes)]
    members = among(own.members.process, asked_for)
    members |= (own.members.reads == 0) & among(own.members.group, own.waiting.group)  # its reads are not judged yet
    own.members = take(take(own.members, members), slice(-MEMBERS_KEPT, None))
    joined = among(own.joins.process, [*asked_for, *own.waiting.process.tolist()])
    own.joins = take(take(own.joins, joined), slice(-MEMBERS_KEPT, None))
    spoil(own)
    _forget_commits(own, late, until[0], report)
    told = own.told
    own.told = take(told, newest(told, (told.process, told.domain, told.group), told.completed, READS_KEPT))
    _bound_waiting(own, report)
    _forget_domains(own, state)
    # A read that waits asks who held the partition then, by the clock of its reader.
    _forget_holds(own, (int(own.waiting.at.min(initial=NEVER)) - APART, until[1]), report)
    own.first = take(own.first, slice(-GROUPS, None))
    used = {
        number
        for table in (
            own.commits,
            own.waiting,
            own.told,
            own.first,
            own.unsure,
            own.members,
            own.holds,
            own.invoked.pending,
            own.invoked.written,
        )
        for number in each(table.group)
    }
    own.subscribed = [number for number in own.subscribed if number in used]
    own.groups = [name if number in used or number == ANY else None for number, name in enumerate(own.groups)]
    own.pending = report.newest(own.pending, TOLD_KEPT, "verdicts on committed offsets")
    del own.reported[:-TOLD_KEPT], own.losses[:-TOLD_KEPT]
    own.kept = len(own.commits) + len(own.told) + len(own.holds) + len(own.members)


def newest(table: Table, keys: tuple[Ints, ...], by: Ints, number: int) -> Ints:
    """Of the entries with the same keys the last `number`, as indices in order."""
    if not len(table):
        return EMPTY
    order = np.lexsort((by, *keys))
    changes = np.zeros(len(order), bool)
    changes[-1] = True
    for key in keys:
        changes[:-1] |= np.diff(key[order]) != 0
    ends = indices(changes)
    end = ends[ends.searchsorted(np.arange(len(order)))]
    return np.sort(order[end - np.arange(len(order)) < number])


def _forget_commits(own: Committed, late: set[int], end: int, report: Report) -> None:
    commits = own.commits
    if not len(commits):
        return
    open_cases = {verdict[6] for verdict in own.pending if verdict[8] >= 0}
    keep = (commits.at > end) | among(commits.group, late | open_cases)
    past = indices(~keep)  # what is kept for its own sake must not count for what the next reads need
    before = take(commits, past)
    keep[past[newest(before, (before.domain, before.group), before.completed, 1)]] = True
    good = past[(before.kind >= DONE) & (before.spoiled == NEVER)]
    one = take(commits, good)
    keep[good[newest(one, (one.domain, one.group), one.completed, COMMITS_KEPT)]] = True
    told = (one.group == own.told.group[:, None]) & (one.domain == own.told.domain[:, None])
    keep[good[(told & (one.offset == own.told.offset[:, None])).any(axis=0)]] = True
    waiting = indices(keep & (commits.at <= end))
    if len(waiting) > WAITING_KEPT:
        report.drop("commits", len(waiting) - WAITING_KEPT)
        keep[waiting[commits.completed[waiting].argsort(kind="stable")[:-WAITING_KEPT]]] = False
    gone = take(commits, ~keep)
    if len(gone):
        floors = concat(own.floors, Floors(gone.group, gone.domain, gone.completed, gone.offset))
        (group, domain), which = np.unique(np.stack((floors.group, floors.domain)), axis=1, return_inverse=True)
        completed, highest = np.full((2, len(group)), -1)
        np.maximum.at(completed, which, floors.completed)
        np.maximum.at(highest, which, floors.highest)
        own.floors = Floors(group, domain, completed, highest)
    own.commits = take(commits, keep)
    own.compared = len(own.commits)


def _bound_waiting(own: Committed, report: Report) -> None:
    """Too many wait, of those that log time has come to: those go that tell what the same process was told before and
    after."""
    reached = own.waiting.at <= report.state.tick
    if np.count_nonzero(reached) <= WAITING_KEPT:
        return
    waiting, ahead = take(own.waiting, reached), take(own.waiting, ~reached)
    waiting = take(waiting, np.lexsort((waiting.completed, waiting.process, waiting.domain, waiting.group)))
    same = np.ones(len(waiting) - 1, bool)
    for name in ("group", "domain", "process", "offset"):
        same &= np.diff(getattr(waiting, name)) == 0
    between = np.zeros(len(waiting), bool)
    between[1:-1] = same[:-1] & same[1:]
    waiting = take(waiting, ~between)
    waiting = take(waiting, waiting.at.argsort(kind="stable"))
    own.waiting = concat(report.last(waiting, WAITING_KEPT, "readings of committed offsets"), ahead)


def _forget_domains(own: Committed, state: State) -> None:
    """Drop what the clocks of boots that are long over told."""
    domain = np.concatenate((own.commits.domain, own.told.domain))
    at = np.concatenate((own.commits.at, own.told.at))
    living = {process.boot for process in state.processes.values()}
    over = [number for number in each(domain) if number not in living]
    if len(over) <= DOMAINS:
        return
    kept = {*living, *sorted(over, key=lambda number: int(at[domain == number].max()))[-DOMAINS:]}
    own.commits = take(own.commits, among(own.commits.domain, kept))
    own.compared = len(own.commits)
    own.told = take(own.told, among(own.told.domain, kept))
    own.floors = take(own.floors, among(own.floors.domain, kept))


def let_go_unsaid(holds: Holds, state: State) -> Holds:
    """When members let go, at the earliest, that are over and never said so: lost with their hosts, they hold nothing
    from where their logs end."""
    last = take(holds, newest(holds, (holds.process,), holds.at, 1))
    living = {number for number, process in state.processes.items() if not process.complete}
    last = take(last, (last.holds == 1) & ~among(last.process, living))
    ends = {hole.process: hole.start for hole in sorted(map(Hole._make, state.holes), key=lambda hole: hole.start)}
    at = [max(at, ends.get(process, at)) for process, at in zip(last.process.tolist(), last.at.tolist(), strict=True)]
    return Holds(last.group, last.process, np.array(at, np.int64), np.zeros(len(last), np.int64), last.domain)


def _forget_holds(own: Committed, until: tuple[int, int], report: Report) -> None:
    """Of each process the last of the changes up to both of these times, and those after it; to the second everybody's
    log is here, so that what says the same as the one before tells nothing. Who is gone held nothing of late."""
    holds = concat(own.holds, let_go_unsaid(own.holds, report.state))
    if not len(holds):
        return
    holds = take(holds, np.lexsort((holds.holds, holds.at, holds.process)))
    keep = np.ones(len(holds), bool)
    for process in each(holds.process):
        rows = indices((holds.process == process) & (holds.at <= until[1]))
        keep[rows] = np.diff(holds.holds[rows], prepend=-1) != 0
        before = rows[keep[rows] & (holds.at[rows] <= until[0])]
        keep[before[:-1]] = False
        if len(before) and not holds.holds[before[-1]] and process not in report.state.processes:
            keep[before[-1]] = False
    holds = take(holds, keep)
    reached = take(holds, holds.at.argsort(kind="stable"))
    own.holds = report.last(reached, HOLDS_KEPT, "changes of who holds the partition")


def forget_below(own: Committed, log_start: int, chunks: Chunks) -> None:
    """Drop the bitmaps that lie below the log start."""
    invoked_commits.forget_below(own.invoked, log_start, chunks, own.names)
