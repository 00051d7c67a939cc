"""`offset-regression`, `lost-commit`, `foreign-commit`: what groups are told of their offsets, beside what may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.kept.state import Hole
from rules.settling.gate import EVERYBODY, Gate, Who
from rules.vocabulary.slices import Mark, Slice
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, Store, number, singly
from tests.rules.liveness_of import row_by_row
from tests.rules.whole import Told, in_any_way, live, whole

Fed = Callable[[History], Store]
RULES = ("offset-regression", "lost-commit", "foreign-commit", "spurious-zero-offset")
READER, OBSERVER = number("r"), number("o")


def commit(h: History, offset: int, *, by: str = "r", group: str = "g", **more: object) -> None:
    h.row(by, "commit", committed=offset, group=group, **more)


def read(h: History, offset: int | None, *, by: str = "r", group: str = "g", **more: object) -> None:
    """The process `by` is told this offset; None for none."""
    h.row(by, "offsets", committed=offset, group=group, **more)


def later(h: History, seconds: float = 11.0) -> None:
    """Time passes, and the partition is still there."""
    h.time += seconds
    h.observe(end=1000)


def on(boot: str, begins: int, ends: int) -> dict[str, object]:
    """Times of one host's monotonic clock, in milliseconds."""
    return {"boot": boot, "mono_invoked": begins * 10**6, "mono_completed": ends * 10**6}


def regression(before: int, after: int, at: float, by: int = OBSERVER) -> Told:
    message = f"group g had committed {before}, then {after}, which nobody asked for"
    evidence = {"group": "g", "before": before, "after": after, "read_by": by}
    return Told("offset-regression", ("g", before, after), message, evidence, at)


def lost(
    committed: int, told: int | None, at: float, *, to: int = READER, by: int = READER, after: float = 0.001
) -> Told:
    evidence = {
        "group": "g", "committed": committed, "committed_by": by, "told": told, "told_to": to, "after_s": after,
    } | ({"retention_minutes": 10_080} if told is None else {})  # fmt: skip
    word = "none" if told is None else told
    message = f"group g committed {committed}, and was told {word} {after:.1f} s after that was acknowledged"
    subject = ("g", committed, -1 if told is None else told)
    return Told("lost-commit", subject, message, evidence, at, round(at + 10, 3))


def foreign(told: int, before: int | None, at: float, *, to: int = READER) -> Told:
    word = "none" if before is None else before
    message = f"group g was told {told}, which nobody ever committed, where {word} had been before"
    evidence = {"group": "g", "told": told, "told_to": to, "before": before}
    return Told("foreign-commit", ("g", told), message, evidence, at, round(at + 10, 3))


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


def clock(h: History, boot: str, begins: int = 0, ends: int = 1) -> dict[str, object]:
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


# Told what nobody committed


def too_high(h: History) -> None:
    commit(h, 100)
    read(h, 115)


def too_high_after_none(h: History) -> None:
    h.start("r", **{"group.id": "g"})
    read(h, None, by="o")
    read(h, 15, by="o")


def too_high_in_a_group_that_is_subscribed_to(h: History) -> None:
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    read(h, 115)


def too_low(h: History) -> None:
    """Told to the process that committed: it is another offset, and the committed one is gone."""
    commit(h, 100)
    read(h, 70)


def first_told(h: History) -> None:
    """From before the log began, and again after it had changed: an old coordinator may know it."""
    read(h, 500, by="o")
    read(h, 500, by="o")
    commit(h, 520)
    read(h, 500, by="o")


def first_told_on_another_host(h: History) -> None:
    read(h, 500, by="o", **on("a", 10, 20))
    commit(h, 520, **on("a", 30, 40))
    read(h, 500, by="p", **on("b", 10, 20))
    read(h, 500, by="p", **on("b", 30, 40))


def of_a_transaction(h: History) -> None:
    """Whatever became of it, it was asked for."""
    commit(h, 100)
    h.txn("t", polls=[("w", 0, 1, 109)], type="fail", txn=1, committed=110, group="g")
    read(h, 110, by="o")
    h.txn("t", polls=[("w", 0, 1, 119)], type="info", txn=2, position_after=120)
    read(h, 120, by="o")


