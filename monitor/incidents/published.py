"""Published defects whose evidence is unmistakable: what an incident looks like, for whoever has to explain it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from alerts.event import parsed
from alerts.incidents.cut_logs import TRUNCATION

LEADERLESS: Final = "KAFKA-20734"
_OF_MARKERS: Final = frozenset({"G1a", "lost-write", "torn-transaction"})
_LEADERLESS_TOLD: Final = (
    f"{LEADERLESS}, seen in Kafka 4.3.1: a transaction that ends while one of its partitions has no leader gets no"
    " marker there, although its client is told that all is well. The next marker of the same producer then decides"
    " over its records, too. The coordinator's log says \"Couldn't find leader endpoint for partitions\", with the"
    " partition and the transactional id."
)


def without_marker(anomaly: str, evidence: Mapping[str, Any]) -> bool:
    """Is it a finding about a transaction that has no marker in a partition, so that the next one's decided there, and
    otherwise than its client was told?"""
    decided = evidence.get("offsets_between") == 0 and evidence.get("told") != evidence.get("next_told")
    return anomaly in _OF_MARKERS and decided


def looks_like(rows: Iterable[Mapping[str, Any]]) -> str:
    """The published defect that these findings, rows of `CURRENT`, look like, in words; empty where none is known, and
    where a log was cut: it may have lost the marker with the records."""
    listed = list(rows)
    if any(row["anomaly"] == TRUNCATION for row in listed):
        return ""
    return _LEADERLESS_TOLD if any(without_marker(row["anomaly"], parsed(row["evidence"])) for row in listed) else ""
