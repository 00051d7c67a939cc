"""`offset-regression`, `lost-commit`, `foreign-commit`: a group's committed offset is told, and it cannot be.

- `offset-regression`: a read, invoked after another one had completed, tells a lower offset, which no commit ever asked
  for.
- `lost-commit`: a read, invoked after an acknowledged commit had completed, tells a lower offset, and no lower commit
  was invoked since that commit was. Or it tells none, although the commit is younger than the offsets' retention.
- `foreign-commit`: a read tells an offset that nobody of the group ever committed, after a commit or a read that told
  otherwise. What had been committed when the log began is not known: the first that is told of a group proves nothing.

**Who asked for it.** A commit counts as invoked whatever became of it, since a delayed one may land late; so does where
an indefinite transaction that names no commit had polled to. An absent offset has expired, unless a younger commit says
otherwise, and is not lower. A 0 that nobody asked for is `spurious-zero-offset`.

**One loss is told once.** All that had been acknowledged when a group was asked for an offset, and is higher than what
was told, is lost with that: a commit of which that is found besides, because it is told to somebody else who knew of
more, or while the group's next commit is under way, is no further loss where the same offset is told. What has been
acknowledged since, and what is told lower still, is one.

**Before and later** are concluded within one clock domain (`rules.settling.clocks.domains`). A commit of another host
may have come in between unless the measured bound of the two clocks says otherwise; where there is none, no commit is
called lost if a member on another host committed the very offset that was told instead, whenever that was.

**Old is not lost.** A coordinator that has been deposed, and cut off so that it does not know it yet, tells what it
last knew. So a lost commit is concluded only from what is told to a process that must have been told of it: the one
whose commit was acknowledged; one that had read that offset, or a higher one, since the commit was invoked; or a member
that holds the partition and set about to join after the commit had been acknowledged, since a coordinator that could
make it a member was not deposed yet then. (What nobody ever committed an old coordinator does not know either.) A
transaction's offsets are told once its marker has reached the coordinator: a reader at read_committed gets an error
until then, and to others they prove nothing. Its producer's client cannot ask what was committed, and the consumer's
may know an old coordinator: before it asks it has something of its own acknowledged
(`probes.workloads.transactional.read_back`).

**Members that are not of this log** commit what it never asked for. They are known by what they take away: of a group
that is subscribed to, nothing is concluded from an unknown offset unless members of this log held the partition all the
while, or it lies beyond the log's end: nobody has read that far. So it is told where somebody set it, which is possible
only while the group has no member: those that were thrown out let go of everything before they are told. How high the
end was the first listing after the read tells, and any before, as the log may have been cut since. A group that is only
used in mode `assign` has no members; its name is this log's own.

**A topic that was made anew** has the name of the one before, and groups commit by names: until the lives of the topic
before are over, what they ask for lands in the new one, and what was known of the old one may be dropped late. For
`FORMER` after a process has told of it, nothing is lost or foreign there, and nobody went back.

**What fell into a hole.** Of what a member may have been asked to commit where its log is missing for good, nobody
knows that it never was (`unknown_commits`).

Decided once the log of whoever may commit for the group, or tells of it, is complete up to the read, and where no hole
in the log of one that may commit touches the time between the two that contradict each other. Where the reader knew of
a commit that was lost, what was done since that was invoked is enough, and `LANDED` before: who was over by then, or
misses rows from before, is not waited for; what is, by clocks that nobody can compare yet, waits until they are
compared. A lost or foreign commit is told when the partition has been observed for the grace time after it: a topic
that was made anew has other offsets.

What is kept, and what bounds it: `kept_commits`. How a read is judged: `commit_verdicts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from rules.arrays.columns import ASSIGN, CLOSE, COMMIT, OFFSETS, OK, REVOKE, START, SUBSCRIBE, TXN, Columns
from rules.arrays.intervals import Bools, Ints, among, each, indices, some
from rules.checks.committed import invoked_commits, kept_commits, unknown_commits
from rules.checks.committed.commit_rows import NEVER, NO_BOOT, GroupRows, Reads
from rules.checks.committed.commit_verdicts import (
    ANYBODY,
    LANDED,
    Case,
    ToldOffset,
    concerned,
    nobody_committed_elsewhere,
    nothing_is_missing,
)
from rules.checks.committed.earlier_commits import familiar, less
from rules.checks.committed.invoked_commits import ANY
from rules.checks.committed.kept_commits import Committed, number_of_group
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.codec import concat, take
from rules.kept.state import State
from rules.settling.clocks import ahead
from rules.settling.gate import Evidence, Gate
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import FORMER_TOPIC_ID

UNKNOWN_FOR: Final = 600 * SECOND
"""So long a read, or what was concluded from it, waits for the clocks of its group's members to be compared with its
own."""
ASKED_AGAIN: Final = 8
"""Of the reads that wait, and tell one process less than it knew, so many of a group are judged at each step."""
BEYOND: Final = 11
"""Where a verdict tells beyond which end what was told must lie."""
RETENTION: Final = "offsets_retention_minutes"
"""The setting by which the observer tells how long what groups have committed is kept."""
_OF_GROUPS: Final = frozenset({START, ASSIGN, SUBSCRIBE, REVOKE, CLOSE, COMMIT, TXN})
"""What tells of a group, or of all of them, without naming one."""


# New rows


def needs(own: Committed, asked: Asked) -> Iterable[str]:
    """The bitmaps of commits that are about to be written, and those of offsets that nobody is known to have
    committed lately."""
    if _tell_of_no_group(asked.columns) and not len(own.waiting) and not invoked_commits.is_full(own.invoked, 0):
        return ()
    groups = list(own.groups)
    rows = GroupRows(asked.columns, partial(number_of_group, groups))
    found: set[str] = set()
    if invoked_commits.is_full(own.invoked, len(asked.columns)):  # a row asks for no more than one
        new, _ = rows.invoked()
        if invoked_commits.is_full(own.invoked, len(new)):
            both = concat(own.invoked.pending, new)
            for group in each(both.group):
                found |= invoked_commits.chunks_of([groups[group] or ""], both.offset[both.group == group])
    reads = concat(own.waiting, rows.reads())
    reads = take(reads, reads.offset >= 0)
    if len(reads):
        reads = take(reads, ~familiar(own.commits, reads))
    if len(reads):
        reads = take(reads, ~familiar(rows.commits(_certainly_new(asked)), reads))
        for group in each(reads.group):
            found |= invoked_commits.chunks_of((groups[group] or "", ""), reads.offset[reads.group == group])
    return found


def _tell_of_no_group(columns: Columns) -> bool:
    """As most rows of most steps: they name none, and nobody begins, holds anything or commits."""
    return columns.functions.isdisjoint(_OF_GROUPS) and not columns.tells("group")


def _certainly_new(asked: Asked) -> Bools:
    """The rows that will be counted in for the first time, as far as that is plain: no other may be counted on."""
    columns, living = asked.columns, asked.state.departed | asked.state.processes
    forgotten = {entry[0] for entry in asked.state.gone}
    since: dict[int, int] = {}
    for number in each(columns.process):
        process = living.get(number)
        if process is None:
            since[number] = NEVER if number in forgotten else 0
        else:
            since[number] = NEVER if process.ahead else process.next
    return columns.slice >= np.array([since[number] for number in columns.process.tolist()], np.int64)


def arrive(own: Committed, new: News) -> None:
    """What the new rows committed, and were told."""
    columns, fresh = new.columns, new.fresh
    seen = new.where(OFFSETS)
    seen = seen[columns.type[seen] == OK]
    own.observed = max([own.observed, *columns.invoked[seen].tolist()])
    if columns.tells("settings"):
        _note_retention(own, columns, seen)
        _note_made_anew(own, columns, new.where(START))
    if _tell_of_no_group(columns):
        own.invoked.full = invoked_commits.is_full(own.invoked, 0)
        return
    rows = GroupRows(columns, partial(number_of_group, own.groups))
    new.report.drop("commits and readings of further groups", rows.unfollowed)
    kept_commits.note_members(own, rows.members(fresh))
    holds = rows.holds(fresh)
    if len(holds):
        own.holds = concat(own.holds, holds)
        own.subscribed = sorted({*own.subscribed, *holds.group.tolist()} - {ANY})
        if len(joins := rows.joins(fresh)):
            kept_commits.note_joins(own, joins)
    own.commits = concat(own.commits, rows.commits(fresh))
    own.waiting = concat(own.waiting, rows.reads(fresh))
    asked, unsure = rows.invoked()  # as `needs` counted them: all, also those that were here before
    own.invoked.full = invoked_commits.is_full(own.invoked, len(asked))
    if len(asked):
        invoked_commits.add(own.invoked, asked)
    if len(unsure):
        kept_commits.note_unsure(own, unsure)


def _note_made_anew(own: Committed, columns: Columns, begun: Ints) -> None:
    for row in begun.tolist():
        if FORMER_TOPIC_ID in dict(columns.table["settings"][row].as_py() or ()):
            at = int(columns.completed[row])
            own.made_anew = at if own.made_anew < 0 else min(own.made_anew, at)


def _note_retention(own: Committed, columns: Columns, seen: Ints) -> None:
    settings = columns.table["settings"]
    for row in seen.tolist():
        told = dict(settings[row].as_py() or ()).get(RETENTION, "")
        if told.isdigit():
            own.retention = max(own.retention, [int(columns.completed[row]), int(told)])


# Log time


def fold(own: Committed, passage: Passage) -> None:
    """Judge the reads up to which the log is complete, in the order of their times."""
    if len(own.groups) > 1:
        unknown_commits.note(own.unknown, passage)
        _note_ends(own, passage.gate)
    _fold(own, passage)
    unknown_commits.forget(own.unknown)
    if own.invoked.full:
        later = _later_than_waiting(own, passage.state)
        passage.report.drop(
            "commits after what was read", invoked_commits.write(own.invoked, passage.chunks, own.names, later)
        )
    kept_commits.forget_below(own, passage.state.log_start, passage.chunks)


def _note_ends(own: Committed, gate: Gate) -> None:
    """Note how high the log's end was after what waits had been told."""
    reads = own.waiting
    if len(reads):
        reads.end = np.minimum(reads.end, unknown_commits.highest_after(own.unknown, reads.at, reads.domain, gate))
    for verdict in own.pending:
        if verdict[BEYOND] >= 0:
            at, domain = np.array([[verdict[5]], [verdict[7]]], np.int64)
            found = unknown_commits.highest_after(own.unknown, at, domain, gate)
            verdict[BEYOND] = min(verdict[BEYOND], int(found[0]))


