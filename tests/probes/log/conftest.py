"""A journal folder, a place for the Delta table, and a clock, for every test of the probe log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.log.journals.journal import Journal
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


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What journals tell in the host's memory is not left there."""
    monkeypatch.setattr("probes.log.journals.written.MEMORY", tmp_path_factory.mktemp("memory"))


@pytest.fixture(autouse=True)
def journals_live_as_long_as_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A journal that a test made and did not keep stays held until the test's end, and is let go of then."""
    made: list[Journal] = []
    create = Journal.__init__

    def remember(self: Journal, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(Journal, "__init__", remember)
    yield
    for journal in made:
        journal.release()
