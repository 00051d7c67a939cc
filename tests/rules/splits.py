"""One history, its rows cut into steps in any way: what is found must be the same."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store


def in_pieces(h: History) -> Store:
    """500 rows a step, as a rebuild reads them."""
    store = Store()
    for first in range(0, len(h.rows), 500):
        store.feed(h.rows[first : first + 500])
    return store


def in_random_pieces(h: History) -> Store:
    dice, store, first = random.Random(len(h.rows)), Store(), 0
    while first < len(h.rows):
        size = dice.choice((1, 3, 17, 80, 300))
        store.feed(h.rows[first : first + size])
        first += size
    return store


def interleaved(h: History) -> Store:
    """Each process's log comes late by an amount of its own, in steps of any size."""
    dice, store = random.Random(len(h.rows)), Store()
    late = {row.process: dice.choice((0, 0, 5, 40)) for row in h.rows}
    order = sorted(range(len(h.rows)), key=lambda i: (i + late[h.rows[i].process] * dice.random(), i))
    while order:
        size = dice.randint(1, 30)
        store.feed([h.rows[i] for i in order[:size]])
        order = order[size:]
    return store


WAYS: dict[str, Callable[[History], Store]] = {
    "row by row": row_by_row,
    "at once": at_once,
    "in pieces": in_pieces,
    "in random pieces": in_random_pieces,
    "interleaved": interleaved,
}
fed_in_any_way = pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
