"""What a month of running does to the tables, and to a batch: `BENCH_MONTH_DAYS` (30) of them, simulated.

A monitor checks the beginning of a recorded log (what `canary` left) and is stopped. Then the days pass for its tables
alone, in a process whose clock libfaketime sets: every `BENCH_MONTH_EVERY` seconds (120) a second of the recorded log
is appended as the probes append it, the job's tables are written as by a batch, and upkeep runs when it is due. The
monitor begins again where the log ends now, and its batches are measured, beside those of a folder for which no day
has passed. What a real month has more of is appends, a second and not two minutes apart: logs of commits are kept for
hours, so that their length is that of a day. What the checks keep is measured by `day`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from probes.log.commits.history import History
from rules.vocabulary.slices import SLICE_SCHEMA
from streaming_jobs.config import JobConfig
from streaming_jobs.integrity_job import BatchProgress
from streaming_jobs.tables.cap import bytes_and_files
from streaming_jobs.tables.delta_tables import open_tables, read_table
from streaming_jobs.tables.upkeep import Upkeep
from tests.bench.footprint import taken
from tests.bench.replayed import Recorded, watched
from tests.bench.report import machine, mib, show

FAKETIME: Final = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
WARM, MEASURED = 20, 40
"""Commits, a second apart."""
COUNTED_PER_HOUR: Final = 1_500
"""Findings that are only counted, as the default fleet's unrest makes them: 13 millions a year."""
RUNS: Final = 2


def run(root: Path) -> None:
    """Measure and print it."""
    if not Path(FAKETIME).exists():
        raise SystemExit(f"the month needs libfaketime ({FAKETIME})")
    days = int(os.environ.get("BENCH_MONTH_DAYS", "30"))
    recorded = Path(os.environ.get("BENCH_HISTORY", root / "canary" / "data" / "tables" / "history"))
    told, fresh, old = machine(), root / "month-0", root / "month"
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
        _begin(folder, recorded)
    took = _pass(old, days, root)
    print((old / "days.txt").read_text(), flush=True)
    batches: dict[Path, list[tuple[float, float]]] = {fresh: [], old: []}
    for _ in range(RUNS):
        for folder, known in batches.items():
            known.append(_measured(folder, recorded))
    (first, spent_first), (last, spent_last) = (np.mean(batches[folder], axis=0) for folder in (fresh, old))
    show(
        f"after {days} days",
        {
            "machine": told,
            "simulated in": f"{took:.0f} s",
            "batch, median": f"{first:.3f} s, then {last:.3f} s: x{last / first:.2f} (asked: at most 1.20)",
            "its processor time": f"{spent_first:.3f} s, then {spent_last:.3f} s: x{spent_last / spent_first:.2f}",
            "load at the end": f"{psutil.getloadavg()[0]:.1f}",
        },
    )


def _begin(folder: Path, recorded: Path) -> None:
    """The monitor's first seconds."""
    log = Recorded(recorded, folder / "tables" / "history")
    log.commit(30)
    with watched(folder, OFFSETWATCH_JOB__UPKEEP__ENABLED="false") as done:
        log.play(5)
        _until_read(done)


def _measured(folder: Path, recorded: Path) -> tuple[float, float]:
    """Of a batch, where the log goes on: its median duration and its processor time, seconds."""
    offsets = folder / "checkpoints" / "integrity" / "offsets"
    newest = max((one for one in offsets.iterdir() if one.name.isdigit()), key=lambda one: int(one.name))
    version = DeltaTable(str(folder / "tables" / "history")).version() + 1
    lines = newest.read_text().splitlines()
    newest.write_text("\n".join([*lines[:-1], json.dumps({"version": version, "file": 0})]))
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    played = int((folder / "played").read_text()) if (folder / "played").exists() else 35
    log = Recorded(recorded, folder / "tables" / "history", begin=played, version=version)
    log.commit(1)
    with watched(folder, OFFSETWATCH_JOB__UPKEEP__ENABLED="false") as done:
        log.play(WARM)
        before, since = taken(psutil.Process()), len(done)
        log.play(MEASURED)
        after, batches = taken(psutil.Process()), done[since:]
    (folder / "played").write_text(str(played + 1 + WARM + MEASURED))
    spent = sum(after.seconds[kind] - before.seconds.get(kind, 0.0) for kind in after.seconds)
    return float(np.median([one.duration for one in batches])), spent / len(batches)


def _until_read(done: list[BatchProgress]) -> None:
    known = -1
    while known != len(done):
        known = len(done)
        time.sleep(3)


