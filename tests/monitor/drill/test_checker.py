"""The drills' checker finds what a finished history's check finds, while the log grows commit by commit."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
import pytest

from monitor.drill.definition.graded import Graded
from monitor.drill.running.checker import Checker, Follower
from monitor.history_files.checks import Checks
from rules.step import Stepped
from rules.store import MemoryStore
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place, Slice
from streaming_jobs.history.files import completed
from tests.rules.histories import Store
from tests.rules.model import FAULTS, SETTLE, World, turns
from tests.streaming_jobs.probe_log import commit

BROKEN = ("duplicate", "lost-write", "G1a", "torn-transaction committed", "vanished-record", "corrupted-record")


def history(fault: str | None, seed: int = 5) -> list[Slice]:
    """A model's history, with one broken promise in its middle."""
    world = World().run(turns(seed, 60))
    if fault is not None:
        FAULTS[fault](world, random.Random(seed))
    world.run(turns(seed + 1, 60)).settle(SETTLE)
    return list(world.journal.rows)


def violations(named: list[tuple[str, int, tuple[int | str, ...]]]) -> set[tuple[str, int, tuple[int | str, ...]]]:
    return {one for one in named if CATALOGUE[one[0]].kind == "violation" and one[0] != "int-send-skip"}


def finished(rows: list[Slice]) -> set[tuple[str, int, tuple[int | str, ...]]]:
    store = Store()
    store.feed(rows, finished=True)
    return violations([(f.anomaly, f.partition, f.subject) for f in store.findings])


def live(rows: list[Slice], folder: Path) -> tuple[set[tuple[str, int, tuple[int | str, ...]]], list[Graded]]:
    checker = Checker(folder, Objectives())
    checker.start()
    step = max(1, len(rows) // 12)
    for begin in range(0, len(rows), step):
        commit(checker.history, rows[begin : begin + step])
    checker.stop()
    found = [(one.finding.anomaly, one.finding.partition, one.finding.subject) for one in checker.found]
    return violations(found), checker.found


@pytest.mark.long
@pytest.mark.parametrize("fault", BROKEN)
def test_it_finds_what_a_finished_history_tells(fault: str, tmp_path: Path) -> None:
    rows = history(fault)
    expected = finished(rows)
    assert fault.split()[0] in {name for name, _, _ in expected}
    found, _ = live(rows, tmp_path)
    assert found == expected


def test_it_finds_nothing_where_nothing_is_wrong(tmp_path: Path) -> None:
    found, listed = live(history(None), tmp_path)
    assert found == set()
    assert {one.severity for one in listed} <= {"info"}


def test_findings_come_while_the_log_grows(tmp_path: Path) -> None:
    seen: list[Graded] = []
    checker = Checker(tmp_path, Objectives(), on_found=seen.append)
    checker.start()
    try:
        began = time.time()
        commit(checker.history, history("duplicate"))
        end = time.monotonic() + 120
        while not any(one.name == "duplicate" for one in seen) and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        checker.stop()
    (first, *_) = [one for one in seen if one.name == "duplicate"]
    assert began <= first.seen <= time.time()
    assert first.severity == "critical"


def test_a_rule_that_raises_makes_its_partition_unknown_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryStore.step_one

    def raising(store: MemoryStore, place: Place, rows: pa.Table) -> Stepped:
        if place.partition == 0:
            raise ZeroDivisionError("a rule's mistake")
        return real(store, place, rows)

    monkeypatch.setattr(MemoryStore, "step_one", raising)
    rows = history("duplicate")
    checks = Checks(Objectives())
    from rules.vocabulary.slices import to_table

    found = checks.take(completed(to_table(rows)))
    crashed = [f for f in found if f.anomaly == "check-failed"]
    assert {f.partition for f in crashed} == {0}
    assert "a rule's mistake" in crashed[0].message
    assert not [f for f in checks.take(completed(to_table(rows))) if f.anomaly == "check-failed"]


def test_the_follower_reads_each_commit_once(tmp_path: Path) -> None:
    rows = history(None)
    follower = Follower(tmp_path / "history")
    assert follower.read() is None
    commit(tmp_path / "history", rows[:10])
    commit(tmp_path / "history", rows[10:30])
    first = follower.read()
    assert first is not None and first.num_rows == 30
    assert follower.read() is None
    commit(tmp_path / "history", rows[30:31])
    again = follower.read()
    assert again is not None and again.num_rows == 1
