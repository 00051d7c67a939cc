"""From findings to incidents: what somebody is woken by is one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from alerts.event import FindingEvent
from alerts.incidents.grouping import AGAIN, HOLD, KEPT, Incidents
from alerts.incidents.incident import LISTED, LOSSES, Incident, explanation, span, summary, where
from rules.vocabulary.finding import Finding, identity
from rules.vocabulary.policy import severity
from rules.vocabulary.times import micros
from tests.alerts.findings import NOON, event

S = timedelta(seconds=1)
AWAY = identity("cluster-unreachable", "c", "", -1, ())


def told(
    anomaly: str,
    subject: Any = 1,
    *,
    at: float = 0.0,
    event_: str = "raised",
    counted: float | None = None,
    topic: str = "orders",
    partition: int = 3,
    evidence: Mapping[str, Any] | None = None,
    context: Any = None,
    implied_by: str | None = None,
    cluster: str = "c",
) -> FindingEvent:
    """An event that the rules spoke `at` seconds after noon, counted a second later unless told otherwise."""
    spoken = micros(NOON + timedelta(seconds=at))
    subjects = subject if isinstance(subject, tuple) else (subject,)
    found = Finding(
        anomaly=anomaly,
        cluster=cluster,
        topic_id=topic and f"{topic}-id",
        topic=topic,
        partition=partition,
        subject=subjects,
        event=event_,  # type: ignore[arg-type]
        message=f"{anomaly} of {subject}",
        evidence=evidence or {},
        context=context or {},
        at=spoken,
        decidable=spoken,
        implied_by=implied_by,
    )
    when = NOON + timedelta(seconds=at + 1 if counted is None else counted)
    return event(found, severity(anomaly, found.context), counted=when)


def away(event_: str, *, at: float) -> FindingEvent:
    return told("cluster-unreachable", (), at=at, event_=event_, topic="", partition=-1, evidence={"brokers": [1]})


def test_a_run_that_is_cut_off_is_an_incident_beside_that_of_all() -> None:
    runs = {"brokers": [3], "runs": ["west"], "run": "west", "answered": ["east"]}
    alone = told("cluster-unreachable", ("west",), at=5, event_="opened", topic="", partition=-1, evidence=runs)
    other = replace(alone, id="another", evidence=runs | {"runs": ["north"], "run": "north"})
    assert len(standing(away("opened", at=0), alone, other)) == 3


def standing(*events: FindingEvent, now: float | None = None, **options: Any) -> list[Incident]:
    """The incidents, the oldest first, `now` seconds after noon; else when the last event was counted."""
    incidents = Incidents(**options)
    for one in events:
        incidents.take([one])
    last = max((one.counted for one in events), default=NOON)
    return list(reversed(incidents.at(last if now is None else NOON + timedelta(seconds=now))))


def test_an_exposed_abort_is_one_incident_however_many_its_records() -> None:
    first = told("G1a", (7, 0), at=0, evidence={"writer": 7, "seq": 0, "txn": 5, "offset": 10})
    more = [
        told("G1a", (7, seq), at=seq / 10, partition=seq % 2 + 3, evidence={"writer": 7, "seq": seq, "txn": 5})
        for seq in range(1, 200)
    ]
    torn = told("torn-transaction", 5, at=30, partition=-1, evidence={"txn": 5})
    (one,) = standing(first, *more, torn)
    assert one == Incident(
        id=first.id,
        occurrence=f"{first.id}@1728043200000",
        anomaly="G1a",
        kind="violation",
        severity="critical",
        cluster="c",
        topic="orders",
        message="G1a of (7, 0)",
        evidence=first.evidence,
        since=NOON,
        last=NOON + 30 * S,
        until=None,
        told=NOON + 1 * S,
        ended=None,
        subjects=("orders/3", "orders/4"),
        places=2,
        findings=201,
        standing=0,
        folded={"torn-transaction": 1},
        topics=frozenset({"orders"}),
        due=NOON + 1 * S,
        began=NOON,
        latest="in orders/4: G1a of (7, 199)",
    )
    assert summary(one) == "G1a in orders, 2 places (orders/3, orders/4) (critical)"
    assert explanation(one) == (
        "G1a of (7, 0). 201 findings so far in 2 places. The last, in orders/4: G1a of (7, 199). With it came"
        " 1 × torn-transaction."
    )
    assert one.anomaly == "G1a"
    assert (one.place, one.open, one.runbook) == ("orders/3 +1", True, "docs/runbook.md#g1a")


@pytest.mark.parametrize(
    ("second", "incidents"),
    [
        (told("lost-write", 2, at=5, evidence={"writer": 7, "seq": 9}), 1),
        (told("lost-write", 2, at=5, topic="payments"), 2),
        (told("lost-write", 2, at=5, cluster="d"), 2),
        (told("lost-write", 2, at=5, partition=4), 1),
        (told("vanished-record", 2, at=5, evidence={"offset": 44}), 1),
        (told("vanished-record", 2, at=5, evidence={"offset": 44}, partition=4), 2),
        (told("vanished-record", 2, at=5, evidence={"writer": 7, "seq": 1}), 1),
        (told("poll-skip", 2, at=5, evidence={"skipped": [{"writer": 7, "seq": 1, "offset": 44}]}), 1),
        (told("poll-skip", 2, at=5, evidence={"skipped": [{"writer": 7, "seq": 2, "offset": 45}]}), 1),
        (told("poll-skip", 2, at=65, evidence={"skipped": [{"writer": 7, "seq": 2, "offset": 45}]}), 2),
        (told("offset-regression", 2, at=5, evidence={"txn": 5}), 1),
        (told("unseen", (), at=5, event_="opened", evidence={"txn": 5}), 2),
    ],
)
def test_what_concerns_the_same_records_is_one_incident(second: FindingEvent, incidents: int) -> None:
    first = told("lost-write", 1, evidence={"writer": 7, "seq": 1, "offset": 44, "txn": 5})
    assert len(standing(first, second)) == incidents


@pytest.mark.parametrize("partition", [3, 4])
def test_what_a_loss_leaves_in_its_log_is_a_part_of_it(partition: int) -> None:
    """Also where signs of another time of the same log go on to be one incident."""
    earlier = told("poll-skip", 1, at=-300, partition=3)
    loss = told("lost-write", 1, evidence={"writer": 7, "seq": 1, "offset": 44})
    sign = told("inconsistent-offsets", 1, at=20, partition=partition, evidence={"offset": 12})
    found = standing(earlier, loss, sign)
    assert [one.anomaly for one in found] == [
        "poll-skip",
        "lost-write",
        *(["inconsistent-offsets"] if partition == 4 else []),
    ]


def refused_by(error: str, *, at: float) -> list[FindingEvent]:
    """Writes, for twenty seconds."""
    opened = told("refused-writes", ("w",), at=at, event_="opened", evidence={"error": error, "writer": "w"})
    return [opened, replace(opened, event="closed", at=opened.at + 20 * S, counted=opened.counted + 20 * S)]


@pytest.mark.parametrize(
    ("one", "other", "incidents"),
    [
        ("GROUP_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", 1),
        ("GROUP_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 2),
        ("MSG_SIZE_TOO_LARGE", "INVALID_TIMESTAMP", 2),
        ("NOT_ENOUGH_REPLICAS", "NOT_LEADER_FOR_PARTITION", 1),
        ("TOPIC_AUTHORIZATION_FAILED", "NOT_ENOUGH_REPLICAS", 2),
        ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", 1),  # who may write nowhere gets no producer id
        ("CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 2),
    ],
)
def test_another_right_or_setting_is_another_incident(one: str, other: str, incidents: int) -> None:
    found = standing(*refused_by(one, at=0), *refused_by(other, at=100))
    assert len(found) == incidents
    assert [incident.spells for incident in found] == ([2] if incidents == 1 else [1, 1])


def test_a_login_that_is_refused_is_no_other_outage_that_began_again() -> None:
    events = [away("opened", at=0), away("closed", at=30), away("opened", at=100)]
    login = replace(events[2], evidence={**events[2].evidence, "error": "_AUTHENTICATION"})
    assert [one.spells for one in standing(*events)] == [2]
    assert [one.spells for one in standing(*events[:2], login)] == [1, 1]


@pytest.mark.parametrize(
    ("seq", "anomaly", "incidents"), [(1, "eos-violation", 1), (2, "eos-violation", 2), (1, "lost-write", 2)]
)
def test_an_input_that_stands_twice_and_is_reflected_twice_is_one_incident(
    seq: int, anomaly: str, incidents: int
) -> None:
    twice = told("duplicate", 1, topic="orders", evidence={"writer": 7, "seq": 1, "offsets": [44, 45]})
    evidence = {"writer": 7, "seq": seq, "input_offset": 45, "group": "g"}
    reflected = told(anomaly, 2, at=5, topic="outputs", evidence=evidence)
    for order in (twice, reflected), (reflected, twice):
        assert len(standing(*order)) == incidents
    unrelated = told("eos-violation", 3, at=9, topic="outputs", evidence=evidence | {"seq": 9})
    assert len(standing(twice, reflected, unrelated)) == (2 if anomaly == "eos-violation" else 3)


def test_what_a_foreign_writer_leaves_in_several_topics_at_once_is_one_incident() -> None:
    """Also where it goes on in all of them, and in whatever order. What else is found there is another thing, and so
    are such records in another cluster, or hours later."""
    written = [
        told("corrupted-record", n, at=at, topic=topic, evidence={"offset": 40 + n})
        for n, (at, topic) in enumerate([(0, "orders"), (1, "payments"), (3, "refunds"), (30, "payments")])
    ]
    (one,) = standing(*written)
    assert (one.findings, one.topics) == (4, frozenset({"orders", "payments", "refunds"}))
    assert summary(one) == "corrupted-record in cluster c, 3 places (orders/3, payments/3, refunds/3) (critical)"
    twice = told("duplicate", 9, at=3, topic="payments", evidence={"writer": 7, "seq": 1, "offsets": [90, 91]})
    elsewhere = told("corrupted-record", 10, at=3, topic="payments", cluster="d", evidence={"offset": 49})
    later = told("corrupted-record", 11, at=8_000, topic="refunds", evidence={"offset": 50})
    assert [one.findings for one in standing(*written, twice, elsewhere, later)] == [4, 1, 1, 1]


def test_of_many_records_that_are_not_as_ours_are_the_most_that_were_counted_are_told_last() -> None:
    """The first are told one by one, and all together when there are 21, 100 and so on."""
    single = [told("corrupted-record", n, evidence={"offset": 40 + n}) for n in range(20)]
    together = [
        told(
            "corrupted-record",
            ("together", many),
            evidence={"records": many, "first_offset": 40, "last_offset": 39 + many},
        )
        for many in (21, 100)
    ]
    incidents = Incidents()
    incidents.take([*reversed(together), *reversed(single)])
    (one,) = incidents.at(NOON + 20 * S)
    assert (one.findings, one.message) == (22, "corrupted-record of 0")
    assert one.latest == "in orders/3: corrupted-record of ('together', 100)"


@pytest.mark.parametrize(("later", "partition", "incidents"), [(5, 3, 1), (120, 3, 2), (5, 4, 2)])
def test_what_tells_of_one_logs_order_within_a_minute_is_one_incident(
    later: float, partition: int, incidents: int
) -> None:
    """As of a log that was cut where nobody listed its end before it had grown again: two values at an offset, and a
    producer that the broker took for a stranger. What is lost is told for itself."""
    two = told("inconsistent-offsets", 5, evidence={"offset": 5, "values": [[1, 5], [2, 7]]})
    gone = told("sequence-loss", 2, at=later, partition=partition, evidence={"process": 2, "op": 9})
    found = standing(two, gone)
    assert len(found) == incidents
    if incidents == 1:
        assert found[0].folded == {"sequence-loss": 1}
    lost = told("lost-write", (1, 6), at=later + 2, partition=partition, evidence={"writer": 1, "seq": 6, "offset": 6})
    assert len(standing(two, gone, lost)) == incidents + 1


@pytest.mark.parametrize(
    ("at", "partition", "severe", "incidents"),
    [(50, 3, False, 1), (500, 3, False, 2), (50, 4, False, 2), (50, 3, True, 2)],
)
def test_nor_do_people_hear_of_that_order_again_when_more_is_found_of_it_later(
    at: float, partition: int, severe: bool, incidents: int
) -> None:
    """As where the state is rebuilt. One that is worse, of another log or another time is told."""
    mild = {"duplicate": "warning"} if severe else {}
    first = told("nonmonotonic-poll", 1, evidence={"offset": 5}, context=mild)
    later = told("sequence-loss", 2, at=at, partition=partition, counted=2_000)
    found = standing(first, later)
    assert [one.anomaly for one in found] == ["nonmonotonic-poll", "sequence-loss"][:incidents]
    assert [one.folded for one in found] == ([{"sequence-loss": 1}] if incidents == 1 else [{}, {}])


@pytest.mark.parametrize(
    ("name", "came_with", "evidence"),
    [
        ("nonmonotonic-poll", "inconsistent-offsets", {"offset": 137}),
        ("G1a", "poll-skip", {"skipped": [{"writer": 7, "seq": 3, "offset": 40}], "offset": 41}),
        ("duplicate", "lost-write", {"writer": 7, "seq": 3, "offset": 90}),
    ],
)
def test_what_came_with_an_incident_takes_nothing_with_it_that_comes_later_and_elsewhere(
    name: str, came_with: str, evidence: dict[str, Any]
) -> None:
    """Who was told of an aborted read, and of the reader that rightly passed it, must be told of the next reader that
    skips something, in another partition, four minutes later."""
    first = told(name, 1, evidence={"writer": 7, "seq": 3, "offset": 40})
    with_it = told(came_with, 2, at=2, evidence=evidence)
    later = [
        told(came_with, n, at=240 + n, partition=n % 2, evidence={"writer": 9, "seq": n, "offset": 500 + n})
        for n in range(4, 10)
    ]
    found = standing(first, with_it, *later)
    folded = came_with not in LOSSES  # a loss is told for itself
    assert [one.anomaly for one in found] == [name, came_with]
    assert found[0].folded == ({came_with: 1} if folded else {})
    assert (found[1].findings, found[1].places) == ((6, 2) if folded else (7, 3))
    assert standing(first, with_it)[0].findings == (2 if folded else 1)


def test_a_finding_that_is_worse_than_an_incident_begins_its_own() -> None:
    evidence = {"writer": 7, "seq": 1}
    warned = told("duplicate", 1, evidence=evidence, context={"idempotent": "false"})
    worse = told("lost-write", 2, at=2, evidence=evidence)
    assert [(one.anomaly, one.severity) for one in standing(warned, worse)] == [
        ("duplicate", "warning"),
        ("lost-write", "critical"),
    ]


def test_each_setting_that_is_unsafe_is_an_incident_whatever_topics_and_writers_have_it() -> None:
    def unsafe(subject: Any, at: float, **options: Any) -> FindingEvent:
        return told("unsafe-config", subject, at=at, event_="opened", **options)

    acks = [unsafe(number, 3, evidence={"process": number, "acks": "1"}) for number in (7, 8)]
    elections = [unsafe((), at, topic=topic) for at, topic in ((0, "orders"), (1, "payments"))]
    compacted = [unsafe(("cleanup.policy",), 60, topic=topic) for topic in ("orders", "payments")]
    assert [(one.findings, one.message) for one in standing(*elections, *acks, *compacted)] == [
        (2, "unsafe-config of ()"),
        (2, "unsafe-config of 7"),
        (2, "unsafe-config of ('cleanup.policy',)"),
    ]


def test_violations_are_over_when_none_came_for_a_while() -> None:
    first, second = told("duplicate", 1), told("duplicate", 2, at=600, counted=620)
    hold = HOLD.total_seconds()
    (one,) = standing(first, second, now=620 + hold - 1)
    assert (one.open, one.until, one.last) == (True, None, NOON + 600 * S)
    (one,) = standing(first, second, now=620 + hold)
    assert (one.open, one.until, one.ended) == (False, NOON + 600 * S, NOON + (620 * S + HOLD))
    assert explanation(one).endswith("The last of it was seen at 2024-10-04 12:10:00 UTC, 10 min after it began.")
    old, new = standing(first, second, told("duplicate", 3, at=2000))
    assert (old.id, new.id) == (first.id, told("duplicate", 3).id)


def test_thirty_partitions_of_one_condition_are_one_incident() -> None:
    opened = [told("unseen", (), at=n, event_="opened", partition=n) for n in range(30)]
    closed = [told("unseen", (), at=60 + n, event_="closed", partition=n) for n in range(30)]
    (one,) = standing(*opened)
    assert (one.id, one.findings, one.standing, one.places) == (opened[0].id, 30, 30, 30)
    assert (len(one.subjects), one.subjects[0], one.place) == (LISTED, "orders/0", "orders/0 +29")
    assert where(one) == "orders, 30 places (orders/0, orders/1, orders/2 and 27 more)"
    (one,) = standing(*opened, *closed[:-1])
    assert (one.open, one.standing, one.until) == (True, 1, None)
    (one,) = standing(*opened, *closed)
    assert (one.open, one.until, one.ended) == (False, NOON + 89 * S, NOON + 90 * S)
    assert explanation(one).endswith("It ended at 2024-10-04 12:01:29 UTC, 1 min 29 s after it began.")


def refused(name: str, subject: int, error: str, *, at: float, **more: Any) -> FindingEvent:
    return told(name, subject, at=at, event_=more.pop("event_", "opened"), evidence={"error": error}, **more)


def test_a_right_that_was_taken_away_is_one_incident_whoever_is_refused() -> None:
    topic, group = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
    who = [
        ("stuck-consumer", 1, 0, 3),
        ("refused-writes", 2, 5, 3),
        ("refused-reads", 3, 6, 3),
        ("refused-reads", 4, 18, 1),
    ]
    one = [refused(name, subject, topic, at=at, partition=p) for name, subject, at, p in who]
    (found,) = standing(*one)
    assert (found.anomaly, found.folded) == ("stuck-consumer", {"refused-writes": 1, "refused-reads": 2})
    others = [
        refused("refused-reads", 5, group, at=20),
        refused("refused-reads", 3, topic, at=21, cluster="other"),
        refused("refused-writes", 6, "MSG_SIZE_TOO_LARGE", at=22),
    ]
    assert len(standing(*one, *others)) == 4
    ends = [refused(name, subject, topic, at=at + 40, partition=p, event_="closed") for name, subject, at, p in who]
    assert [found.standing for found in standing(*one, *ends[:3])] == [1]
    assert standing(*one, *ends, now=400)[0].ended is not None


def remade(at: float, topic: str = "orders", new: str = "2", partition: int = 3) -> FindingEvent:
    found = told("topic-recreated", topic, at=at, topic=topic, partition=partition)
    return replace(found, topic_id=f"{topic}-{new}")


def test_that_a_topic_was_made_anew_is_said_with_what_was_found_about_then() -> None:
    stuck = [told("stuck-producer", n, at=33, event_="opened", partition=n) for n in (1, 2)]
    said = "orders had been deleted and made anew at 2024-10-04 12:00:03 UTC."
    (one,) = standing(remade(4, partition=1), remade(3, partition=2), *stuck)
    assert explanation(one) == f"Stuck-producer of 1. {said} 2 findings so far in 2 places."
    (one,) = standing(*stuck, remade(3, partition=2))
    assert said in explanation(one), "it may be told later"
    several = [remade(3), remade(4, "orders-out"), remade(5, "audit"), remade(-600, "old"), remade(50, "later")]
    (one,) = standing(*several, *stuck)
    assert "audit and 2 more probe topics had been deleted and made anew at 2024-10-04 12:00:05 UTC." in explanation(
        one
    )
    (twice,) = standing(remade(3, "orders"), remade(9, "orders", "3"), *stuck)
    assert "orders had been deleted and made anew at 2024-10-04 12:00:09 UTC." in explanation(twice)
    for other in (remade(-88), remade(44), replace(remade(3), cluster="other")):
        (one,) = standing(other, *stuck)
        assert one.remade is None
    (one,) = standing(*(remade(n, f"t{n:03d}") for n in range(200, 0, -1)), told("duplicate", at=201))
    assert one.remade is not None
    assert len(one.remade.topics) == 100


def throttled(event_: str, *, at: float, cluster: str = "c") -> FindingEvent:
    evidence = {"brokers": [1], "since": micros(NOON + timedelta(seconds=at - 20))}
    return told("throttled", (), at=at, event_=event_, topic="", partition=-1, evidence=evidence, cluster=cluster)


def test_that_nobody_was_answered_says_so_where_a_quota_held_answers_back() -> None:
    quota = throttled("opened", at=0)
    said = f"Brokers held answers back by a quota then: throttled, incident {quota.id}."
    both = standing(quota, away("opened", at=26))
    assert [(one.anomaly, said in explanation(one)) for one in both] == [
        ("throttled", False),
        ("cluster-unreachable", True),
    ]
    over = throttled("closed", at=100)
    assert said in explanation(standing(quota, away("opened", at=26), over)[1])
    for innocent in (
        standing(quota, throttled("closed", at=10), away("opened", at=26)),
        standing(away("opened", at=26), throttled("opened", at=60)),
        standing(throttled("opened", at=0, cluster="other"), away("opened", at=26)),
    ):
        assert "quota" not in "".join(explanation(one) for one in innocent if one.anomaly == "cluster-unreachable")


def test_who_goes_on_is_named_where_the_first_has_ended() -> None:
    first, second, third = (told("stuck-producer", n, at=n, event_="opened", partition=n) for n in (1, 2, 3))
    over = [told("stuck-producer", n, at=20 + n, event_="closed", partition=n) for n in (1, 2, 3)]
    (one,) = standing(first, second, third)
    assert (one.goes_on, one.short) == ("", "stuck-producer of 1")
    (one,) = standing(first, second, third, *over[:1])
    assert one.short == "in orders/2, stuck-producer of 2"
    assert explanation(one) == (
        "Stuck-producer of 1. That is over; in orders/2, stuck-producer of 2. 3 findings so far in 3 places."
    )
    (one,) = standing(first, second, third, *over[:2])
    assert one.goes_on == "in orders/3, stuck-producer of 3"
    (one,) = standing(first, second, third, *over)
    assert one.goes_on == "", "all of it is over"
    (one,) = standing(first, second, over[0], told("stuck-producer", 1, at=25, event_="opened", partition=1))
    assert one.goes_on == "", "it is back"


def test_a_condition_that_comes_back_soon_is_the_same_incident() -> None:
    again = AGAIN.total_seconds()
    for pause, incidents in ((again, 1), (again + 1, 2)):
        spells = [
            told("unseen", (), at=0, event_="opened"),
            told("unseen", (), at=20, event_="closed"),
            told("unseen", (), at=20 + pause, event_="opened"),
        ]
        found = standing(*spells)
        assert len(found) == incidents
        assert len({one.occurrence for one in found}) == incidents, "told apart, although the finding is the same"
        assert found[-1].open


def test_by_a_clock_that_is_behind_what_is_over_is_over() -> None:
    events = [told("unseen", (), at=0, event_="opened"), told("unseen", (), at=20, event_="closed")]
    (one,) = standing(*events, now=-3600)
    assert not one.open and one.until == NOON + timedelta(seconds=20)


def test_how_a_cluster_is_set_up_is_one_incident() -> None:
    found = standing(
        *(told("under-replicated-probe-topic", (), topic=t, partition=p, event_="opened") for t in "ab" for p in (0, 1))
    )
    assert [(one.topic, one.places, where(one)) for one in found] == [
        ("", 4, "cluster c, 4 places (a/0, a/1, b/0 and 1 more)")
    ]


def test_the_offsets_of_a_group_that_are_gone_in_all_topics_are_one_incident() -> None:
    (one,) = standing(*(told("lost-commit", n, topic=topic) for n, topic in enumerate(["orders", "bills", "lines"])))
    assert (one.topic, where(one)) == ("", "cluster c, 3 places (orders/3, bills/3, lines/3)")


def test_what_is_about_no_partition_is_named_by_whom_it_is_about() -> None:
    writers = [told("stuck-producer", w, topic="", partition=-1, event_="opened", evidence={"writer": w}) for w in "xy"]
    (one,) = standing(*writers)
    assert (one.subjects, where(one)) == (("x", "y"), "cluster c, 2 places (x, y)")
    (one,) = standing(told("checks-stalled", (), topic="", partition=-1, event_="opened", cluster=""))
    assert where(one) == "the monitor itself"


def test_clusters_are_called_by_their_names_wherever_they_have_one() -> None:
    called = {"c": "orders-eu", "EmAwCgU0": "billing", "d": ""}
    log = replace(
        told("evidence-stalled", (), topic="", partition=-1, event_="opened", cluster="EmAwCgU0"),
        message="The probe log of EmAwCgU0 has had no row for 30 s.",
    )
    found = standing(
        told("lost-write"),
        told("G1a", 2, partition=1, evidence={"offset": 9}),
        *(told("unseen", p, topic="bills", partition=p, event_="opened") for p in (0, 1)),
        told("lost-write", 3, cluster="d"),
        log,
        names=called.__getitem__,
    )
    assert {(one.cluster, one.cluster_name, where(one)) for one in found} == {
        ("c", "orders-eu", "orders/3 of orders-eu"),
        ("c", "orders-eu", "orders/1 of orders-eu"),
        ("c", "orders-eu", "bills of orders-eu, 2 places (bills/0, bills/1)"),
        ("d", "", "orders/3"),
        ("EmAwCgU0", "billing", "cluster billing"),
    }
    (stalled,) = [one for one in found if one.cluster == "EmAwCgU0"]
    assert stalled.message == "The probe log of billing has had no row for 30 s."


def test_what_is_classified_or_allowed_is_counted() -> None:
    incidents = Incidents()
    incidents.take([told("rebalance", n) for n in range(3)])
    incidents.take([told("poll-skip", 1, context={"mode": "subscribe"}), told("abort-position", 1)])
    assert incidents.at(NOON) == []
    assert incidents.classified == {
        ("rebalance", "info"): 3,
        ("poll-skip", "allowed"): 1,
        ("abort-position", "info"): 1,
    }


def test_one_batch_or_many_give_the_same_incidents() -> None:
    events = [
        told("stuck-consumer", 0, at=0, event_="opened", implied_by=AWAY, counted=5),
        replace(away("opened", at=1)),
        *(told("G1a", n, at=n / 10, evidence={"txn": n % 3}, counted=5) for n in range(9)),
        told("torn-transaction", 2, at=0.5, topic="payments", evidence={"txn": 2}, counted=5),
        told("unseen", (), at=-9, event_="opened", counted=5),
        told("unseen", (), at=3, event_="closed", counted=5),
    ]
    events = [replace(one, counted=NOON + 5 * S) for one in events]
    at_once = Incidents()
    at_once.take(reversed(events))
    in_order = Incidents()
    for one in sorted(events, key=lambda e: (e.at, e.event == "closed", e.implied_by is not None, e.id)):
        in_order.take([one])
    assert at_once.at(NOON + 9 * S) == in_order.at(NOON + 9 * S)
    assert {(one.anomaly, one.open) for one in in_order.at(NOON + 9 * S)} == {
        ("cluster-unreachable", True),
        ("G1a", True),
        ("unseen", False),
    }


def test_a_flood_counts_what_it_did_not_tell_one_by_one() -> None:
    (one,) = standing(told("duplicate", 1), told("duplicate", 2, evidence={"more_of_the_same": 40}))
    assert one.findings == 42


def test_what_ended_long_ago_is_forgotten_unless_all_is_asked_for() -> None:
    later = (KEPT + HOLD).total_seconds() + 10
    events = [told("duplicate", 1), told("unseen", (), at=later, event_="opened")]
    assert [one.anomaly for one in standing(*events)] == ["unseen"]
    assert [one.anomaly for one in standing(*events, kept=None)] == ["duplicate", "unseen"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "less than a second"),
        (1, "1 s"),
        (59.6, "1 min"),
        (62, "1 min 2 s"),
        (3_600, "1 h"),
        (7_384, "2 h 3 min"),
        (90_000, "1 d 1 h"),
        (86_460, "1 d"),
    ],
)
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_all_places_of_an_incident_are_known_beyond_those_that_it_lists() -> None:
    many = [told("unseen", n, event_="opened", partition=n) for n in range(LISTED + 5)]
    incidents = Incidents()
    incidents.take(many)
    [one] = incidents.at(NOON + S)
    assert (one.places, len(one.subjects)) == (LISTED + 5, LISTED)
    assert set(incidents.places(one.occurrence)) == {f"orders/{n}" for n in range(LISTED + 5)}
    assert incidents.places("another@1") == []


@pytest.mark.parametrize(("group", "after", "incidents"), [("g", 7.0, 1), ("h", 7.0, 2), ("g", 70.0, 2)])
@pytest.mark.parametrize("first", ["lost-commit", "foreign-commit", "eos-violation"])
def test_what_a_group_reflects_twice_when_its_commits_are_gone_is_one_page(
    first: str, group: str, after: float, incidents: int
) -> None:
    def found(anomaly: str, at: float, group: str) -> FindingEvent:
        evidence = {"group": group} | (
            {"writer": 7, "seq": 1} if anomaly == "eos-violation" else {"told": 5, "after": 5}
        )
        return told(anomaly, (group, at), at=at, topic="outputs", evidence=evidence)

    second = "lost-commit" if first == "eos-violation" else "eos-violation"
    stand = standing(found(first, 0.0, "g"), found(second, after, group), now=100)
    assert {one.anomaly: one.folded for one in stand} == (
        {first: {second: 1}} if incidents == 1 else {first: {}, second: {}}
    )


def test_a_condition_that_was_found_late_is_told_from_when_it_held() -> None:
    """As its findings are: a reader's log had to be waited for."""
    late = [
        replace(told("unseen", (), at=at, event_="opened"), decidable=NOON + held * S)
        for at, held in ((20, 10), (90, 75))
    ]
    ends = [told("unseen", (), at=at, event_="closed") for at in (24, 95)]
    (one,) = standing(late[0], ends[0])
    assert (one.since, one.holds_since, one.held_for(NOON + 60 * S)) == (NOON + 20 * S, NOON + 10 * S, 14 * S)
    assert explanation(one).endswith("It ended at 2024-10-04 12:00:24 UTC, 14 s after it began.")
    (one,) = standing(late[0], ends[0], late[1], ends[1])
    assert (one.spells, one.since, one.holds_since) == (2, NOON + 90 * S, NOON + 75 * S)
    (one,) = standing(late[0], ends[0], replace(late[1], decidable=NOON), ends[1])
    assert one.holds_since == NOON + 24 * S, "not before the end of the spell before it"


