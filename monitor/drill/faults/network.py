"""A broker's network to its peers is cut, while its clients still reach it."""

from __future__ import annotations

from deploy.local_kafka import LocalKafka
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.fault import FaultOfRole


class CutFromPeers(FaultOfRole):
    """What a broker and its peers send each other, as brokers and as controllers, is held from `begin` to `end`.

    It goes on answering its clients: it serves what it has, takes records that it cannot have replicated, and believes
    in its roles until its own patience is over, while the others have given them away after theirs (a session of 6 s).
    Nothing is closed, and what was held goes through in the end (`deploy.links`)."""

    def describe(self) -> str:
        return f"cut {self._whom} from its peers"

    def _missing(self, cluster: LocalKafka) -> list[str]:
        if cluster.links is None:
            return ["the brokers reach each other directly: the cluster has to be made with cuttable=True"]
        if len(cluster.brokers) < 3:
            return [f"of {len(cluster.brokers)} broker(s) no majority is left when one is cut off"]
        return []

    def _begin(self, cluster: LocalKafka) -> None:
        if cluster.links is None:
            raise DrillFailed("the brokers reach each other directly")
        cluster.links.isolate(self._find(cluster).id)

    def _end(self, cluster: LocalKafka) -> None:
        if self.node is not None and cluster.links is not None:
            cluster.links.mend(self.node)
        for broker in cluster.brokers:
            broker.start()  # nothing, unless one ended
