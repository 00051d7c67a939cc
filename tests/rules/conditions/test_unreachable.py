"""`cluster-unreachable`: an outage is one condition, and what waits on it says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from rules.kept.outages import Outages, cause_id
from rules.kept.report import Report
from rules.kept.state import State
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import SECOND, Objectives
from rules.vocabulary.slices import Place, Slice
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, events, row_by_row
from tests.rules.histories import START, History, Store

FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
AWAY = cause_id("cluster-unreachable", "c")


def answered(h: History, seconds: int, *, first: int = 0, partitions: int = 1, polls: bool = True) -> int:
    """A record a second in each partition, read at once; the observer is answered."""
    for i in range(first, first + seconds):
        for p in range(partitions):
            h.send("w", i, 1, at=i, partition=p)
            if polls:
                h.poll("r", [("w", i, 1, i)], partition=p)
            h.row("observer", "offsets", partition=p, log_start=0, log_end=i + 1, last_stable=i + 1)
            mark(h, p)
        h.time += 1.0
    return first + seconds


def mark(h: History, partition: int) -> None:
    h.mark(partition=partition)


def unanswered(
    h: History,
    seconds: int,
    *,
    partitions: int = 1,
    silent: str = "1",
    brokers: str = "1",
    sends: bool = False,
    error: str = "_TIMED_OUT",
    asker: str = "observer",
) -> None:
    """The observer asks, and gives up; the readers hear nothing, and a writer's operations time out every ten
    seconds."""
    for i in range(seconds):
        for p in range(partitions):
            if i % 3 == 2:
                settings = {"leader": str(p % 3 + 1), "silent": silent, "brokers": brokers}
                since = h.at(h.time - 2.5)
                h.row(asker, "offsets", partition=p, type="info", error=error, settings=settings, invoked=since)
            if sends and i % 10 == 9:
                h.send("w", 1000 + i, 1, type="info", error="_MSG_TIMED_OUT", partition=p, invoked=h.at(h.time - 9.5))
            mark(h, p)
        h.time += 1.0


def told(store: Store) -> list[tuple[str, str, int, str | None]]:
    """(event, anomaly, second, implied by) of the conditions, in the order of time."""
    said = sorted(store.findings, key=lambda f: (f.at, f.anomaly))
    return [(f.event, f.anomaly, round((f.at - micros(START)) / 1e6), f.implied_by) for f in said]


def the(store: Store, name: str, event: str = "opened") -> Finding:
    (one,) = (f for f in store.findings if f.anomaly == name and f.event == event)
    return one


@FEEDS
def test_that_the_login_is_refused_is_said(fed: Callable[[History], Store]) -> None:
    h = History()
    answered(h, 5)
    unanswered(h, 40, error="_AUTHENTICATION")
    one = the(fed(h), "cluster-unreachable")
    assert one.message == (
        "no request to any broker (1) has been answered for 31 s; the login is refused (_AUTHENTICATION)"
        " (asked by the observer of run run)"
    )
    assert one.evidence["error"] == "_AUTHENTICATION"


@FEEDS
def test_why_a_client_is_not_let_in_is_not_forgotten_for_what_it_says_later(fed: Callable[[History], Store]) -> None:
    h = History()
    answered(h, 5)
    unanswered(h, 12, error="_SSL")
    unanswered(h, 30)
    one = the(fed(h), "cluster-unreachable")
    assert "; a broker's certificate, or ours, is not accepted (_SSL) (asked" in one.message
    assert one.evidence["error"] == "_SSL"


@FEEDS
def test_a_broker_that_is_named_now_and_then_is_not_said_to_answer_nobody(fed: Callable[[History], Store]) -> None:
    """Where answers take longer than the observer waits, others are answered in other partitions meanwhile."""
    h = History()
    answered(h, 5)
    for i in range(12):
        unanswered(h, 3, silent="1" if i % 2 else "")
    one = the(fed(h), "cluster-unreachable")
    assert one.message == (
        "no request to the leader of partition 0 of topic has been answered for 31 s (asked by the observer of run run)"
    )
    assert (one.evidence["brokers"], one.evidence["whole_cluster"]) == ([], False)


@FEEDS
def test_an_outage_is_one_condition_whatever_number_of_partitions(fed: Callable[[History], Store]) -> None:
    h = History()
    for p in range(3):
        h.assign("r", partition=p)
    answered(h, 10, partitions=3)
    unanswered(h, 60, partitions=3, silent="1,2,3", brokers="1,2,3", sends=True)
    answered(h, 5, first=10, partitions=3)
    store = fed(h)
    assert events(store, "cluster-unreachable") == [("opened", (), 40), ("closed", (), 71)]
    one = the(store, "cluster-unreachable")
    assert (one.topic_id, one.partition, one.id) == ("", -1, AWAY)
    assert (
        one.message
        == "no request to any broker (1, 2, 3) has been answered for 31 s (asked by the observer of run run)"
    )
    assert {k: v for k, v in one.evidence.items() if k != "since"} == {
        "brokers": [1, 2, 3],
        "known_brokers": [1, 2, 3],
        "whole_cluster": True,
        "error": "_TIMED_OUT",
        "runs": ["run"],
    }
    assert one.evidence["since"] == one.decidable - 30_000_000
    opened, closed = (the(store, "cluster-unreachable", event).evidence for event in ("opened", "closed"))
    assert closed == {**opened, "partitions": 3, "lasted_s": closed["lasted_s"]}, "who was silent stays with it"
    rest = [f for f in store.findings if f.anomaly != "cluster-unreachable"]
    assert {(f.anomaly, f.event) for f in rest} == {
        ("stuck-consumer", "opened"),
        ("stuck-consumer", "closed"),
        ("stuck-producer", "opened"),
        ("stuck-producer", "closed"),
    }
    assert {f.implied_by for f in rest} == {AWAY}


def test_of_a_topic_that_one_host_works_on_its_run_is_named() -> None:
    h = History()
    answered(h, 5)
    unanswered(h, 20)
    for row in unasked_by_others(h, 30):
        row.run = "west"
    one = the(at_once(h), "cluster-unreachable")
    assert one.evidence["runs"] == ["run", "west"]
    assert one.message.endswith("for 31 s (asked by the observer of run run, west)")


def unasked_by_others(h: History, seconds: int) -> list[Slice]:
    """The rows of another host's observer, which is not answered either."""
    before = len(h.rows)
    unanswered(h, seconds, asker="other")
    return [row for row in h.rows[before:] if row.f == "offsets"]


