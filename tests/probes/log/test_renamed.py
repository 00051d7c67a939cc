"""Clusters that are called otherwise now: their probes go on with what they had, and nobody takes what is another's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitor.config.config import load
from probes.kafka.errors import ProbeError
from probes.log.commits.committer import committer
from probes.log.commits.folder_clock import folder_clock
from probes.running.known_cluster import note_cluster
from probes.running.probe_run import RUN_FILE
from probes.running.renamed import take_over
from tests.monitor.config.test_config import written
from tests.probes.log.lives import Prober, StillClock, logged, table_rows

CLUSTER = "PJhOjcr3Q_uHOi0jHtuxGQ"
ONE, TWO = ("[cluster]\nbootstrap = 'a:9092'\n", "[clusters.gold]\nbootstrap = 'a:9092'\n")


def journals(folder: Path, run: str = "r1", cluster: str = CLUSTER) -> Path:
    """As a fleet leaves them that has ended."""
    folder_clock(folder)
    (folder / RUN_FILE).write_text(run + "\n")
    note_cluster(folder, "a:9092", cluster)
    return folder


def boot(folder: Path) -> str:
    return folder_clock(folder).boot


@pytest.mark.parametrize(("before", "after"), [(ONE, TWO), (TWO, ONE), (TWO.replace("gold", "alpha"), TWO)])
def test_a_cluster_that_is_renamed_goes_on_by_the_same_clock(tmp_path: Path, before: str, after: str) -> None:
    data = f"data = '{tmp_path / 'data'}'\n"
    (former,), (now,) = (load(written(tmp_path, data + text), {}).each() for text in (before, after))
    known = boot(journals(former.journals))
    assert take_over(now.journals, now.former_journals(), CLUSTER) == former.journals
    assert ((now.journals / RUN_FILE).read_text(), boot(now.journals)) == ("r1\n", known)
    assert take_over(now.journals, now.former_journals(), CLUSTER) is None, "once"


def test_what_was_killed_there_is_logged_from_here(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(journals(folder), 1, clock)
    prober.send(0)
    with committer(folder, history, clock) as one:
        one.drain()
    prober.send(0)
    prober.kill()
    clock.tick()
    here = folder.parent / "clusters" / "gold"
    assert take_over(here, [folder], CLUSTER) == folder
    with committer(here, history, clock) as one:
        one.drain()
    assert logged(table_rows(history), 1) == prober.must_be_logged()


def test_those_of_another_cluster_are_left_alone(tmp_path: Path) -> None:
    former = journals(tmp_path / "alpha", cluster="another")
    assert take_over(tmp_path / "gold", [former], CLUSTER) is None
    assert (former / RUN_FILE).exists() and not (tmp_path / "gold").exists()


def test_who_has_journals_of_his_own_keeps_them(tmp_path: Path) -> None:
    former, own = journals(tmp_path / "alpha"), journals(tmp_path / "gold", run="r2")
    assert take_over(own, [former], CLUSTER) is None
    assert ((former / RUN_FILE).read_text(), (own / RUN_FILE).read_text()) == ("r1\n", "r2\n")


@pytest.mark.parametrize("at_work", ["a committer", "a probe"])
def test_those_that_somebody_is_at_work_with_are_his(
    folder: Path, history: Path, clock: StillClock, at_work: str, caplog: pytest.LogCaptureFixture
) -> None:
    prober = Prober.start(journals(folder), 1, clock)
    here = folder.parent / "gold"
    if at_work == "a probe":
        assert take_over(here, [folder], CLUSTER, patience=0.5) is None
        assert f"still at work with its journals in {folder}: " in caplog.messages[-1]
    prober.kill()
    with committer(folder, history, clock):
        assert take_over(here, [folder], CLUSTER, patience=0.5) is None
        assert f"still at work with its journals in {folder}: " in caplog.messages[-1]
    assert not (here / RUN_FILE).exists()
    assert take_over(here, [folder], CLUSTER) == folder, "when he is done"


def test_of_several_the_newest(tmp_path: Path) -> None:
    older, newer = journals(tmp_path / "a", run="r1"), journals(tmp_path / "b", run="r2")
    os.utime(older / RUN_FILE, (1, 1))
    assert take_over(tmp_path / "gold", [older, newer], CLUSTER) == newer


def test_whoever_is_killed_meanwhile_goes_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former, here = journals(tmp_path / "alpha"), tmp_path / "gold"
    everything = {entry.name for entry in former.iterdir()}
    known, rename, moved = boot(former), Path.rename, list[Path]()

    def killed(entry: Path, to: Path) -> Path:
        if moved:
            raise KeyboardInterrupt
        moved.append(to)
        return rename(entry, to)

    for _ in everything:
        moved.clear()
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Path, "rename", killed)
            take_over(here, [former], CLUSTER)
            raise KeyboardInterrupt  # all was moved
    take_over(here, [former], CLUSTER)
    assert {entry.name for entry in here.iterdir()} == everything
    assert boot(here) == known


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    former = journals(tmp_path / "alpha")
    (tmp_path / "gold").write_text("a file")
    with pytest.raises(ProbeError, match="gold cannot be used: "):
        take_over(tmp_path / "gold", [former], CLUSTER)
