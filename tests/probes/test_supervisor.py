"""The supervisor, with probes that misbehave in every way a client can: no cluster is needed to see what it does."""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from monitor.process.program_log import configure
from probes.clock import Going, SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.kafka.errors import ClientError, Crash
from probes.log.commits.recovery import recover_life
from probes.log.errors import JournalUnwritable
from probes.log.journals import journal
from probes.log.journals.differences import messages_of
from probes.log.journals.frames import frames
from probes.log.journals.segments import is_held, life_folders, segments
from probes.log.rows import AT
from probes.running.supervisor import Keeper, Spec, Supervisor
from probes.topology import Layout, Topic
from probes.workloads.probe import Probe, World
from rules.vocabulary.slices import FORMER_TOPIC_ID, UNWRITABLE, Run
from rules.vocabulary.times import micros
from tests.known import known
from tests.probes.log.lives import wait_for

LAYOUT = Layout("cluster", (Topic("t", "id-1", 2),))
SLOW = 600.0
"""Longer than any test waits."""


class Scripted(Probe):
    """Does what its script says, and notes what happened. `script` is by life: 1, 2, ..."""

    kind: ClassVar[str] = "reader"

    def __init__(self, *args: Any, diary: Diary, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.diary, diary.newest = diary, self
        self.life_number = self.counters.lives

    def settings(self) -> Mapping[str, str]:
        return {"client.id": self.name, "sasl.password": "hush"}

    def _do(self, what: str) -> None:
        self.diary.note(self.name, self.life_number, what)
        self.diary.script.get((self.life_number, what), lambda: None)()

    def open(self) -> None:
        self._do("open")

    def turn(self) -> None:
        self._do("turn")
        self.pause(0.02)

    def finish(self) -> None:
        self._do("finish")

    def close(self) -> None:
        self._do("close")


class Sender(Scripted):
    kind: ClassVar[str] = "writer"


class Watcher(Scripted):
    kind: ClassVar[str] = "observer"


class Diary:
    def __init__(self) -> None:
        self.script: dict[tuple[int, str], Callable[[], object]] = {}
        self.notes: list[tuple[str, int, str]] = []
        self.newest: Scripted
        self._lock = threading.Lock()

    def note(self, name: str, life: int, what: str) -> None:
        with self._lock:
            if self.notes[-1:] != [(name, life, what)]:
                self.notes.append((name, life, what))

    def did(self, life: int, what: str) -> bool:
        return any(note[1:] == (life, what) for note in self.notes)

    def of(self, what: str) -> list[str]:
        return [name for name, _, did in self.notes if did == what]


class Running:
    def __init__(self, folder: Path) -> None:
        self.folder, self.diary, self.layout, self.clock = folder, Diary(), LAYOUT, SystemClock()
        self.login = {"sasl.password": "old"}
        self._supervisor: Supervisor | None = None

    @property
    def supervisor(self) -> Supervisor:
        return known(self._supervisor)

    def start(self, *kinds: type[Scripted], journal_max_gb: float | None = None, **supervision: Any) -> None:
        limits = {"backoff": 0.05, "close_within": 60, "stuck_after": 60, **supervision}
        config = ProbesConfig.model_validate({"supervision": limits, "journal_max_gb": journal_max_gb})
        connection = Connection("x:1", lambda: dict(self.login))
        world = World(config, connection, self.clock, "run-a", frozenset({"run-a"}), lambda: self.layout)
        specs = [Spec(kind.__name__.lower(), kind, (("diary", self.diary),)) for kind in kinds or (Scripted,)]
        self._supervisor = Supervisor(specs, world, self.folder)
        self.supervisor.start()

    def until(self, life: int, what: str) -> None:
        wait_for(lambda: self.diary.did(life, what), 180)

    def stop(self) -> None:
        self.supervisor.stop()

    def _lives(self) -> Iterator[tuple[list[Any], list[list[Any]]]]:
        """Of each life, the messages and the rows in its journal."""
        for folder in sorted(life_folders(self.folder), key=lambda path: path.stat().st_ctime):
            data = b"".join(path.read_bytes() for _, path in segments(folder))
            messages = list(messages_of(frames(data)[0]))
            yield messages, [row + [None] * 40 for message in messages if message[0] == "rows" for row in message[1]]
            assert not is_held(folder)

    def beginnings(self) -> list[tuple[str, int, str | None]]:
        """(topic id, partition, id of the topic before) of all start rows."""
        started = [row for _, rows in self._lives() for row in rows if row[AT["f"]] == "start"]
        places = [(row[AT["topic_id"]], row[AT["partition"]]) for row in started]
        former = [dict(row[AT["settings"]] or {}).get(FORMER_TOPIC_ID) for row in started]
        return sorted((*place, one) for place, one in zip(places, former, strict=True))

    def endings(self) -> list[tuple[str, str | None]]:
        """How each life's log ends: (type, error) of its close rows; every life must have one for each partition."""
        found: list[tuple[str, str | None]] = []
        for messages, rows in self._lives():
            closes = {(row[AT["type"]], row[AT["error"]]) for row in rows if row[AT["f"]] == "close"}
            assert len([row for row in rows if row[AT["f"]] == "close"]) == 2
            assert messages[-1][0] == "closed"
            found.extend(closes)
        return found


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    one = Running(tmp_path / "journal")
    yield one
    one.stop()


def fail(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def test_a_quiet_life_opens_turns_finishes_and_closes(running: Running) -> None:
    running.start()
    running.until(1, "turn")
    running.stop()
    assert [what for _, _, what in running.diary.notes] == ["open", "turn", "finish", "close"]
    assert running.endings() == [("ok", None)]
    assert running.supervisor.status()[0].state == "stopped"


@pytest.mark.parametrize("stored", [False, True])
def test_nothing_holds_the_clients_of_a_life_that_has_failed(running: Running, stored: bool) -> None:
    """They would go on asking by the login that they were given. An error holds the frames that it came through."""
    kept: list[weakref.ref[Probe]] = []

    def refuse() -> None:
        kept.append(weakref.ref(running.diary.newest))
        error = ClientError("_AUTHENTICATION", "no")
        if stored:
            running.diary.newest._refusal = 0, error
        raise error from ValueError("what it follows from")

    running.diary.script = {(1, "turn"): refuse}
    running.start()
    running.until(2, "turn")
    wait_for(lambda: kept[0]() is None, 60)


@pytest.mark.parametrize("where", ["open", "turn"])
def test_a_failed_client_is_closed_and_opened_anew_as_a_new_life(running: Running, where: str) -> None:
    running.diary.script = {(1, where): fail(ClientError("_TRANSPORT", "gone"))}
    running.start()
    running.until(2, "turn")
    assert running.diary.did(1, "close")
    running.stop()
    assert sorted(running.endings(), key=str) == [("info", "_TRANSPORT"), ("ok", None)]
    counters = running.supervisor.status()[0]
    assert (counters.lives, counters.errors, counters.last_error) == (2, 1, "gone (_TRANSPORT)")


@pytest.mark.parametrize(
    ("beside", "code", "told"),
    [
        ("_AUTHENTICATION", "_TIMED_OUT", "_AUTHENTICATION"),
        ("_SSL", "_ALL_BROKERS_DOWN", "_SSL"),
        ("_AUTHENTICATION", "NOT_COORDINATOR", "NOT_COORDINATOR"),  # somebody answered
        ("_TRANSPORT", "_TIMED_OUT", "_TIMED_OUT"),
    ],
)
def test_a_life_that_nobody_answers_ends_by_the_login_that_is_refused(
    running: Running, beside: str, code: str, told: str
) -> None:
    def trouble() -> None:
        running.diary.newest.on_error(ClientError(beside, "told beside"))
        raise ClientError(code, "the call failed")

    running.diary.script = {(1, "turn"): trouble}
    running.start()
    running.until(2, "turn")
    running.stop()
    assert sorted(running.endings(), key=str) == [("info", told), ("ok", None)]


def test_a_client_whose_login_is_refused_and_has_been_changed_is_opened_anew(running: Running) -> None:
    """It would go on with the one that it was given when it was opened. While that is all there is, it goes on."""

    def refuse() -> None:
        running.diary.newest.on_error(ClientError("_AUTHENTICATION", "no"))

    running.diary.script = {(1, "turn"): refuse, (2, "turn"): lambda: None}
    running.start()
    running.until(1, "turn")
    time.sleep(0.5)
    assert not running.diary.did(2, "open")
    running.login["sasl.password"] = "new"
    running.diary.newest._looked_at_login = 0
    running.until(2, "turn")  # without having been refused once more: others of its clients have come in since
    running.stop()
    assert sorted(running.endings(), key=str) == [("info", "_AUTHENTICATION"), ("ok", None)]


def test_even_an_error_of_our_own_does_not_end_a_probe(running: Running) -> None:
    running.diary.script = {(1, "turn"): fail(ZeroDivisionError("a mistake"))}
    running.start()
    running.until(2, "turn")


def test_failures_are_followed_by_longer_and_longer_waits_and_a_limit(running: Running) -> None:
    running.start(backoff=1.0, backoff_limit=8.0)
    keeper: Keeper = running.supervisor.keepers[0]
    for failures, least, most in [(0, 0, 0), (1, 0.5, 1.5), (2, 1, 3), (3, 2, 6), (4, 4, 12), (30, 4, 12)]:
        waits = [keeper._wait_after(failures) for _ in range(50)]
        assert least <= min(waits) <= max(waits) <= most
        assert failures == 0 or len(set(waits)) > 1, "with jitter"


@pytest.mark.parametrize("how", ["crash", "stuck"])
def test_what_a_life_has_sent_and_not_heard_of_is_counted_when_it_ends(running: Running, how: str) -> None:
    """It is `info` in the log: whoever reads the last line has to find as much."""
    released = threading.Event()

    def send() -> None:
        probe = running.diary.newest
        op, now = probe.log.next_op(), probe.log.now()
        probe.log.opened(op, [probe.log.row(("t", 0), "txn", "info", op, now)])
        probe.counters.sent += 7
        if how == "crash":
            raise Crash("on purpose")
        released.wait(SLOW)

    running.diary.script = {(1, "turn"): send}
    running.start(stuck_after=60 if how == "crash" else 1)
    running.until(2, "turn")
    counters = running.supervisor.status()[0]
    released.set()
    assert (counters.sent, counters.indefinite, counters.transactions_indefinite) == (7, 7, 1)


def test_what_any_probe_hears_of_its_writes_is_known_to_the_observer(running: Running) -> None:
    """Its broker is slow then, and not silent."""

    def send() -> None:
        probe = running.diary.newest
        op, now = probe.log.next_op(), probe.log.now()
        probe.log.append([probe.log.row(("t", 0), "send", "ok", op, now, probe.log.now(), sent=[Run(7, 0, 3, 1)])])

    running.diary.script = {(1, "turn"): send}
    running.start(Sender)
    running.until(1, "turn")
    wait_for(running.diary.newest.world.acknowledged.newest, 30)
    running.stop()
    assert list(running.diary.newest.world.acknowledged.newest()) == [("t", 0)]


def test_a_crash_is_not_closed_and_the_next_life_begins_at_once(running: Running) -> None:
    running.diary.script = {(1, "turn"): fail(Crash("on purpose"))}
    running.start(backoff=SLOW, backoff_limit=SLOW)
    running.until(2, "turn")
    running.stop()
    assert not running.diary.did(1, "close")
    assert sorted(running.endings(), key=str) == [("info", "_CRASHED"), ("ok", None)]


def test_who_could_not_be_heard_is_not_abandoned(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stood still, as by SIGSTOP: its probes have shown no sign for an hour, and have an interval from the
    moment at which it went on."""
    wedge = threading.Event()
    running.diary.script = {(1, "turn"): lambda: wedge.wait(SLOW)}
    began, stood = time.monotonic(), [0.0]
    monkeypatch.setattr("probes.running.supervisor.Going", lambda: Going(lambda: time.monotonic() + stood[0]))
    running.start(stuck_after=60)
    running.until(1, "turn")
    stood[0] = 3600.0
    time.sleep(2)
    assert not running.diary.did(2, "turn"), "nobody could show a sign"
    wedge.set()
    running.stop()
    assert time.monotonic() - began < 60
    assert running.endings() == [("ok", None)]


def test_a_standstill_is_where_nobody_looked() -> None:
    now = [100.0]
    going = Going(lambda: now[0])
    assert going.unheard(90.0) == 10.0, "who was silent before is still"
    for now[0] in (101.0, 102.0, 105.0):
        going.look()
    assert going.unheard(90.0) == 15.0
    now[0] = 500.0
    going.look()
    assert going.unheard(90.0) == 0.0
    now[0] = 503.0
    going.look()
    assert going.unheard(90.0) == 3.0 and going.unheard(502.0) == 1.0


@pytest.mark.parametrize("where", ["open", "turn"])
def test_a_probe_that_does_not_return_is_abandoned_for_a_new_life(running: Running, where: str) -> None:
    wedge = threading.Event()
    running.diary.script = {(1, where): lambda: wedge.wait(SLOW)}
    running.start(stuck_after=60)
    running.until(1, where)
    known(running.supervisor.keepers[0]._attempt).sign -= 60  # and so a minute has passed
    running.until(2, "turn")
    running.stop()
    assert sorted(running.endings(), key=str) == [("info", "_STUCK"), ("ok", None)]
    (left,) = [one for one in threading.enumerate() if one.name == "scripted"]
    wedge.set()
    left.join(60)
    assert not left.is_alive()
    assert sorted(running.endings(), key=str) == [("info", "_STUCK"), ("ok", None)], "the old life writes no more"
    assert not running.diary.did(1, "close")


def test_closing_that_does_not_return_is_left_behind(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    wedge = threading.Event()
    running.diary.script = {(1, "close"): lambda: wedge.wait(SLOW)}
    running.start(close_within=0.5)
    running.until(1, "turn")
    running.stop()
    assert "does not end" not in caplog.text, "the probe went on without its client"
    wait_for(lambda: not any(is_held(one) for one in life_folders(running.folder)))
    assert running.endings() == [("info", "_CLOSE_STUCK")]
    wedge.set()


def test_a_close_that_returns_late_says_so_in_a_row_of_its_own_and_the_next_life_does_not_wait(
    running: Running,
) -> None:
    wedge, reached = threading.Event(), {}

    def turn() -> None:
        reached["turn"] = micros(running.clock.now())
        raise ClientError("_TRANSPORT", "gone")

    def close() -> None:
        reached["close"] = micros(running.clock.now())
        wedge.wait(SLOW)

    running.diary.script = {(1, "turn"): turn, (1, "close"): close}
    running.start(close_within=0.5)
    running.until(2, "turn")
    stuck = min(life_folders(running.folder), key=lambda path: path.stat().st_ctime)
    rows = closes(stuck)
    assert {(row["type"], row["error"]) for row in rows} == {("info", "_CLOSE_STUCK")}
    assert all(reached["turn"] <= row["invoked"] <= reached["close"] for row in rows), "since closing began"
    assert all(row["completed"] - row["invoked"] > 400_000 for row in rows)
    wedge.set()
    wait_for(lambda: len(closes(stuck)) >= 4)
    told = [(row["partition"], row["type"], row["error"]) for row in closes(stuck)]
    assert told == [(0, "info", "_CLOSE_STUCK"), (1, "info", "_CLOSE_STUCK"), (0, "ok", None), (1, "ok", None)]
    assert running.diary.did(2, "turn")


def closes(folder: Path) -> list[dict[str, Any]]:
    data = b"".join(path.read_bytes() for _, path in segments(folder))
    messages = list(messages_of(frames(data)[0]))
    rows = [row + [None] * 40 for message in messages if message[0] == "rows" for row in message[1]]
    return [{name: row[AT[name]] for name in AT} for row in rows if row[AT["f"]] == "close"]


def test_writers_stop_first_then_readers_and_the_observer_last(running: Running) -> None:
    first: list[int] = []

    def close() -> None:
        """Whoever closes first sees the others at work."""
        if not first:
            first.append(len(running.diary.notes))
            wait_for(lambda: any(what == "turn" for _, _, what in running.diary.notes[first[0] :]), 20)

    running.diary.script = {(1, "finish"): lambda: time.sleep(0.1), (1, "close"): close}
    running.start(Watcher, Scripted, Sender)
    wait_for(lambda: set(running.diary.of("turn")) == {"watcher", "scripted", "sender"})
    running.stop()
    assert running.diary.of("close") == ["sender", "scripted", "watcher"]
    last_turn = max(i for i, (_, _, what) in enumerate(running.diary.notes) if what == "turn")
    assert running.diary.notes.index(("sender", 1, "close")) < last_turn


def test_a_life_whose_journal_somebody_cuts_ends_and_another_begins(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """It would go on for ever, and nobody could say of anything that it did."""
    running.start()
    running.until(1, "turn")
    (life,) = life_folders(running.folder)
    (path,) = (path for _, path in segments(life))
    os.truncate(path, path.stat().st_size // 2)
    running.until(2, "turn")
    assert running.diary.did(1, "close") and not is_held(life)
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert told == [f"probe scripted: the journal {life} is damaged: it was cut, or taken away"]


def test_other_places_mean_a_new_life(running: Running) -> None:
    running.start()
    running.until(1, "turn")
    running.layout = Layout("cluster", (Topic("t", "id-2", 2, former_id="id-1"),))
    running.until(2, "turn")
    running.stop()
    assert running.endings() == [("ok", None), ("ok", None)]
    assert running.beginnings() == [("id-1", 0, None), ("id-1", 1, None), ("id-2", 0, "id-1"), ("id-2", 1, "id-1")]


def test_an_unusable_journal_folder_is_said_and_tried_again(running: Running) -> None:
    running.folder.write_text("a file")
    running.start()
    wait_for(lambda: running.supervisor.status()[0].errors)
    assert "cannot begin a journal" in (running.supervisor.status()[0].last_error or "")
    running.folder.unlink()
    wait_for(lambda: running.supervisor.status()[0].state == "running", 180)


def test_no_secret_gets_into_the_journal(running: Running) -> None:
    running.start()
    running.until(1, "turn")
    running.stop()
    for path in running.folder.rglob("*"):
        assert path.is_dir() or b"hush" not in path.read_bytes()


def test_the_clients_own_words_are_for_the_log_file(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person reads which probe begins a new life and why, in a line of ours, and of each reason once in a while."""
    configure(file=tmp_path / "probes.log")
    try:
        words = "Failed to commit offsets on broker 127.0.0.1:9092/1: t[0](Broker: old epoch)"
        running.diary.script = {(life, "turn"): fail(ClientError("_FENCED", words)) for life in (1, 2)}
        running.start()
        running.until(3, "turn")
        running.stop()
    finally:
        configure()
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("offsetwatch.probe: ")[2] for line in told] == [
        "probe scripted begins a new life: its client ended by _FENCED"
    ]
    assert (tmp_path / "probes.log").read_text().count(f"probe scripted: {words} (_FENCED)\n") == 2


class Disk:
    """`full`: journals cannot be written. `refused`: how often that was so. `leaves`: so many refusals are the last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.refused, self.leaves = False, 0, 2**62
        real = journal._write_at
        monkeypatch.setattr(journal, "_write_at", lambda *given: self._write(real, *given))

    def _write(self, real: Callable[..., None], *given: Any) -> None:
        if self.full and self.refused < self.leaves:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*given)

    def fill(self) -> None:
        self.full = True


def test_a_life_that_cannot_log_says_so_if_it_can(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.leaves = 1
    running.diary.script = {(1, "turn"): disk.fill}
    running.start()
    running.until(2, "turn")
    running.stop()
    assert sorted(running.endings(), key=str) == [("info", UNWRITABLE), ("ok", None)]


def test_a_life_that_cannot_log_its_end_is_left_to_recovery(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    running.diary.script = {(1, "turn"): disk.fill}
    running.start()
    check_that_it_is_left_to_recovery(running, disk)


def test_also_where_its_client_does_not_return_from_closing(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, wedge = Disk(monkeypatch), threading.Event()

    def close() -> None:
        disk.fill()
        wedge.wait(SLOW)

    running.diary.script = {(1, "turn"): fail(ClientError("_TRANSPORT", "gone")), (1, "close"): close}
    running.start(close_within=0.1)
    check_that_it_is_left_to_recovery(running, disk)
    wedge.set()


def check_that_it_is_left_to_recovery(running: Running, disk: Disk) -> None:
    running.until(1, "turn")
    (life,) = life_folders(running.folder)
    wait_for(lambda: disk.refused > 2)
    wait_for(lambda: not is_held(life), 5)
    disk.full = False
    recovered = recover_life(life, running.clock)
    assert recovered is not None and recovered.outcome == "closed"
    wait_for(lambda: running.supervisor.status()[0].state == "running")


def test_room_on_the_disk_is_used_at_once(running: Running) -> None:
    running.start()
    (keeper,) = running.supervisor.keepers
    for failures in (1, 3, 30):
        assert max(keeper._wait_after(failures, JournalUnwritable) for _ in range(50)) <= 3
    assert max(keeper._wait_after(30, ClientError) for _ in range(50)) > 15
    running.stop()
