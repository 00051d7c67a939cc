"""`cluster-unreachable` of one run: its host does not reach a broker that others do, and what waits there says so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rules.checks.conditions.unreachable_brokers import RUNS_KEPT, Answers, Reach, _seconds
from rules.kept.outages import cause_id
from rules.vocabulary.finding import Finding
from tests.rules.conditions.liveness_of import at_once, delayed, events, row_by_row
from tests.rules.conditions.test_unreachable import the
from tests.rules.histories import History, Store, number

WEST = {name: number(name) for name in ("observer of west", "writer of west", "reader of west")}
ALONE = cause_id("cluster-unreachable", "c", "west")
FEEDS = pytest.mark.parametrize(
    "fed", [row_by_row, at_once, lambda h: delayed(h, 5)], ids=["row_by_row", "at_once", "delayed"]
)


def side_by_side(
    h: History,
    seconds: int,
    *,
    east: bool = True,
    west: bool = True,
    reads: bool = False,
    stuck: str = "writer of west",
) -> None:
    """The observers of two runs ask each second; whose answers do not come gives up, and asks again. A writer's sends
    time out where its host gets none; a reader of `west` may be answered all the same."""
    before = len(h.rows)
    for i in range(seconds):
        for name, fine in (("observer of east", east), ("observer of west", west)):
            if fine:
                h.row(name, "offsets", log_start=0, log_end=2, last_stable=2)
            elif i % 3 == 2:
                settings = {"leader": "3", "silent": "3", "brokers": "1,2,3"}
                since = h.at(h.time - 2.5)
                h.row(name, "offsets", type="info", error="_TIMED_OUT", settings=settings, invoked=since)
        if not west and i % 10 == 9:
            h.send(stuck, 1000 + i, 1, type="info", error="_MSG_TIMED_OUT", invoked=h.at(h.time - 9.5))
        if reads:
            h.poll("reader of west", [])
        h.mark()
        h.time += 1.0
    for row in h.rows[before:]:
        row.run = "west" if row.process in WEST.values() else "east"


def born(h: History, name: str, called: str, run: str) -> None:
    h.start(name, name=called, writer=str(number(name)), sends_to="topic").run = run


def opened(store: Store, name: str) -> list[Finding]:
    return [f for f in store.findings if f.anomaly == name and f.event == "opened"]


@FEEDS
def test_a_host_that_is_cut_off_from_a_broker_is_one_condition_that_names_its_run(
    fed: Callable[[History], Store],
) -> None:
    h = History()
    born(h, "writer of west", "writer-1", "west")
    side_by_side(h, 10)
    side_by_side(h, 60, west=False)
    side_by_side(h, 5)
    store = fed(h)
    assert events(store, "cluster-unreachable") == [("opened", ("west",), 40), ("closed", ("west",), 70)]
    one = the(store, "cluster-unreachable")
    assert one.id == ALONE
    assert one.message == (
        "no request of run west to broker 3 (of 1, 2, 3) has been answered for 31 s, those of run east are"
    )
    assert {k: v for k, v in one.evidence.items() if k != "since"} == {
        "brokers": [3],
        "known_brokers": [1, 2, 3],
        "whole_cluster": False,
        "error": "_TIMED_OUT",
        "runs": ["west"],
        "run": "west",
        "answered": ["east"],
    }
    assert one.evidence["since"] == one.decidable - 30_000_000
    stuck = [f for f in store.findings if f.anomaly == "stuck-producer"]
    assert {f.event for f in stuck} == {"opened"} and {f.implied_by for f in stuck} == {ALONE}


@FEEDS
@pytest.mark.parametrize("how", ["all is well", "all are cut off", "its observer alone is not answered", "a moment"])
def test_who_is_not_cut_off_alone(how: str, fed: Callable[[History], Store]) -> None:
    h = History()
    side_by_side(h, 10)
    if how == "all are cut off":
        side_by_side(h, 60, east=False, west=False)
    elif how != "all is well":
        side_by_side(h, 20 if how == "a moment" else 60, west=False, reads=how != "a moment", stuck="none of these")
    side_by_side(h, 30)
    expected = [("opened", (), 40), ("closed", (), 70)] if how == "all are cut off" else []
    assert events(fed(h), "cluster-unreachable") == expected


@FEEDS
def test_who_is_not_back_with_the_others_is_told_by_itself_once_they_have_been_for_as_long(
    fed: Callable[[History], Store],
) -> None:
    h = History()
    side_by_side(h, 10)
    side_by_side(h, 40, east=False, west=False)
    side_by_side(h, 45, west=False)
    side_by_side(h, 5)
    store = fed(h)
    assert events(store, "cluster-unreachable") == [
        ("opened", (), 40),
        ("closed", (), 50),
        ("opened", ("west",), 81),
        ("closed", ("west",), 95),
    ]
    one = next(f for f in opened(store, "cluster-unreachable") if f.id == ALONE)
    assert one.message == (
        "no request of run west to broker 3 (of 1, 2, 3) has been answered for 31 s, those of run east are"
    )


@FEEDS
@pytest.mark.parametrize(("later", "alone"), [(8, False), (25, True)])
def test_after_a_time_without_answers_that_was_too_short_to_tell_who_is_not_back_has_half_a_liveness_objective(
    later: int, alone: bool, fed: Callable[[History], Store]
) -> None:
    h = History()
    born(h, "writer of west", "writer-1", "west")
    side_by_side(h, 10)
    side_by_side(h, 25, east=False, west=False)
    side_by_side(h, later, west=False)
    side_by_side(h, 40)
    store = fed(h)
    expected = [("opened", ("west",), 51), ("closed", ("west",), 60)] if alone else []
    assert events(store, "cluster-unreachable") == expected
    assert {f.implied_by for f in opened(store, "stuck-producer")} == ({ALONE} if alone else set())


@FEEDS
@pytest.mark.parametrize("later", [1, 5, 25])
def test_who_is_back_somewhat_later_than_the_others_was_cut_off_with_them(
    later: int, fed: Callable[[History], Store]
) -> None:
    h = History()
    born(h, "writer of west", "writer-1", "west")
    side_by_side(h, 10)
    side_by_side(h, 50, east=False, west=False)
    side_by_side(h, later, west=False)
    side_by_side(h, 40)
    store = fed(h)
    assert events(store, "cluster-unreachable") == [("opened", (), 40), ("closed", (), 60)]
    assert {f.implied_by for f in opened(store, "stuck-producer")} == {cause_id("cluster-unreachable", "c")}


@FEEDS
def test_a_writer_elsewhere_that_is_stuck_meanwhile_stands_for_itself(fed: Callable[[History], Store]) -> None:
    h = History()
    born(h, "writer of east", "writer-1", "east")
    side_by_side(h, 10)
    side_by_side(h, 60, west=False, stuck="writer of east")
    store = fed(h)
    assert [f.subject for f in opened(store, "cluster-unreachable")] == [("west",)]
    (stuck,) = opened(store, "stuck-producer")
    assert (stuck.subject, stuck.implied_by) == (("writer-1 of run east",), None)


def unread(h: History) -> None:
    """A reader of west's holds the partition, and does not move from when a record was sent to it."""
    h.start("reader of west", name="reader-1", mode="assign").run = "west"
    h.assign("reader of west").run = "west"
    side_by_side(h, 8)
    h.send("another", 0, 1, at=0).run = "east"
    h.poll("reader of west", [("another", 0, 1, 0)]).run = "west"
    side_by_side(h, 1)
    h.send("another", 1, 1, at=1).run = "east"
    side_by_side(h, 1)


