"""The observer on a real broker."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from probes.client import Connection, consumer_settings
from probes.observer import Observer
from tests.probes.conftest import witness


def test_committed_offsets_are_read_back_when_they_change_and_absent_is_not_zero(stage):
    one = stage()
    here, group = one.config.topics.records, f"{one.prefix}-g"
    consumer = Consumer(consumer_settings(one.connection, client="t", group=group))
    consumer.commit(offsets=[TopicPartition(here, 0, 0)], asynchronous=False)
    observer = one.put(Observer, "observer", groups=[group])
    observer.observe()
    rows = [row for row in witness(observer).of("offsets") if row.group == group]
    assert {(row.topic, row.partition): row.committed for row in rows} == {
        where: (0 if where == (here, 0) else None) for where in one.layout.partitions()
    }
    consumer.commit(offsets=[TopicPartition(here, 1, 5)], asynchronous=False)
    observer.observe()
    consumer.close()
    news = [row for row in witness(observer).of("offsets") if row.group == group][len(rows) :]
    assert [(row.partition, row.committed) for row in news] == [(1, 5)]


def test_it_observes_once_a_second_and_keeps_the_time_of_asking(stage):
    one = stage(observer={"interval": 0.3})
    observer = one.put(Observer, "observer")
    end = time.monotonic() + 1.6
    while time.monotonic() < end:
        observer.turn()
    rows = [r for r in witness(observer).of("offsets") if (r.topic, r.partition) == (one.config.topics.records, 0)]
    assert 4 <= len(rows) <= 7
    assert all(row.invoked < row.completed for row in rows)
    assert all(row.mono_invoked < row.mono_completed for row in rows)


def test_a_topic_that_was_made_again_is_another_place(stage):
    one = stage()
    observer = one.put(Observer, "observer")
    observer.observe()
    assert one.changes == 0
    name = one.config.topics.records
    one.admin.delete_topics([name])[name].result()
    end = time.monotonic() + 10
    while not one.changes and time.monotonic() < end:
        observer.observe()
        time.sleep(0.1)
    assert one.changes, "that it has gone is noticed"
    before = one.layout.topic_id(name)
    again = one.topics.ensure()
    assert again.topic_id(name) != before
    assert not again.same_places(one.layout)
    noticed = one.changes
    observer.observe()
    assert one.changes > noticed, "and so is the new one"


def test_where_nobody_answers_there_is_a_row_all_the_same(stage):
    one = stage(observer={"request_timeout": 0.5})
    one.connection = Connection("127.0.0.1:9")
    observer = one.put(Observer, "observer", groups=["g"])
    observer.finish()
    rows = witness(observer).of("offsets")
    assert {(row.type, row.group) for row in rows} == {("info", None), ("info", "g")}
    assert len(rows) == 12
    assert all(row.error and row.log_end is None and row.committed is None for row in rows)
