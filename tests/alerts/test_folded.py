"""What explains other findings takes them under it: an outage what waits for it, a loss what was a sign of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alerts.incidents.grouping import Incidents
from alerts.incidents.incident import explanation, summary
from rules.vocabulary.finding import identity
from rules.vocabulary.times import micros
from tests.alerts.findings import NOON
from tests.alerts.test_incidents import AWAY, S, away, standing, told


def test_what_an_outage_explains_is_folded_under_it_whichever_is_told_first() -> None:
    stuck = [
        told("stuck-consumer", n, at=1, event_="opened", partition=n, implied_by=AWAY, counted=counted)
        for n, counted in ((0, 2), (1, 40))
    ]
    for events in ([*stuck[:1], away("opened", at=3), *stuck[1:]], [away("opened", at=1), *stuck]):
        (one,) = standing(*events)
        assert (one.id, one.anomaly, one.folded, one.standing) == (
            AWAY,
            "cluster-unreachable",
            {"stuck-consumer": 2},
            3,
        )
        assert one.findings == 3
    ends = [replace(one, event="closed", counted=NOON + 70 * S, at=NOON + 69 * S) for one in stuck]
    (one,) = standing(*events, away("closed", at=60))
    assert one.open, "those that it explains still stand"
    (one,) = standing(*events, away("closed", at=60), *ends)
    assert (one.open, one.until) == (False, NOON + 69 * S)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (1, 0, 2), (2, 1, 0)])
def test_too_few_replicas_in_sync_explain_what_waits(order: tuple[int, ...]) -> None:
    """In whatever order they are counted, and whether their partitions know why or not; and not what comes later."""
    few = identity("under-min-isr", "c", "", -1, ())
    evidence = {"since": micros(NOON + 8 * S), "in_sync": [1]}
    events = [
        told("under-min-isr", (), at=28, event_="opened", topic="", partition=-1, evidence=evidence),
        told("stuck-consumer", 1, at=30, event_="opened", partition=1),
        told("stuck-producer", 2, at=31, event_="opened", partition=2, implied_by=few),
    ]
    counted = [replace(events[n], counted=NOON + (31 + i) * S) for i, n in enumerate(order)]
    (one,) = standing(*counted)
    assert (one.anomaly, one.folded) == ("under-min-isr", {"stuck-consumer": 1, "stuck-producer": 1})
    assert one.holds_since == NOON + 8 * S
    over = replace(events[0], event="closed", at=NOON + 60 * S, counted=NOON + 62 * S)
    found = standing(*counted, over, told("stuck-consumer", 5, at=200, event_="opened", partition=5))
    assert [one.anomaly for one in found] == ["under-min-isr", "stuck-consumer"]


@pytest.mark.parametrize(("since", "explained"), [(16.2, True), (40.0, True), (74.0, True), (76.0, False)])
def test_what_waited_before_too_few_were_known_to_be_in_sync_is_explained(since: float, explained: bool) -> None:
    """A leader that is cut off from its followers holds them to be in sync for `replica.lag.time.max.ms`, and half of
    that more: writers wait from the cut on."""
    stuck = [
        replace(told("stuck-producer", n, at=30.5, event_="opened", partition=n), decidable=NOON + (30 + n / 10) * S)
        for n in range(3)
    ]
    few = told(
        "under-min-isr",
        (),
        at=since + 20,
        event_="opened",
        topic="",
        partition=-1,
        evidence={"since": micros(NOON + since * S), "in_sync": [1]},
    )
    found = standing(*stuck, few)
    (main,) = (one for one in found if one.anomaly == "under-min-isr")
    assert main.folded == ({"stuck-producer": 3} if explained else {})
    assert all(one.absorbed == explained for one in found if one is not main)


def test_answers_held_back_explain_what_waits_for_them_and_no_transaction_that_hangs() -> None:
    evidence = {"since": micros(NOON + 8 * S), "brokers": [1], "longest_s": 11.0}
    held_back = told("throttled", (), at=28, event_="opened", topic="", partition=-1, evidence=evidence)
    waits = [told(name, 1, at=39, event_="opened", partition=1) for name in ("stuck-consumer", "unseen")]
    hangs = told("hanging-transaction", (), at=39, event_="opened", partition=2)
    for events in ([held_back, *waits, hangs], [*waits, hangs, held_back]):
        counted = [replace(one, counted=NOON + (40 + i) * S) for i, one in enumerate(events)]
        found = {one.anomaly: one.folded for one in standing(*counted) if not one.absorbed}
        assert found == {"throttled": {"stuck-consumer": 1, "unseen": 1}, "hanging-transaction": {}}


def test_where_the_cluster_is_silent_as_well_what_waits_is_in_one_of_the_two() -> None:
    few = told("under-min-isr", (), at=28, event_="opened", topic="", partition=-1)
    stuck = told("stuck-consumer", 1, at=30, event_="opened", partition=1)
    for events in ([few, away("opened", at=30), stuck], [away("opened", at=30), few, stuck]):
        found = standing(*events)
        assert {one.anomaly: one.folded for one in found} == {
            "under-min-isr": {},
            "cluster-unreachable": {"stuck-consumer": 1},
        }


def test_what_outlasts_its_cause_stands_for_itself() -> None:
    explained = told("stuck-consumer", 1, at=2, event_="opened", implied_by=AWAY)
    found = standing(
        away("opened", at=1), explained, away("closed", at=60), told("stuck-consumer", 1, at=95, event_="opened")
    )
    assert [(one.anomaly, one.open, one.standing) for one in found] == [
        ("cluster-unreachable", False, 0),
        ("stuck-consumer", True, 1),
    ]


def test_a_whole_outage_in_one_batch_is_over_at_its_end() -> None:
    """As after a catch-up, or of a kept log; the last event of a condition may name no cause any more."""
    stuck = told("stuck-producer", 1, at=2, event_="opened", implied_by=AWAY)
    events = [
        stuck,
        away("opened", at=3),
        away("closed", at=60),
        replace(stuck, event="closed", implied_by=None, at=NOON + 70 * S),
    ]
    incidents = Incidents()
    incidents.take(replace(one, counted=NOON + 100 * S) for one in events)
    (one,) = incidents.at(NOON + 100 * S)
    assert (one.anomaly, one.standing, one.open, one.until) == ("cluster-unreachable", 0, False, NOON + 70 * S)


def test_a_cause_that_never_comes_is_not_waited_for() -> None:
    lonely = told("stuck-consumer", 1, event_="opened", implied_by=AWAY)
    assert standing(lonely, now=61) == []
    (one,) = standing(lonely, now=62)
    assert (one.anomaly, one.since) == ("stuck-consumer", NOON)
    ended = told("stuck-consumer", 1, at=20, event_="closed", implied_by=AWAY)
    assert standing(lonely, ended, now=100) == [], "it has ended before"


@pytest.mark.parametrize(
    ("sign", "loss"),
    [
        ("poll-skip", "lost-write"),
        ("inconsistent-offsets", "lost-write"),
        ("int-poll-skip", "vanished-record"),
    ],
)
def test_a_loss_is_told_also_where_a_sign_of_it_was_told_before(sign: str, loss: str) -> None:
    """People are told of an incident when it begins, and not of what joins it. The sign is a part of that then."""
    evidence = {"writer": 7, "seq": 1, "offset": 44}
    seen = told(sign, 1, evidence={"skipped": [evidence]} if "skip" in sign else evidence)
    lost, elsewhere = told(loss, 1, at=15, evidence=evidence), told(loss, 2, at=15, partition=4, evidence={})
    (before,), both = standing(seen, now=14), standing(seen, lost, elsewhere, now=16)
    one, was = sorted(both, key=lambda one: one.absorbed)
    assert summary(before) == summary(was) == f"{sign} in orders/3 (critical)"
    assert summary(one) == f"{loss} in orders, 2 places (orders/3, orders/4) (critical)"
    assert (before.open, was.open, was.absorbed, one.folded) == (True, False, True, {sign: 1})
    assert f"It is part of {loss}, incident {one.id}." in explanation(was)


@pytest.mark.parametrize("skipped", [5, 0])
def test_a_sign_of_a_loss_that_was_told_is_folded_under_it(skipped: int) -> None:
    """Also where both are found at one moment, whatever their ids."""
    evidence = {"writer": 7, "seq": 1, "offset": 44}
    lost = told("lost-write", 1, evidence=evidence)
    for n in range(8):
        skip = told("poll-skip", n, at=skipped, evidence={"skipped": [evidence]})
        incidents = Incidents()
        incidents.take([skip, lost])
        (one,) = incidents.at(NOON + 6 * S)
        assert (one.anomaly, dict(one.folded)) == ("lost-write", {"poll-skip": 1})


def test_what_is_found_of_an_incident_that_is_over_is_counted_there() -> None:
    """As a rebuild finds it. What only looks like it, and what is worse than its incident was, begin their own."""
    copy = told("duplicate", 1, evidence={"writer": 7, "seq": 1, "offsets": [4, 9]})
    order = told("nonmonotonic-poll", 2, at=3000, evidence={"process": 5, "offset": 9}, implied_by=copy.id)
    (one,) = standing(copy, order)
    assert (one.anomaly, one.open, one.folded, one.findings) == ("duplicate", False, {"nonmonotonic-poll": 1}, 2)
    alone = replace(order, implied_by=None)
    assert [one.anomaly for one in standing(copy, alone)] == ["duplicate", "nonmonotonic-poll"]
    waits = told("stuck-consumer", 2, at=3000, event_="opened", implied_by=copy.id)
    assert [one.anomaly for one in standing(copy, waits, now=3100)] == ["duplicate", "stuck-consumer"]
    mild = replace(copy, severity="warning")
    assert [one.anomaly for one in standing(mild, order, now=3100)] == ["duplicate", "nonmonotonic-poll"]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3), (2, 3, 0, 1), (1, 2, 3, 0)])
def test_what_nobody_polls_where_readers_may_not_read_is_folded_under_that(order: tuple[int, ...]) -> None:
    """Told sooner, as it waits for less: each of the topics would be a page beside the one that names the right."""
    denied = {"error": "TOPIC_AUTHORIZATION_FAILED", "process": 7}
    events = [
        told("unseen", (), at=10, event_="opened", topic="orders"),
        told("unseen", (), at=11, event_="opened", topic="payments"),
        told("stuck-consumer", 1, at=30, event_="opened", topic="orders", evidence=denied),
        told("stuck-consumer", 1, at=31, event_="opened", topic="payments", evidence=denied),
    ]
    counted = [replace(events[n], counted=NOON + 32 * S + i * 0.1 * S) for i, n in enumerate(order)]
    (one,) = standing(*counted)
    assert (one.anomaly, one.findings, one.folded, one.standing) == ("stuck-consumer", 4, {"unseen": 2}, 4)
    (one,) = standing(*counted, *(replace(e, event="closed", at=NOON + 90 * S, counted=NOON + 91 * S) for e in counted))
    assert not one.open


def test_nor_is_what_nobody_polls_elsewhere_or_once_they_may_or_for_another_reason() -> None:
    denied = {"error": "TOPIC_AUTHORIZATION_FAILED", "process": 7}
    barred = told("stuck-consumer", 1, at=30, event_="opened", topic="orders", evidence=denied)
    over = replace(barred, event="closed", at=NOON + 60 * S, counted=NOON + 61 * S)
    elsewhere = told("unseen", (), at=40, event_="opened", topic="payments")
    later = told("unseen", (), at=80, event_="opened", topic="orders")
    assert [one.anomaly for one in standing(barred, elsewhere)] == ["stuck-consumer", "unseen"]
    assert [one.anomaly for one in standing(barred, over, later)] == ["stuck-consumer", "unseen"]
    slow = replace(barred, evidence={"process": 7})
    assert [one.anomaly for one in standing(slow, replace(later, at=NOON + 40 * S))] == ["stuck-consumer", "unseen"]
    told_alone = told("unseen", (), at=10, event_="opened", topic="orders")
    second, first = standing(told_alone, replace(barred, counted=NOON + 60 * S))
    assert (first.anomaly, first.became.anomaly if first.became else None) == ("unseen", "stuck-consumer")
    assert (second.anomaly, second.folded) == ("stuck-consumer", {"unseen": 1})


WANTING = {"error": "TOPIC_AUTHORIZATION_FAILED", "writer": "writer-3"}


@pytest.mark.parametrize("stuck", ["stuck-producer", "stuck-consumer"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_who_is_stuck_in_a_topic_where_a_right_is_wanting_is_folded_under_what_names_it(
    stuck: str, order: tuple[int, ...]
) -> None:
    """Of one that gets no producer id, or sees no partition, the client does not say that a right is wanting."""
    events = [
        told(stuck, "writer-1", at=36, event_="opened", topic="orders", partition=1),
        told("refused-writes", "writer-3", at=33, event_="opened", topic="orders", evidence=WANTING),
        told(stuck, "writer-1", at=38, event_="opened", topic="orders", partition=2),
    ]
    counted = [replace(events[n], counted=NOON + 39 * S + i * 0.1 * S) for i, n in enumerate(order)]
    (one,) = standing(*counted)
    assert (one.anomaly, one.findings, one.folded, one.standing) == ("refused-writes", 3, {stuck: 2}, 3)
    ends = [replace(e, event="closed", at=NOON + 90 * S, counted=NOON + 91 * S) for e in counted]
    still = [one for one in ends if one.anomaly == "refused-writes"]
    (one,) = standing(*counted, *still)
    assert (one.open, one.standing) == (True, 2)  # it outlasts the refusal: nobody was told that it is over
    (one,) = standing(*counted, *ends)
    assert not one.open


def test_nor_is_who_is_stuck_elsewhere_or_was_before_or_says_why_or_once_the_right_is_there() -> None:
    refused = told("refused-writes", "writer-3", at=33, event_="opened", topic="orders", evidence=WANTING)
    over = replace(refused, event="closed", at=NOON + 60 * S, counted=NOON + 61 * S)
    stuck = told("stuck-producer", "writer-1", at=36, event_="opened", topic="orders")
    both = ["refused-writes", "stuck-producer"]
    others = [
        replace(stuck, topic="payments", topic_id="payments"),
        replace(stuck, decidable=NOON + 22 * S),
        replace(stuck, at=NOON + 80 * S, decidable=NOON + 80 * S, counted=NOON + 81 * S),
    ]
    for other, more in zip(others, ([], [], [over]), strict=True):
        assert sorted(one.anomaly for one in standing(refused, *more, other)) == both
    large = replace(refused, evidence={"error": "MSG_SIZE_TOO_LARGE", "writer": "writer-3"})
    assert sorted(one.anomaly for one in standing(large, stuck)) == both


def test_who_is_stuck_for_want_of_one_right_stays_with_it_when_another_is_taken_away_as_well() -> None:
    """As topics and groups: its own error is not known."""
    group = {"error": "GROUP_AUTHORIZATION_FAILED", "writer": "writer-4"}
    events = [
        told("refused-writes", "writer-3", at=33, event_="opened", topic="orders", evidence=WANTING),
        told("stuck-producer", "writer-1", at=36, event_="opened", topic="orders"),
        told("refused-writes", "writer-4", at=40, event_="opened", topic="orders", evidence=group),
    ]
    assert sorted(len(one.folded) for one in standing(*events)) == [0, 1]
    (first,) = [one for one in standing(*events) if one.folded]
    assert first.since == NOON + 33 * S


@pytest.mark.parametrize(
    ("stuck", "error", "cluster", "explained"),
    [
        ("stuck-producer", "CLUSTER_AUTHORIZATION_FAILED", "c", True),
        ("stuck-producer", "CLUSTER_AUTHORIZATION_FAILED", "d", False),
        ("stuck-producer", "TOPIC_AUTHORIZATION_FAILED", "c", False),
        ("stuck-consumer", "CLUSTER_AUTHORIZATION_FAILED", "c", False),
    ],
)
def test_whoever_waits_for_a_producer_id_waits_for_the_right_of_the_cluster_that_another_is_refused(
    stuck: str, error: str, cluster: str, explained: bool
) -> None:
    evidence = {"error": error, "writer": "writer-3"}
    refused = told("refused-writes", "writer-3", at=33, event_="opened", topic="orders", evidence=evidence)
    other = told(stuck, "writer-1", at=35, event_="opened", topic="payments", cluster=cluster)
    again = replace(other, at=NOON + 80 * S, decidable=NOON + 80 * S, counted=NOON + 81 * S)
    over = replace(refused, event="closed", at=NOON + 60 * S, counted=NOON + 61 * S)
    for order in ([refused, other], [replace(other, counted=NOON + 33 * S), refused]):
        found = [(one.anomaly, one.folded) for one in standing(*order)]
        whole = [("refused-writes", {stuck: 1})]
        assert found == (whole if explained else found) and (len(found) == 1) == explained
    assert len(standing(refused, over, again)) == 2


@pytest.mark.parametrize(
    ("waits", "evidence", "explained"),
    [
        ("stuck-producer", {}, True),
        ("stuck-consumer", {}, True),
        ("evidence-late", {"hold": "operation"}, True),
        ("evidence-late", {"hold": "journals"}, False),
        ("hanging-transaction", {}, False),
    ],
)
@pytest.mark.parametrize("error", ["_AUTHENTICATION", "_SSL"])
def test_whoever_waits_where_a_login_is_refused_waits_for_that(
    waits: str, evidence: dict[str, object], explained: bool, error: str
) -> None:
    """All of a cluster's clients have the same one."""
    login = {"error": error, "writer": "writer-3"}
    refused = told("stuck-producer", "writer-3", at=33, event_="opened", topic="orders", evidence=login)
    other = told(waits, "b", at=34, event_="opened", topic="payments", evidence=evidence)
    for order in ([refused, other], [replace(other, counted=NOON + 33 * S), refused]):
        found = sorted((one.anomaly, one.findings) for one in standing(*order))
        apart = sorted([("stuck-producer", 1), (waits, 1)])
        assert found == ([("stuck-producer", 2)] if explained else apart)
    (elsewhere, here) = standing(refused, replace(other, cluster="d"))
    assert {elsewhere.findings, here.findings} == {1}