@FEEDS
def test_a_reader_that_stands_still_is_explained_names_its_run_and_is_told_again_where_it_outlasts_that(
    fed: Callable[[History], Store],
) -> None:
    h = History()
    unread(h)
    side_by_side(h, 60, west=False, stuck="another")
    side_by_side(h, 60)
    first, again = opened(fed(h), "stuck-consumer")
    assert (first.implied_by, again.implied_by) == (ALONE, None)
    assert "of run west has not moved from offset" in first.message


@FEEDS
@pytest.mark.parametrize("later", [3, 8])
def test_who_is_due_before_all_are_known_to_be_cut_off_waits_for_that(
    later: int, fed: Callable[[History], Store]
) -> None:
    """Nobody else is answered for half a minute either, from some seconds later on: then nothing is told of one run."""
    h = History()
    unread(h)
    side_by_side(h, later, west=False, stuck="another")
    side_by_side(h, 50, east=False, west=False, stuck="another")
    store = fed(h)
    assert [f.subject for f in opened(store, "cluster-unreachable")] == [()]
    assert {f.implied_by for f in opened(store, "stuck-consumer")} == {cause_id("cluster-unreachable", "c")}


def test_of_more_runs_than_are_kept_the_one_that_asks_in_vain_is() -> None:
    own = Reach()
    own.of("cut off").ask(2_000_000, 1_000_000, 7, {"run": "cut off"})
    for i in range(RUNS_KEPT + 5):
        own.of(f"run {i}").answered = i
    assert len(own.alone) == RUNS_KEPT and "cut off" in own.alone and "run 0" not in own.alone


def test_what_came_in_one_second_to_several_runs_is_in_the_order_of_time() -> None:
    """One was answered at the beginning of a second, and one at its end."""
    at = np.array([5_900_000, 5_100_000, 5_950_000, 6_000_000])
    kept = _seconds(Answers(at, at - 1, np.array([0, 1, 0, 1])))
    assert kept.at.tolist() == [5_100_000, 5_950_000, 6_000_000] and kept.run.tolist() == [1, 0, 1]
