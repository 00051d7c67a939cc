"""One process per host that carries every journal of its folder into the Delta table `history`, exactly once.

Each turn reads the new whole frames of all journals, finishes the lives that have died meanwhile, writes down what it
is about to append (`append_plan`), asks the table for the last version that it has of this folder, and appends.
After a crash, or after any error, the plan on disk and the table's answer tell where to go on; nothing else is
remembered. Rows leave the disk only once they are in the table: what is in it and over is deleted after a while.

What rows say of a topic counts once the cluster has confirmed that it is still the one that they name
(`confirmations`).

The disk that journals lie on and the table may both fail for as long as they like: probes stop when they cannot write
their journal, the committer goes on trying, and the backlog is appended in pieces.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

import pyarrow as pa

from probes.clock import Clock
from probes.log.commits.append_plan import AppendPlan, Part, load, save
from probes.log.commits.backlog import backlog, planned
from probes.log.commits.begun import lives_before
from probes.log.commits.clock_steps import ClockSteps
from probes.log.commits.confirmations import Confirmations, Moment, counted
from probes.log.commits.destination import Destination
from probes.log.commits.history import History
from probes.log.commits.holding import Holding
from probes.log.commits.lives import Lives
from probes.log.commits.marks import Append, last_words, mark_rows
from probes.log.commits.numbers import drawn
from probes.log.commits.planning import (
    Group,
    claimed,
    confirmed,
    first_plan,
    journals_read,
    of_reader,
    parted,
    places,
    planned_rows,
    starts_with,
    undone,
    went_on,
)
from probes.log.commits.reading import Reading
from probes.log.commits.status import CommitterStatus
from probes.log.commits.trouble import Trouble
from probes.log.errors import (
    FolderCopied,
    FolderTaken,
    HistoryConflict,
    HistoryMismatch,
    HistoryUnavailable,
    JournalUnwritable,
    ProbeLogError,
)
from probes.log.journals import written
from probes.log.journals.copies import Copies, Piece
from probes.log.journals.reader import BrokenJournal, LifeReader
from probes.log.journals.segments import life_folders, process_of
from probes.log.rows import AT, table
from rules.vocabulary.times import from_micros, micros

log = logging.getLogger("offsetwatch.committer")
T = TypeVar("T")

LOCK: Final = "committer.lock"
ASK_AGAIN: Final = 0.1
"""Seconds between two questions for a topic's id, when nothing else is left to do."""
CONFLICTS: Final = 20
"""Tries of one append that met other hosts' appends, before it counts as an error."""
NO_ROOM: Final = 2
"""Failures, at most, that lengthen the wait for a disk of ours, which is not spared by waiting."""
_IMPOSSIBLE: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, LookupError)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPace:
    """`every`: seconds from one append to the next, at least. `batch_bytes`: about as much of the journals goes into
    one append. `keep`: how long the journal of a life that is over, and in the table, stays on disk. `longest_wait`:
    seconds between two tries when the table or the disk fails, at most."""

    every: float = 1.0
    batch_bytes: int = 3 << 20
    keep: timedelta = timedelta(minutes=15)
    longest_wait: float = 30.0


@dataclass(frozen=True, slots=True)
class _Pending:
    """A plan that is on disk, with its rows."""

    plan: AppendPlan
    rows: pa.Table


def committer(
    folder: Path,
    history: str | Path | Destination,
    clock: Clock,
    pace: CommitPace | None = None,
    *,
    confirmations: Confirmations | None = None,
    holding: Holding | None = None,
) -> Committer:
    """A committer from a journal folder to `history`: a path or an object store's URL of a Delta table, or another
    destination. Without `confirmations` topics are believed to be what rows say; without `holding` every turn of `run`
    appends."""
    if isinstance(history, str | Path):
        history = History(str(history))
    return Committer(folder, history, clock, pace, confirmations=confirmations, holding=holding)


