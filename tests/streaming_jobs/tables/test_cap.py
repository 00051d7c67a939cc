"""A cap on the data folder: what goes, how much of it, and what is said."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming_jobs.config import JobConfig
from streaming_jobs.tables import cap
from streaming_jobs.tables.cap import Held, cut
from streaming_jobs.tables.upkeep import Upkeep
from tests.known import a_folder
from tests.streaming_jobs.probe_log import commit, duplicates, loose

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


@pytest.mark.parametrize(
    ("excess", "until"),
    [(-1, None), (0, None), (1, ago(30)), (10, ago(30)), (11, ago(20)), (20, ago(20)), (1000, ago(2))],
)
def test_the_oldest_goes_until_it_is_enough_and_the_last_hour_stays(excess: float, until: datetime | None) -> None:
    files = [Held(10, ago(hours)) for hours in (20, 0.5, 30, 2, 0.99)]
    assert cut(files, excess, NOW) == until


def test_a_clock_that_is_ahead_saves_only_its_own_rows() -> None:
    assert cut([Held(10, ago(-24 * 365)), Held(10, ago(3))], 15, NOW) == ago(3)
    assert cut([], 15, NOW) is None


def test_the_last_hour_is_the_log_s_also_by_a_clock_of_ours_that_is_ahead() -> None:
    files = [Held(10, ago(hours)) for hours in (5, 3.5, 3)]
    for now in (NOW, NOW + timedelta(days=365)):
        assert cut(files, 1000, now) == ago(5)


def hourly(config: JobConfig, hours: int) -> None:
    """A probe log with a commit an hour, the newest half an hour old."""
    for number, rows in enumerate(duplicates(hours)):
        at = ago(hours - number - 0.5)
        commit(config.history_path, loose(rows, invoked=at, completed=at, date=at.date()))


def sizes(config: JobConfig) -> list[int]:
    return [file.size for file in sorted(cap.held(a_folder(config.history_path)), key=lambda file: file.last)]


def under(tmp_path: Path, most: float, *, other: int) -> JobConfig:
    """A configuration whose cap is `most` bytes, with `other` bytes in the folder that are no probe log."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "spark.log").write_bytes(b"x" * other)
    upkeep = {"small_files": 10_000, "max_gb": most / 1e9}
    return JobConfig.model_validate({"root": tmp_path, "upkeep": upkeep})


def rows(config: JobConfig) -> pa.Table:
    return DeltaTable(str(config.history_path)).to_pyarrow_table()


def test_below_nine_tenths_nothing_goes(tmp_path: Path) -> None:
    config = under(tmp_path, 10_000_000, other=8_000_000)
    hourly(config, 6)
    assert list(Upkeep(config).run(NOW)) == ["history: 0 unused files deleted"]
    assert len(sizes(config)) == 6


def test_above_it_the_oldest_rows_go_and_it_is_said_and_their_files_go_an_hour_later(tmp_path: Path) -> None:
    other = 200_000
    config = under(tmp_path, 1, other=other)
    hourly(config, 30)
    before, whole = sizes(config), rows(config)
    taken = cap.taken([tmp_path], a_folder(config.history_path), cap.held(a_folder(config.history_path))).total
    config = JobConfig.model_validate(config.model_dump() | {"upkeep": {"max_gb": taken / 0.95 / 1e9}})
    upkeep = Upkeep(config)
    told = [line for line in upkeep.run(NOW) if "max_gb" in line]
    assert len(told) == 1, told
    assert told[0].startswith(f"the data folder takes {taken / 1e9:.3g} GB of "), told
    assert "files aged out (date <= '2026-01-" in told[0], told
    least = taken - 0.8 * taken / 0.95
    gone = len(before) - len(sizes(config))
    assert sum(before[:gone]) >= least > sum(before[: gone - 1]), "enough, and not a file more"
    newest = whole.filter(pa.compute.greater_equal(whole["completed"], ago(30 - gone - 0.5)))
    assert sorted(rows(config).to_pylist(), key=repr) == sorted(newest.to_pylist(), key=repr)
    assert not any("max_gb" in line for line in upkeep.run(NOW)), "what is about to be deleted is not counted"

    def files() -> int:
        return sum(
            name.endswith(".parquet") for _, _, names in os.walk(a_folder(config.history_path)) for name in names
        )

    assert files() == 30
    (tmp_path / "logs" / "more.log").write_bytes(b"x" * int(taken * 0.06))
    list(upkeep.run(NOW))
    assert files() == 30, "somebody may still read them"
    _age(a_folder(config.history_path), timedelta(hours=2))
    list(upkeep.run(NOW))
    assert files() == 30 - gone


def _age(table: Path, by: timedelta) -> None:
    """Let the removals in the table's log be older."""
    for file in (table / "_delta_log").glob("*.json"):
        text = file.read_text()
        if '"remove"' in text:
            lines = [json.loads(line) for line in text.splitlines()]
            for line in lines:
                if "remove" in line:
                    line["remove"]["deletionTimestamp"] -= int(by.total_seconds() * 1000)
            file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def test_where_the_last_hour_is_too_much_it_is_said(tmp_path: Path) -> None:
    config = under(tmp_path, 100_000, other=200_000)
    hourly(config, 2)
    told = [line for line in Upkeep(config).run(NOW) if "max_gb" in line]
    assert len(told) == 1
    assert "history: 1 files aged out" in told[0]
    told = [line for line in Upkeep(config).run(NOW) if "max_gb" in line]
    assert len(told) == 1
    assert told[0].endswith("nothing is left to take but its last hour")
    assert len(sizes(config)) == 1
