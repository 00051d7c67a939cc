"""The search for cycles over a real Delta table: found once, whatever the windows, restarts and crashes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rules.cycles.components import strongly_connected
from rules.vocabulary.slices import Slice, to_table
from rules.vocabulary.times import micros
from streaming_jobs.config import JobConfig
from streaming_jobs.cycles.search import CycleJob, Searched
from streaming_jobs.cycles.windows import complete_through
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current_findings
from tests.known import a_folder
from tests.rules.histories import History
from tests.streaming_jobs.probe_log import commit

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class ProbeLog:
    """Transactions of two processes, one second after another, committed as they come."""

    def __init__(self, path: Path) -> None:
        self.history = History()
        self._path = path
        self._committed = 0
        self._sent = {"a": 0, "b": 0}

    def seconds(self, count: int, *, guilty: int | None = None, mark: bool = True) -> None:
        """In second `guilty` the two transactions poll each other's values; else b polls what a wrote."""
        for second in range(count):
            self.history.time = float(int(self.history.time) + 1)
            at = {name: self._sent[name] for name in "ab"}
            self._sent = {name: n + 1 for name, n in self._sent.items()}
            seen = [("b", at["b"], 1, 2 * at["b"] + 1)] if second == guilty else []
            self.history.txn("a", [("a", at["a"], 1, 2 * at["a"])], seen)
            self.history.txn("b", [("b", at["b"], 1, 2 * at["b"] + 1)], [("a", at["a"], 1, 2 * at["a"])])
            if mark:
                self.history.mark()
            self.commit()

    def commit(self) -> None:
        fresh = self.history.rows[self._committed :]
        self._committed = len(self.history.rows)
        commit(self._path, fresh)


@pytest.fixture
def short(config: JobConfig) -> JobConfig:
    return JobConfig.model_validate(config.model_dump() | {"cycles": {"window": 10.0, "every": 0.05}})


@pytest.fixture
def probe_log(short: JobConfig) -> ProbeLog:
    return ProbeLog(a_folder(short.history_path))


def found(config: JobConfig) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(config.tables_path, "findings").to_pylist()
    return rows


def told(searched: Sequence[Searched]) -> list[str]:
    return [name for one in searched for name in one.findings["anomaly"].to_pylist()]


def test_a_cycle_is_found_once_across_windows_and_restarts(short: JobConfig, probe_log: ProbeLog) -> None:
    probe_log.seconds(4)
    job = CycleJob(short, clock=lambda: NOW)
    assert told(job.run()) == []
    heard: list[Searched] = []
    for part in range(6):
        probe_log.seconds(3, guilty=1 if part == 1 else None)
        if part % 2:
            job = CycleJob(short, [heard.append], clock=lambda: NOW)
        windows = job.run()
        assert windows
        assert all(one.operations for one in windows)
    [row] = found(short)
    assert (row["anomaly"], row["severity"], row["event"], row["partition"]) == ("G1c", "critical", "raised", 0)
    assert told(heard) == ["G1c"]
    ElementTree.fromstring((short.root / "cycles" / f"{row['id']}.svg").read_text())
    assert f'"picture": "cycles/{row["id"]}.svg"' in row["evidence"]
    [state] = read_table(short.tables_path, "cycle_search").to_pylist()
    assert micros(state["through"]) == job.through
    assert state["engine"] == "memory"


def test_a_healthy_log_has_none(short: JobConfig, probe_log: ProbeLog) -> None:
    probe_log.seconds(30)
    searched = CycleJob(short, clock=lambda: NOW).run()
    assert len(searched) > 3  # windows of ten seconds, by halves
    assert sum(one.operations for one in searched) > 60
    assert found(short) == []


def test_windows_overlap_so_that_a_cycle_across_their_border_is_found(short: JobConfig, probe_log: ProbeLog) -> None:
    for second in range(25):  # b's part of the cycle completes four seconds after a's, wherever the borders fall
        probe_log.seconds(1)
        if second == 12:
            probe_log.history.txn("a", [("x", 0, 1, 900)], [("y", 0, 1, 901)])
        if second == 16:
            probe_log.history.txn("b", [("y", 0, 1, 901)], [("x", 0, 1, 900)])
    probe_log.seconds(2)
    CycleJob(short, clock=lambda: NOW).run()
    assert [row["anomaly"] for row in found(short)] == ["G1c"]


def test_nothing_is_searched_before_the_log_is_complete(short: JobConfig, probe_log: ProbeLog) -> None:
    probe_log.seconds(3)
    job = CycleJob(short, clock=lambda: NOW)
    job.run()
    through = job.through
    probe_log.seconds(3, guilty=1, mark=False)
    assert job.run() == []
    assert job.through == through
    assert found(short) == []
    probe_log.history.mark()
    probe_log.commit()
    assert told(job.run()) == ["G1c"]


@pytest.mark.parametrize("backlog", [0, 30])
def test_a_log_is_complete_as_far_as_its_committer_has_read_the_journals(backlog: int) -> None:
    """The process that has closed holds nothing up, and another may be in the journals that are not read yet."""
    h = History()
    h.txn("a", [("a", 0, 1, 0)])
    h.row("a", "close")
    h.time = 40.0
    mark = h.mark()
    mark.invoked = h.at(40.0 - backlog)
    newest = micros(mark.completed)
    assert complete_through(to_table(h.rows), newest) == newest - backlog * 1_000_000


