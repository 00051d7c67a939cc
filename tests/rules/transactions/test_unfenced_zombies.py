"""`unfenced-zombie`: a request of a life that was over is granted; and what looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.vocabulary.policy import severity
from tests.rules.histories import History, Store, number
from tests.rules.whole import Told, in_any_way, whole

Fed = Callable[[History], Store]

Z = number("z")
OVER = 7_000_000_000
INVOKED = OVER + 12_000_000
EPOCHS = {"producer_id": "4000", "epoch": "3", "latest_producer_id": "4000", "latest_epoch": "4"}
MEMBER = {"member": "m-1", "generation": "7"}
EARLIER = {**MEMBER, "latest_generation": "8"}


def asked(h: History, request: str, told: dict[str, str], *, type: str = "ok", **more: Any) -> None:
    """One such request and its answer, 12 ms after its life was over."""
    h.row(
        "z",
        "zombie",
        type=type,
        mono_invoked=more.pop("invoked_at", INVOKED),
        settings={"request": request, "over": str(OVER), **told},
        **more,
    )


def of_producer(h: History, **more: Any) -> None:
    asked(h, "EndTxn", EPOCHS | more.pop("told", {}), transactional_id="x", **more)


def of_member(h: History, **more: Any) -> None:
    asked(h, "OffsetCommit", MEMBER | more.pop("told", {}), group="g", **more)


@in_any_way(ticks=1)
@pytest.mark.parametrize(
    ("told", "after"),
    [
        ({}, "x had been given epoch 4"),
        ({"latest_producer_id": "5000", "latest_epoch": "0"}, "x had been given producer 5000"),
    ],
)
def test_an_earlier_life_is_served(told: dict[str, str], after: str, fed: Fed) -> None:
    h = History()
    of_producer(h, told=told)
    epochs = {key: int(value) for key, value in (EPOCHS | told).items()}
    assert whole(fed(h), ["unfenced-zombie"]) == [
        Told(
            "unfenced-zombie",
            (Z, 0),
            f"EndTxn of producer 4000 at epoch 3 was granted 0.012 s after {after}",
            {"process": Z, "op": 0, "request": "EndTxn", "late_by_s": 0.012, "transactional_id": "x", **epochs},
            0.002,
        )
    ]


@in_any_way(ticks=1)
def test_a_member_that_has_left_is_served(fed: Fed) -> None:
    h = History()
    of_member(h)
    assert whole(fed(h), ["unfenced-zombie"]) == [
        Told(
            "unfenced-zombie",
            (Z, 0),
            "OffsetCommit of member m-1 was granted 0.012 s after it had left g",
            {
                "process": Z,
                "op": 0,
                "request": "OffsetCommit",
                "late_by_s": 0.012,
                "group": "g",
                "member": "m-1",
                "generation": 7,
            },
            0.002,
        )
    ]


def of_a_member_that_lives(h: History, **more: Any) -> None:
    of_member(h, told=EARLIER | more.pop("told", {}), **more)


@in_any_way(ticks=1)
def test_an_earlier_generation_of_a_member_that_lives_is_served(fed: Fed) -> None:
    h = History()
    of_a_member_that_lives(h)
    assert whole(fed(h), ["unfenced-zombie"]) == [
        Told(
            "unfenced-zombie",
            (Z, 0),
            "OffsetCommit of member m-1 at generation 7 was granted 0.012 s after it had been given generation 8 of g",
            {
                "process": Z,
                "op": 0,
                "request": "OffsetCommit",
                "late_by_s": 0.012,
                "group": "g",
                "member": "m-1",
                "generation": 7,
                "latest_generation": 8,
            },
            0.002,
        )
    ]


@in_any_way(ticks=1)
@pytest.mark.parametrize("latest", ["7", "6"])
def test_the_latest_generation_itself(latest: str, fed: Fed) -> None:
    h = History()
    of_a_member_that_lives(h, told={"latest_generation": latest})
    assert whole(fed(h), ["unfenced-zombie"]) == []


@in_any_way(ticks=1)
@pytest.mark.parametrize("build", [of_producer, of_member, of_a_member_that_lives])
@pytest.mark.parametrize(
    "more",
    [
        {"type": "fail", "error": "PRODUCER_FENCED"},
        {"type": "info", "error": "_TRANSPORT"},
        {"invoked_at": OVER - 1},
        {"invoked_at": None},
    ],
    ids=["refused", "not answered", "asked before it was over", "nobody knows when"],
)
def test_what_was_not_granted_or_not_over(more: dict[str, Any], build: Any, fed: Fed) -> None:
    h = History()
    build(h, **more)
    assert whole(fed(h), ["unfenced-zombie"]) == []


@in_any_way(ticks=1)
@pytest.mark.parametrize("latest", ["3", "2"])
def test_the_latest_life_itself(latest: str, fed: Fed) -> None:
    h = History()
    of_producer(h, told={"latest_epoch": latest})
    assert whole(fed(h), ["unfenced-zombie"]) == []


@in_any_way(ticks=1)
def test_a_row_that_does_not_say_when_the_life_was_over_or_whose_it_was(fed: Fed) -> None:
    h = History()
    h.row("z", "zombie", mono_invoked=INVOKED, settings={"request": "EndTxn", **EPOCHS})
    h.row("z", "zombie", mono_invoked=INVOKED, settings={"request": "OffsetCommit", "over": str(OVER)})
    assert whole(fed(h), ["unfenced-zombie"]) == []


def test_it_is_critical() -> None:
    assert severity("unfenced-zombie", {}) == "critical"
