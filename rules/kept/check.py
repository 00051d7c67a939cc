"""What a check is: its own typed state, and the moments at which the engine calls it.

A check is told of new rows as they arrive, in whatever order they come (`arrive`), and of log time that has passed
(`fold`): there everything that happened up to a tick is known of every process that is not late, and comes in the order
of time. Of a finished history it is told once, at its end (`finish`). It reads what the engine knows (`State`, the
columns), asks chunks for what it declared in `needs`, reports what it finds, and changes nothing but its own state.

The engine holds one ordered list of checks (`rules.engine.order`), with a reason wherever the order matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from rules.arrays.columns import Columns, Runs
from rules.arrays.intervals import EMPTY, Bools, Ints, indices
from rules.kept.state import Spans

if TYPE_CHECKING:
    from rules.checks.ends.known_ends import Acknowledged, Listing
    from rules.kept.chunks import Chunks
    from rules.kept.report import Report
    from rules.kept.state import Moves, Places, Polls, Proven, SendMoves, State, Transitions
    from rules.settling.frontier import Advance
    from rules.settling.gate import Gate
    from rules.settling.listings import Listings
    from rules.settling.positions import Passes
    from rules.settling.window import Placed

S = TypeVar("S")

FOREVER: Final = 2**62
"""A log time after everything."""


@dataclass(slots=True)
class Asked:
    """What is known before a step, when a check says which chunks it will want: the state, and the new rows."""

    state: State
    columns: Columns


@dataclass(slots=True)
class News:
    """The new rows of a step. `fresh`: which rows are here for the first time. Of those rows' runs, `sent` and `polled`
    are all; `acknowledged`, `failed` and `indefinite` those of ok, fail and info operations that sent; `committed`
    those polled at read_committed, and `proven` those of them that ok operations polled. `placed`: what they made of
    the window.

    `visible`: indefinite operations (process, op) of a finished history of which a value was polled."""

    state: State
    columns: Columns
    fresh: Bools
    sent: Runs
    polled: Runs
    acknowledged: Runs
    failed: Runs
    indefinite: Runs
    committed: Runs
    proven: Runs
    placed: Placed
    chunks: Chunks
    report: Report
    finished: bool
    visible: set[tuple[int, int]]
    safe: Acknowledged | None = None
    """What is known now to be acknowledged by more than a leader alone, as `rules.checks.ends.known_ends` tells."""
    asked: dict[tuple[int, ...], Ints] = field(default_factory=dict)
    """What `where` found."""

    def where(self, *functions: int) -> Ints:
        """The new rows that did one of these, as indices."""
        if self.columns.functions.isdisjoint(functions):
            return EMPTY
        rows = self.asked.get(functions)
        if rows is None:
            rows = self.asked[functions] = indices(self.fresh & self.columns.where(*functions))
        return rows


class CutLog(NamedTuple):
    """The log was cut, as the listing at this log time showed, and went on from `again`."""

    at: int
    again: int


@dataclass(slots=True)
class Passage:
    """Log time that has passed: the ticks `at`, up to `end`, and what happened until then, once each.

    `moves` (canonical order: time, process, slice), `sends` and the runs of ok polls (`polls` at read_committed,
    `uncommitted`) are those up to `end` that were not passed on before. Of a finished history `end` is FOREVER, and
    `advance` is None. `shown`: indefinite operations (process, op) that turned out visible now, by `losses`, and where
    what they wrote was acknowledged (`shown_places`)."""

    state: State
    at: Ints
    end: int
    moves: Moves
    sends: SendMoves
    polls: Polls
    uncommitted: Polls
    advance: Advance | None
    gate: Gate
    chunks: Chunks
    report: Report
    log_start_before: int
    """The log start as it was known before these moves."""
    proven: Proven
    """What readers in assign mode went over, newly proven to have been above the log start."""
    passes: Passes
    """What they went over, proven or not."""
    steps: Transitions
    """Readers' steps from one poll to the next that are not plainly consecutive."""
    listings: Listings | None = None
    lost_writers: list[int] = field(default_factory=list)
    """Writers of whose log something turned out to be missing for good."""
    finished: bool = False
    shown: set[tuple[int, int]] = field(default_factory=set)
    shown_places: Places | None = None
    given_again: Spans = field(default_factory=Spans)
    """Offsets that, as is known now, were given again after the log was cut (`rules.settling.passes`)."""
    placed: Placed | None = None
    """What those made of the window, once they are placed."""
    revealed: set[tuple[int, int]] = field(default_factory=set)
    """Transactions (process, op) that are indefinite, or failed, of which a value here turned out to be visible now."""
    due: list[Listing] = field(default_factory=list)
    """Listings of the log's end that can be judged now (`rules.checks.ends.known_ends`); after
    `rules.checks.ends.log_ends`, with what was known of the log as it is since it was cut."""
    early: list[Listing] = field(default_factory=list)
    """Those that wait for rows, by the clocks by which one of them is short of what is known already."""
    cuts: list[CutLog] = field(default_factory=list)
    """Where the log turned out to have been cut (`rules.checks.ends.log_ends`)."""
    refused: dict[tuple[int, int], int] = field(default_factory=dict)
    """Those of which all values here turned out to be absent, and when
    (`rules.checks.transactions.transaction_outcomes`)."""
    holding: set[int] = field(default_factory=set)
    """The readers that held the partition before these moves; told only where there are several ticks."""
    lives: Callable[[], dict[tuple[str, int], int]] = dict
    """By transactional id and process, when the first operation was invoked of the transactions that wait
    (`rules.checks.transactions.transaction_outcomes`)."""


