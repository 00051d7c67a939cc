"""Which appends of a topic the table does not have yet, told by the starts of the committers that made them."""

from __future__ import annotations

from collections.abc import Sequence

from probes.log.commits.numbers import drawn, number_of, recorded, start_of
from probes.log.evidence.messages import Append
from probes.log.evidence.taken import COMMITTERS, LAST, STARTS, Taken, sorted_out, versions
from rules.vocabulary.slices import SLICE_SCHEMA


def made(*told: tuple[int, int], app: str = "a") -> list[Append]:
    """Appends by (start, number)."""
    return [Append(app, number, SLICE_SCHEMA.empty_table(), at, start) for at, (start, number) in enumerate(told)]


class Table:
    """What it tells, as an intake asks it."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def take(self, taken: Taken, appends: Sequence[Append], *, again: bool = False) -> list[tuple[int, int, int, bool]]:
        """(start, number, how many are lacking before it, whether it stands beside another) of the new ones."""
        asked = {one.app for one in appends}
        known = {app + LAST: self.known.get(app + LAST, 0) for app in asked}
        known |= {app: self.known.get(app, 0) for app in taken.ask(appends, known)}
        starts = taken.starts(appends, known)
        new = sorted_out(appends, starts, again=again)
        self.known |= versions(new, starts)
        taken.note(starts)
        return [(one.append.start, one.append.version, one.lacking, one.beside) for one in new]


def test_each_append_is_taken_once_in_whatever_pieces_it_is_read() -> None:
    told = [(5, 1), (5, 2), (5, 2), (9, 3), (9, 4), (9, 4), (2, 5)]
    for cut in range(len(told) + 1):
        for forgetful in (True, False):
            table, taken = Table(), Taken()
            found = table.take(taken, made(*told[:cut]))
            found += table.take(Taken() if forgetful else taken, made(*told[cut:]))
            assert found == [(5, 1, 0, False), (5, 2, 0, False), (9, 3, 0, False), (9, 4, 0, False), (2, 5, 0, False)]
            assert table.known == {"a/last": recorded(2, 5), "a/before": recorded(9, 4)}


def test_of_two_that_follow_one_append_all_is_taken() -> None:
    """Also by an intake that remembers nothing, append by append, and where both make the last one again."""
    told = [(5, 3), (7, 4), (5, 3), (8, 4), (7, 5), (8, 5), (8, 6), (7, 6), (7, 6)]
    table, taken = Table(), Taken()
    found = [one for append in made(*told) for one in table.take(taken, [append])]
    assert [one[:2] for one in found] == [(5, 3), (7, 4), (8, 4), (7, 5), (8, 5), (8, 6), (7, 6)]
    assert [one[3] for one in found] == [False, False, True, True, True, False, True]
    table = Table()
    found = [one for append in made(*told) for one in table.take(Taken(), [append])]
    assert [one[:2] for one in found] == [(5, 3), (7, 4), (8, 4), (7, 5), (8, 5), (8, 6), (7, 6)]


def test_what_is_lacking_is_counted_within_a_start_and_from_one_to_the_next() -> None:
    table, taken = Table(), Taken()
    assert table.take(taken, made((5, 3))) == [(5, 3, 2, False)], "the topic did not hold what was before"
    assert table.take(taken, made((5, 6), (9, 7), (4, 9))) == [(5, 6, 2, False), (9, 7, 0, False), (4, 9, 1, False)]


def test_what_an_earlier_version_appended_and_recorded_goes_on() -> None:
    table = Table()
    table.known["a"] = 2
    assert table.take(Taken(), made((0, 2), (0, 3))) == [(0, 3, 0, False)]
    assert table.known == {"a": 2, "a/last": 3}
    assert table.take(Taken(), made((0, 3), (6, 4))) == [(6, 4, 0, False)]
    assert table.take(Taken(), made((0, 3))) == []
    assert table.known == {"a": 2, "a/last": recorded(6, 4), "a/before": 3}


def test_a_topic_that_is_read_again_brings_nothing_that_was_taken() -> None:
    told = [(5, 1), (5, 2), (9, 3), (4, 4), (4, 5), (3, 6)]
    table = Table()
    table.take(Taken(), made(*told))
    assert table.take(Taken(), made(*told, (3, 7)), again=True) == [(3, 7, 0, False)]


def test_what_is_remembered_is_bounded() -> None:
    table, taken = Table(), Taken()
    for app in range(COMMITTERS + 10):
        table.take(taken, made((1, 1), app=str(app)))
    for start in range(1, 3 * STARTS):
        table.take(taken, made((start, start), app="a"))
    assert len(taken._kept) == COMMITTERS and len(taken._kept["a"]) == STARTS
    assert set(table.known) == {f"{app}/last" for app in range(COMMITTERS + 10)} | {"a/last", "a/before"}


def test_a_start_and_a_number_are_one() -> None:
    assert len({drawn() for _ in range(1000)}) == 1000
    for start, number in ((0, 7), (drawn(), 1), ((1 << 30) - 1, (1 << 32) - 1)):
        both = recorded(start, number)
        assert (start_of(both), number_of(both)) == (start, number) and 0 < both < 1 << 62
    assert recorded(0, 7) == 7, "as an earlier version records it"
