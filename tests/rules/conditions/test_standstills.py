"""A host that stands still: whoever is there tried nothing meanwhile, and is not stuck. Where it ran, and only its
marks are missing, somebody may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.vocabulary.slices import Mark, Run
from tests.rules.conditions.liveness_of import at_once, events
from tests.rules.histories import History, Store, number, without
from tests.rules.settling.test_late_evidence import Hosts


def by_appends(h: History) -> Store:
    """What a committer appends comes with the marks of it."""
    store, step = Store(), []
    for row, after in zip(h.rows, [*h.rows[1:], None], strict=True):
        step.append(row)
        if row.f == "mark" and (after is None or after.f != "mark"):
            store.feed(step)
            step = []
    return store


FEEDS = pytest.mark.parametrize("fed", [by_appends, at_once], ids=["by_appends", "at_once"])
S = number("s")
STUCK = ("stuck-consumer", "stuck-producer")


class Two(Hosts):
    """Host `one` has a writer and the observer, `two` the reader `s`, the writer `q` and the reader `r`. All of them do
    something every second, but those that are at rest."""

    def __init__(self) -> None:
        super().__init__(one=("w", "observer"), two=("s", "q", "r"))
        self.end = 0
        self.assign("s")
        self.assign("r")
        self.start("w", writer=str(number("w")))
        self.start("q", writer=str(number("q")))
        self._sent = {"w": 0, "q": 0}
        self._read = {"s": 0, "r": 0}
        self._log: list[tuple[str, int]] = []

    def go(self, seconds: int, *rest: str) -> None:
        for _ in range(seconds):
            for writer in ("w", "q"):
                if writer not in rest:
                    self.send(writer, self._sent[writer], 1, at=len(self._log))
                    self._log.append((writer, self._sent[writer]))
                    self._sent[writer] += 1
            for reader in ("s", "r"):
                if reader not in rest:
                    first = self._read[reader]
                    runs = [(writer, seq, 1, first + i) for i, (writer, seq) in enumerate(self._log[first:])]
                    self.poll(reader, runs)
                    self._read[reader] = len(self._log)
            self.row("observer", "offsets", log_start=0, log_end=len(self._log), last_stable=len(self._log))
            self.second()

    def stands_still(self, seconds: int) -> None:
        """Host `two`, in the middle of what `q` does."""
        self.silent.add("two")
        self.go(seconds, "s", "q", "r")
        self.silent.clear()

    def runs_unheard(self, seconds: int, *rest: str) -> None:
        """Host `two` runs, and its committer cannot append: all comes with the next mark."""
        self.silent.add("two")
        before = len(self.rows)
        self.go(seconds, *rest)
        late = [row for row in self.rows[before:] if row.process in (number("s"), number("q"), number("r"))]
        self.rows = without(self.rows, late) + late
        self.silent.clear()


def still(h: Two) -> None:
    h.go(10)
    h.stands_still(120)
    h.go(20)


def still_twice(h: Two) -> None:
    """Each time for less than the objective, and together for more."""
    h.go(10)
    h.stands_still(29)
    h.go(1, "s")
    h.stands_still(29)
    h.go(5)


def still_within_an_operation(h: Two) -> None:
    """A call of `q` was open when it began, and ends without an answer when the host goes on."""
    h.go(10)
    begun = h.at(h.time)
    h.stands_still(120)
    h.row("q", "send", type="info", error="_TIMED_OUT", invoked=begun, sent=[Run(number("q"), 10, None, 1)])
    h.go(20, "q")


def still_while_an_operation_is_open(h: Two) -> None:
    """It goes on for as long as an operation may."""
    h.go(10)
    h.open["q"] = h.time
    h.stands_still(120)
    h.go(20, "q")
    del h.open["q"]
    h.go(5)


@pytest.mark.long
@FEEDS
@pytest.mark.parametrize("build", [still, still_twice, still_within_an_operation, still_while_an_operation_is_open])
def test_nobody_is_stuck_while_the_host_stands_still(
    build: Callable[[Two], None], fed: Callable[[History], Store]
) -> None:
    h = Two()
    build(h)
    found = fed(h)
    assert [events(found, name) for name in STUCK] == [[], []]


def one_stands_still(h: Two, *, seconds: int = 60, silent: bool = True, ends: bool = True) -> None:
    """The writer and one of the readers of host `two`, each a process of its own, in the middle of what they do. What
    their probes say of themselves several times a second is missed after five."""
    h.go(10)
    begun, h.open["q"] = h.at(h.time), h.time
    h.go(5, "q", "s")
    h.unheard = {"q", "s"} if silent else set()
    h.go(seconds - 5, "q", "s")
    h.unheard.clear()
    if ends:
        h.go(1, "q")
        del h.open["q"]
        h.row("q", "send", type="info", error="_TIMED_OUT", invoked=begun, sent=[Run(number("q"), 10, None, 1)])
    h.go(20, *(() if ends else ("q", "s")))


@FEEDS
@pytest.mark.parametrize("seconds", [40, 120])
@pytest.mark.parametrize("ends", [True, False])
def test_nobody_is_stuck_whose_process_alone_stands_still(
    seconds: int, ends: bool, fed: Callable[[History], Store]
) -> None:
    """Nor within the objective after that."""
    h = Two()
    one_stands_still(h, seconds=seconds, ends=ends)
    found = fed(h)
    assert [events(found, name) for name in STUCK] == [[], []]


@FEEDS
def test_who_waits_and_says_so_is_stuck(fed: Callable[[History], Store]) -> None:
    h = Two()
    one_stands_still(h, silent=False)
    assert [[event for event, _, _ in events(fed(h), name)] for name in STUCK] == [["opened", "closed"]] * 2


@FEEDS
def test_whose_process_stood_still_and_goes_on_may_be_stuck_from_then_on(fed: Callable[[History], Store]) -> None:
    h = Two()
    one_stands_still(h, ends=False)
    h.go(20, "q", "s")
    assert [[(event, at) for event, _, at in events(fed(h), name)] for name in STUCK] == [
        [("opened", 102)],
        [("opened", 102)],
    ]


def expelled(h: Two, *rest: str) -> None:
    """Host `two` is not heard of for minutes, in which these did nothing. The group threw `s` out meanwhile, so that
    its life ends as soon as it goes on; log time, which host `one` kept going, is beyond that before it comes. What an
    observer there had asked before is answered only then."""
    h.hosts["two"] = ("s", "q", "r", "o")
    h.row("o", "offsets", log_start=0, log_end=0, last_stable=0)
    h.go(10)
    h.silent.add("two")
    before, asked = len(h.rows), h.at(h.time)
    h.go(200, *rest)
    then = int(h.time) + 1.2
    h.go(4, "s", "q", "r")
    late = [row for row in h.rows[before:] if row.process in (S, number("q"), number("r"))]
    h.rows = without(h.rows, late) + late
    for seconds, did in ((0.0, "revoke"), (0.02, "close")):
        at, told = h.at(then + seconds), h.at(then + 0.1 + 50 * seconds)
        h.row("s", did, invoked=at, completed=at, assigned=False)
        if did == "close":
            h.row("o", "offsets", log_start=0, log_end=0, last_stable=0, invoked=asked, completed=at)
        known = dict.fromkeys(h.hosts["two"], told) | ({"o": asked} if did == "revoke" else {})
        marks = [Mark(number(one), h._slices[number(one), 0], through) for one, through in known.items()]
        h.row("committer two", "mark", marks=marks, invoked=told, completed=told)
    h.silent.clear()
    h.unheard.add("s")
    h.go(20, "s")


@FEEDS
def test_a_life_that_ends_as_its_host_goes_on_was_not_stuck(fed: Callable[[History], Store]) -> None:
    h = Two()
    expelled(h, "s", "q", "r")
    found = fed(h)
    assert [events(found, name) for name in STUCK] == [[], []]


def over_and_judged_late(h: Two, *rest: str, killed: bool) -> None:
    """What happened at host `one`, where the observer is, comes five minutes late; by then nobody remembers `s` any
    more, which was killed while host `two` was not heard of, or else closed in order."""
    h.go(10)
    before = len(h.rows)
    h.silent |= {"one", "two"} if killed else {"one"}
    h.go(40, *rest)
    h.silent.discard("two")
    died: dict[str, Any] = {"type": "info", "error": "process-died"} if killed else {}
    h.row("s", "close", **died)
    over = [Mark(number("s"), h._slices[number("s"), 0], h.at(h.time), h.at(h.time))]
    h.row("committer two", "mark", marks=over, invoked=h.at(h.time), completed=h.at(h.time))
    h.unheard.add("s")
    h.go(300, "s")
    late = [row for row in h.rows[before:] if row.process in (number("w"), number("observer"))]
    h.rows = without(h.rows, late) + late
    h.silent.clear()
    h.go(10, "s")


@pytest.mark.long
@FEEDS
def test_a_life_that_broke_off_as_its_host_stood_still_was_not_stuck_however_late_it_is_judged(
    fed: Callable[[History], Store],
) -> None:
    h = Two()
    over_and_judged_late(h, "s", "q", "r", killed=True)
    assert events(fed(h), "stuck-consumer") == []


@pytest.mark.long
@FEEDS
def test_a_life_that_stood_while_others_of_its_host_went_on_was_stuck_however_late_it_is_judged(
    fed: Callable[[History], Store],
) -> None:
    """It closed in order: nobody killed it while it might have gone on."""
    h = Two()
    over_and_judged_late(h, "s", killed=False)
    assert [event[0] for event in events(fed(h), "stuck-consumer")] == ["opened", "closed"]


@FEEDS
def test_a_life_that_ends_after_its_host_ran_unheard_was_stuck(fed: Callable[[History], Store]) -> None:
    h = Two()
    expelled(h, "s")
    assert events(fed(h), "stuck-consumer") == [("opened", (S,), 41), ("closed", (S,), 214)]


@FEEDS
def test_who_does_not_move_when_the_host_goes_on_is_stuck_from_then_on(fed: Callable[[History], Store]) -> None:
    h = Two()
    h.go(10)
    h.stands_still(120)
    h.go(40, "s")
    assert events(fed(h), "stuck-consumer") == [("opened", (S,), 161)]


@FEEDS
def test_an_operation_that_goes_on_for_long_after_it_is_stuck(fed: Callable[[History], Store]) -> None:
    h = Two()
    h.go(10)
    h.open["q"] = h.time
    h.stands_still(120)
    h.go(40, "q")
    assert events(fed(h), "stuck-producer") == [("opened", (str(number("q")),), 161)]


@FEEDS
def test_a_mark_that_comes_late_is_no_standstill(fed: Callable[[History], Store]) -> None:
    """It is older than those that came before it."""
    h = Two()
    h.go(10)
    h.go(1, "s")
    (late,) = (row for row in h.rows[-2:] if row.process == number("committer two"))
    h.rows.remove(late)
    h.go(27, "s")
    h.rows.append(late)
    h.go(10, "s")
    assert events(fed(h), "stuck-consumer") == [("opened", (S,), 41)]


@FEEDS
def test_who_is_stuck_while_the_host_is_not_heard_of_is_told(fed: Callable[[History], Store]) -> None:
    """Its other processes went on, as is known since."""
    h = Two()
    h.go(10)
    h.runs_unheard(60, "s")
    h.go(3)
    assert [event[0] for event in events(fed(h), "stuck-consumer")] == ["opened", "closed"]
    assert events(fed(h), "stuck-producer") == []


@FEEDS
@pytest.mark.parametrize(("still", "expected"), [(True, []), (False, ["opened"])])
def test_nor_does_a_reader_come_to_read_meanwhile(
    still: bool, expected: list[str], fed: Callable[[History], Store]
) -> None:
    """A life of it has failed before, and the next one ends as soon as its host goes on."""
    h = Two()
    h.hosts["two"] = ("s", "q", "r", "y0", "y1")
    h.row("y0", "start", settings={"name": "reader-9"}, mode="assign")
    h.go(5)
    h.row("y0", "close", type="info", error="_TIMED_OUT")
    h.row("y1", "start", settings={"name": "reader-9"}, mode="assign")
    if still:
        h.stands_still(120)
    else:
        h.go(120)
    h.row("y1", "close", type="info", error="_TIMED_OUT")
    h.go(5)
    assert [event for event, _, _ in events(fed(h), "refused-reads")] == expected
