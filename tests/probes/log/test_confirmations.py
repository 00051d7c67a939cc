"""Rows of a topic count for its id as far as the cluster has confirmed it; what cannot be said yet waits."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from probes.clock import Clock
from probes.log.commits.committer import Committer, committer
from probes.log.commits.confirmations import REPLACED, SILENT_FOR, UNKNOWN_FOR, Confirmations
from probes.log.journals.reader import LifeReader
from probes.log.rows import AT
from rules.vocabulary.slices import RegisterOp, Run
from rules.vocabulary.times import micros
from tests.probes.log.lives import TOPIC, TOPIC_ID, Prober, StillClock, check_marks, check_slices, table_rows

Opened = Callable[[], Committer]


class Cluster:
    """`topics`: the ids that it tells, None while nobody answers."""

    def __init__(self) -> None:
        self.topics: dict[str, str] | None = {TOPIC: TOPIC_ID}
        self.asked: list[list[str]] = []
        self.time = 0.0

    def ask(self, names: Any) -> dict[str, str | None] | None:
        self.asked.append(list(names))
        return None if self.topics is None else {name: self.topics.get(name) for name in names}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def opened(folder: Path, history: Path, clock: StillClock, cluster: Cluster) -> Opened:
    def open_() -> Committer:
        confirmations = Confirmations("c", cluster.ask, clock, lambda: cluster.time)
        return committer(folder, history, clock, confirmations=confirmations)

    return open_


def gist(history: Path, process: int = 1) -> list[tuple[Any, ...]]:
    rows = sorted((r for r in table_rows(history) if r["process"] == process), key=lambda r: (r["op"], r["partition"]))
    check_slices(rows)
    return [
        (r["f"], r["type"], r["error"], [tuple(run.values()) for run in r["sent"] or r["polled"] or ()]) for r in rows
    ]


def told(history: Path) -> list[tuple[Any, ...]]:
    return [row for row in gist(history) if row[0] != "start"]


def send(prober: Prober, clock: StillClock, at: int) -> None:
    """An acknowledged send of five records."""
    op = prober.invoke(0)
    clock.tick()
    prober.in_flight[op][0].sent = (prober.in_flight[op][0].sent[0]._replace(offset=at),)
    prober.in_flight[op][0].mono_completed = clock.monotonic_ns()
    prober.complete(op)


def test_what_had_completed_when_the_topic_was_confirmed_counts(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster, opened: Opened
) -> None:
    prober = Prober.start(folder, 1, clock)
    with opened() as one:
        send(prober, clock, 0)
        clock.tick()
        assert one.commit() == 5
        assert one.commit() == 2
    assert told(history) == [("send", "ok", None, [(10, 0, 0, 5)])]
    assert cluster.asked == [[TOPIC]]


def test_a_mark_tells_both_clocks_of_one_moment_however_late_the_cluster_answers(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a mark says of the wall clock is taken to log time by this pair: a second between them was a second by which
    a log seemed more complete than it was."""
    prober = Prober.start(folder, 1, clock)
    ask = cluster.ask

    def slowly(names: Any) -> dict[str, str | None] | None:
        clock.tick(0.9)
        return ask(names)

    monkeypatch.setattr(cluster, "ask", slowly)
    apart = []
    with opened() as one:
        for at in (0, 5):
            send(prober, clock, at)
            one.commit()
    for row in table_rows(history):
        if row["f"] == "mark":
            apart.append(row["mono_completed"] - micros(row["completed"]) * 1000)
    assert cluster.asked
    assert set(apart) == {0}  # this clock's two go together


