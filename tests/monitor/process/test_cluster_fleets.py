"""The processes of several clusters' probes, where no cluster answers: kept running, told once, stopped at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from deploy.local_kafka import LocalKafka
from monitor.config.cluster import ClusterConfig
from monitor.config.config import Config, load
from monitor.errors import ConfigError, UserError
from monitor.process.cluster_fleets import ClusterFleets, KeptFleet, left_behind
from monitor.process.fleet_process import Errand
from monitor.process.probing import open_probes
from monitor.process.reach import open_fleet
from probes.config import ProbesConfig, TopicsConfig, TransactionConfig, TransformConfig
from probes.log.journals.segments import OVER, life_folders
from probes.running.known_cluster import FILE as KNOWN
from probes.running.known_cluster import note_cluster
from rules.vocabulary.slices import SLICE_SCHEMA, to_table
from tests.known import a_folder, known
from tests.monitor.commands import silent_address
from tests.monitor.config.test_config import written
from tests.probes.log.lives import Prober, StillClock, logged, table_rows
from tests.rules.histories import History

LIMIT_S = 240.0


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    with silent_address() as one, silent_address() as two:
        clusters = [
            f"[clusters.{name}]\nbootstrap = '{address}'\nreachable_within = 0.2\n"
            for name, address in (("a", one), ("b", two))
        ]
        yield load(written(tmp_path, f"data = '{tmp_path / 'data'}'\n" + "".join(clusters)), {})


@pytest.fixture
def said() -> list[str]:
    return []


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Nobody may look into the folder, as whoever is not root."""
    root = os.geteuid() == 0
    folder.chmod(0)
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


@contextmanager
def listening(file: Path) -> Iterator[Path]:
    """The file, with what the processes that begin meanwhile say to their user. In a fixture it would not last: pytest
    sets its own capture up anew when the test itself begins."""
    before = os.dup(2)
    with file.open("ab") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield file
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def running(config: Config, said: list[str]) -> Iterator[ClusterFleets]:
    made = ClusterFleets(config, said.append)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def until(holds: Callable[[], object]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.1)


@pytest.mark.slow
def test_a_process_that_dies_is_begun_again_and_the_others_stay(
    config: Config, said: list[str], tmp_path: Path
) -> None:
    with listening(tmp_path / "stderr.txt") as heard, running(config, said) as fleets:
        a, b = fleets.fleets

        def tried() -> bool:
            lines = heard.read_text()
            return all(f"offsetwatch: {name}: its probes cannot start, and are tried again: " in lines for name in "ab")

        until(tried)
        first, other = a.pid, b.pid
        assert first is not None
        os.kill(first, signal.SIGSEGV)
        until(lambda: a.pid not in (None, first))
        assert said == [
            "the probes of 2 clusters have a process each: a, b",
            "a: the process of its probes was ended by SIGSEGV, and is begun again",
        ]
        assert b.pid == other and psutil.pid_exists(other or 0)
        assert a.status().layout is None, "nothing is made up of a cluster that was never reached"
        fleets.stop()
        assert not [pid for pid in (a.pid, b.pid) if pid is not None and psutil.pid_exists(pid)]


def test_a_single_cluster_has_to_answer(tmp_path: Path, said: list[str]) -> None:
    with silent_address() as nobody, listening(tmp_path / "stderr.txt") as heard:
        alone = Config(data=tmp_path, cluster=ClusterConfig(bootstrap=nobody, reachable_within=0.2))
        kept = KeptFleet(Errand(alone, tmp_path / "probes.log"), said.append)
        with pytest.raises(UserError, match=f"no broker answers at {nobody}"):
            kept.start()
        kept.stop()
    # Clients that other tests have left in this process may say that their broker is gone.
    lines = [line for line in heard.read_text().splitlines() if "rdkafka#" not in line or nobody in line]
    assert (said, lines) == ([], [])
    assert kept.pid is not None and not psutil.pid_exists(kept.pid)


def test_one_that_its_probes_have_worked_in_is_waited_for(tmp_path: Path, said: list[str]) -> None:
    """Whoever restarts the monitor in the middle of an outage is told of the outage."""
    with silent_address() as nobody, listening(tmp_path / "stderr.txt") as heard:
        alone = Config(data=tmp_path, cluster=ClusterConfig(bootstrap=nobody, reachable_within=0.2))
        alone.journals.mkdir(parents=True)
        note_cluster(alone.journals, "127.0.0.1:1", "elsewhere")
        with pytest.raises(ConfigError, match=f"no broker answers at {nobody}"):
            open_probes(alone, said.append, debug=False, apart=True)
        note_cluster(alone.journals, nobody, "here")
        kept = open_probes(alone, said.append, debug=False, apart=True)
        (line,) = said
        assert f"cluster.bootstrap: no broker answers at {nobody} within 0.2 s: " in line
        assert line.endswith("; the probes have worked there before, and begin as soon as they can")
        kept.start()
        try:
            until(lambda: "cannot start, and are tried again: " in heard.read_text())
        finally:
            kept.stop()


