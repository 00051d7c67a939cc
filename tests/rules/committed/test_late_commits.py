"""Committed offsets that are judged late, or long after the group's members have left: as if it had been at once."""

from __future__ import annotations

import numpy as np
import pytest

from rules.checks.committed.invoked_commits import KEPT, InvokedCommits, Newly, certainly_never, chunks_of, write
from rules.kept.chunks import Chunks
from rules.vocabulary.slices import Slice
from tests.rules.committed.committed_offsets import OBSERVER, VERDICTS, commit, foreign, lost, read, regression
from tests.rules.committed.test_unknown_commits import in_steps, listed, vouched
from tests.rules.histories import History, Store
from tests.rules.whole import whole


@pytest.mark.parametrize("late_commit", [145, 350], ids=["guilty", "innocent"])
def test_what_is_committed_after_a_read_explains_nothing_however_late_it_is_judged(late_commit: int) -> None:
    """The observer is told 350 at second 20, which is committed at 25. A row of another member, of second 15, comes
    only when 160 more were committed."""
    h, store, late = History(), Store(), list[Slice]()
    now = in_steps(h)
    for process in ("r", "m"):
        h.row(process, "start", settings={"group.id": "g"}, **now("boot"))
    for second in range(1, 190):
        began = len(h.rows) if second > 1 else 0
        h.time = second
        if second == 15:
            commit(h, late_commit, by="m", **now("boot"))
            late.append(h.rows.pop())
        commit(h, 100 + 10 * second, **now("boot"))
        read(h, 350 if second == 20 else 100 + 10 * second, by="o", **now("boot"))
        listed(h, 5000, **now("boot"))
        h.row("its committer", "mark", marks=vouched(h, "r", "m", "o", "observer"), **now("boot"))
        if second == 189:
            assert whole(store, VERDICTS) == []
            store.feed(late)
        store.feed(h.rows[began:])
    assert whole(store, VERDICTS) == ([foreign(350, 300, 20.01, to=OBSERVER)] if late_commit == 145 else [])


@pytest.mark.parametrize("told", [155, 150], ids=["nobody's", "an old one"])
def test_a_group_whose_members_have_left_is_still_known(told: int) -> None:
    """Whoever committed for it is over, with all of its log here; the observer asks again after a while, in
    which others have gone on."""
    h, store = History(), Store()
    now = in_steps(h)
    h.row("r", "start", settings={"group.id": "g"}, **now("boot"))
    for second in range(1, 150):
        began = len(h.rows) if second > 1 else 0
        h.time = second
        if second <= 10:
            commit(h, 100 + 10 * second, **now("boot"))
        if second == 11:
            h.row("r", "close", **now("boot"))
        if second <= 12 or second >= 125:
            read(h, told if second == 130 else min(200, 100 + 10 * second), by="o", **now("boot"))
        commit(h, 100 + 10 * second, by="x", group="another", **now("boot"))
        listed(h, 5000, **now("boot"))
        h.row("its committer", "mark", marks=vouched(h, "r", "o", "x", "observer"), **now("boot"))
        store.feed(h.rows[began:])
    missed = lost(200, told, 130.004, to=OBSERVER, after=119.997)
    nobody_s = [foreign(155, 200, 130.004, to=OBSERVER), missed, regression(200, 155, 130.004)]
    assert whole(store, VERDICTS) == (nobody_s if told == 155 else [missed])


@pytest.mark.parametrize("more", [0, 1], ids=["as many as are kept", "one more"])
def test_commits_that_came_after_a_waiting_read_are_kept_up_to_a_bound(more: int) -> None:
    """What is beyond it loses its time, the oldest first: the read that waits says nothing of it any more."""
    number = KEPT + more
    offsets, ones = np.arange(number, dtype=np.int64), np.ones(number, np.int64)
    own = InvokedCommits(pending=Newly(ones, offsets, 50 + (offsets + 1) % number, 0 * ones), full=True)
    chunks = Chunks({}, chunks_of(["g", ""], offsets))
    assert write(own, chunks, ["", "g"], np.ones(number, bool)) == more
    assert (len(own.pending), own.kept, own.full) == (KEPT, KEPT, False)
    assert certainly_never(own, chunks, 1, 7, ["", "g"], lambda since, domain: since <= 40)
    oldest = number - 1
    assert certainly_never(own, chunks, 1, oldest, ["", "g"], lambda since, domain: since <= 40) == (not more)