def test_what_completed_after_it_is_not_counted_for_a_topic_that_was_replaced(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster, opened: Opened
) -> None:
    prober = Prober.start(folder, 1, clock)
    with opened() as one:
        send(prober, clock, 0)
        one.commit()
        clock.tick()
        cluster.topics = {TOPIC: "another"}
        send(prober, clock, 0)
        prober.append([prober.row(0, "poll", polled=(Run(10, 5, 0, 5),), position_before=0, position_after=5)])
        prober.append([prober.row(0, "commit", committed=5, group="g")])
        prober.append([prober.row(0, "offsets", log_start=0, log_end=5, last_stable=5)])
        prober.append([prober.row(0, "send", type="fail", error="_INVALID_ARG", sent=(Run(10, 10, None, 1),))])
        read, write = RegisterOp(0, "read", None, None, 7), RegisterOp(0, "cas", 9, 7, 7)
        prober.append([prober.row(0, "register", registers=(read, write))])
        one.commit()
        prober.close()
        one.commit()
    assert told(history) == [
        ("send", "ok", None, [(10, 0, 0, 5)]),
        ("send", "info", REPLACED, [(10, 5, None, 5)]),
        ("poll", "info", REPLACED, []),
        ("commit", "info", REPLACED, []),
        ("offsets", "info", REPLACED, []),
        ("send", "fail", "_INVALID_ARG", [(10, 10, None, 1)]),
        ("register", "info", REPLACED, []),
        ("close", "ok", None, []),
        ("close", "ok", None, []),
    ]
    names = ("position_before", "position_after", "committed", "log_start", "log_end", "last_stable", "polled")
    late = [row for row in table_rows(history) if row["error"] == REPLACED]
    assert {row[name] for row in late for name in names} == {None}
    (register,) = [row["registers"] for row in late if row["f"] == "register"]
    assert [list(op.values()) for op in register] == [[0, "cas", 9, 7, None]]
    assert {row["group"] for row in late if row["f"] == "commit"} == {"g"}


def test_what_was_confirmed_and_read_late_counts_although_the_topic_was_replaced(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster, opened: Opened
) -> None:
    """Rows reach the journal a moment after their operation has completed."""
    prober = Prober.start(folder, 1, clock)
    with opened() as one:
        send(prober, clock, 0)
        early = prober.row(0, "poll", polled=(Run(10, 0, 0, 5),))
        clock.tick()
        one.commit()
        cluster.topics = {TOPIC: "another"}
        clock.tick()
        early.op = prober.op
        prober.append([early])
        one.commit()
    assert told(history)[-1] == ("poll", "ok", None, [(10, 0, 0, 5)])


@pytest.mark.parametrize(("topics", "limit"), [(None, SILENT_FOR), ({}, UNKNOWN_FOR)], ids=["silent", "unknown"])
def test_rows_wait_for_an_answer_and_nothing_is_dropped(
    folder: Path,
    history: Path,
    clock: StillClock,
    cluster: Cluster,
    opened: Opened,
    topics: dict[str, str] | None,
    limit: float,
) -> None:
    prober = Prober.start(folder, 1, clock)
    with opened() as one:
        send(prober, clock, 0)
        one.commit()
        cluster.topics = topics
        send(prober, clock, 5)
        for _ in range(3):
            cluster.time += limit / 4
            assert one.commit() == 0
        cluster.topics = {TOPIC: TOPIC_ID}
        one.commit()
    assert told(history) == [("send", "ok", None, [(10, 0, 0, 5)]), ("send", "ok", None, [(10, 5, 5, 5)])]
    assert check_marks(history) > 2


