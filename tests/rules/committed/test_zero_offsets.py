"""`spurious-zero-offset`: acknowledgements and committed offsets that are 0 when a higher one was known before.

(Listed ends are in `test_log_ends.py`, positions in `test_cases.py`.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.checks.committed import zero_offsets
from rules.engine import order
from rules.kept.state import load
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Slice
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import START, History, Store, number, singly
from tests.rules.whole import Told, finished, in_any_way, live, whole

W, V, READER = (number(name) for name in ("w", "v", "o"))
Fed = Callable[[History], Store]


def clock(boot: str, begins: int, ends: int) -> dict[str, Any]:
    """Milliseconds of a boot's clock."""
    return {"boot": boot, "mono_invoked": begins * 10**6, "mono_completed": ends * 10**6}


def acknowledged(known: int, at: float) -> Told:
    return Told(
        "spurious-zero-offset",
        ("acknowledgement", V, 0),
        f"value {V}/0 was acknowledged at offset 0 when offset {known} was known before",
        {"writer": V, "seq": 0, "known": known, "process": V, "op": 0},
        at,
    )


def committed(known: int, at: float) -> Told:
    return Told(
        "spurious-zero-offset",
        ("committed", "g"),
        f"the committed offset of group g reads 0 when {known} was committed before",
        {"group": "g", "known": known, "process": READER},
        at,
    )


# Acknowledgements


def after_an_acknowledgement(h: History) -> None:
    h.send("w", 7, 3, at=7)
    h.send("v", 0, 1, at=0)


def after_a_poll(h: History) -> None:
    h.poll("r", [("w", 7, 3, 7)])
    h.send("v", 0, 1, at=0)


def after_a_listed_end(h: History) -> None:
    h.observe(end=9)
    h.send("v", 0, 1, at=0)


def by_one_boot_s_clock(h: History) -> None:
    h.send("w", 7, 3, at=7, **clock("a", 1, 2))
    h.send("v", 0, 1, at=0, **clock("a", 3, 4))


def after_many(h: History) -> None:
    """The highest that was there before it is told, and neither the first nor what came after."""
    h.send("w", 0, 2, at=0)
    h.poll("r", [("w", 0, 2, 0)])
    h.observe(end=2)
    h.send("w", 7, 3, at=7)
    h.poll("r", [("w", 7, 1, 7)])
    h.send("v", 0, 1, at=0)
    h.send("w", 10, 20, at=10)


def after_many_by_one_boot_s_clock(h: History) -> None:
    for i in range(1, 9):
        h.send("w", i, 1, at=i, **clock("a", 100 * i, 100 * i + 1))
        h.send("x", i, 1, at=i + 20, **clock("b", 100 * i, 100 * i + 1))
    h.send("w", 9, 1, at=9, **clock("a", 860, 1000))
    h.send("v", 0, 1, at=0, **clock("a", 900, 901))


def after_the_first_offset_alone(h: History) -> None:
    """Another record is known to stand at 0, and nothing above."""
    h.poll("r", [("w", 0, 1, 0)])
    h.send("v", 0, 1, at=0)


def after_an_empty_log(h: History) -> None:
    h.observe(end=0)
    h.send("v", 0, 1, at=0)


def invoked_as_soon_as_it_was_known(h: History) -> None:
    """At the same moment: nothing says which was first."""
    sent = h.send("w", 7, 3, at=7)
    h.send("v", 0, 1, at=0, invoked=sent.completed)


def by_the_clocks_of_two_boots(h: History) -> None:
    h.send("w", 7, 3, at=7, **clock("a", 1, 2))
    h.send("v", 0, 1, at=0, **clock("b", 3, 4))


def by_the_clocks_of_two_boots_beside_an_early_zero(h: History) -> None:
    """The other boot's own zero came before anything was known."""
    h.send("u", 0, 1, at=0, **clock("a", 1, 2))
    h.send("w", 7, 3, at=7, **clock("a", 3, 4))
    h.send("v", 0, 1, at=0, **clock("b", 5, 6))


def invoked_nobody_knows_when(h: History) -> None:
    """Its boot's clock did not time the second one: it may be older than it looks."""
    h.send("w", 7, 3, at=7, **clock("a", 1, 2))
    h.send("v", 0, 1, at=0, boot="a")


