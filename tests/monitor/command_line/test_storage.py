"""What `offsetwatch status` says of the disk."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli import app
from monitor.commands import storage as storages
from monitor.commands.storage import DAY, Part, Storage, lines, outlook, size
from streaming_jobs.config import JobConfig
from streaming_jobs.location import TableUrl
from tests.rules.histories import History
from tests.streaming_jobs.probe_log import commit

GB = 1_000_000_000


def storage(**changed: Any) -> Storage:
    given: dict[str, Any] = {
        "data": Path("/data"),
        "parts": [Part("journals", 5_000, 2), Part("tables/history", GB, 400, 120)],
        "free": 100 * GB,
        "total": 200 * GB,
        "rate": 2.0 * GB,
        "span": DAY,
        "kept": 31 * DAY,
    }
    return Storage(**(given | changed))


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (99_960, "100 kB"),
        (999_600, "1.0 MB"),
        (12_345_678, "12.3 MB"),
        (4 * GB, "4.0 GB"),
        (2_000 * GB, "2.0 TB"),
    ],
)
def test_sizes_have_three_digits_at_most(bytes_: int, said: str) -> None:
    assert size(bytes_) == said


def test_a_disk_that_does_is_said_to_and_one_that_does_not_when() -> None:
    assert storage().days_left is None
    assert outlook(storage()) == (
        "The probe log grows by 2.0 GB a day and is kept for 31 days (job.upkeep.history_days): 60.0 GB more, and no "
        "more then."
    )
    small = storage(free=40 * GB)
    assert small.days_left == 20
    assert outlook(small) == (
        "The probe log grows by 2.0 GB a day: THE DISK IS FULL IN 20 DAYS. It is kept for 31 days "
        "(job.upkeep.history_days), for which 60.0 GB more are needed."
    )
    assert "FULL IN 12 HOURS" in outlook(storage(free=GB))


def test_what_is_aged_out_already_needs_no_more_room() -> None:
    assert storage(free=1, span=40 * DAY).days_left is None


def test_under_a_cap_it_grows_to_that_and_no_further() -> None:
    capped = storage(free=10 * GB, most=5.0 * GB)
    assert (capped.taken, capped.days_left) == (GB + 5_000, None)
    assert outlook(capped) == (
        "The probe log grows by 2.0 GB a day and is kept for 31 days (job.upkeep.history_days), or as long as the "
        "folder stays below 5.0 GB (max_gb): 4.0 GB more, and no more then."
    )
    assert storage(free=3 * GB, most=5.0 * GB).days_left == 1.5
    assert storage(span=30 * DAY, most=500.0 * GB).needed == 2 * GB
    assert storage(most=1.0).needed == 0


def test_a_log_in_an_object_store_takes_none_of_this_disk() -> None:
    remote = storage(free=GB, elsewhere=TableUrl("s3://bucket/history"))
    assert (remote.days_left, remote.needed) == (None, 0)
    assert outlook(remote) == (
        "The probe log grows by 2.0 GB a day at s3://bucket/history, which takes none of this disk, and is kept for "
        "31 days (job.upkeep.history_days)."
    )


def test_a_log_of_minutes_says_nothing_about_a_day() -> None:
    assert outlook(storage(rate=None)) == "How fast it grows can be told once the probe log is ten minutes long."


def test_the_largest_part_comes_first_and_small_ones_are_one_line() -> None:
    small = [Part("logs", 5_000, 2), Part("cycles", 6_000, 1)]
    parts = [Part("journals", 80_000_000, 1), Part("tables/history", GB, 400, 120), *small]
    assert [line.plain for line in lines(storage(parts=parts))][:4] == [
        "/data: 100 GB free of 200 GB",
        "  tables/history           1.0 GB in 400 files, 120 of them live",
        "  journals                80.0 MB in 1 file",
        "  2 others                11.0 kB",
    ]


def test_the_command_measures_the_folder(tmp_path: Path) -> None:
    history = History()
    for seq, at in enumerate((0.0, 1200.0)):
        history.time = at
        commit(tmp_path / "tables" / "history", [history.send("w", seq, 1, at=seq)])
    (tmp_path / "journals").mkdir()
    (tmp_path / "journals" / "one").write_bytes(b"x" * 1234)
    told = CliRunner().invoke(app, ["status", "--data", str(tmp_path), "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)["storage"]
    assert found["parts"]["journals"] == {"bytes": 1234, "files": 1, "live": None}
    assert found["parts"]["tables/history"]["live"] == 2
    live = sum(file.stat().st_size for file in (tmp_path / "tables" / "history").rglob("*.parquet"))
    assert found["bytes_a_day"] == pytest.approx(live / (timedelta(minutes=20) / DAY), rel=0.05)


def test_a_store_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a dozen tables would be asked for some seconds."""
    asked: list[object] = []

    def away(location: object, *, impatient: bool) -> None:
        asked.append(location)
        raise OSError("no answer")

    monkeypatch.setattr(storages, "opened", away)
    tables = TableUrl("s3://bucket/tables")
    assert storages._stored(JobConfig(tables=tables)) == []
    assert asked == [tables / "history"]
