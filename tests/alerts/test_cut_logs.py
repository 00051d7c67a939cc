"""A leader that lacks records cuts the logs that it leads: who is woken by it is woken once, and told of a loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.event import FindingEvent
from alerts.incidents.cut_logs import AFTER, BEFORE
from alerts.incidents.grouping import Incidents
from alerts.incidents.incident import explanation
from alerts.receivers.memory import Memory
from rules.vocabulary.times import micros
from tests.alerts.findings import NOON
from tests.alerts.incidents import S
from tests.alerts.test_incidents import standing, told
from tests.alerts.test_told import Hook
from tests.alerts.test_told import hook as hook

CUT = "log-truncation"


def cut(number: int, *, at: float, topic: str = "orders", partition: int = 3, counted: float | None = None) -> Any:
    return told(CUT, number, at=at, topic=topic, partition=partition, counted=counted)


def election() -> list[FindingEvent]:
    """What was found at an unclean election, on a cluster of three brokers: as it was counted, and when it was."""
    return [
        told("nonmonotonic-poll", 1, at=6.0, counted=10.6),
        told("nonmonotonic-poll", 2, at=6.0, counted=10.8, topic="registers"),
        told("sequence-loss", 1, at=6.2, counted=11.2, topic="registers"),
        told("sequence-loss", 2, at=6.2, counted=11.2),
        told("lost-commit", 1, at=-2.0, counted=14.0, topic="transform-in", partition=1),
        cut(757, at=6.2, counted=14.5, topic="transactions"),
        cut(3310, at=6.2, counted=15.4),
        cut(150, at=6.2, counted=15.4, topic="registers"),
        told("eos-violation", 1, at=8.6, counted=16.0, topic="transform-out", partition=2),
        told("inconsistent-offsets", 1, at=16.0, counted=22.0),
        told("lost-write", 1, at=25.0, counted=27.0, topic="transactions"),
        told("lost-write", 2, at=27.0, counted=31.0),
        *(told("inconsistent-offsets", n, at=16.0 + n / 100, counted=600.0) for n in range(2, 400)),
        told("vanished-record", 1, at=30.0, counted=610.0, topic="registers"),
    ]


def test_an_unclean_election_is_one_page_and_says_that_records_are_lost(hook: Hook) -> None:
    heard = hook.hear(election(), until=2_000)
    where = "cluster c, 3 places (transactions/3, orders/3, registers/3) (critical)"
    lost = f"log-truncation with eos-violation and lost-write in {where}"
    assert heard == [
        (15, "open", "log-truncation in transactions/3 (critical)"),
        (27, "worse", lost),
        (1510, "over", lost.replace("lost-write", "lost-write and vanished-record")),
    ]
    assert hook.said(1) == (
        "Log-truncation of 757. 11 findings so far in 3 places. The last, in registers/3: log-truncation of 150. With"
        " it came 1 × lost-write, 2 × nonmonotonic-poll, 2 × sequence-loss, 1 × eos-violation, 1 ×"
        " inconsistent-offsets, 1 × lost-commit."
    )
    assert [title for title, _, _ in hook.chat[:2]] == [heard[0][2], f"Worse: {lost}"]


def test_the_same_is_told_after_a_restart_in_the_middle(hook: Hook) -> None:
    """The second monitor reads the findings of the first, and what was told."""
    events = election()
    hook.hear([one for one in events if one.counted < NOON + 20 * S], until=20)
    second = Hook(hook.memory)
    second.hear(events, until=2_000)
    assert [state for _, state, _ in [*hook.hear([], until=0), *second.hear([], until=0)]] == ["open", "worse", "over"]


def test_what_was_told_long_before_the_cut_was_is_said_to_be_a_part_of_it(hook: Hook) -> None:
    went_back = told("nonmonotonic-poll", 1, at=6.0, counted=7.0)
    heard = hook.hear([went_back, cut(9, at=6.0, counted=20.0)], until=1_000)
    assert [(at, state, told.split()[0]) for at, state, told in heard] == [
        (18, "open", "nonmonotonic-poll"),
        (20, "open", CUT),
        (20, "over", "nonmonotonic-poll"),
        (920, "over", CUT),
    ]
    part = hook.told[2][1]["incident"]
    assert part["became"] == {"anomaly": CUT, "id": cut(9, at=6.0).id}
    (one,) = [one for one in standing(went_back, cut(9, at=6.0, counted=20.0), kept=None) if one.anomaly == CUT]
    assert (one.since, one.folded, one.findings) == (NOON + 6 * S, {"nonmonotonic-poll": 1}, 2)


def test_which_incident_a_finding_is_part_of_is_known_after_it_was_folded() -> None:
    incidents = Incidents(kept=None)
    went_back = told("nonmonotonic-poll", 1, at=6.0, counted=7.0)
    incidents.take([went_back, cut(9, at=6.0, counted=20.0)])
    assert incidents.of(went_back.id) == incidents.of(cut(9, at=6.0).id) is not None


def test_a_sign_that_no_cut_explains_is_told_as_before(hook: Hook) -> None:
    heard = hook.hear([told("nonmonotonic-poll", 1, at=0)], until=1_000)
    assert [(at, state) for at, state, _ in heard] == [(12, "open"), (901, "over")]


def test_a_cut_that_is_found_ten_seconds_after_its_signs_is_one_page(hook: Hook) -> None:
    """The leader began anew: the first writes gave offsets again, and the end of the log was listed later."""
    heard = hook.hear([told("inconsistent-offsets", 1, at=6.0), cut(9, at=6.0, counted=16.9)], until=100)
    assert [(at, state, said.split()[0]) for at, state, said in heard] == [(17, "open", CUT)]


def test_a_sign_that_nobody_was_told_of_before_the_cut_was_never_an_incident() -> None:
    """Who lists the incidents afterwards finds those that people were told of."""
    sign = told("inconsistent-offsets", 1, at=6.0, counted=7.7)
    for counted, listed in ((17.7, [CUT]), (19.5, [CUT, sign.anomaly])):
        stand = standing(sign, cut(9, at=6.0, counted=counted), kept=None)
        assert sorted(one.anomaly for one in stand) == sorted(listed)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (told("lost-write", 1, at=20, partition=4), "a loss in a log that was not cut"),
        (told("vanished-record", 1, at=20, topic="registers"), "a loss in another topic"),
        (told("lost-write", 1, at=20, cluster="d"), "another cluster"),
        (told("nonmonotonic-poll", 1, at=6 + AFTER.total_seconds() + 1, partition=4), "long after, elsewhere"),
        (told("nonmonotonic-poll", 1, at=6 - BEFORE.total_seconds() - 1, counted=20), "long before"),
        (told("nonlinearizable-register", 1, at=20, topic="registers"), "a register in a log that was not cut"),
        (told("stale-log-end", 1, at=6 + AFTER.total_seconds() + 1, event_="opened", topic="registers"), "long after"),
        (told("duplicate", 1, at=7, partition=4), "what no cut explains"),
        (told("G1a", 1, at=7), "what no cut explains"),
        (told("stuck-consumer", 1, at=7, event_="opened"), "a condition ends for itself"),
    ],
)
def test_what_does_not_follow_from_a_cut_is_an_incident_of_its_own(one: FindingEvent, why: str) -> None:
    told_last = standing(cut(9, at=6.0), one, now=100)
    assert sorted(each.anomaly for each in told_last) == sorted([CUT, one.anomaly]), why
    assert not any(each.folded for each in told_last)


def test_registers_of_a_log_that_was_cut_and_logs_that_nobody_wrote_to_since_are_a_part_of_it() -> None:
    """As where a broker came back with an empty disk; groups had asked for their offsets at once."""
    commit = told("lost-commit", 1, at=-50.0, counted=7.0)
    register = told("nonlinearizable-register", 1, at=15.0, counted=41.0)
    short = told("stale-log-end", 1, at=18.0, event_="opened", topic="registers", counted=42.0)
    events = [commit, cut(9, at=6.0, counted=40.0), register, short]
    before, one = standing(*events, now=50)
    assert (before.anomaly, before.became is not None and before.became.anomaly) == ("lost-commit", CUT)
    assert one.folded == {"lost-commit": 1, "nonlinearizable-register": 1, "stale-log-end": 1}
    found = standing(*events, now=5_000)
    assert found[-1].open, "that log ends too low still"
    ended = told("stale-log-end", 1, at=50.0, event_="closed", topic="registers")
    assert not standing(*events, ended, now=5_000)[-1].open


def test_a_loss_elsewhere_is_told_also_where_one_in_the_cut_log_was(hook: Hook) -> None:
    heard = hook.hear(
        [cut(9, at=6.0), told("lost-write", 1, at=20), told("lost-write", 2, at=21, partition=4)], until=100
    )
    assert [(state, told) for _, state, told in heard] == [
        ("open", "log-truncation in orders/3 (critical)"),
        ("worse", "log-truncation with lost-write in orders/3 (critical)"),
        ("open", "lost-write in orders/4 (critical)"),
    ]


def test_a_sign_elsewhere_that_comes_later_does_not_join_those_of_the_cut() -> None:
    signs = [told("nonmonotonic-poll", 1, at=7), told("nonmonotonic-poll", 2, at=300, partition=4)]
    found = standing(cut(9, at=6.0), *signs)
    assert [(one.anomaly, one.folded) for one in found] == [(CUT, {"nonmonotonic-poll": 1}), ("nonmonotonic-poll", {})]


def test_what_happens_in_a_cut_log_while_it_is_told_joins_and_afterwards_begins_anew() -> None:
    (one,) = standing(cut(9, at=6.0), told("inconsistent-offsets", 1, at=500))
    assert one.folded == {"inconsistent-offsets": 1}
    assert len(standing(cut(9, at=6.0), told("inconsistent-offsets", 1, at=2_000))) == 2


OLD = {"offset": 500}
NEW = {"offset": 901}
TORN = {"txn": 7, "absent": {"topic": "orders", "partition": 3, "writer": 7, "seq": 1, "offset": 500}}


@pytest.mark.parametrize(
    ("anomaly", "at", "evidence", "joins"),
    [
        ("lost-write", 100, OLD, True),
        ("lost-write", 100, NEW, False),
        ("lost-write", 60, NEW, True),
        ("vanished-record", 100, NEW, False),
        ("torn-transaction", 100, TORN, True),
        ("torn-transaction", 100, TORN | {"absent": {"offset": 950}}, False),
        ("nonlinearizable-register", 60, {}, True),
        ("nonlinearizable-register", 100, {}, False),
        ("nonmonotonic-poll", 100, OLD, True),
        ("nonmonotonic-poll", 100, NEW, False),
        ("lost-commit", 100, {"group": "g", "committed": 300}, False),
        ("eos-violation", 100, {"group": "g", "input_offset": 300}, False),
    ],
)
def test_what_happens_to_what_was_written_after_a_cut_is_told(
    anomaly: str, at: int, evidence: dict[str, Any], joins: bool
) -> None:
    """A broker that loses writes after its bad restart must call somebody, however long the cut is told of."""
    held = told("lost-write", 1, at=20, evidence={"offset": 700})
    found = standing(long_cut(at=6.0), held, told(anomaly, 5, at=at, evidence=evidence))
    assert [one.anomaly for one in found] == ([CUT] if joins else [CUT, anomaly])


def grown_over(offset: int, *, at: float, values: int = 2, more: int = 0, **where: Any) -> FindingEvent:
    """An offset that holds several values."""
    held = [{"writer": 1, "seq": seq} for seq in range(values)]
    evidence = {"offset": offset, "values": held} | ({"more_of_the_same": more} if more else {})
    return told("inconsistent-offsets", offset, at=at, evidence=evidence, **where)


def long_cut(number: int = 900, **when: Any) -> FindingEvent:
    """The log ended at 100, and had ended behind 900."""
    return told(CUT, number, evidence={"log_end": 100, "known": number, "written_again": 100}, **when)


def test_a_log_that_grows_through_its_old_range_for_hours_does_not_keep_the_cut_open(hook: Hook) -> None:
    """Each offset of it holds two values, the lost one and the one that is there now: that was said with the cut."""
    growth = [grown_over(100 + n, at=6.0 + 60 * n) for n in range(1, 121)]
    heard = hook.hear([long_cut(at=6.0), *growth, grown_over(300, at=7_300, more=600)], until=8_000)
    assert heard == [
        (7, "open", "log-truncation in orders/3 (critical)"),
        (967, "over", "log-truncation in orders/3 (critical)"),
    ]
    (one,) = standing(long_cut(at=6.0), *growth, now=8_000)
    assert (one.folded, one.findings) == ({"inconsistent-offsets": 120}, 121), "each is counted"
    assert one.until is not None and one.until <= NOON + 66 * S
    incidents = Incidents(kept=None)
    incidents.take([long_cut(at=6.0), *growth])
    assert incidents.of(growth[-1].id) == incidents.of(long_cut(at=6.0).id) is not None


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (grown_over(901, at=2_000), "beyond what the log had held"),
        (grown_over(99, at=2_000), "below the cut"),
        (grown_over(500, at=2_000, values=3), "one more than what was lost and what is there"),
        (grown_over(500, at=2_000, partition=4), "another log"),
        (grown_over(500, at=2_000, more=401), "some of them beyond"),
        (told("inconsistent-offsets", 500, at=2_000), "nobody knows where"),
        (told("duplicate", 500, at=2_000, evidence=grown_over(500, at=0).evidence), "another anomaly"),
    ],
)
def test_what_a_cut_does_not_say_is_an_incident_after_it(one: FindingEvent, why: str) -> None:
    assert [each.anomaly for each in standing(long_cut(at=6.0), one, now=2_100)] == [CUT, one.anomaly], why


def test_a_deeper_cut_says_more() -> None:
    deeper = told(CUT, 950, at=30.0, evidence={"log_end": 20, "known": 950, "written_again": 20})
    late = [grown_over(offset, at=2_000) for offset in (20, 99, 950)]
    (one,) = standing(long_cut(at=6.0), deeper, *late, now=2_100)
    assert one.folded == {"inconsistent-offsets": 3}


def compared(
    anomaly: str, offset: int, *, at: float, apart: float, epochs: tuple[int, ...] = (), **where: Any
) -> FindingEvent:
    """Two readings of an offset that differ, the later one at this time. `epochs`: of the leader that gave the record,
    and of those that gave none."""
    evidence: dict[str, Any] = {"offset": offset, "apart_s": apart}
    if epochs:
        evidence |= {"leader_epoch": epochs[0], "passed_leader_epochs": list(epochs[1:])}
    return told(anomaly, (offset, 1, 5), at=at, evidence=evidence, **where)


def test_readings_before_and_after_a_cut_that_are_compared_once_it_is_over_page_nobody(hook: Hook) -> None:
    """Readers whose commits had gone back read the range once more: what they see was said with the cut."""
    lost = told("lost-write", 1, at=25)
    late = [
        compared("vanished-record", 300, at=190, apart=310, counted=2_000),
        compared("late-record", 400, at=200, apart=313, counted=2_001),
        # Where the new leader's log ended it had differed from the old one's for some records already.
        compared("vanished-record", 91, at=190, apart=310, epochs=(3, 7), counted=2_040),
        grown_over(500, at=30, more=300, counted=2_080),
    ]
    heard = hook.hear([long_cut(at=6.0), lost, *late], until=3_000)
    assert [(at, state) for at, state, _ in heard] == [(7, "open"), (26, "worse"), (926, "over")]
    (one,) = standing(long_cut(at=6.0), lost, *late)
    assert one.folded == {"lost-write": 1, "vanished-record": 2, "late-record": 1, "inconsistent-offsets": 301}


def test_that_a_reader_went_back_over_a_cut_pages_nobody_when_a_rebuild_finds_it_once_that_is_over(hook: Hook) -> None:
    late = told("nonmonotonic-poll", 1, at=20, counted=1_400)
    heard = hook.hear([long_cut(at=6.0), late], until=3_000)
    assert [(at, state) for at, state, _ in heard] == [(7, "open"), (907, "over")]
    (one,) = standing(long_cut(at=6.0), late)
    assert (one.folded, one.ended) == ({"nonmonotonic-poll": 1}, NOON + 907 * S)
    for other in (
        told("nonmonotonic-poll", 1, at=90, counted=1_400),  # after it
        told("nonmonotonic-poll", 1, at=20, counted=1_400, partition=4),  # in another log
        told("lost-commit", 1, at=20, counted=1_400),  # not of the log's order
    ):
        assert [each.anomaly for each in standing(long_cut(at=6.0), other)] == [CUT, other.anomaly]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (compared("vanished-record", 300, at=1_000, apart=600, counted=2_000), "it was polled after the cut"),
        (compared("late-record", 300, at=1_000, apart=600, counted=2_000), "it was passed after the cut"),
        (compared("vanished-record", 901, at=190, apart=310, counted=2_000), "beyond what the log had held"),
        (compared("vanished-record", 91, at=190, apart=310, counted=2_000), "below it, and nobody knows who led"),
        (compared("vanished-record", 91, at=190, apart=310, epochs=(3, 7, 3), counted=2_000), "the same leader did it"),
        (compared("vanished-record", 300, at=-60, apart=10, counted=2_000), "both before the cut"),
        (told("vanished-record", (300, 1, 5), at=190, counted=2_000, evidence={"offset": 300}), "nobody knows when"),
    ],
)
def test_readings_that_a_cut_does_not_explain_are_an_incident(one: FindingEvent, why: str) -> None:
    found = standing(long_cut(at=6.0), told("lost-write", 1, at=25), one, now=2_100)
    assert sorted(each.anomaly for each in found) == sorted([CUT, one.anomaly]), why


@pytest.mark.parametrize(
    ("anomaly", "offset", "epochs", "apart_from_it"),
    [
        ("vanished-record", 91, (3, 3, 3), True),
        ("vanished-record", 91, (3, 7), False),
        ("vanished-record", 91, (), False),
        ("vanished-record", 101, (3, 3, 3), False),
        ("late-record", 91, (3, 3, 3), False),
    ],
    ids=[
        "one leader took it",
        "another leader",
        "nobody knows who led",
        "where the log was cut",
        "what had been aborted, until its marker was cut off",
    ],
)
def test_a_batch_that_was_removed_just_below_a_cut_is_told_beside_it(
    anomaly: str, offset: int, epochs: tuple[int, ...], apart_from_it: bool
) -> None:
    differs = compared(anomaly, offset, at=-20, apart=60, epochs=epochs)
    later = grown_over(500, at=60)  # so that it is not by the order of the log that it joins
    found = standing(long_cut(at=6.0), told("lost-write", 1, at=15), later, replace(differs, counted=later.counted + S))
    assert sorted(each.anomaly for each in found) == [CUT, *[anomaly] * apart_from_it]


def torn(partition: int, offset: int, *, at: float, topic: str = "orders") -> FindingEvent:
    """A transaction of several partitions, a part of which is absent here."""
    absent = {"topic": topic, "partition": partition, "writer": 1, "seq": 7, "offset": offset}
    return told("torn-transaction", 7, at=at, partition=-1, evidence={"txn": 7, "absent": absent})


@pytest.mark.parametrize(
    ("one", "apart_from_it"),
    [
        (torn(3, 300, at=20), False),
        (torn(3, 99, at=20), False),  # its marker stood behind
        (torn(3, 901, at=20), True),
        (torn(4, 300, at=20), True),
        (torn(3, 300, at=20, topic="registers"), True),
        (torn(3, 300, at=120), True),
        (told("torn-transaction", 7, at=20, partition=-1, evidence={"txn": 7}), True),
        (told("zombie-write", 7, at=20, evidence={"txn": 8, "writer": 1, "seq": 7}), False),
        (told("zombie-write", 7, at=20, partition=4, evidence={"txn": 8, "writer": 1, "seq": 7}), True),
        (told("zombie-write", 7, at=120, evidence={"txn": 8, "writer": 1, "seq": 7}), True),
    ],
)
def test_transactions_that_a_cut_tore_or_ended_otherwise_are_part_of_it(one: FindingEvent, apart_from_it: bool) -> None:
    found = standing(long_cut(at=6.0), told("lost-write", 1, at=15), one)
    assert sorted(each.anomaly for each in found) == sorted([CUT, *[one.anomaly] * apart_from_it])


def goes_over(*offsets: int, at: float, **where: Any) -> FindingEvent:
    """A reader that went over records which it is known to have been given before."""
    skipped = [{"offset": offset, "writer": 1, "seq": offset} for offset in offsets]
    evidence = {"process": 7, "op": 3, "offset": max(offsets) + 1, "skipped": skipped}
    return told("int-poll-skip", (7, 3, *offsets), at=at, evidence=evidence, **where)


def test_who_reads_anew_minutes_later_and_goes_over_what_stood_just_below_a_cut_pages_nobody(hook: Hook) -> None:
    heard = hook.hear([long_cut(at=6.0), goes_over(98, 99, at=1_600)], until=3_000)
    assert [(at, state) for at, state, _ in heard] == [(7, "open"), (907, "over")]
    (one,) = standing(long_cut(at=6.0), goes_over(98, 99, at=1_600))
    assert one.folded == {"int-poll-skip": 1}


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (goes_over(99, 150, at=1_600), "one of them may have been written since"),
        (goes_over(99, at=1_600, partition=4), "in another log"),
        (told("int-poll-skip", 1, at=1_600), "nobody knows what"),
    ],
)
def test_who_goes_over_what_no_cut_took_is_told_of(one: FindingEvent, why: str) -> None:
    assert [each.anomaly for each in standing(long_cut(at=6.0), one)] == [CUT, one.anomaly], why


def stands_twice(first: int, *, at: float, **where: Any) -> FindingEvent:
    return told("duplicate", (1, first), at=at, evidence={"writer": 1, "seq": first, "offsets": [first, 105]}, **where)


@pytest.mark.parametrize(
    ("counted", "told_first"),
    [(30.0, []), (2.0, [(2, "open", "duplicate")])],
    ids=["after the cut", "before it, and it does not wait for one"],
)
def test_what_stands_twice_in_a_log_as_it_is_cut_is_part_of_that(
    hook: Hook, counted: float, told_first: list[tuple[float, str, str]]
) -> None:
    """Replicas that had diverged hold one record at two offsets."""
    found = [long_cut(at=6.0, counted=10.0), stands_twice(94, at=8.0, counted=counted)]
    heard = [(at, state, said.split()[0]) for at, state, said in hook.hear(found, until=100)]
    assert heard == [*told_first, (10, "open", CUT), *((10, "over", name) for *_, name in told_first)]
    assert standing(*found)[0].folded == {"duplicate": 1}


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (stands_twice(94, at=8.0, partition=4), "another log"),
        (stands_twice(94, at=8.0, partition=4, counted=2.0), "another log, and before"),
        (stands_twice(94, at=90.0), "a minute after"),
    ],
)
def test_what_stands_twice_elsewhere_or_later_is_told_beside_a_cut(one: FindingEvent, why: str) -> None:
    found = standing(*sorted([long_cut(at=6.0, counted=10.0), one], key=lambda event: event.counted))
    assert sorted((each.anomaly, each.became) for each in found) == [("duplicate", None), (CUT, None)], why


def test_the_first_loss_of_a_cut_is_told_however_late() -> None:
    first = compared("vanished-record", 300, at=190, apart=310, counted=2_000)
    found = standing(long_cut(at=6.0), first, now=2_100)
    assert [each.anomaly for each in found] == [CUT, "vanished-record"]


def test_a_log_that_had_grown_before_its_end_was_listed_was_cut_where_it_was_written_again() -> None:
    cut_lower = told(CUT, 900, at=6.0, evidence={"log_end": 100, "known": 900, "written_again": 80})
    (one,) = standing(cut_lower, grown_over(85, at=2_000), now=2_100)
    assert one.folded == {"inconsistent-offsets": 1}


def test_what_was_said_a_day_ago_is_counted_and_tells_nobody() -> None:
    incidents = Incidents()
    incidents.take([long_cut(at=6.0)])
    incidents.take([told("lost-write", 1, at=2 * 86_400, partition=5)])  # and the cut is forgotten
    incidents.take([grown_over(500, at=2 * 86_400 + 5)])
    assert [one.anomaly for one in incidents.at(NOON + 200_000 * S)] == ["lost-write"]
    assert incidents.classified == {("inconsistent-offsets", "critical"): 1}


def whole_until(then: float, **when: Any) -> FindingEvent:
    """The cut of a log that was still whole then."""
    known_since = micros(NOON) + round(then * 1e6)
    return told(CUT, 9, evidence={"log_end": 9, "known": 9, "written_again": 9, "known_since": known_since}, **when)


@pytest.mark.parametrize(
    ("found_at", "known_until", "folded"),
    [
        (5.0, 50.0, False),
        (5.0, 16.0, False),
        (5.0, 14.0, True),
        (5.0, -500.0, True),
        (-20.0, -500.0, False),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_what_was_found_elsewhere_while_the_log_was_whole_is_no_part_of_its_cut(
    found_at: float, known_until: float, folded: bool, before: bool
) -> None:
    """Some commits were lost, and a minute later a log of another topic was cut. Whoever was told of the first is not
    told that it follows from the second."""
    counted = 20.0 if before else 90.0
    gone = told("lost-commit", 1, at=found_at, counted=counted, topic="transform-in", partition=1)
    events = [gone, whole_until(known_until, at=72.0, counted=80.0)]
    found = standing(*sorted(events, key=lambda one: one.counted), now=100)
    assert {one.anomaly: one.folded for one in found if one.became is None} == (
        {CUT: {"lost-commit": 1}} if folded else {CUT: {}, "lost-commit": {}}
    )


def test_of_several_logs_the_one_that_may_have_been_cut_first_counts() -> None:
    gone = told("lost-commit", 1, at=5.0, counted=20.0, topic="transform-in", partition=1)
    slow = whole_until(-500.0, at=72.0, counted=81.0, topic="registers")
    found = standing(gone, whole_until(50.0, at=72.0, counted=80.0), slow, now=100)
    assert [(one.anomaly, one.folded) for one in found if one.became is None] == [(CUT, {"lost-commit": 1})]


@pytest.mark.parametrize("same", [True, False])
def test_an_input_that_stands_twice_is_told_as_that_though_a_log_was_cut_just_before(same: bool) -> None:
    value = {"writer": 7, "seq": 1}
    twice = told("duplicate", (7, 1), at=58.0, topic="transform-in", evidence=value)
    reflected = value | {"seq": 1 if same else 2, "group": "g", "input_offset": 5}
    again = told("eos-violation", ("twice", "g", 7, 1), at=58.0, counted=60, topic="transform-out", evidence=reflected)
    found = {one.anomaly: one.folded for one in standing(cut(9, at=6.0), twice, again, now=100)}
    assert found == (
        {CUT: {}, "duplicate": {"eos-violation": 1}} if same else {CUT: {"eos-violation": 1}, "duplicate": {}}
    )


def test_another_election_minutes_later_is_told(hook: Hook) -> None:
    """And what is found of the first one by then is of the first one."""
    late = told("inconsistent-offsets", 1, at=300, partition=3)
    lost = told("lost-write", 1, at=300, partition=4)
    hook.hear([cut(9, at=6), cut(5, at=200, partition=4), late, lost], until=400)
    found = [(body["state"], body["incident"]["summary"], body["incident"]["folded"]) for _, body in hook.told]
    assert found == [
        ("open", "log-truncation in orders/3 (critical)", {}),
        ("open", "log-truncation in orders/4 (critical)", {}),
        ("worse", "log-truncation with lost-write in orders/4 (critical)", {"lost-write": 1}),
    ]
    first, second = standing(cut(9, at=6), cut(5, at=200, partition=4), late, lost)
    assert (first.folded, second.folded) == ({"inconsistent-offsets": 1}, {"lost-write": 1})


def test_a_deeper_cut_is_told_in_its_own_words() -> None:
    (one,) = standing(cut(9, at=6.0), cut(4, at=60.0))
    assert explanation(one) == "Log-truncation of 9. 2 findings so far. The last, in orders/3: log-truncation of 4."


def test_a_restart_remembers_that_the_loss_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT", "json://localhost")
    events = [cut(9, at=6.0), told("lost-write", 1, at=20)]
    first = Hook(Memory(tmp_path / "webhook.json", NOON - 999 * S))
    first.hear(events, until=60)
    second = Hook(Memory(tmp_path / "webhook.json", NOON))
    assert [state for _, state, _ in first.hear([], until=0)] == ["open", "worse"]
    assert second.hear(events, until=60) == []


def test_a_flood_that_follows_from_a_cut_does_not_make_it_worse(hook: Hook) -> None:
    flood = told("inconsistent-offsets", 1, at=20, evidence={"more_of_the_same": 4_000})
    assert [state for _, state, _ in hook.hear([cut(9, at=6), flood], until=400)] == ["open"]
    assert standing(cut(9, at=6), flood)[0].folded == {"inconsistent-offsets": 4_001}


def test_the_cut_may_be_found_as_late_as_its_sign(hook: Hook) -> None:
    """The checks are four seconds behind: the sign of a cut that is found six seconds before it is no page."""
    heard = hook.hear([told("inconsistent-offsets", 1, at=6.0, counted=10.0), cut(757, at=6.2, counted=16.0)], until=60)
    assert heard == [(16, "open", "log-truncation in orders/3 (critical)")]


def test_a_sign_that_nothing_explains_is_told_however_late_the_checks_are(hook: Hook) -> None:
    heard = hook.hear([told("inconsistent-offsets", 1, at=6.0, counted=300.0)], until=400)
    assert heard == [(320, "open", "inconsistent-offsets in orders/3 (critical)")]


def test_what_nobody_could_read_of_a_log_that_was_cut_is_part_of_that(hook: Hook) -> None:
    here: dict[str, Any] = {"topic": "orders", "partition": 3}
    events = [
        cut(757, at=6.2, counted=8.0),
        told("unseen", (), at=30.0, event_="opened", **here),
        told("unseen", (), at=50.0, event_="closed", **here),
        told("unseen", (), at=31.0, event_="opened", topic="other"),
        told("unseen", (), at=140.0, event_="opened", topic="third", partition=2),
        told("unseen", (), at=600.0, event_="opened", **here),
    ]
    heard = hook.hear(events, until=620)
    assert [(state, said) for _, state, said in heard] == [
        ("open", "log-truncation in orders/3 (critical)"),
        ("open", "unseen in other/3 (critical)"),
        ("open", "unseen in third/2 (critical)"),
        ("open", "unseen in orders/3 (critical)"),
    ]


@pytest.mark.parametrize("sign", ["suspected", "unseen"])
def test_what_seems_missing_just_before_a_cut_is_found_there_is_part_of_it(hook: Hook, sign: str) -> None:
    """Readers stand behind where the log was cut: what is written there now looks as if all had gone over it."""
    missing = [told(sign, (n,), at=0, event_="opened", partition=n) for n in (3, 4)]
    found = [again(one, event="closed", second=20 + n) for n, one in enumerate(missing)]
    heard = hook.hear([*missing, cut(10, at=3, counted=4), cut(11, at=3, counted=4, partition=4), *found], until=100)
    assert [(state, summary) for _, state, summary in heard] == [
        ("open", "log-truncation in cluster c, 2 places (orders/3, orders/4) (critical)")
    ]
    assert f"2 × {sign}" in hook.told[0][1]["incident"]["description"]


def test_what_is_missing_in_another_log_is_told_beside_a_cut(hook: Hook) -> None:
    missing = told("suspected", (), at=0, event_="opened", partition=4)
    heard = hook.hear([missing, cut(10, at=3, counted=4)], until=60)
    assert sorted(summary.partition(" ")[0] for _, _, summary in heard) == ["log-truncation", "suspected"]


def refused(
    *, acknowledged: float, at: float = 84.0, error: str = "OUT_OF_ORDER_SEQUENCE_NUMBER", partition: int = 3
) -> Any:
    """A writer of which nothing has been acknowledged since so many seconds after noon."""
    evidence = {"error": error, "acknowledged": micros(NOON) + int(acknowledged * 1e6) if acknowledged >= 0 else -1}
    return told("refused-writes", ("one",), at=at, event_="opened", partition=partition, evidence=evidence)


@pytest.mark.parametrize("error", ["OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID"])
def test_a_writer_of_whose_records_a_log_that_was_cut_lacks_some_is_part_of_that(hook: Hook, error: str) -> None:
    one = refused(acknowledged=1, error=error)
    heard = hook.hear([cut(10, at=3, counted=4), one, again(one, event="closed", second=100)], until=1_200)
    assert [(at, state, summary) for at, state, summary in heard] == [
        (4, "open", "log-truncation in orders/3 (critical)"),
        (904, "over", "log-truncation in orders/3 (critical)"),
    ]
    assert "1 × refused-writes" in hook.told[1][1]["incident"]["description"]


@pytest.mark.parametrize(
    "one",
    [
        refused(acknowledged=1, partition=4),
        refused(acknowledged=4),
        refused(acknowledged=-1),
        refused(acknowledged=1, error="TOPIC_AUTHORIZATION_FAILED"),
    ],
    ids=["another log", "acknowledged since", "never acknowledged", "another error"],
)
def test_a_writer_that_is_refused_for_something_else_is_told_beside_a_cut(hook: Hook, one: FindingEvent) -> None:
    heard = hook.hear([cut(10, at=3, counted=4), one], until=200)
    assert [summary.partition(" ")[0] for _, _, summary in heard] == ["log-truncation", "refused-writes"]


def again(one: FindingEvent, *, event: Any, second: float) -> FindingEvent:
    return replace(one, event=event, at=NOON + second * S, counted=NOON + (second + 1) * S)
