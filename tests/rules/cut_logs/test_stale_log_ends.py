"""`stale-log-end`: ends that are listed too short for long, beside those that catch up, or of which nobody knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rules.histories import History, Store, number
from tests.rules.whole import Told, in_any_way, whole

Fed = Callable[[History], Store]
NAME = ("stale-log-end",)


def listed(h: History, end: int, seconds: int, boot: str | None = None) -> None:
    """It is listed so for these seconds, once in each."""
    for _ in range(seconds):
        h.time += 1
        now = round(h.time * 1e9)
        clock: dict[str, Any] = (
            {} if boot is None else {"boot": boot, "mono_invoked": now, "mono_completed": now + 10**6}
        )
        h.row(f"o-{boot}", "offsets", log_start=0, log_end=end, last_stable=end, **clock)


def opened(end: int, known: int, at: float, seconds: float) -> Told:
    message = (
        f"the log is listed to end at {end}, where offset {known} was known before, and has been listed too short for "
        f"{seconds:.1f} s"
    )
    evidence = {"log_end": end, "known": known, "short_for_s": seconds}
    return Told("stale-log-end", (), message, evidence, at, round(at - seconds, 3), "opened")


def closed(end: int, known: int, at: float, lasted: float, seconds: float = 0.0) -> Told:
    evidence = {"log_end": end, "known": known, "short_for_s": seconds or lasted, "lasted_s": lasted}
    return Told("stale-log-end", (), f"stale-log-end ended after {lasted:.1f} s", evidence, at, event="closed")


def stale(h: History) -> None:
    """Acknowledged up to offset 9, listed to 4 for longer than the objective, and then right."""
    h.send("w", 0, 10, at=0)
    listed(h, 4, 33)
    listed(h, 10, 2)


def stale_below_what_was_polled(h: History) -> None:
    h.poll("r", [("w", 0, 10, 0)])
    listed(h, 9, 33)


def ever_behind(h: History) -> None:
    """It moves, and stays behind what is written, one record a second."""
    for n in range(40):
        h.send("w", n, 1, at=n)
        listed(h, max(0, n - 14), 1)


def stale_by_one_of_two_clocks(h: History) -> None:
    """By the other host's clock nothing is known."""
    h.send("w", 0, 10, at=0, boot="a", mono_invoked=0, mono_completed=10**6)
    for _ in range(32):
        listed(h, 4, 1, "a")
        listed(h, 4, 1, "b")


def stale_again(h: History) -> None:
    h.send("w", 0, 10, at=0)
    listed(h, 4, 32)
    listed(h, 10, 1)
    listed(h, 4, 32)


def of_a_boot_that_is_over(h: History) -> None:
    """Another boot lists what is right by all that it knows, and the old one lists no more."""
    h.send("w", 0, 10, at=0, boot="a", mono_invoked=0, mono_completed=10**6)
    listed(h, 4, 33, "a")
    listed(h, 4, 33, "b")


def cut(h: History, *, since: int = 0) -> None:
    """The log had ten records and is listed to end at 4. Its next write, five seconds later, is given offset 4."""
    h.send("w", 0, 10, at=0)
    listed(h, 4, 5)
    h.send("v", 0, 1, at=4)
    listed(h, 5, since)


def stale_until_it_was_known_to_be_cut(h: History) -> None:
    """Nobody writes for so long: then the write, and the listing after it, explain it."""
    h.send("w", 0, 10, at=0)
    listed(h, 4, 33)
    h.send("v", 0, 1, at=4)
    listed(h, 5, 40)


def stale_below_what_was_written_after_a_cut(h: History) -> None:
    cut(h, since=2)
    h.send("v", 1, 3, at=5)
    listed(h, 5, 33)
    listed(h, 8, 2)


def stale_again_after_a_cut(h: History) -> None:
    cut(h, since=2)
    h.send("v", 1, 10, at=5)
    listed(h, 15, 2)
    listed(h, 12, 32)