@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_the_probes_of_a_single_cluster_are_begun_again(kafka: LocalKafka, tmp_path: Path, said: list[str]) -> None:
    topics = TopicsConfig(prefix=tmp_path.name, partitions=1, replication=1, min_in_sync=1)
    few = ProbesConfig(topics=topics, transaction=TransactionConfig(count=0), transform=TransformConfig(count=0))
    alone = Config(data=tmp_path, cluster=ClusterConfig(bootstrap=kafka.bootstrap), probes=few)
    kept = KeptFleet(Errand(alone, tmp_path / "probes.log"), said.append)
    with listening(tmp_path / "stderr.txt") as heard:
        kept.start()
        try:
            pid = kept.pid
            assert kept.status().run and pid is not None
            os.kill(pid, signal.SIGKILL)
            until(lambda: kept.pid != pid)
            until(lambda: "probes of run" in heard.read_text())
            until(lambda: sum(probe.acknowledged for probe in kept.status().probes))
        finally:
            kept.stop()
    assert said == ["the process of the probes was ended by SIGKILL, and is begun again"]
    status = kept.status()
    assert status.committer is not None and status.committer.backlog == 0, "it has stopped in order"


def test_what_other_names_left_in_their_journals_is_appended_and_that_of_these_is_not(
    config: Config, said: list[str]
) -> None:
    clock = StillClock()
    folders = [config.data / "journals", config.data / "journals" / "clusters" / "former", config.of("a").journals]
    for number, folder in enumerate(folders, 1):
        Prober.start(folder, number, clock).kill()
    left_behind(config, said.append)
    rows = table_rows(a_folder(config.job.history_path))
    assert [bool(logged(rows, number)) for number in (1, 2, 3)] == [True, True, False]
    assert [line.partition(" rows that were left in ")[2] for line in said] == [
        f"{folder} are in the probe log now" for folder in folders[:2]
    ]
    assert not [life for life in life_folders(folders[2]) if (life / OVER).exists()], "its own committer does that"


@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_a_cluster_that_is_renamed_goes_on_as_the_same_run_by_the_same_clock(
    kafka: LocalKafka, tmp_path: Path, said: list[str]
) -> None:
    few = f"""
data = "{tmp_path / "data"}"
[probes.topics]
prefix = "{tmp_path.name}"
partitions = 1
replication = 1
min_in_sync = 1
[probes.transaction]
count = 0
[probes.transform]
count = 0
"""
    runs = []
    polled = History()
    polled.poll("r", [("w", 5, 1, 0)])
    once, never = to_table(polled.rows), SLICE_SCHEMA.empty_table()
    for section in ("cluster", "clusters.gold"):
        config = load(written(tmp_path, f"{few}[{section}]\nbootstrap = '{kafka.bootstrap}'\n"), {})
        (each,) = config.each()
        fleet = open_fleet(each, said.append)
        assert [known(fleet.stands_out)(rows) for rows in (once, once, never)] == [False, True, False]
        fleet.start()
        try:
            until(lambda: sum(probe.acknowledged for probe in fleet.status().probes))  # noqa: B023
            until((each.journals / KNOWN).exists)  # soon after it began
        finally:
            fleet.stop()
        runs.append(fleet.status().run)
    assert runs[0] == runs[1]
    rows = table_rows(a_folder(config.job.history_path))
    assert len({row["boot"] for row in rows}) == 1
    told = "it was watched under another name before: its probes go on with the journals of "
    assert [line for line in said if told in line] == [f"{told}{tmp_path / 'data' / 'journals'}"]


@pytest.mark.parametrize("clusters", [False, True])
def test_journals_that_cannot_be_read_are_named_and_nothing_ends_by_it(
    tmp_path: Path, said: list[str], capfd: pytest.CaptureFixture[str], clusters: bool
) -> None:
    """What looks for journals of before does so beside the probes: whoever writes there tells what is wrong."""
    journals = tmp_path / "data" / "journals"
    (journals / "clusters").mkdir(parents=True) if clusters else journals.mkdir(parents=True)
    config = load(written(tmp_path, f"data = '{tmp_path / 'data'}'\n"), {})
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o001)
    with without_rights(journals):
        with pytest.raises(PermissionError) as refused:
            config.former_journals()
        left_behind(config, said.append)
    assert refused.value.filename == str(journals)
    assert (said, capfd.readouterr().err) == ([], "")
