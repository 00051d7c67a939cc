"""Clients of lives that are over go, and one that does not go keeps none of the others."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from probes.kafka.client import (
    Connection,
    admin_settings,
    consumer_settings,
    open_admin,
    open_consumer,
    open_producer,
    producer_settings,
)
from probes.kafka.errors import ClientError, Crash
from probes.running.graveyard import Graveyard, taken_from
from probes.workloads.reader import Reader
from tests.probes.conftest import MakeStage, witness
from tests.probes.log.lives import wait_for
from tests.probes.test_consumer_protocol import HEARTBEAT
from tests.probes.test_supervisor import Running, Scripted

log = logging.getLogger("offsetwatch.client")
NOBODY = Connection("127.0.0.1:9")
"""Nobody listens there: the clients are real, and have no cluster."""
LIVES = 12
MAIN = "rdk:main"
"""librdkafka's first thread of each client."""


def clients() -> int:
    """How many clients this process has. A moment later: a thread that has just begun has its parent's name."""
    found = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += (thread / "comm").read_text().strip() == MAIN
    return found


def settled() -> int:
    """The same, once those of earlier tests have gone."""
    gc.collect()
    time.sleep(1.5)
    return clients()


class Clinging(Consumer):  # type: ignore[misc]
    """Its clean-up does not return until it may."""

    may = threading.Event()
    asked = threading.Event()

    def __del__(self) -> None:
        self.asked.set()
        self.may.wait(60)


class Member(Scripted):
    """Holds a consumer that holds it: every life has one of its own."""

    def open(self) -> None:
        settings = consumer_settings(NOBODY, client=self.name, group="g")
        if self.life_number == 1:
            self._consumer: Any = Clinging(settings | {"error_cb": self.on_error, "logger": log})
        else:
            self._consumer = open_consumer(settings, self.on_error)
        super().open()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    Clinging.may.clear()
    Clinging.asked.clear()
    one = Running(tmp_path / "journal")
    yield one
    Clinging.may.set()
    one.stop()


def crash() -> None:
    raise Crash("the client is abandoned")


def crash_after_the_first_has_clung() -> None:
    assert Clinging.asked.wait(60)
    raise Crash("the client is abandoned")


def test_a_client_that_does_not_end_keeps_those_of_no_later_life(running: Running) -> None:
    before = settled()
    endings: list[Callable[[], None]] = [crash, crash_after_the_first_has_clung] + [crash] * (LIVES - 2)
    running.diary.script.update({(life, "turn"): end for life, end in enumerate(endings, 1)})
    running.start(Member)
    running.until(LIVES + 1, "turn")
    assert not Clinging.may.is_set()
    # That of the life that goes on, and the one that clings.
    wait_for(lambda: clients() <= before + 2, 30)


def test_the_clients_of_a_probe_are_taken_from_all_its_parts(running: Running) -> None:
    running.start(Scripted)
    running.until(1, "turn")
    running.stop()
    probe: Any = running.diary.newest
    before = settled()
    consumer = open_consumer(consumer_settings(NOBODY, client="c", group="g"), probe.on_error)
    producer = open_producer(producer_settings(NOBODY, client="p"), probe.on_error)
    admin = open_admin(admin_settings(NOBODY, client="a"), probe.on_error)
    part = _part(probe, consumer)
    probe.a, probe.parts, probe.admin = consumer, {0: part, 1: _part(part, producer)}, admin
    wait_for(lambda: clients() == before + 3, 10)
    taken = taken_from(probe)
    assert sorted(map(id, taken)) == sorted(map(id, (consumer, producer, admin)))
    assert (probe.a, probe.admin, part.held) == (None, None, None)
    del consumer, producer, admin
    gc.disable()
    try:
        taken.clear()  # whoever drops them ends them, with no help of the collector
        wait_for(lambda: clients() == before, 10)
    finally:
        gc.enable()


def _part(owner: Any, held: Any) -> Any:
    """One of the objects of which probes consist."""
    part: Any = type("Part", (), {"__module__": "probes.workloads.part"})()
    part.owner, part.held = owner, held
    return part


def test_what_comes_of_a_client_that_does_not_close_in_time_goes_when_it_has_closed(running: Running) -> None:
    before, go = settled(), threading.Event()

    class Slow(Member):
        def open(self) -> None:
            self.life_number += 1  # no client that clings
            super().open()
            self.life_number -= 1

    def close() -> None:
        go.wait(60)

    def fail() -> None:
        raise ClientError("_FENCED", "no")

    running.diary.script.update({(1, "turn"): fail, (1, "close"): close})
    running.start(Slow, close_within=0.3)
    running.until(2, "turn")
    wait_for(lambda: clients() == before + 2, 10)
    gc.disable()
    try:
        go.set()
        wait_for(lambda: clients() == before + 1, 30)
    finally:
        gc.enable()


def test_a_member_that_was_given_partitions_and_never_asked_for_them_ends(stage: MakeStage) -> None:
    """By the consumer protocol. Dropped as it is, it goes on for ever, and takes a core for it."""
    one = stage(group_protocol="consumer")
    before = settled()
    reader = one.put(Reader, "abandoned", group=f"{one.prefix}-g", mode="subscribe")
    time.sleep(2 * HEARTBEAT + 1)  # it has been told of its assignment, and nobody has polled
    rows = len(witness(reader).of("assign"))
    reader.let_go()
    Graveyard().take(reader)
    wait_for(lambda: clients() == before, 30)
    assert len(witness(reader).of("assign")) == rows
