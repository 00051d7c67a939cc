"""Transforms on a real broker: every input once in the committed output, whatever happens to who writes it."""

from __future__ import annotations

import multiprocessing as mp
import random
import threading
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions

from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection, consumer_settings
from probes.kafka.errors import ClientError, Crash
from probes.records.polls import Polled
from probes.records.tag import Decoded, read
from probes.running.supervisor import Spec, Supervisor
from probes.topology import Layout, Partition
from probes.workloads.probe import World
from probes.workloads.transactional.transform import Transform
from probes.workloads.writer import Writer
from rules.vocabulary.slices import Run, Slice
from tests.known import known
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.test_reader import WRITER, Fetched, Handing, produce, tagged, until

Read = dict[int, list[tuple[int, Any]]]
"""By partition, (offset, tag) of every record that a read_committed reader is shown."""
MODES = pytest.mark.parametrize("id_per_partition", [False, True])


def transforming(stage: MakeStage, **config: Any) -> Stage:
    one: Stage = stage(transform={"count": 2, "abort_share": 0.0, **config})
    return one


def put(one: Stage, name: str = "transform-1") -> Transform:
    return one.put(Transform, name, timeout=60.0, group=f"{one.prefix}-transform")


def committed_records(one: Stage, topic: str) -> Read:
    """Everything from the beginning to the end, by a client of the test's own."""
    settings = consumer_settings(one.connection, client="t", group="none") | {"enable.partition.eof": "true"}
    consumer = Consumer(settings)
    partitions = [p for name, p in one.layout.partitions(topic)]
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    found: Read = {p: [] for p in partitions}
    ended: set[int] = set()
    limit = time.monotonic() + 180
    while len(ended) < len(partitions):
        assert time.monotonic() < limit
        for message in consumer.consume(1000, 0.2):
            if message.error():
                ended.add(message.partition())
            else:
                found[message.partition()].append((message.offset(), read(message.value())))
    consumer.close()
    return found


def assert_exactly_once(one: Stage) -> int:
    """Each input is the source of one record of the output partition of its number; returns how many there are."""
    inputs = committed_records(one, one.config.topics.transform_in)
    outputs = committed_records(one, one.config.topics.transform_out)
    for partition, records in inputs.items():
        expected = Counter((tag.writer, tag.seq, offset) for offset, tag in records)
        reflected = Counter(tuple(tag.source) for _, tag in outputs[partition])
        assert reflected == expected
    return sum(len(records) for records in inputs.values())


def feed(one: Stage, first: int = 0, count: int = 10) -> None:
    for partition in range(3):
        where = (one.config.topics.transform_in, partition)
        produce(one, where, tagged(where, first, count))


def transform_all(probe: Transform, trouble: str | None = None) -> list[Slice]:
    """One turn that had something to do; its transactions' rows."""
    before = len(witness(probe).of("txn"))
    until(lambda: len(witness(probe).of("txn")) > before, doing=lambda: probe.transform(trouble))
    return witness(probe).of("txn")[before:]


def group_offsets(one: Stage) -> dict[int, int]:
    group = f"{one.prefix}-transform"
    answer = one.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {tp.partition: tp.offset for tp in answer.topic_partitions}


def ends(rows: list[Slice], topic: str) -> dict[int, int | None]:
    return {row.partition: row.position_after for row in rows if row.topic == topic}


