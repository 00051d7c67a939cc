"""Who coordinates a group or a transactional id: what one client of ours knows of it, by its statistics.

librdkafka has no call that asks for the coordinator of a transactional id, and its admin client, which would tell a
group's, may end the whole process when a connection breaks meanwhile (librdkafka 5040 and 5397, open in 2.16). But each
client that talks to a coordinator keeps a connection of its own for it, which its statistics show under the
coordinator's role with the address of the broker that it leads to. (The observer is told who coordinates a group where
it asks on connections of our own: `probes.kafka.wire.offset_fetch`.)
"""

from __future__ import annotations

from typing import Any, Final, Literal

import orjson

Role = Literal["group_coordinator", "transaction_coordinator"]
NOBODY: Final = "nobody"
EVERY_MS: Final = 5_000
"""Milliseconds between two statistics of a client."""
_CONNECTIONS: Final = {"group_coordinator": "GroupCoordinator", "transaction_coordinator": "TxnCoordinator"}


class Coordinator:
    """The coordinator in this role of one client, whose `stats_cb` is `hear`."""

    def __init__(self, role: Role) -> None:
        self.role: Role = role
        self._broker: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What the client's settings need beside its own."""
        return {"statistics.interval.ms": EVERY_MS, "stats_cb": self.hear}

    @property
    def told(self) -> dict[str, str]:
        """The broker's id by the role, `NOBODY` where the client knows none any more; empty while it never knew one."""
        return {} if self._broker is None else {self.role: self._broker}

    def hear(self, statistics: str) -> None:
        """Take in the client's statistics, JSON. Called by the client, within its own polls."""
        brokers = orjson.loads(statistics)["brokers"].values()
        address = next((one["nodename"] for one in brokers if one["name"] == _CONNECTIONS[self.role]), "")
        known = (str(one["nodeid"]) for one in brokers if one["nodeid"] >= 0 and one["nodename"] == address)
        if address:
            # A broker that metadata has not told of yet has no id here: the next statistics know it.
            self._broker = next(known, self._broker)
        elif self._broker is not None:
            self._broker = NOBODY
