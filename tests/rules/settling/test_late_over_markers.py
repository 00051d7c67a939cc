"""A reader whose host was away is held against all that others saw where it went, however many stretches that makes."""

from __future__ import annotations

import pytest

from rules.settling import window
from rules.vocabulary.objectives import Objectives
from tests.rules.histories import History, Store, number
from tests.rules.settling.test_late_hosts import alone, is_back, vouched
from tests.rules.whole import whole

VALUES, READ, SKIPPED = 90, 40, 10


def over_markers(*, skips: bool) -> Store:
    """Each value stands beside a marker. At second 60 `s` reads the first forty, or goes over one; its host is heard of
    when all of that is settled, and the values have been forgotten, for which there is less room."""
    h, store = History(), Store(Objectives(window_runs=60))
    h.row("s", "start", mode="assign", isolation="read_committed", settings={})
    h.assign("s")
    alone(h, vouched(h, "s", 2, at=h.at(0.5)))
    h.assign("r")
    for i in range(VALUES):
        h.send("w", i, at=2 * i)
        h.poll("r", [("w", i, 1, 2 * i)], position_before=2 * i, position_after=2 * i + 2)
        h.observe(end=2 * i + 2)
        h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
    times = [{"invoked": h.at(at), "completed": h.at(at)} for at in (60.0, 60.1)]
    first, second = range(SKIPPED), range(SKIPPED + skips, READ)
    h.poll("s", [("w", i, 1, 2 * i) for i in first], position_before=0, position_after=2 * SKIPPED, **times[0])
    h.poll("s", [("w", i, 1, 2 * i) for i in second], position_before=2 * second[0], **times[1])
    is_back(h, ("s", 4, None))
    store.feed(h.rows)
    return store


@pytest.mark.parametrize("skips", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("room", [256, 16], ids=["room", "too many"])
def test_what_a_late_reader_skipped_is_found_or_that_it_is_not_known_is_told(
    room: int, skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "INDEX_KEPT", room)
    store = over_markers(skips=skips)
    told = [(one.anomaly, one.subject) for one in whole(store, ["poll-skip", "window-overflow"])]
    overflow = [("window-overflow", (window.WHAT,))]
    skip = [("poll-skip", (number("s"), 3))]
    assert told == (skip if skips and room > VALUES else [] if room > VALUES else overflow)
