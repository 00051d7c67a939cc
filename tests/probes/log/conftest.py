"""A journal folder, a place for the Delta table, and a clock, for every test of the probe log."""

from pathlib import Path

import pytest

from tests.probes.log.lives import StillClock


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"