def test_of_what_was_skipped_at_once_the_first_and_the_last_are_told() -> None:
    """Whoever reads it learns which stretch it was."""
    inputs = [(3, 5, 30), (3, 1, 10), (3, 9, 20), (4, 2, 7)]
    skipped = [
        told("eos-violation", ("g", n), partition=p, evidence={"group": "g", "writer": 7, "seq": n, "input_offset": at})
        for p, n, at in inputs
    ]
    incidents = Incidents()
    incidents.take(skipped)
    (one,) = incidents.at(NOON + 2 * S)
    assert (one.message, one.latest) == (skipped[1].message, f"in orders/4: {skipped[3].message}")


@pytest.mark.parametrize(("group", "after", "names"), [("g", 9.0, 1), ("h", 9.0, 2), ("g", 90.0, 2)])
def test_nor_is_what_it_reflected_twice_before_another_group_was_told_to_have_lost_its_own(
    group: str, after: float, names: int
) -> None:
    """Who sets groups back sets several back, and their commits are missed one after the other."""
    twice = {"group": "g", "writer": 7, "seq": 1}
    stand = standing(
        told("eos-violation", ("g", 1), topic="outputs", evidence=twice),
        told("lost-commit", ("s", 100, -1), at=after - 1, topic="inputs", evidence={"group": "s", "told": 5}),
        told("lost-commit", (group, 100, -1), at=after, topic="inputs", evidence={"group": group, "told": 7}),
        now=after + 2,
    )
    assert sorted(one.anomaly for one in stand) == ["eos-violation", "lost-commit"][2 - names :]
    assert [one.folded for one in stand if one.anomaly == "lost-commit"] == [{"eos-violation": 1} if names == 1 else {}]


