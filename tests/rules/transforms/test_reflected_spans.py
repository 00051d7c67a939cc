"""What is remembered of what transforms reflected, where more comes than is kept: nothing is called missing for want of
it, and what is missing is found."""

from __future__ import annotations

import numpy as np
import pytest

from rules.across import transforms
from rules.arrays.columns import Runs
from rules.kept import codec
from rules.kept.facts import Facts
from rules.vocabulary.finding import FactKind
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from tests.rules.histories import number

W = number("w")
KEPT = 16


class Joined:
    """Facts of one group, batch after batch."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.missing: list[int] = []
        self.facts = Facts()

    def told(self, kind: FactKind, at: float, offset: int = 0, length: int = 0, about: str | None = None) -> None:
        made = Runs(*(np.array([value], np.int64) for value in (0, W, offset, offset, length)))
        self.facts.add(kind, np.array([round(at * 1e6)]), group=["g"], about=[about], runs=made)

    def join(self, through: float) -> None:
        """Both logs are complete through that time."""
        self.told("horizon", through, about="input")
        self.told("horizon", through)
        changed, found = transforms.join(self.stored, self.facts.table(Place("c", "in", 0), "in"), Objectives())
        self.stored = {key: value for key, value in (self.stored | dict(changed)).items() if value is not None}
        self.missing += [one.evidence["offset"] for one in found]
        self.facts = Facts()


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "SPANS_KEPT", KEPT)


@pytest.mark.parametrize("left_out", [range(0), range(56, 57)], ids=["innocent", "guilty"])
def test_inputs_that_are_told_late_are_not_missed_where_it_is_forgotten_what_was_reflected(left_out: range) -> None:
    """Each offset between is a transaction's marker. What was left out lately is known."""
    joined = Joined()
    joined.told("begun", 0)
    for i in range(30):
        if 2 * i not in left_out:
            joined.told("reflected", i, 2 * i, 1)
        joined.join(i + 0.5)
    (kept,) = joined.stored.values()
    assert len(codec.load(kept, transforms.Group, {})[0].reflected) == KEPT
    for i in range(30):
        joined.told("input", 40, 2 * i, 1)
    joined.join(80)
    assert joined.missing == [*left_out]


@pytest.mark.parametrize("reflected", [True, False], ids=["innocent", "guilty"])
def test_an_input_that_waits_is_judged_whatever_is_reflected_meanwhile(reflected: bool) -> None:
    """An indefinite transaction may have reflected it; hours later it turns out that it has, or that it has not."""
    joined = Joined()
    joined.told("begun", 0)
    joined.told("reflected", 0, 0, 1)
    joined.told("doubtful", 1, 2, 1)
    for i in range(30):
        joined.told("input", i + 1, 2 * i, 1)
        if i > 1:
            joined.told("reflected", i, 2 * i, 1)
        joined.join(i + 2.5)
    joined.told("reflected" if reflected else "dropped", 40, 2, 1)
    joined.join(100)
    assert joined.missing == ([] if reflected else [2])
