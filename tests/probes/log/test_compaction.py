"""A probe log that no monitor looks after stays small."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from probes.log.commits import data_files
from probes.log.commits.compaction import keep_compact, tend


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A table of ten commits, a file each."""
    uri = str(tmp_path / "history")
    for number in range(10):
        write_deltalake(uri, pa.table({"number": [number]}), mode="append")
    return uri


def files(uri: str) -> int:
    return len(DeltaTable(uri).file_uris())


def test_it_is_compacted_from_so_many_files_on_and_holds_the_same_rows(log: str) -> None:
    assert tend(log, 11) == 0
    assert files(log) == 10
    assert tend(log, 10) == 10
    assert files(log) == 1
    assert sorted(DeltaTable(log).to_pyarrow_table()["number"].to_pylist()) == list(range(10))
    assert tend(log, 10) == 0


def test_what_it_wrote_survives_the_loss_of_the_host(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it replaces is deleted."""
    synced: list[Path] = []
    monkeypatch.setattr(data_files, "sync", synced.append)
    tend(log, 10)
    (made,) = DeltaTable(log).file_uris()
    assert {Path(made), Path(log) / "_delta_log" / f"{10:020}.json"} <= {*synced}


def test_no_row_is_news_to_a_reader(log: str) -> None:
    tend(log, 10)
    newest = DeltaTable(log).history(1)[0]
    assert newest["operation"] in ("OPTIMIZE", "VACUUM END")
    assert [commit["operation"] for commit in DeltaTable(log).history()].count("WRITE") == 10


def test_what_the_log_no_longer_tells_of_goes_too_after_a_day(log: str) -> None:
    unknown, young = Path(log) / "unknown.parquet", Path(log) / "young.parquet"
    for one in (unknown, young):
        one.write_bytes(b"")
    long_ago = time.time() - 25 * 3600
    os.utime(unknown, (long_ago, long_ago))
    tend(log, 10)
    assert not unknown.exists() and young.exists()


def test_a_log_that_is_not_there_yet_is_none(tmp_path: Path) -> None:
    assert tend(str(tmp_path / "none"), 1) == 0


def test_what_fails_is_tried_again(log: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hidden = tmp_path / "hidden"
    parts = [Path(uri) for uri in DeltaTable(log).file_uris()]
    parts[0].rename(hidden)
    stop = threading.Event()
    caplog.set_level("INFO", "offsetwatch.committer")
    working = threading.Thread(target=keep_compact, args=(log, stop), kwargs={"every": 0.02, "most": 10})
    working.start()
    try:
        _until(lambda: "was not compacted" in caplog.text)
        hidden.rename(parts[0])
        _until(lambda: files(log) == 1)
    finally:
        stop.set()
        working.join()
    assert "10 files of the probe log were compacted" in caplog.text


def _until(met: Callable[[], bool], limit: float = 180.0) -> None:
    waited = threading.Event()
    for _ in range(int(limit / 0.02)):
        if met():
            return
        waited.wait(0.02)
    raise AssertionError("waited in vain")
