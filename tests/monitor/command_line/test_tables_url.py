"""What each command says on a host that has nothing but the URL of the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from monitor.errors import UserError
from monitor.postmortem import past
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


@pytest.mark.parametrize("at", [TABLES, TABLES / "history"], ids=["all tables", "the log"])
def test_a_log_is_judged_anew_where_it_is(given: Mapping[str, str], tmp_path: Path, at: TableUrl) -> None:
    elsewhere = {name: value for name, value in given.items() if not name.startswith("OFFSETWATCH")}

    def said(*arguments: str, code: int = 0) -> str:
        done = offsetwatch(*arguments, cwd=tmp_path, **elsewhere)
        assert done.returncode == code, done
        return done.stdout

    ids = set(read_table(TABLES, "findings")["id"].to_pylist())
    told = said("findings", "--history", str(at), "--all", "--json")
    assert {json.loads(line)["id"] for line in told.splitlines()} == ids
    if at != TABLES:
        return
    judged = json.loads(said("check", str(at), "--json", code=1))
    assert (judged["file"], judged["valid"], len(judged["anomalies"]["duplicate"])) == (str(at), False, len(ids))
    asked = said("sql", "--history", str(at), "select count(*) as n from findings", "--json")
    assert json.loads(asked)["n"] == len(ids)


def test_the_secret_of_a_bucket_may_be_in_a_file(
    given: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = len(read_table(TABLES, "findings"))
    (tmp_path / "key").write_text(given["AWS_SECRET_ACCESS_KEY"] + "\n")
    (tmp_path / "offsetwatch.toml").write_text(
        f'[storage]\nAWS_SECRET_ACCESS_KEY = {{ file = "key" }}\nAWS_REGION = "{given["AWS_REGION"]}"\n'
    )
    less = dict(given)
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
        del less[name]
    told = offsetwatch("findings", "--json", "--all", cwd=tmp_path, **less)
    assert told.returncode == 0 and told.stdout.count("\n") == found, told
    (tmp_path / "key").unlink()
    refused = offsetwatch("findings", cwd=tmp_path, **less)
    assert refused.returncode == 2 and refused.stderr == (
        "offsetwatch: storage.AWS_SECRET_ACCESS_KEY: key cannot be read: No such file or directory\n"
    )


def test_tables_in_a_bucket_are_asked_as_they_were(given: Mapping[str, str], tmp_path: Path) -> None:
    def counted(*arguments: str) -> int:
        done = offsetwatch("sql", "select count(*) as n from history", "--json", *arguments, cwd=tmp_path, **given)
        assert done.returncode == 0, done
        return int(json.loads(done.stdout)["n"])

    now, first = counted(), past.dataset(TABLES / "history", committed(0))
    assert first is not None and 0 < first.count_rows() < now == counted("--as-of", "1s")
    refused = offsetwatch("sql", "--as-of", "1999-01-01", "select 1", cwd=tmp_path, **given)
    assert refused.returncode == 2 and "is not kept as it was at 1999-01-01" in refused.stderr, refused
    file = next(iter(DeltaTable(str(TABLES / "history")).file_uris()))
    held = (TABLES / "history" / file.removeprefix(f"{TABLES}/history/")).read_bytes()
    (TABLES / "history" / file.removeprefix(f"{TABLES}/history/")).delete()
    with pytest.raises(UserError, match="files of this version have been cleaned away since"):
        past.dataset(TABLES / "history", committed(1))
    (TABLES / "history" / file.removeprefix(f"{TABLES}/history/")).write_bytes(held)


def committed(version: int) -> datetime:
    """When a version of the log was."""
    told = {one["version"]: one["timestamp"] for one in DeltaTable(str(TABLES / "history")).history()}
    return datetime.fromtimestamp(told[version] / 1000, UTC)


@pytest.mark.parametrize(
    "arguments",
    [
        ["findings"],
        ["explain", "abcd"],
        ["report"],
        ["sql", "select 1"],
        ["monitor"],
        ["check", "s3://nobody/tables"],
        ["findings", "--history", "s3://nobody/tables"],
    ],
)
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
