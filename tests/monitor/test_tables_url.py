"""What each command says on a host that has nothing but the URL of the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deltalake import write_deltalake

from rules.vocabulary.slices import to_table
from streaming_jobs import location
from streaming_jobs.config import JobConfig
from streaming_jobs.location import TableUrl
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables.delta_tables import read_table
from tests.monitor.commands import offsetwatch
from tests.object_store import environment, store
from tests.streaming_jobs.probe_log import duplicates

TABLES = TableUrl("s3://bucket/canary/tables")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """How to reach a store with what the checks found in a small log."""
    with store() as port, pytest.MonkeyPatch.context() as patched:
        for name, value in environment(port).items():
            patched.setenv(name, value)
        location._store.cache_clear()
        for part in duplicates(2):
            write_deltalake(str(TABLES / "history"), to_table(part), mode="append", partition_by=["date"])
        Rebuild(JobConfig(root=tmp_path_factory.mktemp("monitor"), tables=TABLES)).run("its checkpoint is gone")
        yield environment(port) | {"OFFSETWATCH_JOB__TABLES": str(TABLES)}
    location._store.cache_clear()


def test_every_command_reads_them_where_they_are(given: Mapping[str, str], tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        done = offsetwatch(*arguments, cwd=tmp_path, **given)
        assert done.returncode == 0, done
        return done.stdout

    ids = read_table(TABLES, "findings")["id"].to_pylist()
    assert {json.loads(line)["id"] for line in said("findings", "--all", "--json").splitlines()} == set(ids)
    assert "duplicate" in said("explain", ids[0])
    assert json.loads(said("sql", "select count(*) as n from findings", "--json"))["n"] == len(ids)
    assert said("sql", "--query", "duplicates")
    said("report", "-o", "report.html")
    assert "duplicate" in (tmp_path / "report.html").read_text()
    assert not (tmp_path / ".offsetwatch").exists()
    storage = json.loads(said("status", "--json"))["storage"]
    assert (storage["tables"], storage["probe_log"]) == (str(TABLES), str(TABLES / "history"))
    assert {"history", "findings", "partition_state"} <= storage["stored"].keys()
    assert all(part["bytes"] > 1_000 and part["files"] > 0 for part in storage["stored"].values())
    told = said("status")
    assert f"the tables are at {TABLES}" in told
    assert re.search(r"^  findings +[\d.]+ kB in \d+ live files? there$", told, re.MULTILINE), told


@pytest.mark.parametrize("arguments", [["findings"], ["explain", "abcd"], ["report"], ["sql", "select 1"], ["monitor"]])
def test_a_bucket_that_is_not_there_is_told_in_a_line(
    arguments: list[str], given: Mapping[str, str], tmp_path: Path
) -> None:
    nobody = {"OFFSETWATCH_JOB__TABLES": "s3://nobody/tables"}
    refused = offsetwatch(*arguments, cwd=tmp_path, **(dict(given) | nobody))
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused
    assert "s3://nobody/tables" in refused.stderr and "NoSuchBucket" in refused.stderr


@pytest.mark.long
def test_where_nobody_has_written_nothing_was_checked(given: Mapping[str, str], tmp_path: Path) -> None:
    empty = dict(given) | {"OFFSETWATCH_JOB__TABLES": "s3://bucket/empty/tables"}
    told = offsetwatch("findings", cwd=tmp_path, **empty)
    assert told.returncode == 0 and told.stdout.startswith("Nothing has been checked yet"), told