def test_a_process_whose_log_never_completes_is_not_waited_for_for_ever(short: JobConfig, probe_log: ProbeLog) -> None:
    probe_log.seconds(2)
    probe_log.history.row("silent", "poll", isolation="read_committed")
    probe_log.history.processes.remove("silent")  # no mark ever vouches for it
    probe_log.commit()
    job = CycleJob(short, clock=lambda: NOW)
    probe_log.seconds(5, guilty=2)
    assert told(job.run()) == []
    probe_log.history.time += 700.0
    probe_log.seconds(2)
    assert told(job.run()) == ["G1c"]


def test_a_pause_of_all_probes_is_passed_over(short: JobConfig, probe_log: ProbeLog) -> None:
    probe_log.seconds(3)
    probe_log.history.time += 100_000.0
    probe_log.seconds(8, guilty=4)
    job = CycleJob(short, clock=lambda: NOW)
    assert told(job.run()) == ["G1c"]
    assert job.through is not None
    assert job.through >= micros(probe_log.history.rows[-1].completed) - 10_000


class Killed(BaseException):
    """Stands for a crash: nothing catches it."""


@pytest.mark.parametrize("moment", ["before the findings", "after the findings", "before the progress"])
def test_a_crash_between_two_writes_repeats_and_loses_nothing(
    short: JobConfig, probe_log: ProbeLog, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    probe_log.seconds(6, guilty=4)
    heard: list[Searched] = []
    job = CycleJob(short, [heard.append], clock=lambda: NOW)
    table = job._progress if moment == "before the progress" else job._findings
    write = table.write

    def killed(*given: Any, **more: Any) -> Any:
        if moment == "after the findings" and given[0].num_rows:
            write(*given, **more)
        elif moment != "before the progress" and not given[0].num_rows:
            return write(*given, **more)
        raise Killed

    monkeypatch.setattr(table, "write", killed)
    with pytest.raises(Killed):
        while True:
            job.run()
    probe_log.seconds(2)
    again = CycleJob(short, [heard.append], clock=lambda: NOW)
    again.run()
    assert [row["anomaly"] for row in found(short)] == ["G1c"]
    assert {f for one in heard for f in one.findings["id"].to_pylist()} == {found(short)[0]["id"]}
    assert again.run() == []


def test_what_the_log_holds_may_be_compacted_meanwhile(short: JobConfig, probe_log: ProbeLog) -> None:
    probe_log.seconds(4)
    job = CycleJob(short, clock=lambda: NOW)
    job.run()
    probe_log.seconds(4, guilty=2)
    DeltaTable(str(short.history_path)).optimize.compact()
    assert told(job.run()) == ["G1c"]
    assert told(job.run()) == []


def test_a_thread_searches_and_stops(short: JobConfig, probe_log: ProbeLog) -> None:
    probe_log.seconds(6, guilty=4)
    import threading

    heard = threading.Event()
    job = CycleJob(short, [lambda _: heard.set()], clock=lambda: NOW)
    job.start()
    assert heard.wait(400)
    job.stop()
    job.stop()
    assert current_findings(short.tables_path)["anomaly"].to_pylist() == ["G1c"]


def test_write_write_edges_are_counted_where_asked_for(short: JobConfig, probe_log: ProbeLog) -> None:
    history = probe_log.history
    both: list[Slice] = []
    for partition, (first, second) in enumerate(((0, 1), (1, 0))):
        both.append(history.txn("a", [("a", 0, 1, first)], partition=partition, op=0))
        both.append(history.txn("b", [("b", 0, 1, second)], partition=partition, op=0))
    history.mark()
    probe_log.commit()
    assert told(CycleJob(short, clock=lambda: NOW).run()) == []
    asked = JobConfig.model_validate(short.model_dump() | {"cycles": short.cycles.model_dump() | {"ww": True}})
    (a_folder(short.tables_path) / "cycle_search").rename(short.root / "aside")
    assert told(CycleJob(asked, clock=lambda: NOW).run()) == ["G0"]
    [row] = found(asked)
    assert row["severity"] == "allowed"


def test_an_absent_log_is_waited_for(short: JobConfig) -> None:
    assert CycleJob(short, clock=lambda: NOW).run() == []


@pytest.mark.spark
def test_without_its_jar_graphframes_is_not_taken_and_the_reason_told(spark: Any) -> None:
    from streaming_jobs.cycles.graph_frames import unavailable

    assert "GraphFrames' jar is not on Spark's class path" in (unavailable(spark) or "")


def test_the_tables_columns_are_those_that_are_written(short: JobConfig, probe_log: ProbeLog) -> None:
    probe_log.seconds(3)
    CycleJob(short, clock=lambda: NOW).run()
    table: pa.Table = DeltaTable(str(short.tables_path / "cycle_search")).to_pyarrow_table()
    assert table.num_rows == 1


def test_rows_that_come_during_a_search_wait_for_the_next(short: JobConfig, probe_log: ProbeLog) -> None:
    """A window is the same work however little of it is new: a log that grows is not searched without a pause."""

    def slow(*graph: Any) -> Any:
        probe_log.seconds(1)
        return strongly_connected(*graph)

    probe_log.seconds(4)
    job = CycleJob(short, components=slow, clock=lambda: NOW)
    assert [len(job.run()) for _ in range(3)] == [1, 1, 1]
