"""States come back from their bytes as they were, and never as something else."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from rules.arrays.intervals import EMPTY, Ints
from rules.kept.codec import Table, UnknownFormat, concat, dump, load, take


@dataclass(slots=True)
class Points(Table):
    x: Ints = field(default_factory=lambda: EMPTY)
    y: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Member:
    age: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Whole:
    title: str = ""
    points: Points = field(default_factory=Points)
    members: dict[int, Member] = field(default_factory=dict, metadata={"of": Member})


@dataclass(slots=True)
class Other:
    points: Points = field(default_factory=Points)
    more: int = 0


@dataclass(slots=True)
class Renamed:
    points: Points = field(default_factory=Points)
    less: int = 0


def points(*pairs: tuple[int, int]) -> Points:
    return Points(*np.array(pairs, np.int64).reshape(-1, 2).T)


WHOLE = Whole("a", points((1, -(2**62)), (2**62, 0), (5, 5)), {2**62: Member(3, ["b", "c"]), -1: Member()})


@pytest.mark.parametrize("whole", [WHOLE, Whole(), Whole("x", points((7, 7)))])
@pytest.mark.parametrize("other", [None, Other(), Other(points((3, 4)), 9)])
def test_what_goes_in_comes_out(whole: Whole, other: Other | None) -> None:
    kinds = {"other": Other}
    back, rest = load(dump(whole, {} if other is None else {"other": other}, kinds), Whole, kinds)
    assert (back.title, back.members) == (whole.title, whole.members)
    assert back.points.x.tolist() == whole.points.x.tolist() and back.points.y.tolist() == whole.points.y.tolist()
    if other is None or (not len(other.points) and not other.more):
        assert rest == {}  # what says nothing is not written
    else:
        assert rest["other"].more == other.more and rest["other"].points.x.tolist() == other.points.x.tolist()


@pytest.mark.parametrize("bits", [7, 8, 16, 31, 32, 62, 63])
def test_numbers_of_any_size_come_back(bits: int) -> None:
    around = [sign * 2**bits + more for sign in (1, -1) for more in range(-2, 3)]
    numbers = [one for one in around if -(2**63) <= one < 2**63]
    pairs = [(a, b) for a in numbers for b in numbers] + [(one, 0) for one in numbers]
    back, _ = load(dump(Whole("a", points(*pairs)), {}, {}), Whole, {})
    assert list(zip(back.points.x.tolist(), back.points.y.tolist(), strict=True)) == pairs


def test_what_goes_up_and_down_by_little_takes_no_more_than_a_byte_each() -> None:
    steps = np.random.default_rng(1).integers(-100, 100, (2, 10_000))
    whole = Whole("a", Points(*(10**15 + steps.cumsum(axis=1))))
    assert len(dump(whole, {}, {})) < 1.01 * steps.size


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [(Whole, {"other": Renamed}), (Whole, {}), (Other, {"other": Other}), (Whole, {"another": Other})],
)
def test_another_shape_is_another_format(kind: type, kinds: dict[str, type]) -> None:
    data = dump(WHOLE, {}, {"other": Other})
    with pytest.raises(UnknownFormat, match="another version"):
        load(data, kind, kinds)


@pytest.mark.parametrize("data", [b"", b"OWS", b"no state at all, but long enough to be one"])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(UnknownFormat):
        load(data, Whole, {})


def test_tables_are_cut_and_joined() -> None:
    both = concat(points((1, 2), (3, 4)), points((5, 6)))
    assert take(both, both.x > 1).y.tolist() == [4, 6]
    assert concat(Points(), both).x.tolist() == [1, 3, 5]
