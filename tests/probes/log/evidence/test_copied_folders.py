"""A journal folder and a copy of it, which both append through a topic of a real cluster: all of either is taken."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local_kafka import LocalKafka
from probes.log.commits.committer import committer
from probes.log.commits.history import History
from probes.log.commits.numbers import number_of
from probes.log.errors import FolderCopied, HistoryUnavailable, ProbeLogError
from probes.log.evidence.intake import Intake
from probes.log.evidence.taken import BEFORE, LAST
from probes.log.evidence.topic import EvidenceTopic, TopicOf
from probes.running.claiming import Claiming
from tests.probes.log.evidence.carried import LIMIT, a_host, a_topic, app_of, carried, carry, everything, start_of_last
from tests.probes.log.lives import Prober, StillClock, check_marks, check_slices, logged, table_rows


class Unclaiming(EvidenceTopic):
    """A topic in whose cluster nobody may use groups."""

    def append(self, rows: pa.Table, app: str, version: int, starts: Collection[int] = ()) -> None:
        super().append(rows, app, version)


def copied_from(folder: Path, topic: TopicOf, clock: StillClock) -> Path:
    """A copy of the folder of a host that has worked, and has ended."""
    prober = Prober.start(folder, 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
        prober.close()
        one.drain()
    shutil.copytree(folder, folder.with_name("copy"))
    return folder.with_name("copy")


@pytest.mark.parametrize("way", ["at_once", "one_by_one", "by_another_intake"])
def test_what_a_copied_folder_and_its_original_append_is_all_taken(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, way: str
) -> None:
    """They begin together, and give the same numbers to their appends. Nobody needs to remember what they held."""
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
    prober.close()
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    taken = Intake(topic, History(str(history)), said.append)
    if way != "at_once":
        carry(taken)
    probers = []
    for process, each in ((2, folder), (3, copied)):
        probers.append(Prober.start(each, process, clock))
        with committer(each, Unclaiming(topic), clock) as one:
            for _ in range(3):
                probers[-1].send(0)
                probers[-1].alive()
                one.commit()
        if way == "one_by_one":
            carry(taken)
        elif way == "by_another_intake":
            carried(topic, history, said)
    carry(taken)
    taken.close()
    rows = table_rows(history)
    for process, prober in enumerate(probers, 2):
        assert logged(rows, process) == prober.must_be_logged()
        assert sum(row["process"] == process for row in rows) == sum(map(len, prober.told.values())), "each once"
    assert {line.partition(" in the name")[0] for line in said} == {f"two append to {topic}"}
    assert carried(topic, history) == 0, "it is there already"


def test_who_begins_again_and_again_is_no_copy(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    """It makes its last append again each time: of that it does not know."""
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    for turn in range(8):
        with committer(folder, EvidenceTopic(topic), clock) as one:
            prober.send(0)
            one.commit()
            prober.send(0)
            one.commit()
        if turn % 3:
            carried(topic, history, said)
    carried(topic, history, said)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(history) > 0
    assert said == []
    app = app_of(folder)
    known = History(str(history)).last_versions([app + LAST, app + BEFORE])
    assert [number_of(version) for version in known.values()] == [9, 8]


def test_of_two_that_claim_a_folder_the_first_one_has_it(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    topic, folder = a_topic(kafka), tmp_path / "host"
    copied = copied_from(folder, topic, clock)
    with (
        committer(folder, EvidenceTopic(topic), clock) as original,
        committer(copied, EvidenceTopic(topic), clock) as copy,
    ):
        copy.claim()
        before = len(everything(topic))
        with pytest.raises(FolderCopied, match=f"through {topic} another host goes on"):
            original.claim()
        assert len(everything(topic)) == before
        prober = Prober.start(copied, 2, clock)
        for _ in range(2):
            prober.send(0)
            copy.commit()  # fenced by the one that was refused, and made again
    for _ in range(3):
        with committer(copied, EvidenceTopic(topic), clock) as copy:
            copy.claim()
            prober.send(0)
            copy.commit()
    with committer(folder, EvidenceTopic(topic), clock) as original, pytest.raises(FolderCopied):
        original.claim()
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 2) == prober.must_be_logged() and check_marks(history) > 0


@pytest.mark.parametrize("attempt", range(6))
def test_of_two_that_claim_a_folder_at_once_one_has_it(
    kafka: LocalKafka, tmp_path: Path, clock: StillClock, attempt: int
) -> None:
    topic, folder = a_topic(kafka), tmp_path / "host"
    copied = copied_from(folder, topic, clock)
    together, told = threading.Barrier(2), list[ProbeLogError | None]()

    def claim(at: Path) -> None:
        with committer(at, EvidenceTopic(topic), clock) as one:
            together.wait(LIMIT)
            try:
                Claiming(one, lambda seconds: None).make()
            except ProbeLogError as refused:
                told.append(refused)
            else:
                told.append(None)

    threads = [threading.Thread(target=claim, args=(at,)) for at in (folder, copied)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT)
    assert {type(one) for one in told} == {type(None), FolderCopied}, told


class Losing(EvidenceTopic):
    """The answer to the first transaction of each is lost, as where a broker says UNKNOWN to it."""

    def append(self, rows: pa.Table, app: str, version: int, starts: Collection[int] = ()) -> None:
        if not self._done:
            self._done[""] = 0
            raise HistoryUnavailable(f"cannot append to {self.uri}: EndTxn commit failed")
        super().append(rows, app, version, starts)


def test_a_claim_that_fails_once_is_made_again(kafka: LocalKafka, tmp_path: Path, clock: StillClock) -> None:
    topic, folder = a_topic(kafka), tmp_path / "host"
    copied = copied_from(folder, topic, clock)
    with (
        committer(copied, Losing(topic), clock) as copy,
        committer(folder, Losing(topic), clock) as original,
    ):
        Claiming(copy, lambda seconds: None).make()
        with pytest.raises(FolderCopied):
            Claiming(original, lambda seconds: None).make()


def test_who_learns_too_late_that_there_is_a_copy_loses_nothing(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    """It was frozen, or could not reach the topic, while another host went on with a copy of its folder."""
    topic, folder = a_topic(kafka), tmp_path / "host"
    copied = copied_from(folder, topic, clock)
    with (
        committer(folder, EvidenceTopic(topic), clock) as original,
        committer(copied, EvidenceTopic(topic), clock) as copy,
    ):
        probers = [Prober.start(at, process, clock) for process, at in ((2, folder), (3, copied))]
        copy.claim()
        for _ in range(3):
            for prober, one in zip(probers, (original, copy), strict=True):
                prober.send(0, 1)
                prober.alive()
                one.commit()
        for prober in probers:
            prober.kill()
        original.drain()
        copy.drain()
        assert (type(original.copied), copy.copied) == (FolderCopied, None)
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    for prober in probers:
        assert logged(rows, prober.journal.life.process) == prober.must_be_logged()
    assert check_marks(history) > 0


def test_whoever_is_alone_keeps_its_folder(kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock) -> None:
    """Also where the cluster of evidence is one that was put back, or has forgotten the claim."""
    topic, folder = a_topic(kafka), tmp_path / "host"
    prober = Prober.start(folder, 1, clock)
    for turn in range(6):
        with committer(folder, EvidenceTopic(topic), clock) as one:
            one.claim()
            prober.send(0)
            if turn != 2:
                one.commit()
        if turn == 0:
            first = start_of_last(folder)
        if turn == 3:
            claim_again(kafka, topic, app_of(folder), first)
        if turn == 4:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            admin.delete_consumer_groups([app_of(folder)])[app_of(folder)].result(LIMIT)
            folder = folder.rename(tmp_path / "elsewhere")
            prober.kill()
            prober = Prober.start(folder, 2, clock)
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 2) == prober.must_be_logged() and check_marks(history) > 0
    assert len({row["process"] for row in rows if row["f"] == "mark"}) == 1, "it is the same committer"


def claim_again(kafka: LocalKafka, topic: TopicOf, app: str, start: int) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": app})
    (told,) = consumer.committed([TopicPartition(topic.name, 0)], LIMIT)
    assert told.offset > 0
    consumer.commit(offsets=[TopicPartition(topic.name, 0, start)], asynchronous=False)
    consumer.close()


def test_whoever_can_make_no_claim_appends_all_the_same(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, folder = a_topic(kafka), tmp_path / "host"
    for code, tries in ((KafkaError.GROUP_AUTHORIZATION_FAILED, 0), (KafkaError._TIMED_OUT, 2)):

        def refused(*_: object, code: int = code) -> None:
            raise KafkaException(KafkaError(code))

        monkeypatch.setattr(EvidenceTopic, "_group", refused)
        prober = Prober.start(folder, abs(code), clock)
        with committer(folder, EvidenceTopic(topic), clock) as one:
            for _ in range(tries):
                with pytest.raises(HistoryUnavailable):
                    one.claim()
            one.claim()
            prober.send(0)
            assert one.commit() > 0
        prober.kill()
    monkeypatch.undo()
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.drain()
    carried(topic, history)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, abs(code)) == prober.must_be_logged()
