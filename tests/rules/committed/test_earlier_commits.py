"""What had been committed before many reads is what comparing each with each says, however many they are."""

from __future__ import annotations

import numpy as np
import pytest

from rules.checks.committed.commit_rows import NEVER, Commits, Reads
from rules.checks.committed.earlier_commits import MANY, familiar, less


def commits(random: np.random.Generator, number: int, *, high: int = 0) -> Commits:
    group, domain, offset = (
        random.integers(3, size=number),
        random.integers(-1, 2, number),
        random.integers(9, size=number),
    )
    completed = random.integers(50, size=number)
    invoked = completed - random.integers(5, size=number)
    kind = np.ones(number, np.int64)
    return Commits(group, domain, completed, invoked, invoked, completed, offset + high, kind, 7 * kind, NEVER * kind)


def reads(random: np.random.Generator, number: int, *, high: int = 0) -> Reads:
    one = commits(random, number, high=high)
    offset = np.where(random.random(number) < 0.1, -1, one.offset)
    return Reads(
        one.group, one.domain, one.completed, one.invoked, one.since, one.at, offset, one.process, one.kind, one.spoiled
    )


def rows(table: Commits | Reads) -> list[tuple[int, ...]]:
    """(group, domain, offset, since, at, invoked, completed) of each entry."""
    names = ("group", "domain", "offset", "since", "at", "invoked", "completed")
    return list(zip(*(getattr(table, name).tolist() for name in names), strict=True))


@pytest.mark.parametrize("high", [0, 2**61 - 20], ids=["low offsets", "the highest"])
@pytest.mark.parametrize(
    ("kept", "asked"), [(0, 5), (5, 0), (1, 1), (30, 40), (90, 80), pytest.param(400, 300, marks=pytest.mark.slow)]
)
def test_many_are_compared_as_few_are(kept: int, asked: int, high: int) -> None:
    assert (MANY > 30 * 40) and (MANY < 90 * 80)
    random = np.random.default_rng(kept)
    for _ in range(20 if kept < 400 else 4):
        known, told = commits(random, kept, high=high), reads(random, asked, high=high)
        pairs = [[(one, read) for one in rows(known)] for read in rows(told)]
        same = [any(a[:3] == b[:3] and a[3] <= b[4] for a, b in of) for of in pairs]
        lower = [any(a[:2] == b[:2] and a[6] <= b[5] and a[2] > b[2] for a, b in of) for of in pairs]
        assert familiar(known, told).tolist() == same
        assert less(known, told).tolist() == lower
        before = reads(random, kept, high=high)
        pairs = [[(one, read) for one in rows(before)] for read in rows(told)]
        lower = [any(a[:2] == b[:2] and a[6] <= b[5] and a[2] > b[2] for a, b in of) for of in pairs]
        assert less(before, told).tolist() == lower
