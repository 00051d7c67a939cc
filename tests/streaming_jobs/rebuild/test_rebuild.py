"""The state rebuilt from the probe log: the same findings as without, none twice, whatever became of the checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from rules.step import Stepped, step
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place, Slice
from streaming_jobs.config import JobConfig
from streaming_jobs.errors import StateFormat
from streaming_jobs.history.bundles import PER_PART
from streaming_jobs.history.handover import Workspace, handover
from streaming_jobs.history.layout import LAYOUT
from streaming_jobs.integrity_job import IntegrityJob, Listeners
from streaming_jobs.rebuild.rebuild import Rebuild, reason_to_rebuild
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current_findings
from streaming_jobs.verdicts.checks import Check
from tests.known import a_folder
from tests.rules.histories import History
from tests.streaming_jobs.checking import check_all
from tests.streaming_jobs.checks import instead
from tests.streaming_jobs.probe_log import commit, duplicates
from tests.streaming_jobs.test_job import Told, until, written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def eventful(commits: int, *, day: float = 0.0) -> list[list[Slice]]:
    """A history in parts. In each a value is lost, one is a duplicate, and one is seen so late that `unseen` opens and
    closes; some losses are decided in the next part."""
    history = History()
    history.time = day
    parts: list[list[Slice]] = []
    for name in ("w", "r"):
        history.start(name)
    history.assign("r")
    history.observe(end=0)
    offset = 0
    begin = 0
    for part in range(commits):
        seq = part * 10
        history.send("w", seq, 10, at=offset)
        history.observe(end=offset + 10)
        history.mark(0.5)
        # seq+3 is never polled.
        history.poll("r", [("w", seq, 3, offset), ("w", seq + 4, 4, offset + 4)])
        history.poll("r", [("w", seq + 4, 1, offset + 10)])
        history.observe(end=offset + 11)
        history.mark(12.0)
        history.poll("r", [("w", seq + 8, 2, offset + 8)])
        for _ in range(2):
            history.observe(end=offset + 11)
            history.mark(6.0)
        offset += 11
        parts.append(history.rows[begin:])
        begin = len(history.rows)
    return parts


def run(spark: SparkSession, config: JobConfig, check: Check | None = None) -> tuple[Told, list[str]]:
    told, lines = Told(), list[str]()
    listeners = told.listeners
    listening = Listeners(listeners.on_batch, listeners.on_progress, listeners.on_failure, [lines.append])
    check_all(config, spark, listening, check=check)
    return told, lines


def violations(config: JobConfig) -> list[str]:
    rows = read_table(config.tables_path, "findings").to_pylist()
    return sorted(r["id"] for r in rows if CATALOGUE[r["anomaly"]].kind == "violation")


@pytest.fixture(scope="module")
def undisturbed_eventful(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], JobConfig]:
    """`eventful` of so many parts, checked without a break: once for all tests, which only read its tables."""
    root = tmp_path_factory.mktemp("undisturbed")

    @cache
    def checked(commits: int) -> JobConfig:
        settings = {"root": root / str(commits) / "data", "history_wait": 0, "upkeep": {"enabled": False}}
        return undisturbed(spark, JobConfig.model_validate(settings), eventful(commits))

    return checked


def undisturbed(spark: SparkSession, config: JobConfig, parts: Sequence[Sequence[Slice]]) -> JobConfig:
    """The same history, checked without a break."""
    whole = config.model_copy(update={"root": config.root.parent / "whole"})
    for part in parts:
        commit(whole.history_path, part)
    run(spark, whole)
    return whole


def shown(config: JobConfig) -> set[tuple[str, str]]:
    rows = current_findings(config.tables_path).to_pylist()
    return {(r["id"], r["state"]) for r in rows if r["anomaly"] != "evidence-gap"}


def test_a_deleted_checkpoint_on_a_compacted_table(
    spark: SparkSession, config: JobConfig, undisturbed_eventful: Callable[[int], JobConfig]
) -> None:
    parts = eventful(4)
    for part in parts[:2]:
        commit(config.history_path, part)
    run(spark, config)
    before = read_table(config.tables_path, "findings")
    assert violations(config)
    DeltaTable(str(config.history_path)).optimize.compact()
    shutil.rmtree(a_folder(config.checkpoint_path))

    told, lines = run(spark, config)
    assert any("because its checkpoint is gone" in line for line in lines)
    assert sum(b.stats.slices for b in told.batches) == sum(len(part) for part in parts[:2])
    # Nothing of it is news, and no channel hears of it again.
    assert read_table(config.tables_path, "findings") == before
    assert sum(b.findings.num_rows for b in told.batches) == 0

    for part in parts[2:]:
        commit(config.history_path, part)
    told, lines = run(spark, config)
    assert lines == []
    assert sum(b.stats.slices for b in told.batches) == sum(len(part) for part in parts[2:])
    whole = undisturbed_eventful(4)
    assert violations(config) == violations(whole)
    assert len(set(violations(config))) == len(violations(config))
    assert len(set(written(config))) == len(written(config))
    assert shown(config) == shown(whole)
    for name in ("partition_state", "readers"):
        a, b = (read_table(c.tables_path, name).to_pylist() for c in (config, whole))
        strip = ("batch", "state_bytes")
        assert [{k: v for k, v in r.items() if k not in strip} for r in a] == [
            {k: v for k, v in r.items() if k not in strip} for r in b
        ]


@pytest.mark.evening
def test_without_its_findings_either_it_finds_them_again(spark: SparkSession, config: JobConfig) -> None:
    """As where their table was damaged, and moved aside with the checkpoint (`docs/operating.md`)."""
    parts = eventful(4)
    for part in parts[:3]:
        commit(config.history_path, part)
    run(spark, config)
    before = violations(config)
    assert before
    shutil.rmtree(a_folder(config.checkpoint_path))
    shutil.rmtree(a_folder(config.tables_path) / "findings")
    run(spark, config)
    assert violations(config) == before
    commit(config.history_path, parts[3])
    run(spark, config)
    assert len(violations(config)) > len(before)


def test_what_an_empty_commit_of_its_findings_said_it_finds_again(spark: SparkSession, config: JobConfig) -> None:
    """As the loss of a host leaves a commit that was not synced, where the checkpoint was."""
    for part in eventful(2):
        commit(config.history_path, part)
    run(spark, config)
    before, standing = violations(config), shown(config)
    log = a_folder(config.tables_path) / "findings" / "_delta_log"
    emptied = max(log.glob("*.json"))
    emptied.write_bytes(b"")
    assert violations(config) != before
    _, lines = run(spark, config)
    assert any(f"because {emptied} is empty: what was found there is gone" in line for line in lines)
    assert (violations(config), shown(config)) == (before, standing)
    _, lines = run(spark, config)
    assert lines == [], "once"


class _Older:
    """The real checks, whose state says that it is of another version."""

    def __call__(self, stored: Any, slices: pa.Table, objectives: Objectives) -> dict[Place, Stepped]:
        out = step(stored, slices, objectives)
        for stepped in out.values():
            stepped.hot = stepped.hot[:3] + bytes([255]) + stepped.hot[4:]
        return out


def test_a_state_of_another_version_is_rebuilt_while_the_job_runs(
    spark: SparkSession, config: JobConfig, undisturbed_eventful: Callable[[int], JobConfig]
) -> None:
    parts = eventful(4)
    commit(config.history_path, parts[0])
    run(spark, config, instead(_Older()))
    first = violations(config)
    for part in parts[1:3]:
        commit(config.history_path, part)
    told, lines = Told(), list[str]()
    job = IntegrityJob(config, spark, Listeners([told.batches.append], on_rebuild=[lines.append]))
    job.start()
    until(lambda: sum(b.stats.slices for b in told.batches) >= sum(len(part) for part in parts[:3]))
    commit(config.history_path, parts[3])
    until(lambda: sum(b.stats.slices for b in told.batches) >= sum(len(part) for part in parts))
    job.stop()
    assert job.failure is None
    assert any("another version of the checks" in line for line in lines)
    whole = undisturbed_eventful(4)
    assert violations(config) == violations(whole)
    assert shown(config) == shown(whole)
    heard = [i for b in told.batches for i in b.findings["id"].to_pylist()]
    assert first
    assert not set(first) & set(heard)


def test_a_state_that_no_rebuild_makes_readable_ends_the_job(spark: SparkSession, config: JobConfig) -> None:
    commit(config.history_path, eventful(1)[0])
    run(spark, config, instead(_Older()))
    parts = eventful(3)
    commit(config.history_path, parts[1])
    told, lines = Told(), list[str]()
    listeners = Listeners(on_failure=[told.failures.append], on_rebuild=[lines.append])
    job = IntegrityJob(config, spark, listeners, check=instead(_Older()))
    job.start()
    until(lambda: any("is rebuilt" in line for line in lines))
    commit(config.history_path, parts[2])
    with pytest.raises(StateFormat, match="another version of the checks"):
        job.wait(120)
    assert [type(f) for f in told.failures] == [StateFormat]
    job.stop()


def _forget(config: JobConfig, below: int) -> None:
    """What retention does to the probe log: commits and files that nobody needs any more."""
    table = DeltaTable(str(config.history_path))
    table.optimize.compact()
    table.create_checkpoint()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    for version in range(below):
        (a_folder(config.history_path) / "_delta_log" / f"{version:020d}.json").unlink()


def test_a_commit_that_is_gone_opens_a_gap_until_the_state_is_rebuilt(
    spark: SparkSession, config: JobConfig, undisturbed_eventful: Callable[[int], JobConfig]
) -> None:
    parts = eventful(4)
    for part in parts[:1]:
        commit(config.history_path, part)
    run(spark, config)
    for part in parts[1:3]:
        commit(config.history_path, part)
    _forget(config, below=3)
    told, lines = run(spark, config)
    gaps = [r for r in read_table(config.tables_path, "findings").to_pylist() if r["anomaly"] == "evidence-gap"]
    assert [(r["cluster"], r["event"]) for r in sorted(gaps, key=lambda r: r["at"])] == [
        ("c", "opened"),
        ("c", "closed"),
    ]
    assert any("no longer keeps" in line for line in lines)
    heard = [(r["anomaly"], r["event"]) for b in told.batches for r in b.findings.to_pylist()]
    assert heard.index(("evidence-gap", "opened")) < heard.index(("lost-write", "raised"))
    assert heard[-1] == ("evidence-gap", "closed")
    commit(config.history_path, parts[3])
    run(spark, config)
    whole = undisturbed_eventful(4)
    assert violations(config) == violations(whole)
    assert shown(config) == shown(whole)
    assert len(set(written(config))) == len(written(config))


def test_a_file_of_the_checkpoint_that_is_gone_is_no_gap_of_the_log(
    spark: SparkSession, config: JobConfig, undisturbed_eventful: Callable[[int], JobConfig]
) -> None:
    parts = eventful(2)
    commit(config.history_path, parts[0])
    run(spark, config)
    for file in (a_folder(config.checkpoint_path) / "state").rglob("1.*"):
        file.unlink()
    commit(config.history_path, parts[1])
    _, lines = run(spark, config)
    assert any("because a file of its checkpoint is gone" in line for line in lines)
    assert "evidence-gap" not in read_table(config.tables_path, "findings")["anomaly"].to_pylist()
    whole = undisturbed_eventful(2)
    assert violations(config) == violations(whole)
    assert shown(config) == shown(whole)


def test_a_restart_needs_no_commit_that_was_read(spark: SparkSession, config: JobConfig) -> None:
    parts = eventful(4)
    for part in parts[:3]:
        commit(config.history_path, part)
    run(spark, config)
    _forget(config, below=3)
    commit(config.history_path, parts[3])
    told, lines = run(spark, config)
    assert not lines, "nothing is rebuilt"
    assert sum(b.stats.slices for b in told.batches) == len(parts[3])


def test_a_first_start_on_a_log_whose_first_commits_are_gone(
    spark: SparkSession, config: JobConfig, undisturbed_eventful: Callable[[int], JobConfig]
) -> None:
    parts = eventful(4)
    for part in parts[:3]:
        commit(config.history_path, part)
    _forget(config, below=3)
    _, lines = run(spark, config)
    assert any("the probe log's first commits are gone" in line for line in lines)
    handed = handover(config.checkpoint_path)
    assert handed is not None
    assert not Workspace(config.checkpoint_path).folder.exists()
    commit(config.history_path, parts[3])
    told, _ = run(spark, config)
    assert sum(b.stats.slices for b in told.batches) == len(parts[3])
    whole = undisturbed_eventful(4)
    assert violations(config) == violations(whole)
    assert shown(config) == shown(whole)


def test_rows_beyond_retention_are_gone_and_make_nothing_lost(spark: SparkSession, config: JobConfig) -> None:
    parts = eventful(40, day=86_400 - 200.0)
    midnight = parts[0][0].completed + timedelta(seconds=200)
    for i in range(0, 36, 6):
        commit(config.history_path, [row for part in parts[i : i + 6] for row in part])
    run(spark, config)
    before = read_table(config.tables_path, "findings")
    table = DeltaTable(str(config.history_path))
    table.delete(f"date < '{midnight.date().isoformat()}'")
    _forget(config, below=table.version() + 1)
    shutil.rmtree(a_folder(config.checkpoint_path))

    _, lines = run(spark, config)
    assert any("have been aged out" in line for line in lines)
    assert read_table(config.tables_path, "findings") == before  # nothing invented, nothing closed, nothing twice
    # And it goes on as if nothing had been.
    commit(config.history_path, [row for part in parts[36:] for row in part])
    run(spark, config)
    whole = undisturbed(spark, config, [[row for part in parts for row in part]])
    assert violations(config) == violations(whole)
    assert len(set(violations(config))) == len(violations(config))

    # With no tables of before, too, nothing is found that is not so; all is found that the rows left can prove.
    anew = config.model_copy(update={"root": config.root.parent / "anew", "history": config.history_path})
    run(spark, anew)
    assert set(violations(anew)) <= set(violations(whole))
    sure = midnight + timedelta(seconds=620)
    late = {
        r["id"]
        for r in read_table(whole.tables_path, "findings").to_pylist()
        if r["at"] > sure + timedelta(seconds=40) and CATALOGUE[r["anomaly"]].kind == "violation"
    }
    assert late and late <= set(violations(anew))
    assert {i for i, state in shown(anew) if state == "open"} <= {i for i, state in shown(whole) if state == "open"}


def _laid_out_otherwise(checkpoint: Path, layout: str | None) -> None:
    if layout is None:
        (checkpoint / "layout").unlink()
    else:
        (checkpoint / "layout").write_text(layout)


def test_a_checkpoint_of_another_layout_is_rebuilt(
    spark: SparkSession, config: JobConfig, undisturbed_eventful: Callable[[int], JobConfig]
) -> None:
    parts = eventful(4)
    for part in parts[:2]:
        commit(config.history_path, part)
    run(spark, config)
    first = violations(config)
    assert first
    assert reason_to_rebuild(config) is None
    others = (None, "2", json.dumps({"layout": LAYOUT - 1, "place": str(config.checkpoint_path)}), "{")
    for layout in others:  # from here on, whichever of them it was is all the same
        _laid_out_otherwise(a_folder(config.checkpoint_path), layout)
        reason = reason_to_rebuild(config)
        assert reason is not None and "laid out by another version" in reason
    # What Spark would say of it is not asked: the old one is of no more use.
    for file in (a_folder(config.checkpoint_path) / "state").rglob("_metadata/*/*"):
        if file.is_file():
            file.write_text("nothing that Spark could read")

    commit(config.history_path, parts[2])
    goes_on(spark, config, "its checkpoint was laid out by another version", first)
    commit(config.history_path, parts[3])
    told, lines = run(spark, config)
    assert lines == []
    assert sum(b.stats.slices for b in told.batches) == len(parts[3])
    nothing_is_missing(config, undisturbed_eventful(4))


def goes_on(spark: SparkSession, config: JobConfig, because: str, first: Sequence[str]) -> None:
    """A rebuild, and nothing of what was told at first is told again."""
    told, lines = run(spark, config)
    assert any(f"because {because}" in line for line in lines)
    heard = [i for b in told.batches for i in b.findings["id"].to_pylist()]
    assert first and not set(first) & set(heard)


def nothing_is_missing(config: JobConfig, whole: JobConfig) -> None:
    """The findings are those of an undisturbed run, each once."""
    assert violations(config) == violations(whole)
    assert len(set(written(config))) == len(written(config))
    assert shown(config) == shown(whole)


def test_a_checkpoint_that_was_moved_is_rebuilt(
    spark: SparkSession, config: JobConfig, undisturbed_eventful: Callable[[int], JobConfig], tmp_path: Path
) -> None:
    """Spark keeps absolute paths in it. What had been told is not told again, and what comes then is."""
    parts = eventful(4)
    for part in parts[:3]:
        commit(config.history_path, part)
    run(spark, config)
    first = violations(config)
    moved = config.model_copy(update={"root": tmp_path / "moved"})
    config.root.rename(moved.root)
    reason = reason_to_rebuild(moved)
    assert reason == f"its data folder was moved: the checkpoint was made at {config.checkpoint_path}"
    commit(moved.history_path, parts[3])
    goes_on(spark, moved, reason, first)
    assert reason_to_rebuild(moved) is None
    assert run(spark, moved)[1] == []
    nothing_is_missing(moved, undisturbed_eventful(4))


def test_a_rebuilt_checkpoint_that_served_no_batch_says_how_it_is_laid_out(
    spark: SparkSession, config: JobConfig
) -> None:
    parts = eventful(3)
    for part in parts[:2]:
        commit(config.history_path, part)
    Rebuild(config).run("its checkpoint is gone")
    assert reason_to_rebuild(config) is None
    _laid_out_otherwise(a_folder(config.checkpoint_path), str(LAYOUT + 1))
    reason = reason_to_rebuild(config)
    assert reason is not None and "another version" in reason


def test_what_another_version_prepared_is_not_put_into_its_place(
    spark: SparkSession,
    config: JobConfig,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed_eventful: Callable[[int], JobConfig],
) -> None:
    parts = eventful(4)
    for part in parts[:3]:
        commit(config.history_path, part)
    run(spark, config)
    first = violations(config)
    shutil.rmtree(a_folder(config.checkpoint_path))

    def dies(space: Workspace) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Workspace, "install", dies)
        with pytest.raises(KeyboardInterrupt):
            Rebuild(config).run("its checkpoint is gone")
    space = Workspace(config.checkpoint_path)
    assert space.complete()
    _laid_out_otherwise(space.folder / "checkpoint", None)
    assert not space.complete()
    commit(config.history_path, parts[3])
    _, lines = run(spark, config)
    assert any("rebuilding the checks' state" in line for line in lines)
    whole = undisturbed_eventful(4)
    assert violations(config) == violations(whole) and set(first) < set(violations(config))
    assert len(set(written(config))) == len(written(config))
    assert shown(config) == shown(whole)


def test_handed_over_partitions_of_one_part_go_on_each_with_its_own(spark: SparkSession, config: JobConfig) -> None:
    parts = duplicates(4, partitions=PER_PART + 2)
    for part in parts[:2]:
        commit(config.history_path, part)
    run(spark, config)
    shutil.rmtree(a_folder(config.checkpoint_path))
    Rebuild(config).run("its checkpoint is gone")
    # Of each part, only one partition has rows in the batch that takes the state over.
    commit(config.history_path, [row for row in parts[2] if row.partition in (1, PER_PART)])
    _, lines = run(spark, config)
    assert lines == []
    commit(config.history_path, [row for row in parts[2] if row.partition not in (1, PER_PART)])
    commit(config.history_path, parts[3])
    run(spark, config)
    whole = undisturbed(spark, config, parts)
    assert violations(config) == violations(whole)
    assert len(violations(config)) == len(set(violations(config))) == 4 * (PER_PART + 2)
    assert _states(config) == _states(whole)


def _states(config: JobConfig) -> list[dict[str, Any]]:
    """What the table says of each partition, whichever batches it came by."""
    rows = read_table(config.tables_path, "partition_state").drop_columns(["batch", "state_bytes"]).to_pylist()
    return sorted(rows, key=lambda row: row["partition"])
