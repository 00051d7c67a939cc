"""Journals and their readers that nobody closed give their descriptors back: a fleet runs for months."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

import pytest

from probes.log.journals.journal import Journal, Life
from probes.log.journals.reader import LifeReader


def open_descriptors(folder: Path) -> list[str]:
    """The files below the folder that are open: clients of earlier tests may still open and close others."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return [file for file in found if file.startswith(str(folder))]


# What earlier tests left open is closed here, too, and Python says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_is_forgotten_is_closed(tmp_path: Path) -> None:
    gc.collect()
    for number in range(1, 6):
        life = Life(
            cluster="c",
            run="r",
            process=number,
            kind="writer",
            writer=number,
            transactional_id=None,
            boot="b",
            settings={},
        )
        journal = Journal.create(tmp_path, life)
        LifeReader(journal.folder, 0)
    assert open_descriptors(tmp_path)
    del journal
    gc.collect()
    assert open_descriptors(tmp_path) == []
