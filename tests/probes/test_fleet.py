"""The whole fleet on a real cluster, with its log in a Delta table: whatever happens, the log agrees with itself."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from deploy.local_kafka import LocalKafka
from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.kafka.errors import ProbeError, Unreachable
from probes.log.commits import compaction
from probes.log.commits.holding import Holding
from probes.running.drain import ProbeLog, drain
from probes.running.fleet import Fleet, specs
from probes.running.probe_run import run_id
from probes.topics.probe_topics import ProbeTopics
from probes.topology import Broker
from rules.vocabulary.slices import SLICE_SCHEMA
from tests.known import known
from tests.waiting import looks

Row = dict[str, Any]


def config(**changes: Any) -> ProbesConfig:
    base: dict[str, Any] = {
        "topics": {"prefix": f"fleet-{uuid.uuid4().hex[:8]}", "partitions": 3},
        "writer": {"rate": 400},
        "reader": {"commit_interval": 1.0, "position_interval": 1.0},
        "transaction": {"count": 3, "timeouts": [2, 1, 2], "rate": 4},
        "unrest": {"enabled": False},
    }
    return ProbesConfig.model_validate(base | changes)


def read(history: Path) -> list[Row]:
    rows = QueryBuilder().register("history", DeltaTable(str(history))).execute("select * from history")
    return [row for batch in rows for row in pa.record_batch(batch).to_pylist()]


def last_stable(kafka: LocalKafka, topic: str, partition: int) -> int:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    where = TopicPartition(topic, partition)
    for patience in (30, 30, 60):
        asked = admin.list_offsets({where: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
        with suppress(KafkaException):  # a machine that busy does not always tell it who leads in time
            return int(asked[where].result(patience).offset)
    raise AssertionError("nobody tells where the partition ends")


def holding(kafka: LocalKafka, topic: str, partition: int) -> Producer:
    """A producer whose transaction is open, with a record in the partition that has arrived there."""
    for _ in range(5):
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "transactional.id": uuid.uuid4().hex,
                "transaction.timeout.ms": 600_000,
            }
        )
        producer.init_transactions()
        producer.begin_transaction()
        delivered: list[int | None] = []
        producer.produce(
            topic,
            b"held",
            partition=partition,
            on_delivery=lambda error, record, delivered=delivered: delivered.append(None if error else record.offset()),
        )
        producer.flush()
        if delivered == [last_stable(kafka, topic, partition)]:
            return producer
    raise AssertionError("a broker that is too busy to open a transaction")


def unfold(runs: list[Row] | None) -> list[tuple[int, int, int | None]]:
    return [
        (run["writer"], run["seq"] + i, None if run["offset"] is None else run["offset"] + i)
        for run in runs or ()
        for i in range(run["length"])
    ]


class History:
    """What a log says, record by record."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.invoked: set[tuple[Any, ...]] = set()
        self.acknowledged: set[tuple[Any, ...]] = set()
        self.failed: set[tuple[Any, ...]] = set()
        self.polled: dict[int, Counter[tuple[Any, ...]]] = defaultdict(Counter)
        self.values: dict[tuple[Any, ...], set[tuple[int, int]]] = defaultdict(set)
        for row in rows:
            place = (row["topic_id"], row["partition"])
            for writer, seq, offset in unfold(row["sent"]):
                self.invoked.add((*place, writer, seq))
                if row["type"] == "ok":
                    self.acknowledged.add((*place, writer, seq))
                elif row["type"] == "fail":
                    self.failed.add((*place, writer, seq))
                if offset is not None:
                    self.values[*place, offset].add((writer, seq))
            for writer, seq, offset in unfold(row["polled"]):
                self.polled[row["process"]][*place, writer, seq] += 1
                self.values[*place, offset].add((writer, seq))

    @property
    def seen(self) -> set[tuple[Any, ...]]:
        return set().union(*self.polled.values())

    def check(self) -> None:
        """What must hold of any log that honest probes write of an honest cluster."""
        slices: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for row in self.rows:
            slices[row["topic_id"], row["partition"], row["process"]].append(row["slice"])
        assert all(sorted(numbers) == list(range(len(numbers))) for numbers in slices.values())
        assert all(len(values) == 1 for values in self.values.values()), "one value an offset"
        places = Counter((*at[:2], *value) for at, values in self.values.items() for value in values)
        assert set(places.values()) == {1}, "one offset a value"
        assert self.seen <= self.invoked
        assert not self.seen & self.failed
        assert not [one for row in self.rows for one in row["irregular"] or ()]
        ends: dict[int, set[str]] = defaultdict(set)
        for row in self.rows:
            ends[row["process"]].add(row["f"])
        assert all({"start", "close"} <= functions or functions == {"mark"} for functions in ends.values())


