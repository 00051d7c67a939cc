"""From the topic of the probe log into the table `history`, exactly once.

Each commit to the table holds, beside the rows, how far the topic was read (as the version of an application that is
named after the topic) and the newest append of each committer that is in them. So a commit of which nobody heard
whether it was made is found in the table, an append that is in the topic twice is taken once, and two intakes at work
on one table do not harm each other: the one that comes second goes on where the first one is.

Of two that append in one committer's name (a copied journal folder that began together with its original) each numbers
its own appends, and tells by which start of it they were made: all are taken (`taken`).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from probes.kafka.client import consumer_settings, open_consumer
from probes.kafka.errors import ClientError, translate
from probes.log.commits.history import History
from probes.log.errors import HistoryConflict, HistoryMismatch, ProbeLogError
from probes.log.evidence.messages import Append, Assembly, Newer, NotOurs
from probes.log.evidence.taken import LAST, New, Taken, sorted_out, versions
from probes.log.evidence.topic import ANSWERED_WITHIN, PARTITION, TopicOf
from rules.vocabulary.slices import APPENDS_MISSING

log = logging.getLogger("offsetwatch.intake")

EVERY: Final = 0.5
"""Seconds from one commit to the table to the next, at least."""
MOST_BYTES: Final = 8 << 20
"""So much of the topic's messages goes into one commit, about: what is behind is read in pieces."""
MOST_MESSAGES: Final = 200
CONFIRMED_EVERY: Final = 10.0
"""Seconds between two questions for the topic's id."""
_POLLED_FOR: Final = 0.2
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_CONFLICTS: Final = 20
_MARKED_FOR: Final = 60.0
_SAID: Final = 100
"""Sentences that are remembered as told."""
_SAID_AGAIN: Final = 600.0
"""Seconds after which the same is told again."""


def _behind_a_gap(rows: pa.Table) -> pa.Table:
    """The same, whose mark rows say that appends before them are missing for good."""
    marks = pc.equal(rows["f"], "mark")
    error = pc.if_else(marks, pa.scalar(APPENDS_MISSING), rows["error"])
    return rows.set_column(rows.column_names.index("error"), rows.schema.field("error"), error)


class EvidenceUnavailable(ProbeLogError):
    """The topic cannot be read now; it is tried again, and nothing is lost."""


@dataclass(slots=True)
class _Read:
    """What was read since the last commit to the table. `next`: the offset that is read next."""

    next: int
    appends: list[Append] = field(default_factory=list)
    bytes: int = 0
    assembly: Assembly = field(default_factory=Assembly)

    @property
    def resume(self) -> int:
        """From where a successor has to read, once the appends are in the table."""
        first = self.assembly.first
        return self.next if first is None else min(first, self.next)


