"""A fleet looks at what stands under its run before it begins: on a real broker, beside others and after them."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.local_kafka import LocalKafka
from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.kafka.errors import ProbeError
from probes.log.commits.committer import committer
from probes.log.errors import FolderTaken
from probes.log.journals.journal import Journal, Life
from probes.running.fleet import Fleet
from probes.running.probe_run import former_runs
from probes.running.under_the_run import MOMENT, SIGNS, AnotherFleet, Look, Senders, living_writers
from tests.probes.log.lives import check_slices, table_rows, wait_for
from tests.probes.log.test_killed import violations

pytestmark = pytest.mark.kafka
US = 1_000_000


def small(**more: object) -> ProbesConfig:
    none = {"count": 0}
    return ProbesConfig.model_validate(
        {
            "topics": {"prefix": f"twice-{uuid.uuid4().hex[:8]}", "partitions": 1},
            "writer": {"count": 1, "with_five_in_flight": 0, "rate": 20},
            "reader": {"assign": 1, "group": 0, "restless": 0, "per_broker": False},
            "transaction": none,
            "transform": none,
            "aborts": none,
            "registers": none,
            "zombies": none,
            "end_to_end": none,
            "audit": {"enabled": False},
            "unrest": {"enabled": False},
            **more,
        }
    )


@contextmanager
def running(
    config: ProbesConfig, cluster: LocalKafka, folder: Path, say: Callable[[str], None] | None = None
) -> Iterator[Fleet]:
    fleet = Fleet(
        config, Connection(cluster.bootstrap), folder / "journals", SystemClock(), history=folder / "history", say=say
    )
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def sent(fleet: Fleet) -> int:
    return sum(probe.acknowledged for probe in fleet.status().probes)


def _has_sent(fleet: Fleet, more_than: int) -> bool:
    return sent(fleet) > more_than


def copy_in_use(folder: Path, to: Path) -> None:
    """Copy a folder in which others work: what has gone before it could be copied is not there."""
    try:
        shutil.copytree(folder, to)
    except shutil.Error as failed:
        assert all("No such file or directory" in why for *_, why in failed.args[0]), failed


def test_a_copy_of_a_folder_in_use_does_not_begin(kafka: LocalKafka, tmp_path: Path) -> None:
    config = small()
    with running(config, kafka, tmp_path / "one") as original:
        wait_for(lambda: sent(original) > 20)
        copy_in_use(tmp_path / "one", tmp_path / "two")
        before = {file: file.read_bytes() for file in (tmp_path / "two" / "journals" / "lives").rglob("*.journal")}
        assert before
        told = f"records of run {original.status().run} arrive that no probe of {tmp_path / 'two' / 'journals'} sends"
        with pytest.raises(AnotherFleet, match=told), running(config, kafka, tmp_path / "two"):
            pass
        assert all(file.read_bytes() == data for file, data in before.items()), "nothing is made of its lives"
        with committer(tmp_path / "two" / "journals", tmp_path / "two" / "history", SystemClock()):
            """Its folder is free."""
        with pytest.raises(FolderTaken), running(config, kafka, tmp_path / "one"):
            pass
        assert original.failure is None


def test_two_that_begin_at_once_do_not_both_stay(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.running.fleet.LOOK_AGAIN", (3.0, 4.0))
    config = small(run="same")
    failures: list[Exception] = []

    def begin(name: str) -> None:
        try:
            with running(config, kafka, tmp_path / name) as fleet:
                wait_for(lambda: failures or fleet.failure is not None)
                failures.extend([fleet.failure] if fleet.failure is not None else [])
        except AnotherFleet as refused:  # it was so much slower than the other that it sees it before it begins
            failures.append(refused)

    threads = [threading.Thread(target=begin, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(failure) for failure in failures} == {AnotherFleet}


@pytest.mark.parametrize("killed", [False, True])
def test_a_folder_that_was_brought_back_begins_a_run_of_its_own(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, killed: bool
) -> None:
    """What its journals do not tell proves nothing: to the rules it is neither unsent nor lost."""
    monkeypatch.setattr("probes.running.brought_back.KILLED", 500_000)
    config, said = small(transaction={"count": 2, "timeouts": [10]}), list[str]()
    with running(config, kafka, tmp_path / "one") as original:
        wait_for(lambda: sent(original) > 50)
        if not killed:
            original.stop()
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        if killed:
            before = sent(original)
            wait_for(lambda: sent(original) > before + 50)
    if not killed:
        with running(config, kafka, tmp_path / "one") as original:
            wait_for(lambda: sent(original) > 50)
    former = original.status().run
    with running(config, kafka, tmp_path / "two", said.append) as copy:
        wait_for(lambda: sent(copy) > 50)
        begun = copy.status().run
        assert begun != former
        time.sleep(3)
    assert former_runs(tmp_path / "two" / "journals") == {former}
    assert "holds records of run" not in caplog.text, "it would be asked whether it is one of ours"
    (line,) = (line for line in said if "older copy" in line)
    assert f"records of run {former} were sent after what it tells" in line
    rows = table_rows(tmp_path / "two" / "history")
    check_slices(rows)
    ended = {mark["process"]: mark["lost"] for row in rows for mark in row["marks"] or () if mark["ended"] is not None}
    assert {ended[row["process"]] for row in rows if row["run"] == former} == {killed}
    assert violations(tmp_path / "two" / "history") == []
    with running(config, kafka, tmp_path / "two") as copy:
        assert copy.status().run == begun, "and it keeps it"


def test_who_has_written_since_does_not_hide_that_a_folder_was_brought_back(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is brought back twice: the second time the topics end with records of the run that was begun at the first."""
    monkeypatch.setattr("probes.running.brought_back.KILLED", 500_000)
    monkeypatch.setattr("probes.running.under_the_run.TAIL", 20)
    config = small()
    with running(config, kafka, tmp_path / "one") as original:
        wait_for(lambda: sent(original) > 20)
        for name in ("two", "three"):
            copy_in_use(tmp_path / "one", tmp_path / name)
        before = sent(original)
        wait_for(lambda: sent(original) > before + 50)
    runs = [original.status().run]
    for name in ("two", "three"):
        with running(config, kafka, tmp_path / name) as copy:
            wait_for(partial(_has_sent, copy, 60))
            runs.append(copy.status().run)
        assert violations(tmp_path / name / "history") == []
    assert len(set(runs)) == 3