def test_what_waits_is_read_once(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a topic is made again all lives begin anew: to read them takes long. What came meanwhile follows."""
    read = []
    really = LifeReader.read

    def noted(self: LifeReader, *args: Any) -> Any:
        read.append(self.name)
        return really(self, *args)

    prober = Prober.start(folder, 1, clock)
    with opened() as one:
        cluster.topics = None
        send(prober, clock, 0)
        monkeypatch.setattr(LifeReader, "read", noted)
        for _ in range(3):
            assert one.commit() == 0
        assert len(read) == 1
        send(prober, clock, 5)
        cluster.topics = {TOPIC: TOPIC_ID}
        one.drain()
    assert told(history) == [("send", "ok", None, [(10, 0, 0, 5)]), ("send", "ok", None, [(10, 5, 5, 5)])]
    assert check_marks(history) > 1


def test_lives_that_have_ended_are_not_finished(
    folder: Path, history: Path, clock: StillClock, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = []

    def noted(life: Path, clock: Clock) -> None:
        finished.append(life.name)

    monkeypatch.setattr("probes.log.commits.lives.recover_life", noted)
    ended, dead = Prober.start(folder, 1, clock), Prober.start(folder, 2, clock)
    for prober in (ended, dead):
        send(prober, clock, 0)
    ended.close()
    dead.journal.release()
    with opened() as one:
        one.commit()
    assert finished == [dead.journal.folder.name]


@pytest.mark.parametrize(
    ("topics", "limit", "outcome"),
    [
        (None, SILENT_FOR, ("send", "ok", None, [(10, 5, 5, 5)])),
        ({}, UNKNOWN_FOR, ("send", "info", REPLACED, [(10, 5, None, 5)])),
    ],
    ids=["silent", "unknown"],
)
def test_they_do_not_wait_for_ever(
    folder: Path,
    history: Path,
    clock: StillClock,
    cluster: Cluster,
    opened: Opened,
    topics: dict[str, str] | None,
    limit: float,
    outcome: tuple[Any, ...],
) -> None:
    prober = Prober.start(folder, 1, clock)
    with opened() as one:
        send(prober, clock, 0)
        one.commit()
        cluster.topics = topics
        send(prober, clock, 5)
        assert one.commit() == 0
        cluster.time += limit
        assert one.commit() > 0
        assert told(history)[-1] == outcome
        send(prober, clock, 10)
        assert one.commit() > 0, "while the outage lasts, rows tell of it at once"


def test_the_end_waits_for_an_answer_too(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober = Prober.start(folder, 1, clock)
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        cluster.topics = {TOPIC: TOPIC_ID} if len(naps) == 3 else None

    # In the committer alone: threads of other tests sleep too.
    own = SimpleNamespace(sleep=nap, monotonic=time.monotonic, perf_counter=time.perf_counter)
    monkeypatch.setattr("probes.log.commits.committer.time", own)
    with opened() as one:
        cluster.topics = None
        send(prober, clock, 0)
        one.drain()
    assert len(naps) == 3 and told(history) == [("send", "ok", None, [(10, 0, 0, 5)])]


def test_a_plan_that_is_carried_out_again_counts_the_same(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober = Prober.start(folder, 1, clock)
    with opened() as one:
        send(prober, clock, 0)
        one.commit()
        cluster.topics = {TOPIC: "another"}
        send(prober, clock, 0)

        class Killed(BaseException):
            pass

        def die(*_: Any) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr("probes.log.commits.history.History.append", die)
            with pytest.raises(Killed):
                one.commit()
    cluster.topics = {TOPIC: TOPIC_ID}
    version = DeltaTable(str(history)).version()
    with opened() as one:
        one.commit()
    assert DeltaTable(str(history)).version() == version + 1
    assert told(history)[-1] == ("send", "info", REPLACED, [(10, 5, None, 5)])


def test_outputs_do_not_name_inputs_of_a_topic_that_was_replaced(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster, opened: Opened
) -> None:
    prober = Prober.start(folder, 1, clock)
    touched = [(TOPIC, 0), ("out", 0)]
    common = {"txn": 5, "txn_partitions": touched}

    def transform() -> None:
        clock.tick()
        prober.append(
            [
                prober.row(0, "txn", polled=(Run(7, 0, 0, 1),), **common),
                prober.row(
                    0,
                    "txn",
                    topic="out",
                    topic_id="out-id",
                    sent=(Run(10, prober.op, prober.op, 1),),
                    sources=(Run(7, 0, 0, 1),),
                    **common,
                ),
            ]
        )

    cluster.topics = {TOPIC: TOPIC_ID, "out": "out-id"}
    with opened() as one:
        transform()
        one.commit()
        cluster.topics[TOPIC] = "another"
        transform()
        one.commit()
    rows = [row for row in table_rows(history) if row["f"] == "txn" and row["topic"] == "out"]
    assert [(row["type"], len(row["sources"] or [])) for row in sorted(rows, key=lambda r: r["op"])] == [
        ("ok", 1),
        ("ok", 0),
    ]


def test_rows_of_another_cluster_are_not_asked_for(
    folder: Path, history: Path, clock: StillClock, cluster: Cluster
) -> None:
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock, confirmations=Confirmations("other", cluster.ask, clock)) as one:
        send(prober, clock, 0)
        assert one.commit() > 0
    assert cluster.asked == []


@pytest.mark.parametrize("follows", [True, False])
def test_a_cluster_that_took_the_places_of_ours_is_asked_of_its_own_topics(clock: StillClock, follows: bool) -> None:
    """Those of the one before have none of these ids any more."""
    cluster = Cluster()
    cluster.topics = {TOPIC: "new"}
    confirmations = Confirmations("c", cluster.ask, clock)
    if follows:
        confirmations.followers.add("d")

    def row(topic_id: str) -> list[Any]:
        made: list[Any] = [None] * len(AT)
        made[AT["topic_id"]], made[AT["topic"]], made[AT["f"]] = topic_id, TOPIC, "send"
        return made

    groups: Any = [(SimpleNamespace(cluster="c"), [row("old")]), (SimpleNamespace(cluster="d"), [row("new")])]
    told = confirmations.told(groups, {})
    assert told is not None
    assert (set(told[0]), set(told[1])) == ({"new"} if follows else set(), {"old"})