LOST = {"writer": 7, "seq": 68, "offset": 62}
SIGNS_OF_IT = [
    ("inconsistent-offsets", {"offset": 62, "values": [{"writer": 3, "seq": 8}, {"writer": 7, "seq": 68}]}),
    ("inconsistent-offsets", {"offset": 90, "values": [{"writer": 3, "seq": 8}, {"writer": 7, "seq": 68}]}),
    ("poll-skip", {"process": 4, "offset": 63, "skipped": [{"writer": 7, "seq": 68, "offset": 62}]}),
]


@pytest.mark.parametrize(("sign", "evidence"), SIGNS_OF_IT)
@pytest.mark.parametrize("loss", ["lost-write", "vanished-record"])
@pytest.mark.parametrize("later", [-3, 2, 40])
def test_a_loss_takes_in_what_was_told_of_the_same_record_before(
    sign: str, evidence: dict[str, object], loss: str, later: int
) -> None:
    """Whoever was told of the sign is told that it has become a loss."""
    signs = [told(sign, n, at=10, evidence=evidence if n == 1 else {}, counted=12) for n in (1, 2)]
    lost = told(loss, 1, at=10 + later, evidence=LOST, counted=12 + later)
    found = standing(*sorted([*signs, lost], key=lambda one: one.counted))
    one = next(one for one in found if one.anomaly == loss)
    assert (one.findings, one.folded) == (3, {sign: 2})
    others = [(one.anomaly, one.open, one.absorbed) for one in found if one.anomaly != loss]
    assert others == ([(sign, False, True)] if later == 40 else [])


