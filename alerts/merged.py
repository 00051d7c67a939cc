"""Several collectors of the same families as one: a family may come but once in what is scraped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from alerts.native_histograms import NativeHistogramFamily


class Merged(Collector):
    """Their samples have labels that tell them apart."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = tuple(collectors)

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for collector in self._collectors:
            for family in collector.collect():
                known = families.setdefault(family.name, family)
                if known is family:
                    continue
                known.samples.extend(family.samples)
                if isinstance(known, NativeHistogramFamily) and isinstance(family, NativeHistogramFamily):
                    known.native.update(family.native)
        return families.values()
