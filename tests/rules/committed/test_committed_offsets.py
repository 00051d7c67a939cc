"""`offset-regression`, `lost-commit`: what groups are told of their offsets, beside what may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.vocabulary.slices import Slice
from tests.rules.committed.committed_offsets import (
    OBSERVER,
    READER,
    RULES,
    VERDICTS,
    Fed,
    commit,
    foreign,
    in_order,
    later,
    lost,
    on,
    read,
    regression,
)
from tests.rules.committed.test_foreign_commits import too_low
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History, number
from tests.rules.whole import Told, in_any_way, live, whole

# Told to be lower than it was told before


def went_back(h: History) -> None:
    """To an offset that nobody asked for, as the observer sees it. It was told the higher one: this was lost, too."""
    commit(h, 50)
    commit(h, 100)
    read(h, 100, by="o")
    read(h, 70, by="o")


def went_back_to_a_commit(h: History) -> None:
    """A delayed commit may land late."""
    commit(h, 50, type="info")
    commit(h, 100)
    read(h, 100, by="o")
    read(h, 50, by="o")


def went_back_to_an_indefinite_commit(h: History) -> None:
    commit(h, 70, type="info")
    commit(h, 100)
    read(h, 100, by="o")
    read(h, 70, by="o")


def went_back_to_a_transaction_s_offset(h: History) -> None:
    """It was aborted, and yet: somebody asked for it."""
    commit(h, 100, type="info")
    h.txn("t", polls=[("w", 0, 1, 69)], type="fail", txn=1, committed=70, group="g")
    read(h, 100, by="o")
    read(h, 70, by="o")


def went_back_to_where_a_dead_transaction_had_polled(h: History) -> None:
    """It died before it could log that its offsets were sent."""
    h.txn("t", polls=[("w", 0, 1, 69)], type="info", txn=1, position_after=70)
    commit(h, 100)
    read(h, 100, by="o")
    read(h, 70, by="o")


def of_two_groups(h: History) -> None:
    commit(h, 100)
    read(h, 100)
    read(h, 70, group="other")


def read_at_the_same_time(h: History) -> None:
    """The lower one was asked for before the higher one had been answered."""
    commit(h, 70)
    early = h.at(h.time)
    commit(h, 100)
    read(h, 100)
    read(h, 70, invoked=early)


def of_two_hosts(h: History) -> None:
    """Nobody knows in which order two hosts' clocks had it."""
    read(h, 100, by="o", **on("a", 10, 20))
    read(h, 70, by="p", **on("b", 30, 40))


# Told to be lower than what was acknowledged


def dropped(h: History) -> None:
    """Acknowledged, and dropped: its own process is told the one before."""
    commit(h, 50)
    read(h, 50)
    commit(h, 100)
    read(h, 50)


def dropped_as_the_observer_had_seen_it(h: History) -> None:
    commit(h, 50)
    commit(h, 100)
    read(h, 100, by="o")
    h.time += 2
    read(h, 50, by="o")


def dropped_with_an_indefinite_commit_before(h: History) -> None:
    """What may land late is another offset than the one that is told."""
    commit(h, 50)
    commit(h, 30, type="info")
    commit(h, 100)
    read(h, 50)


def dropped_by_a_transaction(h: History) -> None:
    commit(h, 50, by="t")
    h.txn("t", polls=[("w", 0, 1, 99)], txn=1, committed=100, group="g")
    read(h, 50, by="t")


BEGAN = {"a": 0, "b": 1000}
"""By how many milliseconds the monotonic clocks of two hosts are ahead of the history's time."""


def met(h: History) -> None:
    """Two hosts see what the other one sends within 10 ms."""
    of_all = h.mark

    def mark(after: float = 0.0) -> Slice:
        told = of_all(after)
        for boot in BEGAN:
            h.row(f"{boot}'s committer", "mark", **clock(h, boot, 0, 0))
            h.processes.remove(f"{boot}'s committer")
        return told

    mark()
    h.mark = mark  # type: ignore[method-assign, assignment]
    for n in range(8):
        for one, other in (("a", "b"), ("b", "a")):
            where = 2 * n + (one == "b")
            h.send(f"w-{one}", n, 1, at=where, **clock(h, one))
            h.poll(f"r-{other}", [(f"w-{one}", n, 1, where)], **clock(h, other, 5, 10))
        h.time += 0.01