@pytest.mark.parametrize(
    ("of_another", "elsewhere"),
    [({"writer": 7, "seq": 70, "offset": 64}, False), ({}, True), ({"idempotent": 1}, False)],
)
def test_and_nothing_that_was_told_of_another_record_or_log_or_is_worse(
    of_another: dict[str, int], elsewhere: bool
) -> None:
    sign, evidence = SIGNS_OF_IT[0]
    signs = [
        told(sign, 1, at=10, evidence=evidence, counted=12),
        *([told(sign, 2, at=11, partition=8, counted=12)] if elsewhere else []),
    ]
    lost = told("lost-write", 1, at=20, evidence=LOST | of_another, counted=22)
    if "idempotent" in of_another:
        lost = replace(lost, severity="warning")
    found = standing(*signs, lost)
    assert [(one.anomaly, one.folded) for one in found] == [(sign, {}), ("lost-write", {})]
    assert not any(one.absorbed for one in found)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_value_that_stands_twice_and_an_offset_that_holds_it_beside_another_are_one(order: tuple[int, ...]) -> None:
    """An acknowledgement told an offset that was one too high."""
    values = [{"writer": 7, "seq": 381}, {"writer": 9, "seq": 1758}]
    events = [
        told("duplicate", (7, 381), at=10, evidence={"writer": 7, "seq": 381, "offsets": [10982, 10983]}),
        told("inconsistent-offsets", 10983, at=10, evidence={"offset": 10983, "values": values}),
    ]
    first, second = (events[n] for n in order)
    (one,) = standing(first, replace(second, counted=NOON + 20 * S))
    assert (one.anomaly, one.folded) == (first.anomaly, {second.anomaly: 1})


