"""What the boots of a host before one tell of its clock: a listing of before it began shows nothing that it sent."""

from __future__ import annotations

import pytest

from rules.arrays.columns import from_table
from rules.kept.state import State
from rules.settling.clocks import UNKNOWN, ahead, measure, set_times
from rules.settling.completeness import note_lives
from rules.vocabulary.slices import to_table
from tests.rules.histories import History
from tests.rules.settling.test_clocks import exchange, listed, taken, timed


def booted_anew(*, compared: bool) -> State:
    """a was given offsets up to 9 at 100 by its clock, 115 by that of b, if they were `compared`, and worked until 116.
    The log, which others had written to 40, was cut, and a2, which began at 60 by its clock, was given 15 half a minute
    later."""
    state, h = exchange(back=compared), History()
    h.row("committer", "mark", op=1, **timed("a", 116, 116))
    h.row("committer", "mark", op=2, **timed("a2", 60, 1))
    columns = from_table(to_table(h.rows))
    set_times(state, columns)
    note_lives(state, columns)
    measure(state, columns, columns.sent, columns.polled)
    h = History()
    h.send("x", 0, 3, at=15, **timed("a2", 90, 31))
    taken(state, h)
    return state


@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize("at", [118, 159.9, 160.1])
def test_what_was_listed_before_a_boot_can_have_sent_it_does_not_bound_its_clock(at: float, compared: bool) -> None:
    """b's clock is 15 s ahead of a's, which did something until 116, so that by it a2 began at 131 or later,
    and sent half a minute after that: at 161 or later, less a second."""
    state = booted_anew(compared=compared)
    listed(state, (40, at), (40, at + 1))
    b, a2 = state.boot_names.index("b"), state.boot_names.index("a2")
    shown = at - 90 + 0.001
    assert ahead(state, b, a2) == (UNKNOWN if compared and at < 160 else round(shown * 1e6))
