"""A finding as the checker of a drill has it: with its severity, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from alerts.evidence import exact
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """A finding with its severity, and when the checker had it: seconds of the wall clock."""

    finding: Finding
    severity: str
    seen: float

    @property
    def name(self) -> str:
        return self.finding.anomaly

    @property
    def violation(self) -> bool:
        """Would it alert somebody as a violation?"""
        kind = CATALOGUE[self.name].kind if self.name in CATALOGUE else "violation"
        return kind == "violation" and self.severity != "allowed"

    def told(self) -> dict[str, Any]:
        """For a report: JSON values only, ids exact wherever they are read."""
        f = self.finding
        return {
            "anomaly": f.anomaly,
            "severity": self.severity,
            "event": f.event,
            "topic": f.topic,
            "partition": f.partition,
            "message": f.message,
            "evidence": exact(f.evidence),
            "context": dict(f.context),
            "at": f.at,
            "seen": self.seen,
            "id": f.id,
            "implied_by": f.implied_by,
        }
