"""What is kept of one partition between steps: the hot value.

It is small because everything below the *settled frontier* has been folded away. What remains is bounded: the open
window of the log by `Objectives.window_runs`, processes by how many live at a time, everything else by the window.
Here is the engine's own part; each check's is its own (`rules.kept.check`), under its name in `State.checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rules.arrays.intervals import EMPTY, Ints
from rules.kept import codec
from rules.kept.codec import Table, UnknownFormat, concat, take
from rules.vocabulary.objectives import SECOND

__all__ = ["State", "UnknownFormat", "concat", "dump", "load", "take"]


NEVER: Final = 2**62
"""A log time after everything."""

OPEN_LONG: Final = 5 * SECOND
"""An operation that is open for longer holds back only what it might still decide, and not log time."""


class Hole(NamedTuple):
    """Of `process` (-1: of several), what it did in [start, end) of log time is missing for good."""

    process: int
    start: int
    end: int
    reads: int  # 1: it may have polled in it
    writes: int  # 1: it may have sent or committed in it
    known: int  # since when, in log time
    boot: int = -1  # by whose clock it began
    end_boot: int = -1  # by whose clock it was over
    read_by: int = -1  # by when it had polled what it did
    went_on: int = 0  # 1: it, or its host, went on after that; not so where it went down, and another began anew


@dataclass(slots=True)
class Process:
    """One client's life, as one partition knows it. Times are microseconds of log time; -1 means unknown.

    `next`: of slices 0 .. next-1 nothing is awaited; `ahead` holds the later ones that came too early, as merged
    [start, end, at, through]: what is missing before `start` had completed by `at`, and all that it invoked before
    `through` lies below `end`. `missing` are those below `next` that were given up, as merged [start, end). `marks` are
    the [slices, through, time] promises not yet fulfilled; what is missing below `let_go` is known not to come.
    `through`: all that it invoked before is here; `marked`: all that had completed by then is."""

    next: int = 0
    ahead: list[list[int]] = field(default_factory=list)
    missing: list[list[int]] = field(default_factory=list)
    marks: list[list[int]] = field(default_factory=list)
    let_go: int = 0
    through: int = -1
    marked: int = -1
    first: int = -1
    name: str = ""  # how people call it: its probe's name
    run: str = ""  # and the run that it is of
    host: int = -1  # its committer
    boot: int = -1  # of `State.boot_names`
    closes_at: int = -1  # the number of slices, once a close row or a mark has told it
    closed: int = -1  # when it closed
    lost_by: int = -1  # by when it was over, where its end may be missing
    over_by: int = -1  # by when a later boot of its host had begun
    over_boot: int = -1  # by whose clock, if not its own
    over_at: int = -1  # the number of that boot's first append
    heard: int = -1  # the number of the last append with which its host mentioned it
    vouched: int = -1  # through when its host told of it as of one that lives
    stood: list[list[int]] = field(default_factory=list)  # the newest [from, to] of when it told of others only
    lost: bool = False  # it did not end in order, and its end may be missing
    unsaid: bool = False  # its host went on, and never told of its end
    broke_off: int = -1  # when it was found dead, or ended because its journal could not be written
    declared: int = -1  # when its host was declared gone: see `rules.settling.declared_gone`
    elsewhere: int = 0  # 1: its start row says that it reads and sends in other topics; 2: it did so here all the same
    # The reader in it.
    reads: bool = False
    audits: bool = False  # it reads the log again from its start, now and then
    assigned: bool = False
    assigned_at: int = -1  # when it was for the first time
    subscribed: bool = False
    position: int = -1  # one past the last offset that an ok operation polled, -1 before and when forgotten
    position_known: bool = True  # False where the last record's value could not be read
    last_op: int = -1
    last_slice: int = -1
    moved: int = -1
    # The writer in it.
    writes: bool = False
    writer: int = -1

    @property
    def complete(self) -> bool:
        """Is it over, with all of its log here that there ever will be?"""
        return 0 <= self.closes_at <= self.next

    @property
    def is_elsewhere(self) -> bool:
        """Does it neither read nor send here, by what it said of itself and has done?"""
        return self.elsewhere == 1

    @property
    def may_read(self) -> bool:
        """May it poll here, for all that is known?"""
        return (self.reads or not self.next) and self.elsewhere != 1

    @property
    def is_gone(self) -> bool:
        """Has its host been booted anew, and not mentioned it since? Then it has no journal any more."""
        return self.heard < self.over_at

    @property
    def known_through(self) -> int:
        """The log time up to which all that it invoked is here; -1 while nothing is known."""
        if 0 <= self.closes_at <= self.next:  # it is complete
            return NEVER
        if self.through >= 0:
            return self.through
        # While its first slice is missing, nobody knows when it began.
        return self.first if self.next else -1

    @property
    def told_through(self) -> int:
        """The log time up to which all that had completed is here, as far as log time waits for it."""
        known, told = self.known_through, self.marked - OPEN_LONG
        return known if known > told else told


@dataclass(slots=True)
class Host:
    """One committer, as one partition knows it. `now`: through when it had read the journals of its host, as its newest
    mark tells; `silent`: 1 while log time does not wait for it; `boots`: the newest [boot, time of its first mark,
    number of the append with it] in the order of the numbers; `stood`: the newest [from, to] in which nothing ran there
    (`settling.standstills`); `reads`: 1 where somebody has read there who has ended in order."""

    now: int = -1
    silent: int = 0
    boots: list[list[int]] = field(default_factory=list)
    stood: list[list[int]] = field(default_factory=list)
    reads: int = 0


@dataclass(slots=True)
class Clocks(Table):
    """By how much one boot's clock is ahead of another's, at most: a record that `sender` sent at its time s was seen
    by `reader` at its time p, so reader's clock is ahead by less than p - s. `least`: the least of them, as of `at` by
    reader's clock; each bounds less and less, as clocks drift."""

    sender: Ints = field(default_factory=lambda: EMPTY)
    reader: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    least: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Sightings(Table):
    """Runs that were sent, or seen: `at` is when (invoked, or completed) by the clock of `boot`, `offset` -1 where
    nobody told it."""

    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Places(Table):
    """Runs of values at their offsets, sorted by offset; those of one label (writer, offset - seq) are merged."""

    offset: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Outstanding(Table):
    """Acknowledged values that no ok operation has polled yet. `offset` is -1 where the acknowledgement gave none;
    `since` is when it came, `invoked` when it was sent, `readable` when the last stable offset had passed it (-1: not
    yet). `due`: from when on it may be called lost, negative while no reader has passed it. `boot`: by whose clock it
    was sent."""

    offset: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    readable: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    due: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Indefinite(Table):
    """Sends whose outcome is unknown: visible once one value of their operation has been polled."""

    process: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Moves(Table):
    """What moved readers or showed how far they could read, one entry a slice, until its time is complete.

    `f` and `type` are codes of `rules.arrays.columns`. `first`, `last`: the offsets of the first and last record polled
    (-1: none); `known`: bit 0 if the first one's value is, bit 1 if the last one's, bit 2 if read at read_uncommitted.
    `before`, `after`: the positions around it. `stable`, `low`, `end`: last stable offset, log start and log end as
    observed. `boot` is a number of `State.boot_names`, -1 for none. `stranger`: the run of a record that it lists as
    foreign, 0 for none (`rules.settling.strangers`)."""

    process: Ints = field(default_factory=lambda: EMPTY)
    slice: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    f: Ints = field(default_factory=lambda: EMPTY)
    type: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    assigned: Ints = field(default_factory=lambda: EMPTY)
    subscribed: Ints = field(default_factory=lambda: EMPTY)
    first: Ints = field(default_factory=lambda: EMPTY)
    last: Ints = field(default_factory=lambda: EMPTY)
    known: Ints = field(default_factory=lambda: EMPTY)
    before: Ints = field(default_factory=lambda: EMPTY)
    stable: Ints = field(default_factory=lambda: EMPTY)
    low: Ints = field(default_factory=lambda: EMPTY)
    after: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    stranger: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Polls(Table):
    """Runs that ok operations polled at read_committed and that are not folded yet; `at` is when, by the clock of
    `boot`."""

    at: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    slice: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)