def _later_than_waiting(own: Committed, state: State) -> Bools:
    """Which of the commits that were invoked lately certainly came after a read that waits to be judged."""
    new, waiting = own.invoked.pending, own.waiting
    later = np.zeros(len(new), bool)
    for group, domain in {*zip(waiting.group.tolist(), waiting.domain.tolist(), strict=True)}:
        first = waiting.at[(waiting.group == group) & (waiting.domain == domain)].min()
        for other in each(new.domain):
            mine = among(new.group, (group, ANY)) & (new.domain == other)
            later |= mine & (new.since - first > ahead(state, other, domain))
    return later


def _fold(own: Committed, passage: Passage) -> None:
    ripe = own.waiting.at <= passage.end
    full = kept_commits.is_full(own)
    if not (some(ripe) or full or own.pending):
        return
    late = _late(own, passage) if full else set()
    if some(ripe):
        reads, rest = take(own.waiting, ripe), take(own.waiting, ~ripe)
        ready = _ready(own, reads, passage)
        early = take(reads, ~ready)
        over = _never_ready(own, early, passage) if len(early) else np.zeros(0, bool)
        own.waiting = concat(rest, take(early, ~over))
        own.told = concat(own.told, take(early, over))
        late |= set(each(early.group[~over]))
        _judge(own, take(reads, ready), passage)
        _judge_known(own, take(early, ~over), passage)
    _tell(own, passage)
    if full:
        through = min(passage.end, passage.gate.known_through())
        kept_commits.forget(own, passage.report, late, (passage.end, through))