SHOWN = {"writer": 7, "seq": 685, "offset": 8817, "txn": 5, "process": 396}


def test_what_was_shown_before_it_was_committed_is_one_incident_in_all_topics() -> None:
    """Of one leader that gives a wrong last stable offset for some seconds."""
    reflected = {"writer": 3, "seq": 1, "input_offset": 6568, "group": "g", "process": 5, "op": 4}
    events = [
        told("G1a", (7, 685), at=10, evidence=SHOWN),
        told("zombie-write", (9, 98), at=10, evidence={"process": 9, "writer": 8, "seq": 2175, "txn": 38}),
        told("dirty-read", (6, 396, 3), at=11, evidence={"txn": 6, "writer": 7, "seq": 690}, topic="outputs"),
        told("eos-violation", (3, 1), at=12, evidence=reflected, topic="outputs"),
        told("G1c-realtime", 44, at=20, topic="", partition=-1, counted=24),
    ]
    (one,) = standing(*events)
    assert one.anomaly == "G1a"
    assert one.folded == {"zombie-write": 1, "dirty-read": 1, "eos-violation": 1, "G1c-realtime": 1}
    late = replace(events[-1], counted=NOON + 2_000 * S)
    (one,) = standing(*events[:-1], late)  # the search for cycles is minutes behind
    assert (one.open, one.folded["G1c-realtime"]) == (False, 1)


