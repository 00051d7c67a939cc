"""A host that was declared gone comes back all the same, or is declared gone again: what comes of it is evidence, and
nothing of it is missing or waited for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from rules.vocabulary.slices import DECLARED_GONE, Mark, Slice
from tests.rules.conditions.liveness_of import at_once, events, row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.settling.test_late_evidence import Hosts, traffic
from tests.rules.whole import Told, whole

S = number("s")
TWO = ("host", number("committer two"))
FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
RETURNS = pytest.mark.parametrize("after", [10, 190], ids=["soon", "late"])
"""Seconds after the declaration; for three minutes it is remembered of every process that it is over."""


def away(h: Hosts) -> tuple[int, int]:
    """The second host, with the reader `s`, is away from second 20 on; returns what is sent next, and how many of its
    rows are here."""
    h.assign("r")
    h.assign("s")
    i = traffic(h, 20)
    h.silent.add("two")
    return traffic(h, 50, first=i, reads="r"), h._slices[S, 0]


def declare(h: Hosts, rows: int, marker: str = "declares", *, since: float = 22.0) -> Slice:
    """By a person, as `probes.log.commits.gone` writes it."""
    known, now = list(h.processes), h.at(h.time)
    ends = h.at(since) - timedelta(microseconds=1)
    marks = [Mark(S, rows, h.at(20.0), ends, lost=True)]
    made = h.row(marker, "mark", error=DECLARED_GONE, marks=marks, invoked=now, completed=now)
    h.processes = known
    return made


def of_then(h: Hosts, second: int, offset: int | None = None) -> None:
    """A row of the journal that was left: `s` polled the record of this second, or the one of this offset."""
    begun, at = h.time, second if offset is None else offset
    h.time = second + 0.5
    h.poll("s", [("w", second, 1, at)])
    h.time = begun


def back(h: Hosts, first: int, *, ended: bool = True) -> int:
    """It comes back: a restart finds `s` dead, or it was cut off and `s` goes on."""
    of_then(h, 20)
    of_then(h, 21, offset=22)
    known, now = list(h.processes), h.at(h.time)
    if ended:
        h.unheard.add("s")
        marks = [Mark(S, h._slices[S, 0], now, now)]
        h.row("committer two", "mark", marks=marks, invoked=now, completed=now)
    h.silent.discard("two")
    h.processes = known
    return traffic(h, 60, first=first, reads="r" if ended else "rs")


def returned(after: int) -> Hosts:
    h = Hosts(one=("w", "r", "observer"), two=("s",))
    i, rows = away(h)
    declare(h, rows)
    back(h, traffic(h, after, first=i, reads="r"))
    return h


@FEEDS
@RETURNS
def test_of_a_host_that_comes_back_nothing_is_missing(fed: Callable[[History], Store], after: int) -> None:
    late = events(fed(returned(after)), "evidence-late")
    told = [("opened", TWO), ("closed", TWO)] if fed is row_by_row else []
    assert [one[:2] for one in late] == told


@FEEDS
@RETURNS
def test_what_it_did_then_is_evidence(fed: Callable[[History], Store], after: int) -> None:
    """It had polled a record at the offset of another one."""
    told = whole(fed(returned(after)), {"inconsistent-offsets"})
    assert [(one.subject, one.event) for one in told] == [((22,), "raised")]
    innocent = Hosts(one=("w", "r", "observer"), two=("s",))
    i, rows = away(innocent)
    declare(innocent, rows)
    traffic(innocent, after + 60, first=i, reads="r")
    assert whole(fed(innocent), {"inconsistent-offsets"}) == []


def declared_twice(after: int) -> Hosts:
    h = Hosts(one=("w", "r", "observer"), two=("s",))
    i, rows = away(h)
    declare(h, rows)
    i = traffic(h, after, first=i, reads="r")
    declare(h, rows, "declares again", since=20.0)
    traffic(h, 90, first=i, reads="r")
    return h


@FEEDS
@RETURNS
def test_a_second_declaration_says_nothing_new(fed: Callable[[History], Store], after: int) -> None:
    """Not even of a host of its own."""
    late = events(fed(declared_twice(after)), "evidence-late")
    told = [("opened", TWO), ("closed", TWO)] if fed is row_by_row else []
    assert [one[:2] for one in late] == told


def late_rows(h: Hosts, left_out: Slice | None = None) -> list[Told]:
    h.rows = [row for row in h.rows if row is not left_out]
    told = whole(row_by_row(h), {"evidence-late"})
    return [one for one in told if one.event == "opened" and one.evidence["hold"] != "host"]


def goes_on(after: int) -> tuple[Hosts, Slice]:
    """It was only cut off, and `s` lives; the last row but some is given as well."""
    h = Hosts(one=("w", "r", "observer"), two=("s",))
    i, rows = away(h)
    declare(h, rows)
    i = back(h, traffic(h, after, first=i, reads="r"), ended=False)
    gap = h.row("s", "position", position_after=i)
    traffic(h, 40, first=i)
    return h, gap


@RETURNS
def test_one_that_lives_after_all_is_a_process_like_others(after: int) -> None:
    h, _ = goes_on(after)
    assert late_rows(h) == []
    h, gap = goes_on(after)
    (one,) = late_rows(h, gap)
    assert (one.subject, one.evidence["hold"], one.evidence["rows"]) == (("process", S), "rows", 31)
    assert one.message.startswith(f"31 rows of process {S} are missing: it is known as of 30 s ago")


@RETURNS
def test_what_another_process_of_that_host_lacks_is_told(after: int) -> None:
    """It began when the host was back, and was not declared gone."""

    def build() -> tuple[Hosts, Slice]:
        h = Hosts(one=("w", "r", "observer"), two=("s", "q"))
        i, rows = away(h)
        declare(h, rows)
        i = traffic(h, after, first=i, reads="r")
        h.start("q")
        i = back(h, i)
        gap = h.row("q", "position", position_after=i)
        traffic(h, 40, first=i, reads="r")
        return h, gap

    h, _ = build()
    assert late_rows(h) == []
    h, gap = build()
    (one,) = late_rows(h, gap)
    assert (one.subject, one.evidence["hold"], one.evidence["rows"]) == (("process", number("q")), "rows", 1)


@FEEDS
def test_rows_that_had_been_counted_and_are_missing_are_not_waited_for(fed: Callable[[History], Store]) -> None:
    """They are given up at once: the log of what it did is unverifiable, and nobody waits."""
    h = Hosts(one=("w", "r", "observer"), two=("s",))
    i, rows = away(h)
    gap = next(row for row in reversed(h.rows) if row.process == S)
    declare(h, rows)
    h.send("w", 900, 1, at=i)
    traffic(h, 60, first=i + 1, reads="r")
    h.rows.remove(gap)
    store = fed(h)
    assert [one.subject for one in whole(store, {"lost-write"})] == [(number("w"), 900)]
    assert [one.event for one in whole(store, {"evidence-late"})] in ([], ["opened", "closed"])
