"""What stands in the probe topics under the run of these probes, before they write anything themselves.

Two things are seen there that no journal tells. **Another fleet** is at work under this run, where a host was cloned or
its journal folder copied while the original goes on: two fleets of one run share groups and transactional ids, each
fences the other and commits what the other never logged, so that a sound cluster seems to break one promise after the
other. And **the journal folder is an older copy of itself**, brought back from a backup or a snapshot: what was sent
since then is not in its journals, and would be taken for what nobody sent.

Who sends is told apart by the journals: they know every writer of their own fleet, and those that live hold theirs.
`look` is made before a fleet begins, and some seconds later once more, as another one may begin in the same moment.

What was sent since a copy was made need not stand at the end of the topics: others may have written there since, and so
may a run that this host began when it was brought back before. So the records that follow on what the folder knows are
looked at too, and some here and there up to the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, TopicPartition

from probes.kafka.client import Connection, admin_settings, consumer_settings, open_admin, open_consumer
from probes.kafka.errors import ProbeError
from probes.kafka.starting_positions import first_since, log_ends
from probes.log.journals.reader import BrokenJournal, LifeReader
from probes.log.journals.segments import OVER, is_held, life_folders, segments
from probes.records.tag import Tag, read
from probes.topology import Layout, Partition

QUIET: Final = 1.5
"""Seconds without a record of another fleet, from the first answer on, after which nobody is taken to write any."""
LONGEST: Final = 8.0
"""Seconds of a look."""
TAIL: Final = 200
"""Records of each partition that are looked at of those that stood there before."""
PLACES: Final = 8
"""Where so many are looked at besides, from the time on through which the journals tell: others may have written since,
another canary or a run of this host that was begun when its folder was brought back before."""
LONGEST_AT_A_PLACE: Final = 2.0
"""Seconds."""
SIGNS: Final = 4
"""Records of one writer, each handed to its client a moment after the one before, and here a moment later too: what a
dead process or an abandoned client had in flight comes all at once, however late it comes."""
MOMENT: Final = 0.2
"""Seconds between two of them, by both clocks."""


class AnotherFleet(ProbeError):
    """Another fleet is at work under this run."""


class Senders:
    """Who sends under the run and is not one of ours: told of records as they arrive."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, int]] = {}
        self._signs: dict[int, int] = {}

    def note(self, writer: int, sent: int, arrived: float) -> bool:
        """Whether this record shows that its writer goes on sending. `sent` is in microseconds, by the writer's clock,
        `arrived` in seconds by ours."""
        if writer in self._last:
            before, handed = self._last[writer]
            if arrived - before < MOMENT or sent - handed < MOMENT * 1e6:
                return False
        self._last[writer] = arrived, sent
        self._signs[writer] = self._signs.get(writer, 0) + 1
        return self._signs[writer] >= SIGNS


class Look:
    """One look at the topics of a run, as its records come. `newest`: when the last of those that stood there was sent,
    by the clock of who sent it (microseconds); 0 for none."""

    def __init__(self, run: str, journal_folder: Path, ends: dict[Partition, int]) -> None:
        self._run, self._folder, self._ends = run, journal_folder, ends
        self._own: set[int] = set()
        self._others: set[int] = set()
        self._senders = Senders()
        self._heard: float | None = None
        self.newest = 0

    def quiet(self) -> float:
        """Seconds since another fleet was heard of, or since the cluster began to answer; 0 until then."""
        return 0.0 if self._heard is None else time.monotonic() - self._heard

    def take(self, messages: Sequence[Any]) -> None:
        """Raises AnotherFleet."""
        if messages and self._heard is None:
            self._heard = time.monotonic()
        for message in messages:
            tag = read(message.value()) if message.error() is None else None
            if tag is None or tag.run != self._run:
                continue
            if message.offset() < self._ends[message.topic(), message.partition()]:
                self.newest = max(self.newest, tag.sent)
            elif self._is_anothers(tag.writer):
                self._hear(tag)

    def _is_anothers(self, writer: int) -> bool:
        if writer not in self._own | self._others:
            self._own = living_writers(self._folder)
            self._others |= {writer} - self._own
        return writer in self._others

    def _hear(self, tag: Tag) -> None:
        self._heard = time.monotonic()
        if self._senders.note(tag.writer, tag.sent, self._heard):
            raise AnotherFleet(
                f"another fleet is at work under this run: records of run {self._run} arrive that no probe of "
                f"{self._folder} sends. A copy of a journal folder takes part in the original's groups and "
                "transactions: stop one of the two, or move this folder away, so that its probes begin a run of their "
                "own"
            )


