"""Records that are to come back: each promise is judged once, whatever happens afterwards."""

from __future__ import annotations

from collections import Counter

import pytest

from probes.records.round_trips import PATIENCE, RoundTrips
from probes.topology import Partition

HERE: Partition = ("t", 0)
SECOND = 1_000_000_000


class Kept:
    """A trip of one record, sent at 0, with an objective of 20 s; what was told of it."""

    def __init__(self) -> None:
        self.told: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.trips = RoundTrips(20.0, self.tally, lambda where, seconds: self.seconds.append(seconds))
        self.trips.sent(HERE, 7, 0)

    def tally(self, operation: str, total: int, failed: int, where: Partition, *, late: int = 0) -> None:
        assert where == HERE
        self.told.update({f"{operation} total": total, f"{operation} failed": failed, f"{operation} late": late})

    def counts(self) -> dict[str, tuple[int, int, int]]:
        return {
            operation: (
                self.told[f"{operation} total"],
                self.told[f"{operation} failed"],
                self.told[f"{operation} late"],
            )
            for operation in ("end-to-end", "consume")
        }


def play(*steps: tuple[float, str]) -> Kept:
    kept = Kept()
    for seconds, step in steps:
        now = int(seconds * SECOND)
        if step == "acknowledged":
            kept.trips.acknowledged(HERE, 7, now)
        elif step == "came":
            kept.trips.came(HERE, [7], now)
        elif step == "failed":
            kept.trips.failed(HERE, 7)
        else:
            kept.trips.judge(now)
    return kept


@pytest.mark.parametrize(
    ("steps", "end_to_end", "consume"),
    [
        ([(0.01, "acknowledged"), (0.02, "came"), (30, "judge")], (1, 0, 0), (1, 0, 0)),
        ([(0.02, "came"), (0.03, "acknowledged"), (30, "judge")], (1, 0, 0), (1, 0, 0)),
        ([(20, "judge")], (0, 0, 0), (0, 0, 0)),
        ([(20.1, "judge"), (40, "judge")], (1, 1, 0), (0, 0, 0)),
        ([(0.01, "acknowledged"), (20.1, "judge"), (21, "judge")], (1, 1, 0), (1, 1, 0)),
        ([(0.01, "acknowledged"), (21, "judge"), (25, "came")], (1, 1, 1), (1, 1, 1)),
        ([(0.01, "acknowledged"), (25, "came")], (1, 1, 1), (1, 1, 1)),
        ([(15, "acknowledged"), (21, "judge"), (22, "came")], (1, 1, 1), (1, 0, 0)),
        ([(0.5, "failed"), (30, "judge")], (1, 1, 0), (0, 0, 0)),
        ([(25, "judge"), (30, "failed"), (60, "judge")], (1, 1, 0), (0, 0, 0)),
        ([(0.02, "came"), (0.03, "came")], (1, 0, 0), (1, 0, 0)),
    ],
)
def test_each_promise_is_judged_once(
    steps: list[tuple[float, str]], end_to_end: tuple[int, int, int], consume: tuple[int, int, int]
) -> None:
    assert play(*steps).counts() == {"end-to-end": end_to_end, "consume": consume}


def test_the_latency_is_told_of_whatever_comes_back() -> None:
    assert play((0.01, "acknowledged"), (0.25, "came")).seconds == [0.25]
    assert play((21, "judge"), (25, "came")).seconds == [25.0]
    assert play((0.5, "failed"), (1, "came")).seconds == []


def test_what_never_comes_is_forgotten() -> None:
    kept = play((0.01, "acknowledged"), (21, "judge"), (20 * PATIENCE, "judge"))
    assert len(kept.trips) == 1
    kept.trips.judge(20 * PATIENCE * SECOND + 1)
    assert len(kept.trips) == 0
    assert kept.counts()["consume"] == (1, 1, 0)
