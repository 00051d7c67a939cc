"""Whether a group's coordinator answers, asked on a connection of our own while a client's call waits for it.

librdkafka's `send_offsets_to_transaction` goes on waiting, whatever timeout it was given, where the broker that it knew
as the group's coordinator was away when it was called: it waits for a change of that connection, which need not come
though another broker coordinates the group by then (librdkafka 5456 and 5511, open in 2.16; after a broker's orderly
restart it had not returned after four minutes). Who waits and is told here that the coordinator answers has a client
that waits in vain.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Final

from probes.kafka.client import Connection
from probes.kafka.errors import ClientError
from probes.kafka.wire.errors import CannotConnect
from probes.kafka.wire.offset_fetch import Committed, WireOffsets
from probes.topology import Partition

PATIENCE: Final = 8.0
"""Seconds for which nobody is asked: an election takes some."""
WITHIN: Final = 2.0
"""Seconds for an answer. A broker that takes longer is slow, and the client that waits for it may be right to."""


class CoordinatorWatch:
    """Asks from `PATIENCE` seconds after it is begun, until there is an answer. Used by one thread, as a context.

    Where the settings cannot be followed on connections of our own (GSSAPI, say) it never says yes."""

    def __init__(self, connection: Connection, client: str, group: str, places: Iterable[Partition]) -> None:
        self._connection, self._client, self._group, self._places = connection, f"{client}-watch", group, list(places)
        self._asked: WireOffsets | None = None
        self._answer: Future[list[Committed]] | None = None
        self._cannot = False

    def __enter__(self) -> CoordinatorWatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._asked is not None:
            self._asked.close()

    def answers(self, waited: float) -> bool:
        """Whether the coordinator has answered. `waited`: for how many seconds the call has by now."""
        if waited < PATIENCE or self._cannot:
            return False
        if self._answer is None:
            return self._ask()
        if not self._answer.done():
            return False
        if self._answer.exception() is None:
            return True
        return self._ask()

    def _ask(self) -> bool:
        try:
            if self._asked is None:
                self._asked = WireOffsets(self._connection, self._client, self._places, _unheard)
            self._answer = self._asked.ask(self._group, WITHIN)
        except CannotConnect:
            self._cannot = True
        return False


def _unheard(error: ClientError) -> None:
    """The client that waits tells of its own errors."""