def known_nobody_knows_when(h: History) -> None:
    h.send("w", 7, 3, at=7, boot="a")
    h.send("v", 0, 1, at=0, **clock("a", 3, 4))


def an_absent_acknowledgement(h: History) -> None:
    h.send("w", 7, 3, at=7)
    h.send("v", 0, 1, at=None)


# Committed offsets


def read(h: History, offset: int | None = 0, *, group: str = "g", **more: Any) -> None:
    h.row("o", "offsets", committed=offset, group=group, **more)


def commit(h: History, offset: int = 5, *, group: str = "g", **more: Any) -> None:
    h.row("r", "commit", committed=offset, group=group, **more)


def after_a_commit(h: History) -> None:
    commit(h)
    read(h)


def after_a_reading(h: History) -> None:
    read(h, 5)
    read(h)


def after_a_commit_by_one_boot_s_clock(h: History) -> None:
    commit(h, **clock("a", 1, 2))
    read(h, **clock("a", 3, 4))


def after_many_commits(h: History) -> None:
    for offset in (3, 5, 9, 7):
        commit(h, offset)
    read(h)
    commit(h, 11)


def asked_for_by_a_commit_that_failed(h: History) -> None:
    """It certainly committed nothing."""
    commit(h)
    commit(h, 0, type="fail")
    read(h)


def after_another_commit_of_unknown_outcome(h: History) -> None:
    """It did not ask for 0."""
    commit(h)
    commit(h, 7, type="info")
    read(h)


def asked_for_by_another_group(h: History) -> None:
    commit(h)
    h.row("r", "commit", committed=0, group="another")
    read(h)


def asked_for(h: History) -> None:
    commit(h)
    commit(h, 0)
    read(h)


def asked_for_by_a_commit_of_unknown_outcome(h: History) -> None:
    commit(h)
    commit(h, 0, type="info")
    read(h)


def asked_for_by_another_host(h: History) -> None:
    """Nobody knows whether before."""
    commit(h, **clock("a", 1, 2))
    h.row("s", "commit", committed=0, group="g", **clock("b", 900, 901))
    read(h, **clock("a", 3, 4))


def committed_nobody_knows_whether(h: History) -> None:
    commit(h, type="info")
    read(h)


def read_without_success(h: History) -> None:
    commit(h)
    read(h, type="info")


def a_higher_one_read_without_success(h: History) -> None:
    commit(h)
    read(h, 3, type="info")


def told_as_none(h: History) -> None:
    commit(h)
    read(h, None)


def lower_and_not_zero(h: History) -> None:
    commit(h)
    read(h, 3)


def read_before_the_commit_was_acknowledged(h: History) -> None:
    early = h.at(h.time)
    commit(h)
    read(h, invoked=early)


def read_at_the_moment_of_the_acknowledgement(h: History) -> None:
    commit(h)
    read(h, invoked=h.rows[-1].completed)


def of_another_group(h: History) -> None:
    h.row("r", "commit", committed=5, group="another")
    read(h)


def read_by_another_boot_s_clock(h: History) -> None:
    commit(h, **clock("a", 1, 2))
    read(h, **clock("b", 3, 4))


GUILTY: list[tuple[Callable[[History], None], Told]] = [
    (after_an_acknowledgement, acknowledged(9, 0.004)),
    (after_a_poll, acknowledged(9, 0.004)),
    (after_a_listed_end, acknowledged(9, 0.004)),
    (by_one_boot_s_clock, acknowledged(9, 0.004)),
    (after_a_commit, committed(5, 0.004)),
    (after_a_reading, committed(5, 0.004)),
    (after_a_commit_by_one_boot_s_clock, committed(5, 0.004)),
    (asked_for_by_a_commit_that_failed, committed(5, 0.006)),
    (after_another_commit_of_unknown_outcome, committed(5, 0.006)),
    (asked_for_by_another_group, committed(5, 0.006)),
]
INNOCENT: list[Callable[[History], None]] = [
    after_the_first_offset_alone,
    after_an_empty_log,
    invoked_as_soon_as_it_was_known,
    by_the_clocks_of_two_boots,
    by_the_clocks_of_two_boots_beside_an_early_zero,
    invoked_nobody_knows_when,
    known_nobody_knows_when,
    an_absent_acknowledgement,
    asked_for_by_another_host,
    committed_nobody_knows_whether,
    read_without_success,
    a_higher_one_read_without_success,
    told_as_none,
    lower_and_not_zero,
    read_before_the_commit_was_acknowledged,
    read_at_the_moment_of_the_acknowledgement,
    of_another_group,
    read_by_another_boot_s_clock,
]


