"""`foreign-commit`: a group is told what nobody ever committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.committed.committed_offsets import (
    OBSERVER,
    RULES,
    VERDICTS,
    Fed,
    commit,
    foreign,
    in_order,
    later,
    lost,
    on,
    read,
)
from tests.rules.histories import History
from tests.rules.whole import Told, in_any_way, whole


def too_high(h: History) -> None:
    commit(h, 100)
    read(h, 115)


def too_high_after_none(h: History) -> None:
    h.start("r", **{"group.id": "g"})
    read(h, None, by="o")
    read(h, 15, by="o")


def too_high_in_a_group_that_is_subscribed_to(h: History) -> None:
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    read(h, 115)


def too_low(h: History) -> None:
    """Told to the process that committed: it is another offset, and the committed one is gone."""
    commit(h, 100)
    read(h, 70)


def first_told(h: History) -> None:
    """From before the log began, and again after it had changed: an old coordinator may know it."""
    read(h, 500, by="o")
    read(h, 500, by="o")
    commit(h, 520)
    read(h, 500, by="o")


def first_told_on_another_host(h: History) -> None:
    read(h, 500, by="o", **on("a", 10, 20))
    commit(h, 520, **on("a", 30, 40))
    read(h, 500, by="p", **on("b", 10, 20))
    read(h, 500, by="p", **on("b", 30, 40))


def of_a_transaction(h: History) -> None:
    """Whatever became of it, it was asked for."""
    commit(h, 100)
    h.txn("t", polls=[("w", 0, 1, 109)], type="fail", txn=1, committed=110, group="g")
    read(h, 110, by="o")
    h.txn("t", polls=[("w", 0, 1, 119)], type="info", txn=2, position_after=120)
    read(h, 120, by="o")


def beside_a_transaction_that_went_well_without_it(h: History) -> None:
    commit(h, 100)
    h.txn("t", polls=[("w", 0, 1, 114)], txn=2, position_after=115)
    read(h, 115)


def beside_a_poll_that_failed_there(h: History) -> None:
    commit(h, 100)
    h.poll("t", [], type="fail", position_after=115)
    read(h, 115)


def of_one_that_names_no_group(h: History) -> None:
    commit(h, 100)
    h.row("s", "commit", committed=115)
    read(h, 115, by="o")


def by_a_member_of_another_log(h: History) -> None:
    """The group gave the partition to somebody else, who is not of this log."""
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    read(h, 100, by="o")
    h.assign("r", f="revoke", assigned=False, group="g")
    read(h, 115, by="o")


def by_a_member_of_another_log_in_between(h: History) -> None:
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    h.assign("r", f="revoke", assigned=False, group="g")
    h.assign("s", f="subscribe", group="g")
    read(h, 115)


def by_a_member_of_another_log_after_the_last_of_ours(h: History) -> None:
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    read(h, 100, by="o")
    h.row("r", "close")
    read(h, 115, by="o")


def asked_for_while_it_was_read(h: History) -> None:
    early = h.at(h.time)
    commit(h, 100)
    read(h, 120, by="o")
    commit(h, 120, invoked=early)


GUILTY = [
    (too_high, [foreign(115, 100, 0.004)]),
    (too_high_after_none, [foreign(15, None, 0.006, to=OBSERVER)]),
    (too_high_in_a_group_that_is_subscribed_to, [foreign(115, 100, 0.006)]),
    (beside_a_transaction_that_went_well_without_it, [foreign(115, 100, 0.006)]),
    (beside_a_poll_that_failed_there, [foreign(115, 100, 0.006)]),
    (too_low, [lost(100, 70, 0.004), foreign(70, 100, 0.004)]),
]
INNOCENT = [
    first_told,
    first_told_on_another_host,
    of_a_transaction,
    of_one_that_names_no_group,
    by_a_member_of_another_log,
    by_a_member_of_another_log_in_between,
    by_a_member_of_another_log_after_the_last_of_ours,
    asked_for_while_it_was_read,
]


@in_any_way()
@pytest.mark.parametrize(("build", "expected"), GUILTY, ids=[c[0].__name__ for c in GUILTY])
def test_guilty(build: Callable[[History], object], expected: list[Told], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    assert whole(fed(h), VERDICTS) == in_order(expected, fed.__name__ == "finished")


@in_any_way()
@pytest.mark.parametrize("build", INNOCENT, ids=lambda build: build.__name__)
def test_innocent(build: Callable[[History], object], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    assert whole(fed(h), RULES) == []
