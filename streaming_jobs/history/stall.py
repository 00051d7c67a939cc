"""`evidence-stalled`: no row of a cluster's probe log for the liveness objective, by the machine's clock.

This is the one condition that no rule can find, since rules read only rows. `EvidenceWatch` is pure: it is told when
rows came and what time it is, and says what opened or closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.times import micros


class EvidenceWatch:
    """Holds, for each cluster, when its last row came. `clusters` are those that an earlier run knew, with the time of
    their newest row; they have the whole objective from this start on. `open_clusters` are those whose condition was
    open before a restart. While no cluster is known, the nameless one stands for them all."""

    def __init__(
        self,
        liveness: timedelta,
        started: datetime,
        *,
        clusters: Mapping[str, datetime | None] = MappingProxyType({}),
        open_clusters: Iterable[str] = (),
    ) -> None:
        self._liveness = liveness
        self._rows: dict[str, datetime | None] = dict(clusters)
        self._open = set(open_clusters)
        self._last = dict.fromkeys([*clusters, *self._open], started) or {"": started}

    def rows(self, clusters: Iterable[str], now: datetime) -> list[Finding]:
        """Rows of these clusters came; what that closes."""
        seen = set(clusters)
        if seen:
            self._last.pop("", None)
            closing = self._open & (seen | {""})
        else:
            closing = set()
        for cluster in seen:
            self._last[cluster] = self._rows[cluster] = now
        self._open -= closing
        return [self._finding(cluster, "closed", now, now) for cluster in sorted(closing)]

    def tick(self, now: datetime, unread: Callable[[], bool] = lambda: False) -> list[Finding]:
        """What has opened by now. `unread` is asked where no cluster's rows came, and says whether there are rows that
        the checks have not come to: then they are late and not the log, and it has the whole objective from now on."""
        late = {c: last for c, last in self._last.items() if now - last >= self._liveness and c not in self._open}
        if late and len(late) == len(self._last.keys() - self._open) and unread():
            self._last |= dict.fromkeys(late, now)
            return []
        self._open |= late.keys()
        return [self._finding(cluster, "opened", now, last) for cluster, last in sorted(late.items())]

    def _row(self, cluster: str) -> str:
        known = self._rows.get(cluster)
        return "never" if known is None else known.isoformat()

    def _finding(self, cluster: str, event: Event, now: datetime, last: datetime) -> Finding:
        of = f" of {cluster}" if cluster else ""
        seconds = self._liveness.total_seconds()
        return Finding(
            anomaly="evidence-stalled",
            cluster=cluster,
            topic_id="",
            topic="",
            partition=-1,
            subject=(),
            event=event,
            message=f"The probe log{of} has had no row for {seconds:g} s."
            if event == "opened"
            else f"The probe log{of} has rows again.",
            evidence={"last_row": self._row(cluster)} if event == "opened" else {},
            at=micros(now),
            decidable=micros(min(now, last + self._liveness)),
        )
