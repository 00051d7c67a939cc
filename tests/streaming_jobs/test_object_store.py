"""The probe log in an object store: appended by deltalake and read by the stream's source, through a server that
speaks S3 and a proxy in front of it that fails as networks do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from probes.log.commits.compaction import tend
from probes.log.commits.history import History
from probes.log.commits.numbers import drawn, recorded, start_of
from probes.log.errors import FolderCopied, HistoryConflict, HistoryUnavailable
from rules.vocabulary.slices import to_table
from streaming_jobs import location
from streaming_jobs.config import JobConfig, UpkeepConfig
from streaming_jobs.cycles.windows import Windows
from streaming_jobs.errors import GONE, TableError
from streaming_jobs.history.files import tables
from streaming_jobs.history.log_source import ProbeLogReader
from streaming_jobs.history.reachable import reading, require_reachable
from streaming_jobs.history.replay import Replay
from streaming_jobs.history.source import NewestVersion, await_history, first_version, is_plain
from streaming_jobs.location import TableUrl
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.upkeep import Upkeep
from tests.object_store import SECRET, Proxy, known_here, proxy_to, store
from tests.streaming_jobs.probe_log import duplicates

PARTS = [to_table(rows) for rows in duplicates(3)]
APP = "committer"
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setenv("DIRECT", f"http://127.0.0.1:{server}")
    with proxy_to(server) as made, known_here(made.server_port, monkeypatch):
        yield made


@pytest.fixture
def log(proxy: Proxy) -> History:
    return History(f"s3://bucket/some prefix/{proxy.server_port}/history")


def rows_of(log: History, start: int = 0) -> int:
    """The rows from a commit on, as the stream's source gives them to its tasks. Without the proxy: deltalake's file
    system holds the interpreter while it waits, and so the proxy's threads."""
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    reader = ProbeLogReader({"path": log.uri, "version": str(start), "files": "1000", "bytes": str(1 << 30)})
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    tasks = reader.partitions(begin, end)
    return sum(part.num_rows for task in tasks for part in tables(task.blocks))  # type: ignore[attr-defined]


def append(log: History, *, version: int) -> None:
    """As the committer does: it asks first, and after an error."""
    assert (log.last_version(APP) or 0) == version - 1
    log.append(PARTS[version - 1], APP, version)


def test_what_is_appended_at_a_url_is_read_there(log: History) -> None:
    for version in (1, 2, 3):
        append(log, version=version)
    assert rows_of(log) == sum(part.num_rows for part in PARTS) == DeltaTable(log.uri).count()


def test_a_commit_whose_answer_is_lost_is_known_and_not_made_twice(log: History, proxy: Proxy) -> None:
    append(log, version=1)
    assert log.last_version(APP) == 1
    proxy.lost = 1
    with pytest.raises(HistoryConflict):  # asked again by the client, the store says that the commit is there
        log.append(PARTS[1], APP, 2)
    assert log.last_version(APP) == 2
    assert rows_of(log) == PARTS[0].num_rows + PARTS[1].num_rows


def test_of_two_that_claim_one_append_to_go_on_from_the_first_has_it(log: History, proxy: Proxy) -> None:
    """As a copied journal folder and its original do, with appends of no rows, which the stream goes over."""
    append(log, version=1)
    one, other = (recorded(drawn(), 2) for _ in range(2))
    beside = History(log.uri)
    assert not log.has(APP, one, Path(), 1) and not beside.has(APP, other, Path(), 1)
    log.append(PARTS[1].slice(0, 0), APP, one)
    with pytest.raises(HistoryConflict):
        beside.append(PARTS[1].slice(0, 0), APP, other)
    with pytest.raises(FolderCopied, match=r"append 2 of .* which was not made from there"):
        beside.has(APP, other, Path(), 1)
    assert log.has(APP, one, Path(), 1)
    log.append(PARTS[1], APP, recorded(start_of(one), 3))
    assert rows_of(log) == PARTS[0].num_rows + PARTS[1].num_rows


def test_a_store_that_is_slow_and_refuses_now_and_then_loses_nothing(log: History, proxy: Proxy) -> None:
    append(log, version=1)
    proxy.delay, proxy.unavailable = 0.05, 2
    append(log, version=2)
    assert rows_of(log) == PARTS[0].num_rows + PARTS[1].num_rows