HELD_ON: Final = 2


@dataclass(slots=True)
class Transitions(Table):
    """A reader's steps from one polled record to the next that are not plainly consecutive, until their offsets are
    settled: from one poll to the next, or (`internal`) inside one operation. `subscribed`: 1 where a rebalance may have
    come between, `HELD_ON` where the group had left the partition to it since its last poll, 0 in mode `assign`."""

    process: Ints = field(default_factory=lambda: EMPTY)
    subscribed: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    first: Ints = field(default_factory=lambda: EMPTY)
    previous: Ints = field(default_factory=lambda: EMPTY)
    previous_op: Ints = field(default_factory=lambda: EMPTY)
    low: Ints = field(default_factory=lambda: EMPTY)  # nothing below counts: log start, or settled at the poll
    internal: Ints = field(default_factory=lambda: EMPTY)
    awaits: Ints = field(default_factory=lambda: EMPTY)  # since when: the log start after the poll is not observed yet
    boot: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class SendMoves(Table):
    """Where operations sent to, one entry a slice, until its time is complete: offsets of the first and last record."""

    process: Ints = field(default_factory=lambda: EMPTY)
    slice: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    first: Ints = field(default_factory=lambda: EMPTY)
    last: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class SendSteps(Table):
    """Steps from one send to the next that are not plainly onward, until their offsets are settled."""

    process: Ints = field(default_factory=lambda: EMPTY)
    previous_op: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    previous: Ints = field(default_factory=lambda: EMPTY)
    first: Ints = field(default_factory=lambda: EMPTY)
    internal: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Spans(Table):
    """Merged half-open intervals of offsets."""

    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Foreign(Table):
    """Offsets [start, end) that polls went over which list records of this run as a stranger's, as it is so far."""

    run: Ints = field(default_factory=lambda: EMPTY)
    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Passed(Table):
    """Offsets [start, end) that `process`, in assign mode, went over in ok operations, the first of them at time
    `since` and the last at time `at` of `boot`. Until the log start is observed after it, it is not known whether
    retention had sent the reader forward."""

    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Went(Table):
    """Offsets [start, end) that readers went over, and when they did last: between `since` and `until` by the clock of
    `boot`; `first`: the tick by which the first of them had. Disjoint, in the order of offsets: see
    `rules.settling.passes`."""

    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    until: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    first: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Proven(Table):
    """The same of passes that are proven now to have been above the log start; `at` is the tick by which they had."""

    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    until: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Listed(Table):
    """Observations of the log start: see `rules.settling.listings`."""

    invoked: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    low: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Moved(Table):
    """Earlier places of values that stand again further on: offset .. offset+length-1 stand at `last` .. too. `known`:
    the log time since when it is known that they stand again."""

    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    last: Ints = field(default_factory=lambda: EMPTY)
    known: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class State:
    """One partition. Offsets are -1 and times -1 where unknown."""

    topic: str = ""
    begins: int = -1  # since when all of its rows are there: see `rules.engine.retention`
    held: int = 0  # by how much log time is held back behind the newest mark: see `rules.step.prepare`
    now: int = -1
    tick: int = -1
    settled: int = 0
    reached: int = 0
    left: int = -1  # the highest offset at which a reader let go
    reached_at: list[tuple[int, int]] = field(default_factory=list)
    log_start: int = -1
    log_start_at: int = -1
    log_end: int = -1
    last_stable: int = -1
    acknowledged: int = 0
    polled: int = 0
    highest_acknowledged: int = -1
    highest_polled: int = -1
    unseen: int = 0
    open_conditions: dict[str, int] = field(default_factory=dict)
    explained: list[str] = field(default_factory=list)  # those of them that were told as explained by an outage
    dropped: dict[str, list[int]] = field(default_factory=dict)  # [how many, since, last] by what: see `kept.dropped`
    told: list[str] = field(default_factory=list)  # what was reported of single records, newest last, bounded
    not_idempotent: list[int] = field(default_factory=list)  # writers
    not_idempotent_processes: list[int] = field(default_factory=list)
    not_idempotent_until: list[int] = field(default_factory=list)  # see `rules.settling.retrying_writers`
    gone: list[list[int]] = field(default_factory=list)  # [process, when, ...]: complete, and forgotten: `standstills`
    departed: dict[int, Process] = field(default_factory=dict, metadata={"of": Process})  # declared gone, and complete
    read_here: list[list[int]] = field(default_factory=list)  # see `rules.settling.standstills`
    processes: dict[int, Process] = field(default_factory=dict, metadata={"of": Process})
    hosts: dict[int, Host] = field(default_factory=dict, metadata={"of": Host})
    boot_names: list[str] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)  # of each of them: log time less its monotonic clock, -1 for unknown
    begun: list[int] = field(default_factory=list)  # of each: the earliest that was done in it, by its monotonic clock
    done: list[int] = field(default_factory=list)  # of each: the latest, likewise; -1 for unknown
    tops: list[tuple[int, int]] = field(default_factory=list)  # of each: one past the highest offset given here, when
    astray: list[tuple[int, int]] = field(default_factory=list)  # of each: how far its wall clock was ahead, until when
    set_back: list[tuple[int, int]] = field(default_factory=list)  # see `rules.settling.clocks`
    clocks: Clocks = field(default_factory=Clocks)
    sightings: Sightings = field(default_factory=Sightings)  # of what was sent
    seen: Sightings = field(default_factory=Sightings)  # of what was polled
    ends: Sightings = field(default_factory=Sightings)  # log ends that were listed, as `offset`
    unproven: Passed = field(default_factory=Passed)
    listed: Listed = field(default_factory=Listed)
    holes: list[list[int]] = field(default_factory=list)  # each a `Hole`
    holes_forgotten: int = -1  # the newest end of those that are not remembered any more
    lost_writers: list[int] = field(default_factory=list)  # of which holes have come since the last tick
    log: Places = field(default_factory=Places)
    relaid: Places = field(default_factory=Places)  # below the frontier, after a cut: see `rules.settling.window`
    index: Spans = field(default_factory=Spans)  # offsets that hold a value, from `index_from` on
    index_from: int = 0
    passed: Went = field(default_factory=Went)  # by readers in assign mode, while above the log start
    given_again: Spans = field(default_factory=Spans)  # offsets below an earlier log end, after the log was cut
    given_twice: Spans = field(default_factory=Spans)  # offsets that hold two values: see `rules.settling.passes`
    unclear: Spans = field(default_factory=Spans)
    runs: list[int] = field(default_factory=list)  # whose rows these are: see `rules.settling.strangers`
    strange: Spans = field(default_factory=Spans)  # offsets that readers went over as a stranger's
    foreign: Foreign = field(default_factory=Foreign)
    moved: Moved = field(default_factory=Moved)
    moves: Moves = field(default_factory=Moves)
    polls: Polls = field(default_factory=Polls)
    uncommitted: Polls = field(default_factory=Polls)  # the same at read_uncommitted
    sends: SendMoves = field(default_factory=SendMoves)
    checks: dict[str, Any] = field(default_factory=dict, metadata={"apart": True})

    def called(self, number: int) -> str:
        """How a message calls a process: by its probe's name while that is known, for people, and by its number."""
        process = self.processes.get(number)
        return f"{process.name} (process {number})" if process is not None and process.name else f"process {number}"

    def run_of(self, number: int) -> str:
        """The run of a process; "" while nobody knows."""
        process = self.processes.get(number)
        return process.run if process is not None else ""


def dump(state: State, kinds: Mapping[str, type]) -> bytes:
    """The state, with those of the checks, as bytes; `kinds`: the type of each check's state."""
    return codec.dump(state, state.checks, kinds)


def load(data: bytes, kinds: Mapping[str, type]) -> State:
    """The state that `dump` wrote; `kinds`: the type of each check's state. Raises `UnknownFormat`."""
    state, checks = codec.load(data, State, kinds)
    state.checks = checks
    return state
