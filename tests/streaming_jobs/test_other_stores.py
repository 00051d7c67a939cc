"""The probe log and the job's tables in Azure's blob store, as its own emulator serves it, and in Google's, as
fake-gcs-server does: what S3 is tested for (`test_object_store.py`, `test_tables_url.py`) where stores may differ."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from probes.log.commits.history import History
from probes.log.errors import HistoryConflict
from rules.vocabulary.slices import to_table
from streaming_jobs import location
from streaming_jobs.config import JobConfig, UpkeepConfig
from streaming_jobs.errors import TableError
from streaming_jobs.history.files import tables as read_blocks
from streaming_jobs.history.log_source import ProbeLogReader
from streaming_jobs.history.reachable import require_reachable
from streaming_jobs.location import TableUrl
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables.delta_tables import read_table, version_of
from streaming_jobs.tables.upkeep import Upkeep
from streaming_jobs.verdicts.sink import Batch, Sink
from tests import azure_store, gcs_store
from tests.azure_store import KEY
from tests.object_store import Proxy, known_here, proxy_to
from tests.streaming_jobs.conftest import CHECKOUT
from tests.streaming_jobs.probe_log import duplicates
from tests.streaming_jobs.verdicts.test_sink import NOW, finding, verdicts

pytestmark = pytest.mark.evening

PARTS = [to_table(rows) for rows in duplicates(3)]
ROWS = sum(part.num_rows for part in PARTS)
APP = "committer"


STORES = {"az": azure_store, "abfss": azure_store, "gs": gcs_store}
"""By scheme: Azure has two."""
AT = {"az": "az://bucket", "abfss": "abfss://bucket@devstoreaccount1.dfs.core.windows.net", "gs": "gs://bucket"}


@pytest.fixture(scope="module", params=STORES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(scheme: str) -> Iterator[int]:
    with STORES[scheme].store() as port:
        yield port


@pytest.fixture
def proxy(server: int, scheme: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxy_to(server) as made, known_here(STORES[scheme].environment(made.server_port), monkeypatch):
        yield made


@pytest.fixture
def log(proxy: Proxy, scheme: str) -> History:
    return History(f"{AT[scheme]}/some prefix/{proxy.server_port}/history")


@pytest.fixture
def told_of(scheme: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """This process asks at another port from now on."""

    def told(port: int) -> None:
        for name, value in STORES[scheme].environment(port).items():
            monkeypatch.setenv(name, value)

    return told


def append(log: History, *, version: int) -> None:
    assert (log.last_version(APP) or 0) == version - 1
    log.append(PARTS[version - 1], APP, version)


def test_what_is_appended_is_read_by_the_stream_and_by_a_rebuild(
    log: History, server: int, tmp_path: Path, told_of: Callable[[int], None]
) -> None:
    for version in (1, 2, 3):
        append(log, version=version)
    told_of(server)
    require_reachable(TableUrl(log.uri))
    reader = ProbeLogReader({"path": log.uri, "version": "0", "files": "1000", "bytes": str(1 << 30)})
    begin = reader.initialOffset()
    tasks = reader.partitions(begin, reader.latestOffset(begin, reader.getDefaultReadLimit()))
    assert sum(part.num_rows for task in tasks for part in read_blocks(task.blocks)) == ROWS  # type: ignore[attr-defined]
    config = JobConfig(root=tmp_path, history=TableUrl(log.uri))
    Rebuild(config).run("its checkpoint is gone")
    found = read_table(config.tables_path, "findings")["anomaly"].to_pylist()
    assert found and set(found) == {"duplicate"}


def test_a_commit_whose_answer_is_lost_is_known_and_not_made_twice(log: History, proxy: Proxy) -> None:
    append(log, version=1)
    proxy.lost = 1
    with pytest.raises(HistoryConflict):
        log.append(PARTS[1], APP, 2)
    assert (proxy.lost, log.last_version(APP)) == (0, 2)
    assert DeltaTable(log.uri).count() == PARTS[0].num_rows + PARTS[1].num_rows


def test_a_store_that_is_slow_and_refuses_now_and_then_loses_nothing(log: History, proxy: Proxy) -> None:
    append(log, version=1)
    proxy.delay, proxy.unavailable = 0.05, 2
    append(log, version=2)
    assert DeltaTable(log.uri).count() == PARTS[0].num_rows + PARTS[1].num_rows


def test_of_hosts_that_commit_at_once_none_overwrites_another(
    log: History, server: int, told_of: Callable[[int], None]
) -> None:
    asks = (
        "import sys; from streaming_jobs.location import TableUrl\n"
        "from streaming_jobs.history.reachable import require_conditional_puts\n"
        "require_conditional_puts(TableUrl(sys.argv[1]))"
    )
    told_of(server)
    for _ in range(3):
        subprocess.run([sys.executable, "-c", asks, log.uri], check=True, cwd=CHECKOUT)
    assert "_tried" not in TableUrl(log.uri).names()


def test_a_batch_that_is_run_again_and_whose_answers_are_lost_is_there_once(proxy: Proxy, scheme: str) -> None:
    tables, told = TableUrl(f"{AT[scheme]}/{proxy.server_port}/tables"), list[Batch]()
    sink = Sink(tables, "job:q", [told.append], clock=lambda: NOW)
    proxy.lost = 3
    sink.accept(0, verdicts(finding(1)))
    Sink(tables, "job:q", [told.append], clock=lambda: NOW).accept(0, verdicts(finding(1)))
    assert (proxy.lost, [batch.replayed for batch in told]) == (0, [False, True])
    written = ("findings", "partition_state", "readers")
    assert [read_table(tables, name).num_rows for name in written] == [1, 1, 1]
    assert version_of(tables, "findings") == 1


def test_the_monitor_keeps_a_log_small(
    log: History, server: int, tmp_path: Path, told_of: Callable[[int], None]
) -> None:
    for version in (1, 2, 3):
        append(log, version=version)
    told_of(server)
    upkeep = UpkeepConfig(small_files=2, history_days=3650)
    told = list(Upkeep(JobConfig(root=tmp_path, history=TableUrl(log.uri), upkeep=upkeep)).run(datetime.now(UTC)))
    assert [line for line in told if line.startswith("history: 3 files compacted into 1")], told
    assert (len(DeltaTable(log.uri).file_uris()), DeltaTable(log.uri).count()) == (1, ROWS)


def test_a_refused_login_is_told_in_a_line_without_the_key(
    log: History, server: int, scheme: str, monkeypatch: pytest.MonkeyPatch, told_of: Callable[[int], None]
) -> None:
    if scheme == "gs":
        pytest.skip("the emulator lets everybody in")
    append(log, version=1)
    told_of(server)
    wrong = KEY[:10] + ("A" if KEY[10] != "A" else "B") + KEY[11:]
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
    location._store.cache_clear()
    with pytest.raises(TableError) as refused:
        require_reachable(TableUrl(log.uri))
    said = str(refused.value)
    assert said.startswith(f"The probe log at {log.uri} cannot be reached: ") and "\n" not in said
    assert KEY[:10] not in said and "says AuthorizationFailure" in said, said