@MODES
def test_a_transaction_reflects_what_it_polled_and_commits_where_it_stands(
    stage: MakeStage, id_per_partition: bool
) -> None:
    one = transforming(stage, id_per_partition=id_per_partition)
    source, target = one.config.topics.transform_in, one.config.topics.transform_out
    probe = put(one)
    feed(one)
    rows: list[Slice] = []
    until(
        lambda: sum(r.length for row in rows for r in row.sent) == 30, doing=lambda: rows.extend(transform_all(probe))
    )
    assert {row.type for row in rows} == {"ok"}
    assert {(row.settings or {})["reads_from"] for row in witness(probe).of("start")} == {source}
    for op in {row.op for row in rows}:
        touched = {(row.topic, row.partition): row for row in rows if row.op == op}
        assert {tuple(sorted(known(row.txn_partitions))) for row in touched.values()} == {tuple(sorted(touched))}
        for (topic, partition), row in touched.items():
            assert (row.group, row.mode) == (f"{one.prefix}-transform", "subscribe")
            assert row.invoked < known(row.end_invoked) < row.completed
            if topic == target:
                polled = touched[source, partition].polled
                assert [r[:2] for r in row.sources] == [r[:2] for r in polled]
                assert [r.offset for r in row.sources] == [r.offset for r in polled]
                assert sum(r.length for r in row.sent) == sum(r.length for r in row.sources)
                assert all(r.offset is not None for r in row.sent)
            else:
                assert (row.committed, row.sent) == (row.position_after, ())
                assert row.position_before == row.polled[0].offset
    assert len({row.transactional_id for row in rows}) == (3 if id_per_partition else 1)
    inits = {row.transactional_id for row in witness(probe).of("init")}
    assert inits == {row.transactional_id for row in rows}
    assigned = {row.partition for row in witness(probe).of("assign") if row.assigned and row.topic == source}
    assert assigned == {0, 1, 2}
    until(lambda: group_offsets(one) == {0: 10, 1: 10, 2: 10})
    assert assert_exactly_once(one) == 30


def test_what_came_beside_a_fatal_error_is_logged_and_so_is_each_error(stage: MakeStage) -> None:
    one = transforming(stage)
    probe = put(one)
    client, here, there = probe._consumer, *((one.config.topics.transform_in, p) for p in (0, 1))
    (value,) = tagged(here, 0, 1)
    refused = KafkaError(KafkaError.KAFKA_STORAGE_ERROR)
    fatal = KafkaError(KafkaError._FATAL, "it is over", fatal=True)
    came = Handing(Fetched(here, 0, value), Fetched(there, 0, None, refused), Fetched((here[0], -1), 0, None, fatal))
    probe._consumer = probe.membership._consumer = came
    with pytest.raises(ClientError, match="it is over"):
        probe.transform()
    told = [(row.topic, row.partition, row.type, row.error, list(row.polled)) for row in witness(probe).of("poll")]
    assert told == [
        (*there, "info", "KAFKA_STORAGE_ERROR", []),
        *((here[0], p, "info", "_FATAL", []) for p in range(3)),
        (*here, "ok", None, [Run(WRITER, 0, 0, 1)]),
    ]
    assert not witness(probe).of("txn") and probe.counters.errors == 2
    probe._consumer = probe.membership._consumer = client


def test_its_positions_are_the_clients_own_and_where_that_is_stale_those_of_its_polls(stage: MakeStage) -> None:
    one = transforming(stage)
    probe = put(one)
    client, stale = probe._consumer, (one.config.topics.transform_in, 1)
    until(lambda: len(probe.membership.assigned) == 3, doing=probe.transform)
    probe.position = dict.fromkeys(probe.membership.assigned, 6)
    probe._consumer = Handing(position=388)
    went_back = Polled(Decoded([], []), 6, 0, 6)
    probe._positions.after(probe._consumer, {stale: went_back}, {stale: 20})
    probe._log_positions()
    rows = witness(probe).of("position")
    assert {row.partition: row.position_after for row in rows} == {0: 388, 1: 6, 2: 388}
    probe._consumer = client