def test_a_commit_that_retention_has_taken_ends_the_stream(log: History) -> None:
    append(log, version=1)
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    reader = ProbeLogReader({"path": log.uri, "version": "-1", "files": "9", "bytes": "9"})
    with pytest.raises(FileNotFoundError, match=GONE):
        reader.latestOffset({"version": -1, "file": 0}, reader.getDefaultReadLimit())


def test_a_store_is_not_asked_for_the_next_commit_all_the_time(log: History, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, version=1)
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    reader = ProbeLogReader({"path": log.uri, "version": "2", "files": "9", "bytes": "9"})
    asked: list[str] = []

    def absent(place: TableUrl, patient: bool) -> str:
        asked.append(place.name)
        raise FileNotFoundError(place.name)

    monkeypatch.setattr(TableUrl, "read_text", absent)
    for _ in range(20):
        assert reader.latestOffset({"version": 2, "file": 0}, reader.getDefaultReadLimit()) == {"version": 2, "file": 0}
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://b/x", "not of 'http'"),
        ("s3:///x", "no bucket"),
        ("s3://k:SECRET@b/x", "credentials"),
        ("s3://b?a", "no"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_secrets(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        TableUrl(url)
    assert "SECRET" not in str(refused.value)


def test_whatever_else_opens_the_log_opens_it_at_its_url(log: History) -> None:
    for version in (1, 2, 3):
        append(log, version=version)
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    url = TableUrl(log.uri)
    require_reachable(url)
    assert await_history(url, 0).version() == NewestVersion(url).version() == 3
    assert first_version(url) == 0 and is_plain(url)
    replay = Replay(url)
    assert replay.added_files()
    assert sum(replay.read(piece).num_rows for piece in replay.pieces()) == sum(part.num_rows for part in PARTS)


def test_state_is_rebuilt_from_a_log_at_its_url(log: History, tmp_path: Path) -> None:
    for version in (1, 2, 3):
        append(log, version=version)
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    config = JobConfig(root=tmp_path, history=TableUrl(log.uri))
    Rebuild(config).run("its checkpoint is gone")
    found = read_table(config.tables_path, "findings")["anomaly"].to_pylist()
    assert found and set(found) == {"duplicate"}
    windows = Windows(TableUrl(log.uri))
    assert windows.refresh() and (span := windows.span()) is not None
    assert windows.read(*span).num_rows
    assert span[1] == Replay(TableUrl(log.uri)).newest()


def test_the_newest_version_is_known_after_each_append(log: History) -> None:
    append(log, version=1)
    newest = NewestVersion(TableUrl(log.uri))
    assert newest.version() == 1
    append(log, version=2)
    append(log, version=3)
    assert newest.version() == 3


def test_the_monitor_keeps_a_log_small_at_its_url(log: History, tmp_path: Path) -> None:
    for version in (1, 2, 3):
        append(log, version=version)
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    config = JobConfig(
        root=tmp_path, history=TableUrl(log.uri), upkeep=UpkeepConfig(small_files=2, history_days=36500 / 10)
    )
    told = list(Upkeep(config).run(datetime.now(UTC)))
    assert [line for line in told if line.startswith("history: 3 files compacted into 1")], told
    assert rows_of(log) == sum(part.num_rows for part in PARTS), "compaction adds nothing to the stream"
    assert len(DeltaTable(log.uri).file_uris()) == 1
    assert tend(log.uri, 1) == 0 or len(DeltaTable(log.uri).file_uris()) == 1


def test_upkeep_of_a_log_that_is_away_is_put_off_and_the_other_tables_are_kept(
    log: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    monkeypatch.setattr(location, "READING", {"max_retries": "0"})
    told = list(Upkeep(JobConfig(root=tmp_path, history=TableUrl(log.uri))).run(datetime.now(UTC)))
    assert len(told) == 1 and told[0].startswith(f"history: upkeep put off: {NOBODY}: "), told


def test_a_store_that_goes_away_is_asked_again_and_ends_no_stream(
    log: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, version=1)
    monkeypatch.setattr(location, "IMPATIENT", {"max_retries": "0"})
    for patience in location._OPTIONS:
        monkeypatch.setitem(location._OPTIONS, patience, {"max_retries": "0"})
    monkeypatch.setattr("streaming_jobs.history.log_source._ASKED_EVERY", 0.0)
    reader = ProbeLogReader({"path": log.uri, "version": "0", "files": "1000", "bytes": str(1 << 30)})
    limit = reader.getDefaultReadLimit()
    os.environ["AWS_ENDPOINT_URL"] = NOBODY
    location._store.cache_clear()
    assert reader.latestOffset(reader.initialOffset(), limit) == {"version": 0, "file": 0}
    monkeypatch.setattr(location, "PATIENT", {"max_retries": "0"})
    with pytest.raises(OSError, match=f"^{NOBODY}: "):  # what is to be read now cannot be taken for what is not there
        reader.partitions({"version": 0, "file": 0}, {"version": 2, "file": 0})
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    location._store.cache_clear()
    assert reader.latestOffset(reader.initialOffset(), limit) == {"version": 2, "file": 0}


DENIED = (
    b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message>'
    b"<AWSAccessKeyId>key</AWSAccessKeyId></Error>"
)


def test_what_keeps_us_out_of_a_store_is_told_in_a_line_without_secrets(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"http://127.0.0.1:{proxy.server_port}"

    def told(url: str) -> str:
        with pytest.raises(TableError) as refused:
            require_reachable(TableUrl(url))
        assert SECRET not in str(refused.value) and "\n" not in str(refused.value)
        return str(refused.value).removeprefix(f"The probe log at {url} cannot be reached: ")

    assert told("s3://nobody/x") == f"{at} says NoSuchBucket: The specified bucket does not exist."
    proxy.refusal = 403, DENIED
    assert told("s3://bucket/x") == f"{at} says AccessDenied: Access Denied."
    proxy.refusal = None
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    assert told("s3://bucket/x") == f"{NOBODY}: tcp connect error: Connection refused (os error 111)."


def tried(url: TableUrl) -> str:
    """What is said of the store, by a process of its own: deltalake holds the interpreter while it waits, and with it
    the proxy's threads."""
    asks = (
        "import sys; from streaming_jobs.location import TableUrl; from streaming_jobs.history.reachable import *\n"
        "from streaming_jobs.errors import TableError\n"
        "try: require_conditional_puts(TableUrl(sys.argv[1]))\n"
        "except TableError as error: print(error)"
    )
    return subprocess.run(
        [sys.executable, "-c", asks, str(url)], capture_output=True, text=True, check=True
    ).stdout.rstrip("\n")


@pytest.mark.long
def test_a_store_without_conditional_puts_is_refused(log: History, proxy: Proxy) -> None:
    """It is the store that decides which of two hosts' commits is which version."""
    url = TableUrl(log.uri)
    append(log, version=1)
    assert tried(url) == ""
    proxy.lost = 2  # answers; the first is of the version that makes the table
    assert (tried(url), proxy.lost) == ("", 0)
    proxy.overwrites = True
    assert tried(url) == (
        f"The object store of {url} puts an object although there is one of its name (If-None-Match is not heeded): "
        "hosts that share it would overwrite each other's commits. It needs conditional puts."
    )
    proxy.overwrites = False
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    location._store.cache_clear()
    assert "_tried" not in url.names(), "nothing of it stays"
    assert log.last_version(APP) == 1


def test_where_nothing_may_be_written_is_told(log: History, proxy: Proxy) -> None:
    proxy.refusal = 403, DENIED
    url = TableUrl(log.uri)
    assert tried(url) == (
        f"Nothing can be written at {url}: http://127.0.0.1:{proxy.server_port} says AccessDenied: Access Denied."
    )


@pytest.mark.long
def test_a_store_that_fails_while_somebody_reads_is_told_in_a_line(log: History) -> None:
    append(log, version=1)
    url = TableUrl(log.uri)
    with pytest.raises(TableError, match=f"^The probe log at {log.uri} cannot be read: slow down[.]$"), reading(url):
        raise OSError("slow down")
    with pytest.raises(BrokenPipeError), reading(url):  # not the store's
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.long
def test_what_keeps_a_committer_out_is_told_in_a_line(log: History, proxy: Proxy) -> None:
    proxy.refusal = 403, DENIED
    with pytest.raises(HistoryUnavailable, match=r"127.0.0.1:\d+ says AccessDenied: Access Denied$"):
        log.last_version(APP)
