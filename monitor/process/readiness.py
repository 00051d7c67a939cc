"""Whether the probes do their work: what their `/ready` answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from monitor.incidents.ages import age
from probes.running.fleet import FleetStatus

APPENDED_WITHIN: Final = timedelta(seconds=60)
"""For so long appends may fail before it is said: the journals keep what probes log, and most trouble passes."""


def not_ready(fleets: Sequence[tuple[str, FleetStatus]]) -> str | None:
    """Why no fleet's work comes to anything, None where one's does. `fleets`: each with its cluster's name, which is
    told where there are several."""
    reasons = [(name, reason) for name, status in fleets if (reason := _idle(status)) is not None]
    if len(reasons) < len(fleets):
        return None
    return "; ".join(f"{name}: {reason}" if len(fleets) > 1 else reason for name, reason in reasons)


def _idle(status: FleetStatus) -> str | None:
    committer = status.committer
    if committer is None:
        return "the probes have not begun"
    if not any(probe.state == "running" for probe in status.probes):
        why = next((probe.last_error for probe in status.probes if probe.last_error), "")
        return f"no probe is at work: {why}" if why else "no probe is at work yet"
    if committer.error is not None and committer.lag is None:
        return f"nothing has been appended to the probe log: {committer.error}"
    if committer.error is not None and committer.lag is not None and committer.lag > APPENDED_WITHIN:
        return f"nothing has been appended to the probe log for {age(committer.lag)}: {committer.error}"
    return None
