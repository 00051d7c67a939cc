"""Which cluster a journal folder knows at an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.kafka.errors import ProbeError
from probes.running.fleet import Fleet
from probes.running.known_cluster import FILE, former_cluster, note_cluster
from probes.topology import Layout, Topic


def test_another_one_at_the_same_address_is_told_until_it_is_known(tmp_path: Path) -> None:
    assert former_cluster(tmp_path, "a:1", "one") == ""
    note_cluster(tmp_path, "a:1", "one")
    assert former_cluster(tmp_path, "a:1", "one") == ""
    assert [former_cluster(tmp_path, "a:1", "two") for _ in range(2)] == ["one", "one"]
    note_cluster(tmp_path, "a:1", "two")
    assert former_cluster(tmp_path, "a:1", "two") == ""


def test_one_at_another_address_took_nobodys_place(tmp_path: Path) -> None:
    note_cluster(tmp_path, "a:1", "one")
    assert former_cluster(tmp_path, "b:1", "two") == ""


def test_a_file_that_is_damaged_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    assert former_cluster(tmp_path, "a:1", "one") == ""
    note_cluster(tmp_path, "a:1", "one")
    assert former_cluster(tmp_path, "a:1", "two") == "one"


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ProbeError, match="cannot be used"):
        note_cluster(tmp_path / "file", "a:1", "one")


def test_a_fleet_tells_its_probes_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When it begins, and while it runs."""
    note_cluster(tmp_path, "a:1", "one")
    fleet = Fleet(ProbesConfig(), Connection("a:1"), tmp_path, SystemClock())
    first = fleet._layout = fleet._knowing_its_former(Layout("two", ()))
    assert (first.former_cluster, "id is two, and was one" in caplog.text) == ("one", True)
    note_cluster(tmp_path, "a:1", "two")
    again = fleet._layout = fleet._knowing_its_former(Layout("two", (Topic("t", "i", 1),)))
    assert again.former_cluster == "one", "those who begin later tell it, too"
    assert fleet._knowing_its_former(Layout("three", ())).former_cluster == "two"
