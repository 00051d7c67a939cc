"""Conditions that were told before a rebuild: the rebuilt state ends what it has judged not to hold, and no other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from rules.step import HELD, Told, carry
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Slice
from tests.rules.histories import Store, number
from tests.rules.settling.test_late_evidence import Hosts
from tests.rules.whole import Told as Whole
from tests.rules.whole import whole

NAMES = ("unseen", "suspected", "stuck-consumer")
LAST = 5
"""The value that is polled late, or by nobody."""
BEGINS = 60
STUCK = f"stuck-consumer:{number('r')}"


def history(*, polled_at: int = -1, by: str = "r") -> Hosts:
    """The last value is polled at that second or by nobody. After a minute a reader of another host begins."""
    h = Hosts(one=("w", "r", "o"), two=("s",))
    h.assign("r")
    for i in range(90):
        if i <= LAST:
            h.send("w", i, at=i)
        if i < LAST:
            h.poll("r", [("w", i, 1, i)])
        if i == BEGINS:
            h.start("s")
            h.assign("s")
        if i == polled_at:
            h.poll(by, [("w", LAST, 1, LAST)])
        h.row("o", "offsets", log_start=0, log_end=min(i, LAST) + 1, last_stable=min(i, LAST) + 1)
        h.second()
    return h


def parted(h: Hosts) -> tuple[list[Slice], list[Slice]]:
    """All rows but those of `s`, of which marks tell alone, and these, which come late."""
    late = [row for row in h.rows if row.process == number("s")]
    return [row for row in h.rows if row not in late], late


def told(rows: Iterable[Slice], store: Store | None = None) -> Store:
    store = store or Store()
    for row in rows:
        store.feed([row])
    return store


def opened(store: Store) -> dict[str, Finding]:
    """The conditions that are open, by what they are and whose."""
    found: dict[str, Finding] = {}
    for one in store.findings:
        key = ":".join((one.anomaly, *map(str, one.subject)))
        if one.anomaly in NAMES and one.event == "opened":
            found[key] = one
        elif one.anomaly in NAMES:
            found.pop(key, None)
    return found


def rebuilt(rows: Iterable[Slice], before: dict[str, Finding]) -> tuple[Store, set[str]]:
    """The log read again as a rebuild does, and which of these conditions its state goes on with."""
    store = Store()
    store.store.held = HELD
    store.feed(list(rows))
    store.settle()
    assert opened(store).keys() <= before.keys()
    (kept,) = store.stored.values()
    assert kept.hot is not None
    told = {key: Told(one.at, one.implied_by is not None) for key, one in before.items() if key not in opened(store)}
    kept.hot, carried = carry(kept.hot, told, Objectives())
    store.findings.clear()
    return store, carried


def after(h: Hosts, store: Store, late: Iterable[Slice]) -> list[Whole]:
    """What is told when the late rows have come, and some seconds later."""
    told(late, store)
    first = len(h.rows)
    for _ in range(3):
        h.second()
    told(h.rows[first:], store)
    return whole(store, NAMES)


def test_what_cannot_be_judged_yet_goes_on() -> None:
    """Nothing is here of another reader's log: nobody knows since when it reads, and what."""
    h = history()
    rows, late = parted(h)
    before = opened(told(rows))
    assert before.keys() == {"unseen", STUCK}
    store, carried = rebuilt(rows, before)
    assert carried == {"unseen", STUCK}
    assert after(h, store, late) == []  # it holds, and was told


def test_what_that_one_polled_is_over_when_it_is_known() -> None:
    h = history(polled_at=BEGINS + 5, by="s")
    rows, late = parted(h)
    before = opened(told(rows))
    store, carried = rebuilt(rows, before)
    assert carried == {"unseen", STUCK}
    (ended,) = after(h, store, late)
    assert (ended.anomaly, ended.event, ended.at) == ("unseen", "closed", 90)


def test_nothing_is_over_before_it_was_told() -> None:
    """What comes late is judged from the beginning on, and at none of those times it is told anew."""
    h = history(polled_at=BEGINS + 5)
    rows, late = parted(h)
    stuck = opened(told(row for row in rows if row.completed < h.at(BEGINS)))[STUCK]
    store, carried = rebuilt(rows, {STUCK: replace(stuck, at=stuck.at + 40_000_000)})
    assert carried == {STUCK}
    assert [(one.event, one.at) for one in after(h, store, late)] == [("closed", 76)]


def test_what_was_polled_is_over_whoever_is_late() -> None:
    h = history(polled_at=BEGINS + 5)
    rows, _ = parted(h)
    before = opened(told(row for row in rows if row.completed < h.at(BEGINS)))
    assert before.keys() == {"unseen", STUCK}
    _, carried = rebuilt(rows, before)
    assert carried == {STUCK}


@pytest.mark.parametrize("explained", [True, False])
def test_what_the_state_has_judged_as_not_so_is_over(explained: bool) -> None:
    """All is here, and the value was polled: as it had been told, it was not."""
    h = history(polled_at=BEGINS + 5)
    before = opened(told(row for row in h.rows if row.completed < h.at(BEGINS)))
    if explained:
        before = {key: replace(one, implied_by="cluster-unreachable") for key, one in before.items()}
    _, carried = rebuilt(h.rows, before)
    assert carried == set()