def until(condition: Callable[[], object], within: float = 300.0) -> None:
    end = time.monotonic() + within
    for _ in looks(0.1):
        if condition():
            return
        assert time.monotonic() < end, "it did not happen in time"


def test_the_fleet_is_what_was_asked_for() -> None:
    asked = config(reader={"assign": 2, "group": 2, "restless": 1}, transaction={"count": 4})
    made = {spec.name: dict(spec.options) for spec in specs(asked, "r", [Broker(1, "h:1"), Broker(2, "h:2")])}
    assert Counter(name.rstrip("0123456789-") for name in made) == {
        "writer": 1,
        "writer-five": 1,
        "reader": 2,
        "reader-group": 2,
        "reader-restless": 1,
        "reader-broker": 2,
        "transactions": 4,
        "transform-feed": 1,
        "transform": 2,
        "aborts": 1,
        "audit": 1,
        "registers": 3,
        "observer": 1,
        "end-to-end": 1,
        "zombies": 1,
    }
    assert [made[f"transactions-{i}"]["stable"] for i in (1, 2, 3, 4)] == [True, False, True, False]
    assert [made[f"transactions-{i}"]["timeout"] for i in (1, 2, 3, 4)] == [60, 10, 1, 60]
    assert made["reader-broker-2"]["bootstrap"] == "h:2"
    assert made["reader-group-1"]["group"] == made["reader-group-2"]["group"]
    assert made["transform-1"]["group"] == made["transform-2"]["group"]
    assert [made[f"transform-{i}"]["timeout"] for i in (1, 2)] == [10, 60]
    assert (made["transform-feed"]["topic"], made["transform-feed"]["rate"]) == (asked.topics.transform_in, 20)
    committing = {o["group"] for name, o in made.items() if "group" in o and name != "audit"}
    assert set(made["observer"]["groups"]) == committing
    few = config(transform={"count": 0}, aborts={"count": 0}, audit={"enabled": False})
    left = {spec.kind for spec in specs(few, "r", [])}
    assert left == {"writer", "reader", "transactions", "registers", "end-to-end", "zombies", "observer"}


def test_a_run_keeps_its_id_as_long_as_its_folder(tmp_path: Path) -> None:
    first = run_id(config(), tmp_path / "a")
    assert run_id(config(), tmp_path / "a") == first != run_id(config(), tmp_path / "b")
    assert run_id(config(run="mine"), tmp_path / "a") == "mine"
    (tmp_path / "a" / "run").write_text("no id at all")
    with pytest.raises(ProbeError, match="does not hold"):
        run_id(config(), tmp_path / "a")


def test_a_cluster_that_does_not_answer_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.topics.probe_topics.REQUEST_TIMEOUT", 1.0)
    fleet = Fleet(config(), Connection("127.0.0.1:9"), tmp_path / "journal", SystemClock())
    with pytest.raises(Unreachable, match="no broker"):
        fleet.start()
    fleet.stop()


HAPPENS = {
    ("send", "ok"),
    ("send", "info"),
    ("poll", "ok"),
    ("txn", "ok"),
    ("txn", "fail"),
    ("commit", "ok"),
    ("init", "ok"),
    ("assign", "ok"),
    ("subscribe", "ok"),
    ("position", "ok"),
    ("offsets", "ok"),
    ("start", "ok"),
    ("close", "info"),
    ("mark", "ok"),
}


def happened(rows: list[Row]) -> set[tuple[str, str]]:
    return {(row["f"], row["type"]) for row in rows}


@pytest.mark.kafka
def test_the_topics_are_asked_about_by_a_new_client_once_the_login_is_another_one(tmp_path: Path) -> None:
    login = {"sasl.username": "u", "sasl.password": "old", "sasl.mechanism": "PLAIN"}
    login["security.protocol"] = "SASL_PLAINTEXT"
    fleet = Fleet(config(), Connection("127.0.0.1:9", lambda: dict(login)), tmp_path, SystemClock())
    fleet._login, fleet._topics = fleet._connection.login(), ProbeTopics(AdminClient({}), fleet._config.topics)
    first = fleet._topics._admin
    fleet._come_in_anew()
    assert fleet._topics._admin is first
    login["sasl.password"] = "new"
    fleet._come_in_anew()
    second = fleet._topics._admin
    fleet._come_in_anew()
    assert first is not second is fleet._topics._admin