def clock(h: History, boot: str, begins: int = 0, ends: int = 1) -> dict[str, Any]:
    """So many milliseconds from now, by the clocks of a host that has met the other one."""
    now = round(h.time * 1000)
    wall = {"invoked": h.at((now + begins) / 1000), "completed": h.at((now + ends) / 1000)}
    return on(boot, now + begins + BEGAN[boot], now + ends + BEGAN[boot]) | wall


def dropped_after_another_host_had_committed(h: History) -> None:
    """Before, whatever their two clocks say."""
    met(h)
    h.time = 1.0
    commit(h, 50, by="s", **clock(h, "b"))
    h.time = 1.1
    commit(h, 100, **clock(h, "a"))
    h.time = 1.2
    read(h, 50, **clock(h, "a"))


def dropped_to_zero(h: History) -> None:
    """Somebody asked for 0: it is no spurious one."""
    commit(h, 0)
    commit(h, 100)
    read(h, 0)


def dropped_again(h: History) -> None:
    """Each one that is lost is told once, however often it is missed."""
    commit(h, 50)
    commit(h, 100)
    read(h, 50)
    read(h, 50)
    commit(h, 120)
    read(h, 50)


def dropped_before_another_cluster_answered_for_a_while(h: History) -> None:
    """The lives that begin when this one is back call that one's topic the one before."""
    commit(h, 50)
    commit(h, 100)
    read(h, 50)
    h.time += 300
    h.start("s", former_topic_id="t-of-the-other")


def told_none(h: History) -> None:
    commit(h, 100)
    read(h, 100)
    h.time += 5
    read(h, None)


def made_anew(h: History) -> None:
    """The topic was, and both say so."""
    for process, group in (("r", "g"), ("o", "")):
        h.start(process, former_topic_id="t-before", **({"group.id": group} if group else {}))


def told_what_was_committed_in_the_topic_before(h: History) -> None:
    """By a life of its that was not over yet. It is told again for as long as nobody commits."""
    made_anew(h)
    read(h, None)
    read(h, 86)
    read(h, 86, by="o")
    h.time += 300
    read(h, 86)
    commit(h, 5)
    read(h, 5)


def told_too_high_when_that_is_long_ago(h: History) -> None:
    """Later lives of the run say it, too."""
    made_anew(h)
    read(h, None)
    h.time += 60
    h.start("s", former_topic_id="t-before")
    h.time += 61
    read(h, 86)


def went_back_to_what_was_committed_in_the_topic_before(h: History) -> None:
    """By a transaction that was under way: it commits by the topic's name, and its row names the one before."""
    made_anew(h)
    read(h, None)
    commit(h, 86)
    read(h, 86)
    read(h, 40)
    read(h, 40, by="o")


def went_back_when_that_is_long_ago(h: History) -> None:
    made_anew(h)
    commit(h, 86)
    read(h, 86)
    h.time += 121
    read(h, 40, by="o")


def told_none_as_what_was_known_of_the_topic_before_is_dropped(h: History) -> None:
    made_anew(h)
    commit(h, 12)
    read(h, None)


def told_none_when_that_is_long_ago(h: History) -> None:
    made_anew(h)
    h.time += 121
    commit(h, 12)
    read(h, None)


def told_none_after_a_rewind(h: History) -> None:
    """The newest commit is the lower one."""
    commit(h, 100)
    commit(h, 40)
    read(h, None)


def told_to_another_process(h: History) -> None:
    """Its coordinator may be one that was deposed before the commit, and tells what it last knew."""
    commit(h, 50)
    read(h, 50, by="o")
    commit(h, 100)
    read(h, 50, by="o")
    read(h, 100)


def none_to_another_process(h: History) -> None:
    commit(h, 100)
    read(h, None, by="o")


def rewound(h: History) -> None:
    commit(h, 100)
    commit(h, 50)
    read(h, 50)


