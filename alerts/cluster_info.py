"""A metric that gives each cluster's id its name: `offsetwatch_cluster_info{cluster="...", name="orders-eu"} 1`.

Every series has the id, which stays; dashboards and rules join the name where people read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from alerts.incidents.incident import Names


class ClusterInfo(Collector):
    """`clusters` is called at each scrape: the ids that are known. A cluster without a name is called by its id."""

    def __init__(self, clusters: Callable[[], Collection[str]], names: Names) -> None:
        self._clusters, self._names = clusters, names

    def collect(self) -> Iterable[Metric]:
        family = InfoMetricFamily("offsetwatch_cluster", "How people call a cluster.", labels=("cluster",))
        for cluster in sorted({one for one in self._clusters() if one}):
            family.add_metric((cluster,), {"name": self._names(cluster) or cluster})
        yield family
