"""A host whose disk is full: its probes stop at what they cannot log, and its committer finds them dead once there is
room again. Nobody there tried anything meanwhile. What was wrong before, and what is wrong after, is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from rules.vocabulary.slices import Mark, Run, Slice
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, events, in_time
from tests.rules.conditions.test_standstills import STUCK, Two, by_appends
from tests.rules.histories import START, History, Store, found, number, without

FEEDS = pytest.mark.parametrize("fed", [by_appends, at_once], ids=["by_appends", "at_once"])
WAITING = (*STUCK, "unseen")


def due(store: Store, name: str) -> list[int]:
    """The seconds of log time since when a condition is said to hold."""
    return [
        round((f.decidable - micros(START)) / 1e6) for f in in_time(store) if f.anomaly == name and f.event == "opened"
    ]


class Full(Two):
    """Host `one` has a writer and the observer, whose disk is well. The probes of `two` begin new lives after it."""

    def __init__(self) -> None:
        super().__init__()
        self.lives = 1
        self.short: list[str] = []

    def go(self, seconds: int, *rest: str) -> None:
        """As `Two`, with those that live now; `s`, `q` and `r` are named so in every life."""
        now = {"s": self.now("s"), "q": self.now("q"), "r": self.now("r")}
        for _ in range(seconds):
            for writer in ("w", "q"):
                if writer not in rest:
                    self.send(now.get(writer, writer), self._sent[writer], 1, at=len(self._log))
                    self._log.append((now.get(writer, writer), self._sent[writer]))
                    self._sent[writer] += 1
            for reader in ("s", "r"):
                if reader not in rest:
                    self.catch_up(reader)
            self.observed()
            self.second()

    def now(self, name: str) -> str:
        return name if self.lives == 1 else f"{name}{self.lives}"

    def observed(self) -> None:
        self.row("observer", "offsets", log_start=0, log_end=len(self._log), last_stable=len(self._log))

    def catch_up(self, reader: str) -> None:
        first = self._read[reader]
        runs = [(writer, seq, 1, first + i) for i, (writer, seq) in enumerate(self._log[first:])]
        if runs:
            self.poll(self.now(reader), runs)
        self._read[reader] = len(self._log)

    def no_room(self, seconds: int, *, flicker: bool = True) -> None:
        """The disk of `two` is full, and some row finds room now and then; all of them come late."""
        self.silent.add("two")
        late: list[Slice] = []
        for second in range(seconds):
            if flicker and second % 15 == 5:
                self.short.append(f"short {self.lives} {second}")
                late.append(self.start(self.short[-1], name="short"))
            self.go(1, "s", "q", "r")
        self.rows = without(self.rows, late) + late
        self.silent.clear()

    def room(self, *, error: str = "process-died", in_flight: float | None = None) -> None:
        """The dead are found, and new lives begin."""
        dead, died = [*(self.now(name) for name in ("s", "q", "r")), *self.short], self.at(self.time)
        self.short.clear()
        if in_flight is not None:
            run = Run(number(self.now("q")), self._sent["q"], None, 1)
            self.row(
                self.now("q"), "send", type="info", error=error, invoked=self.at(in_flight), completed=died, sent=[run]
            )
        for process in dead:
            self.row(process, "close", type="info", error=error, invoked=died, completed=died)
        # As committers do: whoever is over invoked nothing a microsecond later.
        marks = [Mark(number(p), self._slices[number(p), 0], died, died + timedelta(microseconds=1)) for p in dead]
        marked = died + timedelta(milliseconds=100)
        self.row("committer two", "mark", marks=marks, invoked=marked, completed=marked)
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        self.hosts["two"] = tuple(self.now(name) for name in ("s", "q", "r"))
        self._sent["q"] = 0
        for reader in ("s", "r"):
            self.start(self.now(reader), name=reader)
            self.assign(self.now(reader))
        self.start(self.now("q"), writer=str(number(self.now("q"))), name="q")


def full(h: Full) -> None:
    h.go(10)
    h.no_room(60)
    h.room()
    h.go(20)


def without_a_row(h: Full) -> None:
    h.go(10)
    h.no_room(60, flicker=False)
    h.room()
    h.go(20)


def full_again_and_again(h: Full) -> None:
    """Each time for less than the objective of who is stuck, and together for more."""
    h.go(10)
    for _ in range(4):
        h.no_room(25)
        h.room()
        h.go(1)
    h.go(20)


def full_in_the_middle_of_a_send(h: Full) -> None:
    h.go(10)
    begun = h.time
    h.no_room(60)
    h.room(in_flight=begun)
    h.go(20, "q")


def a_reader_is_back_before_the_dead_are_found(h: Full) -> None:
    """The probes try again sooner than the committer does."""
    h.go(10)
    h.no_room(60)
    h.silent.add("two")
    h.start("early", name="early")
    h.assign("early")
    h.go(3, "s", "q", "r")
    h.silent.clear()
    h.poll("early", [(writer, seq, 1, i) for i, (writer, seq) in enumerate(h._log)])
    h.hosts["two"] = (*h.hosts["two"], "early")
    h.room()
    h.go(20)


@FEEDS
@pytest.mark.parametrize(
    "build",
    [
        full,
        without_a_row,
        full_again_and_again,
        full_in_the_middle_of_a_send,
        a_reader_is_back_before_the_dead_are_found,
    ],
)
def test_a_full_disk_is_no_fault_of_the_cluster(build: Callable[[Full], None], fed: Callable[[History], Store]) -> None:
    h = Full()
    build(h)
    store = fed(h)
    assert [events(store, name) for name in WAITING] == [[], [], []]
    assert not found(store.findings)


@FEEDS
def test_also_where_the_rows_that_say_so_come_after_later_marks(fed: Callable[[History], Store]) -> None:
    h = Full()
    full(h)
    closed = [row for row in h.rows if row.f == "close"]
    at = h.rows.index(closed[-1])
    after = [i for i, row in enumerate(h.rows) if i > at and row.process == number("committer two")][4]
    h.rows = without(h.rows[:after], closed) + closed + h.rows[after:]
    store = fed(h)
    assert [events(store, name) for name in WAITING] == [[], [], []]


@FEEDS
def test_a_host_that_stands_still_leaves_nothing_unseen(fed: Callable[[History], Store]) -> None:
    h = Full()
    h.go(10)
    h.stands_still(60)
    h.go(20)
    assert events(fed(h), "unseen") == []


@FEEDS
def test_who_does_not_move_afterwards_is_stuck_from_then_on(fed: Callable[[History], Store]) -> None:
    h = Full()
    h.go(10)
    h.no_room(60)
    h.room()
    h.go(40, "s")
    assert events(fed(h), "stuck-consumer") == [("opened", (number("s2"),), 102)]


@FEEDS
def test_what_nobody_polls_afterwards_is_unseen_from_then_on(fed: Callable[[History], Store]) -> None:
    h = Full()
    h.go(10)
    h.no_room(60)
    h.room()
    h.go(15, "s", "r")
    assert due(fed(h), "unseen") == [81]


@FEEDS
def test_a_send_that_hangs_afterwards_is_stuck(fed: Callable[[History], Store]) -> None:
    h = Full()
    h.go(10)
    h.no_room(60)
    h.room()
    h.go(5)
    h.open["q2"] = h.time
    h.go(40, "q")
    assert [event[::2] for event in events(fed(h), "stuck-producer")] == [("opened", 106)]


@FEEDS
def test_who_was_stuck_before_it_is_told_on_time(fed: Callable[[History], Store]) -> None:
    h = Full()
    h.go(10)
    h.go(35, "s")
    h.no_room(60)
    h.room()
    h.go(20)
    opened, closed = events(fed(h), "stuck-consumer")
    assert (opened, closed[0]) == (("opened", (number("s"),), 41), "closed")


@FEEDS
def test_what_was_unseen_before_it_is_told_on_time(fed: Callable[[History], Store]) -> None:
    h = Full()
    h.go(10)
    h.go(15, "s", "r")
    h.no_room(60)
    h.room()
    h.go(20)
    (opened, closed) = events(fed(h), "unseen")
    assert opened[::2] == ("opened", 21) and closed[0] == "closed" and closed[2] >= 86


@FEEDS
def test_a_reader_that_finds_room_for_longer_does_not_stand_for_the_others(fed: Callable[[History], Store]) -> None:
    """As one that audits, which reads elsewhere in the log."""
    h = Full()
    h.go(10)
    h.row("r", "close", type="info", error="journal-unwritable")
    h.hosts["two"] = ("s", "q")
    h.go(15, "s", "r")
    h.no_room(60)
    h.room()
    h.go(20)
    assert due(fed(h), "unseen") == []


@FEEDS
def test_what_a_reader_of_another_host_does_not_poll_is_unseen_on_time(fed: Callable[[History], Store]) -> None:
    """Its disk is well: it reads, and does not see."""
    h = Full()
    h.hosts["one"] = ("w", "observer", "other")
    h.assign("other")
    h.go(10)
    h.no_room(60)
    h.room()
    h.go(20)
    assert due(fed(h), "unseen") == [20]


@FEEDS
def test_what_a_reader_of_another_host_polls_is_not_unseen(fed: Callable[[History], Store]) -> None:
    h = Full()
    h.hosts["one"] = ("w", "observer", "other")
    h.assign("other")
    h._read["other"] = 0
    h.go(10)
    h.catch_up("other")
    h.silent.add("two")
    for _ in range(60):
        h.go(1, "s", "q", "r")
        h.lives, lives = 1, h.lives
        h.catch_up("other")
        h.lives = lives
    h.silent.clear()
    h.room()
    h.go(20)
    assert [events(fed(h), name) for name in WAITING] == [[], [], []]


@FEEDS
def test_what_was_acknowledged_before_it_and_is_not_there_afterwards_is_lost(fed: Callable[[History], Store]) -> None:
    h = Full()
    h.go(10)
    h.send("w", h._sent["w"], 1, at=len(h._log))
    h._sent["w"] += 1
    lost = len(h._log)
    h._log.append(("w", h._sent["w"] - 1))
    h._read = dict.fromkeys(h._read, lost + 1)
    h.go(2)
    h.no_room(60)
    h.room()
    h.go(40)
    assert {name for name, _ in found(fed(h).findings)} == {"lost-write", "poll-skip"}


@FEEDS
def test_an_outage_meanwhile_is_told(fed: Callable[[History], Store]) -> None:
    """The observer of the other host asks in vain, and whoever begins anew here cannot see."""
    h = Full()
    h.go(10)

    def observed() -> None:
        h.row("observer", "offsets", type="fail", error="_TRANSPORT")

    h.observed = observed  # type: ignore[method-assign]
    h.silent.add("two")
    for _ in range(60):
        h.observed()
        h.second()
    h.silent.clear()
    h.room()
    for _ in range(40):
        h.observed()
        h.second()
    store = fed(h)
    assert [event[::2] for event in events(store, "cluster-unreachable")] == [("opened", 40)]
    assert {subject for _, subject, _ in events(store, "stuck-consumer")} == {(number("s2"),), (number("r2"),)}


def of_one_name(h: Full, error: str) -> None:
    """The writer's life ends in the middle of a send, and so does the next one's first."""
    h.start("q", writer=str(number("q")), name="writer-1")
    h.go(10, "s", "r")
    h.go(20, "q", "s", "r")
    h.row("q", "send", type="info", error="_TIMED_OUT", invoked=h.at(10), sent=[Run(number("q"), 10, None, 1)])
    h.row("q", "close", type="info", error=error)
    now = h.at(h.time)
    h.row(
        "committer two",
        "mark",
        marks=[Mark(number("q"), h._slices[number("q"), 0], now, now)],
        invoked=now,
        completed=now,
    )
    h.start("p", writer=str(number("p")), name="writer-1")
    h.hosts["two"] = ("s", "r", "p")
    h.go(15, "q", "s", "r")
    h.row("p", "send", type="info", error="_TIMED_OUT", invoked=h.at(31), sent=[Run(number("p"), 0, None, 1)])
    h.go(2, "q", "s", "r")


@FEEDS
def test_a_writer_that_could_not_write_its_journal_begins_anew(fed: Callable[[History], Store]) -> None:
    guilty, innocent = Full(), Full()
    of_one_name(guilty, "_TIMED_OUT")
    of_one_name(innocent, "journal-unwritable")
    assert [event[0] for event in events(fed(guilty), "stuck-producer")] == ["opened"]
    assert events(fed(innocent), "stuck-producer") == []
