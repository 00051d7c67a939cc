"""Conditions that many partitions see: told once, as long as any of them sees it."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from rules.across.shared_conditions import FORGOTTEN, join
from rules.kept.outages import cause_id
from rules.vocabulary.conditions import UNREACHABLE
from rules.vocabulary.finding import FACT_SCHEMA, Finding

SECOND = 1_000_000
LATE = "evidence-late"


def opened(partition: int) -> dict[str, Any]:
    return {"process": 5, "host": 9, "hold": "operation", "since": partition, "behind_s": 3.0}


def ended(partition: int) -> dict[str, Any]:
    return {"process": 5, "since": partition, "behind_s": 4.0}


def fact(
    kind: str, partition: int, at: float, *, anomaly: str = LATE, cluster: str = "c", waits: bool = True
) -> dict[str, Any]:
    about = {
        "anomaly": anomaly,
        "subject": ["process", 5],
        "message": f"seen in {partition}",
        "evidence": opened(partition) if kind == "holds" else ended(partition),
        "decidable": int(at) - 7,
        "waits": waits,
    }
    if anomaly == UNREACHABLE:
        reach = {
            "brokers": [1],
            "known_brokers": [1],
            "whole_cluster": True,
            "since": 3,
            "error": None,
            "runs": ["run"],
        }
        about |= {"subject": [], "evidence": reach}
    return {
        "cluster": cluster,
        "topic_id": "t",
        "topic": "topic",
        "partition": partition,
        "kind": kind,
        "at": round(at * SECOND),
        "about": orjson.dumps(about).decode(),
    }


def joined(known: dict[str, Any], *facts: dict[str, Any], now: int) -> list[Finding]:
    after, findings = join(known, pa.Table.from_pylist(list(facts), schema=FACT_SCHEMA), now * SECOND)
    assert after is known
    return findings


def event(name: str, message: str, evidence: dict[str, Any], at: float, **more: Any) -> Finding:
    told: dict[str, Any] = {
        "anomaly": LATE,
        "cluster": "c",
        "topic_id": "",
        "topic": "",
        "partition": -1,
        "subject": ("process", 5),
        "event": name,
        "message": message,
        "evidence": evidence,
        "at": round(at * SECOND),
        "decidable": round(at * SECOND),
    }
    return Finding(**told | more)


def test_it_is_open_as_long_as_one_partition_sees_it() -> None:
    known: dict[str, Any] = {}
    first = joined(known, fact("holds", 2, 11), fact("holds", 1, 10), now=11)
    assert first == [event("opened", "seen in 1", opened(1), 10, decidable=3)]
    assert joined(known, fact("ended", 1, 12), fact("ended", 3, 12), now=12) == []
    assert joined(known, fact("ended", 5, 12, cluster="another"), now=12) == []
    assert joined(known, fact("holds", 4, 14), now=14) == []
    last = joined(known, fact("ended", 2, 15), fact("ended", 4, 16.0015), fact("ended", 4, 17), now=17)
    told = {**ended(4), "partitions": 2, "lasted_s": 6.002}
    assert last == [event("closed", "evidence-late ended after 6.0 s", told, 16.0015)]
    assert known == {}


def test_partitions_that_say_nothing_more_are_forgotten() -> None:
    known: dict[str, Any] = {}
    joined(known, fact("holds", 1, 10), fact("holds", 2, 12), now=12)
    late = 11 + FORGOTTEN // SECOND
    assert joined(known, now=late) == []
    (one,) = known.values()
    assert list(one["seen_by"]) == ["t|2"]
    told = {"partitions": 2, "lasted_s": late - 8.0}
    closed = event("closed", f"evidence-late ended after {late - 8}.0 s", told, late + 2)
    assert joined(known, now=late + 2) == [closed]
    assert known == {}


def test_what_waits_on_a_cluster_that_does_not_answer_is_explained_by_it() -> None:
    """And what does not wait on it, or on another one, is not."""
    known: dict[str, Any] = {}
    joined(known, fact("holds", 1, 9, anomaly=UNREACHABLE), now=9)
    waits, other = joined(known, fact("holds", 1, 10), fact("holds", 1, 10, cluster="d"), now=10)
    assert (waits.cluster, waits.implied_by) == ("c", cause_id("cluster-unreachable", "c"))
    assert (other.cluster, other.implied_by) == ("d", None)
    (last,) = joined(known, fact("ended", 1, 11), now=11)
    assert (last.implied_by, last.evidence["partitions"]) == (cause_id("cluster-unreachable", "c"), 1)
    (alone,) = joined(known, fact("holds", 1, 12, waits=False), now=12)
    assert alone.implied_by is None


def test_what_waits_in_the_processes_of_a_run_that_is_cut_off_says_so_and_what_waits_elsewhere_does_not() -> None:
    cut_off = fact("holds", 1, 10, anomaly=UNREACHABLE)
    about = orjson.loads(cut_off["about"])
    reach = {"runs": ["west"], "run": "west", "answered": ["east"]}
    about |= {"subject": ["west"], "evidence": about["evidence"] | reach | {"whole_cluster": False}}
    cut_off["about"] = orjson.dumps(about).decode()
    for run, cause in (("west", cause_id(UNREACHABLE, "c", "west")), ("east", None)):
        waiting = fact("holds", 1, 11)
        waiting["about"] = orjson.dumps(orjson.loads(waiting["about"]) | {"run": run}).decode()
        told = joined({}, cut_off, waiting, now=11)
        assert [(one.anomaly, one.subject, one.implied_by) for one in told] == [
            (UNREACHABLE, ("west",), None),
            (LATE, ("process", 5), cause),
        ]