class Committer:
    """The committer of one journal folder. A context manager: it holds the folder from `with` to its end.

    `commit` makes one turn, `run` makes turns until it is told to stop, `drain` until nothing is left. One thread, but
    for `status`."""

    def __init__(
        self,
        folder: Path,
        history: Destination,
        clock: Clock,
        pace: CommitPace | None = None,
        *,
        confirmations: Confirmations | None = None,
        holding: Holding | None = None,
    ) -> None:
        """`history` is this committer's own. Nothing is touched yet."""
        self._confirmations, self._holding = confirmations, holding
        self.folder = folder
        self._history = history
        self._clock = clock
        self._steps = ClockSteps()
        self._pace = pace or CommitPace()
        self._lock = -1
        self._status = CommitterStatus()
        self._lives = Lives(folder, clock)
        self._copies = Copies(folder, clock.boot)
        self._impossible: set[str] = set()
        self._loaded = False
        self._plan: AppendPlan | None = None
        self._appended: Mapping[str, Part] | None = None
        self._pending: _Pending | None = None
        self._held: Reading | None = None
        """What waits: for the cluster to tell of its topics (`_waiting`), or for the next seconds."""
        self._more = True
        self._waiting = False
        self._start = drawn()
        self._there: set[str] = set()
        """The `lives_before`."""
        self._alone = ""
        self.copied: FolderCopied | None = None
        """Why it goes on in a name of its own: whoever is at work here has to end."""
        self.on_copied: Callable[[FolderCopied], None] = partial(log.error, "%s")
        """Who is told of it."""

    def __enter__(self) -> Committer:
        """Raises `FolderTaken` where another committer holds the folder, `JournalUnwritable` where it can't be made."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._copies.open()
            self._follow()
            self._there = lives_before(self.folder)
            written.forget_gone()
        except BlockingIOError:
            self._release()
            raise FolderTaken(f"another committer is at work on {self.folder}") from None
        except OSError as refused:
            self._release()
            raise JournalUnwritable(f"cannot use the journal folder {self.folder}: {refused.strerror}") from refused
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        self._history.close()
        self._release()

    def status(self) -> CommitterStatus:
        """From any thread."""
        status = self._status
        lag = self._clock.now() - status.last_commit if status.last_commit else None
        # Looked at now: an append that fails, or does not return, is when it matters.
        appended = self._appended if self._appended is not None else planned(self.folder)
        return replace(status, lag=lag, backlog=backlog(self.folder, appended))

    @property
    def knows_what_is_appended(self) -> bool:
        """Whether the probe log itself can be asked."""
        return self._history.knows

    def run(self, stop: threading.Event) -> None:
        """Make turns until `stop`, then carry over what is there by then. What fails is tried again, less and less
        often; only `HistoryMismatch` is raised, since nobody but the user can mend it."""
        failures = 0
        trouble = Trouble(self.folder)
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            begun = time.monotonic()
            try:
                self.commit(may_wait=True)
                failures = 0
                trouble.over()
            except HistoryMismatch:
                raise
            except JournalUnwritable as error:
                failures = min(failures + 1, NO_ROOM)
                trouble.tell(error)
            except ProbeLogError as error:
                failures = min(failures + 1, 16)
                trouble.tell(error)
            except Exception as unexpected:
                # Nobody foresaw it, and the log must go on: begin again from what is on disk.
                log.exception("the committer of %s failed", self.folder)
                self._forget()
                self._failed(ProbeLogError(f"the committer failed: {type(unexpected).__name__}: {unexpected}"))
                failures = min(failures + 1, 16)
            due = begun + max(self._pace.every, min(self._pace.every * 2**failures, self._pace.longest_wait))
        try:
            self.drain()
        except (HistoryUnavailable, JournalUnwritable) as error:
            log.warning("what is left in %s is appended by the next committer: %s", self.folder, error)

    def drain(self) -> None:
        """Append all that the journals hold at the time of the call. Raises as `commit` does."""
        self.commit()
        while self._more:
            if self._pending is None and self._waiting:
                time.sleep(ASK_AGAIN)
            self.commit()

    def commit(self, *, may_wait: bool = False) -> int:
        """One turn: append what is new, and the marks. Returns the rows appended. `may_wait`: none where `holding` says
        that they wait.

        Raises `HistoryUnavailable`, `JournalUnwritable` (call again later: nothing is lost) and `HistoryMismatch`."""
        return self._guarded(partial(self._turn, may_wait))

    def claim(self) -> None:
        """Say to the destination that this start goes on with the folder, before anybody works in it. Of two who begin
        with copies of one folder the first does. Raises as `commit` does, and `FolderCopied` to the second one."""
        self._guarded(self._claim)

    def _guarded(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except (OSError, BrokenJournal) as refused:
            reason = (isinstance(refused, OSError) and refused.strerror) or refused
            raise self._failed(JournalUnwritable(f"cannot use {self.folder}: {reason}")) from refused
        except ProbeLogError as error:
            raise self._failed(error) from error.__cause__

    def _failed(self, error: ProbeLogError) -> ProbeLogError:
        # A plan that is on disk stays as it is and is tried again; what was only read is read again.
        if self._pending is None:
            self._forget()
        self._status = replace(self._status, error=str(error))
        return error

    def _turn(self, may_wait: bool) -> int:
        try:
            return self._carried_out(may_wait)
        except FolderCopied as copied:
            self._part(copied)
            return self._carried_out()

    def _carried_out(self, may_wait: bool = False) -> int:
        if not self._loaded:
            self._load()
        if self._pending is None:
            self._pending = self._prepare(may_wait)
        else:
            self._more = True
        if self._pending is None:
            return 0
        begun = time.perf_counter()
        self._append(self._pending)
        adopted = self._pending.plan
        appended = self._adopt(self._pending, time.perf_counter() - begun)
        if not adopted.claim:
            self._lives.clear(adopted.parts, adopted.now, self._pace.keep)
        return appended

    def _claim(self) -> None:
        if load(self.folder) is None:
            return  # nobody has a copy of it
        try:
            if not self._loaded:
                self._load()
            if self._pending is not None:
                self._carried_out()
            if self._plan is not None:
                plan = claimed(self._plan, self._start)
                save(self.folder, plan)
                self._pending = _Pending(plan, planned_rows(plan, []))
                self._carried_out()
        except FolderCopied as copied:
            self._part(copied)
            self.drain()
            raise

    def _part(self, copied: FolderCopied) -> None:
        """Go on in a name of its own where there is anything to append, else raise that."""
        self._forget()
        if (plan := load(self.folder)) is None or plan.app == self._alone:
            raise copied
        alone = parted(plan, [life.name for life in life_folders(self.folder)], self._there)
        if alone is None:
            raise copied
        self._plan, self._appended, self._loaded = alone, alone.parts, True
        if not self._alone:
            self.on_copied(copied)
        self._alone, self.copied = alone.app, copied

    # Where to go on: the plan on disk, and the table's answer.

    def _follow(self) -> None:
        """Go on with the clock of the committer before, which the host's may have been set back from."""
        with contextlib.suppress(HistoryMismatch):  # the first turn says so
            if (plan := load(self.folder)) is not None and plan.now:
                told = [(row[AT["boot"]], row[AT["mono_completed"]]) for rows in plan.marks.values() for row in rows]
                at = next((mono for boot, mono in told if boot == self._clock.boot), None)
                self._clock.follow(from_micros(plan.now), at)

    def _forget(self) -> None:
        self._lives.forget()
        self._loaded, self._plan, self._pending, self._more = False, None, None, True
        self._held, self._waiting = None, False

    def _release(self) -> None:
        self._copies.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _load(self) -> None:
        planned = load(self.folder)
        if planned is not None:
            if self._history.id(made=True) != planned.table and self._history.knows:
                raise HistoryMismatch(
                    f"{self.folder} belongs to another probe log than {self._history.uri}: "
                    "use the old one again, or an empty journal folder"
                )
            if self._is_done(planned):
                self._plan = planned
            else:
                self._redo(planned)
            self._appended = self._plan.parts if self._plan is not None else {}
        self._loaded = True

    def _is_done(self, plan: AppendPlan) -> bool:
        """Whether the plan's append is there. Raises `HistoryMismatch` where neither that nor the last one is."""
        return self._history.has(plan.app, plan.recorded, self.folder, plan.after)

    def _redo(self, planned: AppendPlan) -> None:
        """The plan was not carried out: read the same bytes again, and go back to where it began."""
        self._plan = undone(planned)
        groups: list[Group] = []
        try:
            for name, part in planned.parts.items():
                if part.end > part.start:
                    reader = self._lives.reader(name, part.start)
                    shared = reader.life.shared
                    groups.append((shared, counted(shared, reader.read_to(part.end), planned.replaced)))
        except BrokenJournal:
            # A journal was taken away since. What it held is gone, and the plan's marks with it: make another one.
            self._lives.forget()
            if not self._history.knows:
                # Segments are deleted once the append that they were read for is made: so it is there, as it was
                # planned, and another one of its number would not count.
                self._plan = planned
            return
        self._pending = _Pending(planned, planned_rows(planned, groups))

    # One turn.

    def _prepare(self, may_wait: bool) -> _Pending | None:
        """Read what is new and write down the next append. None while no partition is known, and where it waits."""
        table_id = self._history.id()
        before = self._plan or first_plan(table_id)
        # Where all lives begin anew, as in a topic that was made again, reading is what takes long: while the cluster
        # does not tell, nothing is read again.
        waited = self._held if self._waiting else None
        read = waited or self._read_on(before)
        known = {**before.confirmed, **read.confirmed}
        told = self._confirmations.told(read.groups, known) if self._confirmations else ({}, {})
        self._waiting = told is None
        self._held, self._more = read, True
        if told is None:
            return None
        topics, replaced = told
        read = replace(read, confirmed={**read.confirmed, **topics})
        if may_wait and not replaced and self._holding is not None and self._holding.waits(read.fresh, read.size):
            self._held = read
            return None
        self._held, self._more = None, waited is not None or bool(read.unread)
        return self._planned(table_id, before, read, replaced)

    def _read_on(self, before: AppendPlan) -> Reading:
        """Read what is new, beside what waits."""
        held = self._held
        # Each goes on from where it was read to; those whose folder has gone are not planned again.
        begun = before.parts if held is None else held.before_next(before.parts)
        parts = went_on(begun, {name for name in begun if self._lives.path(name).exists()})
        known = self._lives.discover(parts)
        # The time is taken before the bytes are read: what it promises of a closed life is in them, or in before. By
        # both clocks at once: readers of the log take what a mark says of the wall clock to log time by this very pair.
        said, mono = self._clock.both()
        now = max(micros(said), before.now)
        self._steps.read(now, mono // 1000)
        # It promises that of every life: of those as well that began while the dead were finished.
        found = known + self._lives.newcomers(parts)
        readers = [one for one in found if one.name not in self._impossible]
        read = self._read(readers, parts, now, mono)
        self._lives.look(readers, mono)
        return read if held is None else held.followed_by(read)

    def _planned(
        self,
        table_id: str,
        before: AppendPlan,
        read: Reading,
        replaced: dict[str, Moment],
    ) -> _Pending | None:
        """Write down the append of what was read, where these topics were `replaced`."""
        now, parts, readers = read.now, read.parts, read.readers
        groups = [(shared, counted(shared, rows, replaced)) for shared, rows in read.groups]
        vouched = [one for one in readers if (until := parts[one.name].until) is None or until >= now]
        unreadable = self._lives.unreadable
        parts |= {name: replace(parts[name], until=now) for name in unreadable}
        last = last_words(before.marks, {process_of(name) for name in unreadable}, now)
        marked, counters = places(before, readers, now)
        marked |= dict.fromkeys(last, now)
        if not marked:
            return None
        through = journals_read(before, read.unread, now)
        append = Append(before.version + 1, through, now, self._clock.boot, read.mono, self._steps)
        spoken = [of_reader(one) for one in vouched if not self._lives.is_silent(one, read.mono)]
        marks = mark_rows(marked, spoken, last, counters, append)
        counters |= {place: counters.get(place, 0) + 1 for place in marked}
        index = {place: i for i, place in enumerate(counters)}
        plan = replace(
            before,
            table=table_id,
            start=self._start,
            before=before.start,
            starts=starts_with(before, self._start),
            version=before.version + 1,
            claim=False,
            now=now,
            read=through,
            parts=parts,
            marks=marks,
            counters=[(*place, n) for place, n in counters.items()],
            current=[index[place] for place in marked],
            held=list(marked.values()),
            confirmed=confirmed(before, read.confirmed, counters),
            replaced=replaced,
        )
        rows = self._built(plan, groups, readers)
        save(self.folder, plan)
        return _Pending(plan, rows)

    def _read(self, readers: Sequence[LifeReader], parts: dict[str, Part], now: int, mono: int) -> Reading:
        """The new rows of all lives; `parts` then says how far each was read."""
        share = max(self._pace.batch_bytes // max(1, len(readers)), 1 << 14)
        groups: list[Group] = []
        pieces: list[Piece] = []
        unread: list[LifeReader] = []
        for reader in readers:
            part = parts.get(reader.name, Part(0, 0))
            groups.append((reader.life.shared, reader.read(share, pieces)))
            if reader.offset - part.end >= share and reader.broken is None:
                unread.append(reader)
            until = part.until if part.until is not None else self._lives.after(reader, now)
            parts[reader.name] = Part(part.end, reader.offset, until)
        # The table must not hold what the loss of the host could take back; and what waits is not to be lost, either.
        self._copies.keep(pieces)
        return Reading(now, mono, parts, readers, groups, unread, fresh=groups)

    def _built(self, plan: AppendPlan, groups: Sequence[Group], readers: Sequence[LifeReader]) -> pa.Table:
        try:
            return planned_rows(plan, groups)
        except _IMPOSSIBLE as error:
            # One probe's impossible rows must not hold up the others' for ever: its process becomes unverifiable.
            names = {reader.life.shared: reader.name for reader in readers}
            for shared, rows in groups:
                try:
                    table([(shared, rows)])
                except _IMPOSSIBLE as reason:
                    if (name := names.get(shared)) is not None:  # else it was taken away while its rows waited
                        self._impossible.add(name)
                        self._lives.unverifiable[name] = f"its journal holds impossible rows: {reason}"
            raise JournalUnwritable(f"a journal holds impossible rows: {error}") from error

    def _append(self, pending: _Pending) -> None:
        for trial in range(CONFLICTS):
            if self._is_done(pending.plan):
                return
            try:
                self._history.append(pending.rows, pending.plan.app, pending.plan.recorded, pending.plan.starts)
                return
            except HistoryConflict:
                if trial == CONFLICTS - 1:
                    raise
                time.sleep(random.uniform(0, 0.05))

    def _adopt(self, pending: _Pending, seconds: float) -> int:
        self._plan, self._pending = pending.plan, None
        if self._holding is not None:
            self._holding.appended()
        self._appended = pending.plan.parts
        if pending.plan.claim:
            return 0
        appended: int = pending.rows.num_rows
        reading = self._lives.reading()
        self._status = CommitterStatus(
            last_commit=from_micros(pending.plan.now),
            version=pending.plan.version,
            rows=self._status.rows + appended,
            append_seconds=seconds,
            lives=len(reading),
            unverifiable=dict(self._lives.unverifiable),
        )
        return appended