def by_a_member_of_another_log(h: History) -> None:
    """The group gave the partition to somebody else, who is not of this log."""
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    read(h, 100, by="o")
    h.assign("r", f="revoke", assigned=False, group="g")
    read(h, 115, by="o")


def by_a_member_of_another_log_in_between(h: History) -> None:
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    h.assign("r", f="revoke", assigned=False, group="g")
    h.assign("s", f="subscribe", group="g")
    read(h, 115)


def by_a_member_of_another_log_after_the_last_of_ours(h: History) -> None:
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    read(h, 100, by="o")
    h.row("r", "close")
    read(h, 115, by="o")


def asked_for_while_it_was_read(h: History) -> None:
    early = h.at(h.time)
    commit(h, 100)
    read(h, 120, by="o")
    commit(h, 120, invoked=early)


GUILTY = [
    (went_back, [
        lost(100, 70, 0.008, to=OBSERVER, after=0.003), foreign(70, 100, 0.008, to=OBSERVER),
        regression(100, 70, 0.008),
    ]),
    (dropped, [lost(100, 50, 0.008)]),
    (dropped_as_the_observer_had_seen_it, [lost(100, 50, 2.008, to=OBSERVER, after=2.003)]),
    (dropped_with_an_indefinite_commit_before, [lost(100, 50, 0.008)]),
    (dropped_by_a_transaction, [lost(100, 50, 0.006, to=number("t"), by=number("t"))]),
    (dropped_after_another_host_had_committed, [lost(100, 50, 1.201, after=0.099)]),
    (dropped_to_zero, [lost(100, 0, 0.006)]),
    (dropped_again, [lost(100, 50, 0.006), lost(120, 50, 0.012)]),
    (told_none, [lost(100, None, 5.006, after=5.003)]),
    (told_none_after_a_rewind, [lost(40, None, 0.006)]),
    (too_high, [foreign(115, 100, 0.004)]),
    (too_high_after_none, [foreign(15, None, 0.006, to=OBSERVER)]),
    (too_high_in_a_group_that_is_subscribed_to, [foreign(115, 100, 0.006)]),
    (too_low, [lost(100, 70, 0.004), foreign(70, 100, 0.004)]),
    (told_too_high_when_that_is_long_ago, [foreign(86, None, 121.010)]),
    (told_none_when_that_is_long_ago, [lost(12, None, 121.008)]),
]  # fmt: skip
INNOCENT = [
    went_back_to_a_commit, went_back_to_an_indefinite_commit, went_back_to_a_transaction_s_offset,
    went_back_to_where_a_dead_transaction_had_polled, of_two_groups, read_at_the_same_time, of_two_hosts,
    told_to_another_process, none_to_another_process, rewound, rewound_without_an_answer, landed_late,
    landed_late_of_no_named_group, overtaken, overtaken_by_what_was_answered_first, never_acknowledged, fenced,
    asked_before_the_answer, committed_by_another_host_since, committed_by_another_host_soon_after,
    committed_by_another_host_of_which_nothing_is_known, shared_with_a_member_on_another_host,
    committed_by_another_host, expired,
    expired_as_the_cluster_is_set, not_told, of_a_transaction_to_a_reader_at_read_uncommitted, first_told,
    first_told_on_another_host, of_a_transaction, by_a_member_of_another_log, by_a_member_of_another_log_in_between,
    by_a_member_of_another_log_after_the_last_of_ours, asked_for_while_it_was_read,
    told_what_was_committed_in_the_topic_before, told_none_as_what_was_known_of_the_topic_before_is_dropped,
]  # fmt: skip
VERDICTS = ("offset-regression", "lost-commit", "foreign-commit")


def in_order(expected: list[Told], finished: bool) -> list[Told]:
    """Of a finished history nothing had to be waited for."""
    told = [one._replace(decidable=None) if finished else one for one in expected]
    return sorted(told, key=lambda one: (one.at, one.anomaly, str(one.subject), one.event))


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


