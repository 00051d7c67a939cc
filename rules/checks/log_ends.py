"""`log-truncation`: the log ends below a record that was acknowledged or polled before, and goes on from there.

The log's end, as its leader lists it for read_uncommitted, is at or below an offset that was known before the listing
was invoked (`rules.checks.known_ends`), and a write that was invoked after it was acknowledged between the two. Without
that write nothing is proven: a leader that has been deposed, and cut off so that it does not know it yet, lists the end
that it last knew. A listing above all that was known ends the waiting for such a write. An end of 0 that the next
listing does not bear out is no truncation, but a `spurious-zero-offset`.

"Before" and "after" are concluded within one clock domain alone, once the log of all whose clock it is has come so
far; an operation that is open for long tells nothing of that time, and is not waited for. A hole takes nothing back:
the verdict rests on what was seen.

State: what was known since the last listing that was judged (`Tops`, `Recovered`); the listings that wait for log time,
and the offsets written since, at most `KEPT` each; the listings that wait for a write, and the truncations told, at
most `CUTS_KEPT` each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import FAIL, OFFSETS
from rules.arrays.intervals import EMPTY, Ints, distinct
from rules.checks import known_ends
from rules.checks.known_ends import Recovered, Tops
from rules.kept.check import FOREVER, Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.settling.gate import Who

KEPT: Final = 4096
CUTS_KEPT: Final = 64


@dataclass(slots=True)
class Written(Table):
    """Offsets [start, end) that writes invoked in a step of the domain's clock were given."""

    domain: Ints = field(default_factory=lambda: EMPTY)
    step: Ints = field(default_factory=lambda: EMPTY)
    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Listings(Table):
    """Ends that were listed: `at` in log time, invoked in a step of the domain's clock."""

    at: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    step: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class LogEnds:
    """`cuts`: [at, domain, step, end listed, offset known] of listings that wait for a write; `zero`: the same of an
    end of 0 that waits for the next listing, or empty; `told`: the known offsets of truncations that were reported."""

    tops: Tops = field(default_factory=Tops)
    recovered: Recovered = field(default_factory=Recovered)
    written: Written = field(default_factory=Written)
    waiting: Listings = field(default_factory=Listings)
    cuts: list[list[int]] = field(default_factory=list)
    zero: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)


def arrive(own: LogEnds, new: News) -> None:
    """What the new rows knew, wrote and listed."""
    columns = new.columns
    listed = new.where(OFFSETS)
    listed = listed[(columns.log_end[listed] >= 0) & (columns.type[listed] != FAIL)]
    if not len(listed) and not len(new.sent) and not len(new.polled) and not len(own.recovered):
        return
    clock = known_ends.clocks(new)
    acknowledged = known_ends.safely_acknowledged(new)
    own.tops, own.recovered = known_ends.learn(own.tops, own.recovered, new, clock, acknowledged)
    row = acknowledged.row
    sent = acknowledged.take(clock.invoked[row] >= 0)
    for number in distinct(clock.domain[sent.row]).tolist():
        of = sent.take(clock.domain[sent.row] == number)
        step, start, end = intervals.merge_grouped(clock.invoked[of.row], of.offset, of.offset + of.length)
        own.written = concat(own.written, Written(np.full(len(step), number), step, start, end))
    if len(own.written) > KEPT:
        own.written = take(own.written, np.sort(np.argsort(own.written.step, kind="stable")[-KEPT:]))
    listed = listed[clock.invoked[listed] >= 0]
    if len(listed):
        at = columns.completed[listed]
        more = Listings(at, clock.domain[listed], clock.invoked[listed], columns.log_end[listed])
        own.waiting = _in_order(concat(own.waiting, more))


def _in_order(listings: Listings) -> Listings:
    order = np.lexsort((listings.end, listings.step, listings.domain, listings.at))
    return take(listings, order[-KEPT:])


def fold(own: LogEnds, passage: Passage) -> None:
    """Decide the listings up to the end, in the order of their times, once it is here what had been known by then."""
    ripe = own.waiting.at <= passage.end
    for boot in distinct(own.waiting.domain[ripe]).tolist():
        told = passage.gate.told_through(_by_the_clock_of(boot))
        ripe &= (own.waiting.domain != boot) | (own.waiting.at <= told) | passage.finished
    if ripe.any():
        listings, own.waiting = take(own.waiting, ripe), take(own.waiting, ~ripe)
        known = known_ends.known_before(own.tops, listings.domain, listings.step)
        columns = (listings.at, listings.domain, listings.step, listings.end, known)
        for listing in zip(*(column.tolist() for column in columns), strict=True):
            _judge(own, list(listing), passage)
        _forget(own, listings)
    if passage.finished:
        for domain in {cut[1] for cut in own.cuts}:
            _written_over(own, domain, FOREVER, passage)


def _by_the_clock_of(boot: int) -> Who:
    """Those whose boot it is, and those of which it is not known yet."""
    return Who(lambda number, process: process.boot in (boot, -1))


def _judge(own: LogEnds, listing: list[int], passage: Passage) -> None:
    _, domain, step, end, known = listing
    _written_over(own, domain, step, passage)
    if end > known:
        own.cuts = [cut for cut in own.cuts if cut[1] != domain]
    if own.zero:
        if end > known:
            _report_zero(own.zero, passage)
        else:
            own.cuts.append(own.zero)
        own.zero = []
    if end == 0 and known > 0:
        own.zero = listing
    elif end <= known:
        own.cuts.append(listing)
    del own.cuts[:-CUTS_KEPT]


def _forget(own: LogEnds, judged: Listings) -> None:
    """What no later listing needs."""
    for domain in distinct(judged.domain).tolist():
        step = int(judged.step[judged.domain == domain].max())
        own.tops = known_ends.forgotten_before(own.tops, domain, step)
        first = min((cut[2] for cut in [*own.cuts, own.zero] if cut and cut[1] == domain), default=step)
        own.written = take(own.written, (own.written.domain != domain) | (own.written.step >= first))


def _written_over(own: LogEnds, domain: int, until: int, passage: Passage) -> None:
    """Report the listings short of what was known that a write bears out, of those invoked before step `until`."""
    left = []
    for cut in own.cuts:
        at, of, step, end, known = cut
        written = own.written
        after = (written.domain == domain) & (written.step > step) & (written.step < until)
        over = after & (written.start <= known) & (written.end > end)
        if of != domain or not over.any():
            left.append(cut)
            continue
        if known in own.told:
            continue
        own.told = [*own.told, known][-CUTS_KEPT:]
        again = int(np.maximum(written.start[over], end).min())
        passage.report.add(
            "log-truncation",
            (known,),
            f"the log ends at {end}, and offset {known} was acknowledged or polled before; then offset {again}"
            " was given to another write",
            at=at,
            evidence={"log_end": end, "known": known, "written_again": again},
        )
    own.cuts = left


def _report_zero(zero: list[int], passage: Passage) -> None:
    at, _, _, _, known = zero
    passage.report.add(
        "spurious-zero-offset",
        ("listed", at),
        f"the log's end was listed as 0 when offset {known} was known before",
        at=at,
        evidence={"known": known},
    )


CHECK: Final = Check("log-truncation", LogEnds, arrive=arrive, fold=fold)