def _late(own: Committed, passage: Passage) -> set[int]:
    """The groups whose log is not here up to the end."""
    groups = each(np.concatenate((own.waiting.group, own.commits.group)))
    whose = {group: replace(concerned(own, group, passage.state, NO_BOOT), newcomers=False) for group in groups}
    return {group for group in groups if passage.gate.ask(0, passage.end, whose[group]) is Evidence.NOT_YET}


def _ready(own: Committed, reads: Reads, passage: Passage) -> Bools:
    """Which of the reads lie before what is still awaited of their group's log, by the clock of the read. While no
    member of a group is known, all of its log is awaited."""
    ready, known = np.ones(len(reads), bool), _known_groups(own)
    for group, domain in {*zip(reads.group.tolist(), reads.domain.tolist(), strict=True)}:
        mine = indices((reads.group == group) & (reads.domain == domain))
        if group not in known and not passage.finished:
            ready[mine] = False
            continue
        times = each(reads.at[mine])
        if passage.gate.ask(0, times[-1], ANYBODY, domain) is not Evidence.NOT_YET:
            continue
        who, low, high = concerned(own, group, passage.state, domain), 0, len(times)
        while low < high:  # what is awaited at one time is awaited at all later ones
            middle = (low + high) // 2
            if passage.gate.ask(0, times[middle], who, domain) is Evidence.NOT_YET:
                high = middle
            else:
                low = middle + 1
        ready[mine] = reads.at[mine] < (times[low] if low < len(times) else NEVER)
    return ready


