"""What the probes' `/ready` answers: whether anything comes of their work, else why not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitor.process.readiness import not_ready
from probes.log.commits.status import CommitterStatus
from probes.running.fleet import FleetStatus
from probes.workloads.probe import Counters

FULL = "cannot begin a journal in /data: No space left on device"
AWAY = "the probe log cannot be appended to: No space left on device"


def fleet(
    *probes: tuple[str, str], error: str | None = None, lag: float | None = 1.0, begun: bool = True
) -> FleetStatus:
    """`probes`: the state and the last error of each. `lag`: seconds since the last append."""
    committer = CommitterStatus(error=error, lag=None if lag is None else timedelta(seconds=lag)) if begun else None
    counted = tuple(Counters(f"p-{i}", "writer", state=state, last_error=why) for i, (state, why) in enumerate(probes))
    return FleetStatus("run", None, counted, committer)


AT_WORK = fleet(("running", ""), ("waiting", FULL))


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (fleet(begun=False), "the probes have not begun"),
        (fleet(("starting", ""), ("opening", "")), "no probe is at work yet"),
        (fleet(("waiting", ""), ("waiting", FULL)), f"no probe is at work: {FULL}"),
        (fleet(("running", "")), None),
        (AT_WORK, None),
        (fleet(("running", ""), error=AWAY, lag=60), None),  # the journals keep what probes log
        (fleet(("running", ""), error=AWAY, lag=61), f"nothing has been appended to the probe log for 1m: {AWAY}"),
        (fleet(("running", ""), error=AWAY, lag=None), f"nothing has been appended to the probe log: {AWAY}"),
        (fleet(("running", ""), lag=61), None),  # there was nothing to append
    ],
)
def test_probes_say_why_nothing_comes_of_their_work(status: FleetStatus, told: str | None) -> None:
    assert not_ready([("", status)]) == told


def test_of_several_fleets_all_have_to_be_idle_and_each_says_why() -> None:
    away, full = fleet(begun=False), fleet(("waiting", FULL))
    assert not_ready([("orders", AT_WORK), ("stock", full)]) is None
    assert not_ready([("orders", away), ("stock", full)]) == (
        f"orders: the probes have not begun; stock: no probe is at work: {FULL}"
    )
