"""`replaced-cluster`: told once, by whoever begins."""

from __future__ import annotations

import pytest

from rules.vocabulary.slices import FORMER_CLUSTER
from tests.rules.committed.committed_offsets import Fed
from tests.rules.histories import History, Store
from tests.rules.whole import Told, in_any_way, whole

NAME = "replaced-cluster"


@in_any_way()
def test_another_cluster_at_the_same_addresses_is_told_once(fed: Fed) -> None:
    h = History()
    for process in ("w", "r"):
        h.start(process, **{FORMER_CLUSTER: "a"})
        h.mark(1.0)
    (told,) = whole(fed(h), [NAME])
    message = "the cluster at the probes' addresses had the id a and has c now: what was acknowledged there is not here"
    assert told == Told(NAME, ("a",), message, {"before": "a", "now": "c"}, told.at)
    assert told.at in (0.002, 1.004), "of the first that is known"


def test_of_many_rows_at_once_the_earliest_tells_since_when() -> None:
    h, store = History(), Store()
    for process in ("w", "r"):
        h.start(process, **{FORMER_CLUSTER: "a"})
        h.mark(1.0)
    store.feed(h.rows[::-1])
    assert [told.at for told in whole(store, [NAME])] == [0.002]


@pytest.mark.parametrize("settings", [{}, {FORMER_CLUSTER: "c"}])
@in_any_way()
def test_the_same_cluster_is_none(fed: Fed, settings: dict[str, str]) -> None:
    h = History()
    h.start("w", **settings)
    assert whole(fed(h), [NAME]) == []
