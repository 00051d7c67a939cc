"""What a group may have been asked to commit where something of a member's log is missing for good.

A commit that fell into such a hole is unknown for as long as an offset of that time may be told. It asked for no offset
above the log's end at that time: the first listing that was asked after the hole tells one that is at least as high,
and of what lies above it everything is known again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays.intervals import EMPTY, Ints, each, indices
from rules.kept.check import Passage
from rules.kept.codec import Table, concat, take
from rules.kept.state import NEVER, Hole
from rules.settling.gate import Gate
from rules.settling.listed_ends import highest_before

KEPT: Final = 512
LISTINGS_KEPT: Final = 64


@dataclass(slots=True)
class Unknown(Table):
    """Holes in the logs of processes (-1: of several): since `start` by the clock of `boot`, until `end` by that of
    `end_boot`. `top`: the highest offset that may have been committed in it, NEVER while no listing has told."""

    process: Ints = field(default_factory=lambda: EMPTY)
    start: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    end_boot: Ints = field(default_factory=lambda: EMPTY)
    top: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Listings(Table):
    """When listings were asked for, in this order, by the clock of `boot`; `end`: the highest told so far."""

    invoked: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class UnknownCommits:
    """`holes`: at most `KEPT`; of offsets up to `to` any may have been committed in another one. `listings`: the
    newest `LISTINGS_KEPT`, for holes that are known late; of older ones `rules.settling.listed_ends` tells. Within a
    step all that came with it."""

    holes: Unknown = field(default_factory=Unknown)
    to: int = -1
    listings: Listings = field(default_factory=Listings)


def note(own: UnknownCommits, passage: Passage) -> None:
    """Note new holes, and what listings tell of the offsets that may have been committed in them."""
    known = {*zip(own.holes.process.tolist(), own.holes.end.tolist(), strict=True)} if passage.state.holes else {}
    holes = [hole for hole in map(Hole._make, passage.state.holes) if (hole.process, hole.end) not in known]
    if holes:
        new = [(hole.process, hole.start, hole.boot, hole.end, hole.end_boot, NEVER) for hole in holes]
        own.holes = concat(own.holes, Unknown(*np.array(new, np.int64).T))
    _note_listings(own, passage)
    _bound(own)


def _bound(own: UnknownCommits) -> None:
    """Of too many, forget the lowest: of one that has no bound yet any offset would be unknown, for ever."""
    if len(own.holes) > KEPT:
        order = own.holes.top.argsort(kind="stable")
        own.to = max(own.to, int(own.holes.top[order[-KEPT - 1]]))
        own.holes = take(own.holes, np.sort(order[-KEPT:]))


def _note_listings(own: UnknownCommits, passage: Passage) -> None:
    moves = passage.moves
    rows = indices(moves.end >= 0)
    if len(rows):
        new = concat(own.listings, Listings(moves.invoked[rows], moves.boot[rows], moves.end[rows]))
        new = take(new, new.invoked.argsort(kind="stable"))
        new.end = np.maximum.accumulate(new.end)
        own.listings = new
    if len(own.holes):
        _bound_holes(own, passage)


def forget(own: UnknownCommits) -> None:
    """Of the listings keep the newest: what came with the step has been asked for all of them."""
    if len(own.listings) > LISTINGS_KEPT:
        own.listings = take(own.listings, slice(-LISTINGS_KEPT, None))


def highest_after(own: UnknownCommits, at: Ints, domain: Ints, gate: Gate) -> Ints:
    """How high the log's end had been listed by the first listing that was certainly asked for after each of these
    times, by the clocks of these domains: nobody can have read what lies above it before. NEVER where there is none."""
    found = np.full(len(at), NEVER, np.int64)
    for boot in each(own.listings.boot):
        theirs = own.listings.boot == boot
        invoked, end = own.listings.invoked[theirs], np.append(own.listings.end[theirs], NEVER)
        for other in each(domain):
            mine = domain == other
            later = invoked.searchsorted(at[mine] + gate.ahead(boot, other, strict=True), side="right")
            found[mine] = np.minimum(found[mine], end[later])
    return found


def _bound_holes(own: UnknownCommits, passage: Passage) -> None:
    """Tell of holes, that have not been told of it, how high the log's end was by the first listing after them."""
    open_ = indices(own.holes.top == NEVER).tolist()
    if not open_ or not len(own.listings):
        return
    boots, which = np.unique(own.listings.boot, return_inverse=True)
    for i in open_:
        end, boot = int(own.holes.end[i]), int(own.holes.end_boot[i])
        apart = np.array([passage.gate.apart(other, boot) for other in boots.tolist()])
        later = indices(own.listings.invoked > end + apart[which])
        if not len(later):
            continue
        top = int(own.listings.end[later[0]])
        # Before the first that is kept there may have been one.
        known = -1 if later[0] else highest_before(passage.state, end, boot)
        own.holes.top[i] = min(top, known) if known >= 0 else top


def may_hold(own: UnknownCommits, offset: int, at: int, domain: int, may: Callable[[int], bool], gate: Gate) -> bool:
    """May one that `may` commit have asked for this offset where its log is missing, before `at` by the clock of
    `domain`?"""
    if offset <= own.to:
        return True
    holes = own.holes
    return any(
        may(int(holes.process[i])) and int(holes.start[i]) - gate.apart(int(holes.boot[i]), domain) <= at
        for i in indices(holes.top >= offset).tolist()
    )
