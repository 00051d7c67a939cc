"""Schedules are drawn from a seed, and run one fault at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from monitor.drill.endurance import schedule as module
from monitor.drill.endurance.schedule import KINDS, Entry, Schedule, Targets, draw, possible, run
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.fault import Fault
from monitor.drill.faults.roles import BrokerOf

TARGETS = Targets(partitions=[("t", 0), ("t", 1)], transactional_ids=["x-0"], groups=["g"], topics=["t"])


def test_a_seed_is_a_schedule() -> None:
    assert draw(7, 1200, TARGETS) == draw(7, 1200, TARGETS)
    assert str(draw(7, 1200, TARGETS)) == str(draw(7, 1200, TARGETS))
    assert str(draw(7, 1200, TARGETS)) != str(draw(8, 1200, TARGETS))


@pytest.mark.parametrize("seed", range(50))
def test_one_fault_is_over_before_the_next_and_the_last_before_the_end(seed: int) -> None:
    drawn = draw(seed, 1200, TARGETS, quiet=10, calm=30)
    assert len(drawn.entries) >= 10
    assert drawn.entries[0].at == 10
    for one, following in zip(drawn.entries, drawn.entries[1:], strict=False):
        assert following.at >= one.at + one.lasts + KINDS[one.kind].takes + 10 - 0.1  # times are rounded
    last = drawn.entries[-1]
    assert last.at + last.lasts + KINDS[last.kind].takes <= 1200 - 30 + 0.1


def test_all_kinds_and_roles_are_drawn_and_told() -> None:
    entries = [entry for seed in range(50) for entry in draw(seed, 1200, TARGETS).entries]
    assert {entry.kind for entry in entries} == set(KINDS)
    assert {str(entry.role) for entry in entries} == {
        "the controller",
        "any broker",
        "the leader of t/0",
        "the leader of t/1",
        "the transaction coordinator of x-0",
        "the coordinator of group g",
    }
    for entry in entries:
        assert str(entry).startswith(f"{entry.at:7.1f} s  {entry.kind}")
        assert entry.fault().describe() == entry.fault().describe()


def test_only_the_kinds_that_are_allowed_are_drawn() -> None:
    assert {entry.kind for entry in draw(1, 3600, Targets(), kinds=["pause", "kill"]).entries} == {"pause", "kill"}
    with pytest.raises(ValueError, match="there is no fault melt"):
        draw(1, 600, TARGETS, kinds=["kill", "melt"])
    with pytest.raises(ValueError, match="no kind of fault is allowed"):
        draw(1, 600, TARGETS, kinds=[])
    assert draw(1, 20, TARGETS).entries == ()


class Noted(Fault):
    """Does nothing but note it, and fails as it is told."""

    log: list[str]

    def __init__(self, name: str, log: list[str], *, missing: str = "", fails: str = "") -> None:
        super().__init__()
        self.name, self.log, self._lacks, self._fails = name, log, missing, fails

    def describe(self) -> str:
        return self.name

    def preconditions(self, cluster: LocalKafka) -> list[str]:
        self._cluster = cluster
        return [self._lacks] if self._lacks else []

    def _begin(self, cluster: LocalKafka) -> None:
        self.log.append(f"{self.name} begins")
        if self._fails:
            raise DrillFailed(self._fails)

    def _end(self, cluster: LocalKafka) -> None:
        self.log.append(f"{self.name} ends")


def scheduled(monkeypatch: pytest.MonkeyPatch, log: list[str], faults: list[Noted]) -> Schedule:
    """A schedule of these faults at once, on a cluster that is always whole."""
    made = iter(faults)
    monkeypatch.setattr(Entry, "fault", lambda self: next(made))

    def recovered(cluster: LocalKafka, timeout: float) -> float:
        log.append("recovered")
        return 0.5

    monkeypatch.setattr(module, "await_recovered", recovered)
    entries = tuple(
        Entry(at=0, kind="kill", role=BrokerOf(1), lasts=0, seed=0, targets=TARGETS) for _ in range(len(faults))
    )
    return Schedule(seed=0, seconds=60, quiet=0, entries=entries)


def test_the_next_fault_waits_for_the_recovery_from_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log: list[str] = []
    faults = [
        Noted("one", log),
        Noted("two", log, missing="it is Tuesday"),
        Noted("three", log, fails="it did not"),
        Noted("four", log),
    ]
    said: list[str] = []
    happened = run(scheduled(monkeypatch, log, faults), LocalKafka(tmp_path, brokers=1), threading.Event(), said.append)
    assert log == [
        "one begins",
        "one ends",
        "recovered",
        "three begins",
        "three ends",
        "recovered",
        "four begins",
        "four ends",
        "recovered",
    ]
    assert [(one.told, one.error, one.recovered_in) for one in happened] == [
        ("one", None, 0.5),
        ("two", "it is Tuesday", None),
        ("three", "it did not", 0.5),
        ("four", None, 0.5),
    ]
    assert "two: it is Tuesday" in said


def test_a_stop_ends_the_fault_at_hand_and_begins_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log: list[str] = []
    stop = threading.Event()
    happened = run(
        scheduled(monkeypatch, log, [Noted("one", log), Noted("two", log)]),
        LocalKafka(tmp_path, brokers=1),
        stop,
        lambda line: stop.set(),
    )
    assert log == ["one begins", "one ends", "recovered"]
    assert [one.told for one in happened] == ["one"]


def test_what_is_missing_is_told_by_kind(kafka3: LocalKafka) -> None:
    """Brokers that reach their peers directly."""
    can, cannot = possible(kafka3)
    assert {"kill", "pause", "rolling-restart"} <= set(can)
    assert cannot["cut"] == ["the brokers reach each other directly: the cluster has to be made with cuttable=True"]
    assert set(can) | set(cannot) == set(KINDS)
