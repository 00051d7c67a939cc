"""`evidence-stalled`: no row of a cluster's probe log for the liveness objective, by the machine's clock.

This is the one condition that no rule can find, since rules read only rows. `EvidenceWatch` is pure: it is told when
rows came (`streaming_jobs.history.arrivals`) and what time it is, and says what opened or closed. When they are checked
is another matter: they may have waited for each other, or for checks that were away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from rules.vocabulary.conditions import EVIDENCE_STALLED
from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.times import micros


class EvidenceWatch:
    """Holds, for each cluster, when its last row came. `clusters` are those that an earlier run knew, with the time of
    their newest row; they have the whole objective from this start on. `open_clusters` are those whose condition was
    open before a restart. While no cluster is known, the nameless one stands for them all. `ended`: the logs of these
    have ended on purpose; what is open of them ends with the first look."""

    def __init__(
        self,
        liveness: timedelta,
        started: datetime,
        *,
        clusters: Mapping[str, datetime | None] = MappingProxyType({}),
        open_clusters: Iterable[str] = (),
        ended: Iterable[str] = (),
    ) -> None:
        self._ended = frozenset(ended)
        self._liveness = liveness
        self._started = started
        self._rows: dict[str, datetime | None] = dict(clusters)
        self._open = dict.fromkeys(open_clusters, started)
        """By cluster, since when we say so."""
        self._last = dict.fromkeys([*clusters, *self._open], started) or {"": started}

    def rows(self, newest: Mapping[str, datetime | None], now: datetime, came: datetime | None) -> list[Finding]:
        """Rows of these clusters were checked, the newest of them of these times by their own clocks; what that closes.
        `came`: when rows came last; None where none have since the start, so that these had waited for it. Rows that
        came as long ago as the objective, before it was told, end no silence: what had waited for the checks is older
        than it."""
        if newest:
            self._last.pop("", None)
        closing = self._open.keys() & {""} if newest and came is not None else set()
        fresh = came is not None and now - came < self._liveness
        for cluster, of in newest.items():
            self._last.setdefault(cluster, self._started)
            known = self._rows.get(cluster)
            if fresh or (came is None and (known is None or (of is not None and of > known))):
                closing |= self._open.keys() & {cluster, ""}
            elif self._have_come_since(cluster, came):
                closing.add(cluster)
            if came is not None:
                self._note(cluster, came)
            else:
                self._rows[cluster] = of
        return self._closed(closing, now)

    def _have_come_since(self, cluster: str, came: datetime | None) -> bool:
        """Have rows come since we say that none do?"""
        return came is not None and cluster in self._open and came > self._open[cluster]

    def _closed(self, clusters: Iterable[str], now: datetime) -> list[Finding]:
        ended = sorted(clusters)
        for cluster in ended:
            del self._open[cluster]
        return [self._finding(cluster, "closed", now, now) for cluster in ended]

    def _note(self, cluster: str, came: datetime) -> None:
        self._last[cluster] = max(self._last[cluster], came)
        self._rows[cluster] = came

    def stood_still(self, span: timedelta, now: datetime) -> None:
        """For so long before `now` nobody could say whether rows came. It does not count: the intake of an evidence
        topic stands still with the checks, and brings only afterwards what came meanwhile."""
        self._last = {cluster: min(last + span, now) for cluster, last in self._last.items()}

    def tick(self, now: datetime, came: datetime | None = None) -> list[Finding]:
        """What has opened or closed by now. `came`: when rows came last. Where no cluster's rows are checked although
        some came, they are late and not the log. The one cluster has rows as soon as any have come, however long they
        wait for the checks."""
        over = self._open.keys() & self._ended
        if came is not None and len(self._last) == 1:  # else nobody knows whose they are before they are checked
            over |= {cluster for cluster in self._last if self._have_come_since(cluster, came)}
        closed = self._closed(over, now)
        late = self._late(now)
        if late and came is not None and len(late) == len(self._last.keys() - self._open - self._ended):
            for cluster in late:
                self._note(cluster, came)
            late = self._late(now)
        self._open |= dict.fromkeys(late, now)
        return closed + [self._finding(cluster, "opened", now, last) for cluster, last in sorted(late.items())]

    def _late(self, now: datetime) -> dict[str, datetime]:
        waited = self._last.keys() - self._open - self._ended
        return {c: last for c, last in self._last.items() if c in waited and now - last >= self._liveness}

    def _row(self, cluster: str) -> str:
        known = self._rows.get(cluster)
        return "never" if known is None else known.isoformat()

    def _finding(self, cluster: str, event: Event, now: datetime, last: datetime) -> Finding:
        of = f" of {cluster}" if cluster else ""
        over = "has ended on purpose" if cluster in self._ended else "has rows again"
        seconds = self._liveness.total_seconds()
        return Finding(
            anomaly=EVIDENCE_STALLED,
            cluster=cluster,
            event=event,
            message=f"The probe log{of} has had no row for {seconds:g} s."
            if event == "opened"
            else f"The probe log{of} {over}.",
            evidence={"last_row": self._row(cluster)} if event == "opened" else {},
            at=micros(now),
            decidable=micros(min(now, last + self._liveness)),
        )
