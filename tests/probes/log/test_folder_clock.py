"""Each journal folder has a clock with a name of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.clock import boot_id
from probes.log.commits.append_plan import PLAN
from probes.log.commits.folder_clock import CLOCK_FILE, folder_clock
from probes.log.errors import JournalUnwritable


def test_two_folders_of_one_boot_are_two_clocks_and_each_keeps_its_own(tmp_path: Path) -> None:
    one, other = folder_clock(tmp_path / "a").boot, folder_clock(tmp_path / "b").boot
    assert one != other
    assert folder_clock(tmp_path / "a").boot == one
    assert {name.split("/")[0] for name in (one, other)} == {boot_id()}


def test_a_folder_that_an_earlier_version_logged_in_keeps_its_boot(tmp_path: Path) -> None:
    (tmp_path / PLAN).write_text("{}")
    assert folder_clock(tmp_path).boot == boot_id()
    assert not (tmp_path / CLOCK_FILE).exists()


def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(JournalUnwritable, match=r"cannot use the journal folder .*taken: "):
        folder_clock(tmp_path / "taken")
    (tmp_path / CLOCK_FILE).write_text("no name")
    with pytest.raises(JournalUnwritable, match="does not hold a clock's name"):
        folder_clock(tmp_path)
