"""The verdicts on one committed offset that was told: see `committed_offsets` for what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from rules.arrays import intervals
from rules.arrays.intervals import Bools, Ints, among, each, indices
from rules.checks.committed import invoked_commits, unknown_commits
from rules.checks.committed.commit_rows import DONE, IN_TRANSACTION, NEVER, NO_BOOT, Commits, Holds, Reads
from rules.checks.committed.invoked_commits import ANY, Invoked
from rules.checks.committed.kept_commits import Committed, let_go_unsaid
from rules.kept.check import Passage
from rules.kept.codec import concat, take
from rules.kept.state import State
from rules.settling.boots import boots_after, boots_before
from rules.settling.clocks import UNKNOWN, ahead, first_done
from rules.settling.gate import EVERYBODY, Evidence, Who
from rules.vocabulary.objectives import SECOND

MINUTE: Final = 60 * SECOND
FORMER: Final = 120 * SECOND
"""For so long after a topic was made anew, the lives of the one before may go on, and what they commit may land."""
LANDED: Final = 30 * SECOND
"""What a process had asked for reaches the coordinator in this time after the process is over, or never."""


ANYBODY: Final = Who(lambda number, process: True, strict=True, newcomers=True)
"""Where all of everybody's log is here, so is that of those who are `concerned`."""


class ToldOffset(NamedTuple):
    """A read, as in `Reads`."""

    group: int
    domain: int
    completed: int
    invoked: int
    since: int
    at: int
    offset: int
    process: int
    stable: int
    end: int


def concerned(own: Committed, group: int, state: State, domain: int) -> Who:
    """Who may commit for the group, or tells of it by this clock, up to a time by it: nobody of a later boot of its
    host, and perhaps somebody who has begun in a boot of which no life is known."""
    known, later, members = _started(own), boots_after(state, domain), own.members
    tells = (members.reads == 1) & ((members.domain == domain) | (domain == NO_BOOT))
    commits = (members.group == group) & (members.reads == 0)
    asks = set(members.process[commits | (among(members.group, (group, ANY)) & tells)].tolist())
    return Who(
        lambda number, process: (number in asks or number not in known) and process.boot not in later,
        strict=True,
        newcomers=True,
    )


def committing(own: Committed, group: int) -> Callable[[int], bool]:
    """Who may commit for the group: its members, those of which it is not known yet what they are, and -1."""
    known = _started(own)
    mine = set(own.members.process[(own.members.group == group) & (own.members.reads == 0)].tolist())
    return lambda number: number in mine or number not in known


def _started(own: Committed) -> set[int]:
    """Who has told what it is."""
    return set(own.members.process[(own.members.reads == 0) | (own.members.group == ANY)].tolist())


def nobody_committed_elsewhere(
    own: Committed, passage: Passage, here: tuple[int, int], offset: int, span: tuple[int, int]
) -> Evidence:
    """That no member on another host committed `offset` for the group in this `span` of this clock is `COMPLETE`, or
    not to be known (`UNVERIFIABLE`), or not yet, while it is not known how far the clocks are apart. `here`: the group
    and the clock domain. The group's log is complete for the grace time beyond."""
    (group, domain), (since, until), state = here, span, passage.state
    commits, floors, found = own.commits, own.floors, Evidence.COMPLETE
    gone = _over_before(passage, since - LANDED, domain)
    may = (commits.group == group) & (commits.offset == offset) & ~among(commits.process, gone)
    forgotten = (floors.group == group) & (floors.highest >= offset)
    comparable = boots_after(state, domain) | {domain}
    if domain >= 0 and since - LANDED > first_done(state, domain):
        comparable |= boots_before(state, domain)
    for elsewhere in {*commits.domain[may].tolist(), *floors.domain[forgotten].tolist()} - comparable:
        behind, ahead_ = ahead(state, domain, elsewhere), ahead(state, elsewhere, domain)
        if max(behind, ahead_) >= UNKNOWN:
            found = Evidence.NOT_YET
            continue
        rows = may & (commits.domain == elsewhere)
        before, after = since - commits.at[rows] > behind, commits.since[rows] - until > ahead_
        old = since - floors.completed[forgotten & (floors.domain == elsewhere)] > behind
        if not ((before | after).all() and old.all()):
            return Evidence.UNVERIFIABLE
    return found


