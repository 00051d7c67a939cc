"""What stands out in rows, and that a healthy canary's seconds do not: each sign beside its innocent twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from rules.triage.latest import MOST, Latest
from rules.triage.observed import BEHIND, Observed
from rules.triage.pace import LOOKS as PACED
from rules.triage.rows import Rows
from rules.triage.triage import Triage
from rules.triage.values import LOOKS
from rules.vocabulary.slices import Altered, Irregular, Mark, Run, Slice, to_table
from tests.bench.canary import Traffic
from tests.bench.histories import Ints
from tests.rules import test_cases
from tests.rules.histories import History, number

WAIT = {
    "failed_poll_is_compared",  # a failed poll tells where a reader was; the next ok one may tell more
    "interleaved_inside",  # info
    "lost",  # nobody went over it
    "lost_with_its_indefinite_sibling_seen",
    "own_write_polled",
    "polled_only_by_a_failed_operation",
    "skipped_inside",  # of values whose sends nobody told
}
"""Guilty histories in which nothing stands out: they are found with the rows that follow."""


def signs(parts: Sequence[Sequence[Slice]]) -> list[list[str]]:
    triage = Triage()
    return [triage.signs(to_table(rows)) for rows in parts]


@pytest.mark.parametrize("build", [build for build, told in test_cases.CASES if told], ids=lambda build: build.__name__)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "row-by-row"])
def test_what_stands_out_of_guilty_histories(build: Callable[[History], object], split: bool) -> None:
    history = History()
    build(history)
    found = signs([[row] for row in history.rows] if split else [history.rows])
    shown = {sign for told in found for sign in told}
    if split and build.__name__ == "inconsistent_polls":
        assert not shown, "what polls of two seconds say of each other waits"
    else:
        assert bool(shown) == (build.__name__ not in WAIT), shown


QUIET = [
    test_cases.the_same_record_read_twice,
    test_cases.unacknowledged_twice,
    test_cases.consistent_polls,
    test_cases.failed_acknowledgement_is_no_placement,
    test_cases.indefinite_write_read,
    test_cases.aborted_read_by_a_failed_reader,
    test_cases.aborted_read_uncommitted,
    test_cases.stepped_over_a_marker,
    test_cases.stepped_over_aborted,
    test_cases.went_on,
    test_cases.marker_inside,
    test_cases.wrote_forwards,
    test_cases.two_processes_wrote,
]


@pytest.mark.parametrize("build", QUIET, ids=lambda build: build.__name__)
def test_innocent_twins_do_not_stand_out(build: Callable[[History], object]) -> None:
    history = History()
    build(history)
    assert signs([history.rows]) == [[]]
    assert not any(signs([[row] for row in history.rows]))


@pytest.mark.parametrize("writers", [1, 4])
def test_a_healthy_canary_says_nothing(writers: int) -> None:
    """Two minutes of it, in which its writers end and begin again."""
    triage, traffic = Triage(), Traffic(per_send=10, interval=0.1, writers=writers)
    assert [said for second in range(120) if (said := triage.signs(traffic.window(10 * second, 10)))] == []


def test_rows_of_a_second_may_come_in_any_order() -> None:
    triage, traffic = Triage(), Traffic(per_send=10, interval=0.1, writers=2)
    for second in range(5):
        rows = traffic.window(10 * second, 10)
        turned: Ints = range(len(rows) - 1, -1, -1)  # type: ignore[assignment]
        assert triage.signs(rows.take(list(turned))) == []


def healthy(h: History, second: int) -> list[Slice]:
    """A second of one writer, a reader and an observer, all of it as it should be."""
    begin = len(h.rows)
    h.send("w", 10 * second, 10, at=10 * second)
    h.poll("r", [("w", 10 * second, 10, 10 * second)])
    h.observe(end=10 * (second + 1))
    return h.rows[begin:]


def seconds(h: History, count: int) -> list[list[Slice]]:
    return [healthy(h, second) for second in range(count)]


def test_a_writer_whose_later_value_stands_before_an_earlier_one() -> None:
    for second, told in ((7, []), (3, ["acknowledgements out of order"])):
        h = History()
        h.send("w", 0, 2, at=5)
        h.send("v", 0, 1, at=2)
        h.send("w", 2, 1, at=second)
        assert signs([[row] for row in h.rows]) == [[], [], told]


def test_a_reader_that_is_given_an_earlier_value_after_a_later_one() -> None:
    h = History()
    h.poll("r", [("w", 5, 1, 0)])
    h.poll("s", [("w", 3, 1, 1)])
    h.poll("r", [("w", 3, 1, 1)])
    assert signs([[row] for row in h.rows]) == [[], [], ["a value polled again, or out of order"]]


def test_what_was_acknowledged_and_nobody_polls() -> None:
    """The reader has stopped: a few seconds later that stands out, as long as what it would read is stable."""
    for stable, told in ((None, ["acknowledged records that nobody polled yet"]), (30, [])):
        h = History()
        parts = seconds(h, 3)
        for second in range(3, 4 + BEHIND):
            begin = len(h.rows)
            h.observe(end=10 * second + 10, stable=stable)
            h.send("w", 10 * second, 10, at=10 * second)
            parts.append(h.rows[begin:])
        assert signs(parts) == [[]] * (3 + BEHIND) + [told]
    h = History()
    parts = seconds(h, 3)
    for second in range(3, 6 + BEHIND):
        h.observe(end=10 * second + 10)
        h.send("w", 10 * second, 10, at=10 * second, type="info")
        parts.append(h.rows[-2:])
    assert not any(signs(parts)), "nobody knows whether that was written"


@pytest.mark.parametrize("name", ["start", "end", "stable"])
def test_an_end_of_the_log_that_goes_back(name: str) -> None:
    h = History()
    parts = seconds(h, 5)
    told = {"start": 5, "end": 50, "stable": 50}
    h.observe(**told)
    parts.append(h.rows[-1:])
    assert signs(parts)[-1] == []
    h.observe(**(told | {name: told[name] - 1}))
    h.observe(**told)
    parts.append(h.rows[-2:])
    [sign] = signs(parts)[-1]
    assert sign.endswith("went back")
    parts[-1] = [replace(row, process=row.process + 1 - i, slice=7 + i) for i, row in enumerate(parts[-1])]
    assert signs(parts)[-1] == [], "another observer may lag behind"


def test_an_observation_that_tells_of_something_else() -> None:
    h = History()
    parts = seconds(h, 2)
    h.row("observer", "offsets", committed=3, group="g")
    assert signs([*parts, h.rows[-1:]])[-1] == []


def test_a_reader_that_left_out_what_was_acknowledged_and_one_that_left_out_what_failed() -> None:
    for outcome, told in (
        ("ok", ["an acknowledged value that a reader left out"]),
        ("fail", []),
        ("info", []),
    ):
        h = History()
        h.txn("t", sends=[("w", 0, 2, 0)])
        h.poll("r", [("w", 0, 2, 0)])
        first = list(h.rows)
        h.txn("t", sends=[("w", 2, 2, 3)], type=outcome)
        h.txn("t", sends=[("w", 4, 2, 6)])
        h.poll("r", [("w", 4, 2, 6)])
        row_of_it, rest = h.rows[len(first)], h.rows[len(first) + 1 :]
        assert signs([first, [row_of_it, *rest]]) == [[], told]
        assert signs([first, rest, [row_of_it]]) == [[], [], told], "the send is told after the poll"
        assert signs([first, rest, *[[rest[0]]] * (LOOKS + 1), [row_of_it]])[-1] == [], "it is not asked for ever"


def test_a_reader_that_went_back_and_one_that_began_where_its_group_stands() -> None:
    for mode, told in (("assign", ["a reader that went back"]), ("subscribe", [])):
        h = History()
        h.poll("r", [("w", 0, 5, 0)], mode=mode)
        h.poll("r", [("w", 2, 5, 2)], mode=mode)
        assert signs([[row] for row in h.rows]) == [[], told]


def test_a_committed_offset_that_goes_back_and_one_that_was_listed_before() -> None:
    h = History()
    h.row("r", "commit", committed=10, group="g")
    h.row("observer", "offsets", committed=10, group="g")
    h.row("observer", "offsets", committed=3, group="other")
    before = list(h.rows)
    asked = h.at(h.time)
    h.row("r", "commit", committed=20, group="g")
    h.row("observer", "offsets", committed=10, group="g", invoked=asked)
    assert signs([before, h.rows[-2:]]) == [[], []], "it was asked before the commit was answered"
    h.row("observer", "offsets", committed=19, group="g")
    assert signs([before, h.rows[-3:]]) == [[], ["a committed offset that went back"]]


def test_settings_that_change_and_settings_that_are_told_again() -> None:
    h = History()
    for value in ("1", "1", "2", "2"):
        asked = {"settings_asked": str(h.time)}
        h.row("observer", "offsets", settings={"min.insync.replicas": value, "cleanup.policy": "delete"} | asked)
    assert signs([[row] for row in h.rows]) == [[], [], ["other settings"], []], "when they were asked is no setting"
    h = History()
    for partition in (0, 1, 0, 1):
        h.row("observer", "offsets", partition=partition, settings={"leader": str(partition)})
    assert not any(signs([[row] for row in h.rows]))


def test_settings_of_topics_that_are_made_again_and_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules.triage.observed.MOST", 5)
    h, observed = History(), Observed()
    for life in range(20):
        row = h.row("observer", "offsets", settings={"leader": "1"})
        assert list(observed.look(Rows.of(to_table([replace(row, topic_id=f"t{life}")])))) == []
        assert len(observed._settings) <= 6


def test_rows_that_say_it_themselves() -> None:
    h = History()
    h.row("z", "zombie", type="fail", error="PRODUCER_FENCED")
    h.row("z", "zombie")
    h.row("committer", "mark", marks=[Mark(number("w"), 1, h.at(1), ended=h.at(2))])
    h.row("committer", "mark", marks=[Mark(number("w"), 1, h.at(1), ended=h.at(2), lost=True)])
    h.irregular("r", Irregular(0, 5, "foreign", 1))
    h.poll("r", [("w", 0, 1, 6)], altered=[Altered(number("w"), 0, 6, 1, "key", "a", "b")])
    assert signs([[row] for row in h.rows]) == [
        [],
        ["a zombie's request that was not refused"],
        [],
        ["a lost process"],
        ["irregular records"],
        ["altered records"],
    ]


def test_an_input_that_two_transactions_reflect() -> None:
    h = History()
    for first in (0, 5, 3):
        h.txn("t", sends=[("o", first, 2, first)], sources=[Run(number("w"), first, first, 2)], group="g")
    assert signs([[row] for row in h.rows])[:2] == [[], []]
    assert "an input that two transactions reflect" in signs([[row] for row in h.rows])[2]
    h = History()
    for process, first in (("t", 0), ("t", 2), ("u", 4)):
        h.txn(process, sends=[("o", first, 2, first)], sources=[Run(number("w"), first, first, 2)], group="g")
    assert signs([h.rows]) == [[]], "another life of the transform goes on, and numbers its rows from 0"


def test_partitions_are_looked_at_apart() -> None:
    """The same values at other places of two partitions contradict nothing."""
    h = History()
    for partition in range(3):
        h.send("w", 0, 5, at=7 * partition, partition=partition)
        h.poll("r", [("w", 0, 5, 7 * partition)], partition=partition)
    assert signs([h.rows]) == [[]]


def test_what_is_remembered_is_bounded() -> None:
    latest = Latest(1)
    keys = np.arange(MOST + 10, dtype=np.int64)
    assert (latest.follow(keys, keys + 1)[0] == -1).all()
    assert latest.follow(keys[-3:], keys[-3:])[0].tolist() == (keys[-3:] + 1).tolist()
    assert latest.follow(keys[:3], keys[:3])[0].tolist() == [-1, -1, -1], "the oldest are forgotten"
    assert latest.of(keys[-3:]).tolist() == keys[-3:].tolist()


def test_what_is_only_asked_about_is_not_remembered() -> None:
    latest, keys = Latest(1), np.array([4, 9], np.int64)
    assert latest.follow(keys, keys, keep=np.array([True, False]))[0].tolist() == [-1, -1]
    assert latest.follow(keys, keys + 1, keep=np.array([False, False]))[0].tolist() == [4, -1]
    assert latest.follow(keys, keys + 2)[0].tolist() == [4, -1]
    assert latest.of(np.array([9, 4, 5], np.int64)).tolist() == [11, 6, -1]
    none = Latest(1)
    none.follow(keys[:1], keys[:1], keep=np.array([False]))
    assert none.of(keys[:1]).tolist() == [-1]


def test_no_rows_and_rows_of_another_form() -> None:
    assert Triage().signs(to_table([])) == []
    h = History()
    h.send("w", 0, 1, at=0)
    with pytest.raises(Exception, match="invoked"):
        Triage().signs(to_table(h.rows).drop_columns(["invoked"]))


@pytest.mark.parametrize("error", ["_TRANSPORT", "_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "TOPIC_AUTHORIZATION_FAILED"])
def test_an_error_stands_out_and_what_a_healthy_cluster_says_does_not(error: str) -> None:
    h = History()
    h.send("w", 0, 1, at=None, type="info", error=error)
    assert signs([h.rows]) == [["an error that a healthy cluster does not give"]]
    for told in ("_CRASHED", "_REVOKE_PARTITIONS", "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT", None):
        assert signs([[replace(h.rows[0], error=told)]]) == [[]]
    assert signs([[replace(h.rows[0], f="zombie", error="PRODUCER_FENCED")]]) == [[]]
    asked = replace(h.rows[0], f="offsets", sent=(), group="g", error=error)
    assert signs([[asked]]) == ([[]] if error == "_TIMED_OUT" else [["an error that a healthy cluster does not give"]])


def paced(*each: int) -> list[list[str]]:
    """Looks at seconds in which so many polls were made; a negative number stands for as many in five seconds."""
    triage, h, said = Triage(), History(), []
    for count in each:
        begin = len(h.rows)
        seconds = 5 if count < 0 else 1
        began = h.time
        for each_one in range(abs(count)):
            h.time = began + seconds * (each_one + 1) / abs(count) - 0.002
            h.poll(f"r{each_one % 4}", [])
        h.time = began + seconds
        said.append(triage.signs(to_table(h.rows[begin:])))
    return said


def test_a_second_in_which_little_is_done_after_ten_of_more() -> None:
    told = ["less is done than before"]
    assert paced(*[20] * PACED, 5, 4, 20, 0) == [[]] * PACED + [[], told, [], told]
    assert paced(*[20] * (PACED - 1), 0) == [[]] * PACED, "who has just begun does little"
    assert paced(*[7] * PACED, 0, 0) == [[]] * (PACED + 2), "of few, none is no sign"
    assert paced(*[20] * PACED, *[0] * 30)[PACED:] == [told] * 9 + [[]] * 21, "nobody waits for ever"


def test_several_seconds_at_once_are_no_more_than_one_at_a_time() -> None:
    assert not any(paced(*[-100] * PACED, 20, 20, -100))
    assert not any(paced(*[20] * PACED, -100, 20))
