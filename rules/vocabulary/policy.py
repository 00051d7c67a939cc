"""What a finding means under what was promised: found is not judged.

Rules report everything they prove; a policy maps anomaly and context to a severity. The default holds for acks=all,
idempotence and read_committed. `allowed` findings are recorded and counted like the others, and alert nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from rules.vocabulary.catalogue import CATALOGUE

Severity = Literal["critical", "warning", "info", "allowed"]
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info", "allowed")

ALWAYS_ALLOWED: Final = frozenset({"int-send-skip", "G0", "G0-process", "G0-realtime"})
ALLOWED_WHEN_SUBSCRIBED: Final = frozenset({"poll-skip", "nonmonotonic-poll"})
ALLOWED_WITH_WW: Final = frozenset({"G1c", "G1c-process", "G1c-realtime"})
ALLOWED_WHEN_UNCOMMITTED: Final = frozenset({"G1a", "precommitted-read"}) | ALLOWED_WITH_WW
WARNING_WITHOUT_IDEMPOTENCE: Final = frozenset({"duplicate", "nonmonotonic-send"})
FAILURES_OF_A_FINISHED_HISTORY: Final = frozenset({"unseen"})
"""Conditions that nothing will end any more once a history is finished: it is not valid."""
WARNING_CONDITIONS: Final = frozenset(
    {
        "suspected",
        "unverifiable",
        "window-overflow",
        "unsafe-config",
        "under-replicated-probe-topic",
        "replicas-out-of-sync",
        "stuck-close",
        "evidence-late",
        "checks-behind",
    }
)


def severity(anomaly: str, context: Mapping[str, str], *, strict: bool = False) -> Severity:
    """The severity of an anomaly found in `context`; `strict` allows nothing.

    Context keys, each optional: `mode` (how the process reached the partition: assign or subscribe), `held` ("true"
    where no rebalance can have moved one that subscribed), `isolation`, `idempotent` ("false" for a producer without),
    `ww` ("true" when the cycle search has write-write edges),
    `duplicate` (the severity of the duplicate that the evidence of an order finding holds).
    """
    if not strict:
        if anomaly in ALWAYS_ALLOWED:
            return "allowed"
        moved = context.get("mode") == "subscribe" and context.get("held") != "true"
        if anomaly in ALLOWED_WHEN_SUBSCRIBED and moved:
            return "allowed"
        if anomaly in ALLOWED_WITH_WW and context.get("ww") == "true":
            return "allowed"
        if anomaly in ALLOWED_WHEN_UNCOMMITTED and context.get("isolation") == "read_uncommitted":
            return "allowed"
    if anomaly in WARNING_WITHOUT_IDEMPOTENCE and context.get("idempotent") == "false":
        return "warning"
    if anomaly == "offset-regression":
        return "warning"
    inherited = context.get("duplicate")
    if inherited == "warning":
        return "warning"
    kind = CATALOGUE[anomaly].kind if anomaly in CATALOGUE else "violation"
    if kind == "classified":
        return "info"
    if anomaly in WARNING_CONDITIONS:
        return "warning"
    return "critical"
