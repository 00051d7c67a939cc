"""Registers on a real broker: what clients are told is checked as everything else is, and a stale client is found."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaError

from probes.clock import SystemClock
from probes.kafka.errors import Crash, ProbeError
from probes.log.life_log import random_id
from probes.records.register_copy import ACTIONS, AwaitedOperation, Copy, Entry, decode
from probes.records.tag import Tag
from probes.topology import Partition
from probes.workloads.registers import Registers
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Mark, RegisterAction, Slice
from tests.known import known
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.test_reader import Fetched, Handing
from tests.rules.histories import Store

HERE: Partition = ("registers", 0)


def tags(*entries: Entry, first: int = 0, writer: int = 1) -> list[tuple[int, Tag | None]]:
    return [
        (first + i, Tag("run", writer, first + i, *HERE, 0, payload=entry.encode())) for i, entry in enumerate(entries)
    ]


def copy(at: int = 0) -> Copy:
    made = Copy()
    made.begin(HERE, at)
    return made


@pytest.mark.parametrize("action", ACTIONS)
def test_an_entry_is_read_back(action: RegisterAction) -> None:
    entry = Entry(action, 7, 2**63 - 1, 5)
    assert decode(entry.encode()) == entry
    assert decode(entry.encode()[:-1]) is decode(None) is decode(b"\x03" + entry.encode()[1:]) is None


def test_the_log_decides_which_cas_is_accepted() -> None:
    one = copy()
    one.apply(HERE, tags(Entry("cas", 7, 5, 0), Entry("cas", 7, 6, 0), Entry("read", 7), Entry("write", 8, 9)), 4)
    assert (one.holds(HERE, 7), one.holds(HERE, 8), one.holds(HERE, 9)) == (5, 9, 0)


def test_what_was_before_the_beginning_is_unknown_until_a_write() -> None:
    one = copy(at=10)
    one.apply(HERE, tags(Entry("cas", 7, 5, 0), first=10), 11)
    assert one.holds(HERE, 7) is None
    one.apply(HERE, tags(Entry("write", 7, 6), Entry("cas", 7, 8, 6), first=11), 13)
    assert one.holds(HERE, 7) == 8
    one.forget(HERE)
    assert one.holds(HERE, 7) is None


def test_a_read_is_answered_as_of_its_own_record() -> None:
    one = copy()
    asked = AwaitedOperation(HERE, 7, 1, 1, 1)
    one.ask(asked)
    one.apply(HERE, tags(Entry("cas", 7, 5, 0), Entry("read", 7), Entry("cas", 7, 6, 5)), 3)
    assert (asked.answered, asked.applied, asked.held, one.holds(HERE, 7)) == (True, True, 5, 6)


def test_a_copy_that_passed_the_acknowledged_offset_answers_without_the_record() -> None:
    one = copy()
    asked = AwaitedOperation(HERE, 7, 99, 0, 1)
    one.ask(asked)
    one.apply(HERE, tags(Entry("cas", 7, 5, 0)), 1)
    assert not asked.answered
    one.apply(HERE, tags(Entry("cas", 7, 6, 5), first=2), 3)
    assert (asked.answered, asked.applied, asked.held) == (True, False, 5)


class Stale(Registers):
    """A client that forgets to apply what it reads, from the moment it is told to."""

    stale = False

    def _apply(self, messages: list[Any], polled: Any) -> None:
        if not self.stale:
            super()._apply(messages, polled)
            return
        for where, part in polled.items():
            self.copy.apply(where, [], part.next)


def work(clients: Iterable[Registers], enough: Callable[[], bool]) -> None:
    """Let the clients work at once, each in a thread, until they have done enough."""
    done = threading.Event()
    problems: list[BaseException] = []

    def run(client: Registers) -> None:
        try:
            while not done.is_set():
                client.turn()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + 180
    while not enough() and not problems and time.monotonic() < limit:
        time.sleep(0.1)
    done.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert problems == []
    assert enough()


def did(client: Registers) -> int:
    """How many operations it has made."""
    return len(witness(client).of("register"))


def each(clients: Iterable[Registers], more: int) -> Callable[[], bool]:
    """Each of them has made so many more operations than it had."""
    wanted = [(client, did(client) + more) for client in clients]
    return lambda: all(did(client) >= number for client, number in wanted)


def checked(one: Stage, clients: Iterable[Registers], *, finished: bool) -> list[Finding]:
    """The findings in everything that these clients logged; live, with marks until a minute later."""
    rows = [row for client in clients for row in one.read_journal(client)]
    end = max(row.completed for row in rows)
    marks = []
    for topic_id, topic, partition in sorted({(row.topic_id, row.topic, row.partition) for row in rows}):
        mine = [row for row in rows if (row.topic_id, row.partition) == (topic_id, partition)]
        counts = Counter(row.process for row in mine)
        for number in range(60):
            at = end + timedelta(seconds=number)
            marks.append(
                Slice(
                    cluster=mine[0].cluster,
                    topic_id=topic_id,
                    topic=topic,
                    partition=partition,
                    run="run-a",
                    process=9,
                    op=number,
                    slice=number,
                    f="mark",
                    type="ok",
                    invoked=at,
                    completed=at,
                    marks=[Mark(process, count, at) for process, count in counts.items()],
                )
            )
    store = Store()
    store.feed(rows + marks, finished=finished)
    return [f for f in store.findings if CATALOGUE[f.anomaly].kind == "violation"]


def put(one: Stage, count: int, make: type[Registers] = Registers) -> list[Registers]:
    return [one.put(make, f"client-{random_id():x}") for _ in range(count)]


BUSY = {"registers": {"count": 4, "registers": 2, "rate": 200, "catch_up_within": 120}}


def overlapping(ops: Iterable[Slice]) -> int:
    """How many operations began while the one before, on the same register, was under way."""
    of_one = sorted(ops, key=lambda row: (row.registers[0].register, known(row.mono_invoked)))
    return sum(
        a.registers[0].register == b.registers[0].register and known(b.mono_invoked) < known(a.mono_completed)
        for a, b in pairwise(of_one)
    )


def test_several_clients_agree_on_a_healthy_broker(stage: MakeStage) -> None:
    one = stage(**BUSY)
    clients = put(one, 4)

    def made() -> list[Slice]:
        return [row for client in clients for row in witness(client).of("register")]

    def kinds() -> Counter[tuple[str, str]]:
        return Counter((row.registers[0].action, row.type) for row in made())

    def enough() -> bool:
        ops = kinds()
        return (
            ops.total() > 200
            and ops["cas", "ok"] > 50
            and ops["cas", "fail"] > 10
            and ops["read", "ok"] > 0
            and ops["write", "ok"] > 0
            and overlapping(made()) > 50
        )

    work(clients[:2], each(clients[:2], 50))
    work(clients, enough)
    one.end()
    assert not any(type == "info" for _, type in kinds())
    for finished in (False, True):
        assert checked(one, clients, finished=finished) == []


def test_where_its_topic_is_away_it_says_so(stage: MakeStage) -> None:
    one = stage(**BUSY)
    name = one.config.topics.registers
    one.layout = replace(one.layout, topics=tuple(topic for topic in one.layout.topics if topic.name != name))
    with pytest.raises(ProbeError, match=f"^topic {name} is not there$"):
        put(one, 1)


def test_an_operation_logs_its_send_its_polls_and_itself(stage: MakeStage) -> None:
    one = stage(**BUSY)
    (client,) = put(one, 1)
    where, register = client.registers[0]
    assert client.operate(where, Entry("cas", register, 5, 0)) == "ok"
    assert client.operate(where, Entry("cas", register, 6, 0)) == "fail"
    assert client.operate(where, Entry("read", register)) == "ok"
    cas, refused, read = witness(client).of("register")
    assert [(row.type, row.registers[0].observed) for row in (cas, refused, read)] == [
        ("ok", None),
        ("fail", 5),
        ("ok", 5),
    ]
    sends = witness(client).of("send")
    assert [[run.offset for run in row.sent] for row in sends] == [[0], [1], [2]]
    assert [run for row in witness(client).of("poll") for run in row.polled] == [
        run for row in sends for run in row.sent
    ]
    assert all(
        known(row.mono_invoked) <= known(send.mono_invoked)
        for row, send in zip((cas, refused, read), sends, strict=True)
    )
    assert known(read.mono_completed) >= known(witness(client).of("poll")[-1].mono_completed)


def test_what_a_broker_says_in_place_of_records_is_logged(stage: MakeStage) -> None:
    one = stage(**BUSY)
    (client,) = put(one, 1)
    real, target = client._consumer, client._targets[0]
    refused, down = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), KafkaError(KafkaError._ALL_BROKERS_DOWN)
    client._consumer = Handing(Fetched(target, 0, None, refused), Fetched((target[0], -1), 0, None, down))
    client.poll(0.1)
    told = [(row.topic, row.partition, row.type, row.error) for row in witness(client).of("poll")]
    assert told == [
        (*target, "info", "TOPIC_AUTHORIZATION_FAILED"),
        *((*where, "info", "_ALL_BROKERS_DOWN") for where in client._targets),
    ]
    client._consumer = real


def test_a_client_of_unknown_fate_accuses_nobody_and_its_successor_writes_anew(stage: MakeStage) -> None:
    one = stage(**BUSY)
    first, other = put(one, 2)
    where, register = first.registers[0]
    assert first.operate(where, Entry("cas", register, 5, 0)) == "ok"
    with pytest.raises(Crash):
        first.operate(where, Entry("cas", register, 6, 5), crash=True)
    first.close()
    first.log.end("info", "crash")
    (second,) = put(one, 1)
    assert second.copy.holds(where, register) is None

    def on_it() -> list[str]:
        rows = witness(second).of("register")
        return [row.registers[0].action for row in rows if row.registers[0].register == register]

    while not on_it():  # alone: what the other writes would tell it
        second.turn()
    work([second, other], each([second, other], 50))
    one.end()
    assert on_it()[0] == "write"
    assert [row.type for row in one.read_journal(first) if row.f == "register"] == ["ok", "info"]
    for finished in (False, True):
        assert checked(one, [first, second, other], finished=finished) == []


def test_a_stale_client_is_found(stage: MakeStage) -> None:
    one = stage(**BUSY)
    clients = put(one, 2)
    (stale,) = put(one, 1, Stale)
    work([*clients, stale], each([*clients, stale], 50))
    stale.stale = True  # type: ignore[attr-defined]
    work([*clients, stale], each([*clients, stale], 100))
    one.end()
    for finished in (False, True):
        found = checked(one, [*clients, stale], finished=finished)
        assert {f.anomaly for f in found} == {"nonlinearizable-register"}
        assert {f.subject[1] for f in found} == {stale.process}
        # By which way it is proven depends on how the three clients came to each other's turns.
        assert {f.evidence["reason"] for f in found} <= {"stale", "never-written", "two-orders"}


def test_a_boot_has_registers_of_its_own(stage: MakeStage) -> None:
    one = stage(**BUSY)
    before = put(one, 2)
    one.clock = SystemClock(boot="another")
    (after,) = put(one, 1)
    assert before[0].registers == before[1].registers
    assert len({register for probe in (before[0], after) for _, register in probe.registers}) == 4