def _no_chunks(own: Any, asked: Asked) -> Iterable[str]:
    return ()


def _nothing(own: Any, told: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Check(Generic[S]):
    """One check. `name` is its state's name; the names of what it finds are the catalogue's.

    `state` is a dataclass of plain values and tables, whose docstring says what bounds it; `needs` names the chunks
    that the coming step will touch. `fold` is called for finished histories too, once with everything, where `finish`
    is absent.

    `rows` and `rests` say when there is nothing to call a check for; most steps bring most checks nothing. `rows`:
    functions, and names of columns. Where no row did one of these or says something in one of these, `arrive` does
    nothing, whatever its state says; where it also `looks_back`, nothing as long as that says nothing. `rests`: as long
    as its state says nothing, `fold` does nothing, and `needs` names nothing without such rows. A state that says
    nothing is as it was made, and is not kept: it is absent."""

    name: str
    state: type[S]
    needs: Callable[[S, Asked], Iterable[str]] = _no_chunks
    arrive: Callable[[S, News], None] = _nothing
    fold: Callable[[S, Passage], None] = _nothing
    finish: Callable[[S, Passage], None] | None = None
    live_only: bool = False
    """A condition that a finished history has no now for."""
    rows: frozenset[int | str] | None = None
    """None: all rows may concern it."""
    looks_back: bool = False
    rests: bool = False

    @property
    def asks(self) -> bool:
        """Does it ever ask for chunks?"""
        return self.needs is not _no_chunks

    @property
    def follows(self) -> bool:
        """Is it told of log time?"""
        return self.fold is not _nothing or self.finish is not None

    def sleeps(self, state: State) -> bool:
        """Is there nothing that log time could change?"""
        return self.rests and self.name not in state.checks

    def wakes(self, state: State, there: frozenset[int | str]) -> bool:
        """Is there anything to tell it of? `there`: what rows did, and in which columns they say something."""
        return self.rows is None or not self.rows.isdisjoint(there) or (self.looks_back and self.name in state.checks)

    @property
    def hears(self) -> bool:
        """Is it told of new rows?"""
        return self.arrive is not _nothing


@dataclass(slots=True)
class Stateless:
    """Nothing is kept between steps."""
