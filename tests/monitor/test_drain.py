"""`probe drain` says what is lost, what cannot be read yet, and what has expired: its lines, and its exit code."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monitor.config.config import Config
from monitor.process import probing
from probes.running.drain import Drained, Hold
from rules.vocabulary.slices import Run

PLACE = ("transactions", 1)


def drained(monkeypatch: pytest.MonkeyPatch, folder: Path, **found: Any) -> tuple[int, list[str]]:
    """The exit code and the lines of a drain that found this."""
    done = Drained(acknowledged=9000, rounds=2, **found)
    monkeypatch.setattr("probes.running.drain.drain", lambda *_, **__: done)
    monkeypatch.setattr(probing, "require_reachable", lambda path: None)
    monkeypatch.setattr(probing, "reach", lambda config: SimpleNamespace(cluster="c"))
    monkeypatch.setattr(probing, "record", lambda config, cluster: None)
    said: list[str] = []
    code = probing.drain(Config(data=folder, cluster={"bootstrap": "b:1"}), limit=1, say=said.append)
    return code, said


def test_what_a_transaction_holds_cannot_be_read_and_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = {PLACE: [Run(7, 10, 5400, 30), Run(7, 90, None, 5)]}
    code, said = drained(monkeypatch, tmp_path, unreadable=runs, holds={PLACE: Hold(5339, 7975)})
    assert code == 2
    assert said == [
        "cannot be read: transactions/1 value 7/10 to 39, acknowledged at offset 5400",
        "cannot be read: transactions/1 value 7/90 to 94, acknowledged at an unknown offset",
        "35 cannot be read: a transaction that does not end holds the last stable offset of transactions/1 at 5339, "
        "the log ends at 7975",
        "9,000 acknowledged records, 2 rounds: 0 lost, 35 cannot be read yet (from a last stable offset on), 0 expired "
        "(below the log start)",
    ]


def test_what_is_lost_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    held = {"unreadable": {PLACE: [Run(7, 10, 5400, 30)]}, "holds": {PLACE: Hold(5339, 7975)}}
    code, said = drained(monkeypatch, tmp_path, missing={("records", 0): [Run(8, 1, 4, 1)]}, **held)
    assert (code, said[0]) == (1, "lost: records/0 value 8/1, acknowledged at offset 4")
    assert drained(monkeypatch, tmp_path) == (
        0, ["9,000 acknowledged records, 2 rounds: 0 lost, 0 expired (below the log start)"],
    )  # fmt: skip
