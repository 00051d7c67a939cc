"""Silences of monitors that have their tables in an object store: each is heeded wherever it was begun."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from alerts.incidents.silence import Silence
from alerts.silences import KEPT, FolderSilences, SilenceRefused, path_of
from monitor.incidents.kept_silences import AWAY, EVERY, SharedSilences, silences_beside
from streaming_jobs.config import JobConfig
from streaming_jobs.location import TableUrl
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables.lease import HOLD, RENEW
from tests.alerts.findings import NOON
from tests.monitor.commands import offsetwatch
from tests.object_store import environment, known_here, store
from tests.streaming_jobs.probe_log import commit, duplicates

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.fixture
def tables(server: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableUrl]:
    with known_here(server, monkeypatch):
        yield TableUrl(f"s3://bucket/{request.node.name}/tables")


class Host:
    """One that looks at the tables, with a clock that the test moves."""

    def __init__(self, tables: TableUrl, folder: Path) -> None:
        self.at = 0.0
        self.here = FolderSilences(path_of(folder))
        self.silences = SharedSilences(tables / "silences", self.here, lambda: self.at)

    def begin(self, topic: str = "", *, at: timedelta = timedelta(0), lasts: timedelta = HOUR) -> Silence:
        now = NOON + at
        return self.silences.add(cluster="c", topic=topic, until=now + lasts, because="disks", by="ops", now=now)

    def heeds(self) -> list[Silence]:
        self.at += EVERY
        return list(self.silences.all())


def test_what_one_host_silences_all_heed_until_one_of_them_ends_it(tables: TableUrl, tmp_path: Path) -> None:
    first, second = (Host(tables, tmp_path / name) for name in ("first", "second"))
    assert first.heeds() == second.heeds() == []
    one, other = first.begin("orders"), second.begin("payments", at=timedelta(seconds=1))
    assert first.heeds() == second.heeds() == [one, other]
    assert list(first.silences.all()) == [one, other], "and not before it is due again"
    ended = first.silences.end(other.id, NOON + HOUR / 2)
    assert ended.until == NOON + HOUR / 2
    assert first.heeds() == second.heeds() == [one, ended]
    with pytest.raises(SilenceRefused, match="no active silence begins with"):
        second.silences.end(other.id, NOON + HOUR / 2)
    later = second.begin(at=KEPT + 2 * HOUR)
    assert first.heeds() == second.heeds() == [later], "what was over for long is gone"
    assert (tables / "silences").names() == [f"{later.id}.json"]
    assert not path_of(tmp_path / "first").exists()


def test_of_two_who_begin_one_at_the_same_time_neither_loses_it(tables: TableUrl, tmp_path: Path) -> None:
    first, second = (Host(tables, tmp_path / name) for name in ("first", "second"))
    with first.silences._changing() as held:
        begun = second.begin("payments")
        held.append(own := replace(begun, id="abcdef", topic="orders"))
    assert first.heeds() == second.heeds() == sorted([own, begun], key=lambda one: (one.since, one.id))


def test_while_the_store_is_away_what_was_known_holds(
    tables: TableUrl, server: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host, other = Host(tables, tmp_path / "host"), Host(tables, tmp_path / "other")
    one = host.begin()
    assert host.heeds() == [one]
    with pytest.MonkeyPatch.context() as patched, known_here(9, patched):  # where nothing answers
        assert host.heeds() == [one]
        with pytest.raises(SilenceRefused, match=str(tables)):
            host.begin("orders")
    with known_here(server, monkeypatch):
        new = other.begin("payments", at=timedelta(seconds=1))
    assert host.heeds() == [one], "it is not asked at each look, which would wait each time"
    host.at += AWAY
    assert host.heeds() == [one, new]


def test_a_store_that_does_not_answer_does_not_cost_the_lease(
    tables: TableUrl, server: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While objects are waited for, nothing else of the process runs, the thread that renews the lease neither."""
    host = Host(tables, tmp_path)
    one = host.begin()
    assert host.heeds() == [one]
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.MonkeyPatch.context() as patched,
        known_here(silent.getsockname()[1], patched),
    ):
        began = time.monotonic()
        assert host.heeds() == [one]
        assert 1 < time.monotonic() - began < HOLD - RENEW


def test_what_cannot_be_understood_silences_nothing(tables: TableUrl, tmp_path: Path) -> None:
    host = Host(tables, tmp_path)
    for name, text in {"a.json": "{", "b.json": '{"id": 1}', "c.txt": "{}", "d.json": "[]"}.items():
        (tables / "silences" / name).write_text(text)
    one = host.begin()
    assert host.heeds() == [one]


def test_one_that_an_earlier_version_kept_on_this_disk_is_heeded_and_can_be_ended(
    tables: TableUrl, tmp_path: Path
) -> None:
    host = Host(tables, tmp_path)
    one = host.here.add(cluster="c", topic="", until=NOON + HOUR, because="disks", by="ops", now=NOON)
    assert host.heeds() == [one]
    ended = host.silences.end(one.id, NOON + HOUR / 2)
    assert host.heeds() == [ended] == Host(tables, tmp_path / "other").heeds()


def test_without_a_url_they_are_in_the_data_folder(tmp_path: Path) -> None:
    assert isinstance(silences_beside(tmp_path / "tables", tmp_path / "alerts"), FolderSilences)


@pytest.mark.long
def test_the_commands_of_a_host_that_has_only_the_url(tables: TableUrl, server: int, tmp_path: Path) -> None:
    """As of whoever is on call, with nothing but the configuration."""
    watching = JobConfig(root=tmp_path / "watching", tables=tables, history=tmp_path / "history")
    commit(tmp_path / "history", duplicates(1)[0])
    Rebuild(watching).run("its checkpoint is gone")
    given = environment(server) | {"OFFSETWATCH_JOB__TABLES": str(tables)}

    def said(*arguments: str) -> str:
        done = offsetwatch(*arguments, cwd=tmp_path, **given)
        assert done.returncode == 0, done
        return " ".join(done.stdout.split())

    begun = said("silence", "add", "--topic", "topic", "--until", "2h", "--because", "new disks")
    (one,) = silences_beside(tables, tmp_path / "watching" / "alerts").all()
    assert begun.startswith(f"{one.id}: ") and one.topic == "topic"
    for command in (["findings"], ["status"], ["silence", "list"]):
        assert f"(new disks, by {one.by}); {one.id}" in said(*command), command
    assert json.loads(said("status", "--json"))["silences"][0]["id"] == one.id
    assert "is silenced no more" in said("silence", "end", one.id)
    assert said("silence", "list") == "Nothing is silenced."
    assert not (tmp_path / ".offsetwatch").exists()
    nobody = given | {"OFFSETWATCH_JOB__TABLES": "s3://nobody/tables"}
    refused = offsetwatch("silence", "list", cwd=tmp_path, **nobody)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "NoSuchBucket" in refused.stderr, refused