@dataclass(frozen=True, slots=True)
class Looker:
    """Who looks: a fleet with this run and folder. `client`: what it calls itself, also as its group, in which it
    commits nothing. `known_through`: until when the folder tells what was sent (microseconds); 0 where nobody asks for
    more than what goes on now."""

    run: str
    journal_folder: Path
    client: str
    known_through: int = 0


def look(connection: Connection, looker: Looker, layout: Layout, stopping: Callable[[], bool]) -> int:
    """When the newest record of the run that stands there was sent, as `Look.newest` has it, of those that are looked
    at; of those that the folder does not know any one will do. Raises AnotherFleet where records of the run arrive that
    no life of this journal folder sends, and ClientError where no client can be had.

    Takes `QUIET` seconds where nobody else writes, and `LONGEST` where nobody answers; more only where there is what
    was sent later than the folder knows. What has no leader is not looked at."""
    admin = open_admin(admin_settings(connection, client=looker.client))
    ends = log_ends(admin, layout.partitions(), IsolationLevel.READ_UNCOMMITTED)
    settings = consumer_settings(
        connection, client=looker.client, group=looker.client, isolation="read_uncommitted", prompt=True
    )
    # That a partition ends here is an answer, too.
    consumer = open_consumer(settings | {"enable.partition.eof": "true"}, lambda error: None)
    one = Look(looker.run, looker.journal_folder, ends)
    try:
        begin = [TopicPartition(topic, partition, max(end - TAIL, 0)) for (topic, partition), end in ends.items()]
        consumer.assign(begin)
        until = time.monotonic() + LONGEST
        while one.quiet() < QUIET and time.monotonic() < until and not stopping():
            one.take(consumer.consume(1_000, MOMENT / 2))
        if looker.known_through and one.newest <= looker.known_through:
            begins = first_since(admin, ends, looker.known_through)
            for place in range(PLACES):
                if one.newest <= looker.known_through and not stopping():
                    _look_at(consumer, one, _places(begins, ends, place))
    finally:
        consumer.close()
    return one.newest


def _places(begins: dict[Partition, int], ends: dict[Partition, int], place: int) -> dict[Partition, int]:
    """Where the records begin that are looked at in turn `place` of `PLACES`, from each beginning on: none where all of
    them have been."""
    beyond = {where: ends[where] - TAIL - begin for where, begin in begins.items()}
    return {where: begins[where] + more * place // PLACES for where, more in beyond.items() if more > 0}


def _look_at(consumer: Consumer, one: Look, places: dict[Partition, int]) -> None:
    left = dict.fromkeys(places, TAIL)
    consumer.assign([TopicPartition(*where, offset) for where, offset in places.items()])
    until = time.monotonic() + LONGEST_AT_A_PLACE
    while any(more > 0 for more in left.values()) and time.monotonic() < until:
        messages = consumer.consume(1_000, MOMENT / 2)
        one.take(messages)
        for message in messages:
            where = message.topic(), message.partition()
            left[where] = left.get(where, 0) - 1 if message.error() is None else 0  # it ends here


def living_writers(journal_folder: Path) -> set[int]:
    """The writers of this folder's lives whose processes live."""
    found = set()
    for life_folder in life_folders(journal_folder):
        if (life_folder / OVER).exists() or not is_held(life_folder) or not (parts := segments(life_folder)):
            continue
        try:
            reader = LifeReader(life_folder, parts[-1][0])
        except (BrokenJournal, OSError):
            continue
        if reader.life.writer is not None:
            found.add(reader.life.writer)
        reader.close()
    return found
