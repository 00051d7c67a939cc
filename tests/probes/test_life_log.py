"""What one life's log promises: everything it invoked is in the journal or open, whoever ends it."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from probes.clock import Clock, SystemClock
from probes.log.journals.journal import Journal
from probes.log.journals.progress import Life
from probes.log.life_log import RESERVED_AT_ONCE, Abandoned, LifeLog
from probes.topology import Layout, Topic
from rules.vocabulary.slices import Run
from rules.vocabulary.times import micros
from tests.known import known
from tests.probes.log.lives import StillClock

LAYOUT = Layout("c", (Topic("t", "id-t", 2), Topic("u", "id-u", 1)))
HERE = ("t", 0)


class Slow(SystemClock):
    """Each look at the monotonic clock is a second after the last."""

    looks = 0

    def monotonic_ns(self) -> int:
        self.looks += 1
        return super().monotonic_ns() + self.looks * 1_000_000_000


@pytest.fixture
def life_log(tmp_path: Path) -> LifeLog:
    return begun(tmp_path, Slow())


def begun(tmp_path: Path, clock: Clock) -> LifeLog:
    life = Life(
        cluster="c", run="r", process=1, kind="writer", writer=2, transactional_id=None, boot=clock.boot, settings={}
    )
    return LifeLog(Journal.create(tmp_path, life), life, LAYOUT, clock)


def through(life_log: LifeLog) -> int:
    return life_log._journal.progress.through


def test_rows_about_the_process_stand_in_every_partition_under_one_operation(life_log: LifeLog) -> None:
    rows = life_log.everywhere("assign", "ok", life_log.now(), each=lambda where: {"assigned": where == HERE})
    assert [(row.topic, row.topic_id, row.partition, row.assigned) for row in rows] == [
        ("t", "id-t", 0, True),
        ("t", "id-t", 1, False),
        ("u", "id-u", 0, False),
    ]
    assert {row.op for row in rows} == {0}
    assert life_log.next_op() == 1


def test_nothing_is_promised_beyond_what_has_begun_or_is_open(life_log: LifeLog) -> None:
    life_log.alive()
    begun = life_log.begin()
    life_log.alive()
    assert through(life_log) == micros(begun.at)
    life_log.append([life_log.row(HERE, "poll", "ok", 0, begun, life_log.now())])
    life_log.alive()
    assert through(life_log) > micros(begun.at)
    opened = life_log.now()
    life_log.opened(1, [life_log.row(HERE, "send", "info", 1, opened, sent=[Run(2, 0, None, 5)])])
    life_log.alive()
    assert through(life_log) == micros(opened.at)
    life_log.append([life_log.row(HERE, "send", "ok", 1, opened, life_log.now(), sent=[Run(2, 0, 9, 5)])])
    life_log.idle()
    assert through(life_log) > micros(opened.at)


def test_promises_are_written_a_few_times_a_second_however_often_they_are_made(tmp_path: Path) -> None:
    clock = StillClock()
    life_log = begun(tmp_path, clock)
    sizes, beats = set(), []
    life_log.beat = lambda: beats.append(1)
    for _ in range(100):  # one second
        life_log.alive()
        sizes.add(life_log._journal.offset)
        clock.tick(0.01)
    assert len(sizes) == 5
    assert len(beats) == 100


def test_reservations_are_made_in_large_ranges_and_only_when_needed(life_log: LifeLog) -> None:
    life_log.reserve(HERE, 10)
    size = life_log._journal.offset
    life_log.reserve(HERE, RESERVED_AT_ONCE)
    assert life_log._journal.offset == size
    life_log.reserve(HERE, RESERVED_AT_ONCE + 1)
    assert life_log._journal.offset > size
    assert life_log._journal.progress.sent["id-t", 0].reserved == 2 * RESERVED_AT_ONCE


def test_an_abandoned_life_is_complete_and_writes_no_more(life_log: LifeLog) -> None:
    invoked = life_log.now()
    life_log.opened(0, [life_log.row(HERE, "send", "info", 0, invoked, sent=[Run(2, 0, None, 5)])])
    other = threading.Thread(target=life_log.abandon, args=("_STUCK",))
    other.start()
    other.join()
    progress = life_log._journal.progress
    assert (progress.closed, progress.open) == (True, {})
    assert progress.ended == {("id-t", 0), ("id-t", 1), ("id-u", 0)}
    for late in (
        life_log.alive,
        lambda: life_log.append([]),
        lambda: life_log.opened(1, []),
        lambda: life_log.reserve(HERE, 1),
    ):
        with pytest.raises(Abandoned):
            late()
    life_log.end("ok")


def test_the_wall_clock_and_the_monotonic_clock_are_both_kept(life_log: LifeLog) -> None:
    row = life_log.row(HERE, "poll", "ok", 0, life_log.now(), life_log.now())
    assert known(row.mono_completed) > known(row.mono_invoked)
    assert row.completed - row.invoked < timedelta(seconds=1)
    assert row.boot == life_log.life.boot
