"""How long something lasted is the same to all who tell of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from alerts.incidents.incident import explanation, span
from monitor.incidents.ages import age
from rules.vocabulary.times import micros
from tests.alerts.findings import NOON
from tests.alerts.incidents import S, incident


@pytest.mark.parametrize(
    ("seconds", "listed"), [(0.4, "0s"), (1.79, "2s"), (5.75, "6s"), (59.6, "1m"), (90, "1m"), (7_300, "2h")]
)
def test_who_lists_incidents_rounds_as_who_explains_them(seconds: float, listed: str) -> None:
    assert age(timedelta(seconds=seconds)) == listed
    if seconds >= 1:
        assert span(seconds).replace(" ", "").startswith(listed)


@pytest.mark.parametrize(
    ("anomaly", "lasted"), [("replicas-out-of-sync", "3 min 2 s"), ("stuck-consumer", "1 min 2 s")]
)
def test_what_is_found_when_it_has_lasted_for_minutes_lasted_since_it_began(anomaly: str, lasted: str) -> None:
    """Of a condition that tells no `since`, it is when it was found."""
    evidence = {"broker": 2, **({"since": micros(NOON - 120 * S)} if anomaly == "replicas-out-of-sync" else {})}
    one = incident(anomaly=anomaly, kind="condition", evidence=evidence, ended=62)
    assert explanation(one).endswith(f"It ended at 2024-10-04 12:01:02 UTC, {lasted} after it began.")
    assert age(one.held_for(NOON + 99 * S)) == f"{lasted[0]}m"
