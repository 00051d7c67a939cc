"""Between which hosts the difference of the clocks can be known at all, from what their probes log.

A record sent by A and polled by B was polled after it was sent: a bound from one side. The other side comes from a
record of B that A polled, or from B's listings: one whose end lies at or below an offset that A was given was invoked
before A's send had completed; only worlds that say so ask for that. Where a bound is missing, nothing may be concluded
across the two hosts.
"""

from __future__ import annotations

from tests.rules.world.world import HostPlan, Plan

_WRITES = frozenset({"writer", "transactions"})
_READS = frozenset({"reader", "group", "audit"})


class Skews:
    def __init__(self, plan: Plan) -> None:
        self._hosts = {host.name: host for host in plan.hosts}
        self._listings = plan.listings

    def known(self, a: str, b: str) -> bool:
        if a == b:
            return True
        first, second = self._hosts[a], self._hosts[b]
        mutual = _has(first, _WRITES) and _has(second, _READS) and _has(second, _WRITES) and _has(first, _READS)
        return mutual or (self._listings and (_listed(first, second) or _listed(second, first)))


def _listed(writes: HostPlan, lists: HostPlan) -> bool:
    return _has(writes, _WRITES) and _has(lists, frozenset({"observer"}))


def _has(host: HostPlan, kinds: frozenset[str]) -> bool:
    return any(probe.kind in kinds for probe in host.probes.values())
