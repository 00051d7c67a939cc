"""`log-truncation`: the log ends below a record that was acknowledged or polled before, and goes on from there.

The log's end, as its leader lists it for read_uncommitted, is at or below an offset that was known before the listing
was invoked (`known_ends`), and a write that was invoked after it was acknowledged between the two. Without that write
nothing is proven: a leader that has been deposed, and cut off so that it does not know it yet, lists the end that it
last knew. A listing above all that was known ends the waiting for such a write; one between the two that is invoked
before that listing was done still bears the short one out, also where it is acknowledged later (`outlived`). Where no
other listing comes by that clock for the grace time after such a write, as where the observer's host went down, the
write is enough. An end of 0 that the next listing does not bear out, where a higher one had been listed, is no
truncation, but a `spurious-zero-offset`.

"Before" and "after" are concluded within one clock domain alone, once the log of all whose clock it is has come so
far; an operation that is open for long tells nothing of that time, and is not waited for. A hole takes nothing back:
the verdict rests on what was seen.

Where the log went on from is the lowest offset that a write was given after a higher one was known: in an outage
writers may be ahead of the next listing by hundreds of records.

Below the settled frontier no values are kept that could be compared with those that stand there now. So the range that
was written again is asked to be explained by the rows of the log (`rules.audit.explain`): soon after the log has grown
past what was known, and once more when readers have had time to come by. So is a range of which nobody listed the end
in time: a write was given an offset below what had been known, by its own clock, when it was invoked. That alone proves
no truncation, for an acknowledgement may be wrong.

While rows of somebody are missing, for ten minutes where they never come, listings wait for them. What they will tell
can only raise what is known, so what is short and borne out already is told at once. When such a listing is due, and
more turns out to have been known, it is the same truncation.

What a truncation took away is known no more: from the listing on at which it is told, checks after this one are told
(`Passage.due`) what had been acknowledged since, or else where the log went on from.

State: the offsets written since the last listing that was not short, at most `KEPT` beside those of one step and those
that went below what was known; those listings, the short ones that wait for a write, the truncations told (`Cut`),
those of them that were told while rows were missing, the short listings that none bore out, and the ranges to be
explained, at most `CUTS_KEPT` each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from rules.arrays import intervals
from rules.arrays.intervals import EMPTY, Bools, Ints, each, indices
from rules.checks.ends.known_ends import STEP, Acknowledged, Listing, by_the_clock_of
from rules.kept.check import FOREVER, Check, CutLog, News, Passage
from rules.kept.codec import Table, concat, take
from rules.vocabulary.objectives import SECOND

KEPT: Final = 4096
FIRST: Final = 1_024
"""Offsets below the lowest one that an acknowledgement shows to be given again: what was written there first may never
have been acknowledged. They are explained with it."""
CUTS_KEPT: Final = 64
"""A listing that is short for longer than a minute is borne out by each write after the newest of them as well."""
LATER: Final = (30 * SECOND, 600 * SECOND)
"""So long after all of a range was written again it is asked to be explained."""
LONG: Final = 16_383
"""So many steps, or an unknown number, a write is open for long."""


@dataclass(slots=True)
class Written(Table):
    """Offsets [start, end) that writes invoked in a step of the domain's clock were given, and in which step they had
    been acknowledged, `FOREVER` where that is not known."""

    domain: Ints = field(default_factory=lambda: EMPTY)
    step: Ints = field(default_factory=lambda: EMPTY)
    completed: Ints = field(default_factory=lambda: EMPTY)
    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Cut(Table):
    """Truncations: told with the listing `at` of log time, by the short listing of this step and domain. What was known
    to stand at the offsets [again, known] before is gone."""

    at: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    step: Ints = field(default_factory=lambda: EMPTY)
    again: Ints = field(default_factory=lambda: EMPTY)
    known: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class LogEnds:
    """`cuts`: [at, domain, step, end listed, offset known, step when done, step since which that is known] of listings
    that wait for a write; `zero`: the same of an end of 0 that waits for the next listing, or empty; `told`: the known
    offsets of truncations that were reported; `unexplained`: [start, end, how many times it was asked, since when the
    log is known to end beyond it (-1: not yet)] of ranges that were written again; `sound`: [domain, step, offset
    known, end] of the last listing of each domain that was not short of what was known; `outlived`: what waited in
    `cuts` until such a listing came, each with the step and the log time of that one; `gone`: the truncations that were
    reported; `early`: [domain, step, offset known] of those of them whose listing was not due yet."""

    written: Written = field(default_factory=Written)
    cuts: list[list[int]] = field(default_factory=list)
    zero: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    gone: Cut = field(default_factory=Cut)
    unexplained: list[list[int]] = field(default_factory=list)
    sound: list[list[int]] = field(default_factory=list)
    outlived: list[list[int]] = field(default_factory=list)
    early: list[list[int]] = field(default_factory=list)
    again: list[list[int]] = field(default_factory=list)


class Truncation(NamedTuple):
    """A short listing that was borne out, the log time of the listing with which that was known, and from where on the
    log was written again."""

    cut: Listing
    at: int
    again: int


def arrive(own: LogEnds, new: News) -> None:
    """What the new rows wrote."""
    sent = new.safe
    if sent is None:
        return
    if len(own.written) > KEPT:  # not what this step brings: a file's history, or a long backlog, comes in one
        own.written = _bounded(own.written)
    for number in each(sent.domain):
        of = take(sent, (sent.domain == number) & (sent.invoked >= 0))
        took = np.where(of.completed < of.invoked, LONG, np.minimum(of.completed - of.invoked, LONG))
        label, start, end = intervals.merge_grouped(of.invoked * (LONG + 1) + took, of.start, of.end)
        step, took = label // (LONG + 1), label % (LONG + 1)
        completed = np.where(took < LONG, step + took, FOREVER)
        known = own.written
        own.written = concat(known, Written(np.full(len(step), number), step, completed, start, end))
        _note_given_again(own, number, known, of)


def _note_given_again(own: LogEnds, domain: int, known: Written, new: Acknowledged) -> None:
    """Are offsets given again, with what these tell, or do they tell that some were?"""
    if not len(new):
        return
    known = take(known, known.domain == domain)
    top = max(_sound(own, domain)[1], int(known.end.max(initial=0)) - 1)
    late = (known.step > int(new.completed.min())) & (known.start < int(new.end.max()))
    order = new.completed.argsort(kind="stable")
    before = np.append(0, np.maximum.accumulate(new.end[order]))[new.completed[order].searchsorted(new.invoked)]
    if int(new.start.min()) > top and not (late.any() or (before > new.start).any()):
        return  # as nearly always
    written, below = _since_sound(own, domain), _known_before(own, domain)
    lower = below >= written.start
    if not lower.any():
        return
    start, end = int(written.start[lower].min()), int(below[lower].max()) + 1
    if not any(low <= start < high for low, high in own.again):
        own.again = [*own.again, [start, end]][-CUTS_KEPT:]
        own.unexplained = [*own.unexplained, [start, end, 0, -1]][-CUTS_KEPT:]


def _bounded(written: Written) -> Written:
    """The newest, and whatever was given an offset below one that was known, with what had made that known: the listing
    beside it may wait for minutes, where a row is missing, and what only goes on bears out nothing."""
    kept = np.zeros(len(written), bool)
    kept[written.step.argsort(kind="stable")[-KEPT:]] = True
    for number in each(written.domain):
        mine = indices(written.domain == number)
        mine = mine[written.completed[mine].argsort(kind="stable")]
        highest = np.maximum.accumulate(written.end[mine])
        last = written.completed[mine].searchsorted(written.step[mine], side="left") - 1
        again = indices((last >= 0) & (highest[np.maximum(last, 0)] > written.start[mine]))[-KEPT:]
        kept[mine[again]] = True
        kept[mine[highest.searchsorted(highest[last[again]], side="left")]] = True
    return take(written, kept)


def fold(own: LogEnds, passage: Passage) -> None:
    """Decide the listings up to the end, in the order of their times."""
    if own.outlived:
        _report(_borne_out_late(own), passage)
    judged = []
    for listing in passage.due:
        # What is gone is known no more: the log may be cut again, below where it ended before.
        since = _since_it_was_cut(own, listing) if len(own.gone) else listing
        _report(_judge(own, since, passage, ever=listing.known), passage)
        judged.append(_since_it_was_cut(own, listing) if len(own.gone) else listing)
    passage.due = judged
    if passage.due:
        _forget(own, passage.due)
    if passage.early:
        _report(_judge_early(own, passage.early), passage)
    if own.cuts or own.zero:
        _report(_never_listed_again(own, passage), passage)
    if own.unexplained and not passage.finished:
        _ask(own, passage)


def _report(found: Iterable[Truncation], passage: Passage) -> None:
    for cut, _, again in found:
        evidence = {"log_end": cut.end, "known": cut.known, "written_again": again}
        if cut.since >= 0:
            evidence["known_since"] = cut.at - (cut.done - cut.since) * STEP
        passage.cuts.append(CutLog(cut.at, again))
        where = "there" if again == cut.known else f"at {cut.known + 1 - again} offsets"
        passage.report.add(
            "log-truncation",
            (cut.known,),
            f"the log ends at {cut.end}, and offset {cut.known} was acknowledged or polled before; then offset {again}"
            f" was given to another write: what stood {where} is gone",
            at=cut.at,
            evidence=evidence,
        )


def _judge_early(own: LogEnds, listings: list[Listing]) -> list[Truncation]:
    """What is plain of listings that are not due yet. They are judged again when they are: that truncations were told
    is all that is kept."""
    trial = replace(own, cuts=[list(cut) for cut in own.cuts], sound=[list(one) for one in own.sound])
    found = [one for listing in listings for one in _judge(trial, listing, None, ever=listing.known)]
    own.told, own.gone, own.unexplained = trial.told, trial.gone, trial.unexplained
    own.early = [*own.early, *([one.cut.domain, one.cut.step, one.cut.known] for one in found)][-CUTS_KEPT:]
    return found


def _ask(own: LogEnds, passage: Passage) -> None:
    """Ask for what was written again to be explained, where it is time."""
    for cut in own.unexplained:
        start, end, asked, full = cut
        if full < 0:
            cut[3] = full = min((listing.at for listing in passage.due if listing.end >= end), default=-1)
        if full < 0 and (own.written.start >= end).any():  # nobody lists it, and it has been written beyond
            cut[3] = full = passage.end
        if full >= 0 and passage.end - full >= LATER[asked]:
            passage.report.recheck(max(0, start - FIRST), end, asked)
            cut[2] += 1
    own.unexplained = [cut for cut in own.unexplained if cut[2] < len(LATER)]


def _judge(own: LogEnds, listing: Listing, passage: Passage | None, *, ever: int) -> list[Truncation]:
    """Take in the next listing; the truncations that it, or what came before it, bears out. Without a `passage`, to
    which a spurious end of 0 is reported, it is not due yet. `ever`: what had been known, whether it is gone or not."""
    domain, step, end, known, done, _ = listing[1:]
    found = _written_over(own, domain, done, listing.at)
    if end > known:
        over = [[*cut, done, listing.at] for cut in own.cuts if cut[1] == domain]
        own.outlived = [*own.outlived, *over][-CUTS_KEPT:]
        own.cuts = [cut for cut in own.cuts if cut[1] != domain]
        own.sound = [*(one for one in own.sound if one[0] != domain), [domain, step, known, end]][-CUTS_KEPT:]
    if own.zero:
        if end <= ever:
            own.cuts.append(own.zero)
        elif passage is not None:
            _report_zero(own.zero, passage)
        own.zero = []
    if end == 0 and known > 0 and any(of == domain and listed > 0 for of, _, _, listed in own.sound):
        own.zero = list(listing)
    elif end <= known:
        own.cuts.append(list(listing))
    del own.cuts[:-CUTS_KEPT]
    return found


def _forget(own: LogEnds, judged: list[Listing]) -> None:
    """What no later listing needs: what had been acknowledged before one that was not short."""
    for domain in {listing.domain for listing in judged}:
        since, written = _sound(own, domain)[0], own.written
        under_way = (written.completed >= since) & (written.completed < FOREVER)
        own.written = take(written, (written.domain != domain) | (written.step >= since) | under_way)


def _sound(own: LogEnds, domain: int) -> tuple[int, int]:
    """The step of the last listing by this clock that was not short of what was known, and what was known then."""
    return next(((step, known) for of, step, known, _ in own.sound if of == domain), (-1, -1))


def _since_it_was_cut(own: LogEnds, listing: Listing) -> Listing:
    """The same with what was known of the log as it is since it was cut, where that was told by then: what was
    acknowledged since, by the same clock, and what stands below the cut."""
    gone, written = own.gone, own.written
    mine = (gone.at <= listing.at) & (gone.again <= listing.known) & (listing.known <= gone.known)
    if not mine.any():
        return listing
    last = int(indices(mine)[gone.at[mine].argmax()])
    since = (written.domain == listing.domain) & (written.step > gone.step[last]) & (written.completed < listing.step)
    since &= gone.domain[last] == listing.domain  # by another clock nobody knows what was written since
    known = int(written.end[since].max(initial=gone.again[last])) - 1
    step, known_then = _sound(own, listing.domain)
    if gone.domain[last] == listing.domain and gone.step[last] < step < listing.step:
        known = max(known, known_then)  # what was written before a listing that was not short is forgotten with it
    return listing if known == listing.known else listing._replace(known=known, since=-1)


def _written_over(own: LogEnds, domain: int, until: int, at: int) -> list[Truncation]:
    """The listings short of what was known that a write bears out, of those invoked before step `until`, when the
    listing of this log time was done: it may have what was written meanwhile."""
    left, found = [], []
    for cut in (Listing(*entry) for entry in own.cuts):
        over = _written_after(own, cut, until)
        if cut.domain != domain or not over.any():
            left.append(list(cut))
        else:
            again = min(int(np.maximum(own.written.start[over], cut.end).min()), _given_again(own, domain))
            found += _truncated(own, cut, at, again)
    own.cuts = left
    return found


def _never_listed_again(own: LogEnds, passage: Passage) -> list[Truncation]:
    """What short listings are borne out by a write after which none came by their clock for the grace time; in a file,
    for ever."""
    found: list[Truncation] = []
    for domain in each(np.array([cut[1] for cut in (*own.cuts, own.zero) if cut], np.int64)):
        borne_out = _first_borne_out(own, domain)
        if borne_out is None:
            continue
        cut, since = borne_out
        until = since + passage.report.objectives.grace // STEP
        at = cut.at + (until - cut.step) * STEP
        if passage.finished:
            until, at = FOREVER, passage.end
        if at <= min(passage.end, passage.gate.told_through(by_the_clock_of(domain))):
            if own.zero and own.zero[1] == domain:
                own.cuts, own.zero = [*own.cuts, own.zero], []
            found += _written_over(own, domain, until, at)
    return found


def _first_borne_out(own: LogEnds, domain: int) -> tuple[Listing, int] | None:
    """The first listing that waits by this clock and is borne out by a write, and the step of the first such write."""
    cuts = [Listing(*entry) for entry in (*own.cuts, own.zero) if entry and entry[1] == domain]
    written, step, known = own.written, min(cut.step for cut in cuts), max(cut.known for cut in cuts)
    if not ((written.domain == domain) & (written.step > step) & (written.start <= known)).any():
        return None  # as nearly always: the log goes on where it was
    for cut in cuts:
        over = _written_after(own, cut, FOREVER)
        if over.any():
            return cut, int(written.step[over].min())
    return None


def _borne_out_late(own: LogEnds) -> list[Truncation]:
    """Short listings that outlived all that was known, and that a write bears out whose acknowledgement came late."""
    if int(own.written.start.min(initial=FOREVER)) > max(entry[4] for entry in own.outlived):
        return []  # as nearly always: what was written lies above all of them
    left, found = [], []
    for entry in own.outlived:
        *listed, until, at = entry
        cut = Listing(*listed)
        over = _written_after(own, cut, until)
        if over.any():
            found += _truncated(own, cut, at, int(np.maximum(own.written.start[over], cut.end).min()))
        else:
            left.append(entry)
    own.outlived = left
    return found


def _written_after(own: LogEnds, cut: Listing, until: int) -> Bools:
    """The writes that were invoked after a short listing, and before step `until`, and were given offsets between its
    end and what had been known."""
    written = own.written
    after = (written.domain == cut.domain) & (written.step > cut.step) & (written.step < until)
    return np.asarray(after & (written.start <= cut.known) & (written.end > cut.end), bool)


def _truncated(own: LogEnds, cut: Listing, at: int, again: int) -> list[Truncation]:
    """The log was cut, and written again from there: note it, and tell it unless it was told."""
    found = []
    if not _is_told(own, cut, at, again) and cut.known not in own.told:
        found.append(Truncation(cut, at, again))
        own.unexplained = [*own.unexplained, [again, cut.known + 1, 0, -1]][-CUTS_KEPT:]
        entry = Cut(*(np.array([value], np.int64) for value in (at, cut.domain, cut.step, again, cut.known)))
        own.gone = take(concat(own.gone, entry), slice(-CUTS_KEPT, None))
    if cut.known not in own.told:
        own.told = [*own.told, cut.known][-CUTS_KEPT:]
    return found


def _is_told(own: LogEnds, cut: Listing, at: int, again: int) -> bool:
    """Was it told while rows were missing, when not all of what had been known was here? Then what it took away, and
    since when, is as is known now."""
    for entry in own.early:
        domain, step, known = entry
        if domain != cut.domain or step < cut.step or known > cut.known or known < cut.end:
            continue
        gone = own.gone
        same = (gone.domain == domain) & (gone.step == step) & (gone.known == known)
        own.gone = replace(
            gone,
            at=np.where(same, np.minimum(gone.at, at), gone.at),
            known=np.where(same, cut.known, gone.known),
        )
        own.unexplained = [
            [min(start, again), cut.known + 1, asked, full] if end == known + 1 else [start, end, asked, full]
            for start, end, asked, full in own.unexplained
        ]
        entry[2] = cut.known
        return True
    return False


def _given_again(own: LogEnds, domain: int) -> int:
    """The lowest offset that a write was given after a higher one was known, by this clock; `FOREVER` for none."""
    written = _since_sound(own, domain)
    return int(written.start[_known_before(own, domain) >= written.start].min(initial=FOREVER))


def _since_sound(own: LogEnds, domain: int) -> Written:
    return take(own.written, (own.written.domain == domain) & (own.written.step >= _sound(own, domain)[0]))


def _known_before(own: LogEnds, domain: int) -> Ints:
    """The highest offset that was known before each of these writes was invoked, by this clock; -1 for none."""
    (since, top), written = _sound(own, domain), _since_sound(own, domain)
    order = written.completed.argsort(kind="stable")
    known = np.append(-1, np.maximum.accumulate(written.end[order]) - 1)
    before = known[written.completed[order].searchsorted(written.step, side="left")]
    return np.where(written.step > since, np.maximum(before, top), before)


def _report_zero(zero: list[int], passage: Passage) -> None:
    at, known = zero[0], zero[4]
    passage.report.add(
        "spurious-zero-offset",
        ("listed", at),
        f"the log's end was listed as 0 when offset {known} was known before",
        at=at,
        evidence={"known": known},
    )


CHECK: Final = Check("log-truncation", LogEnds, arrive=arrive, fold=fold)
