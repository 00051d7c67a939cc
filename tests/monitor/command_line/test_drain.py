"""`probe drain` says what is lost, what cannot be read yet, and what has expired: its lines, and its exit code."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap64

from monitor.config.config import Config
from monitor.process import probing
from probes.running.drain import Acknowledged, Drained, Hold, _tell_apart, _unread
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
        "9,000 acknowledged records, 2 rounds: 0 lost, 35 cannot be read yet, 0 expired (below the log start)",
    ]


def test_what_nobody_told_in_time_is_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, said = drained(monkeypatch, tmp_path, unreadable={PLACE: [Run(7, 10, 5400, 30)]}, unread={PLACE: (20, 7975)})
    assert code == 2
    assert said[1:] == [
        "30 cannot be read: nobody told in time what stands in transactions/1 from offset 20 to 7975",
        "9,000 acknowledged records, 2 rounds: 0 lost, 30 cannot be read yet, 0 expired (below the log start)",
    ]


@pytest.mark.parametrize(
    ("position", "end", "lost", "unreadable"),
    [
        (100, 100, [], []),  # read to its end: see below for what is missing there
        (40, 100, [Run(7, 10, 10, 1)], [Run(7, 90, 90, 2), Run(7, 95, None, 1)]),
        (0, None, [], [Run(7, 10, 10, 1), Run(7, 90, 90, 2), Run(7, 95, None, 1)]),
        (60, 60, [Run(7, 10, 10, 1), Run(7, 90, 90, 2), Run(7, 95, None, 1)], []),  # the log was cut
        (93, 100, [Run(7, 10, 10, 1), Run(7, 90, 90, 2), Run(7, 95, None, 1)], []),
    ],
)
def test_only_what_a_reader_went_over_is_lost(
    position: int, end: int | None, lost: list[Run], unreadable: list[Run]
) -> None:
    place = Acknowledged(
        {7: BitMap64([10, 90, 91, 95])}, [np.array([[7, 10, 10, 1], [7, 90, 90, 2], [7, 95, -1, 1]])], 91
    )
    result = Drained(unread={PLACE: span} if (span := _unread(place, position, end)) else {})
    missing = dict(place.seqs) if position != 100 else {}
    _tell_apart(result, {PLACE: place}, {PLACE: missing}, {})
    assert (result.missing.get(PLACE, []), result.unreadable.get(PLACE, [])) == (lost, unreadable)


def test_what_is_lost_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    held = {"unreadable": {PLACE: [Run(7, 10, 5400, 30)]}, "holds": {PLACE: Hold(5339, 7975)}}
    code, said = drained(monkeypatch, tmp_path, missing={("records", 0): [Run(8, 1, 4, 1)]}, **held)
    assert (code, said[0]) == (1, "lost: records/0 value 8/1, acknowledged at offset 4")
    assert drained(monkeypatch, tmp_path) == (
        0,
        ["9,000 acknowledged records, 2 rounds: 0 lost, 0 expired (below the log start)"],
    )