def test_a_restless_fleet_logs_the_truth_and_nothing_is_lost(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows wait from the first second on."""
    monkeypatch.setattr("probes.running.fleet.Holding", partial(Holding, alert=0.0))
    asked = config(unrest={"mean_interval": 1.5, "seed": 7})
    where = (tmp_path / "journal", SystemClock())
    fleet = Fleet(asked, Connection(kafka.bootstrap), *where, history=tmp_path / "history")
    fleet.stands_out = lambda rows: False
    began = time.monotonic()
    fleet.start()
    until(lambda: sum(probe.acknowledged for probe in fleet.status().probes) > 1000)
    until(lambda: sum(probe.lives for probe in fleet.status().probes) > 2 * len(fleet.status().probes))
    until(lambda: known(fleet.status().committer).rows > 100)
    until(lambda: happened(read(tmp_path / "history")) >= HAPPENS)
    appended, seconds = known(fleet.status().committer).version, time.monotonic() - began
    assert 1 < appended <= 1 + seconds / (asked.hold - 0.5), (appended, seconds)
    fleet.stop()
    assert {probe.state for probe in fleet.status().probes} == {"stopped"}
    drained = drain(asked, Connection(kafka.bootstrap), ProbeLog(where[0], tmp_path / "history"), where[1], limit=180)
    history = History(read(tmp_path / "history"))
    history.check()
    assert drained.acknowledged == len(history.acknowledged) > 1000
    assert (drained.missing, drained.expired, drained.complete) == ({}, {}, True)
    assert history.acknowledged <= history.seen
    assert happened(history.rows) >= HAPPENS | {("close", "ok")}
    again = Fleet(asked, Connection(kafka.bootstrap), *where, history=tmp_path / "history")
    again.start()
    until(lambda: sum(probe.acknowledged for probe in again.status().probes) > 200)
    again.stop()
    history = History(read(tmp_path / "history"))
    history.check()
    names = ("writer", "reader-", "observer")
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)])


@pytest.mark.kafka
def test_the_drain_names_what_is_missing(kafka: LocalKafka, tmp_path: Path) -> None:
    asked = config(transaction={"count": 0}, writer={"rate": 200, "with_five_in_flight": 0})
    where = (tmp_path / "journal", SystemClock())
    fleet = Fleet(asked, Connection(kafka.bootstrap), *where, history=tmp_path / "history")
    fleet.start()
    until(lambda: sum(probe.acknowledged for probe in fleet.status().probes) > 200)
    fleet.stop()
    # What nobody sees any more because it was deleted has expired; what the log never held is lost.
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    first = TopicPartition(asked.topics.records, 0, 20)
    admin.delete_records([first])[first].result()
    history = tmp_path / "history"
    sent = [
        row
        for row in read(history)
        if row["f"] == "send" and row["partition"] == 1 and row["topic"] == asked.topics.records
    ]
    lost = max(sent, key=lambda row: row["sent"][-1]["offset"])
    end = lost["sent"][-1]["offset"] + lost["sent"][-1]["length"]
    phantom = lost | {"sent": [lost["sent"][-1] | {"seq": 10**6, "offset": end, "length": 3}]}
    write_deltalake(str(history), pa.Table.from_pylist([phantom], schema=SLICE_SCHEMA), mode="append")
    drained = drain(asked, Connection(kafka.bootstrap), ProbeLog(where[0], history), where[1], limit=10)
    (missing,) = drained.missing[asked.topics.records, 1]
    assert (missing.seq, missing.offset, missing.length) == (10**6, end, 3)
    assert not drained.complete
    assert sum(run.length for run in drained.expired[asked.topics.records, 0]) == 20
    assert set(drained.missing) | set(drained.expired) == {(asked.topics.records, 0), (asked.topics.records, 1)}


@pytest.mark.kafka
def test_what_an_open_transaction_holds_is_not_lost(kafka: LocalKafka, tmp_path: Path) -> None:
    """It cannot be read yet. What is missing elsewhere, below the last stable offset, or from the log's end on is lost
    all the same."""
    asked = config(transaction={"count": 0}, writer={"rate": 200, "with_five_in_flight": 0})
    where, topic = (tmp_path / "journal", SystemClock()), asked.topics.records
    fleet = Fleet(asked, Connection(kafka.bootstrap), *where, history=tmp_path / "history")
    fleet.start()
    until(lambda: sum(probe.acknowledged for probe in fleet.status().probes) > 200)
    hanging = holding(kafka, topic, 1)
    before = sum(probe.acknowledged for probe in fleet.status().probes)
    until(lambda: sum(probe.acknowledged for probe in fleet.status().probes) > before + 200)
    fleet.stop()
    history = tmp_path / "history"
    # Of this topic alone: the fleet sends to others too, and the log's rows come in no order.
    sent = [row for row in read(history) if row["f"] == "send" and row["sent"] and row["topic"] == topic]
    ends = {
        n: max(run["offset"] + run["length"] for row in sent if row["partition"] == n for run in row["sent"])
        for n in range(2)
    }
    phantoms = []
    for n, seq, offset in ((0, 10**6, 5), (1, 10**6, 5), (1, 2 * 10**6, ends[1] + 9), (1, 3 * 10**6, None)):
        like = next(row for row in sent if row["partition"] == n)
        phantoms.append(like | {"sent": [like["sent"][0] | {"seq": seq, "offset": offset, "length": 3}]})
    write_deltalake(str(history), pa.Table.from_pylist(phantoms, schema=SLICE_SCHEMA), mode="append")
    drained = drain(asked, Connection(kafka.bootstrap), ProbeLog(where[0], history), where[1], limit=15)
    still_open = last_stable(kafka, topic, 1) < ends[1]
    hanging.abort_transaction()
    assert still_open and drained.holds, drained.rounds
    assert {(*of, run.seq, run.offset, run.length) for of, runs in drained.missing.items() for run in runs} == {
        (topic, 0, 10**6, 5, 3),
        (topic, 1, 10**6, 5, 3),
        (topic, 1, 2 * 10**6, ends[1] + 9, 3),
    }
    assert (set(drained.unreadable), drained.expired, drained.complete) == ({(topic, 1)}, {}, False)
    hold = drained.holds[topic, 1]
    assert set(drained.holds) == {(topic, 1)} and hold.end == ends[1]
    held = {
        (run[0], run[1])
        for row in sent
        if row["partition"] == 1
        for run in unfold(row["sent"])
        if row["type"] == "ok" and run[2] is not None and run[2] >= hold.last_stable
    }
    told = {(run.writer, run.seq + i) for run in drained.unreadable[topic, 1] for i in range(run.length)}
    assert {one for one in told if one[1] < 10**6} == held and len(held) > 20
    assert {one[1] for one in told if one[1] >= 10**6} == {3 * 10**6 + i for i in range(3)}


@pytest.mark.kafka
def test_every_probe_may_have_a_process_of_its_own(kafka: LocalKafka, tmp_path: Path) -> None:
    asked = config(
        reader={"assign": 1, "group": 0, "restless": 0, "per_broker": False},
        writer={"rate": 400, "with_five_in_flight": 0},
        transaction={"count": 0},
        supervision={"host": "processes", "close_within": 60},
    )
    # As where the host's clock was set back by an hour since the fleet began.
    clock, ahead = SystemClock(), timedelta(hours=1)
    clock.follow(began := clock.now() + ahead, clock.monotonic_ns())
    fleet = Fleet(asked, Connection(kafka.bootstrap), tmp_path / "journal", clock, history=tmp_path / "history")
    fleet.start()
    until(lambda: {p.kind: p.polled for p in fleet.status().probes}["reader"] > 200)
    fleet.stop_sending()
    sent = sum(probe.acknowledged for probe in fleet.status().probes)
    until(lambda: {p.kind: p.polled for p in fleet.status().probes}["reader"] >= sent)
    until(lambda: (log := History(read(tmp_path / "history"))).acknowledged <= log.seen)
    fleet.stop()
    history = History(read(tmp_path / "history"))
    history.check()
    assert history.acknowledged == history.seen
    assert {row["type"] for row in history.rows if row["f"] == "close"} == {"ok"}
    assert all(row["completed"] >= began for row in history.rows), "each process goes on with the clock of the fleet"


@pytest.mark.kafka
def test_an_outage_is_no_failure_and_the_probes_go_on_afterwards(tmp_path: Path) -> None:
    asked = config(
        writer={"rate": 100, "delivery_timeout": 2},
        transaction={"count": 1, "timeouts": [2]},
        reader={"group": 1, "restless": 0},
    )
    with LocalKafka(tmp_path / "kafka", brokers=1) as cluster:
        fleet = Fleet(
            asked, Connection(cluster.bootstrap), tmp_path / "journal", SystemClock(), history=tmp_path / "history"
        )
        fleet.start()
        until(lambda: sum(probe.acknowledged for probe in fleet.status().probes) > 100)
        cluster.broker(1).kill()
        until(lambda: any(p.kind == "writer" and p.indefinite for p in fleet.status().probes))
        cluster.broker(1).start()
        before = {p.name: p.acknowledged for p in fleet.status().probes}
        until(lambda: all(p.acknowledged > before[p.name] + 20 for p in fleet.status().probes if p.kind == "writer"))
        until(lambda: all(p.polled > 50 for p in fleet.status().probes if p.name in ("reader-1", "reader-broker-1")))
        fleet.stop()
    history = History(read(tmp_path / "history"))
    history.check()
    sends = Counter((row["type"], row["error"]) for row in history.rows if row["f"] == "send")
    assert sends["info", "_MSG_TIMED_OUT"] > 0
    assert not [key for key in sends if key[0] == "fail"]


@pytest.mark.kafka
def test_a_log_that_no_monitor_compacts_stays_small(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "keep_compact", partial(compaction.keep_compact, every=0.2, most=5))
    asked = config(transaction={"count": 0}, reader={"group": 0, "restless": 0, "per_broker": False})
    fleet = Fleet(asked, Connection(kafka.bootstrap), tmp_path / "journal", SystemClock(), history=tmp_path / "history")
    fleet.start()
    log = tmp_path / "history"
    try:
        until(lambda: DeltaTable.is_deltatable(str(log)))
        until(lambda: "OPTIMIZE" in [one["operation"] for one in DeltaTable(log).history()])
    finally:
        fleet.stop()


@pytest.mark.kafka
def test_a_topic_of_others_that_is_away_for_a_moment_is_found_again(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reports that it is back: no probe asks for what is not there."""
    asked = config(topics={"manage": False, "prefix": f"theirs-{uuid.uuid4().hex[:8]}"}, transaction={"count": 0})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def make(*names: str) -> None:
        for future in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
            future.result()

    make(*asked.topic_names)
    monkeypatch.setattr("probes.running.fleet.UPKEEP_INTERVAL", 3600.0)
    fleet = Fleet(asked, Connection(kafka.bootstrap), tmp_path / "journal", SystemClock(), history=tmp_path / "h")
    fleet.start()
    one = asked.topics.records

    def there() -> bool:
        return any(known(fleet.status().layout).partitions(one))

    until(there)
    admin.delete_topics([one])[one].result()
    until(lambda: not there())
    make(one)
    until(there)
    fleet.stop()


@pytest.mark.kafka
def test_a_topic_that_is_made_again_means_new_places_for_all(kafka: LocalKafka, tmp_path: Path) -> None:
    quiet = {"group": 0, "restless": 0, "per_broker": False}
    asked = config(transaction={"count": 0}, reader=quiet, end_to_end={"count": 0})
    said: list[str] = []
    fleet = Fleet(
        asked, Connection(kafka.bootstrap), tmp_path / "journal", SystemClock(), history=tmp_path / "h", say=said.append
    )
    fleet.start()
    until(lambda: sum(probe.polled for probe in fleet.status().probes) > 100)
    before = fleet.status().layout
    assert before is not None
    fleet.stop_sending()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([asked.topics.records])[asked.topics.records].result()
    until(lambda: known(fleet.status().layout).topic_id(asked.topics.records) != before.topic_id(asked.topics.records))
    assert "the partitions of the probe topics are not what they were: the probes start anew" in said
    until(lambda: {p.kind: p.lives for p in fleet.status().probes}["reader"] >= 2)
    foreign = Producer({"bootstrap.servers": kafka.bootstrap})
    foreign.produce(asked.topics.records, b"not ours", partition=0)
    assert foreign.flush(60) == 0
    until(lambda: any(probe.irregular for probe in fleet.status().probes))
    fleet.stop()
    rows = read(tmp_path / "h")
    after = fleet.status().layout
    assert after is not None
    odd = [row for row in rows if row["irregular"]]  # the reader's, and the audit's where it has come by
    assert {row["topic_id"] for row in odd} == {after.topic_id(asked.topics.records)}
    assert {one["status"] for row in odd for one in row["irregular"]} == {"corrupted"}