def test_whose_run_is_configured_is_told_what_to_do(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.running.brought_back.KILLED", 500_000)
    config = small(run="ours")
    with running(config, kafka, tmp_path / "one") as original:
        wait_for(lambda: sent(original) > 20)
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        before = sent(original)
        wait_for(lambda: sent(original) > before + 50)
    with (
        pytest.raises(ProbeError, match=r"older copy of itself: .* Move it away"),
        running(config, kafka, tmp_path / "two"),
    ):
        pass
    with running(config, kafka, tmp_path / "one") as again:
        assert again.status().run == "ours"


def test_a_fleet_does_not_take_its_own_probes_for_another(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor those of its last life, whatever they had in flight."""
    monkeypatch.setattr("probes.running.fleet.LOOK_AGAIN", (0.5, 1.0))
    config = small()
    for _ in range(2):
        with running(config, kafka, tmp_path) as fleet:
            wait_for(lambda: sent(fleet) > 20)
            assert fleet._second_look is not None
            fleet._second_look.join()
            assert fleet.failure is None


def test_only_who_goes_on_sending_is_another() -> None:
    """What was in flight comes at once; what is late comes with the times of its sending."""
    assert [Senders().note(1, at * US, 0.0) for at in range(3 * SIGNS)] == [False] * (3 * SIGNS)
    in_flight = Senders()
    assert not any(in_flight.note(1, at * US, 10.0 + at / 1000) for at in range(100))
    handed_at_once = Senders()
    assert not any(handed_at_once.note(1, 7 * US, 10.0 + at) for at in range(100))
    many = Senders()
    assert not any(many.note(at, at * US, 10.0 + at) for at in range(100))
    living = Senders()
    heard = [living.note(1, round(at * MOMENT * US), 10.0 + at * MOMENT * 1.001) for at in range(SIGNS)]
    assert heard == [False] * (SIGNS - 1) + [True]


def test_a_cluster_that_answers_late_is_waited_for(tmp_path: Path) -> None:
    """Nobody is heard of before there is an answer, and that a partition ends is one."""
    end = SimpleNamespace(error=lambda: "_PARTITION_EOF")
    one = Look("r", tmp_path, {})
    time.sleep(0.01)
    one.take([])
    assert one.quiet() == 0.0
    one.take([end])
    time.sleep(0.01)
    before = one.quiet()
    one.take([end])
    assert 0.0 < before < one.quiet()


def test_whose_process_has_gone_sends_nothing(tmp_path: Path) -> None:
    def life(process: int, writer: int | None) -> Journal:
        return Journal.create(
            tmp_path,
            Life(
                cluster="c",
                run="r",
                process=process,
                kind="writer",
                writer=writer,
                transactional_id=None,
                boot=SystemClock().boot,
                settings={},
            ),
        )

    held, dead, reader = life(1, 10), life(2, 20), life(3, None)
    dead.release()
    assert living_writers(tmp_path) == {10}
    (tmp_path / "lives" / held.folder.name / "00000000000000000000.new").touch()
    assert living_writers(tmp_path) == {10}
    held.release()
    reader.release()
    assert living_writers(tmp_path) == set()
    assert living_writers(tmp_path / "nothing") == set()
