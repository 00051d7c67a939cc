"""Evidence in words, with the units of the catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from alerts.evidence import exact, units, words


@pytest.mark.parametrize(
    ("anomaly", "evidence", "said"),
    [
        ("duplicate", {"writer": 7, "seq": 0, "offsets": [4, 9]}, "writer=7  seq=0  offsets=[4, 9]"),
        ("lost-commit", {"after_s": 1.5, "retention_minutes": 5}, "after_s=1.5 s  retention_minutes=5 min"),
        ("lost-commit", {"told": None}, "told=none"),
        ("phantom-read", {"highest_sent": None}, "highest_sent=unknown"),
        (
            "stuck-producer",
            {"answered": 1_728_043_200_250_000, "process": 3},
            "answered=2024-10-04T12:00:00.250000Z  process=3",
        ),
        (
            "stuck-producer",
            {"answered": -1, "writer": "w", "lasted_s": 2.0},
            "answered=never  writer=w  lasted_s=2.0 s",
        ),
        ("duplicate", {"seen": {"offset": 1}, "unheard_of": 2}, 'seen={"offset": 1}  unheard_of=2'),
        ("unheard-of", {"since": 3}, "since=3"),
    ],
)
def test_words(anomaly: str, evidence: dict[str, Any], said: str) -> None:
    assert words(anomaly, evidence) == said


def test_units_are_told_of_times_and_spans() -> None:
    evidence = {"last_stable": 4, "log_end": 9, "since": 1_728_043_200_250_000}
    assert units("hanging-transaction", evidence) == {"since": "µs of log time since the epoch"}
    assert units("lost-commit", {"told": 4, "after_s": 1.5, "retention_minutes": 5}) == {
        "after_s": "s",
        "retention_minutes": "min",
    }
    assert units("unheard-of", {"since": 3}) == {}


def test_ids_that_other_programs_would_round_are_strings() -> None:
    evidence = {
        "process": 2**53 + 1,
        "offset": 2**53,
        "values": [{"writer": -(2**60), "seq": 3}],
        "held": True,
        "s": 1.5,
    }
    assert exact(evidence) == {
        "process": "9007199254740993",
        "offset": 2**53,
        "values": [{"writer": "-1152921504606846976", "seq": 3}],
        "held": True,
        "s": 1.5,
    }
