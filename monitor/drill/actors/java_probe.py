"""A probe of scripted transactions whose producer is Kafka's own Java client, logged like all others.

Java's producer is put into the few calls of librdkafka's that a transactional probe makes. What Java throws is an
indefinite outcome, or a failed abort: a drill's transactions are not expected to meet any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from monitor.drill.actors.actors import Script, ScriptedTransactions, transactional
from monitor.drill.actors.java_client import JavaClients
from probes.running.supervisor import Spec
from probes.workloads.transactional.transactor import Transactor
from rules.vocabulary.slices import Slice

_SAME: Final = ("bootstrap.servers", "client.id", "transactional.id", "transaction.timeout.ms", "acks", "linger.ms")
"""What both clients call by the same name."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery report as librdkafka's would be."""

    where: tuple[str, int]
    sent: bytes
    at: int

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.sent


class JavaProducer:
    """Java's producer with the methods that a transactional probe calls."""

    def __init__(self, java: JavaClients, settings: Mapping[str, str]) -> None:
        self._java = java
        self._producer = java.producer({name: settings[name] for name in _SAME})
        self._waiting: list[tuple[tuple[str, int], bytes, Any, Callable[[None, Sent], None]]] = []

    def init_transactions(self, timeout: float) -> None:
        self._producer.initTransactions()

    def begin_transaction(self) -> None:
        self._producer.beginTransaction()

    def commit_transaction(self, timeout: float) -> None:
        self._producer.commitTransaction()

    def abort_transaction(self, timeout: float) -> None:
        self._producer.abortTransaction()

    def produce(
        self,
        topic: str,
        value: bytes,
        key: bytes,
        partition: int,
        on_delivery: Callable[[None, Sent], None],
        **more: Any,
    ) -> None:
        """Send it. `more`: a record's `timestamp` and `headers`."""
        future = self._producer.send(self._java.record(topic, partition, value, key, **more))
        self._waiting.append(((topic, partition), value, future, on_delivery))

    def poll(self, timeout: float) -> int:
        """Wait for what was sent, and report it."""
        done, self._waiting = self._waiting, []
        for where, value, future, report in done:
            report(None, Sent(where, value, int(future.get().offset())))
        return len(done)

    def close(self) -> None:
        self._producer.close()


class JavaTransactor(Transactor):
    """A transactor over Java's producer."""

    def __init__(self, java: JavaClients, settings: Mapping[str, str], *, timeout: float, log: Any) -> None:
        self.transactional_id = settings["transactional.id"]
        self._timeout, self._log = timeout, log
        self.producer = JavaProducer(java, settings)

    def to_tell(self, row: Slice) -> None:
        """Nothing: Java's producer does not say who coordinates it."""


class JavaTransactions(ScriptedTransactions):
    """Scripted transactions by the Java client; they poll nothing."""

    def __init__(self, *args: Any, java: JavaClients, **kwargs: Any) -> None:
        super().__init__(*args, polls=False, **kwargs)
        self._java = java

    def labels(self) -> dict[str, str]:
        return super().labels() | {"client": f"java {self._java.version}"}

    def new_transactor(self, settings: Mapping[str, str]) -> Transactor:
        return JavaTransactor(self._java, settings, timeout=self._timeout, log=self.log)


def java_transactions(java: JavaClients, script: Script) -> Spec:
    """A probe of scripted transactions by the Java client."""
    return transactional("transactions-java", JavaTransactions, script=script, java=java)
