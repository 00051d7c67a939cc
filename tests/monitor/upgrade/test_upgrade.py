"""What the data folder of an earlier version becomes: nothing that was told is lost or told again, and what was not yet
checked is."""

from __future__ import annotations

import json
import os
import signal
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deploy.local_kafka import LocalKafka
from tests.monitor.commands import offsetwatch, started
from tests.monitor.upgrade.keep import SETTINGS, TOLD, UNTOLD

KEPT = sorted((Path(__file__).parent / "kept").glob("*.tar.xz"))


@pytest.fixture
def given(kafka: LocalKafka, tmp_path: Path) -> dict[str, str]:
    """Of a cluster that the folder has never heard of."""
    return SETTINGS | {
        "OFFSETWATCH_DATA": str(tmp_path / "data"),
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
        # What was kept years ago is not to be aged out.
        "OFFSETWATCH_JOB__UPKEEP__ENABLED": "false",
    }


def findings(data: Path) -> list[dict[str, Any]]:
    rows = DeltaTable(str(data / "tables" / "findings")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["recorded"], row["id"], row["event"]))


def duplicates(data: Path) -> int:
    return sum(row["anomaly"] == "duplicate" for row in findings(data))


def processes(data: Path) -> Counter[int]:
    """How many rows of each process are logged."""
    log = DeltaTable(str(data / "tables" / "history")).to_pyarrow_table(columns=["process"])
    return Counter(log["process"].to_pylist())


class Running:
    """A command at work in a folder of its own, so that what each says is a file of its own."""

    def __init__(self, folder: Path, *arguments: str, **given: str) -> None:
        folder.mkdir()
        self._said = folder / "err.txt"
        self._child = started(*arguments, cwd=folder, **given)

    def until(self, holds: Callable[[], object]) -> None:
        limit = time.monotonic() + 240
        while not holds():
            assert self._child.poll() is None and time.monotonic() < limit, self._said.read_text()
            time.sleep(0.5)

    def stop(self) -> str:
        """What it said."""
        os.killpg(self._child.pid, signal.SIGTERM)
        assert self._child.wait(timeout=120) == 0, self._said.read_text()
        return self._said.read_text()

    def kill(self) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kept", KEPT, ids=[one.name.removesuffix(".tar.xz") for one in KEPT])
def test_a_folder_that_a_version_has_left_is_taken_over(kept: Path, given: dict[str, str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    with tarfile.open(kept) as archive:
        archive.extractall(data, filter="data")
    before, logged = findings(data), processes(data)
    listed = offsetwatch("findings", "--json", cwd=tmp_path, **given)
    assert listed.returncode == 0 and listed.stdout.count('"duplicate"') == TOLD, listed.stderr

    running = [Running(tmp_path / "probes", "probe", "run", **given), Running(tmp_path / "checks", "monitor", **given)]
    probes, checks = running
    try:
        # What the killed probes had journalled comes first.
        probes.until(lambda: set(processes(data)) - set(logged))
        assert sum(count for process, count in processes(data).items() if process in logged) > sum(logged.values())
        checks.until(lambda: duplicates(data) == TOLD + UNTOLD)
        said = [one.stop() for one in running]
    finally:
        for one in running:
            one.kill()
    assert "Traceback" not in "".join(said)
    after = findings(data)
    assert [row for row in after if row["recorded"] <= before[-1]["recorded"]] == before
    told = [(row["id"], row["event"], row["at"]) for row in after]
    assert len(told) == len(set(told)), "nothing is told again"
    twice = [json.loads(row["evidence"])["seq"] for row in after if row["anomaly"] == "duplicate"]
    assert sorted(twice) == sorted([*range(TOLD), *range(UNTOLD)])
    severe = {row["anomaly"] for row in after if row["severity"] in ("critical", "warning")}
    assert severe == {"duplicate"}
