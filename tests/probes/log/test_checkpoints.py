"""Checkpoints of the probe log's table: a process makes each, and where it cannot, the commit does."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from probes.log.commits import checkpoints
from probes.log.commits.history import History, TableProperties
from tests.probes.log.test_data_files import rows_at

PROJECT = Path(__file__).parents[3]
AT = datetime(2026, 11, 28, tzinfo=UTC)
MANY = """
import sys
from datetime import UTC, datetime
from pathlib import Path

from probes.log.commits.history import History
from tests.probes.log.test_data_files import rows_at

history, rows = History(sys.argv[1]), rows_at(datetime(2026, 11, 28, tzinfo=UTC))
for version in range(1, 61):
    assert not history.has("app", version, Path(sys.argv[1]))
    history.append(rows, "app", version)
    history._checkpoints.close()  # appends are a second apart: it is made by the next one
print(sum("tokio" in one.read_text() for one in Path("/proc/self/task").glob("*/comm")))
history.close()
"""


def made(place: Path) -> list[int]:
    return sorted(int(one.name.partition(".")[0]) for one in place.glob("_delta_log/*.checkpoint.parquet"))


def appended(history: History, *versions: int) -> None:
    for version in versions:
        assert not history.has("app", version, Path())
        history.append(rows_at(AT), "app", version)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted by /proc")
def test_a_checkpoint_leaves_no_threads_behind(tmp_path: Path) -> None:
    """deltalake reads the commits since the last one each in a thread: there were some forty."""
    ran = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path / "history")],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) <= 16 + (os.cpu_count() or 1)
    assert made(tmp_path / "history") == [49]


def test_it_says_what_the_table_says(tmp_path: Path) -> None:
    place = tmp_path / "history"
    history = History(str(place), TableProperties(checkpoint_interval=3))
    appended(history, 1, 2)
    history.close()
    assert made(place) == [2]
    before = DeltaTable(str(place))
    told = sorted(before.file_uris()), before.transaction_version("app")
    for version in (0, 1):
        (place / "_delta_log" / f"{version:020}.json").unlink()
    after = DeltaTable(str(place))  # from the checkpoint, that is
    assert (sorted(after.file_uris()), after.transaction_version("app")) == told
    assert (len(told[0]), told[1]) == (2, 2)
    appended(history, 3)
    assert DeltaTable(str(place)).version() == 3


def test_who_appends_goes_on_from_it(tmp_path: Path) -> None:
    """An append costs the more the more commits are known since the last checkpoint."""
    place = tmp_path / "history"
    history = History(str(place), TableProperties(checkpoint_interval=3))
    appended(history, 1, 2)
    opened = history._table
    assert history._checkpoints is not None
    history._checkpoints.close()
    assert history.last_version("app") == 2
    anew = history._table
    assert anew is not opened
    appended(history, 3, 4)
    assert history._table is anew
    assert history.last_versions(["app", "other"]) == {"app": 4, "other": 0}


def test_it_is_on_the_disk_when_its_process_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "history"
    appended(History(str(place)), 1)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    checkpoints.make(place, 1)
    log = place / "_delta_log"
    assert synced == [
        str(log / f".{1:020}.checkpoint.parquet.tmp"),
        str(log),
        str(log / "._last_checkpoint.tmp"),
        str(log),
    ]
    assert {one.name for one in log.iterdir()} == {
        f"{0:020}.json",
        f"{1:020}.json",
        f"{1:020}.checkpoint.parquet",
        "_last_checkpoint",
    }


def test_it_is_compressed_and_goes_on_from_the_one_before(tmp_path: Path) -> None:
    """deltalake's own are not, and a canary has one every fifty seconds."""
    place = tmp_path / "history"
    appended(History(str(place)), *range(1, 31))
    log = place / "_delta_log"
    checkpoints.make(place, 10)
    for version in range(10):
        (log / f"{version:020}.json").unlink()  # what a checkpoint says may go
    told = actions(place)
    DeltaTable(str(place)).create_checkpoint()
    theirs = (log / f"{30:020}.checkpoint.parquet").stat().st_size
    checkpoints.make(place, 30)
    ours = (log / f"{30:020}.checkpoint.parquet").stat().st_size
    assert ours < theirs / 2
    assert json.loads((log / "_last_checkpoint").read_bytes()) == {
        "version": 30,
        "size": 33,
        "sizeInBytes": ours,
        "numOfAddFiles": 30,
    }
    for version in range(10, 30):
        (log / f"{version:020}.json").unlink()
    (log / f"{10:020}.checkpoint.parquet").unlink()
    assert actions(place) == told


def actions(place: Path) -> tuple[object, ...]:
    """All that the table's log says."""
    table = DeltaTable(str(place))
    files = sorted(pa.table(table.get_add_actions()).to_pylist(), key=lambda one: str(one["path"]))
    about = table.metadata()
    return files, about.id, about.configuration, table.schema(), str(table.protocol()), table.transaction_version("app")


@pytest.mark.parametrize("program", ["/bin/false", "/does/not/exist"])
def test_where_there_can_be_no_process_the_next_one_is_made_with_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, program: str
) -> None:
    """Without checkpoints the commits of the table's log would never be deleted."""
    place = tmp_path / "history"
    history = History(str(place), TableProperties(checkpoint_interval=3))
    caplog.set_level(logging.INFO)
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", program)
        appended(history, 1, 2)
        history.close()
    assert made(place) == []
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == ["no checkpoint of the probe log was made"]
    appended(history, 3, 4, 5)
    assert made(place) == [5], "with the commit, as `close` was not called"
    appended(history, 6, 7, 8)
    history.close()
    assert made(place) == [5, 8]


def test_one_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 600\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hangs))
    monkeypatch.setattr(checkpoints, "WITHIN", 0.2)
    one = checkpoints.Checkpoints(tmp_path, 3)
    one.committed(2)
    assert not one.failed
    one.close()
    assert one.failed