GUILTY = [
    (stale_until_it_was_known_to_be_cut, [opened(4, 9, 31.064, 30.06), closed(5, 4, 34.072, 33.068)]),
    (stale_below_what_was_written_after_a_cut, [opened(5, 7, 38.082, 30.06), closed(8, 7, 41.088, 33.066)]),
    (stale_again_after_a_cut, [opened(12, 14, 40.086, 30.06)]),
    (stale, [opened(4, 9, 31.064, 30.06), closed(10, 9, 34.07, 33.066)]),
    (stale_below_what_was_polled, [opened(9, 9, 31.064, 30.06)]),
    (ever_behind, [opened(16, 30, 31.124, 30.12)]),
    (stale_by_one_of_two_clocks, [opened(4, 9, 31.064, 30.06)]),
    (stale_again, [opened(4, 9, 31.064, 30.06), closed(10, 9, 33.068, 32.064), opened(4, 9, 64.13, 30.06)]),
    (of_a_boot_that_is_over, [opened(4, 9, 31.064, 30.06), closed(4, 9, 63.068, 62.064, 32.064)]),
]


def catches_up_in_time(h: History) -> None:
    h.send("w", 0, 10, at=0)
    listed(h, 4, 29)
    listed(h, 10, 1)
    listed(h, 4, 29)


def listed_before_it_was_known(h: History) -> None:
    """Each listing was on its way when the record was acknowledged."""
    for n in range(40):
        early = h.at(h.time)
        h.send("w", n, 1, at=n)
        h.row("o", "offsets", log_start=0, log_end=n, last_stable=n, invoked=early)
        h.time += 1


def listed_by_another_host(h: History) -> None:
    h.send("w", 0, 10, at=0, boot="a", mono_invoked=0, mono_completed=10**6)
    listed(h, 4, 40, "b")


def of_an_indefinite_write(h: History) -> None:
    h.send("w", 0, 10, at=0, type="info")
    listed(h, 4, 40)


def of_a_write_without_idempotence(h: History) -> None:
    h.start("w", writer=str(number("w")), idempotent="false")
    h.send("w", 0, 10, at=0)
    listed(h, 4, 40)


def not_answered(h: History) -> None:
    h.send("w", 0, 10, at=0)
    for _ in range(40):
        h.time += 1
        h.row("o", "offsets", type="info", error="_TIMED_OUT")


def nobody_listed_in_between(h: History) -> None:
    """Twice too short, a minute apart: nobody knows whether it was right in between."""
    h.send("w", 0, 10, at=0)
    listed(h, 4, 2)
    h.time += 60
    listed(h, 4, 2)


def cut_and_growing(h: History) -> None:
    """It takes a minute to grow past what it had: the truncation tells it all."""
    cut(h)
    for n in range(60):
        listed(h, 5 + n // 12, 1)
        if n % 12 == 11:
            h.send("v", n // 12 + 1, 1, at=5 + n // 12)


def cut_as_another_host_lists(h: History) -> None:
    """By its clock nobody wrote."""
    for process, at in (("w", 1), ("r", 2)):
        clock = {"mono_invoked": at * 10**6, "mono_completed": (at + 1) * 10**6}
        if process == "w":
            h.send("w", 0, 10, at=0, boot="a", **clock)
        else:
            h.poll("r", [("w", 0, 10, 0)], boot="b", **clock)
    listed(h, 4, 3, "a")
    now = round(h.time * 1e9)
    h.send("v", 0, 1, at=4, boot="a", mono_invoked=now + 10**8, mono_completed=now + 2 * 10**8)
    for _ in range(60):
        listed(h, 5, 1, "a")
        listed(h, 5, 1, "b")


INNOCENT = [
    cut_and_growing,
    cut_as_another_host_lists,
    catches_up_in_time,
    listed_before_it_was_known,
    listed_by_another_host,
    of_an_indefinite_write,
    of_a_write_without_idempotence,
    not_answered,
    nobody_listed_in_between,
]


@in_any_way(file=False)
@pytest.mark.parametrize(("build", "expected"), GUILTY, ids=[c[0].__name__ for c in GUILTY])
def test_guilty(build: Callable[[History], object], expected: list[Told], fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), NAME) == expected


@in_any_way(file=False)
@pytest.mark.parametrize("build", INNOCENT, ids=lambda build: build.__name__)
def test_innocent(build: Callable[[History], object], fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), NAME) == []
