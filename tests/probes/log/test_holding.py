"""A healthy second's rows wait in their journals; what stands out does not, and whatever happens meanwhile, each row is
in the table once and no mark promises too much."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from probes.log.commits.append_plan import load as planned
from probes.log.commits.committer import CommitPace, Committer, committer
from probes.log.commits.confirmations import Confirmations
from probes.log.commits.holding import ALERT, MOST_BYTES, Holding
from probes.log.errors import HistoryUnavailable, JournalUnwritable
from probes.log.journals.copies import COPIES, Copies
from tests.known import known
from tests.probes.log.lives import (
    TOPIC,
    TOPIC_ID,
    Prober,
    StillClock,
    appends,
    check_marks,
    check_slices,
    closes,
    ends_of,
    logged,
    marks_of,
    table_rows,
    wait_for,
)
from tests.probes.log.test_confirmations import Cluster, send, told

HOLD = 3.0


class Seconds:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Signs:
    """What stands out is what somebody says. `shown`: the operations of the rows that it was shown, look by look."""

    def __init__(self) -> None:
        self.sign = False
        self.shown: list[list[int]] = []

    def __call__(self, rows: pa.Table) -> bool:
        self.shown.append(rows["op"].to_pylist())
        return self.sign


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def signs() -> Signs:
    return Signs()


@pytest.fixture
def holding(signs: Signs, seconds: Seconds) -> Holding:
    """Its first seconds are over."""
    made = Holding(signs, HOLD, clock=seconds)
    seconds.time += ALERT
    made.appended()
    return made


@pytest.fixture
def opened(folder: Path, history: Path, clock: StillClock, holding: Holding) -> Callable[[], Committer]:
    return lambda: committer(folder, history, clock, holding=holding)


def second(clock: StillClock, seconds: Seconds, probers: Sequence[Prober]) -> None:
    for prober in probers:
        prober.send(0)
        prober.alive()
    clock.tick()
    seconds.time += 1


def check(history: Path, probers: Sequence[Prober]) -> None:
    rows = table_rows(history)
    check_slices(rows)
    for prober in probers:
        assert logged(rows, prober.journal.life.process) == {p: r for p, r in prober.must_be_logged().items() if r}
    assert check_marks(history) > 0


def test_it_begins_by_holding_nothing(signs: Signs, seconds: Seconds) -> None:
    holding = Holding(signs, HOLD, clock=seconds)
    waited = []
    for _ in range(int(ALERT) + 2):
        if not (waits := holding.waits([], 0)):
            holding.appended()
        waited.append(waits)
        seconds.time += 1
    assert waited == [False] * int(ALERT) + [True, True]


@pytest.mark.parametrize("turn", [1.0, 0.96, 1.02])
def test_healthy_seconds_are_appended_three_at_a_time(holding: Holding, seconds: Seconds, turn: float) -> None:
    waited = []
    for _ in range(7):
        seconds.time += turn
        if not (waits := holding.waits([], 0)):
            holding.appended()
        waited.append(waits)
    assert waited == [True, True, False, True, True, False, True]


def test_what_stands_out_does_not_wait_nor_what_follows(holding: Holding, signs: Signs, seconds: Seconds) -> None:
    assert holding.waits([], 0)
    signs.sign = True
    assert not holding.waits([], 0)
    signs.sign = False
    holding.appended()
    seconds.time += ALERT - 1
    assert not holding.waits([], 0)
    holding.appended()
    seconds.time += 1
    assert holding.waits([], 0)


def test_a_flood_does_not_wait(holding: Holding) -> None:
    assert holding.waits([], MOST_BYTES)
    assert not holding.waits([], MOST_BYTES + 1)


def test_what_cannot_be_looked_at_does_not_wait(seconds: Seconds) -> None:
    def broken(rows: pa.Table) -> bool:
        raise pa.ArrowInvalid("no")

    holding = Holding(broken, HOLD, clock=seconds)
    seconds.time += ALERT
    holding.appended()
    assert not holding.waits([], 0)


def test_rows_that_wait_are_appended_with_those_that_follow(
    folder: Path, history: Path, clock: StillClock, opened: Callable[[], Committer], seconds: Seconds, signs: Signs
) -> None:
    probers = [Prober.start(folder, process, clock) for process in (1, 2)]
    with opened() as one:
        one.commit()
        before, size = known(planned(folder)).version, (folder / COPIES).stat().st_size
        signs.shown.clear()
        for _ in range(2):
            second(clock, seconds, probers)
            assert one.commit(may_wait=True) == 0
            assert known(planned(folder)).version == before
            assert (folder / COPIES).stat().st_size > size, "the loss of the host would not take it"
            size = (folder / COPIES).stat().st_size
        second(clock, seconds, probers)
        assert one.commit(may_wait=True) == 8  # three of two, and the marks of two partitions
        second(clock, seconds, probers)
        assert one.commit(may_wait=True) == 0
        one.commit()
    assert signs.shown == [[1, 1], [2, 2], [3, 3], [4, 4]], "each is looked at once"
    assert [len(rows) for rows in appends(history)[-3:]] == [6, 8, 4]
    check(history, probers)


def test_who_waits_for_the_end_of_a_turn_gets_it_all(
    folder: Path, history: Path, clock: StillClock, opened: Callable[[], Committer], seconds: Seconds
) -> None:
    probers = [Prober.start(folder, 1, clock)]
    with opened() as one:
        one.commit()
        second(clock, seconds, probers)
        assert one.commit(may_wait=True) == 0
        one.drain()
        check(history, probers)


def test_a_life_that_ends_while_rows_wait_is_over_as_of_their_append(
    folder: Path, history: Path, clock: StillClock, opened: Callable[[], Committer], seconds: Seconds
) -> None:
    """A mark tells of its end: without one its evidence is incomplete for ever."""
    ended, killed, living = (Prober.start(folder, process, clock) for process in (1, 2, 3))
    with opened() as one:
        one.commit()
        second(clock, seconds, [ended, killed, living])
        ended.close()
        killed.kill()
        clock.tick(61)  # as long as recovery leaves the dead alone
        assert one.commit(may_wait=True) == 0
        second(clock, seconds, [living])
        assert one.commit(may_wait=True) == 0
        second(clock, seconds, [living])
        assert one.commit(may_wait=True) > 0
        over = {process for process, (at, _) in ends_of(table_rows(history), 2).items() if at is not None}
        assert over == {1, 2}
        second(clock, seconds, [living])
        one.commit()
    rows = table_rows(history)
    assert [len(closes(rows, process)) for process in (1, 2, 3)] == [2, 2, 0]
    assert ends_of(rows, 3) == {} and set(marks_of(rows, 3)) == {3}
    check(history, [ended, killed, living])


def test_a_committer_that_dies_while_rows_wait_loses_none(
    folder: Path, history: Path, clock: StillClock, opened: Callable[[], Committer], seconds: Seconds
) -> None:
    probers = [Prober.start(folder, process, clock) for process in (1, 2)]
    for _ in range(2):
        with opened() as one:
            one.commit()
            second(clock, seconds, probers)
            assert one.commit(may_wait=True) == 0
    with opened() as one:
        one.commit()
    check(history, probers)


def test_an_append_that_was_planned_and_not_made_is_made_with_all_that_waited(
    folder: Path, history: Path, clock: StillClock, opened: Callable[[], Committer], seconds: Seconds
) -> None:
    probers = [Prober.start(folder, process, clock) for process in (1, 2)]
    with opened() as one:
        one.commit()
        second(clock, seconds, probers)
        assert one.commit(may_wait=True) == 0
        second(clock, seconds, probers)
        aside = history.with_name("aside")
        history.rename(aside)
        history.write_text("in the way")
        with pytest.raises(HistoryUnavailable):
            one.commit()
    history.unlink()
    aside.rename(history)
    with opened() as one:
        one.commit()
    check(history, probers)


def test_a_disk_that_refuses_what_waited_is_tried_again(
    folder: Path,
    history: Path,
    clock: StillClock,
    opened: Callable[[], Committer],
    seconds: Seconds,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probers = [Prober.start(folder, 1, clock)]

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with opened() as one:
        one.commit()
        second(clock, seconds, probers)
        assert one.commit(may_wait=True) == 0
        second(clock, seconds, probers)
        with monkeypatch.context() as patched:
            patched.setattr(Copies, "keep", refuse)
            with pytest.raises(JournalUnwritable, match="No space left"):
                one.commit()
        one.commit()
    check(history, probers)


def test_of_a_topic_that_is_made_again_what_was_confirmed_while_it_waited_counts(
    folder: Path, history: Path, clock: StillClock, holding: Holding
) -> None:
    cluster = Cluster()
    prober = Prober.start(folder, 1, clock)
    confirmations = Confirmations("c", cluster.ask, clock, lambda: cluster.time)
    with committer(folder, history, clock, confirmations=confirmations, holding=holding) as one:
        one.commit()
        send(prober, clock, 0)
        clock.tick()
        assert one.commit(may_wait=True) == 0
        send(prober, clock, 5)
        cluster.topics = {TOPIC: "another"}
        assert one.commit(may_wait=True) > 0, "it is told at once"
    assert told(history) == [
        ("send", "ok", None, [(10, 0, 0, 5)]),
        ("send", "info", "topic-replaced", [(10, 5, None, 5)]),
    ]
    assert check_marks(history) > 0


def test_while_the_cluster_does_not_tell_of_its_topics_what_waits_is_kept(
    folder: Path, history: Path, clock: StillClock, holding: Holding, seconds: Seconds
) -> None:
    cluster = Cluster()
    prober = Prober.start(folder, 1, clock)
    confirmations = Confirmations("c", cluster.ask, clock, lambda: cluster.time)
    with committer(folder, history, clock, confirmations=confirmations, holding=holding) as one:
        one.commit()
        send(prober, clock, 0)
        assert one.commit(may_wait=True) == 0
        cluster.topics = None
        send(prober, clock, 5)
        assert one.commit(may_wait=True) == 0
        seconds.time += HOLD
        assert one.commit(may_wait=True) == 0
        cluster.topics = {TOPIC: TOPIC_ID}
        send(prober, clock, 10)
        assert one.commit(may_wait=True) > 0
        one.drain()
    assert told(history) == [("send", "ok", None, [(10, at, at, 5)]) for at in (0, 5, 10)]
    assert check_marks(history) > 0


def test_a_journal_that_is_taken_away_while_its_rows_wait_takes_nothing_else_with_it(
    folder: Path, history: Path, clock: StillClock, opened: Callable[[], Committer], seconds: Seconds
) -> None:
    gone, other = Prober.start(folder, 1, clock), Prober.start(folder, 2, clock)
    with opened() as one:
        one.commit()
        second(clock, seconds, [gone, other])
        assert one.commit(may_wait=True) == 0
        gone.kill()
        gone.journal.folder.rename(folder / "elsewhere")
        second(clock, seconds, [other])
        one.commit()
        second(clock, seconds, [other])
        one.commit()
        assert "taken away" in one.status().unverifiable[gone.journal.folder.name]
    check(history, [other])


def test_run_holds_and_leaves_nothing(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock)
    stop = threading.Event()
    shown = threading.Event()

    def stands_out(rows: pa.Table) -> bool:
        if len(rows) and 1 in rows["op"].to_pylist():
            shown.set()
        return False

    holding = Holding(stands_out, 60.0, alert=0)
    with committer(folder, history, clock, CommitPace(every=0.02), holding=holding) as one:
        one.commit()
        running = threading.Thread(target=one.run, args=(stop,), daemon=True)
        running.start()
        prober.send(0)
        wait_for(shown.is_set)
        assert DeltaTable(str(history)).version() == 1
        stop.set()
        running.join()
    check(history, [prober])
