"""Kafka's own Java client, in a Java of its own that is driven from here.

Some bugs are a client's: librdkafka still speaks the transactions of before KIP-890, the Java client of 4.x the newer
ones, so that a drill that says "nothing" for the newer needs it. The client is that of the jars of a broker's release;
its objects are reached through py4j, which PySpark brings.

    with JavaClients() as java:
        producer = java.producer({"bootstrap.servers": ..., "transactional.id": "t"})
        producer.initTransactions()
        producer.send(java.record("topic", 0, b"value")).get()

The objects are Java's: their methods have Java's names, and what they throw arrives as `Py4JJavaError`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from deploy.home import Say, to_stderr
from deploy.jars import KAFKA, kafka_jars
from deploy.java import java
from monitor.errors import UserError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_HEAP: Final = "-Xmx256m"


class JavaClients:
    """A Java with the clients of one Kafka release. Ends with this process, however it ends.

    Raises `JarsMissing`, `JavaMissing`, or `UserError` where that Java does not start."""

    def __init__(self, version: str = KAFKA, say: Say = to_stderr) -> None:
        self.version = version
        self._say = say
        self._gateway: JavaGateway | None = None

    def producer(self, settings: Mapping[str, Any]) -> Any:
        """A `KafkaProducer<byte[], byte[]>` with these settings, named as Kafka names them."""
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(
            self._properties({"key.serializer": serializer, "value.serializer": serializer, **settings})
        )

    def consumer(self, settings: Mapping[str, Any]) -> Any:
        """A `KafkaConsumer<byte[], byte[]>`."""
        deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        return self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(
            self._properties({"key.deserializer": deserializer, "value.deserializer": deserializer, **settings})
        )

    def record(
        self,
        topic: str,
        partition: int,
        value: bytes,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> Any:
        """Java's `ProducerRecord`. `timestamp`: milliseconds; the client's own if none is given."""
        kafka = self._jvm.org.apache.kafka
        at = None if timestamp is None else self._jvm.java.lang.Long.valueOf(str(timestamp))
        record = kafka.clients.producer.ProducerRecord(topic, partition, at, key, value)
        for name, held in headers or ():
            record.headers().add(name, held)
        return record

    def poll(self, consumer: Any, seconds: float) -> list[tuple[int, int, bytes]]:
        """One poll: (partition, offset, value) of what came."""
        polled = consumer.poll(self._jvm.java.time.Duration.ofMillis(int(1000 * seconds)))
        records, found = polled.iterator(), []
        while records.hasNext():
            record = records.next()
            found.append((record.partition(), record.offset(), bytes(record.value())))
        return found

    def partition(self, topic: str, partition: int) -> Any:
        """Java's `TopicPartition`."""
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)

    def __enter__(self) -> JavaClients:
        # Imported where Java is started: listing drills, and all that need no such client, begin without.
        import pyspark
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        jars = kafka_jars(self.version, self._say)
        (own_jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
        port, token = launch_gateway(
            jarpath=str(own_jar),
            classpath=":".join(map(str, jars)),
            java_path=str(java(self._say)),
            javaopts=[_HEAP],
            die_on_exit=True,
            enable_auth=True,
            redirect_stdout=subprocess.DEVNULL,
            redirect_stderr=subprocess.DEVNULL,
        )
        if not port:
            raise UserError("a Java for Kafka's own clients could not be started")
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._gateway is not None:
            self._gateway.shutdown()
            self._gateway = None

    @property
    def _jvm(self) -> Any:
        assert self._gateway is not None, "used outside of its with block"
        return self._gateway.jvm

    def _properties(self, settings: Mapping[str, Any]) -> Any:
        made = self._jvm.java.util.Properties()
        for name, value in settings.items():
            made.put(name, str(value).lower() if isinstance(value, bool) else str(value))
        return made