@pytest.mark.parametrize(
    ("group", "partition", "offset", "after", "incidents"),
    [
        ("g", 3, 99, 400.0, 1),
        ("g", 3, 100, 400.0, 2),  # had not been committed before
        ("g", 4, 99, 400.0, 2),
        ("h", 3, 99, 400.0, 2),
        ("g", 3, 99, 1_000.0, 2),  # the incident is over
    ],
)
def test_what_a_transform_that_comes_back_later_repeats_of_what_was_committed_is_no_second_page(
    group: str, partition: int, offset: int, after: float, incidents: int
) -> None:
    lost = {"group": "g", "committed": 100, "told": None}
    twice = {"group": group, "writer": 7, "seq": 1, "input_offset": offset}
    stand = standing(
        told("lost-commit", ("g", 100, -1), topic="inputs", evidence=lost),
        told("lost-commit", ("g", 40, -1), topic="inputs", evidence=lost | {"committed": 40}),
        told("eos-violation", ("g", 1), at=after, topic="outputs", partition=partition, evidence=twice),
        now=after + 2,
    )
    assert {one.anomaly: one.folded for one in stand} == (
        {"lost-commit": {"eos-violation": 1}} if incidents == 1 else {"lost-commit": {}, "eos-violation": {}}
    )


def test_a_finding_whose_incident_has_never_been_one_is_in_none() -> None:
    brief, lasting = (told("stuck-producer", n, event_="opened", partition=n) for n in (1, 2))
    over = told("stuck-producer", 1, at=1, event_="closed", partition=1)
    incidents = Incidents(kept=None)
    incidents.take([brief, lasting, over, away("opened", at=2)])
    (only,) = incidents.at(NOON + 9 * S)
    assert (only.anomaly, incidents.of(lasting.id), incidents.of(brief.id)) == (
        "cluster-unreachable",
        only.occurrence,
        None,
    )