# What is missing


def of_three(h: History) -> None:
    """A writer, a reader of another group and a member of this one have told what they are."""
    h.start("w", writer=str(number("w")))
    h.start("s", **{"group.id": "other"})
    h.start("m", **{"group.id": "g"})


@pytest.mark.parametrize(("hung", "judged"), [("w", True), ("s", True), ("m", False), ("x", False)])
def test_only_who_may_commit_for_the_group_is_waited_for(hung: str, judged: bool) -> None:
    """Its call has been open since before the read; of `x` it is not known yet what it is."""
    h = History()
    of_three(h)
    h.row("x", "position", position_after=3)
    hidden = h.row(hung, "position", position_after=3)
    h.rows.remove(hidden)
    went_back(h)
    later(h)
    store = live(row_by_row, 60)(h)
    assert len(whole(store, VERDICTS)) == (3 if judged else 0)
    store.feed([hidden])
    h.rows.clear()
    h.mark(1.0)
    store.feed(h.rows)
    expected = [foreign(70, 100, 0.018, to=OBSERVER), lost(100, 70, 0.018, to=OBSERVER, after=0.003),
                regression(100, 70, 0.018)]  # fmt: skip
    assert whole(store, VERDICTS) == expected


@pytest.mark.parametrize(
    ("process", "start", "end", "found"),
    [("m", 0.0, 20.0, False), ("m", 10.009, 20.0, False), ("m", 0.0, 10.0, True), ("m", 13.0, 20.0, True),
     ("w", 0.0, 20.0, True), ("s", 0.0, 20.0, True), ("x", 0.0, 20.0, False)],
)  # fmt: skip
def test_a_hole_leaves_open_what_it_touches(
    process: str, start: float, end: float, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process that may commit for the group, between the two that contradict each other: 10.00x s and 12.00x s."""
    hole = Hole(number(process), micros(START) + int(start * 1e6), micros(START) + int(end * 1e6), 0, 1, 0)

    def holes(gate: Gate, since: int, until: int, who: Who = EVERYBODY, boot: int = -1) -> list[Hole]:
        return [hole] if hole.start <= until and since < hole.end else []

    monkeypatch.setattr(Gate, "holes", holes)
    h = History()
    of_three(h)
    h.time = 10.0
    commit(h, 50)
    commit(h, 100)
    read(h, 100, by="o")
    h.time = 12.0
    read(h, 70, by="o")
    later(h)
    assert {one.anomaly for one in whole(live(row_by_row)(h), VERDICTS)} == (set(VERDICTS) if found else set())


@pytest.mark.parametrize(("members", "found"), [([], 0), ([5, 15], 0), ([5], 1)])
def test_a_group_of_which_no_member_is_known_is_waited_for(members: list[int], found: int) -> None:
    """The observer is told what it commits; its members' host has not been heard of for two minutes."""
    h = History()
    read(h, 5, by="o")
    read(h, 15, by="o")
    h.mark()
    later(h)
    late = History()
    if members:
        late.row("m", "start", settings={"group.id": "g"}, invoked=h.at(0), completed=h.at(0))
    for offset in members:
        commit(late, offset, by="m", invoked=h.at(0.001), completed=h.at(0.001))
    store = live(row_by_row, 120)(h)
    assert whole(store, VERDICTS) == []
    late.time = h.time
    late.mark()
    store.feed(late.rows)
    h.rows.clear()
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert len(whole(store, VERDICTS)) == found


@pytest.mark.parametrize(("committed", "found"), [(15, 0), (14, 1)])
def test_a_member_that_nobody_has_heard_of_may_have_begun_on_a_host_that_is_late(committed: int, found: int) -> None:
    """Its host tells that the member before it has closed, and then nothing for two minutes."""
    h, there = History(), History()
    there.row("m", "start", settings={"group.id": "g"})
    commit(there, 5, by="m")
    there.row("m", "close")
    closed = there.at(0.01)
    there.row("its committer", "mark", marks=[Mark(number("m"), 3, closed, closed)], invoked=closed, completed=closed)
    h.time = 0.01
    read(h, 5, by="o")
    h.time = 10.0
    read(h, 15, by="o")
    later(h)
    store = Store()
    store.feed(there.rows)
    for _ in range(40):
        h.mark(3.0)
    for row in singly(h.rows):
        store.feed(row)
    assert whole(store, VERDICTS) == []
    late = History()
    late.row("m2", "start", settings={"group.id": "g"}, invoked=h.at(8), completed=h.at(8))
    commit(late, committed, by="m2", invoked=h.at(9), completed=h.at(9))
    now = h.at(h.time)
    late.row("its committer", "mark", marks=[Mark(number("m2"), 2, now)], invoked=now, completed=now)
    store.feed(late.rows)
    h.rows.clear()
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert len(whole(store, VERDICTS)) == found


def test_what_a_group_was_told_is_judged_after_its_last_member_is_over_and_forgotten() -> None:
    """Somebody of whom it is not known what it is has told nothing for a minute."""
    h = History()
    h.row("r", "start", settings={"group.id": "g"})
    h.observe(end=1000)
    h.row("somebody", "position", position_after=3)
    h.mark()
    commit(h, 5)
    read(h, 15)
    h.row("r", "close")
    closed = h.at(h.time)
    h.row("committer", "mark", marks=[Mark(READER, 4, closed, closed)], invoked=closed, completed=closed)
    h.processes = ["o", "observer"]
    for i in range(80):
        commit(h, i, by="o", group="other")
        h.observe(end=1000)
        h.mark(1.0)
    store = row_by_row(h)
    assert whole(store, VERDICTS) == []
    h.rows = []
    h.processes.append("somebody")
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert [(one.anomaly, one.subject) for one in whole(store, VERDICTS)] == [("foreign-commit", ("g", 15))]


@pytest.mark.slow
@pytest.mark.parametrize(("dropped_at", "soon"), [(100, True), (65, True), (55, False)])
def test_a_member_that_was_lost_long_before_the_commit_is_not_waited_for(dropped_at: int, soon: bool) -> None:
    """Its host went down at 20 with its journal, and came back at 30. What it had asked for until then has landed half
    a minute later, or never will."""
    h = History()

    def now(boot: str) -> dict[str, object]:
        h.time += 0.004
        ms = round(h.time * 1000)
        return {"invoked": h.at(h.time - 0.003), "completed": h.at(h.time), **on(boot, ms - 3, ms)}

    def mark(boot: str, *processes: str) -> None:
        marks = [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in processes]
        h.row("its committer", "mark", marks=marks, **now(boot))

    h.row("m", "start", settings={"group.id": "g"}, **now("first"))
    commit(h, 1, by="m", **now("first"))
    for second in range(1, 140):
        h.time = second
        if second < 20:
            mark("first", "m")
        if second >= 30:
            commit(h, 1000 + second, **now("second"))
            read(h, 1000 + second - (second == dropped_at), **now("second"))
            h.row("observer", "offsets", log_start=0, log_end=5000, last_stable=5000, **now("second"))
            mark("second", "r", "observer")
    said = whole(row_by_row(h), VERDICTS)
    committed = 1000 + dropped_at
    assert [(one.anomaly, one.subject) for one in said] == (
        [("lost-commit", ("g", committed, committed - 1))] if soon else []
    )


@pytest.mark.slow
@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize(("ends", "read_at"), [("", 90), ("lost", 90), ("lost", 200), ("closed", 90)])
def test_a_member_that_is_over_holds_the_partition_no_longer(ends: str, read_at: int, compared: bool) -> None:
    """Lost, it never said that it let go. Who holds the partition since may live on its host, which is late. By how
    much the clock of that host is ahead is not known, unless they are `compared`: then the group's log is awaited."""
    h = History()
    slices = h._slices

    def now(boot: str) -> dict[str, object]:
        h.time += 0.004
        ms = round(h.time * 1000)
        return {"invoked": h.at(h.time - 0.003), "completed": h.at(h.time), **on(boot, ms - 3, ms)}

    h.row("other", "start", settings={"writer": "1"}, **now("there"))
    h.row("o", "start", settings={"writer": "2"}, **now("here"))
    h.row("m", "start", settings={"group.id": "g"}, **now("there"))
    h.row("m", "subscribe", assigned=True, mode="subscribe", group="g", **now("there"))
    commit(h, 5, by="m", **now("there"))
    h.send("m", 0, 1, at=0, **now("there"))
    h.poll("o", [("m", 0, 1, 0)], **now("here"))
    if compared:
        h.send("o", 0, 1, at=1, **now("here"))
        h.poll("m", [("o", 0, 1, 1)], **now("there"))
    for second in range(1, read_at + 60):
        h.time = second
        if second == 5 and ends == "closed":
            h.row("m", "close", **now("there"))
        over = second == 5 and ends
        if second <= 5 or not ends:
            life = [h.at(second), *([h.at(second)] if over else [])]
            told = Mark(number("m"), slices[number("m"), 0], *life, lost=ends == "lost" and second == 5)
            others = [Mark(number("other"), 1, h.at(second))]
            h.row("its committer", "mark", marks=[told, *others], **now("there"))
        if second in (82, read_at):
            read(h, 5 if second == 82 else 15, by="o", **now("here"))
        h.row("observer", "offsets", log_start=0, log_end=100, last_stable=100, **now("here"))
        marks = [Mark(number(p), slices[number(p), 0], h.at(h.time)) for p in ("o", "observer")]
        h.row("committer", "mark", marks=marks, **now("here"))
    found = [(one.anomaly, one.subject) for one in whole(row_by_row(h), VERDICTS)]
    assert found == ([] if ends or not compared else [("foreign-commit", ("g", 15))])


@pytest.mark.parametrize("at_once", [False, True])
def test_the_next_boot_of_a_host_delays_and_excuses_nothing(at_once: bool) -> None:
    """Nobody knows how the clocks of two boots of one host differ, and yet which of them came first."""
    h = History()

    def now(boot: str) -> dict[str, object]:
        h.time += 0.004
        ms = round(h.time * 1000)
        return {"invoked": h.at(h.time - 0.003), "completed": h.at(h.time), **on(boot, ms - 3, ms)}

    for boot, member, begins in (("first", "r", 1), ("second", "q", 60)):
        for second in range(begins, begins + 40):
            h.time = second
            commit(h, 1000 + second, by=member, **now(boot))
            read(h, 1000 + second - (second == 25), by=member, **now(boot))
            h.row(f"{boot} o", "offsets", log_start=0, log_end=5000, last_stable=5000, **now(boot))
            told = [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in (member, f"{boot} o")]
            h.row("its committer", "mark", marks=told, **now(boot))
    store = row_by_row(h) if not at_once else Store()
    if at_once:
        store.feed(h.rows)
    assert [(one.anomaly, one.subject) for one in whole(store, VERDICTS)] == [("lost-commit", ("g", 1025, 1024))]


def test_how_far_others_are_behind_decides_nothing() -> None:
    """All commits after 1049 are dropped. Half of what is told of them waits for another host, and is here."""
    h = History()
    h.start("s")
    slow: list[Slice] = []
    for second in range(1, 100):
        h.time = second + 0.8
        commit(h, 1000 + second)
        h.time = second + 1.2
        read(h, 1000 + min(second, 49))
        h.observe(end=5000)
        h.processes = ["r", "observer"]
        h.mark()
        told = [Mark(number("s"), 1, h.at(h.time))]
        slow.append(h.row("slow", "mark", marks=told, invoked=h.at(h.time), completed=h.at(h.time)))
    behind = Store()
    behind.feed([row for row in h.rows if row not in slow[75:]])
    behind.feed(slow[75:])
    expected = [("lost-commit", ("g", 1000 + second, 1049)) for second in range(50, 100)]
    for store in (row_by_row(h), behind):
        said = [(one.anomaly, one.subject) for one in whole(store, VERDICTS)]
        assert said == expected[: len(said)] and len(said) > 35


def test_nobody_went_back_while_a_log_is_missing() -> None:
    """A process whose log never completes may have asked for it."""
    h = History()
    commit(h, 100)
    hidden = h.row("q", "commit", committed=70, group="g")
    h.row("q", "position", position_after=3)
    read(h, 100)
    read(h, 70)
    for _ in range(70):
        h.mark(20.0)
    h.rows.remove(hidden)
    assert whole(row_by_row(h), VERDICTS) == []


# What is kept


def test_which_offsets_were_committed_is_remembered_in_bitmaps_and_forgotten_below_the_log_start() -> None:
    """An offset below is not called foreign: nobody knows any more who asked for it."""
    h = History()
    for i in range(450):
        commit(h, i * 1000)
        if i % 50 == 49:
            h.observe(start=max(0, i * 1000 - 70_000), end=1 << 20)
            h.mark(1.0)
    h.mark(1.0)
    store = row_by_row(h)
    (kept,) = store.stored.values()
    names = sorted(name for name in kept.chunks if name.startswith("commits."))
    assert [int(name.rpartition(".")[2]) for name in names] == [5, 6]
    h.rows.clear()
    read(h, 5000)
    read(h, 375_500)
    read(h, 374_000)
    later(h)
    for _ in range(3):
        h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
    assert {(one.anomaly, one.subject) for one in whole(store, ("foreign-commit",))} == {
        ("foreign-commit", ("g", 375_500))
    }


def test_what_is_kept_is_bounded() -> None:
    """Hours of a group's life, of commits that nobody answers, and of many groups, whose names go with them."""
    store = Store()
    sizes = []
    h = History()
    for hour in range(6):
        for i in range(300):
            n = hour * 300 + i
            commit(h, 10 * n, by="r")
            read(h, 10 * n, by="r")
            read(h, 10 * n, by="o")
            commit(h, 10 * n + 5, by="q", type="info", group=f"of-{n}")
            if i % 5 == 4:
                h.observe(start=10 * n, end=10 * n + 10)
                h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
        sizes.append(len(next(iter(store.stored.values())).hot))
    assert max(sizes[2:]) < 1.2 * sizes[1]
    assert whole(store, VERDICTS) == []


# A wall clock that is set back


def marked(h: History, at: int) -> None:
    """All that both processes have done is here, at `at` milliseconds of the boot's clock."""
    now = h.at(at / 1000)
    marks = [Mark(number(who), h._slices[number(who), 0], now) for who in ("r", "o")]
    h.row("committer", "mark", marks=marks, invoked=now, completed=now, **on("b", at, at))


def test_a_commit_that_only_the_wall_clock_puts_before_a_read_explains_nothing() -> None:
    """What a step asks of the store rests on the same times as its verdict: the bitmaps of the group are there."""
    h, store = History(), Store()
    h.start("r", **{"group.id": "g"})
    h.start("o")
    commit(h, 50, invoked=h.at(1.0), completed=h.at(1.01), **on("b", 1000, 1010))
    read(h, 50, by="o", invoked=h.at(1.5), completed=h.at(1.51), **on("b", 1500, 1510))
    marked(h, 3000)
    store.feed(h.rows)
    fed = len(h.rows)
    read(h, 70, by="o", invoked=h.at(4.0), completed=h.at(4.01), **on("b", 4000, 4010))
    commit(h, 70, invoked=h.at(-50.0), completed=h.at(-49.0), **on("b", 5000, 5010))
    marked(h, 8000)
    store.feed(h.rows[fed:])
    fed = len(h.rows)
    seen = h.at(30.0)
    h.row("o", "offsets", log_start=0, log_end=100, invoked=seen, completed=seen, **on("b", 30_000, 30_000))
    marked(h, 31_000)
    store.feed(h.rows[fed:])
    assert whole(store, RULES) == [foreign(70, 50, 4.01, to=OBSERVER)]