def nothing_is_missing(own: Committed, passage: Passage, here: tuple[int, int], span: tuple[int, int]) -> Evidence:
    """That no hole in the log of one that may commit for the group touches this `span` of this clock is `COMPLETE`, or
    not so (`UNVERIFIABLE`), or not yet known, while nobody knows how far the clocks of those that do are apart. `here`:
    the group and the clock domain."""
    group, domain = here
    gate, may = passage.gate, committing(own, group)
    holes = [hole for hole in gate.holes(*span, EVERYBODY, domain) if may(hole.process)]
    apart = [
        max(gate.ahead(hole.boot, domain, strict=True), gate.ahead(domain, hole.end_boot, strict=True))
        for hole in holes
    ]
    if min(apart, default=UNKNOWN) < UNKNOWN:
        return Evidence.UNVERIFIABLE
    return Evidence.NOT_YET if holes else Evidence.COMPLETE


def _over_before(passage: Passage, time: int, boot: int) -> list[int]:
    """The processes that a reboot of their host had ended by then, by that clock."""
    gone = ((number, process) for number, process in passage.state.processes.items() if process.over_by >= 0)
    gate = passage.gate
    return [n for n, process in gone if time - process.over_by > gate.ahead(boot, process.over_boot, strict=True)]


class Case:
    """One read, what was known before it, and what may be concluded. `waits`: not all of the group's log is here."""

    def __init__(self, own: Committed, read: ToldOffset, passage: Passage, *, waits: bool = False) -> None:
        self.own, self.read, self.passage, self.waits = own, read, passage, waits
        self.name = own.names[read.group]
        mine = indices((own.commits.group == read.group) & (own.commits.offset == read.offset))
        since, domain = own.commits.since[mine].tolist(), own.commits.domain[mine].tolist()
        self._familiar = any(map(self._may_be_before, since, domain))
        self._never: bool | None = None
        self._acknowledged_at = -1
        self._beyond = -1

    # What was known

    def _earlier(self, table: Commits | Reads) -> Ints:
        """The entries that had completed when the read was invoked, in the order of their times."""
        read = self.read
        before = (table.group == read.group) & (table.domain == read.domain) & (table.completed <= read.invoked)
        if isinstance(table, Reads):
            before &= (table.completed < read.completed) | (table.process != read.process)
        rows = indices(before)
        found: Ints = rows[np.lexsort((table.offset[rows], table.completed[rows]))]
        return found

    def _acknowledged(self) -> Ints:
        """The commits that the reader could not but be told of, if it was asked after them."""
        commits = self.own.commits
        rows = self._earlier(commits)
        kind = commits.kind[rows]
        found: Ints = rows[(kind == DONE) | ((kind == IN_TRANSACTION) & (self.read.stable == 1))]
        return found

    def never_committed(self) -> bool:
        """Is it known that nobody was ever asked to commit the offset that was told?"""
        if self._never is None:
            read = self.read
            self._never = (
                not self._familiar
                and invoked_commits.certainly_never(
                    self.own.invoked, self.passage.chunks, read.group, read.offset, self.own.names, self._may_be_before
                )
                and not self._may_be_missing()
            )
        return self._never

    def _may_be_missing(self) -> bool:
        """May it have been committed where the log of a member is missing? (Nobody commits a 0 by accident.)"""
        read, own = self.read, self.own
        may, gate = committing(own, read.group), self.passage.gate
        return read.offset > 0 and unknown_commits.may_hold(own.unknown, read.offset, read.at, read.domain, may, gate)

    def _may_be_before(self, invoked: int, domain: int) -> bool:
        """May what was invoked then, by the clock of that domain, have been before the read was answered?"""
        return invoked - self.read.at <= ahead(self.passage.state, domain, self.read.domain)

    def _from_before(self) -> bool:
        """Is it what was told first of the group, and may be from before the log began?"""
        first, read = self.own.first, self.read
        return bool(((first.group == read.group) & (first.offset == read.offset)).any())

    def _missing(self, since: int) -> Evidence:
        """Is nothing missing of what may have been committed from `since` to the read?"""
        return nothing_is_missing(self.own, self.passage, self.read[:2], (since, self.read.at))

    def _complete(self, since: int) -> bool:
        return self._missing(since) is Evidence.COMPLETE

    def _is_here(self, since: int) -> bool:
        """Is everything here that was done from `since` to the read, and may have landed in that time?"""
        who = concerned(self.own, self.read.group, self.passage.state, self.read.domain)
        return self.passage.gate.ask(since - LANDED, self.read.at, who, self.read.domain) is not Evidence.NOT_YET

    def _shared(self, since: int) -> bool:
        """May the group have had members that are not of this log, from `since` to the read?"""
        holds, read = self.own.holds, self.read
        if not (holds.group == read.group).any():
            return read.group in self.own.subscribed
        mine = take(holds, (holds.group == read.group) | (holds.group == ANY))
        mine = concat(mine, let_go_unsaid(mine, self.passage.state))
        when = self._by_the_read(mine)
        order = np.lexsort((mine.holds, mine.at, mine.process))
        holding: dict[int, int] = {}
        held = []
        for row in order.tolist():
            process = int(mine.process[row])
            if mine.holds[row]:
                holding.setdefault(process, int(when[row]))
            elif process in holding:
                held.append((holding.pop(process), int(when[row])))
        held += [(taken, NEVER) for taken in holding.values()]
        spans = np.array([span for span in held if span[0] < span[1]], np.int64).reshape(-1, 2)
        alone, _ = intervals.subtract(
            np.array([since]), np.array([read.at + 1]), *intervals.merge(spans[:, 0], spans[:, 1])
        )
        return bool(len(alone))

    def _by_the_read(self, holds: Holds) -> Ints:
        """When by the clock of the read, at the latest, a member took hold, and at the earliest one let go."""
        when, state = holds.at.copy(), self.passage.state
        for domain in each(holds.domain):
            if domain < 0 or self.read.domain < 0:
                continue
            later, sooner = ahead(state, self.read.domain, domain), ahead(state, domain, self.read.domain)
            own = holds.domain == domain
            when[own] += np.where(holds.holds[own] == 1, later, -sooner)
        return when

    # Verdicts

    def judge_regression(self) -> None:
        """Does it tell less than was told before, which nobody asked for?"""
        own, read = self.own, self.read
        rows = self._earlier(own.told)
        rows = rows[own.told.offset[rows] > 0]
        if not len(rows) or not 0 < read.offset < own.told.offset[rows[-1]]:
            return
        if self._may_be_of_the_topic_before() or not self.never_committed():
            return
        before = int(own.told.offset[rows[-1]])
        if not self._complete(int(own.told.since[rows[-1]])):
            return
        evidence = {"group": self.name, "before": before, "after": read.offset, "read_by": read.process}
        message = f"group {self.name} had committed {before}, then {read.offset}, which nobody asked for"
        self._found("offset-regression", (self.name, before, read.offset), message, evidence, None)

    def judge_loss(self) -> None:
        """Does it tell less than was acknowledged before, or nothing?"""
        own, read, commits = self.own, self.read, self.own.commits
        if self._may_be_of_the_topic_before() or (read.offset == 0 and self.never_committed()):
            return  # a zero is `spurious-zero-offset`
        rows = self._acknowledged()
        if read.offset >= 0:
            rows = rows[(commits.offset[rows] > read.offset) & (commits.spoiled[rows] > read.completed)]
        nobody_committed_it = not self.waits and read.offset >= 0 and self.never_committed() and not self._from_before()
        if not nobody_committed_it:  # else a coordinator that was deposed might tell what it knew
            rows = rows[self._known_to_the_reader(rows)]
        if not len(rows):
            return
        best = int(rows[-1])
        since, committed = int(commits.since[best]), int(commits.offset[best])
        self._acknowledged_at = int(commits.at[best])
        if self.waits and not self._is_here(since):
            return
        age = read.completed - int(commits.invoked[best])
        retention = own.retention[1] * MINUTE
        if read.offset < 0:
            if age >= retention:
                return
        elif self._may_have_landed_late(since):
            return
        could_be_told = read.offset >= 0 and not nobody_committed_it
        missing = self._missing(since) if read.offset >= 0 else Evidence.COMPLETE
        if missing is Evidence.UNVERIFIABLE or (missing is Evidence.NOT_YET and not could_be_told):
            return
        seconds = round((read.invoked - int(commits.completed[best])) / SECOND, 3)
        told = "none" if read.offset < 0 else str(read.offset)
        evidence: dict[str, Any] = {
            "group": self.name,
            "committed": committed,
            "committed_by": int(commits.process[best]),
            "told": None if read.offset < 0 else read.offset,
            "told_to": read.process,
            "after_s": seconds,
        }
        if read.offset < 0:
            evidence["retention_minutes"] = own.retention[1]
        message = (
            f"group {self.name} committed {committed}, and was told {told} {seconds:.1f} s after that was acknowledged"
        )
        subject = (self.name, committed, read.offset)
        if missing is Evidence.NOT_YET and ["lost-commit", *subject] not in own.reported:
            own.unclear = [*own.unclear, ["lost-commit", *subject]]
        self._found("lost-commit", subject, message, evidence, since if could_be_told else -1)

    def _known_to_the_reader(self, rows: Ints) -> Bools:
        """Which of the commits the process that reads made itself, or had read as much since they were invoked, or
        the coordinator that made it a member must have known."""
        own, read, commits = self.own, self.read, self.own.commits
        heard = self._earlier(own.told)
        heard = heard[own.told.process[heard] == read.process]
        offset, completed = own.told.offset[heard], own.told.completed[heard]
        told = (offset >= commits.offset[rows][:, None]) & (completed >= commits.invoked[rows][:, None])
        mine = (commits.process[rows] == read.process) | (commits.completed[rows] <= self._joined())
        return np.asarray(mine | told.any(axis=1), dtype=bool)

    def _joined(self) -> int:
        """When the process that reads joined the group, as a member of which it holds the partition; else -1."""
        holds, joins, read = self.own.holds, self.own.joins, self.read
        rows = indices(
            (holds.process == read.process) & (holds.at <= read.since) & among(holds.group, (read.group, ANY))
        )
        if not len(rows) or not holds.holds[rows[np.lexsort((holds.holds[rows], holds.at[rows]))[-1]]]:
            return -1
        return int(joins.invoked[joins.process == read.process].max(initial=-1))

    def _may_have_landed_late(self, since: int) -> bool:
        """May what was told have been committed after a commit that was invoked at `since`?"""
        own, read = self.own, self.read
        if self.never_committed() and not self._from_before():
            return self._shared(since)
        unsure = (own.unsure.offset == read.offset) & among(own.unsure.group, (read.group, ANY))
        return bool(unsure.any()) or read.offset <= own.unsure_to

    def judge_foreign(self) -> None:
        """Does it tell what nobody of the group ever committed?"""
        own, read = self.own, self.read
        if read.offset <= 0 or not self.never_committed() or self._from_before() or self._may_be_of_the_topic_before():
            return
        known = []
        for table, rows in ((own.commits, self._acknowledged()), (own.told, self._earlier(own.told))):
            if len(rows):
                last = rows[-1]
                known.append((int(table.completed[last]), int(table.since[last]), int(table.offset[last])))
        if not known:
            if not self._told_elsewhere():
                group, offset = np.array([[read.group], [read.offset]], np.int64)
                own.first = concat(own.first, Invoked(group, offset))
            return
        _, since, before = max(known)
        if before == read.offset or not self._complete(since):
            return
        if self._shared(since):
            if read.offset <= read.end < NEVER:
                return
            self._beyond = read.end
        evidence = {
            "group": self.name,
            "told": read.offset,
            "told_to": read.process,
            "before": None if before < 0 else before,
        }
        was = "none" if before < 0 else str(before)
        message = f"group {self.name} was told {read.offset}, which nobody ever committed, where {was} had been before"
        self._found("foreign-commit", (self.name, read.offset), message, evidence, -1)

    def _may_be_of_the_topic_before(self) -> bool:
        """May it have been committed in the topic that had this name before? Not what was read long before that was
        told: another cluster had been at these addresses then, and this one was back."""
        return self.own.made_anew >= 0 and abs(self.read.at - self.own.made_anew) <= FORMER

    def _told_elsewhere(self) -> bool:
        """Is anything known of the group before the read, by another clock?"""
        read = self.read
        tables = (self.own.commits, self.own.told)
        return any(((t.group == read.group) & (t.domain != read.domain) & (t.at < read.since)).any() for t in tables)

    def _found(
        self, anomaly: str, subject: tuple[str | int, ...], message: str, evidence: dict[str, Any], since: int | None
    ) -> None:
        """`since`: from when on a commit of another host would explain it (-1: none would); None to tell it at once."""
        own, at, (group, domain) = self.own, self.read.at, self.read[:2]
        key = [anomaly, *subject]
        if key in own.reported:
            return
        if self._beyond < 0:  # else it is not known yet whether it is one
            own.reported.append(key)
        if since is None:
            self.passage.report.add(anomaly, subject, message, at=at, evidence=evidence)
            return
        when = at + self.passage.report.objectives.grace
        times = self._acknowledged_at, self.read.since, self._beyond
        own.pending.append([when, anomaly, list(subject), message, evidence, at, group, domain, since, *times])
