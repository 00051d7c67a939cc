"""A transactional producer as probes use it: every call bounded, made again where that is allowed, its errors ours.

Calls that begin or end a transaction can block for as long as a broker is silent, whatever timeout they were given;
while one is waited for, the probe goes on saying that it lives. A commit or an abort that timed out is made again until
the transaction's own timeout and a grace are over: librdkafka goes on with the same request, it does not begin another.
A client that waits for a group's coordinator while that answers others is given up (`probes.kafka.coordinator_watch`):
the next life goes on at once, and nobody is called for a producer that its own library keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition

from probes.kafka.calls import bounded
from probes.kafka.client import open_producer
from probes.kafka.coordinator_watch import CoordinatorWatch
from probes.kafka.coordinators import Coordinator
from probes.kafka.errors import ClientError, ClientStuck, Crash, ProbeError, classify, translate
from probes.log.life_log import LifeLog
from probes.topology import Partition
from probes.workloads.measure import Measure
from probes.workloads.telling import Telling
from rules.vocabulary.slices import Outcome, Slice

CALL_WITHIN: Final = 30.0
"""Seconds that init_transactions and sending offsets may take."""
GRACE: Final = 15.0
"""Seconds that a commit or an abort may take beyond the transaction's timeout."""


class Transactor:
    """One producer of one transactional id. `timeout`: the transaction's, seconds. All methods raise ClientError and
    ClientStuck; `ClientError.abortable` means that the transaction must be aborted, `fatal` that the producer is
    unusable. `watch`: asks the coordinator of the group whose offsets it sends, of these partitions."""

    def __init__(
        self,
        settings: Mapping[str, str],
        on_error: Callable[[ClientError], None],
        *,
        timeout: float,
        log: LifeLog,
        watch: Callable[[Iterable[Partition]], CoordinatorWatch],
    ) -> None:
        self.transactional_id = settings["transactional.id"]
        self._timeout, self._log, self._watch = timeout, log, watch
        self.coordinator = Coordinator("transaction_coordinator")
        self._telling = Telling()
        self.producer = open_producer(settings, on_error, self.coordinator)

    def init(self, measure: Measure) -> None:
        """init_transactions, with its rows: one for every partition. Without it no transaction can be committed: where
        it fails, one is counted as tried and failed."""
        invoked = self._log.begin()
        error: ProbeError | None = None
        code: str | None = None
        try:
            self.call(lambda: self.producer.init_transactions(CALL_WITHIN), "init_transactions")
        except ProbeError as problem:
            error, code = problem, getattr(problem, "code", None)
            # Nothing was sent yet: what comes is what the client says beside it, as that its login is refused.
            with suppress(KafkaException):
                self.producer.poll(0)
        outcome: Outcome = "ok" if error is None else classify(code or "_FAIL", "init")
        self._log.append(
            self._log.everywhere(
                "init", outcome, invoked, self._log.now(), error=code, transactional_id=self.transactional_id
            )
        )
        if error is not None:
            measure.failed("transaction-commit")
            raise error

    def begin(self) -> None:
        try:
            self.producer.begin_transaction()
        except Exception as error:
            raise translate(error) from error

    def send_offsets(self, offsets: Mapping[Partition, int], group: Any) -> None:
        """`group`: the consumer's group metadata of the generation in which the records up to `offsets` were polled.

        This is the call that ends in ClientStuck after a coordinator was away: librdkafka ignores the timeout."""
        listed = [TopicPartition(topic, p, at) for (topic, p), at in offsets.items()]
        what, begun = "send_offsets_to_transaction", self._log.now().mono
        with self._watch(offsets) as watch:

            def beat() -> None:
                self._log.alive()
                waited = (self._log.now().mono - begun) / 1e9
                if watch.answers(waited):
                    raise ClientStuck(
                        f"{what} has not returned for {waited:.0f} s, and the group's coordinator answers"
                    )

            self.call(lambda: self.producer.send_offsets_to_transaction(listed, group, CALL_WITHIN), what, beat=beat)

    def commit(self) -> None:
        self._until_done(lambda: self.producer.commit_transaction(self._timeout + GRACE), "commit_transaction")

    def abort(self) -> None:
        self._until_done(lambda: self.producer.abort_transaction(self._timeout + GRACE), "abort_transaction")

    def crash_in_commit(self, within: float) -> None:
        """Begin to commit and raise Crash after at most `within` seconds, whatever became of it."""
        try:
            bounded(self.producer.commit_transaction, within, self._log.alive, "commit_transaction")
        finally:
            raise Crash("the transaction's client is abandoned while it commits")

    def to_tell(self, row: Slice) -> Mapping[str, str] | None:
        """Who coordinates its transactional id, where a row of this partition is to tell it."""
        return self._telling.due((row.topic, row.partition), self.coordinator.told, self._log.now().mono) or None

    def call(
        self,
        call: Callable[[], Any],
        what: str,
        limit: float = CALL_WITHIN + GRACE,
        beat: Callable[[], None] | None = None,
    ) -> None:
        """Any call into a client, bounded; `limit` in seconds. `beat`: see `probes.kafka.calls.bounded`."""
        try:
            bounded(call, limit, beat or self._log.alive, what)
        except ProbeError:
            raise
        except Exception as error:
            raise translate(error) from error

    def close(self) -> None:
        self.producer.close()

    def _until_done(self, call: Callable[[], Any], what: str) -> None:
        until = self._log.now().mono + int((self._timeout + GRACE) * 1e9)
        while True:
            left = max((until - self._log.now().mono) / 1e9, 0.0)
            try:
                self.call(call, what, left + GRACE)
                return
            except ClientError as error:
                if not error.retriable or error.fatal or error.abortable or self._log.now().mono >= until:
                    raise