def unread_when_it_goes(h: History) -> None:
    h.assign("r")
    answered(h, 10)
    h.send("w", 10, 1, at=10)
    h.row("observer", "offsets", log_start=0, log_end=11, last_stable=11)
    unanswered(h, 60)


def test_what_is_unread_when_the_cluster_goes_is_explained_by_that() -> None:
    h = History()
    unread_when_it_goes(h)
    h.poll("r", [("w", 10, 1, 10)])
    answered(h, 5, first=11)
    said = told(row_by_row(h))
    assert said == [
        ("opened", "cluster-unreachable", 41, None),
        ("opened", "stuck-consumer", 41, AWAY),
        ("opened", "unseen", 41, AWAY),
        ("closed", "cluster-unreachable", 70, None),
        ("closed", "stuck-consumer", 71, AWAY),
        ("closed", "unseen", 71, AWAY),
    ]


@FEEDS
def test_who_stays_stuck_when_the_cluster_is_back_is_stuck_by_himself(fed: Callable[[History], Store]) -> None:
    h = History()
    unread_when_it_goes(h)
    for _ in range(60):
        h.observe(end=11)
        h.mark(1.0)
    said = [e for e in told(fed(h)) if e[1] in ("stuck-consumer", "cluster-unreachable")]
    assert said == [
        ("opened", "cluster-unreachable", 41, None),
        ("opened", "stuck-consumer", 41, AWAY),
        ("closed", "cluster-unreachable", 70, None),
        ("opened", "stuck-consumer", 101, None),
    ]


@FEEDS
def test_who_waits_through_two_outages_is_explained_until_the_second_is_over(fed: Callable[[History], Store]) -> None:
    h = History()
    unread_when_it_goes(h)
    for _ in range(10):
        h.observe(end=11)
        h.mark(1.0)
    unanswered(h, 60)
    for _ in range(40):
        h.observe(end=11)
        h.mark(1.0)
    said = [e for e in told(fed(h)) if e[1] == "stuck-consumer"]
    assert said == [("opened", "stuck-consumer", 41, AWAY), ("opened", "stuck-consumer", 171, None)]


def quiet(h: History) -> None:
    """Nobody sends or reads for minutes; the observer is answered."""
    h.assign("r")
    answered(h, 5)
    for _ in range(120):
        h.observe(end=5)
        h.mark(1.0)


def away_for_a_moment(h: History) -> None:
    h.assign("r")
    answered(h, 10)
    unanswered(h, 25)
    answered(h, 10, first=10)


