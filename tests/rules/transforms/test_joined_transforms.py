"""How inputs are joined with what was reflected of them: which facts count, in which order, and what is kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rules.across import transforms
from rules.across.transforms import BLOCK, HEAD, Group, forgotten
from rules.arrays.columns import Runs
from rules.checks.transactions.transforms import FORGET_GROUP
from rules.kept import codec
from rules.kept.facts import Facts
from rules.vocabulary.finding import FactKind
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from tests.rules.histories import number

W, V = number("w"), number("v")


class Joined:
    """Facts of one group, batch after batch; `missing`: [writer, seq, offset, at] of each input that is."""

    def __init__(self, begun: float = 0) -> None:
        self.topic = "in"
        self.stored: dict[str, bytes] = {}
        self.missing: list[tuple[int, int, int, float]] = []
        self.facts: dict[str, Facts] = {}
        self.told("begun", begun)

    def told(
        self,
        kind: FactKind,
        at: float,
        offset: int = 0,
        length: int = 0,
        about: str | None = None,
        *,
        of: str | None = None,
        writer: int = W,
        seq: int = -1,
    ) -> None:
        """`of`: the id of the topic that tells it."""
        of = of or (self.topic if about or kind in ("begun", "input", "gone") else "out")
        made = Runs(*(np.array([v], np.int64) for v in (0, writer, offset if seq < 0 else seq, offset, length)))
        facts = self.facts.setdefault(of, Facts())
        facts.add(kind, np.array([round(at * 1e6)]), group=["g"], about=[about], runs=made)

    def reflected(self, *spans: tuple[float, int, int]) -> None:
        """(when, first offset, one past the last)"""
        for at, start, end in spans:
            self.told("reflected", at, start, end - start)

    def join(self, through: float, *, output: float | None = None) -> None:
        """Both logs are complete through that time, the output's through another."""
        self.told("horizon", through, about="input")
        self.told("horizon", through if output is None else output)
        facts = pa.concat_tables(told.table(Place("c", of, 0), of) for of, told in self.facts.items())
        changed, found = transforms.join(self.stored, facts, Objectives())
        self.stored = {key: value for key, value in (self.stored | dict(changed)).items() if value is not None}
        told = ((f.evidence["writer"], f.evidence["seq"], f.evidence["offset"], f.at / 1e6) for f in found)
        self.missing += told
        self.facts = {}

    @property
    def offsets(self) -> list[int]:
        return [offset for _, _, offset, _ in self.missing]

    @property
    def group(self) -> Group:
        (kept,) = (value for key, value in self.stored.items() if key.startswith(HEAD))
        return codec.load(kept, Group, {})[0]


# Which facts count


def test_what_the_end_of_an_output_that_was_made_anew_reflected_is_not_known() -> None:
    """What comes late of the one before counts no more."""
    j = Joined()
    j.told("input", 1, 0, 30)
    j.told("reflected", 1, 0, 4, of="before")
    j.told("reflected", 3, 8, 4)
    j.join(3.5)
    j.told("reflected", 3.7, 20, 2, of="before")
    j.told("reflected", 4, 14, 2)
    j.join(30)
    assert j.offsets == [12, 13]


def test_that_it_began_in_the_same_topic_again_changes_nothing() -> None:
    j = Joined()
    j.told("input", 1, 0, 30)
    j.reflected((1, 0, 4))
    j.join(2)
    j.told("begun", 3)
    j.reflected((4, 6, 8))
    j.join(30)
    assert j.offsets == [4, 5]


def test_what_was_reflected_by_a_clock_that_is_behind_counts_from_the_first_beginning() -> None:
    """In a topic that is made anew only what came after it had begun there."""
    j = Joined(begun=10)
    j.told("input", 11, 0, 30)
    j.reflected((5, 0, 4), (12, 6, 8))
    j.join(40)
    assert j.offsets == [4, 5]


