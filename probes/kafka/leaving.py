"""How a member of a group is closed: it leaves first.

A consumer that is closed while a rebalance waits to be told of may wait for itself in librdkafka (4884, 4527), and with
it the whole process, since the Python client holds the interpreter meanwhile. Where it has left, and been told, nothing
waits any more.

And how a consumer is made ready to be dropped without a close, as of a process that dies.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaException

log = logging.getLogger("offsetwatch.probe")

LEFT_WITHIN: Final = 2.0
"""Seconds; leaving is a matter of the client alone, no broker is waited for."""
_LOOK: Final = 0.05
_MOST_HEARD: Final = 100


def close_member(consumer: Consumer) -> None:
    """Leave the group and close. What was fetched is given to nobody: to read it would be an observation."""
    try:
        if held := consumer.assignment():
            consumer.pause(held)  # the client drops what it has of them
        consumer.unsubscribe()
        limit = time.monotonic() + LEFT_WITHIN
        while True:
            consumer.consume(1, _LOOK)  # the rebalance is told to whoever polls
            if not consumer.assignment() or time.monotonic() > limit:
                break
    except (KafkaException, RuntimeError) as error:
        log.info("a consumer is closed without having left its group: %s", error)
    consumer.close()


def hear_out(consumer: Consumer) -> None:
    """Take what a consumer that is dropped right after this call has to tell; it does not leave its group.

    A member by the consumer protocol (KIP-848) that has been given partitions and was not polled since never ends:
    librdkafka waits for the call that takes them, and uses up a core with it (seen with 2.16). What was fetched is
    given to nobody."""
    with suppress(KafkaException, RuntimeError):  # it was closed
        if held := consumer.assignment():
            consumer.pause(held)  # the client drops what it has of them
        for _ in range(_MOST_HEARD):
            # What it takes is acknowledged, and the answer may give it more.
            if not consumer.consume(500, _LOOK):
                return
