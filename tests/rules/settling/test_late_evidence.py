"""`evidence-late`: who holds a verdict back is named, and whoever does not need him is judged on time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Mark, Slice
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, events, row_by_row
from tests.rules.histories import History, Store, number, singly, without
from tests.rules.whole import whole

FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
R, Q = number("r"), number("q")


class Hosts(History):
    """A history of several hosts, each with a committer; `open` are processes with an operation open since then."""

    def __init__(self, **hosts: Sequence[str]) -> None:
        super().__init__()
        self.hosts = hosts or {"one": ("w", "r", "s", "q", "observer")}
        self.open: dict[str, float] = {}
        self.silent: set[str] = set()
        self.unheard: set[str] = set()
        """Processes that no mark tells of."""

    def second(self, partition: int = 0) -> None:
        """A second passes, and every committer that is not silent vouches for its processes."""
        self.time += 1.0
        now = self.at(self.time)
        for host, processes in self.hosts.items():
            if host in self.silent:
                continue
            marks = [
                Mark(number(p), n, self.at(self.open[p]) if p in self.open else now)
                for p in processes
                if p not in self.unheard and (n := self._slices[number(p), partition])
            ]
            known = list(self.processes)
            self.row(f"committer {host}", "mark", partition=partition, marks=marks, invoked=now, completed=now)
            self.processes = known


def traffic(h: Hosts, seconds: int, *, first: int = 0, reads: str = "rs", partitions: int = 1) -> int:
    """A record a second, read at once by each of `reads`."""
    for i in range(first, first + seconds):
        for p in range(partitions):
            h.send("w", i, 1, at=i, partition=p)
            for reader in reads:
                h.poll(reader, [("w", i, 1, i)], partition=p)
            h.row("observer", "offsets", log_start=0, log_end=i + 1, last_stable=i + 1, partition=p)
            h.time -= 1.0 if p else 0.0
            h.second(p)
    return first + seconds


def hung(h: Hosts, seconds: int, *, partitions: int = 1) -> int:
    """Another writer's call is open for minutes; ten seconds in, the reader `r` stops."""
    for p in range(partitions):
        h.assign("r", partition=p)
        h.assign("s", partition=p)
        h.start("q") if not p else h.row("q", "start", partition=p)
    i = traffic(h, 10, partitions=partitions)
    h.open["q"] = h.time
    return traffic(h, seconds, first=i, reads="s", partitions=partitions)


def the(store: Store, name: str, event: str = "opened") -> Finding:
    (one,) = (f for f in store.findings if f.anomaly == name and f.event == event)
    return one


@FEEDS
def test_a_call_that_hangs_holds_back_nobody_who_does_not_need_it(fed: Callable[[History], Store]) -> None:
    """Neither the reader that stops meanwhile, nor what it leaves unread."""
    h = Hosts()
    i = hung(h, 60)
    for second in range(20):
        h.send("w", i + second, 1, at=i + second)
        h.row("observer", "offsets", log_start=0, log_end=i + second + 1, last_stable=i + second + 1)
        h.second()
    assert events(fed(h), "stuck-consumer") == [("opened", (R,), 41)]
    assert [e[::2] for e in events(row_by_row(h, 6), "unseen")] == [("opened", 81)]


def lost_beside(h: Hosts, **told: str) -> int:
    """A record is lost while an operation of `q` is open that may have polled it for all that it tells. Returns
    how many rows had come when that ended."""
    for reader in "rs":
        h.assign(reader)
    h.row("q", "start", mode="subscribe", settings={"writer": str(Q)} | told)
    h.row("q", "subscribe", assigned=False, mode="subscribe")
    h.second()
    h.open["q"] = h.time
    i = traffic(h, 5)
    h.send("w", i, 1, at=i)
    for reader in "rs":
        h.poll(reader, [], position_before=i, position_after=i + 1)
    traffic(h, 120, first=i + 1)
    del h.open["q"]
    before = len(h.rows)
    h.second()
    return before


def lost(h: Hosts, rows: Sequence[Slice], store: Store) -> int:
    for row in singly(rows):
        store.feed(row)
    return sum(f.anomaly == "lost-write" for f in store.findings)


