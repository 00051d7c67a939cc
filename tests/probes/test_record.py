"""What one life's log promises: everything it invoked is in the journal or open, whoever ends it."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from probes.clock import SystemClock
from probes.layout import Layout, Topic
from probes.log.journal import Journal
from probes.log.progress import Life
from probes.record import RESERVED_AT_ONCE, Abandoned, Record
from rules.vocabulary.slices import Run, micros

LAYOUT = Layout("c", (Topic("t", "id-t", 2), Topic("u", "id-u", 1)))
HERE = ("t", 0)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    clock = SystemClock()
    life = Life(
        cluster="c", run="r", process=1, kind="writer", writer=2, transactional_id=None, boot=clock.boot, settings={}
    )  # fmt: skip
    return Record(Journal.create(tmp_path, life), life, LAYOUT, clock)


def through(record: Record) -> int:
    return record._journal.progress.through


def test_rows_about_the_process_stand_in_every_partition_under_one_operation(record):
    rows = record.everywhere("assign", "ok", record.now(), each=lambda where: {"assigned": where == HERE})
    assert [(row.topic, row.topic_id, row.partition, row.assigned) for row in rows] == [
        ("t", "id-t", 0, True), ("t", "id-t", 1, False), ("u", "id-u", 0, False),
    ]  # fmt: skip
    assert {row.op for row in rows} == {0}
    assert record.next_op() == 1


def test_nothing_is_promised_beyond_what_has_begun_or_is_open(record):
    record.alive()
    begun = record.begin()
    record.alive()
    assert through(record) == micros(begun.at)
    record.append([record.row(HERE, "poll", "ok", 0, begun, record.now())])
    record.alive()
    assert through(record) > micros(begun.at)
    opened = record.now()
    record.opened(1, [record.row(HERE, "send", "info", 1, opened, sent=[Run(2, 0, None, 5)])])
    record.alive()
    assert through(record) == micros(opened.at)
    record.append([record.row(HERE, "send", "ok", 1, opened, record.now(), sent=[Run(2, 0, 9, 5)])])
    record.idle()
    assert through(record) > micros(opened.at)


def test_reservations_are_made_in_large_ranges_and_only_when_needed(record):
    record.reserve(HERE, 10)
    size = record._journal.offset
    record.reserve(HERE, RESERVED_AT_ONCE)
    assert record._journal.offset == size
    record.reserve(HERE, RESERVED_AT_ONCE + 1)
    assert record._journal.offset > size
    assert record._journal.progress.sent["id-t", 0].reserved == 2 * RESERVED_AT_ONCE


def test_an_abandoned_life_is_complete_and_writes_no_more(record):
    invoked = record.now()
    record.opened(0, [record.row(HERE, "send", "info", 0, invoked, sent=[Run(2, 0, None, 5)])])
    other = threading.Thread(target=record.abandon, args=("_STUCK",))
    other.start()
    other.join()
    progress = record._journal.progress
    assert (progress.closed, progress.open) == (True, {})
    assert progress.ended == {("id-t", 0), ("id-t", 1), ("id-u", 0)}
    for late in (
        record.alive,
        lambda: record.append([]),
        lambda: record.opened(1, []),
        lambda: record.reserve(HERE, 1),
    ):
        with pytest.raises(Abandoned):
            late()
    record.end("ok")


def test_the_wall_clock_and_the_monotonic_clock_are_both_kept(record):
    row = record.row(HERE, "poll", "ok", 0, record.now(), record.now())
    assert row.mono_completed > row.mono_invoked
    assert row.completed - row.invoked < timedelta(seconds=1)
    assert row.boot == record.life.boot
