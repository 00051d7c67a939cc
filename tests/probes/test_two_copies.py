"""Two fleets that begin at once with copies of one journal folder, and append to one probe log: on a real broker."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.kafka.errors import ProbeError
from probes.log.errors import FolderCopied, ProbeLogError
from probes.log.evidence.topic import EvidenceTopic, TopicOf
from probes.running.claiming import HOME, is_away, settle
from probes.running.fleet import Fleet
from probes.running.under_the_run import AnotherFleet
from tests.probes.log.evidence.carried import a_topic, carried
from tests.probes.log.lives import check_slices, table_rows, wait_for
from tests.probes.log.test_killed import violations
from tests.probes.test_under_the_run import sent, small

LIMIT = 120.0


@contextmanager
def running(
    config: ProbesConfig, cluster: LocalKafka, journals: Path, history: Path | EvidenceTopic
) -> Iterator[Fleet]:
    fleet = Fleet(config, Connection(cluster.bootstrap), journals, SystemClock(), history=history)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def busy() -> ProbesConfig:
    return small(transaction={"count": 2, "timeouts": [10]})


def worked(fleet: Fleet) -> None:
    wait_for(lambda: sent(fleet) > 20, LIMIT)


def an_original(config: ProbesConfig, cluster: LocalKafka, root: Path, topic: TopicOf | None = None) -> str:
    """A host that has worked, and was shut down; returns its run."""
    with running(config, cluster, root / "one", EvidenceTopic(topic) if topic else root / "history") as fleet:
        worked(fleet)
    shutil.copytree(root / "one", root / "two")
    return fleet.status().run


def both_begin(
    config: ProbesConfig, cluster: LocalKafka, root: Path, topic: TopicOf | None = None
) -> dict[str, ProbeError | ProbeLogError | None]:
    """By name, why it was refused. Who is not works for a while."""
    told: dict[str, ProbeError | ProbeLogError | None] = {}
    together = threading.Barrier(2)

    def begin(name: str) -> None:
        together.wait(LIMIT)
        try:
            history = EvidenceTopic(topic) if topic else root / "history"
            with running(config, cluster, root / name, history) as fleet:
                wait_for(lambda: sent(fleet) > 50, LIMIT)
                wait_for(lambda: len(told) == 1, LIMIT)
                assert fleet.failure is None
                told[name] = None
        except (ProbeError, ProbeLogError) as refused:
            told[name] = refused

    threads = [threading.Thread(target=begin, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT)
    return told


@pytest.mark.kafka
@pytest.mark.parametrize("by", ["table", "topic"])
def test_of_two_copies_that_begin_at_once_one_works_and_nobody_is_accused(
    kafka: LocalKafka, tmp_path: Path, by: str
) -> None:
    """They are alike, as a cloned machine and its original are, whose folders have the same path."""
    config, topic = busy(), a_topic(kafka) if by == "topic" else None
    an_original(config, kafka, tmp_path, topic)
    for name in ("one", "two"):
        (tmp_path / name / HOME).unlink(missing_ok=True)
    told = both_begin(config, kafka, tmp_path, topic)
    (refused,) = (error for error in told.values() if error is not None)
    assert isinstance(refused, FolderCopied | AnotherFleet)
    if topic is not None:
        carried(topic, tmp_path / "history")
    rows = table_rows(tmp_path / "history")
    check_slices(rows)
    assert violations(tmp_path / "history") == []


@pytest.mark.kafka
def test_a_copy_at_another_path_lets_the_original_begin(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.running.claiming.GIVES_WAY", 10.0)  # however busy this machine is
    monkeypatch.setattr("probes.running.fleet.look", lambda *_: 0)  # nor is it the records that tell
    config = busy()
    an_original(config, kafka, tmp_path)
    told = both_begin(config, kafka, tmp_path)
    assert told["one"] is None and isinstance(told["two"], FolderCopied)
    assert "copy of this folder is, or was, at work" in str(told["two"])
    check_slices(table_rows(tmp_path / "history"))
    assert violations(tmp_path / "history") == []


@pytest.mark.kafka
def test_a_host_that_is_alone_begins_as_it_did(kafka: LocalKafka, tmp_path: Path) -> None:
    """Again at once, and with its folder at another path."""
    config = small()
    run = an_original(config, kafka, tmp_path)
    shutil.rmtree(tmp_path / "two")
    for journals in ("one", "one", "moved", "moved"):
        if not (tmp_path / journals).exists():
            (tmp_path / "one").rename(tmp_path / "moved")
        with running(config, kafka, tmp_path / journals, tmp_path / "history") as fleet:
            worked(fleet)
            assert (fleet.status().run, fleet.failure) == (run, None)
    rows = table_rows(tmp_path / "history")
    check_slices(rows)
    assert len({row["process"] for row in rows if row["f"] == "mark"}) == 1
    assert violations(tmp_path / "history") == []


@pytest.mark.kafka
def test_who_cannot_reach_the_probe_log_begins_all_the_same(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it can, who is the copy ends, with all that it did in the probe log."""
    config = busy()
    an_original(config, kafka, tmp_path)
    history, away = tmp_path / "history", tmp_path / "away"
    history.rename(away)
    history.write_text("in the way")
    with running(config, kafka, tmp_path / "two", history) as copy:
        worked(copy)
        assert copy.failure is None
        history.unlink()
        away.rename(history)
        claim_of_the_original(tmp_path / "one", history)
        wait_for(lambda: copy.failure is not None, LIMIT)
        assert isinstance(copy.failure, FolderCopied)
    status = copy.status().committer
    assert status is not None and status.backlog == 0
    rows = table_rows(history)
    check_slices(rows)
    logged = sum(run["length"] for row in rows for run in row["sent"] or () if row["type"] == "ok")
    assert logged >= sent(copy) + 20
    assert violations(history) == []


def claim_of_the_original(journals: Path, history: Path) -> None:
    from probes.log.commits.committer import committer

    with committer(journals, history, SystemClock()) as one:
        one.claim()


def test_a_folder_knows_where_it_was_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_away(tmp_path), "nobody knows"
    settle(tmp_path)
    assert not is_away(tmp_path)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert is_away(moved)
    settle(moved)
    assert not is_away(moved)
    monkeypatch.setattr("platform.node", lambda: "another")
    assert is_away(moved)
    settle(moved)
    monkeypatch.setattr("probes.running.claiming.MACHINE", tmp_path / "nothing")
    assert is_away(moved)