@pytest.mark.parametrize(
    ("told", "waits"),
    [
        ({}, True),
        ({"reads_from": "topic", "sends_to": "another topic"}, True),
        ({"reads_from": "another topic", "sends_to": "a third one"}, False),
        ({"reads_from": "another topic", "sends_to": "topic"}, True),
        ({"sends_to": "another topic"}, True),  # it may read any
    ],
)
def test_who_reads_and_sends_in_other_topics_holds_back_nobody(told: dict[str, str], waits: bool) -> None:
    h, store = Hosts(), Store()
    before = lost_beside(h, **told)
    assert lost(h, h.rows[:before], store) == (0 if waits else 1)
    assert lost(h, h.rows[before:], store) == 1


def test_who_said_so_and_was_assigned_here_all_the_same_is_waited_for() -> None:
    h, store = Hosts(), Store()
    h.assign("q")
    before = lost_beside(h, reads_from="another topic", sends_to="a third one")
    assert lost(h, h.rows[:before], store) == 0
    assert lost(h, h.rows[before:], store) == 1


def test_a_call_that_hangs_is_told_once_with_its_process() -> None:
    h = Hosts()
    hung(h, 40, partitions=2)
    store = row_by_row(h)
    assert events(store, "evidence-late") == [("opened", ("process", Q), 41)]
    one = the(store, "evidence-late")
    assert (one.topic_id, one.partition, one.implied_by) == ("", -1, None)
    since = micros(h.at(h.open["q"]))
    assert one.message == f"process {Q} of run run is known as of 30 s ago, since when an operation of it is open"
    assert dict(one.evidence) == {
        "process": Q,
        "host": number("committer one"),
        "hold": "operation",
        "since": since,
        "behind_s": (one.at - since) / 1e6,
    }
    del h.open["q"]
    before = len(h.rows)
    traffic(h, 3, first=400, partitions=2)
    for row in singly(h.rows[before:]):
        store.feed(row)
    assert [e[0] for e in events(store, "evidence-late")] == ["opened", "closed"]
    assert the(store, "evidence-late", "closed").evidence["partitions"] == 2


def a_row_is_missing(h: Hosts) -> list[Slice]:
    h.assign("r")
    h.start("q")
    i = traffic(h, 10, reads="r")
    missing = h.row("q", "position", position_after=7)
    traffic(h, 60, first=i, reads="r")
    return [missing]


def a_host_is_silent(h: Hosts) -> list[Slice]:
    """Its probes had been started once again before that."""
    for process, run in (("w", "east"), ("s", "before"), ("q", "west")):
        h.row(process, "start").run = run
    return a_host_of_which_no_beginning_is_known_is_silent(h)


def a_host_of_which_no_beginning_is_known_is_silent(h: Hosts) -> list[Slice]:
    h.hosts = {"one": ("w", "observer", "r"), "two": ("s", "q")}
    h.assign("r")
    h.assign("s")
    h.row("q", "position", position_after=0)
    i = traffic(h, 10)
    h.silent.add("two")
    traffic(h, 60, first=i, reads="r")
    return []


def a_journal_is_not_told_of(h: Hosts) -> list[Slice]:
    h.assign("r")
    h.start("q")
    i = traffic(h, 10, reads="r")
    h.unheard.add("q")
    traffic(h, 60, first=i, reads="r")
    return []


def a_clock_is_behind(h: Hosts) -> list[Slice]:
    """By 40 s, of the host two; w is of the run east, q of the run west."""
    for process, run in (("w", "east"), ("q", "west")):
        h.row(process, "start").run = run
    h.hosts = {"one": ("w", "observer", "r"), "two": ("s", "q")}
    h.assign("r")
    h.assign("s")
    traffic(h, 60, reads="r")
    for row in h.rows:
        if row.process in (number("s"), number("q"), number("committer two")):
            row.invoked, row.completed = (at - timedelta(seconds=40) for at in (row.invoked, row.completed))
            row.marks = [mark._replace(through=mark.through - timedelta(seconds=40)) for mark in row.marks]
    return []


def a_host_with_a_name_is_silent(h: Hosts) -> list[Slice]:
    """What its newest process says that it is called: it was given another name before that began."""
    named = {"s": "probe-2-old", "q": "probe-2"}
    missing = a_host_is_silent(h)
    for row in h.rows:
        if row.f == "start" and (name := {number(p): n for p, n in named.items()}.get(row.process)):
            row.settings = {**(row.settings or {}), "hostname": name}
    return missing


def a_row_is_missing_on_a_host_with_a_name(h: Hosts) -> list[Slice]:
    missing = a_row_is_missing(h)
    for row in h.rows:
        if row.f == "start":
            row.settings = {**(row.settings or {}), "hostname": "probe-1"}
    return missing


