"""Until when a journal folder tells what was sent, and that a start does not read what the probe log has already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probes.log.commits.committer import committer
from probes.log.journals.reader import LifeReader
from probes.running.brought_back import HOST_WENT_DOWN, KILLED, known_through
from rules.vocabulary.times import micros
from tests.probes.log.lives import Prober, StillClock


def test_what_is_in_the_probe_log_is_not_read_again(
    folder: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, killed = Prober.start(folder, 1, clock), Prober.start(folder, 2, clock)
    assert known_through(folder, clock.boot) == micros(clock.now()) + KILLED, "before there is any plan"
    over.send(0)
    over.close()
    with committer(folder, history, clock) as one:
        clock.tick(61)
        one.commit()
    appended = micros(clock.now())
    read: list[str] = []
    really = LifeReader.read

    def noted(self: LifeReader, *args: Any) -> Any:
        read.append(self.name)
        return really(self, *args)

    monkeypatch.setattr(LifeReader, "read", noted)
    assert known_through(folder, clock.boot) == appended + KILLED
    assert read == []
    clock.tick()
    killed.invoke(0)
    told = micros(clock.now())
    killed.kill()
    clock.tick(5)
    assert known_through(folder, clock.boot) == told + KILLED
    assert known_through(folder, "another") == told + HOST_WENT_DOWN
    assert set(read) == {killed.journal.folder.name}