def test_what_had_not_been_taken_in_of_a_topic_that_is_gone_is_dropped() -> None:
    j = Joined()
    j.told("input", 1, 0, 30)
    j.reflected((1, 0, 4), (5, 20, 22))
    j.join(2)
    j.topic = "anew"
    j.told("begun", 10)
    j.told("input", 11, 0, 30)
    j.told("input", 12, 0, 30, of="in")
    j.reflected((9, 4, 6), (11, 0, 4), (12, 6, 8))
    j.join(40)
    assert j.offsets == [4, 5]


def test_a_hole_that_log_time_has_not_come_to_takes_nothing_from_what_was_before() -> None:
    j = Joined()
    j.told("input", 1, 0, 30)
    j.reflected((1, 0, 4), (2, 6, 8))
    j.told("hole", 100)
    j.join(5)
    j.join(20)
    assert j.offsets == [4, 5]


# What is kept


def test_neighbours_are_told_apart() -> None:
    """Another writer's value, one that goes on elsewhere in its numbers, and where aborted records lie between."""
    j = Joined()
    for writer, seq, offset in ((W, 0, 0), (V, 4, 4), (V, 20, 8), (V, 28, 16)):
        j.told("input", 1, offset, 4, writer=writer, seq=seq)
    j.join(2)
    j.reflected((3, 0, 4), (4, 18, 20))
    j.join(30)
    assert [found[:3] for found in j.missing] == [
        *((V, 4 + n, 4 + n) for n in range(4)),
        *((V, 20 + n, 8 + n) for n in range(4)),
        (V, 28, 16),
        (V, 29, 17),
    ]


def test_an_input_that_was_settled_later_is_missing_from_then_on() -> None:
    j = Joined()
    j.told("input", 1, 0, 4)
    j.told("input", 30, 4, 4)
    j.join(2)
    j.reflected((3, 0, 2), (4, 6, 8))
    j.join(50)
    assert [found[2:] for found in j.missing] == [(2, 14.0), (3, 14.0), (4, 30.0), (5, 30.0)]


def test_what_may_have_been_reflected_waits_and_what_lies_beside_it_is_told_once() -> None:
    j = Joined()
    j.told("input", 1, 0, 4)
    j.told("input", 1, 8, 10)
    j.told("doubtful", 1.5, 0, 2)
    j.reflected((1, 0, 0), (3, 6, 8))
    j.join(20)
    j.join(30)
    assert j.offsets == [2, 3]
    j.told("dropped", 31, 0, 2)
    j.join(40)
    j.join(50)
    assert j.offsets == [2, 3, 0, 1]


def test_inputs_wait_in_blocks_that_are_gone_when_all_is_judged() -> None:
    j, far = Joined(), 3 * BLOCK
    for offset in (0, 2 * BLOCK, far):
        j.told("input", 1, offset, 4)
    j.reflected((1, 0, 2))
    j.join(2)
    assert j.group.blocks == [0, 2, 3]
    j.reflected((3, 2, 4))
    j.join(20)
    j.join(30)
    assert j.group.blocks == [0, 2, 3]  # nothing later than the last one was reflected
    j.reflected((31, 2 * BLOCK, 2 * BLOCK + 4))
    j.join(60)
    assert j.group.blocks == [2, 3]
    j.reflected((61, far, far + 4), (62, far + 4, far + 5))
    j.join(90)
    assert j.group.blocks == [] and len(j.stored) == 1
    assert j.missing == []


def test_what_lies_below_all_that_waits_is_not_remembered() -> None:
    """Each other offset is a transaction's marker."""
    j = Joined()
    for i in range(30):
        j.told("input", i + 0.5, 2 * i, 1)
        j.told("gone", i + 0.5, i)
        j.reflected((i + 0.6, 2 * i, 2 * i + 1))
        j.join(i + 1)
    j.join(60)
    assert (len(j.group.reflected), len(j.group.tops), len(j.group.gone)) == (1, 1, 1)
    assert j.missing == []


def test_a_group_that_has_reflected_nothing_yet_is_not_forgotten() -> None:
    j = Joined()
    j.told("input", 1, 0, 4)
    j.join(2)
    assert [*forgotten(j.stored, 2 * FORGET_GROUP)] == []
    j.reflected((3, 0, 2))
    j.join(4)
    assert {*forgotten(j.stored, 2 * FORGET_GROUP)} == {*j.stored}