@pytest.mark.parametrize(
    ("anomaly", "at", "topic"),
    [
        ("dirty-read", 90, "outputs"),
        ("eos-violation", 12, "others"),
        ("G1c-realtime", 90, ""),
        ("G1c", 12, ""),
        ("poll-skip", 12, "orders"),
    ],
)
def test_and_what_is_of_another_time_or_another_kind_is_another(anomaly: str, at: int, topic: str) -> None:
    first = told("G1a", (7, 685), at=10, evidence=SHOWN)
    other = told(anomaly, 1, at=at, topic=topic, partition=0 if topic else -1, evidence={"group": "g"})
    assert {one.anomaly for one in standing(first, other)} == {"G1a", anomaly}


@pytest.mark.parametrize("first", ["G1c-realtime", "eos-violation"])
def test_what_may_have_another_cause_names_no_incident_of_what_was_shown(first: str) -> None:
    before = told(first, 1, at=5, topic="outputs", evidence={"group": "g"})
    shown = [told("G1a", 1, at=10, topic="outputs"), told("dirty-read", 2, at=11, topic="orders")]
    found = standing(before, *shown)
    assert [(one.anomaly, one.folded) for one in found] == [(first, {}), ("G1a", {"dirty-read": 1})]


def test_of_what_is_found_at_one_moment_the_aborted_read_names_it() -> None:
    names = ("zombie-write", "dirty-read", "G1a")
    incidents = Incidents()
    incidents.take([told(name, n, at=10, evidence={"txn": n}, counted=12) for n, name in enumerate(names)])
    (one,) = incidents.at(NOON + 13 * S)
    assert (one.anomaly, one.folded) == ("G1a", {"zombie-write": 1, "dirty-read": 1})
