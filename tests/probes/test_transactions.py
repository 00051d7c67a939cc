"""Transactions on a real broker: outcomes, going back, and lives that follow each other."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from probes.kafka.client import Connection
from probes.kafka.errors import ClientError, Crash
from probes.workloads.observer import Observer
from probes.workloads.reader import Reader
from probes.workloads.transactional import transactor
from probes.workloads.transactional.transaction_course import Course, Outline, outline
from probes.workloads.transactional.transactions import Transactions
from rules.vocabulary.slices import Slice
from tests.known import known
from tests.monitor.secured import secured_broker
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.test_reader import Fetched, Handing, polls, until

PLACES = [("t", p) for p in range(5)]


@given(st.integers(1, 10), st.integers(1, 5), st.floats(0, 1), st.integers())
def test_an_outline_sends_something_and_stays_within_its_bounds(
    records: int, partitions: int, share: float, seed: int
) -> None:
    made = outline(PLACES, records=records, partitions=partitions, abort_share=share, rng=random.Random(seed))
    counts = [count for batch in made.sends for count in batch.values()]
    assert 1 <= sum(counts) <= max(records, partitions)
    assert min(counts) >= 1
    assert len({where for batch in made.sends for where in batch}) <= partitions


def test_the_share_of_aborts_is_kept() -> None:
    rng = random.Random(4)
    aborts = [outline(PLACES, records=3, partitions=2, abort_share=0.25, rng=rng).intent for _ in range(2000)]
    assert 0.2 < aborts.count("abort") / 2000 < 0.3


def put(one: Stage, name: str, *, stable: bool = True, timeout: float = 60.0) -> Transactions:
    return one.put(Transactions, name, timeout=timeout, stable=stable, group=f"{one.prefix}-{name}")


def transact(probe: Transactions, intent: str = "commit", crash_at: str | None = None) -> list[Slice]:
    """One transaction over all partitions; its rows."""
    before = len(witness(probe).of("txn"))
    half = dict.fromkeys(probe.targets, 2)
    probe.transact(Outline((half, half), intent), crash_at=crash_at)  # type: ignore[arg-type]
    return witness(probe).of("txn")[before:]


def test_a_transaction_is_one_operation_with_a_row_for_each_partition(stage: MakeStage) -> None:
    one = stage()
    probe = put(one, "a")
    rows = transact(probe)
    targets = [(one.config.topics.transactions, p) for p in range(3)]
    assert [(row.topic, row.partition) for row in rows] == targets
    assert {row.type for row in rows} == {"ok"}
    assert len({(row.op, row.txn, row.txn_intent) for row in rows}) == 1
    assert all(row.txn_partitions == targets for row in rows)
    assert all(sum(run.length for run in row.sent) == 4 for row in rows)
    assert all(run.offset is not None for row in rows for run in row.sent)
    assert {row.transactional_id for row in rows} == {probe.transactional_id}
    assert all(row.invoked < known(row.end_invoked) < row.completed for row in rows)
    assert all(known(row.mono_invoked) < known(row.mono_end_invoked) < known(row.mono_completed) for row in rows)
    assert {row.type for row in transact(probe, "abort") if row.end_invoked} == {"fail"}
    assert [row.f for row in witness(probe).rows[:13:6]] == ["start", "init", "assign"]
    told = witness(probe).rows[0].settings or {}
    assert (told["reads_from"], told["hostname"]) == (one.config.topics.transactions, socket.gethostname())
    assert {(row.assigned, row.topic) for row in witness(probe).of("assign")} == {
        (True, one.config.topics.transactions),
        (False, one.config.topics.records),
    }


def test_it_polls_what_others_committed_and_commits_its_offsets_with_the_transaction(stage: MakeStage) -> None:
    one = stage()
    other, probe = put(one, "other"), put(one, "probe")
    transact(other)
    rows: list[Slice] = []
    until(
        lambda: sum(r.length for row in rows for r in row.polled if r.writer == other.writer) == 12,
        doing=lambda: rows.extend(transact(probe)),
    )
    assert not [run for row in rows for run in row.polled if run.writer == probe.writer and row.txn is None]
    last = {row.partition: row.position_after for row in rows if row.polled}
    assert {row.partition: row.committed for row in rows if row.committed is not None} == last
    group = f"{one.prefix}-probe"

    def committed() -> dict[int, int]:
        answer = one.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
        return {tp.partition: tp.offset for tp in answer.topic_partitions}

    # The coordinator tells them once the transaction's marker has reached it, a moment after the commit returned.
    until(lambda: committed() == last)


def test_what_a_broker_refuses_to_its_polls_is_logged(stage: MakeStage) -> None:
    one = stage()
    probe = put(one, "a")
    client, refused = probe._consumer, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    probe._consumer = Handing(Fetched(probe.targets[1], 0, None, refused))
    probe.poll(Course(1, 2, "commit", probe.log.now(), {}, []))
    told = [(row.topic, row.partition, row.type, row.error) for row in witness(probe).of("poll")]
    assert told == [(*probe.targets[1], "info", "TOPIC_AUTHORIZATION_FAILED")] and probe.counters.errors == 1
    probe._consumer = client


def test_no_transaction_polls_what_it_sends_itself(stage: MakeStage) -> None:
    one = stage()
    probe = put(one, "a")
    for _ in range(5):
        for row in transact(probe):
            sent = {(run.writer, run.seq + i) for run in row.sent for i in range(run.length)}
            polled = {(run.writer, run.seq + i) for run in row.polled for i in range(run.length)}
            assert not sent & polled


def test_a_deliberate_abort_failed_and_nobody_sees_it_and_the_consumer_goes_back(stage: MakeStage) -> None:
    one = stage()
    other, probe = put(one, "other"), put(one, "probe")
    transact(other)
    rows: list[Slice] = []
    until(lambda: any(row.polled for row in rows), doing=lambda: rows.extend(transact(probe, "abort")))
    assert {(row.type, row.txn_intent) for row in rows} == {("fail", "abort")}
    first = next(row for row in rows if row.polled)

    # A poll may bring another partition's records first.
    again: list[Slice] = []
    until(
        lambda: any(row.polled for row in again if row.partition == first.partition),
        doing=lambda: again.extend(transact(probe, "abort")),
    )
    second = next(row for row in again if row.polled and row.partition == first.partition)
    assert (second.position_before, second.polled[0]) == (first.position_before, first.polled[0])
    reader = one.put(Reader, "reader", group=f"{one.prefix}-reader")
    transact(other)
    until(lambda: reader.counters.polled >= 24, reader)
    seen = {
        run.writer for p in range(3) for row in polls(reader, (one.config.topics.transactions, p)) for run in row.polled
    }
    assert seen == {other.writer}


def test_a_later_life_of_the_same_id_fences_the_earlier_one(stage: MakeStage) -> None:
    one = stage()
    first = put(one, "a")
    transact(first)
    second = put(one, "a")
    assert second.transactional_id == first.transactional_id
    with pytest.raises(ClientError):
        transact(first)
    assert {row.type for row in witness(first).of("txn")[3:]} == {"info"}
    assert {row.type for row in transact(second)} == {"ok"}


def test_fresh_ids_differ_from_life_to_life(stage: MakeStage) -> None:
    one = stage()
    assert put(one, "a", stable=False).transactional_id != put(one, "a", stable=False).transactional_id


@pytest.mark.parametrize("point", ["sent", "offsets", "end"])
def test_a_crash_leaves_the_transaction_in_doubt_and_the_next_life_ends_it(stage: MakeStage, point: str) -> None:
    one = stage()
    crashed = put(one, "a")
    with pytest.raises(Crash):
        transact(crashed, crash_at=point)
    crashed.log.end("info", Crash.code)
    rows = [row for row in one.read_journal(crashed) if row.f == "txn"]
    assert {(row.type, row.error) for row in rows} == {("info", "_CRASHED")}
    ends = {row.end_invoked for row in rows}
    if point == "end":
        (ended,) = ends
        assert rows[0].invoked < known(ended) < rows[0].completed
    else:
        assert ends == {None}
    assert {row.mono_end_invoked is None for row in rows} == {point != "end"}
    assert sum(run.length for row in rows for run in row.sent) == 12
    follower = put(one, "a")
    assert {row.type for row in witness(follower).of("init")} == {"ok"}
    assert {row.type for row in transact(follower)} == {"ok"}


def test_a_transaction_that_outlives_its_timeout_is_in_doubt_at_most(stage: MakeStage) -> None:
    one = stage()
    probe = put(one, "a", timeout=1.0)
    abort = probe.transactor.abort
    probe.transactor.abort = lambda: time.sleep(4) or abort()  # type: ignore[method-assign, func-returns-value]
    try:
        rows = transact(probe, "abort")
    except ClientError:
        rows = witness(probe).of("txn")
        assert {row.type for row in rows} == {"info"}
        assert {row.error for row in rows} != {None}
    else:
        assert {row.type for row in rows} <= {"fail", "info"}


def test_the_observer_sees_an_open_transaction_hold_the_last_stable_offset(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.workloads.observer.ANSWER_WITHIN", 60.0)
    one = stage(observer={"request_timeout": 60.0})
    probe = put(one, "a", timeout=60.0)
    transact(probe)
    group = f"{one.prefix}-a"
    observer = one.put(Observer, "observer", groups=[group])
    with pytest.raises(Crash):
        transact(probe, crash_at="offsets")
    observer.observe()
    rows = [r for r in witness(observer).of("offsets") if r.topic == one.config.topics.transactions and r.group is None]
    assert {(r.type, r.log_start, r.log_end, r.last_stable) for r in rows} == {("ok", 0, 9, 5)}
    idle = [r for r in witness(observer).of("offsets") if r.topic == one.config.topics.records and r.group is None]
    assert {(r.type, r.log_start, r.log_end, r.last_stable) for r in idle} == {("ok", 0, 0, 0)}


def test_a_producer_that_is_refused_its_producer_id_says_so_in_every_partition(stage: MakeStage) -> None:
    """By a broker that allows no transaction to be open for so long."""
    one = stage()
    with pytest.raises(ClientError, match="INVALID_TRANSACTION_TIMEOUT"):
        put(one, "a", timeout=3_600.0)
    (probe,) = one.probes
    rows = witness(probe).of("init")
    assert {(row.type, row.error) for row in rows} == {("info", "INVALID_TRANSACTION_TIMEOUT")}
    assert len(rows) == len({(row.topic, row.partition) for row in rows}) == len(witness(probe).of("start"))
    tried = probe.measure.levels.tries["transaction-commit", ("", "")]
    assert (tried.total, tried.failed) == (1, 1)
    probe.log.end("info")  # it is of no use to close what is unusable


def test_a_producer_whose_login_is_refused_does_not_end_by_the_silence_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactor, "CALL_WITHIN", 4.0)
    with secured_broker(tmp_path) as broker:
        one = Stage(broker.plain, tmp_path / "journal")
        one.connection = Connection(broker.bootstrap, broker.security(sasl__password="another"))
        with pytest.raises(ClientError, match="_TIMED_OUT") as silence:
            put(one, "a")
        (probe,) = one.probes
        assert getattr(probe.why(silence.value), "code", None) == "_AUTHENTICATION"
        probe.log.end("info")


def test_what_its_group_has_committed_is_read_back_after_a_commit_of_its_own(stage: MakeStage) -> None:
    """The coordinator that acknowledges a commit is the one whose word counts."""
    one = stage()
    other, probe = put(one, "other"), put(one, "probe")
    transact(other)
    rows: list[Slice] = []
    until(lambda: any(row.polled for row in rows), doing=lambda: rows.extend(transact(probe)))
    known(probe._read_back).turn()
    assert witness(probe).of("commit", "offsets") == [], "it is not time yet"

    def told() -> list[Slice]:
        known(probe._read_back)._due = 0
        known(probe._read_back).turn()
        return [row for row in witness(probe).of("offsets") if row.type == "ok"]

    until(told)
    last = {row.partition: row.committed for row in rows if row.committed is not None}
    fences, commits = (
        witness(probe).of("commit"),
        [row for row in told() if row.topic == one.config.topics.transactions],
    )
    assert {row.partition: row.committed for row in commits} == last
    assert {(row.topic, row.partition, row.type, row.group) for row in fences} == {
        (one.config.topics.records, 0, "ok", f"{one.prefix}-probe")
    }
    (fence,) = [row for row in told() if row.topic == one.config.topics.records]
    assert fence.committed == len(fences)
    assert fences[-1].completed <= fence.invoked
    assert {row.isolation for row in told()} == {"read_committed"}


@pytest.mark.parametrize("lasts", [2, None], ids=["for a moment", "for good"])
def test_what_is_behind_for_a_moment_is_asked_again_and_what_is_lost_is_told(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch, lasts: int | None
) -> None:
    """Some implementations tell what was committed before while the transaction's marker is underway."""
    one = stage()
    other, probe = put(one, "other"), put(one, "probe")
    transact(other)
    rows: list[Slice] = []
    until(lambda: any(row.polled for row in rows), doing=lambda: rows.extend(transact(probe)))
    last = {(row.topic, row.partition): row.committed for row in rows if row.committed is not None}
    asked: list[dict[tuple[str, int], int]] = []

    def behind(*args: object) -> dict[tuple[str, int], int]:
        late = lasts is None or len(asked) < lasts
        asked.append({where: offset - 1 if late else offset for where, offset in last.items()})
        return asked[-1]

    monkeypatch.setattr("probes.workloads.transactional.read_back.committed", behind)
    monkeypatch.setattr("probes.workloads.transactional.read_back.SETTLES", 1.0)
    known(probe._read_back)._due = 0
    known(probe._read_back).turn()
    told = {(row.topic, row.partition): row.committed for row in witness(probe).of("offsets")}
    assert told == asked[-1] == ({where: offset - 1 for where, offset in last.items()} if lasts is None else last)
    assert len(asked) == 3 if lasts else len(asked) > 3