HIGHEST: list[tuple[Callable[[History], None], Told]] = [
    (after_many, acknowledged(9, 0.012)),
    (after_many_by_one_boot_s_clock, acknowledged(8, 0.036)),
    (after_many_commits, committed(9, 0.010)),
]


@pytest.mark.parametrize(("build", "told"), HIGHEST, ids=[build.__name__ for build, _ in HIGHEST])
@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once), finished], ids=["row_by_row", "at_once", "finished"])
def test_the_highest_offset_known_before_is_told(build: Callable[[History], None], told: Told, fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), ["spurious-zero-offset"]) == [told]


@pytest.mark.parametrize("order", [(2, 0, 1, 3), (0, 1, 3, 2)], ids=["it_comes_first", "it_comes_last"])
def test_neither_another_group_s_offset_nor_a_later_one_is_told(order: tuple[int, ...]) -> None:
    h, store = History(), Store()
    commit(h, 9, group="another")
    commit(h)
    read(h)
    commit(h, 11)
    for row in (*(h.rows[i] for i in order), *(h.mark(1.0) for _ in range(3))):
        store.feed([row])
    assert whole(store, ["spurious-zero-offset"]) == [committed(5, 0.006)]


@pytest.mark.parametrize(("build", "told"), GUILTY, ids=[build.__name__ for build, _ in GUILTY])
@in_any_way()
def test_guilty(build: Callable[[History], None], told: Told, fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), ["spurious-zero-offset"]) == [told]


@pytest.mark.parametrize("build", INNOCENT)
@in_any_way()
def test_innocent(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), ["spurious-zero-offset"]) == []


def test_a_committed_zero_is_told_once() -> None:
    h = History()
    after_a_commit(h)
    for _ in range(3):
        h.mark(1.0)
        read(h)
    assert whole(live(row_by_row)(h), ["spurious-zero-offset"]) == [committed(5, 0.004)]


def test_what_was_asked_for_after_it_was_read_explains_nothing_told_before() -> None:
    """Rows in the order of their times: the finding stands."""
    h = History()
    after_a_commit(h)
    commit(h, 0)
    assert whole(live(row_by_row)(h), ["spurious-zero-offset"]) == [committed(5, 0.004)]


ASKED_FOR = [asked_for, asked_for_by_a_commit_of_unknown_outcome]


@pytest.mark.parametrize("build", ASKED_FOR)
@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once), finished])
def test_a_zero_that_was_asked_for(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), ["spurious-zero-offset"]) == []


@pytest.mark.parametrize("build", ASKED_FOR)
def test_a_zero_that_was_asked_for_in_a_row_that_comes_late(build: Callable[[History], None]) -> None:
    h = History()
    build(h)
    for _ in range(3):
        h.mark(1.0)
    store = Store()
    for row in singly([h.rows[0], h.rows[2], h.rows[1], *h.rows[3:]]):
        store.feed(row)
    assert whole(store, ["spurious-zero-offset"]) == []


def commits_known_late(h: History, groups: int, readings: int, *, before: bool) -> list[list[Slice]]:
    """Zeros of `groups` groups are read again and again before the log of who committed is here: it had committed
    before them, or after. In steps."""
    if not before:
        h.time += 1_000
    for i in range(groups):
        commit(h, group=f"g{i:02}")
    known, h.rows = h.rows, []
    h.time = 1.0 if before else 0.0
    for _ in range(readings):
        for i in range(groups):
            read(h, group=f"g{i:02}")
        h.time += 1
    zeros = list(h.rows)
    h.time = max(h.time, 1_001.0)
    return [zeros, known, [h.mark(1.0) for _ in range(3)]]


