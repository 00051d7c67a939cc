"""Findings and results made up in a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monitor.drill.definition.drill import Drill
from monitor.drill.definition.graded import Graded
from monitor.drill.definition.verdict import judge
from monitor.drill.running.session import Result
from rules.vocabulary.finding import Event, Finding


def one(
    anomaly: str,
    severity: str = "critical",
    event: Event = "raised",
    *,
    seen: float = 1.0,
    subject: str = "s",
    evidence: Mapping[str, Any] | None = None,
    implied_by: str | None = None,
) -> Graded:
    finding = Finding(
        anomaly=anomaly,
        cluster="c",
        topic_id="t",
        topic="topic",
        partition=0,
        subject=(subject,),
        event=event,
        message=f"{anomaly} <here>",
        evidence=evidence or {},
        at=0,
        decidable=0,
        implied_by=implied_by,
    )
    return Graded(finding=finding, severity=severity, seen=seen)


def result(drill: Drill, found: Sequence[Graded] = (), error: str | None = None) -> Result:
    return Result(
        drill=drill,
        verdict=judge(drill, found, 0.0, error),
        found=tuple(found),
        seconds=3.0,
        acts=((0.0, "a lie was told"),),
        kafka="4.3.1",
    )