def test_where_no_coordinator_acknowledges_its_commit_it_does_not_ask(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answers may be an old one: what it tells proves nothing, and is not logged."""

    class Refused:
        def commit(self, **_: object) -> None:
            raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))

        def committed(self, *_: object, **__: object) -> None:
            pytest.fail("it may be an old coordinator that is asked")

    one = stage()
    probe = put(one, "a")
    known(probe._read_back).note({(one.config.topics.transactions, 0): 5})
    monkeypatch.setattr(probe._read_back, "_consumer", Refused())
    known(probe._read_back)._due = 0
    known(probe._read_back).turn()
    (told,) = witness(probe).of("commit", "offsets")
    assert (told.f, told.type, told.error) == ("commit", "info", "REQUEST_TIMED_OUT")


def test_a_client_that_takes_the_topic_for_gone_is_left(stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker before Kafka 2.8 tells of no topic for a moment after its restart, and a producer that hears it refuses
    what it is given long after that."""

    def gone(*_: object) -> int:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))

    one = stage()
    probe = put(one, "a")
    monkeypatch.setattr("probes.records.delivery.queue", gone)
    with pytest.raises(ClientError, match=r"\(_UNKNOWN_TOPIC\)"):
        transact(probe)
    assert {(row.type, row.error) for row in witness(probe).of("txn")} == {("fail", "_UNKNOWN_TOPIC")}