def the_observer_alone_is_cut_off(h: History) -> None:
    """Another host's probes are answered all the time."""
    h.assign("r")
    i = answered(h, 5)
    for _ in range(60):
        unanswered(h, 1)
        h.row("observer", "offsets", type="info", error="_TIMED_OUT")
        h.send("w", i, 1, at=i)
        h.poll("r", [("w", i, 1, i)])
        h.mark()
        i += 1


def the_probe_host_is_away(h: History) -> None:
    """Its log stops, and another committer's marks go on: nobody knows what the cluster answered."""
    h.assign("r")
    answered(h, 10)
    h.row("observer", "offsets", type="info", error="_TIMED_OUT")
    for _ in range(120):
        h.time += 1.0
        now = h.at(h.time)
        h.row("committer-2", "mark", invoked=now, completed=now)


def the_leader_has_an_error_for_everybody(h: History) -> None:
    h.assign("r")
    answered(h, 10)
    unanswered(h, 60, error="NOT_LEADER_FOR_PARTITION")


def asked_for_committed_offsets_in_vain(h: History) -> None:
    """The group's coordinator is away, and not this partition's leader; nobody else has anything to do."""
    answered(h, 5)
    for _ in range(60):
        h.row("observer", "offsets", type="info", error="_TIMED_OUT", group="g")
        h.mark(1.0)


FINE = [
    quiet,
    away_for_a_moment,
    the_observer_alone_is_cut_off,
    the_probe_host_is_away,
    the_leader_has_an_error_for_everybody,
    asked_for_committed_offsets_in_vain,
]


@FEEDS
@pytest.mark.parametrize("build", FINE)
def test_a_cluster_that_answers(build: Callable[[History], None], fed: Callable[[History], Store]) -> None:
    h = History()
    build(h)
    assert events(fed(h), "cluster-unreachable") == []


@FEEDS
@pytest.mark.parametrize(
    ("known", "called"),
    [("1,2,3", "broker 1 (of 1, 2, 3)"), ("2,3", "broker 1, named as a leader and none of 2, 3,")],
)
def test_one_broker_of_three_away_is_named_and_the_others_partitions_are_fine(
    fed: Callable[[History], Store], known: str, called: str
) -> None:
    h = History()
    h.assign("r")
    h.assign("r", partition=1)
    i = answered(h, 10, partitions=2)
    for _ in range(15):
        unanswered(h, 3, silent="1", brokers=known)
        h.row("observer", "offsets", partition=1, log_start=0, log_end=i, last_stable=i)
        h.mark(partition=1)
    one = the(fed(h), "cluster-unreachable")
    assert one.message == f"no request to {called} has been answered for 31 s (asked by the observer of run run)"
    assert (one.evidence["brokers"], one.evidence["whole_cluster"]) == ([1], False)


def away_for_a_while(h: History, *, elsewhere: bool, seconds: int = 16) -> None:
    """From second 10 on a writer's operations end without an answer. A broker is away meanwhile, and then answers
    again: this partition's leader, or another one of which its observer tells."""
    answered(h, 10, polls=False)
    named: dict[str, Any] = {"settings": {"silent": "2", "brokers": "1,2"}}
    for second in range(45):
        h.time += 1.0
        if second >= seconds or elsewhere:
            more = named if second < seconds else {}
            h.row("observer", "offsets", log_start=0, log_end=10, last_stable=10, **more)
        else:
            h.row("observer", "offsets", type="info", error="_TIMED_OUT", invoked=h.at(h.time - 0.5), **named)
        if second % 10 == 9:
            h.send("w", 1000 + second, 1, type="info", error="_MSG_TIMED_OUT", invoked=h.at(h.time - 9.5))
        h.mark()


@FEEDS
@pytest.mark.parametrize("elsewhere", [False, True], ids=["its leader", "another one"])
def test_who_waits_on_after_an_outage_says_when_that_was(fed: Callable[[History], Store], elsewhere: bool) -> None:
    h = History()
    away_for_a_while(h, elsewhere=elsewhere)
    one = the(fed(h), "stuck-producer")
    assert one.implied_by is None
    assert re.search(
        r" has completed for \d+ s, though all leaders answer again, after 1[678] s in which one did not$", one.message
    )
    assert micros(START) < one.evidence["began"] < one.evidence["away_until"] < one.at
    assert 15e6 <= one.evidence["away_until"] - one.evidence["away_from"] <= 18.5e6


@FEEDS
def test_a_request_that_came_to_nothing_is_no_outage(fed: Callable[[History], Store]) -> None:
    h = History()
    away_for_a_while(h, elsewhere=False, seconds=2)
    one = the(fed(h), "stuck-producer")
    assert re.search(r" has completed for \d+ s$", one.message) and "away_from" not in one.evidence