HELD: list[tuple[Callable[[Hosts], list[Slice]], tuple[str, int], str, str]] = [
    (
        a_row_is_missing,
        ("process", Q),
        "rows",
        f"1 rows of process {Q} of run run are missing: it is known as of 30 s ago",
    ),
    (
        a_host_is_silent,
        ("host", number("committer two")),
        "host",
        f"nothing has come of the host of run west (committer {number('committer two')}) for 30 s, nor what 2 processes"
        " did there",
    ),
    (
        a_row_is_missing_on_a_host_with_a_name,
        ("process", Q),
        "rows",
        f"1 rows of process {Q} of run run on probe-1 are missing: it is known as of 30 s ago",
    ),
    (
        a_host_with_a_name_is_silent,
        ("host", number("committer two")),
        "host",
        f"nothing has come of the host probe-2 (run west, committer {number('committer two')}) for 30 s, nor what 2"
        " processes did there",
    ),
    (
        a_host_of_which_no_beginning_is_known_is_silent,
        ("host", number("committer two")),
        "host",
        f"nothing has come of the host of committer {number('committer two')} for 30 s, nor what 2 processes did there",
    ),
    (
        a_clock_is_behind,
        ("host", number("committer two")),
        "clock",
        f"the host of run west (committer {number('committer two')}) is 40 s behind the host of run east (committer"
        f" {number('committer one')}), by either's clock or because its log comes late",
    ),
    (
        a_journal_is_not_told_of,
        ("journals", number("committer one")),
        "journals",
        f"1 processes of the host of run run (committer {number('committer one')}) have not closed, and nothing is told"
        " of them for 30 s",
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("build", "subject", "hold", "message"), HELD, ids=[c[0].__name__ for c in HELD])
def test_who_is_late_is_named_and_why(
    build: Callable[[Hosts], list[Slice]], subject: tuple[str, int], hold: str, message: str
) -> None:
    h = Hosts()
    missing = build(h)
    store = Store()
    for row in h.rows:
        if row not in missing:
            store.feed([row])
    assert [e[1] for e in events(store, "evidence-late")] == [subject]
    one = the(store, "evidence-late")
    assert (one.message, one.evidence["hold"]) == (message, hold)
    assert one.evidence["process" if subject[0] == "process" else "host"] == subject[1]
    assert one.evidence.get("hostname") == ("probe-2" if build is a_host_with_a_name_is_silent else None)


def frozen(*, open_before: int, open_after: int) -> History:
    """All of a host stands still for three minutes while a call of q is open; then it goes on."""
    h = Hosts()
    h.assign("r")
    h.assign("s")
    h.start("q")
    i = traffic(h, 10)
    h.open["q"] = h.time
    i = traffic(h, open_before, first=i)
    h.time += 180.0
    i = traffic(h, open_after, first=i)
    del h.open["q"]
    traffic(h, 5, first=i)
    return h


@FEEDS
def test_an_operation_in_which_its_host_stood_still_is_not_late(fed: Callable[[History], Store]) -> None:
    """Nobody had less time to end it than ever."""
    assert events(fed(frozen(open_before=8, open_after=20)), "evidence-late") == []


def test_an_operation_that_stays_open_when_its_host_goes_on_is_told_when_it_has_had_its_time() -> None:
    store = Store()
    for row in singly(frozen(open_before=8, open_after=40).rows):
        store.feed(row)
    assert events(store, "evidence-late") == [("opened", ("process", Q), 221), ("closed", ("process", Q), 240)]
    one = the(store, "evidence-late")
    since = one.evidence["since"]
    assert one.message == f"process {Q} of run run is known as of 211 s ago, since when an operation of it is open"
    assert dict(one.evidence) == {
        "process": Q,
        "host": number("committer one"),
        "hold": "operation",
        "since": since,
        "behind_s": (one.at - since) / 1e6,
    }
    assert (one.decidable - since) / 1e6 == pytest.approx(30 + 181, abs=0.5)


def behind_in_a_backlog(*, goes_on: bool) -> Store:
    """One step brings a minute of one host. The other one was killed meanwhile, or its clock is 40 s behind."""
    h = Hosts(one=("w", "observer", "r"), two=("s",))
    h.assign("r")
    h.assign("s")
    i = traffic(h, 20)
    backlog = len(h.rows)
    i = traffic(h, 5, first=i)
    if not goes_on:
        h.silent.add("two")
    i = traffic(h, 55, first=i, reads="r")
    live = len(h.rows)
    traffic(h, 40, first=i, reads="r")
    if goes_on:
        for row in h.rows[backlog:]:
            if row.process == number("committer two"):
                row.invoked, row.completed = (at - timedelta(seconds=40) for at in (row.invoked, row.completed))
                row.marks = [mark._replace(through=mark.through - timedelta(seconds=40)) for mark in row.marks]
    store = Store()
    for rows in (h.rows[:backlog], h.rows[backlog:live], *([row] for row in h.rows[live:])):
        store.feed(rows)
    return store


def test_a_host_that_was_killed_is_not_taken_for_one_whose_clock_is_behind() -> None:
    """While a backlog is read it is behind all at once: whether it goes on is known later."""
    one = the(behind_in_a_backlog(goes_on=False), "evidence-late")
    of = f"the host of committer {number('committer two')}"
    assert one.evidence["hold"] == "host"
    assert one.message == f"nothing has come of {of} for 86 s, nor what 1 processes did there"
    one = the(behind_in_a_backlog(goes_on=True), "evidence-late")
    assert one.evidence["hold"] == "clock"
    assert one.message.startswith(f"{of} is 40 s behind the host of committer {number('committer one')}, by either's")


def test_a_host_whose_clock_is_behind_and_that_goes_down_is_told_as_that() -> None:
    """The condition is the same one, and is opened once more with what is true by then."""
    h = Hosts()
    a_clock_is_behind(h)
    h.silent.add("two")
    traffic(h, 60, first=60, reads="r")
    store = row_by_row(h, 6)
    told = whole(store, {"evidence-late"})
    assert [(one.subject, one.event, one.evidence["hold"]) for one in told] == [
        (("host", number("committer two")), "opened", hold) for hold in ("clock", "host")
    ]
    of = f"the host of run west (committer {number('committer two')})"
    assert told[1].message == f"nothing has come of {of} for 71 s, nor what 2 processes did there"
    assert len({one.id for one in store.findings if one.anomaly == "evidence-late"}) == 1


@pytest.mark.parametrize(("right", "told"), [(20, 1), (10, 2)])
def test_clocks_that_are_half_a_minute_apart_do_not_come_and_go(right: int, told: int) -> None:
    """The one is behind by 31 s, or by less for some seconds out of twenty; then it is set right."""
    h = Hosts(one=("w", "observer", "r"), two=("s", "q"))
    h.start("q")
    h.assign("r")
    h.assign("s")
    traffic(h, 100, reads="r")
    for row in h.rows:
        if row.process in (number("s"), number("q"), number("committer two")):
            second = (row.completed - h.at(0)).total_seconds()
            behind = timedelta(seconds=0 if second > 90 else right if 50 < second <= 60 else 31)
            row.invoked, row.completed = row.invoked - behind, row.completed - behind
            row.marks = [mark._replace(through=mark.through - behind) for mark in row.marks]
    said = events(row_by_row(h), "evidence-late")
    subject = ("host", number("committer two"))
    assert [one[:2] for one in said] == [("opened", subject), ("closed", subject)] * told


def all_is_well(h: Hosts) -> None:
    h.assign("r")
    h.start("q")
    traffic(h, 80, reads="r")


def open_for_a_while(h: Hosts) -> None:
    h.assign("r")
    h.start("q")
    i = traffic(h, 10, reads="r")
    h.open["q"] = h.time
    i = traffic(h, 28, first=i, reads="r")
    del h.open["q"]
    traffic(h, 60, first=i, reads="r")


def a_host_is_away_for_a_while(h: Hosts) -> None:
    h.hosts = {"one": ("w", "observer", "r"), "two": ("s", "q")}
    h.assign("r")
    h.start("q")
    i = traffic(h, 10, reads="r")
    h.silent.add("two")
    i = traffic(h, 25, first=i, reads="r")
    h.silent.clear()
    traffic(h, 40, first=i, reads="r")


def everybody_is_away(h: Hosts) -> None:
    """The only host, and it comes back: nobody was ahead of it, and whether rows come at all is watched elsewhere."""
    h.assign("r")
    i = traffic(h, 10, reads="r")
    h.time += 600.0
    traffic(h, 10, first=i, reads="r")


def it_has_closed(h: Hosts) -> None:
    h.assign("r")
    h.start("q")
    i = traffic(h, 10, reads="r")
    h.row("q", "close")
    i = traffic(h, 3, first=i, reads="r")
    h.unheard.add("q")
    traffic(h, 60, first=i, reads="r")


@FEEDS
@pytest.mark.parametrize(
    "build", [all_is_well, open_for_a_while, a_host_is_away_for_a_while, everybody_is_away, it_has_closed]
)
def test_nobody_is_late(build: Callable[[Hosts], None], fed: Callable[[History], Store]) -> None:
    h = Hosts()
    build(h)
    assert events(fed(h), "evidence-late") == []


def late_reader(h: Hosts, *, reads: bool) -> None:
    """The host of `r` is away for a minute; its rows come later, and say what it did meanwhile."""
    h.hosts = {"one": ("w", "observer", "s"), "two": ("r",)}
    h.assign("r")
    h.assign("s")
    i = traffic(h, 10)
    first = len(h.rows)
    i = traffic(h, 60, first=i, reads="rs" if reads else "s")
    late = [row for row in h.rows[first:] if row.process in (R, number("committer two"))]
    h.rows = without(h.rows, late) + late
    if not reads:
        h.poll("r", [("w", 10, 60, 10)])
    traffic(h, 5, first=i)


def test_a_reader_whose_log_is_late_is_not_stuck_before_its_log_is_there() -> None:
    h = Hosts()
    late_reader(h, reads=True)
    assert events(row_by_row(h), "stuck-consumer") == []


def test_a_reader_whose_log_is_late_was_stuck_where_that_says_so() -> None:
    """It is told when its log comes, with the time at which it was."""
    h = Hosts()
    late_reader(h, reads=False)
    assert events(row_by_row(h), "stuck-consumer") == [("opened", (R,), 41), ("closed", (R,), 71)]
    on_time = Hosts()
    late_reader(on_time, reads=False)
    on_time.rows.sort(key=lambda row: row.completed)
    assert events(row_by_row(on_time), "stuck-consumer") == [("opened", (R,), 41), ("closed", (R,), 71)]


def test_readers_wait_for_the_observer_s_log_which_says_what_they_may_read() -> None:
    """Its host is away for a minute: the reader had stopped, and what there was to read is told later."""
    h = Hosts(one=("w", "s", "r"), two=("observer",))
    h.assign("r")
    h.assign("s")
    i = traffic(h, 10)
    first = len(h.rows)
    i = traffic(h, 60, first=i, reads="s")
    late = [row for row in h.rows[first:] if row.process in (number("observer"), number("committer two"))]
    h.rows = without(h.rows, late) + late
    traffic(h, 3, first=i, reads="s")
    assert events(row_by_row(h), "stuck-consumer") == [("opened", (R,), 41)]


def a_host_comes_back(h: Hosts, seconds: int, *, reads: str) -> None:
    """An observer of another host is silent for so long, and all that it did comes with the next mark. What readers do
    meanwhile waits for it."""
    h.hosts = {"one": ("w", "observer", "r", "s"), "two": ("watcher",)}
    h.assign("r")
    h.assign("s")
    i = traffic(h, 10)
    h.row("watcher", "offsets", log_start=0, log_end=i, last_stable=i)
    h.second()
    h.silent.add("two")
    for n in range(seconds):
        i = traffic(h, 1, first=i, reads="rs" if n < 20 else reads)
    h.row("watcher", "offsets", log_start=0, log_end=i, last_stable=i)
    h.silent.clear()
    h.second()
    traffic(h, 5, first=i, reads=reads)


@pytest.mark.long
@pytest.mark.parametrize("kept", [4096, 8])
def test_readers_went_on_while_what_they_did_waited_for_a_host(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """More than is kept: it is what waited longest that is not waited for any more."""
    monkeypatch.setattr("rules.checks.conditions.stuck_consumers.WAITING_KEPT", kept)
    h = Hosts()
    a_host_comes_back(h, 200, reads="rs")
    assert events(row_by_row(h), "stuck-consumer") == []


@pytest.mark.long
@pytest.mark.parametrize("kept", [4096, 8])
def test_one_that_stopped_meanwhile_is_found(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr("rules.checks.conditions.stuck_consumers.WAITING_KEPT", kept)
    h = Hosts()
    a_host_comes_back(h, 200, reads="s")
    assert [event[:2] for event in events(row_by_row(h), "stuck-consumer")] == [("opened", (R,))]
