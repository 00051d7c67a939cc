"""What a rebuild finds that the tables do not tell yet: nothing is told twice, no condition stays open or is invented.

A rebuild goes through rows that an earlier query has judged already, and finds it all again.

- *Raised* events (violations, observations) are known by their finding's id: one that is in `findings` is dropped,
  whatever its time, since the time of a verdict may depend on how the log was cut into batches.
- *Conditions* are a stretch of time. Up to the log time that the earlier query had reached in a partition
  (`partition_state.now`) its openings and closings stand as they were told. What comes after is new, and is told where
  it changes what the table says. In the end each condition that is open in the table and not in the rebuilt state is
  closed, and one that is open in the rebuilt state and not in the table is opened. One that the rebuilt state cannot
  judge yet stays open, and the state goes on with it (`rules.engine.carried_over`). What many partitions of a cluster
  see together (`rules.across`) has been judged as far as the furthest of them; what the job says of itself is its own.
- *Rejected* rows are known by their place, process, slice and reason, outcomes of transactions by the transaction, the
  partition and what was seen there, rechecks by their range, and look-ups by the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson
import pyarrow as pa

from rules.across.lookups import Question
from rules.across.resolution import CONDITIONS as SHARED
from rules.step import Told
from rules.vocabulary.finding import FINDING_SCHEMA, identity
from rules.vocabulary.slices import Place
from rules.vocabulary.times import from_micros, micros
from streaming_jobs.history.validation import KEYS
from streaming_jobs.tables.findings import current
from streaming_jobs.verdicts.recheck import OffsetRange

Key = tuple[str, str, int]
_OUTCOME = ("cluster", "txn", "outcome", "topic", "partition")
_REFUSED = ("cluster", "topic_id", "partition", "process", "slice", "reason")


class Untold:
    """The tables' contents before a rebuild, and what the rebuild has added. Bounded by the ids in `findings`.

    `tables` holds `findings`, `rejected`, `transactions`, `rechecks` and `lookups`; `reached` is the log time
    (microseconds) up to which each partition had been judged."""

    def __init__(self, tables: Mapping[str, pa.Table], reached: Mapping[Key, int]) -> None:
        findings = tables["findings"]
        self._reached = _with_clusters(reached)
        self._outcomes = {tuple(r.values()) for r in tables["transactions"].select(list(_OUTCOME)).to_pylist()}
        self._asked = {
            OffsetRange(Place(r["cluster"], r["topic_id"], r["partition"]), r["start"], r["end"])
            for r in tables["rechecks"].to_pylist()
        }
        self._looked_up = {(r["cluster"], r["txn"]) for r in tables["lookups"].select(["cluster", "txn"]).to_pylist()}
        raised = (r["id"] for r in findings.select(["id", "event"]).to_pylist() if r["event"] == "raised")
        self._raised = frozenset(raised)
        self._refused = {tuple(r.values()) for r in tables["rejected"].select(list(_REFUSED)).to_pylist()}
        # id -> the row of the last event, of each condition that is rebuilt: as the table tells it, and as rebuilt.
        self._shown: dict[str, dict[str, Any]] = {}
        for row in current(findings).to_pylist():
            if row["state"] != "raised" and _is_rebuilt(row):
                event = "opened" if row["state"] == "open" else "closed"
                self._shown[row["id"]] = {f: row[f] for f in FINDING_SCHEMA.names if f != "event"} | {"event": event}
        self._rebuilt: dict[str, dict[str, Any]] = {}
        self._settled: frozenset[tuple[str, str, datetime]] = frozenset()

    def findings(self, found: pa.Table) -> pa.Table:
        """Those of `found` (`FINDING_SCHEMA`) that are to be written."""
        keep = [self._new(row) for row in found.to_pylist()]
        return found.filter(pa.array(keep, pa.bool_()))

    def rejected(self, rows: pa.Table) -> pa.Table:
        """Those that the table does not hold."""
        keep = [tuple(row.values()) not in self._refused for row in rows.select(list(_REFUSED)).to_pylist()]
        return rows.filter(pa.array(keep, pa.bool_()))

    def transactions(self, outcomes: pa.Table) -> pa.Table:
        """Those that the table does not hold."""
        keep = [tuple(row.values()) not in self._outcomes for row in outcomes.select(list(_OUTCOME)).to_pylist()]
        return outcomes.filter(pa.array(keep, pa.bool_()))

    def rechecks(self, asked: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Those that were not asked before."""
        return tuple(one for one in asked if one not in self._asked)

    def lookups(self, asked: Iterable[Question]) -> tuple[Question, ...]:
        """Those about transactions that were not asked about before."""
        return tuple(one for one in asked if one.key not in self._looked_up)

    def left_open(self) -> dict[Key, dict[str, Told]]:
        """By partition, what is open in the table and not in the rebuilt state, each by its name and subject
        (`rules.step.carry`)."""
        found: dict[Key, dict[str, Told]] = {}
        for id, shown in self._shown.items():
            if shown["event"] == "opened" and not self._holds(id) and shown["partition"] >= 0:
                told = Told(micros(shown["at"]), shown["implied_by"] is not None)
                found.setdefault(_key(shown), {})[_named(shown)] = told
        return found

    def settle(
        self,
        now: Mapping[Key, int],
        unknown: Collection[Key] = (),
        carried: Mapping[Key, Collection[str]] | None = None,
    ) -> pa.Table:
        """The events by which the table comes to tell what the rebuilt state holds. `now`: the log time that each
        partition has been rebuilt to; a partition that is not among them has no rows left in the log. `unknown`: a rule
        failed on these, and what they told before stands. `carried`: of what is `left_open`, that with which the
        rebuilt state goes on."""
        carried = carried or {}
        events = []
        latest = max(now.values(), default=0)
        now = _with_clusters(now)
        unknown = {*unknown, *(_of_cluster(key) for key in unknown)} - now.keys()
        for id, shown in self._shown.items():
            if shown["event"] != "opened" or self._holds(id) or _key(shown) in unknown:
                continue
            if _named(shown) not in carried.get(_key(shown), ()):
                ended = self._rebuilt.get(id)
                at = now.get(_key(shown), latest) if ended is None else micros(ended["at"])
                at = max(at, micros(shown["at"]))
                message = f"{shown['anomaly']} no longer held when the state was rebuilt"
                events.append(shown | {"event": "closed", "message": message} | _times(at))
        for id, row in self._rebuilt.items():
            told = self._shown.get(id)
            if row["event"] == "opened" and (told is None or told["event"] != "opened"):
                at = micros(row["at"]) if told is None else max(micros(row["at"]), micros(told["at"]) + 1)
                events.append(row | _times(at))
        self._settled = frozenset((e["id"], e["event"], e["at"]) for e in events)
        return pa.Table.from_pylist(events, schema=FINDING_SCHEMA)

    def dump(self) -> dict[str, Any]:
        """What has been added, as JSON values, for `load` in a later process over the same tables."""
        return {"shown": _plain(self._shown), "rebuilt": _plain(self._rebuilt)}

    def load(self, dumped: Mapping[str, Any]) -> None:
        self._shown, self._rebuilt = _timed(dumped["shown"]), _timed(dumped["rebuilt"])

    def _holds(self, id: str) -> bool:
        return id in self._rebuilt and self._rebuilt[id]["event"] == "opened"

    def _new(self, row: dict[str, Any]) -> bool:
        if row["event"] == "raised":
            return row["id"] not in self._raised
        if (row["id"], row["event"], row["at"]) in self._settled:
            return True
        if not _is_rebuilt(row):
            return False
        self._rebuilt[row["id"]] = row
        told = self._shown.get(row["id"])
        is_open = told is not None and told["event"] == "opened"
        if (row["event"] == "opened") == is_open or micros(row["at"]) <= self._reached.get(_key(row), -1):
            return False
        self._shown[row["id"]] = row
        return True


