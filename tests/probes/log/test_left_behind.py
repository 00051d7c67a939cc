"""Journals that nobody looks after any more are appended once."""

from __future__ import annotations

from pathlib import Path

from probes.log.commits.committer import committer
from probes.log.commits.left_behind import append_left_behind
from tests.probes.log.lives import Prober, StillClock, closes, logged, table_rows


def test_what_a_killed_process_left_is_appended_and_its_end_told(
    folder: Path, history: Path, clock: StillClock
) -> None:
    prober = Prober.start(folder, 1, clock)
    prober.send(0)
    assert append_left_behind(folder, history, clock) == 0, "it lives"
    prober.kill()
    clock.tick()
    assert append_left_behind(folder, history, clock) > 0
    rows = table_rows(history)
    assert logged(rows, 1) == prober.must_be_logged()
    assert closes(rows, 1) == {0: ["info"], 1: ["info"]}
    assert append_left_behind(folder, history, clock) == 0, "once"


def test_a_folder_that_somebody_is_at_work_on_is_left_to_him(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock)
    prober.kill()
    with committer(folder, history, clock):
        assert append_left_behind(folder, history, clock) == 0
