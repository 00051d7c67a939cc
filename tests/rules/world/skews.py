"""Between which hosts the difference of the clocks can be known at all, from what their probes log.

A record that A sent and B polled was polled after it was sent; one that A sent and B listed, by an end above its
offset, was listed after it was sent. Either bounds by how much B's clock is ahead of A's, and that alone: the other
side needs records of B that A saw. Two bounds in a row make a third. Where a bound is missing, what it would take
cannot be concluded across the two hosts. A boot is a clock of its own: who writes or sees must have lived in each. A
partition's log is all that its verdicts know, a topic that is made anew has another, and a group's member sees only
what it was assigned.
"""

from __future__ import annotations

from tests.rules.world.host import Host
from tests.rules.world.life import Life
from tests.rules.world.world import World

_WRITES = frozenset({"writer", "transactions"})
_SEES = frozenset({"reader", "group", "audit", "observer"})


class Skews:
    """Of a world that was run, for one topic id; asked per partition."""

    def __init__(self, world: World, topic_id: str = "t1") -> None:
        self._hosts = {host.name: host for host in world.hosts}
        self._topic_id, self._only = topic_id, len(world.clusters) == 1

    def bounded(self, partition: int, *, ahead: str, of: str) -> bool:
        """Whether it can be known by how much one host's clock is ahead of another's, at most."""
        steps = [self._seen(partition, of, ahead)]
        for third in self._hosts:
            steps.append(self._seen(partition, of, third) and self._seen(partition, third, ahead))
        return any(steps)

    def known(self, partition: int, a: str, b: str) -> bool:
        """Whether it can be known from both sides."""
        both = ((a, b), (b, a))
        return all(self.bounded(partition, ahead=one, of=other) for one, other in both)

    def _seen(self, partition: int, sends: str, sees: str) -> bool:
        if sends == sees:
            return True
        pair = ((sends, _WRITES), (sees, _SEES))
        return all(self._has(partition, self._hosts[name], kinds) for name, kinds in pair)

    def _has(self, partition: int, host: Host, kinds: frozenset[str]) -> bool:
        lives = [life for life in host.lives if life.topic_id == self._topic_id]
        boots = {life.boot.id for life in lives if life.kind in kinds and is_there(life, partition)}
        # Of a boot in which nobody lived in this topic its log knows nothing.
        return len(boots) == (len(host.boots) if self._only else len({life.boot.id for life in lives}))


def is_there(life: Life, partition: int) -> bool:
    """Whether a probe sees this partition: it may be a member that was never assigned it."""
    return life.kind != "group" or any(e.row.partition == partition and e.row.polled for e in life.entries)