class Intake:
    """Reads one topic into one table. `turn` makes one step, `run` goes on until it is told to stop. One thread, but
    for `behind`."""

    def __init__(self, topic: TopicOf, history: History, say: Callable[[str], None] | None = None) -> None:
        """`say` gets sentences for the user."""
        self._topic, self._history = topic, history
        self._say = say or log.warning
        self._said: dict[str, float] = {}
        self._consumer: Consumer | None = None
        self._admin: AdminClient | None = None
        self._app = ""
        self._read = _Read(0)
        self._resumed = -1
        self._cut = False
        """Has the topic lost its end? Then what the table has of it is further than the topic goes."""
        self._lacking: dict[str, float] = {}
        """By committer of whose appends some are missing: until when its marks say so."""
        self._taken = Taken()
        self._due = self._confirmed = 0.0
        self.behind: int | None = None
        """Messages, the ends of transactions included, that were in the topic and not in the table when it was read
        last; None while it cannot be read."""

    def run(self, stop: threading.Event) -> None:
        """Read until `stop`. What fails is tried again, and told; `HistoryMismatch` is raised."""
        try:
            self._go_on(stop)
        finally:
            self.close()

    def _go_on(self, stop: threading.Event) -> None:
        pause, failed = _FIRST_PAUSE, ""
        while not stop.is_set():
            try:
                rows = self.turn()
            except HistoryMismatch:
                raise
            except Exception as error:
                if not isinstance(error, ProbeLogError):
                    log.exception("the intake of %s failed", self._topic)
                failed = str(error) or type(error).__name__
                self._say_seldom(f"the probe log is not carried on, and tried again: {failed}")
                self.close()
                stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if rows or self.behind == 0:
                    if failed:
                        self._say_seldom("the probe log is carried on")
                    pause, failed = _FIRST_PAUSE, ""

    def turn(self) -> int:
        """Read what is there and, once it is time, commit it. Returns the rows that came into the table.

        Raises `EvidenceUnavailable`, `HistoryUnavailable` and `HistoryMismatch`."""
        consumer = self._consumer or self._open()
        if time.monotonic() - self._confirmed >= CONFIRMED_EVERY:
            self._confirm()
        self._consume(consumer)
        due = time.monotonic() >= self._due or self._read.bytes >= MOST_BYTES
        if not self._read.appends or not due:
            return 0
        self._due = time.monotonic() + EVERY
        return self._commit()

    def _confirm(self) -> None:
        """Whether the topic is still the one that is read: a client goes by its name."""
        if self._of() != self._app:
            self._say(f"{self._topic} was made anew: what stood in the old one and was not read is missing")
            raise EvidenceUnavailable(f"{self._topic} was made anew")
        self._confirmed = time.monotonic()

    def _of(self) -> str:
        """What the table knows the topic by."""
        try:
            self._admin = self._admin or self._topic.asker()
            return f"offsetwatch-evidence-{self._topic.id(self._admin)}"
        except ClientError as error:
            raise EvidenceUnavailable(f"{self._topic}: {error}") from error

    def close(self) -> None:
        """Leave the cluster; what was read and is not in the table is read again."""
        consumer, self._consumer, self._admin, self.behind = self._consumer, None, None, None
        if consumer is not None:
            with suppress(KafkaException, RuntimeError):
                consumer.close()

    def _open(self) -> Consumer:
        self._app, self._confirmed = self._of(), time.monotonic()
        try:
            settings: dict[str, Any] = consumer_settings(
                self._topic.connection, client="offsetwatch-intake", group="offsetwatch-intake", prompt=True
            )
            # Where retention was faster it is told, and not passed over.
            consumer = open_consumer(settings | {"auto.offset.reset": "error"}, lambda error: None)
        except ClientError as error:
            raise EvidenceUnavailable(f"{self._topic}: {error}") from error
        self._consumer, self._cut = consumer, False
        self._resume(self._history.last_version(self._app))
        return consumer

    def _resume(self, at: int | None) -> None:
        """Read on from this offset, None: from the beginning."""
        assert self._consumer is not None
        start = self._bounds()[0] if at is None else at
        self._read, self._resumed = _Read(start), start
        self._consumer.assign([TopicPartition(self._topic.name, PARTITION, start)])

    def _bounds(self) -> tuple[int, int]:
        assert self._consumer is not None
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic.name, PARTITION), timeout=ANSWERED_WITHIN
            )
        except KafkaException as error:
            raise EvidenceUnavailable(f"{self._topic}: {translate(error)}") from error
        if found is None:
            raise EvidenceUnavailable(f"{self._topic}: no answer within {ANSWERED_WITHIN:g} s")
        return int(found[0]), int(found[1])

    def _consume(self, consumer: Consumer) -> None:
        read = self._read
        for message in consumer.consume(MOST_MESSAGES, _POLLED_FOR):
            if (error := message.error()) is not None:
                self._heard(translate(error))
                return
            offset, value = int(message.offset()), message.value()
            read.next = offset + 1
            read.bytes += len(value or b"")
            try:
                append = read.assembly.take(offset, message.headers(), value)
            except Newer as what:
                # It is not passed: it is read once somebody has installed who knows it.
                read.next = offset
                if read.appends:
                    self._commit()
                raise EvidenceUnavailable(f"{self._topic}: {what}; upgrade the monitor") from what
            except NotOurs as what:
                self._say_seldom(f"a message of {self._topic} is left out: {what}")
                continue
            if append is not None:
                read.appends.append(append)
        # The end of a transaction is no message, and is passed all the same.
        position = consumer.position([TopicPartition(self._topic.name, PARTITION)])[0].offset
        read.next = max(read.next, int(position))
        _, end = consumer.get_watermark_offsets(TopicPartition(self._topic.name, PARTITION), cached=True)
        self.behind = max(0, int(end) - read.next) + len(read.appends) if end >= 0 else None

    def _heard(self, error: ClientError) -> None:
        """Of an error while reading; only what is missing for good is not a reason to try again."""
        if error.code != "_AUTO_OFFSET_RESET":
            raise EvidenceUnavailable(f"{self._topic}: {error}")
        self._confirm()
        start, end = self._bounds()
        before = self._read.next
        if before > end:
            self._say_seldom(
                f"{self._topic} was read up to offset {before}, and ends at {end}: it has lost its end, and is read "
                "again from its beginning"
            )
        else:
            self._say(
                f"{self._topic} was read up to offset {before}, and begins at {start}: what stood between is missing "
                "in the probe log"
            )
        if self._read.appends:
            self._commit()
        self._resume(start)
        self._cut = before > end

    def _commit(self) -> int:
        read = self._read
        for trial in range(_CONFLICTS):
            # All is asked of one state of the table, upon which the append is made: what others append is not missed.
            asked = {self._app, *(append.app + LAST for append in read.appends)}
            known = self._history.last_versions(asked)
            if more := self._taken.ask(read.appends, known):
                known = self._history.last_versions(asked | more)
            there = known[self._app]
            if there > self._resumed and not self._cut:
                self._resume(there)  # another intake was first, or the last commit was made after all
                return 0
            starts = self._taken.starts(read.appends, known)
            new = sorted_out(read.appends, starts, again=self._cut)
            if not new:
                break  # nothing but what was there before: the next commit says how far it is read
            rows = pa.concat_tables(self._marked_behind_gaps(new))
            try:
                self._history.append_of(rows, versions(new, starts) | {self._app: max(there, read.resume)})
            except HistoryConflict:
                if trial == _CONFLICTS - 1:
                    raise
                time.sleep(random.uniform(0, 0.05))
                continue
            self._resumed = max(there, read.resume)
            self._tell(new)
            self._taken.note(starts)
            read.appends, read.bytes = [], 0
            return int(rows.num_rows)
        read.appends, read.bytes = [], 0
        return 0

    def _marked_behind_gaps(self, new: list[New]) -> list[pa.Table]:
        """The appends' rows. For a while after some of a committer's are missing, its mark rows say so: whoever waits
        for what they held would wait in vain. Each partition has a mark of each committer every few seconds."""
        now = time.monotonic()
        tables = []
        for append, lacking, _, _ in new:
            if lacking:
                self._lacking[append.app] = now + _MARKED_FOR
            behind = self._lacking.get(append.app, now) > now
            tables.append(_behind_a_gap(append.rows) if behind else append.rows)
        return tables

    def _tell(self, new: list[New]) -> None:
        """Say which appends are missing in the topic between those that it holds, and who appends in whose name."""
        for append, lacking, known, beside in new:
            if known and lacking:
                self._say(
                    f"{self._topic} lacks {lacking} append(s) of {append.app}: what was in them is missing in the "
                    "probe log"
                )
            if beside:
                self._say_seldom(
                    f"two append to {self._topic} in the name of {append.app}, as a journal folder and a copy of it: "
                    "what both have written is taken"
                )

    def _say_seldom(self, sentence: str) -> None:
        now = time.monotonic()
        if len(self._said) > _SAID:
            self._said.clear()
        if now - self._said.get(sentence, -_SAID_AGAIN) >= _SAID_AGAIN:
            self._said[sentence] = now
            self._say(sentence)