def kept(store: Store) -> zero_offsets.Zeros:
    """What the check keeps."""
    (stored,) = store.stored.values()
    assert stored.hot is not None
    own: zero_offsets.Zeros = order.own(load(stored.hot, order.KINDS), zero_offsets.CHECK)
    return own


def of_groups(h: History, steps: list[list[Slice]]) -> list[tuple[int | str, ...]]:
    store = Store()
    for rows in steps:
        store.feed(rows)
        of = {zero[0] for zero in kept(store).committed}
        assert len(kept(store).committed) <= zero_offsets.READINGS_KEPT * len(of)
    assert not whole(store, ["window-overflow"])
    return [one.subject for one in whole(store, ["spurious-zero-offset"])]


@pytest.mark.parametrize(("groups", "readings"), [(20, 1), (3, 100)])
def test_zeros_wait_until_a_higher_offset_is_known(groups: int, readings: int) -> None:
    """However many groups they are of, and however often they are read. What had been committed after all of them shows
    nothing."""
    h = History()
    told = of_groups(h, commits_known_late(h, groups, readings, before=True))
    assert told == [("committed", f"g{i:02}") for i in range(groups)]
    h = History()
    assert of_groups(h, commits_known_late(h, groups, readings, before=False)) == []


def test_readings_before_the_commit_leave_room_for_those_after_it() -> None:
    """Only the last of many was read after the commit."""
    h = History()
    for _ in range(100):
        read(h)
        h.time += 1
    zeros, h.rows = h.rows, []
    commit(h)
    late, h.rows = h.rows, []
    read(h)
    last = list(h.rows)
    store = Store()
    for rows in (zeros, last, late, [h.mark(1.0) for _ in range(3)]):
        store.feed(rows)
    assert whole(store, ["spurious-zero-offset"]) == [committed(5, 100.204)]


def acknowledged_at_zero(h: History, values: int) -> list[list[Slice]]:
    """So many values are acknowledged at offset 0, and later the log of who knew a higher offset before them comes."""
    h.send("w", 7, 3, at=7)
    known, h.rows = h.rows, []
    for seq in range(values):
        h.send("v", seq, 1, at=0)
    zeros = list(h.rows)
    marks = [h.mark(1.0) for _ in range(3)]
    return [zeros, known, marks]


def test_acknowledgements_wait_until_a_higher_offset_is_known() -> None:
    h, store = History(), Store(Objectives(findings_per_step=1_000))
    for rows in acknowledged_at_zero(h, 100):
        store.feed(rows)
    told = [one.subject for one in whole(store, ["spurious-zero-offset"])]
    assert told == [("acknowledgement", V, seq) for seq in range(100)]


def test_what_is_dropped_of_too_many_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are kept; `window-overflow` says once how many were dropped, and when nothing more is, how many it was
    in all."""
    monkeypatch.setattr(zero_offsets, "ZEROS_KEPT", 3)
    h, store = History(), Store()
    h.start("late")  # its log is not here: it may have known a higher offset
    awaited = h.rows.pop()
    assert awaited.f == "start"
    for seq in range(6):
        h.send("v", seq, 1, at=0)
        store.feed([h.rows[-1], h.mark(2.0)])
    for _ in range(13):
        store.feed([h.mark(60.0)])
    what = {"what": "acknowledgements at offset 0", "since": micros(START) + 8_000_000}
    assert whole(store, ["window-overflow"]) == [
        Told(
            "window-overflow",
            ("acknowledgements at offset 0",),
            "more acknowledgements at offset 0 wait for a verdict than are kept: the oldest are dropped, and none is"
            " given on them",
            {**what, "dropped": 1},
            10.0,
            8.0,
            event="opened",
        ),
        Told(
            "window-overflow",
            ("acknowledgements at offset 0",),
            "window-overflow ended after 604.0 s",
            {**what, "dropped": 3, "lasted_s": 604.0},
            612.0,
            event="closed",
        ),
    ]


def test_an_acknowledgement_before_which_nothing_was_known_does_not_wait_for_ever() -> None:
    h, store = History(), Store()
    after_an_empty_log(h)
    h.send("v", 1, 1, at=1)
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert not len(kept(store).acknowledged)
    assert whole(store, ["spurious-zero-offset"]) == []
