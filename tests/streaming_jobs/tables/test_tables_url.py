"""The job's own tables in an object store: what a batch leaves there is there once, whatever becomes of the answers.
The store is moto's server, a process of its own, behind a proxy that fails as networks do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest

from streaming_jobs import location
from streaming_jobs.config import JobConfig, UpkeepConfig
from streaming_jobs.errors import TableError
from streaming_jobs.location import TableUrl, is_table
from streaming_jobs.tables.delta_tables import open_table, read_table, version_of
from streaming_jobs.tables.findings import current_findings
from streaming_jobs.tables.schemas import SPECS
from streaming_jobs.tables.upkeep import Upkeep
from streaming_jobs.verdicts.sink import Batch, Sink
from tests.object_store import SECRET, Proxy, known_here, proxy_to, store
from tests.streaming_jobs.verdicts.test_sink import NOW, finding, verdicts

EARLIER = round((datetime.now(UTC) - timedelta(days=2)).timestamp()) * 1_000_000
"""Half a day ago is another day than this, at any time of the day."""
WRITTEN = ("findings", "partition_state", "readers")
"""What each of these batches writes a row to."""


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxy_to(server) as made, known_here(made.server_port, monkeypatch):
        yield made


@pytest.fixture
def tables(proxy: Proxy) -> TableUrl:
    return TableUrl(f"s3://bucket/{proxy.server_port}/tables")


def sink(tables: TableUrl, told: list[Batch] | None = None, at: int = 0) -> Sink:
    listeners = [] if told is None else [told.append]
    return Sink(tables, "job:q", listeners, clock=lambda: NOW + timedelta(seconds=at))


def numbers(tables: TableUrl) -> list[int]:
    """Of which batches there are findings."""
    return sorted(read_table(tables, "findings")["batch"].to_pylist())


@pytest.mark.long
def test_a_batch_that_is_run_again_is_there_once(tables: TableUrl) -> None:
    told: list[Batch] = []
    sink(tables, told).accept(0, verdicts(finding(1)))
    first = {name: read_table(tables, name) for name in SPECS}
    assert {name for name, rows in first.items() if rows.num_rows} == set(WRITTEN)
    again = sink(tables, told, at=9)  # the process was killed before Spark's commit
    again.accept(0, verdicts(finding(1)))
    assert {name: read_table(tables, name) for name in SPECS} == first
    assert [(batch.number, batch.replayed) for batch in told] == [(0, False), (0, True)]
    again.accept(1, verdicts(finding(2)))
    assert numbers(tables) == [0, 1]


def test_a_batch_whose_answers_are_all_lost_is_there_once_and_no_replay(tables: TableUrl, proxy: Proxy) -> None:
    told: list[Batch] = []
    writing = sink(tables, told)
    before = {name: version_of(tables, name) for name in WRITTEN}
    proxy.lost = len(WRITTEN)
    writing.accept(0, verdicts(finding(1)))
    assert (proxy.lost, told[0].replayed) == (0, False)
    assert {name: version_of(tables, name) - before[name] for name in WRITTEN} == dict.fromkeys(WRITTEN, 1)
    assert [read_table(tables, name).num_rows for name in WRITTEN] == [1, 1, 1]


@pytest.mark.long
def test_a_store_that_is_slow_and_refuses_now_and_then_loses_nothing(tables: TableUrl, proxy: Proxy) -> None:
    writing = sink(tables)
    for number in range(3):
        proxy.delay, proxy.unavailable = 0.01, 3
        writing.accept(number, verdicts(finding(number), end=10 + number))
    assert numbers(tables) == [0, 1, 2]
    assert read_table(tables, "partition_state")["last_stable"].to_pylist() == [12]


def test_a_commit_before_the_store_went_away_is_known_when_it_is_back(
    tables: TableUrl, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "READING", {"max_retries": "1", "retry_timeout": "1s"})
    writing = sink(tables)
    proxy.lost = 1

    def leave() -> None:
        while proxy.lost:
            time.sleep(0.001)
        proxy.away = True

    leaving = Thread(target=leave)
    leaving.start()
    with pytest.raises(TableError) as gone:
        writing.accept(0, verdicts(finding(1)))
    leaving.join()
    said = str(gone.value)
    assert said.startswith(f"The table findings in {tables}/findings could not be written: http://127.0.0.1:")
    assert "\n" not in said and SECRET not in said
    proxy.away = False
    sink(tables).accept(0, verdicts(finding(1)))
    assert numbers(tables) == [0] and version_of(tables, "findings") == 1


def test_what_is_told_while_the_store_is_away_is_written_before_the_next_batch(
    tables: TableUrl, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "READING", {"max_retries": "1", "retry_timeout": "1s"})
    told: list[Batch] = []
    writing = sink(tables, told)
    proxy.away = True
    for event, at in (("opened", 1), ("closed", 2)):
        writing.report([finding(1, anomaly="evidence-stalled", event=event, at=at)], put_off=True)
    with pytest.raises(TableError):
        writing.report([finding(3)])
    assert [batch.findings["event"].to_pylist() for batch in told] == [["opened"], ["closed"]]
    proxy.away = False
    proxy.lost = 1
    writing.accept(0, verdicts(finding(2)))
    events = read_table(tables, "findings").sort_by([("recorded", "ascending")]).to_pylist()
    assert sorted((row["anomaly"], row["event"]) for row in events) == [
        ("duplicate", "raised"),
        ("evidence-stalled", "closed"),
        ("evidence-stalled", "opened"),
    ]


def test_what_one_sink_told_and_could_not_write_the_next_one_writes_once_and_tells_nobody(
    tables: TableUrl, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "READING", {"max_retries": "1", "retry_timeout": "1s"})
    told: list[Batch] = []
    first = sink(tables)
    proxy.away = True
    first.report([finding(1, anomaly="checks-behind", event="opened", at=1)], put_off=True)
    assert first.unwritten
    proxy.away = False
    shown = current_findings(tables, [one.rows for one in first.unwritten])
    assert shown["state"].to_pylist() == ["open"], "to whoever looks what stands"
    for _ in range(2):
        after = sink(tables, told)
        after.take_over(first.unwritten)
        after.accept(0, verdicts())
        assert after.unwritten == []
    assert read_table(tables, "findings")["event"].to_pylist() == ["opened"]
    assert [batch.findings.num_rows for batch in told] == [0, 0]


def test_what_is_no_batch_of_anybody_is_there_once_where_its_answer_is_lost(tables: TableUrl, proxy: Proxy) -> None:
    writing = sink(tables)
    proxy.lost = 1
    writing.report([finding(1)])
    answers = open_table(tables, "rejected")
    proxy.lost = 1
    answers.write(read_table(tables, "rejected").slice(0, 0), mode="append")  # nothing is written, and asked
    assert (read_table(tables, "findings").num_rows, proxy.lost) == (1, 1)


@pytest.mark.long
def test_the_tables_are_kept_small_where_they_are(
    tables: TableUrl, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the proxy, whose threads wait for the interpreter that deltalake holds while it cleans up.
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server}")
    writing = sink(tables)
    for number in range(3):
        writing.accept(number, verdicts(finding(number, at=EARLIER + number), end=10 + number))
    config = JobConfig(tables=tables, upkeep=UpkeepConfig(small_files=3))
    told = list(Upkeep(config).run(datetime.now(UTC)))
    assert "findings: 3 files compacted into 1" in told, told
    assert any(line.startswith("partition_state: ") and "unused files deleted" in line for line in told), told
    assert numbers(tables) == [0, 1, 2]
    writing.accept(3, verdicts(finding(3)))  # by who had the table open before it was compacted
    assert numbers(tables) == [0, 1, 2, 3]
    aged = JobConfig(tables=tables, upkeep=UpkeepConfig(findings_days=0.5))
    told = list(Upkeep(aged).run(datetime.now(UTC)))
    assert any(line.startswith("findings: ") and "aged out" in line for line in told), told
    assert numbers(tables) == []


@pytest.mark.long
def test_two_who_write_at_once_lose_nothing_of_each_other(tables: TableUrl) -> None:
    writers = [open_table(tables, "findings") for _ in range(3)]
    sink(tables).accept(0, verdicts(finding(0)))
    (row,) = [read_table(tables, "findings")]
    threads = [Thread(target=one.write, args=(row,), kwargs={"mode": "append"}) for one in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(tables) == [0, 0, 0, 0]


def test_the_default_of_the_probe_log_is_beside_the_tables(tables: TableUrl) -> None:
    config = JobConfig(tables=str(tables))
    assert (config.tables_path, config.history_path) == (tables, tables / "history")
    assert current_findings(tables).num_rows == 0 and version_of(tables, "findings") == -1
    with pytest.raises(ValueError, match="max_gb needs a local probe log"):
        JobConfig(tables=tables, upkeep=UpkeepConfig(max_gb=1))
    assert not is_table(tables / "findings"), "who only reads makes no table"