def stuck_in_two_partitions(h: History, *, silent: bool) -> None:
    """A writer's operations over partitions 0 and 1 do not end; the leader of 1 answers the observer all the time."""
    named: dict[str, Any] = {"settings": {"silent": "1", "brokers": "1,2,3"}} if silent else {}
    answered(h, 10, partitions=2)
    for second in range(45):
        h.time += 1.0
        h.row("observer", "offsets", partition=1, log_start=0, log_end=10, last_stable=10, **named)
        if second % 10 == 9:
            h.txn("w", type="info", sends=[("w", 1000 + second, 1, None)], partition=1, invoked=h.at(h.time - 9.5))
        h.mark(partition=1)


@FEEDS
def test_a_writer_waits_for_each_broker_that_its_operation_goes_to(fed: Callable[[History], Store]) -> None:
    h = History()
    stuck_in_two_partitions(h, silent=True)
    assert [e[:3:2] + e[3:] for e in told(fed(h)) if e[1] == "stuck-producer"] == [("opened", 50, AWAY)]
    h = History()
    stuck_in_two_partitions(h, silent=False)
    assert [e[:3:2] + e[3:] for e in told(fed(h)) if e[1] == "stuck-producer"] == [("opened", 50, None)]


@FEEDS
def test_it_is_told_as_long_as_the_outage_lasts_and_no_longer_than_somebody_asks(
    fed: Callable[[History], Store],
) -> None:
    """The topic has gone meanwhile: the observer closes, and nobody asks any more."""
    h = History()
    h.assign("r")
    answered(h, 10)
    unanswered(h, 200)
    assert events(fed(h), "cluster-unreachable") == [("opened", (), 40)]
    h.row("observer", "close")
    for _ in range(60):
        h.mark(1.0)
    assert events(fed(h), "cluster-unreachable") == [("opened", (), 40), ("closed", (), 253)]