def _never_ready(own: Committed, reads: Reads, passage: Passage) -> Bools:
    """Which of these have waited for long, and nobody knows who may have committed, or how their clocks differ from
    theirs: nothing is concluded from them."""
    over, known = reads.at < passage.end - UNKNOWN_FOR, _known_groups(own)
    for group, domain in {*zip(reads.group[over].tolist(), reads.domain[over].tolist(), strict=True)}:
        if group in known and passage.gate.comparable(concerned(own, group, passage.state, domain), domain):
            over &= (reads.group != group) | (reads.domain != domain)
    return over


def _known_groups(own: Committed) -> set[int]:
    """The groups of which a member that commits is known, or was."""
    return {*own.members.group[own.members.reads == 0].tolist(), *own.commits.group.tolist()}


def _judge(own: Committed, reads: Reads, passage: Passage) -> None:
    """Judge these reads, which come in no order; all that was told before them has been judged."""
    if len(reads) > 1:
        reads = take(reads, np.lexsort((reads.process, reads.offset, reads.completed, reads.domain, reads.at)))
    own.told = concat(own.told, reads)
    doubtful = indices(_suspicious(own, reads)).tolist()
    if doubtful:
        kept_commits.spoil(own)
    for i in doubtful:
        read = ToldOffset(*(int(getattr(reads, name)[i]) for name in ToldOffset._fields))
        if read.at >= passage.state.begins:
            case = Case(own, read, passage)
            case.judge_regression()
            case.judge_loss()
            case.judge_foreign()


def _judge_known(own: Committed, reads: Reads, passage: Passage) -> None:
    """Of reads that wait for what may be long past: do they tell less than their readers knew? Of those that a process
    was told the newest are asked: the others were when they came, and are again when all is here."""
    if not len(reads):
        return
    lower = indices(less(own.commits, reads))
    if not len(lower):
        return
    kept_commits.spoil(own)
    seen, low = replace(own, told=concat(own.told, reads)), take(reads, lower)
    newest = kept_commits.newest(low, (low.process, low.domain, low.group), low.completed, ASKED_AGAIN)
    for i in lower[newest].tolist():
        read = ToldOffset(*(int(getattr(reads, name)[i]) for name in ToldOffset._fields))
        if read.at >= passage.state.begins:
            Case(seen, read, passage, waits=True).judge_loss()


