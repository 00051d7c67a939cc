"""Floods: beyond so many findings a step, the others are counted, all of them, and what is critical is never hidden by
what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from tests.rules.histories import History, Store, number

SHOWN = 5
V, W = number("v"), number("w")


def fed(h: History) -> list[Finding]:
    store = Store(Objectives(findings_per_step=SHOWN))
    store.feed(h.rows)
    return store.findings


def counted(findings: list[Finding]) -> int:
    more: int = sum(f.evidence.get("more_of_the_same", 0) for f in findings)
    return len(findings) + more


def duplicated(h: History) -> None:
    h.send("w", 0, 40, at=0)
    h.poll("r", [("w", 0, 40, 0), ("w", 0, 40, 40)])


def lost(h: History) -> None:
    h.send("w", 0, 20, at=0)
    h.send("w", 20, 20, at=30)
    h.send("w", 40, 1, at=60)
    h.mark()
    h.poll("r", [("w", 40, 1, 60)], position_before=0)
    for _ in range(30):
        h.observe(end=61)
        h.mark(1.0)


def exposed(h: History) -> None:
    h.send("w", 0, 40, type="fail")
    h.poll("r", [("w", 0, 40, 0)])


@pytest.mark.parametrize(
    ("build", "anomaly"),
    [(duplicated, "duplicate"), (lost, "lost-write"), (exposed, "G1a")],
)
def test_all_of_a_flood_are_counted(build: Callable[[History], None], anomaly: str) -> None:
    h = History()
    build(h)
    found = [f for f in fed(h) if f.anomaly == anomaly]
    assert len(found) == SHOWN and counted(found) == 40


def test_duplicates_of_a_writer_without_idempotence_hide_none_of_one_with_it() -> None:
    h = History()
    h.start("v", idempotent="false", writer=str(V))
    h.send("v", 0, 40, at=0)
    h.send("w", 0, 3, at=80)
    h.poll("r", [("v", 0, 40, 0), ("v", 0, 40, 40), ("w", 0, 3, 80), ("w", 0, 3, 83)])
    found = {
        idempotent: [f for f in fed(h) if f.context.get("idempotent") == idempotent] for idempotent in ("true", "false")
    }
    assert [f.subject for f in found["true"]] == [(W, 0), (W, 1), (W, 2)]
    assert len(found["false"]) == SHOWN and counted(found["false"]) == 40
