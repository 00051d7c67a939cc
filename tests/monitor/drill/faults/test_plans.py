"""What faults work out before they act, without a broker: moves of replicas, throttles."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.drill.faults.clocks import LIBRARY, libfaketime
from monitor.drill.faults.disks import Throttle, throttle
from monitor.drill.faults.membership import moved_in, moved_out
from monitor.drill.faults.replicas import Placement, not_whole


def placed(topic: str, partition: int, *replicas: int, leader: int | None = 1) -> Placement:
    return Placement(topic, partition, leader, replicas, frozenset(replicas))


def test_a_broker_that_joins_takes_the_last_replica_and_leads_every_other_partition() -> None:
    places = [placed("t", 0, 1, 2, 3), placed("t", 1, 2, 3, 1), placed("u", 0, 3, 1, 2), placed("t", 2, 4, 1, 2)]
    assert moved_in(places, ["t"], 4) == {("t", 0): (4, 1, 2), ("t", 1): (2, 3, 4)}
    assert moved_in(places, [], 4) == {}


def test_a_broker_that_leaves_gives_its_replicas_to_those_that_have_none() -> None:
    places = [placed("t", 0, 4, 1, 2), placed("t", 1, 2, 3, 1), placed("alone", 0, 4), placed("full", 0, 1, 2, 3, 4)]
    assert moved_out(places, 4, [1, 2, 3]) == {
        ("t", 0): (1, 2, 3),
        ("alone", 0): (1,),
        ("full", 0): (1, 2, 3),
    }


def test_a_partition_is_whole_with_a_leader_and_all_replicas_in_sync() -> None:
    behind = Placement("t", 1, 1, (1, 2), frozenset({1}))
    assert not_whole([placed("t", 0, 1, 2), behind, placed("t", 2, 1, leader=None)]) == ["t/1", "t/2"]


def test_a_throttle_is_found_for_either_version_of_cgroups(tmp_path: Path) -> None:
    assert throttle(tmp_path, "8:0", "slow", 100) is None
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    assert throttle(tmp_path, "8:0", "slow", 100) is None
    (tmp_path / "cgroup.subtree_control").write_text("cpu io memory\n")
    assert throttle(tmp_path, "8:0", "slow", 100) == Throttle(tmp_path / "slow", "io.max", "8:0 wbps=100")
    (tmp_path / "blkio").mkdir()
    (tmp_path / "blkio" / "blkio.throttle.write_bps_device").touch()
    assert throttle(tmp_path, "8:0", "slow", 100) == Throttle(
        tmp_path / "blkio" / "slow", "blkio.throttle.write_bps_device", "8:0 100"
    )
    Throttle(tmp_path / "never", "x", "y").release()


def test_the_library_is_taken_from_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.so"
    monkeypatch.setenv(LIBRARY, str(file))
    assert libfaketime() != file
    file.touch()
    assert libfaketime() == file
