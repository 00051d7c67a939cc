"""Findings compared whole: anomaly, subject, event, message, evidence, context, times and what implies them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pytest

from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import (
    at_once,
    away_after_seconds,
    away_in_the_midst,
    back,
    row_by_row,
    shuffled,
)
from tests.rules.histories import START, History, Store


class Told(NamedTuple):
    """A finding; `at` and `decidable` in seconds of the history, to the millisecond."""

    anomaly: str
    subject: tuple[int | str, ...]
    message: str
    evidence: Mapping[str, Any]
    at: float
    decidable: float | None = None
    event: str = "raised"
    context: Mapping[str, str] = {}
    implied_by: str | None = None


def whole(store: Store, anomalies: Iterable[str]) -> list[Told]:
    """What the store found of these, by time; `decidable` only where it is not `at`."""
    names = set(anomalies)
    found = [
        Told(
            f.anomaly,
            f.subject,
            f.message,
            dict(f.evidence),
            _seconds(f.at),
            None if f.decidable == f.at else _seconds(f.decidable),
            f.event,
            dict(f.context),
            f.implied_by,
        )
        for f in store.findings
        if f.anomaly in names
    ]
    return sorted(found, key=lambda one: (one.at, one.anomaly, str(one.subject), one.event))


def _seconds(at: int) -> float:
    return round((at - micros(START)) / 1e6, 3)


def finished(h: History) -> Store:
    """As a file is checked: nothing more will come."""
    store = Store()
    store.feed(h.rows, finished=True)
    return store


def live(feed: Callable[[History], Store], ticks: int = 3) -> Callable[[History], Store]:
    """Fed after `ticks` more seconds of marks."""

    def fed(h: History) -> Store:
        for _ in range(ticks):
            h.mark(1.0)
        return feed(h)

    return fed


def in_any_way(ticks: int = 3, *, file: bool = True) -> pytest.MarkDecorator:
    """Parametrises a test with `fed`: row by row, at once, in pieces and out of order, and as a file."""
    ways: dict[str, Callable[[History], Store]] = {
        "row_by_row": live(row_by_row, ticks),
        "at_once": live(at_once, ticks),
        "away_after_seconds": live(away_after_seconds, ticks),
        "away_in_the_midst": live(away_in_the_midst, ticks),
        "back": live(back, ticks),
        "shuffled": live(lambda h: shuffled(h, 3), ticks),
        "shuffled_otherwise": live(lambda h: shuffled(h, 8, parts=3), ticks),
    }
    if file:
        ways["finished"] = finished
    return pytest.mark.parametrize("fed", list(ways.values()), ids=list(ways))
