"""From committers through a topic of a real cluster into the table: each row once, whatever is lost or killed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from deploy.local_kafka import LocalKafka
from probes.kafka.client import Connection
from probes.log.commits.committer import committer
from probes.log.commits.history import History
from probes.log.commits.numbers import recorded
from probes.log.errors import HistoryConflict, HistoryUnavailable
from probes.log.evidence import intake as intakes
from probes.log.evidence import messages
from probes.log.evidence.intake import Intake
from probes.log.evidence.messages import packed
from probes.log.evidence.taken import LAST
from probes.log.evidence.topic import EvidenceTopic, TopicOf
from rules.vocabulary.slices import APPENDS_MISSING, SLICE_SCHEMA
from tests.monitor.secured import PASSWORD, secured_broker
from tests.probes.log.evidence.carried import (
    LIMIT,
    a_host,
    a_topic,
    app_of,
    carried,
    carry,
    everything,
    start_of_last,
)
from tests.probes.log.faults import MODES, Killed, Mode, fault
from tests.probes.log.lives import Prober, StillClock, check_marks, check_slices, logged, table_rows


class Unheard(EvidenceTopic):
    """A topic of whose appends nobody hears that they were made, every other time."""

    heard = True

    def append(self, rows: pa.Table, app: str, version: int, starts: Collection[int] = ()) -> None:
        super().append(rows, app, version, starts)
        self.heard = not self.heard
        if not self.heard:
            self._done.clear()
            raise HistoryUnavailable("the answer was lost")


def test_what_two_hosts_append_comes_into_the_table_as_it_was(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic, probers = a_topic(kafka), []
    for host in (1, 2):
        folder, prober = a_host(tmp_path, f"host-{host}", host, clock)
        probers.append(prober)
        with committer(folder, EvidenceTopic(topic), clock) as one:
            for _ in range(3):
                prober.send(0, 1)
                prober.alive()
                assert one.commit() > 0
    assert carried(topic, history) > 0
    rows = table_rows(history)
    check_slices(rows)
    for prober in probers:
        assert logged(rows, prober.journal.life.process) == prober.must_be_logged()
    assert check_marks(history) > 0
    assert carried(topic, history) == 0, "it is there already"
    # An own probe log, without a topic between, of the same journals:
    direct = tmp_path / "direct"
    with committer(folder_again(tmp_path / "host-1"), direct, clock) as one:
        one.drain()
    wanted = [row for row in table_rows(direct) if row["f"] != "mark"]
    assert wanted == [row for row in rows if row["process"] == 1]


def folder_again(folder: Path) -> Path:
    """The journals as if nobody had appended them."""
    (folder / "plan.json").unlink()
    return folder


def test_an_append_whose_answer_is_lost_is_in_the_table_once(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic = a_topic(kafka)
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, Unheard(topic), clock) as one:
        for _ in range(4):
            prober.send(0, 1)
            prober.alive()
            with pytest.raises(HistoryUnavailable):
                one.commit()
            assert one.commit() > 0
    consumed = everything(topic)
    assert consumed == [1, 1, 2, 2, 3, 3, 4, 4]
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(history) > 0


def test_a_committer_that_died_before_it_heard_appends_the_same_again(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic = a_topic(kafka)
    folder, prober = a_host(tmp_path, "host", 1, clock)
    for _ in range(3):
        prober.send(0)
        prober.alive()
        with committer(folder, Unheard(topic), clock) as one, pytest.raises(HistoryUnavailable):
            one.commit()
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.drain()
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(history) > 0


def test_a_committer_that_begins_again_after_a_segment_was_full_loses_nothing(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic = a_topic(kafka)
    folder = tmp_path / "host"
    prober = Prober.start(folder, 1, clock, segment_bytes=1500)
    for _ in range(3):
        with committer(folder, EvidenceTopic(topic), clock) as one:
            one.drain()
            for _ in range(30):
                prober.send(0, 1)
            prober.alive()
            one.commit()
            assert one.status().unverifiable == {}
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(history) > 0
    assert len(list(folder.rglob("*.journal")) or list(prober.journal.folder.iterdir())) < 30, "what is read goes"


def test_an_intake_that_another_one_went_before_takes_nothing_twice(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "EVERY", 0.0)
    topic = a_topic(kafka)
    folder, prober = a_host(tmp_path, "host", 1, clock)
    first, second = (Intake(topic, History(str(history)), lambda line: None) for _ in range(2))
    with committer(folder, Unheard(topic), clock) as one:
        for _ in range(3):
            prober.send(0, 1)
            with pytest.raises(HistoryUnavailable):
                one.commit()
            carry(first)
            carry(second)
            one.commit()  # the same again
            carry(first)
            carry(second)
    first.close()
    second.close()
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(history) > 0


def test_a_commit_that_was_made_and_told_as_a_conflict_is_not_made_again(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "EVERY", 0.0)
    topic = a_topic(kafka)
    folder, prober = a_host(tmp_path, "host", 1, clock)
    made = History.append_of

    def conflicting(self: History, rows: pa.Table, versions: Mapping[str, int]) -> None:
        made(self, rows, versions)
        raise HistoryConflict("others were first")

    intake = Intake(topic, History(str(history)), lambda line: None)
    with committer(folder, Unheard(topic), clock) as one:
        for _ in range(3):
            prober.send(0, 1)
            with pytest.raises(HistoryUnavailable):
                one.commit()
            with monkeypatch.context() as told:
                told.setattr(History, "append_of", conflicting)
                carry(intake)
            one.commit()
            carry(intake)
    intake.close()
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged()


def test_rows_of_a_later_version_wait_for_an_upgrade(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic = a_topic(kafka)
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
    before = len(everything(topic))
    later = Producer({"bootstrap.servers": kafka.bootstrap})
    headers = {"app": b"later", "version": b"1", "part": b"0/1", "format": b"9"}
    later.produce(topic.name, partition=0, value=b"", headers=headers)
    later.flush(LIMIT)
    for _ in range(2):
        with pytest.raises(intakes.EvidenceUnavailable, match=r"rows of format 9 .*; upgrade the monitor"):
            carried(topic, history)
    assert before == 1 and logged(table_rows(history), 1) == prober.must_be_logged()


def test_what_was_sent_and_not_committed_is_not_taken(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic = a_topic(kafka)
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
        prober.send(0)
        one.commit()
    dead = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": app_of(folder)})
    dead.init_transactions(LIMIT)
    dead.begin_transaction()
    for headers, value in packed(SLICE_SCHEMA.empty_table(), app_of(folder), 3):
        dead.produce(topic.name, partition=0, value=bytes(value), headers=headers)
    dead.flush(LIMIT)
    prober.send(1)
    with committer(folder, EvidenceTopic(topic), clock) as one:  # its first words end what the dead one left open
        one.drain()
    carried(topic, history)
    assert everything(topic) == [1, 2, 2, 3], "of its last one it does not know"
    assert logged(table_rows(history), 1) == prober.must_be_logged()


def test_appends_in_many_parts_and_tables_in_several_commits(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "PART_BYTES", 700)
    monkeypatch.setattr(intakes, "MOST_BYTES", 2_000)
    topic, probers = a_topic(kafka), []
    for host in (1, 2):
        folder, prober = a_host(tmp_path, f"host-{host}", host, clock)
        probers.append(prober)
        with committer(folder, EvidenceTopic(topic), clock) as one:
            for _ in range(20):
                prober.send(0, 1)
            one.commit()
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    for prober in probers:
        assert logged(rows, prober.journal.life.process) == prober.must_be_logged()


@pytest.mark.parametrize("mode", MODES)
def test_an_intake_that_dies_at_any_step_takes_nothing_twice(
    kafka: LocalKafka, tmp_path: Path, clock: StillClock, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "EVERY", 0.0)
    topic = a_topic(kafka)
    folder, prober = a_host(tmp_path, "host", 1, clock)
    step = 0
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
        while True:
            prober.send(0, 1)
            one.commit()
            intake = Intake(topic, History(str(tmp_path / "history")))
            try:
                with fault(step, mode) as countdown:
                    carry(intake)
            except (Killed, HistoryUnavailable):
                pass
            finally:
                intake.close()
            if not countdown.hit:
                break
            step += 1
    assert step > 1
    carried(topic, tmp_path / "history")
    rows = table_rows(tmp_path / "history")
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(tmp_path / "history") > 0


def test_two_intakes_at_work_on_one_table_take_each_append_once(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "EVERY", 0.0)
    topic, stop = a_topic(kafka), threading.Event()
    topic.id(topic.asker())
    History(str(history)).id()
    failed: list[Exception] = []

    def work() -> None:
        try:
            Intake(topic, History(str(history)), lambda line: None).run(stop)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        for _ in range(40):
            prober.send(0, 1)
            one.commit()
            time.sleep(0.05)
    carried(topic, history)
    stop.set()
    for thread in threads:
        thread.join(LIMIT)
    assert failed == []
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(history) > 0
    assert DeltaTable(str(history)).version() > 3


def test_messages_of_others_are_left_out_and_told_once(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
        other = Producer({"bootstrap.servers": kafka.bootstrap})
        for _ in range(30):
            other.produce(topic.name, partition=0, value=b"hello")
        other.flush(LIMIT)
        prober.send(0)
        one.commit()
    carried(topic, history, said)
    assert logged(table_rows(history), 1) == prober.must_be_logged()
    assert said == [f"a message of {topic} is left out: it is no part of a probe log"]


def test_what_retention_took_before_it_was_read_is_told(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
        carried(topic, history)
        before = table_rows(history)
        prober.send(0)
        one.commit()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        removed = admin.delete_records([TopicPartition(topic.name, 0, OFFSET_END)])
        start = next(iter(removed.values())).result(LIMIT).low_watermark
        prober.send(0)
        one.commit()
    carried(topic, history, said)
    rows = table_rows(history)
    assert {row["op"] for row in rows if row["f"] == "send"} == {prober.op - 1}
    assert len(rows) > len(before)
    marked_before = {row["slice"] for row in before if row["f"] == "mark"}
    marks = {row["slice"]: row["error"] for row in rows if row["f"] == "mark"}
    assert {marks.pop(number) for number in marked_before} == {None}
    assert set(marks.values()) == {APPENDS_MISSING}, "what was missing is not waited for"
    assert {row["error"] for row in rows if row["f"] != "mark"} == {None}
    assert said == [
        f"{topic} was read up to offset 2, and begins at {start}: what stood between is missing in the probe log",
        f"{topic} lacks 1 append(s) of {app_of(folder)}: what was in them is missing in the probe log",
    ]


def test_an_append_that_was_half_read_when_the_intake_ended_is_read_by_the_next(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "PART_BYTES", 700)
    topic, probers, parts = a_topic(kafka), [], []
    for process, name in ((1, "one"), (2, "other")):
        folder, prober = a_host(tmp_path, name, process, clock)
        probers.append(prober)
        with committer(folder, EvidenceTopic(topic), clock) as one:
            for _ in range(20):
                prober.send(0, 1)
            one.commit()
        parts.append(len(everything(topic)))
    assert parts[1] - parts[0] > 2
    monkeypatch.setattr(intakes, "MOST_MESSAGES", parts[0] + 2)
    monkeypatch.setattr(intakes, "_POLLED_FOR", LIMIT)
    intake = Intake(topic, History(str(history)))
    assert intake.turn() > 0
    intake.close()
    assert {row["process"] for row in table_rows(history)} & {1, 2} == {1}, "the other one is half read"
    monkeypatch.setattr(intakes, "_POLLED_FOR", 0.2)
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    for prober in probers:
        assert logged(rows, prober.journal.life.process) == prober.must_be_logged()


def test_a_topic_that_has_lost_its_end_is_read_again_and_what_it_lacks_is_told(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
        carried(topic, history)
        # An unclean election: the table has more of the topic than there is, and another append of this committer.
        read = f"offsetwatch-evidence-{topic.id(topic.asker())}"
        table = History(str(history))
        table.last_versions([])
        table.append_of(
            SLICE_SCHEMA.empty_table(), {read: 1_000, app_of(folder) + LAST: recorded(start_of_last(folder), 2)}
        )
        for _ in range(2):
            prober.send(0)
            one.commit()
        for _ in range(2):
            carried(topic, history, said)
    # Append 2 was in the table by then, so that it is not taken; 3 is, and once.
    assert [row["op"] for row in table_rows(history) if row["f"] == "send"] == [2]
    assert [line.partition(", and ")[0] for line in said] == [f"{topic} was read up to offset 1000"] * 2
    assert table.last_versions([read]) == {read: 1_000}


def test_a_committer_goes_on_in_a_topic_that_somebody_deleted(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic = a_topic(kafka)
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic.name])[topic.name].result(LIMIT)
        prober.send(0)
        until, done = time.monotonic() + 2 * LIMIT, 0
        while not done and time.monotonic() < until:
            with contextlib.suppress(HistoryUnavailable):
                done = one.commit()
        assert done > 0
    carried(topic, history)
    assert [row["op"] for row in table_rows(history) if row["f"] == "send"] == [1]


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "CONFIRMED_EVERY", 0.0)
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    intake = Intake(topic, History(str(history)), said.append)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
        carry(intake)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic.name])[topic.name].result(LIMIT)
        prober.send(0)
    with pytest.raises(intakes.EvidenceUnavailable, match="was made anew"):
        intake.turn()
    intake.close()
    other, prober = a_host(tmp_path, "other", 2, clock)
    with committer(other, EvidenceTopic(topic), clock) as one:
        one.commit()
    carry(intake)
    intake.close()
    assert logged(table_rows(history), 2) == prober.must_be_logged()
    assert said == [f"{topic} was made anew: what stood in the old one and was not read is missing"]


@pytest.mark.kafka
def test_a_cluster_of_evidence_that_wants_tls_and_a_login(tmp_path: Path, history: Path, clock: StillClock) -> None:
    with secured_broker(tmp_path) as broker:
        topic = TopicOf(Connection(broker.bootstrap, broker.security("SCRAM-SHA-512")), "evidence", replication=1)
        folder, prober = a_host(tmp_path, "host", 1, clock)
        with committer(folder, EvidenceTopic(topic), clock) as one:
            prober.send(0, 1)
            one.commit()
        carried(topic, history)
        assert logged(table_rows(history), 1) == prober.must_be_logged()
        secret = f"wrong-{PASSWORD}"
        wrong = TopicOf(Connection(broker.bootstrap, broker.security(sasl__password=secret)), "evidence")
        with pytest.raises(intakes.EvidenceUnavailable) as told:
            carried(wrong, history)
        with (
            committer(tmp_path / "other", EvidenceTopic(wrong), clock) as one,
            pytest.raises(HistoryUnavailable) as said,
        ):
            one.commit()
        assert secret not in f"{told.value}{said.value}{wrong}{wrong!r}"
