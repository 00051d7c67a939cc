"""`phantom-read` where the writer's log comes late, or is over: what is polled of a writer nobody knows yet waits."""

from __future__ import annotations

import pytest

from tests.rules.histories import History, Store, found, number

W = number("w")


@pytest.mark.parametrize(("sent", "phantom"), [(6, False), (5, True)])
def test_a_poll_waits_for_a_writer_of_which_nothing_is_known(sent: int, phantom: bool) -> None:
    """Its host has not been heard of for two minutes."""
    h, store = History(), Store()
    for seq in range(sent):
        h.send("w", seq, at=seq)
    late = list(h.rows)
    h.rows.clear()
    h.processes.remove("w")
    h.poll("r", [("w", 0, 6, 0)])
    for _ in range(120):
        h.mark(1.0)
    assert found(store.feed(h.rows)) == set()
    h.rows.clear()
    h.processes.append("w")
    for _ in range(3):
        h.mark(1.0)
    store.feed([*late, *h.rows])
    assert (("phantom-read", (W, 5)) in found(store.findings)) == phantom


@pytest.mark.parametrize("polled", [True, False])
def test_a_writer_that_sent_nothing_here_is_known_also_when_it_is_over(polled: bool) -> None:
    h, store = History(), Store()
    h.start("w", writer=str(W))
    h.row("w", "close")
    for _ in range(10):
        h.mark(1.0)
    store.feed(h.rows)
    h.rows.clear()
    h.processes.remove("w")
    h.poll("r", [("w", 0, 1, 0)] if polled else [])
    for _ in range(10):
        h.mark(1.0)
    store.feed(h.rows)
    assert found(store.findings) == ({("phantom-read", (W, 0))} if polled else set())