@MODES
def test_an_input_partition_without_one_of_the_output_is_left_alone_until_there_is_one(
    stage: MakeStage, id_per_partition: bool
) -> None:
    """Somebody has added partitions to the one topic."""
    one = transforming(stage, id_per_partition=id_per_partition)
    source, target = one.config.topics.transform_in, one.config.topics.transform_out
    grow(one, source, 5)
    one.layout = one.topics.ensure()
    assert list(one.layout.partitions(source)) == [(source, 0), (source, 1), (source, 2)], "nobody writes there"
    assert one.said[-1] == f"topic {source} has 5 partitions, and {target} 3: those from 3 on are left alone"
    probe = put(one)
    produce(one, (source, 4), tagged((source, 4), 0, 10))
    feed(one)
    rows: list[Slice] = []
    until(
        lambda: sum(r.length for row in rows for r in row.sent) == 30, doing=lambda: rows.extend(transform_all(probe))
    )
    assert {row.type for row in rows} == {"ok"}
    until(lambda: group_offsets(one) == {0: 10, 1: 10, 2: 10})
    one.end()
    grow(one, target, 5)
    one.layout = one.topics.ensure()
    assert [topic.partitions for topic in one.layout.topics if topic.name in (source, target)] == [5, 5]
    probe = put(one, "transform-2")
    until(lambda: sum(r.length for row in transform_all(probe) for r in row.sent) == 10)
    until(lambda: group_offsets(one) == {0: 10, 1: 10, 2: 10, 4: 10})
    assert assert_exactly_once(one) == 40


def grow(one: Stage, topic: str, partitions: int) -> None:
    one.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
    until(lambda: len(one.topics.view().topics[topic].replicas) == partitions)


@MODES
def test_after_an_abort_the_same_inputs_come_again(stage: MakeStage, id_per_partition: bool) -> None:
    one = transforming(stage, id_per_partition=id_per_partition, abort_share=1.0)
    probe = put(one)
    feed(one)
    aborted = transform_all(probe)
    assert {(row.type, row.txn_intent, row.error) for row in aborted} == {("fail", "abort", None)}
    probe._config = probe._config.model_copy(update={"abort_share": 0.0})
    rows: list[Slice] = []
    until(
        lambda: sum(r.length for row in rows for r in row.sent) == 30, doing=lambda: rows.extend(transform_all(probe))
    )
    first = {row.partition: row.polled[0] for row in reversed(rows) if row.polled}
    assert all(first[row.partition] == row.polled[0] for row in aborted if row.polled)
    assert assert_exactly_once(one) == 30


@MODES
def test_a_rebalance_inside_a_transaction_aborts_it_and_is_in_its_rows(
    stage: MakeStage, id_per_partition: bool
) -> None:
    one = transforming(stage, id_per_partition=id_per_partition)
    probe = put(one)
    feed(one)
    rows = transform_all(probe, "rebalance")
    assert {(row.type, row.txn_intent, row.error) for row in rows} == {("fail", "commit", "_REVOKE_PARTITIONS")}
    assert {row.rebalanced for row in rows if row.polled} == {True}
    order = [row.f for row in witness(probe).rows if row.f in ("txn", "revoke", "subscribe")]
    assert [f for f, after in zip(order, [*order[1:], ""], strict=True) if f != after][-3:] == [
        "txn",
        "revoke",
        "subscribe",
    ]
    until(lambda: sum(group_offsets(one).values()) == 30, doing=probe.transform)
    assert assert_exactly_once(one) == 30


@MODES
@pytest.mark.parametrize("point", ["sent", "offsets", "end"])
def test_a_crash_leaves_it_in_doubt_and_the_next_life_goes_on_exactly_where_it_must(
    stage: MakeStage, id_per_partition: bool, point: str
) -> None:
    one = transforming(stage, id_per_partition=id_per_partition)
    crashed = put(one)
    feed(one)
    with pytest.raises(Crash):
        transform_all(crashed, point)
    crashed.membership.close()
    crashed.consumer.close()
    crashed.log.end("info", Crash.code)
    rows = [row for row in one.read_journal(crashed) if row.f == "txn"]
    assert {row.error for row in rows if row.type == "info"} == {"_CRASHED"}
    assert any(row.end_invoked for row in rows if row.type == "info") == (point == "end")
    follower = put(one)

    def assigned() -> list[int]:
        return [row.op for row in witness(follower).of("assign") if row.assigned]

    # What was in doubt may have come true, and nothing be left to do.
    until(lambda: assigned() and sum(group_offsets(one).values()) == 30, doing=follower.transform)
    inits = [row.op for row in witness(follower).of("init")]
    assert min(inits) < min(assigned())
    assert assert_exactly_once(one) == 30