def _suspicious(own: Committed, reads: Reads) -> Bools:
    """Which reads tell less than was known, or what nobody is known to have committed lately."""
    unknown: Bools = (reads.offset > 0) & ~familiar(own.commits, reads)
    return less(own.commits, reads) | less(own.told, reads) | unknown


def _tell(own: Committed, passage: Passage) -> None:
    """Report what waited for the group's log, and for the partition to be observed."""
    waiting, told = [], list[list[Any]]()
    for verdict in sorted(own.pending, key=lambda one: one[0]):
        when, anomaly, subject, message, evidence, at, group, domain, since, *_ = verdict
        if [anomaly, subject] in told:
            continue
        if since >= 0:
            who = concerned(own, group, passage.state, domain)
            if passage.gate.ask(since - LANDED, when, who, domain) is Evidence.NOT_YET:
                waiting.append(verdict)
                continue
            here, span = (group, domain), (since, at)
            known = {nobody_committed_elsewhere(own, passage, here, subject[2], span)}
            if [anomaly, *subject] in own.unclear:
                known.add(nothing_is_missing(own, passage, here, span))
            if Evidence.UNVERIFIABLE not in known and Evidence.NOT_YET in known and passage.end <= when + UNKNOWN_FOR:
                waiting.append(verdict)
            if known != {Evidence.COMPLETE}:
                continue
            verdict[8] = -1
        if own.observed < when and not passage.finished:
            waiting.append(verdict)
            continue
        if anomaly == "lost-commit" and not _is_another(own, verdict, passage.state):
            continue
        if verdict[BEYOND] >= 0:
            if passage.end <= when:  # the listing that tells may not be here yet
                waiting.append(verdict)
                continue
            if not _is_beyond(own, verdict):
                continue
        told.append([anomaly, subject])
        decidable = at if passage.finished else when
        passage.report.tell(
            Finding(
                **passage.report.here,
                anomaly=anomaly,
                subject=tuple(subject),
                message=message,
                evidence=evidence,
                at=at,
                decidable=decidable,
            )
        )
    own.pending = waiting
    if own.unclear:
        own.unclear = [
            key for key in own.unclear if any([anomaly, *subject] == key for _, anomaly, subject, *_ in waiting)
        ]


def _is_beyond(own: Committed, verdict: list[Any]) -> bool:
    """Does what was told lie beyond the end that the log had, and is it no finding yet? Note it, then. A later verdict
    on the same, which needs no such proof, may wait to be told."""
    _, anomaly, subject, *_ = verdict
    if subject[1] <= verdict[BEYOND]:
        return False
    if [anomaly, *subject] in own.reported:
        return any(one[1:3] == [anomaly, subject] and one[BEYOND] < 0 for one in own.pending)
    own.reported.append([anomaly, *subject])
    return True


def _is_another(own: Committed, verdict: list[Any], state: State) -> bool:
    """Is it another loss than those that were told? Note it, then."""
    group, _, told = verdict[2]
    domain, _, acknowledged, asked = verdict[7:BEYOND]
    for known_group, known_told, known_domain, known_acknowledged, known_asked in own.losses:
        both = (known_domain, known_asked, domain, acknowledged), (domain, asked, known_domain, known_acknowledged)
        if (group, told) == (known_group, known_told) and all(_was_before(state, *one) for one in both):
            return False
    own.losses.append([group, told, domain, acknowledged, asked])
    return True


def _was_before(state: State, domain: int, asked: int, other: int, acknowledged: int) -> bool:
    """Had it certainly been acknowledged, by the `other` clock, when somebody asked?"""
    since = asked - acknowledged
    return since >= 0 if domain == other else since > ahead(state, domain, other)


CHECK: Final = Check("committed-offsets", Committed, needs=needs, arrive=arrive, fold=fold)
