"""A bit that flips in a file of the probe log is noticed by whoever judges by it, and the file is named."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from monitor.history_files.probe_log import judge
from probes.log.commits.history import History
from rules.vocabulary.file_names import hash_told, named_after
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Slice, to_table
from streaming_jobs.config import JobConfig
from streaming_jobs.errors import TableError
from streaming_jobs.history import damage
from streaming_jobs.history.block import Block
from streaming_jobs.history.files import read
from streaming_jobs.history.replay import Replay
from streaming_jobs.integrity_job import IntegrityJob
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.file_hashes import CHANGED, changed
from streaming_jobs.tables.upkeep import Step, Upkeep, act
from tests.known import a_folder
from tests.streaming_jobs.history.test_damaged_files import duplicates_told
from tests.streaming_jobs.probe_log import duplicates
from tests.streaming_jobs.test_job import Told, expected, until

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
KEPT = {"history_days": 3650, "findings_days": 3650}


def logged(history: Path, parts: Sequence[Sequence[Slice]], *, first: int = 1) -> list[Path]:
    """The files of appends by a committer, one for each part."""
    log, files = History(str(history)), list[Path]()
    for number, part in enumerate(parts, first):
        before = {*history.rglob("*.parquet")}
        log.last_version("committer")
        log.append(to_table(part), "committer", number)
        files += {*history.rglob("*.parquet")} - before
    log.close()
    return files


def flip(file: Path, at: int, bit: int = 1) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def unnoticed_by_parquet(file: Path) -> None:
    """Flip a bit of the name of a column: Parquet's reader knows one column less, and Delta's takes it for empty."""
    flip(file, file.read_bytes().index(b"\x09completed") + 1)
    assert "completed" not in pq.read_table(pa.BufferReader(file.read_bytes())).column_names


def test_a_file_is_named_after_what_is_in_it(tmp_path: Path) -> None:
    """Whichever bit flips."""
    (file,) = logged(tmp_path / "history", duplicates(1))
    data = file.read_bytes()
    by_chance = bytes.fromhex(file.stem[12:])
    assert file.name == named_after(data, by_chance) and hash_told(f"date=2026-01-31/{file.name}") == file.stem[:12]
    chance = random.Random(1)
    for at in (0, len(data) - 1, *(chance.randrange(len(data)) for _ in range(100))):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        assert named_after(bytes(changed), by_chance) != file.name
    assert hash_told("part-00001-6d3f7a8c-c000.zstd.parquet") is None
    assert hash_told(f"{'0' * 20}.parquet") is None, "a name that an earlier version gave by chance"


def test_who_reads_the_log_is_told_which_file_has_changed(tmp_path: Path) -> None:
    history = tmp_path / "history"
    first, second = logged(history, duplicates(2))
    assert damage.found(history, everything=True) == []
    unnoticed_by_parquet(second)
    assert damage.found(history, everything=True) == [damage.Damage(str(second), CHANGED)]
    assert sum(rows.num_rows for rows in read(Block(str(first), 0, first.stat().st_size, None)))
    with pytest.raises(OSError, match=f"file {second}: {CHANGED}"):
        list(read(Block(str(second), 0, second.stat().st_size, None)))
    replay = Replay(history)
    with pytest.raises(TableError, match=f"file {second}: {CHANGED}"):
        replay.pieces()
    with pytest.raises(TableError, match=f"{second} .{CHANGED}.. Put it back from a backup"):
        judge(history, Objectives())


def test_what_compaction_wrote_is_known_by_a_note(tmp_path: Path) -> None:
    history = tmp_path / "history"
    logged(history, duplicates(3))
    act(history, Step(table="history", action="compact"))
    (file,) = map(Path, DeltaTable(str(history)).file_uris())
    assert damage.found(history, everything=True) == []
    note = history / "_hashes" / f"{file.name}.hash"
    (history / "_hashes" / "gone.parquet.hash").write_text("0" * 16)
    act(history, Step(table="history", action="vacuum", hours=1))
    assert [*(history / "_hashes").iterdir()] == [note], "of what is gone nothing is noted"
    flip(file, file.stat().st_size // 3)
    assert damage.found(history, everything=True) == [damage.Damage(str(file), CHANGED)]
    with pytest.raises(TableError, match=CHANGED):
        Replay(history).pieces()
    note.write_bytes(b"")
    assert not changed(file), "nobody knows: the note was lost with its host"


def test_what_has_changed_is_not_compacted(tmp_path: Path) -> None:
    config = JobConfig.model_validate({"root": tmp_path, "upkeep": {"small_files": 2} | KEPT})
    history = a_folder(config.history_path)
    _, file, _ = logged(history, duplicates(3))
    unnoticed_by_parquet(file)
    (said,) = (line for line in Upkeep(config).run(NOW) if line.startswith("history: upkeep put off"))
    assert f"{file}: {CHANGED}" in said
    assert len(DeltaTable(str(history)).file_uris()) == 3


@pytest.mark.spark
def test_what_upkeep_finds_changed_is_given_up_while_the_stream_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    config = JobConfig.model_validate(
        {"root": tmp_path / "data", "history_wait": 0, "upkeep": {"every": 1, "small_files": 4} | KEPT}
    )
    history, parts, told = a_folder(config.history_path), duplicates(4), Told()
    _, file, _ = logged(history, parts[:3])
    job = IntegrityJob(config, spark, told.listeners)
    job.start()
    until(lambda: duplicates_told(config) == expected(parts[:3]) or bool(told.failures))
    unnoticed_by_parquet(file)
    logged(history, parts[3:], first=4)

    def gaps() -> list[tuple[str, bool]]:
        rows = read_table(config.tables_path, "findings").sort_by("at").to_pylist()
        return sorted((r["event"], file.name in r["message"]) for r in rows if r["anomaly"] == "evidence-gap")

    until(lambda: gaps() == [("closed", False), ("opened", True)] or bool(told.failures))
    until(lambda: duplicates_told(config) == expected(parts) or bool(told.failures))
    job.stop()
    assert not told.failures
    assert file.name not in str(DeltaTable(str(history)).file_uris())
    assert file.with_name(f"{file.name}.damaged").is_file()