def rewound_without_an_answer(h: History) -> None:
    """A lower commit of unknown outcome, and then an old one of the same process."""
    commit(h, 30)
    commit(h, 100)
    commit(h, 50, type="info")
    read(h, 30)


def landed_late(h: History) -> None:
    commit(h, 50, type="info")
    commit(h, 100)
    read(h, 50)


def landed_late_of_no_named_group(h: History) -> None:
    h.txn("t", polls=[("w", 0, 1, 49)], type="info", txn=1, position_after=50)
    commit(h, 100)
    read(h, 50)


def overtaken(h: History) -> None:
    """Two members commit at the same time: the lower one landed last."""
    early = h.at(h.time)
    commit(h, 100)
    commit(h, 50, by="s", invoked=early)
    read(h, 50)


def overtaken_by_what_was_answered_first(h: History) -> None:
    early = h.at(h.time)
    commit(h, 50, by="s", invoked=early)
    commit(h, 100, invoked=early)
    read(h, 50)


def never_acknowledged(h: History) -> None:
    commit(h, 50)
    commit(h, 100, type="info", error="_TIMED_OUT")
    read(h, 50)


def fenced(h: History) -> None:
    commit(h, 50)
    commit(h, 100, type="fail", error="FENCED_INSTANCE_ID")
    read(h, 50)


def asked_before_the_answer(h: History) -> None:
    commit(h, 50)
    early = h.at(h.time)
    commit(h, 100)
    read(h, 50, invoked=early)


def committed_by_another_host_since(h: History) -> None:
    """Nearer than what is known of their clocks."""
    met(h)
    h.time = 1.0
    commit(h, 50, by="s", **clock(h, "b"))
    h.time = 1.005
    commit(h, 100, **clock(h, "a"))
    h.time = 1.2
    read(h, 50, **clock(h, "a"))


def committed_by_another_host_soon_after(h: History) -> None:
    """By its own clock, which may be ahead by more."""
    met(h)
    commit(h, 50, by="s", type="fail", **clock(h, "b"))
    h.time = 1.1
    commit(h, 100, **clock(h, "a"))
    h.time = 1.2
    read(h, 50, **clock(h, "a"))
    h.time = 1.205
    commit(h, 50, by="s", **clock(h, "b"))


def committed_by_another_host_of_which_nothing_is_known(h: History) -> None:
    commit(h, 50, by="s", **on("b", 1, 2))
    h.time += 1000
    commit(h, 100, **on("a", 1000, 1001))
    read(h, 50, **on("a", 1002, 1003))


def shared_with_a_member_on_another_host(h: History) -> None:
    """It committed what the reader is told, and nobody can say when that was."""
    commit(h, 50, by="s", **on("b", 1, 2))
    commit(h, 50, **on("a", 998, 999))
    commit(h, 100, **on("a", 1000, 1001))
    read(h, 50, **on("a", 1002, 1003))


def committed_by_another_host(h: History) -> None:
    """What one host was acknowledged proves nothing of what the other is told: nobody knows which came first."""
    commit(h, 50, by="s", **on("b", 1, 2))
    commit(h, 100, **on("a", 1000, 1001))
    read(h, 50, by="s", **on("b", 5000, 5001))


def expired(h: History) -> None:
    commit(h, 100)
    read(h, 100)
    h.time += 7 * 24 * 3600
    read(h, None)


def expired_as_the_cluster_is_set(h: History) -> None:
    told = {"offsets_retention_minutes": "1"}
    h.row("observer", "offsets", log_start=0, log_end=1000, last_stable=1000, settings=told)
    commit(h, 100)
    h.time += 61
    read(h, None)


def not_told(h: History) -> None:
    """An error, or an answer that leaves the partition out, is not none."""
    commit(h, 100)
    read(h, None, type="info", error="_NO_OFFSET")


def of_a_transaction_to_a_reader_at_read_uncommitted(h: History) -> None:
    """It is told the offset before while the marker is on its way."""
    commit(h, 50, by="t")
    h.txn("t", polls=[("w", 0, 1, 99)], txn=1, committed=100, group="g")
    read(h, 50, by="t", isolation="read_uncommitted")