@FEEDS
def test_an_observer_that_stalls_for_a_minute_ends_no_outage(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    answered(h, 10)
    unanswered(h, 40)
    for _ in range(60):
        h.mark(1.0)
    unanswered(h, 10)
    answered(h, 5, first=10)
    assert events(fed(h), "cluster-unreachable") == [("opened", (), 40), ("closed", (), 120)]


def test_an_answer_that_comes_late_ends_what_was_told_without_it() -> None:
    """Another host's rows come after the outage was called: it had been answered a second before."""
    h = History()
    h.assign("r")
    answered(h, 10)
    unanswered(h, 20)
    late: Slice = h.send("v", 0, 1, at=10)
    unanswered(h, 15)
    store = Store()
    store.feed([row for row in h.rows if row is not late])
    assert [e[0] for e in events(store, "cluster-unreachable")] == ["opened"]
    store.feed([late])
    assert [e[0] for e in events(store, "cluster-unreachable")] == ["opened", "closed"]


def test_a_writer_that_hangs_while_the_cluster_answers_is_nobody_else_s_fault() -> None:
    h = History()
    h.assign("r")
    i = answered(h, 10)
    for second in range(40):
        h.observe(end=i)
        if second % 10 == 9:
            h.send("w", 1000 + second, 1, type="info", error="_MSG_TIMED_OUT", invoked=h.at(h.time - 9.5))
        h.mark(1.0)
    assert [(e[0], e[1], e[3]) for e in told(row_by_row(h))] == [("opened", "stuck-producer", None)]


def tried_again_in_the_middle(h: History, *, first: int, then: int) -> None:
    """A writer's operation is given up after `first` seconds of an outage; it tries again at once, which is answered
    with everybody else, `then` seconds later."""
    h.assign("r")
    answered(h, 10)
    began = h.time
    unanswered(h, first)
    h.send("w", 10, 1, type="info", error="_MSG_TIMED_OUT", invoked=h.at(began + 0.1))
    again = h.time
    unanswered(h, then)
    h.row("observer", "offsets", log_start=0, log_end=11, last_stable=11)
    h.send("w", 11, 1, at=10, invoked=h.at(again))
    h.poll("r", [("w", 11, 1, 10)])
    mark(h, 0)
    answered(h, 5, first=12)


@FEEDS
def test_who_tries_again_in_the_middle_of_an_outage_does_not_end_it(fed: Callable[[History], Store]) -> None:
    h = History()
    tried_again_in_the_middle(h, first=28, then=7)
    said = told(fed(h))
    assert [e[:3] for e in said if e[1] == "cluster-unreachable"] == [
        ("opened", "cluster-unreachable", 40),
        ("closed", "cluster-unreachable", 45),
    ]
    assert {e[3] for e in said if e[1] != "cluster-unreachable"} <= {AWAY}


def nearly_away() -> History:
    """A record waits for a reader while the cluster is away, for a little less than the objective."""
    h = History()
    h.assign("r")
    answered(h, 10)
    h.send("w", 10, 1, at=10)
    h.row("observer", "offsets", log_start=0, log_end=11, last_stable=11)
    unanswered(h, 29)
    return h


@FEEDS
def test_what_is_due_when_the_cluster_answers_again_waits_a_moment(fed: Callable[[History], Store]) -> None:
    """Nothing explains who waited: they get going."""
    h = nearly_away()
    for _ in range(3):
        h.observe(end=11)
        h.mark(1.0)
    h.poll("r", [("w", 10, 1, 10)])
    answered(h, 5, first=11)
    assert told(fed(h)) == []


@FEEDS
def test_who_does_not_get_going_when_the_cluster_answers_again_is_told(fed: Callable[[History], Store]) -> None:
    h = nearly_away()
    for _ in range(12):
        h.observe(end=11)
        h.mark(1.0)
    said = [e for e in told(fed(h)) if e[1] == "stuck-consumer"]
    assert said == [("opened", "stuck-consumer", 45, None)]


@FEEDS
def test_what_was_begun_in_an_outage_and_is_due_after_it_is_explained_by_it(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    i = answered(h, 10)
    unanswered(h, 5)
    began = h.time
    unanswered(h, 29)
    for _ in range(4):
        h.observe(end=i)
        h.mark(1.0)
    h.send("w", 10, 1, type="info", error="_MSG_TIMED_OUT", invoked=h.at(began))
    mark(h, 0)
    h.send("w", 11, 1, at=10)
    h.poll("r", [("w", 11, 1, 10)])
    answered(h, 5, first=12)
    said = [(e[0], e[1], e[3]) for e in told(fed(h)) if e[1] == "stuck-producer"]
    assert said == [("opened", "stuck-producer", AWAY), ("closed", "stuck-producer", AWAY)]


def test_who_was_explained_by_an_answer_that_came_later_than_is_known_now_stands_for_itself() -> None:
    """A row that comes late tells of an earlier answer: nothing explains any more who was due just before."""
    place, objectives = Place("c", "t", 0), Objectives()
    state, due = State(), 157 * SECOND

    def report(answered: int) -> Report:
        made = Report(place, state, objectives)
        made.outages = Outages("c", objectives, [[96 * SECOND, 126 * SECOND, answered]])
        return made

    def holds(into: Report, at: int) -> list[tuple[int, str | None]]:
        told = {"process": 1, "position": 5, "moved": due - 30 * SECOND, "why": "stands"}
        into.condition("stuck-consumer", "it stands", at=at, since=due, evidence=told, subject=(1,))
        return [(one.decidable // SECOND, one.implied_by) for one in into.findings()]

    assert holds(report(128 * SECOND), due + SECOND // 2) == [(157, cause_id("cluster-unreachable", "c"))]
    assert holds(report(126 * SECOND), due + SECOND) == [(157, None)]
    assert holds(report(126 * SECOND), due + 9 * SECOND) == [], "it is told once"
    last = report(126 * SECOND)
    last.condition("stuck-consumer", None, at=due + 10 * SECOND, evidence={"process": 1}, subject=(1,))
    assert [one.event for one in last.findings()] == ["closed"]
    assert (state.open_conditions, state.explained) == ({}, [])


@pytest.mark.parametrize(
    ("at", "explained"),
    [(150, True), (187, True), (193, False), (600, False)],
    ids=["while it explains", "just after", "seconds after", "minutes after"],
)
def test_what_is_told_long_after_an_outage_stands_for_itself(at: int, explained: bool) -> None:
    """It was due while the outage explained it, and the log, or the monitor, came late."""
    made = Report(Place("c", "t", 0), State(), Objectives())
    made.outages = Outages("c", Objectives(), [[96 * SECOND, 126 * SECOND, 156 * SECOND]])
    evidence = {"values": 1, "first": [], "age_s": 1.0}
    made.condition("unseen", "1 acknowledged value", at=at * SECOND, since=140 * SECOND, evidence=evidence)
    (told,) = made.findings()
    assert (told.decidable, told.implied_by) == (140 * SECOND, AWAY if explained else None)
