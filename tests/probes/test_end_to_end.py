"""The end-to-end probe on a real broker: what it measures, and what it does while there is nothing to measure."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from probes.clock import SystemClock
from probes.kafka.errors import ClientError
from probes.records.tag import Encoder
from probes.topics.probe_topics import layout_of
from probes.workloads.end_to_end import EndToEnd
from probes.workloads.observer import Observer
from probes.workloads.probe import Probe
from probes.workloads.reader import Reader
from probes.workloads.registers import Registers
from probes.workloads.transactional.transactions import Transactions
from probes.workloads.writer import Writer
from tests.known import known
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.log.lives import wait_for


def turns(probe: Probe, seconds: float) -> None:
    limit = time.monotonic() + seconds
    with suppress(ClientError):  # as its supervisor does
        while time.monotonic() < limit:
            probe.turn()


def test_every_record_comes_back_and_is_measured_at_its_partitions_leader(stage: MakeStage) -> None:
    one = stage(end_to_end={"interval": 0.1, "objective": 600.0})
    probe = one.put(EndToEnd, "end-to-end")
    other = one.put(Writer, "writer")
    while probe.counters.polled < 30:
        probe.turn()
        other.turn()  # others' records pass by
    levels = probe.counters.levels
    place = (one.config.topics.records, "1")
    assert set(levels.tries) == {(what, place) for what in ("produce", "end-to-end", "consume")}
    for what in ("end-to-end", "consume"):
        tries = levels.tries[what, place]
        assert (tries.total, tries.failed, tries.late) == (probe.counters.polled, 0, 0)
    came = levels.latencies["end-to-end", place]
    assert came.counts.sum() == probe.counters.polled
    acknowledged = levels.latencies["produce", place]
    assert acknowledged.counts.sum() == probe.counters.acknowledged
    assert came.seconds > 0
    assert dict(came.classic)[1.0] > came.counts.sum() / 2, "not the time that others' records stood there"
    rows = witness(probe).of("send")
    assert {row.type for row in rows} == {"ok"}
    assert {row.partition for row in rows} == {0, 1, 2}
    assert not witness(probe).of("poll", "assign", "commit"), "its reading is no evidence"


def test_of_many_partitions_some_are_tried_at_a_time(stage: MakeStage) -> None:
    one = stage(end_to_end={"interval": 0.05, "partitions": 2})
    probe = one.put(EndToEnd, "end-to-end")
    while probe.counters.sent < 6:
        probe.turn()
    sends = [row for row in witness(probe).of("send") if row.type == "ok"]
    assert sorted(row.partition for row in sends) == [0, 0, 1, 1, 2, 2]


def test_a_record_that_nobody_sends_back_is_a_failure_of_its_promise_alone(stage: MakeStage) -> None:
    """Its own consumer is taken away from the partitions: written, and not read."""
    one = stage(end_to_end={"interval": 0.1, "objective": 0.5})
    probe = one.put(EndToEnd, "end-to-end")
    known(probe._consumer).unassign()
    place = (one.config.topics.records, "1")
    levels = probe.counters.levels
    limit = time.monotonic() + 180
    while not {("consume", place), ("end-to-end", place)} <= levels.tries.keys():
        assert time.monotonic() < limit
        turns(probe, 2.0)
    assert levels.tries["produce", place].failed == 0
    assert levels.tries["consume", place].failed == levels.tries["consume", place].total > 0
    assert levels.tries["end-to-end", place].failed == levels.tries["end-to-end", place].total > 0
    assert set(levels.succeeded) == {"produce"}


def test_other_probes_measure_what_they_do_anyway(stage: MakeStage) -> None:
    one = stage(reader={"commit_interval": 0.2}, transaction={"rate": 20, "abort_share": 0.0}, registers={"count": 1})
    writer, register = one.put(Writer, "writer"), one.put(Registers, "registers")
    transactions = one.put(Transactions, "transactions", timeout=60.0, stable=True, group=f"{one.prefix}-t")
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g", mode="subscribe")
    observer = one.put(Observer, "observer")
    limit = time.monotonic() + 180
    while not {"offset-commit", "rebalance"} <= reader.counters.levels.succeeded.keys():
        assert time.monotonic() < limit
        for probe in (writer, reader, register):
            probe.turn()
    while "transaction-commit" not in transactions.counters.levels.succeeded:
        transactions.turn()
    while "metadata" not in observer.counters.levels.succeeded:
        observer.turn()
    for probe, topic in ((writer, one.config.topics.records), (register, one.config.topics.registers)):
        took = probe.counters.levels.latencies["produce", (topic, "1")]
        assert took.counts.sum() >= probe.counters.acknowledged > 0
        assert took.seconds / took.counts.sum() < 60
    assert ("produce", (one.config.topics.transactions, "1")) not in transactions.counters.levels.latencies, "it polls"
    assert writer.counters.levels.tries["produce", (one.config.topics.records, "1")].failed == 0
    measured: tuple[tuple[Probe, str], ...] = (
        (reader, "offset-commit"),
        (reader, "rebalance"),
        (transactions, "transaction-commit"),
        (observer, "metadata"),
    )
    for one_of_them, what in measured:
        took = one_of_them.counters.levels.latencies[what, ("", "")]
        assert took.counts.sum() > 0
        assert 0 < took.seconds / took.counts.sum() < 60


def test_a_tag_of_another_writer_is_not_taken_for_ones_own(stage: MakeStage) -> None:
    one = stage(end_to_end={"interval": 60})
    probe = one.put(EndToEnd, "end-to-end")
    probe.turn()
    where = (one.config.topics.records, 0)
    stranger = Encoder(run="run-a", writer=known(probe.writer) + 1, topic=where[0], partition=0, size=256)
    known(probe._producer).produce(where[0], stranger.encode(range(0, 1), sent=0)[0], partition=0)
    assert known(probe._producer).flush(60) == 0
    probe.send([where])  # it stands behind the stranger's: once it has come, that one has come too
    while len(probe.trips):
        probe.turn()
    assert probe.counters.polled == 4


def test_what_was_sent_to_a_topic_that_somebody_deletes_is_no_failure_of_the_clusters(stage: MakeStage) -> None:
    """The lives of those who write there end, and their successors wait until it is there again."""
    one = stage(end_to_end={"interval": 0.1, "objective": 60.0})
    past = [0]
    one.clock = SystemClock(monotonic_ns=lambda: time.monotonic_ns() + past[0])
    probe, writer = one.put(EndToEnd, "end-to-end"), one.put(Writer, "writer")
    while probe.counters.polled < 9:
        probe.turn()
    writer.turn()
    topic = one.config.topics.records
    one.admin.delete_topics([topic])[topic].result(60)
    wait_for(lambda: topic not in one.topics.view().topics)
    sent = {each: each.counters.sent for each in (probe, writer)}

    def work(each: EndToEnd | Writer) -> None:
        with suppress(ClientError):  # as its supervisor does
            while each.measure.in_place:
                each.turn()

    working = [threading.Thread(target=work, args=(each,)) for each in sent]
    for thread in working:
        thread.start()
    wait_for(lambda: all(each.counters.sent > before for each, before in sent.items()))
    one.layout = layout_of(one.topics.view(), one.topics.names)  # as the fleet does once the observer tells of it
    for thread in working:
        thread.join()
    assert not probe.measure.in_place
    past[0] = 61_000_000_000
    turns(probe, 1.0)
    for ended in (probe, writer):
        assert ended.counters.sent > ended.counters.acknowledged
        for tried in ended.counters.levels.tries.values():
            assert (tried.failed, tried.total > 0) == (0, True)


@pytest.mark.kafka
def test_an_outage_counts_while_it_lasts_and_what_comes_afterwards_was_late(tmp_path: Path) -> None:
    """The only broker stands still until that is told, and goes on."""
    during = []

    def go_on() -> None:
        try:
            wait_for(lambda: probe.counters.levels.tries[key].failed - first.tries[key].failed >= 3)
        finally:
            during.append(probe.counters.levels.copy())
            cluster.broker(1).resume()

    with LocalKafka(tmp_path / "kafka", brokers=1) as cluster:
        one = Stage(cluster.bootstrap, tmp_path / "journal", end_to_end={"interval": 0.1, "objective": 1.0})
        key = ("end-to-end", (one.config.topics.records, "1"))
        probe = one.put(EndToEnd, "end-to-end")
        while probe.counters.polled < 9:
            probe.turn()
        first = probe.counters.levels.copy()
        cluster.broker(1).pause()
        watching = threading.Thread(target=go_on)
        watching.start()
        while not during or probe.trips:
            probe.turn()
        watching.join()
        one.end()
    well, before, after = first.tries[key], during[0].tries[key], probe.counters.levels.tries[key]
    assert before.failed - well.failed >= 3, "told while nobody answers"
    assert after.failed == after.late >= before.failed
    assert after.total > after.failed
    upto = dict(probe.counters.levels.latencies[key].classic)
    assert upto[math.inf] == after.total, "the latency of late ones is told as well"
    assert upto[1.0] <= after.total - after.failed