def zero_that_nobody_asked_for(h: History) -> None:
    """That is `spurious-zero-offset`."""
    commit(h, 100)
    read(h, 0)


GUILTY = [
    (
        went_back,
        [
            lost(100, 70, 0.008, to=OBSERVER, after=0.003),
            foreign(70, 100, 0.008, to=OBSERVER),
            regression(100, 70, 0.008),
        ],
    ),
    (dropped, [lost(100, 50, 0.008)]),
    (dropped_as_the_observer_had_seen_it, [lost(100, 50, 2.008, to=OBSERVER, after=2.003)]),
    (dropped_with_an_indefinite_commit_before, [lost(100, 50, 0.008)]),
    (dropped_by_a_transaction, [lost(100, 50, 0.006, to=number("t"), by=number("t"))]),
    (dropped_after_another_host_had_committed, [lost(100, 50, 1.201, after=0.099)]),
    (dropped_to_zero, [lost(100, 0, 0.006)]),
    (dropped_again, [lost(100, 50, 0.006), lost(120, 50, 0.012)]),
    (dropped_before_another_cluster_answered_for_a_while, [lost(100, 50, 0.006)]),
    (told_none, [lost(100, None, 5.006, after=5.003)]),
    (told_none_after_a_rewind, [lost(40, None, 0.006)]),
    (told_too_high_when_that_is_long_ago, [foreign(86, None, 121.010)]),
    (told_none_when_that_is_long_ago, [lost(12, None, 121.008)]),
    (
        went_back_when_that_is_long_ago,
        [
            foreign(40, 86, 121.010, to=OBSERVER),
            lost(86, 40, 121.010, to=OBSERVER, after=121.003),
            regression(86, 40, 121.010),
        ],
    ),
]
INNOCENT = [
    went_back_to_a_commit,
    went_back_to_an_indefinite_commit,
    went_back_to_a_transaction_s_offset,
    went_back_to_where_a_dead_transaction_had_polled,
    of_two_groups,
    read_at_the_same_time,
    of_two_hosts,
    told_to_another_process,
    none_to_another_process,
    rewound,
    rewound_without_an_answer,
    landed_late,
    landed_late_of_no_named_group,
    overtaken,
    overtaken_by_what_was_answered_first,
    never_acknowledged,
    fenced,
    asked_before_the_answer,
    committed_by_another_host_since,
    committed_by_another_host_soon_after,
    committed_by_another_host_of_which_nothing_is_known,
    shared_with_a_member_on_another_host,
    committed_by_another_host,
    expired,
    expired_as_the_cluster_is_set,
    not_told,
    of_a_transaction_to_a_reader_at_read_uncommitted,
    told_what_was_committed_in_the_topic_before,
    told_none_as_what_was_known_of_the_topic_before_is_dropped,
    went_back_to_what_was_committed_in_the_topic_before,
]


@in_any_way()
@pytest.mark.parametrize(("build", "expected"), GUILTY, ids=[c[0].__name__ for c in GUILTY])
def test_guilty(build: Callable[[History], object], expected: list[Told], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    assert whole(fed(h), VERDICTS) == in_order(expected, fed.__name__ == "finished")


@in_any_way()
@pytest.mark.parametrize("build", INNOCENT, ids=lambda build: build.__name__)
def test_innocent(build: Callable[[History], object], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    assert whole(fed(h), RULES) == []


@in_any_way()
def test_a_zero_that_nobody_asked_for_is_told_once(fed: Fed) -> None:
    h = History()
    zero_that_nobody_asked_for(h)
    later(h)
    message = "the committed offset of group g reads 0 when 100 was committed before"
    told = Told(
        "spurious-zero-offset", ("committed", "g"), message, {"group": "g", "known": 100, "process": READER}, 0.004
    )
    assert whole(fed(h), RULES) == [told]


@pytest.mark.parametrize("build", [too_low, told_none])
def test_a_partition_that_is_not_observed_any_more_may_be_of_a_topic_that_was_made_anew(
    build: Callable[[History], object],
) -> None:
    h = History()
    build(h)
    later(h, 9.9)
    assert whole(live(row_by_row, 60)(h), VERDICTS) == []