def _pass(folder: Path, days: int, root: Path) -> float:
    """Let the days pass, in a process with a clock of its own; how long that took, in seconds."""
    began = time.monotonic()
    environment = os.environ | {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "TZ": "UTC",
        "BENCH_MONTH_FOLDER": str(folder),
        "BENCH_MONTH_DAYS": str(days),
        "BENCH_ROOT": str(root),
        "FAKETIME": _told(datetime.now(UTC) - timedelta(days=days)),
    }
    subprocess.run([sys.executable, "-m", "tests.bench", "month"], env=environment, check=True)
    return time.monotonic() - began


def pass_days(folder: Path) -> None:
    """In that process: append, write, keep up, until it is the present again."""
    days, every = (int(os.environ.get(f"BENCH_MONTH_{name}", of)) for name, of in (("DAYS", "30"), ("EVERY", "120")))
    start = datetime.now(UTC)
    appended, tables, upkeep = _Appended(folder), open_tables(folder / "tables"), Upkeep(JobConfig(root=folder))
    kept = {name: read_table(folder / "tables", name) for name in ("partition_state", "readers", "across")}
    counted = _counted(folder)
    with (folder / "days.txt").open("w") as said:
        for step in range(days * 86_400 // every):
            now = start + timedelta(seconds=(step + 1) * every)
            os.environ["FAKETIME"] = _told(now)
            appended.second(now)
            for name, rows in kept.items():
                tables[name].write(rows, mode="overwrite")
            tables["findings"].write(_at(counted, now).slice(0, COUNTED_PER_HOUR * every // 3600), mode="append")
            if step % max(1, 600 // every) == 0:
                for line in upkeep.run(now):
                    if "put off" in line:
                        raise SystemExit(line)
            _date_logs(folder / "tables", now)
            if (step + 1) * every % 86_400 == 0:
                day = (step + 1) * every // 86_400
                if day in (1, 2, 3, 7, 14, 21, 28, days):
                    said.write(f"day {day}: {_looks(folder / 'tables')}\n")
                    said.flush()


class _Appended:
    """Seconds of what the monitor has read already, appended again and again at other times."""

    def __init__(self, folder: Path) -> None:
        uri = folder / "tables" / "history"
        self._rows = DeltaTable(str(uri)).to_pyarrow_table().select(SLICE_SCHEMA.names).cast(SLICE_SCHEMA)
        seconds = pc.floor_temporal(self._rows["completed"], unit="second").cast(pa.int64())
        common = pc.mode(seconds)[0]["mode"]
        self._rows = self._rows.filter(pc.equal(seconds, common)).combine_chunks()
        self._history, self._number = History(str(uri)), 0

    def second(self, now: datetime) -> None:
        """One append, as a committer makes it."""
        self._number += 1
        self._history.last_version("bench")
        self._history.append(_at(self._rows, now), "bench", self._number)


def _at(rows: pa.Table, now: datetime) -> pa.Table:
    """The same rows at another time."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.name in ("invoked", "completed", "at", "decidable", "recorded"):
            rows = rows.set_column(i, field, pa.array([now] * rows.num_rows, field.type))
    return rows


def _counted(folder: Path) -> pa.Table:
    """Findings that nobody is told of, as many as an hour has."""
    rows = read_table(folder / "tables", "findings")
    rows = rows.filter(pc.is_in(rows["severity"], pa.array(["info", "allowed"])))
    return pa.concat_tables([rows] * (COUNTED_PER_HOUR // max(1, rows.num_rows) + 1)).slice(0, COUNTED_PER_HOUR)


def _date_logs(tables: Path, now: datetime) -> None:
    """Delta drops commits by the time of their files, which no process can have another clock for."""
    stamp = now.timestamp()
    for log in tables.glob("*/_delta_log"):
        for one in os.scandir(log):
            if one.stat().st_mtime > stamp:
                os.utime(one.path, (stamp, stamp))


def _looks(tables: Path) -> str:
    """Bytes, files, live files and commits of the tables."""
    said = []
    for table in sorted(tables.iterdir()):
        size, files = bytes_and_files(table)
        live = DeltaTable(str(table)).get_add_actions().num_rows
        commits = sum(1 for one in (table / "_delta_log").iterdir() if one.suffix == ".json")
        if files > 20:
            said.append(f"{table.name} {mib(size)}, {files} files, {live} live, {commits} commits")
    return "; ".join(said)


def _told(now: datetime) -> str:
    """A time that stands still, as libfaketime wants it."""
    return now.strftime("%Y-%m-%d %H:%M:%S")
