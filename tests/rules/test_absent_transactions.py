"""When a transaction may be called absent that died without an acknowledgement: what a transform reflected with it is
then not reflected (`eos-violation`)."""

from __future__ import annotations

import pytest

from tests.rules.histories import Store
from tests.rules.test_transforms import Pair, missing
from tests.rules.whole import whole


def at(p: Pair, seconds: float, wait: int) -> None:
    p.time = seconds - 1
    p.wait(wait)


def died(*, shown: bool, begun: bool = True) -> Pair:
    """Operation 1 of x reflects inputs 4 and 5 and dies in the second minute. A later life reflects those that follow
    in the third; readers come in the fourth, and are shown its outputs, or not. (Of the log's end one listing a minute
    is kept.) An earlier life, and an operation before, say nothing of when it ended."""
    p = Pair()
    p.begun("a")
    p.feed(0, 10)
    p.transform(0, 0, 4, 0, read=False)
    at(p, 60, 2)
    p.transform(1, 4, 2, None, "info")
    at(p, 120, 2)
    at(p, 132, 2)
    if begun:
        p.begun("y")
    p.transform(3, 6, 4, 12, process="y", read=False)
    at(p, 180, 2)
    p.outputs.poll("q", [("o", 0, 4, 0), *([("o", 910, 2, 6)] if shown else []), ("o", 12, 4, 12)])
    p.feed(10, 1)
    p.transform(4, 10, 1, 20, process="y")
    p.wait(14)
    return p


def fed(p: Pair) -> Store:
    store = Store()
    for first in range(0, len(p.rows), 20):
        store.feed(p.rows[first : first + 20])
    return store


def test_it_was_committed_by_the_next_life() -> None:
    assert whole(fed(died(shown=True)), ["eos-violation"]) == []


def test_it_was_aborted_by_the_next_life() -> None:
    assert whole(fed(died(shown=False)), ["eos-violation"]) == missing(144.0, 4, 5)


@pytest.mark.parametrize("shown", [True, False])
def test_nobody_has_ended_it(shown: bool) -> None:
    """The other process has another transactional id, for all that is known."""
    assert whole(fed(died(shown=shown, begun=False)), ["eos-violation"]) == []