def _is_rebuilt(row: Mapping[str, Any]) -> bool:
    """Is this event of a condition that is found again? The job tells of itself, whatever the log says."""
    return row["partition"] >= 0 or row["anomaly"] in SHARED


def _key(row: Mapping[str, Any]) -> Key:
    return row[KEYS[0]], row[KEYS[1]], row[KEYS[2]]


def _named(row: Mapping[str, Any]) -> str:
    """How the checks' state calls this condition: by its name, and whose it is where that is a process."""
    where = row["cluster"], row["topic_id"], row["partition"]
    process = orjson.loads(row["evidence"]).get("process")
    mine = process is not None and identity(row["anomaly"], *where, (process,)) == row["id"]
    return f"{row['anomaly']}:{process}" if mine else row["anomaly"]


def _of_cluster(key: Key) -> Key:
    """The key of what the cluster's partitions tell together."""
    return key[0], "", -1


def _with_clusters(times: Mapping[Key, int]) -> dict[Key, int]:
    """The same, and for each cluster the newest of its partitions."""
    found = dict(times)
    for key, at in times.items():
        found[_of_cluster(key)] = max(at, found.get(_of_cluster(key), at))
    return found


def _times(at: int) -> dict[str, datetime]:
    return {"at": from_micros(at), "decidable": from_micros(at)}


def _plain(rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{k: micros(v) if isinstance(v, datetime) else v for k, v in row.items()} for row in rows.values()]


def _timed(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["id"]: dict(row) | {k: from_micros(row[k]) for k in ("at", "decidable")} for row in rows}
