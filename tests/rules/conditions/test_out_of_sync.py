"""`replicas-out-of-sync`, `under-min-isr`: replicas that are not in sync for long, or too many, beside some that
are back in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.engine.order import KINDS
from rules.kept.outages import cause_id
from rules.kept.state import load
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, delayed, events, row_by_row, shuffled
from tests.rules.histories import START, History, Store
from tests.rules.whole import Told, whole

NAME = "replicas-out-of-sync"
FEW = "under-min-isr"
FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])


def observed(
    h: History,
    seconds: int,
    in_sync: str,
    *,
    replicas: str = "1,2,3",
    partitions: int = 1,
    told: bool = True,
    needed: int | None = None,
) -> None:
    """A second each; the observer tells of the replicas at first, and then each minute, unless it does not at all."""
    for i in range(seconds):
        for p in range(partitions):
            settings = {"replicas_on": replicas, "in_sync": in_sync, "led_by": "1"} if told and i % 60 == 0 else None
            if settings and needed is not None:
                settings["min_insync"] = str(needed)
            h.row("observer", "offsets", partition=p, log_start=0, log_end=1, last_stable=1, settings=settings)
            h.mark(partition=p)
        h.time += 1.0


@FEEDS
def test_a_broker_that_stays_away_is_told_once_and_ends_when_it_is_back(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 10, "1,2,3", partitions=2)
    since = micros(h.at(h.time + 0.002))
    observed(h, 200, "1,2", partitions=2)
    observed(h, 10, "1,2,3", partitions=2)
    opened, closed = whole(fed(h), [NAME])
    evidence = {"broker": 3, "since": since, "replicas": [1, 2, 3], "in_sync": [1, 2]}
    began = round((since - micros(START)) / 1e6, 3)
    assert opened == Told(
        NAME,
        (3,),
        "replicas on broker 3 have not been in sync for 121 s",
        evidence,
        opened.at,
        round(began + 120, 3),
        "opened",
    )
    assert began + 120 <= opened.at <= began + 122
    lasted = round(closed.at - opened.at, 3)
    assert closed == Told(
        NAME,
        (3,),
        f"{NAME} ended after {lasted:.1f} s",
        {**evidence, "since": since + 4_000, "partitions": 2, "lasted_s": lasted},
        closed.at,
        event="closed",
    )
    assert 200 <= closed.at - began <= 202, "the other partition tells of it a moment later"


@FEEDS
@pytest.mark.parametrize(
    ("away", "after", "replicas"),
    [(110, "1,2,3", "1,2,3"), (110, "1,2", "1,2"), (0, "1,2,3", "1,2,3")],
    ids=["back in time", "moved to others", "never away"],
)
def test_one_that_is_back_in_time_is_not(fed: Callable[[History], Store], away: int, after: str, replicas: str) -> None:
    h = History()
    observed(h, 10, "1,2,3")
    observed(h, away, "1,2")
    observed(h, 200, after, replicas=replicas)
    assert not events(fed(h), NAME)


def test_each_broker_is_its_own_and_a_second_one_begins_when_it_goes() -> None:
    h = History()
    observed(h, 60, "1,2")
    observed(h, 200, "1")
    observed(h, 60, "1,2")
    assert events(row_by_row(h), NAME) == [("opened", (3,), 121), ("opened", (2,), 181), ("closed", (2,), 261)]


def test_replicas_that_are_moved_away_end_it() -> None:
    h = History()
    observed(h, 130, "1,2")
    observed(h, 10, "1,2,4", replicas="1,2,4")
    assert [event for event, _, _ in events(row_by_row(h), NAME)] == ["opened", "closed"]


def test_a_topic_that_is_gone_ends_it() -> None:
    h = History()
    observed(h, 130, "1,2")
    h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    h.mark()
    h.time += 5.0
    h.mark()
    assert [event for event, _, _ in events(row_by_row(h), NAME)] == ["opened", "closed"]


@pytest.mark.long
def test_what_was_told_before_counts_no_more_whenever_it_comes() -> None:
    h = History()
    observed(h, 10, "1,2,3")
    observed(h, 130, "1,2")
    observed(h, 70, "1,2,3")
    expected = [("opened", (3,)), ("closed", (3,))]
    for store in (at_once(h), *(shuffled(h, seed) for seed in range(4)), *(delayed(h, seed) for seed in range(4))):
        assert [(event, subject) for event, subject, _ in events(store, NAME)] in (expected, [])
    assert [(event, subject) for event, subject, _ in events(at_once(h), NAME)] == expected
    late = History()
    observed(late, 10, "1,2,3")
    before = late.at(late.time)
    observed(late, 5, "1,2,3")
    settings = {"replicas_on": "1,2,3", "in_sync": "1,2"}  # of an observer whose metadata is old
    late.row("other", "offsets", log_start=0, log_end=1, settings=settings, invoked=before, completed=before)
    observed(late, 140, "1,2,3", told=False)
    assert not events(row_by_row(late), NAME)


@FEEDS
def test_it_goes_on_for_as_long_as_it_lasts(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 10, "1,2,3")
    observed(h, 600, "1,2")
    assert [(event, subject) for event, subject, _ in events(fed(h), NAME)] == [("opened", (3,))]


def test_what_one_partition_tells_stands_while_another_ones_end_comes() -> None:
    h = History()
    observed(h, 400, "1,2")
    for in_sync, seconds in (("1,2", 130), ("1,2,3", 10)):
        for i in range(seconds):
            for p, who in ((0, "1,2"), (1, in_sync)):
                settings = {"replicas_on": "1,2,3", "in_sync": who} if i % 60 == 0 else None
                h.row("observer", "offsets", partition=p, log_start=0, log_end=1, settings=settings)
                h.mark(partition=p)
            h.time += 1.0
    assert [(event, subject) for event, subject, _ in events(row_by_row(h), NAME)] == [("opened", (3,))]


def test_an_observer_whose_clock_is_ahead_hides_nothing() -> None:
    h = History()
    ahead = h.at(h.time + 3600)
    told = {"replicas_on": "1,2,3", "in_sync": "1,2,3"}
    h.row("ahead", "offsets", log_start=0, log_end=1, settings=told, invoked=ahead, completed=ahead)
    observed(h, 10, "1,2,3")
    observed(h, 200, "1,2")
    assert [(event, subject) for event, subject, _ in events(row_by_row(h), NAME)] == [("opened", (3,))]


@FEEDS
def test_too_few_in_sync_is_told_once_before_what_waits_on_it_is_due_and_ends(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 10, "1,2,3", partitions=2, needed=2)
    since = micros(h.at(h.time + 0.002))
    observed(h, 45, "1", partitions=2)
    observed(h, 10, "1,3", partitions=2)
    opened, closed = whole(fed(h), [FEW])
    evidence = {"replicas": [1, 2, 3], "in_sync": [1], "min_insync": 2, "since": since}
    began = round((since - micros(START)) / 1e6, 3)
    said = "a write needs 2 replicas in sync, and only broker 1 is (of 1, 2, 3): nothing can be written"
    assert opened == Told(FEW, (), said, evidence, opened.at, round(began + 20, 3), "opened")
    assert began + 20 <= opened.at <= began + 22
    lasted = round(closed.at - opened.at, 3)
    assert closed == Told(
        FEW,
        (),
        f"{FEW} ended after {lasted:.1f} s",
        {**evidence, "since": since + 4_000, "partitions": 2, "lasted_s": lasted},
        closed.at,
        event="closed",
    )
    assert 45 <= closed.at - began <= 47


@FEEDS
def test_where_the_only_replica_is_away_nobody_leads_and_that_is_another_condition(
    fed: Callable[[History], Store],
) -> None:
    h = History()
    observed(h, 10, "1", replicas="1", needed=1)
    observed(h, 100, "", replicas="1")
    observed(h, 30, "1", replicas="1")
    assert not events(fed(h), FEW)


@FEEDS
def test_where_those_that_are_left_go_away_too_it_lasts(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 10, "1,2,3", needed=2)
    observed(h, 15, "1")
    observed(h, 30, "")
    observed(h, 30, "1")
    observed(h, 10, "1,2")
    assert events(fed(h), FEW) == [("opened", (), 31), ("closed", (), 85)]


@pytest.mark.parametrize(
    ("replicas", "there"),
    [("1,2,3", "there are 3, on broker 1, 2, 3"), ("1", "there is 1, on broker 1")],
    ids=["three", "one"],
)
def test_where_more_are_needed_than_there_are_the_topic_is_named_for_which_that_is_set(
    replicas: str, there: str
) -> None:
    h = History()
    observed(h, 10, replicas, replicas=replicas, needed=1)
    observed(h, 45, replicas, replicas=replicas, needed=4)
    (opened,) = whole(row_by_row(h), [FEW])
    assert opened.message == (
        f"a write to topic needs 4 replicas in sync, and {there}, whatever broker comes back: nothing can be written"
    )


def written(
    h: History, seconds: int, in_sync: str, *, replicas: str, needed: int, by: str = "w", first: int = 0
) -> int:
    """The same, with a record that is acknowledged each second."""
    for i in range(first, first + seconds):
        h.send(by, i, 1, at=i)
        observed(h, 1, in_sync, replicas=replicas, needed=needed)
    return first + seconds


@FEEDS
@pytest.mark.parametrize("replicas", ["1", "1,2,3"])
def test_where_writes_are_acknowledged_enough_are_in_sync_whatever_is_told(
    fed: Callable[[History], Store], replicas: str
) -> None:
    """Brokers since Kafka 3.7 need no more than there are; and who is told of replicas may be told late."""
    h = History()
    n = written(h, 10, "1,2,3", replicas="1,2,3", needed=2)
    n = written(h, 100, "1", replicas=replicas, needed=2, first=n)
    assert not events(fed(h), FEW)


@FEEDS
def test_too_few_are_in_sync_since_the_last_write(fed: Callable[[History], Store]) -> None:
    h = History()
    n = written(h, 10, "1,2,3", replicas="1,2,3", needed=2)
    n = written(h, 30, "1", replicas="1,2,3", needed=2, first=n)
    last = max(row.completed for row in h.rows if row.f == "send")
    observed(h, 40, "1", needed=2)
    for i in range(n, n + 5):
        h.send("w", i, 1, at=i)
        observed(h, 1, "1", told=False)
    again, *_, newest = sorted(row.completed for row in h.rows if row.f == "send")[-5:]
    observed(h, 40, "1", told=False)
    opened, closed, once_more = whole(fed(h), [FEW])
    assert (opened.evidence["since"], closed.event, once_more.event) == (micros(last), "closed", "opened")
    assert once_more.evidence["since"] == micros(newest)
    assert micros(last) + 20_000_000 <= micros(START) + opened.at * 1e6 <= micros(last) + 22_000_000
    assert closed.at == round((micros(again) - micros(START)) / 1e6, 3)


def test_what_was_written_before_and_comes_late_ends_nothing() -> None:
    h = History()
    n = written(h, 10, "1,2,3", replicas="1,2,3", needed=2)
    late = [h.send("w", n + i, 1, at=n + i) for i in range(3)]
    observed(h, 70, "1", needed=2)
    store = Store()
    store.feed([row for row in h.rows if row not in late])
    assert [event for event, *_ in events(store, FEW)] == ["opened"]
    observed(h, 5, "1", told=False)
    store.feed([*late, *h.rows[-10:]])
    assert [event for event, *_ in events(store, FEW)] == ["opened"]


@FEEDS
@pytest.mark.parametrize("by", ["under way", "elsewhere"])
def test_a_write_that_may_be_of_before_bears_nothing_out(fed: Callable[[History], Store], by: str) -> None:
    """One that was under way when the observer was told so; those of a host whose clock is ahead."""
    h = History()
    written(h, 10, "1,2,3", replicas="1,2,3", needed=2)
    h.time += 1.0
    observed(h, 5, "1", needed=2)
    since = micros(h.at(h.time))
    if by == "under way":
        h.send("w", 10, 1, at=10)
    else:
        h.row("other", "start", boot="elsewhere")
        h.send("other", 0, 1, at=10, boot="elsewhere")
        h.send("other", 1, 1, at=11, boot="elsewhere")
    observed(h, 45, "1", needed=2)
    opened, *_ = whole(fed(h), [FEW])
    assert opened.evidence["since"] < since


@FEEDS
@pytest.mark.parametrize(
    ("in_sync", "seconds", "needed"),
    [("1", 18, 2), ("1,2", 100, 2), ("1", 100, None), ("1", 100, 1)],
    ids=["back in time", "enough", "nobody says how many", "one is enough"],
)
def test_enough_in_sync_or_enough_in_time_is_nothing(
    fed: Callable[[History], Store], in_sync: str, seconds: int, needed: int | None
) -> None:
    h = History()
    observed(h, 10, "1,2,3", needed=needed)
    observed(h, seconds, in_sync)
    observed(h, 30, "1,2,3")
    assert not events(fed(h), FEW)


def test_more_replicas_being_needed_counts_from_then() -> None:
    h = History()
    observed(h, 60, "1,2", needed=1)
    for needed, seconds in (("3", 40), ("2", 10)):  # in a row of its own
        h.row("observer", "offsets", log_start=0, log_end=1, last_stable=1, settings={"min_insync": needed})
        observed(h, seconds, "1,2", told=False)
    assert events(row_by_row(h), FEW) == [("opened", (), 81), ("closed", (), 100)]


@FEEDS
@pytest.mark.parametrize(
    ("silent", "sound", "few", "opened"),
    [
        (16, 0, 10, [32]),  # twenty seconds after the first without an answer, and five after too few were in sync
        (16, 14, 25, [46]),  # one broker after the other
        (16, 16, 15, []),  # long before
        (16, 0, 4, []),  # for a moment
    ],
)
def test_brokers_that_were_silent_before_count(
    fed: Callable[[History], Store], silent: int, sound: int, few: int, opened: list[int]
) -> None:
    h = History()
    observed(h, 10, "1,2,3", needed=2)
    for i in range(silent + sound):
        settings = {"silent": "2,3", "brokers": "1,2,3"} if i < silent else None
        h.row("observer", "offsets", log_start=0, log_end=1, last_stable=1, settings=settings)
        h.mark(1.0)
    observed(h, few, "1")
    observed(h, 10, "1,2,3")
    assert [at for event, _, at in events(fed(h), FEW) if event == "opened"] == opened


@FEEDS
@pytest.mark.parametrize(("few", "more"), [(True, 0), (True, 60), (False, 0)])
def test_what_waits_while_too_few_are_in_sync_is_explained_by_that(
    fed: Callable[[History], Store], few: bool, more: int
) -> None:
    """A reader is not given what is there; who is not given it either when enough are in sync is stuck by himself."""
    h = History()
    h.assign("r")
    h.send("w", 0, 1, at=0)
    h.poll("r", [("w", 0, 1, 0)])
    observed(h, 10, "1,2,3", needed=2)
    h.send("w", 1, 1, at=1)
    for seconds, in_sync in ((50, "1" if few else "1,2,3"), (more, "1,2,3")):
        for i in range(seconds):
            settings = {"replicas_on": "1,2,3", "in_sync": in_sync} if i == 0 else None
            h.row("observer", "offsets", log_start=0, log_end=2, last_stable=2, settings=settings)
            h.mark(1.0)
    told = [one for one in fed(h).findings if one.anomaly == "stuck-consumer"]
    cause = cause_id(FEW, "c") if few else None
    expected = [("opened", cause), ("opened", None)] if more else [("opened", cause)]
    assert [(one.event, one.implied_by) for one in told] == expected


@FEEDS
@pytest.mark.parametrize(
    ("few", "more", "told"),
    [
        (True, 20, [True]),  # it ends when enough are in sync again
        (True, 120, [True, False]),  # it does not
        (False, 20, [False]),
    ],
    ids=["ends with it", "outlasts it", "enough in sync"],
)
def test_a_transaction_that_cannot_end_while_too_few_are_in_sync_is_explained_by_that(
    fed: Callable[[History], Store], few: bool, more: int, told: list[bool]
) -> None:
    h = History()
    h.start("t", **{"transaction.timeout.ms": "20000"})
    observed(h, 10, "1,2,3", needed=2)
    for seconds, in_sync in ((60, "1" if few else "1,2,3"), (more, "1,2,3")):
        for i in range(seconds):
            settings = {"replicas_on": "1,2,3", "in_sync": in_sync} if i == 0 else None
            h.row("observer", "offsets", log_start=0, log_end=2, last_stable=1, settings=settings)
            h.mark(1.0)
    h.observe(end=2)
    h.mark(1.0)
    found = [one for one in fed(h).findings if one.anomaly == "hanging-transaction"]
    assert [one.implied_by == cause_id(FEW, "c") for one in found if one.event == "opened"] == told
    assert found[-1].event == "closed"


@FEEDS
def test_a_transaction_may_last_its_time_from_when_enough_are_in_sync_again(fed: Callable[[History], Store]) -> None:
    h = History()
    h.start("t", **{"transaction.timeout.ms": "60000"})
    observed(h, 10, "1,2,3", needed=2)
    for seconds, in_sync in ((60, "1"), (70, "1,2,3")):
        for i in range(seconds):
            settings = {"replicas_on": "1,2,3", "in_sync": in_sync} if i == 0 else None
            h.row("observer", "offsets", log_start=0, log_end=2, last_stable=1, settings=settings)
            h.mark(1.0)
    h.observe(end=2)
    h.mark(1.0)
    assert not events(fed(h), "hanging-transaction")


# What ends with the topic, in which order it is known, and what is kept


def gone(h: History, seconds: int) -> None:
    for _ in range(seconds):
        h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
        h.mark(1.0)


@FEEDS
def test_of_a_topic_that_is_gone_nothing_is_told(fed: Callable[[History], Store]) -> None:
    """It was deleted while a broker was away, and while more replicas were needed than there are."""
    h = History()
    observed(h, 60, "1,2")
    gone(h, 100)
    assert not events(fed(h), NAME)
    h = History()
    observed(h, 10, "1,2,3", needed=4)
    gone(h, 40)
    assert not events(fed(h), FEW)


def test_too_few_are_no_condition_of_a_topic_that_is_gone() -> None:
    h = History()
    observed(h, 40, "1,2,3", needed=4)
    gone(h, 10)
    assert events(row_by_row(h), FEW) == [("opened", (), 21), ("closed", (), 40)]


@FEEDS
@pytest.mark.parametrize("needed", [3, None])
def test_it_is_due_to_the_second_whenever_observers_tell_of_it_next(
    needed: int | None, fed: Callable[[History], Store]
) -> None:
    h = History()
    observed(h, 10, "1,2,3", needed=needed)
    since = micros(h.at(h.time + 0.002))
    observed(h, 1, "1,2")
    observed(h, 140, "1,2", told=False)
    found = {one.anomaly: one for one in fed(h).findings if one.event == "opened"}
    due = {NAME: 120_000_000} | ({FEW: 20_000_000} if needed else {})
    assert {name: one.decidable - since for name, one in found.items()} == due
    assert found[NAME].at - since < 122_000_000


@FEEDS
def test_too_few_last_since_the_first_of_them_whoever_is_told_of_meanwhile(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 10, "1,2,3", needed=2)
    since = micros(h.at(h.time + 0.002))
    for in_sync in ("1", "2", "1", "2", "1", "2"):
        observed(h, 9, in_sync)
    observed(h, 10, "1,2,3")
    told = [(one.event, one.evidence["since"]) for one in whole(fed(h), [FEW])]
    assert told == [("opened", since), ("closed", since)]


@FEEDS
def test_brokers_that_are_silent_later_say_nothing_of_when_it_began(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 10, "1,2,3", needed=2)
    observed(h, 10, "1")
    for _ in range(30):
        h.row("observer", "offsets", log_start=0, log_end=1, settings={"silent": "2,3", "brokers": "1,2,3"})
        h.mark(1.0)
    assert events(fed(h), FEW) == [("opened", (), 31)]


@pytest.mark.parametrize("late", [True, False], ids=["it comes late", "in time"])
def test_what_an_observer_told_before_the_newest_is_passed_over(late: bool) -> None:
    h = History()
    observed(h, 10, "1,2,3")
    before = h.row("observer", "offsets", log_start=0, log_end=1, settings={"replicas_on": "1,2,3", "in_sync": "1"})
    observed(h, 3, "1,2,3")
    observed(h, 40, "1,2,3", told=False)
    store = Store()
    store.feed([row for row in h.rows if row is not before or not late])
    rows = len(h.rows)
    observed(h, 140, "1,2,3", told=False)
    store.feed([*([before] if late else []), *h.rows[rows:]])
    assert not events(store, NAME)


@pytest.mark.parametrize("settings", [{"replicas_on": "1,2,3"}, {"in_sync": "1"}, {"led_by": "1"}])
def test_what_tells_of_half_tells_of_nothing(settings: dict[str, str]) -> None:
    h = History()
    observed(h, 10, "1,2,3", needed=2)
    for _ in range(130):
        h.row("observer", "offsets", log_start=0, log_end=1, settings=settings)
        h.mark(1.0)
    assert not [one for one in at_once(h).findings if one.anomaly in (NAME, FEW)]


def test_a_broker_is_kept_once_however_often_it_is_told_of() -> None:
    h = History()
    observed(h, 300, "1,2")
    (kept,) = at_once(h).stored.values()
    assert kept.hot is not None
    assert [broker for broker, *_ in load(kept.hot, KINDS).checks[NAME].missing] == [3]