def specs(one: Stage, *names: str) -> list[Spec]:
    options = (("timeout", 5.0), ("group", f"{one.prefix}-transform"))
    return [Spec(name, Transform, options) for name in names]


def _child(config: ProbesConfig, bootstrap: str, layout: Layout, folder: Path, ready: Any, seed: float) -> None:
    random.seed(seed)
    world = World(config, Connection(bootstrap), SystemClock(), "run-a", frozenset({"run-a"}), lambda: layout)
    options = (("timeout", 5.0), ("group", f"{config.topics.prefix}-transform"))
    supervisor = Supervisor([Spec("transform-2", Transform, options)], world, folder)
    supervisor.start()
    while not supervisor.status()[0].transactions_committed:
        time.sleep(0.02)
    ready.set()
    threading.Event().wait()


@MODES
def test_whoever_is_killed_or_thrown_out_each_input_is_reflected_once(
    stage: MakeStage, tmp_path: Path, id_per_partition: bool
) -> None:
    one = transforming(
        stage,
        id_per_partition=id_per_partition,
        abort_share=0.2,
        rate=20.0,
        timeouts=[5.0],
        records=20,
    )
    one.config = one.config.model_copy(
        update={
            "unrest": one.config.unrest.model_copy(update={"enabled": True, "mean_interval": 6.0}),
            "supervision": one.config.supervision.model_copy(update={"backoff": 0.2}),
        }
    )
    quiet = one.config.model_copy(update={"unrest": one.config.unrest.model_copy(update={"enabled": False})})
    writing = World(quiet, one.connection, one.clock, "run-a", frozenset({"run-a"}), lambda: one.layout)
    options = (("topic", one.config.topics.transform_in), ("rate", 200.0))
    writer = Supervisor([Spec("feed", Writer, options)], writing, tmp_path / "feed")
    transforms = Supervisor(specs(one, "transform-1"), one.world, tmp_path / "threads")
    writer.start()
    transforms.start()
    context = mp.get_context("spawn")
    for number in range(2):
        ready = context.Event()
        folder = tmp_path / f"child-{number}"
        child = context.Process(
            target=_child, args=(one.config, one.connection.bootstrap, one.layout, folder, ready, number), daemon=True
        )
        child.start()
        assert ready.wait(300), "it takes part"
        time.sleep(random.random())
        child.kill()
        child.join()
    until(lambda: writer.status()[0].acknowledged > 1000 or time.sleep(0.1))  # type: ignore[func-returns-value]
    writer.stop()
    total = writer.status()[0].acknowledged
    assert total > 1000
    end = time.monotonic() + 300
    starts: dict[Partition, int] = {}
    while time.monotonic() < end:
        starts = {(tp, p): at for p, at in group_offsets(one).items() for tp in [one.config.topics.transform_in]}
        if sum(starts.values()) >= total and outputs_settled(one, total):
            break
        time.sleep(0.5)
    status = transforms.status()
    transforms.stop()
    assert status[0].transactions_aborted > 0
    assert assert_exactly_once(one) == total


def outputs_settled(one: Stage, total: int) -> bool:
    found = committed_records(one, one.config.topics.transform_out)
    return len(list(chain.from_iterable(found.values()))) >= total


@MODES
def test_a_client_that_takes_the_output_for_gone_is_left(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch, id_per_partition: bool
) -> None:
    def gone(*_: object) -> int:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))

    one = transforming(stage, id_per_partition=id_per_partition)
    feed(one)
    probe = put(one)
    with monkeypatch.context() as lost:
        lost.setattr("probes.records.delivery.queue", gone)
        with pytest.raises(ClientError, match=r"\(_UNKNOWN_TOPIC\)"):
            transform_all(probe)
    assert {(row.type, row.error) for row in witness(probe).of("txn")} == {("fail", "_UNKNOWN_TOPIC")}
