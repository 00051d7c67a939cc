"""Conditions that many partitions see and that are told once: of a cluster, a broker, a host, or a process.

A partition tells that such a condition holds as it sees it (`holds`), again while it lasts, and that it has ended
(`ended`). The condition is opened by the first that says so and closed when none says so any more. What a partition has
not repeated for `FORGOTTEN` is no longer its word: its topic may be gone.

A host that was told as behind by its clock may go down after that: then the condition is opened once more, with the
same id, and says that nothing comes of it (`DOWN_SINCE`). It is not opened again the other way round.

What opens while `cluster-unreachable`, `under-min-isr` or `throttled` is open, and waits on the cluster (`waits`), says
so by `implied_by`; the first of them may be open for one `run` alone.

State: the open conditions, each with the partitions that see it.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rules.kept.outages import cause_id
from rules.vocabulary.conditions import (
    EVIDENCE_LATE,
    EXPLAIN_WHAT_WAITS,
    OUT_OF_SYNC,
    THROTTLED,
    UNDER_MIN_ISR,
    UNREACHABLE,
    waits_on,
)
from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.objectives import SECOND

KINDS: Final = ("holds", "ended")
CONDITIONS: Final = (UNREACHABLE, EVIDENCE_LATE, OUT_OF_SYNC, UNDER_MIN_ISR, THROTTLED)
FORGOTTEN: Final = 180 * SECOND
DOWN_SINCE: Final = ("clock", "host")
"""What held a host's evidence back as it was told, and what does now (`hold` in the evidence)."""
FOLLOWS: Final = len(EXPLAIN_WHAT_WAITS)

Open = dict[str, dict[str, Any]]
"""By key (cluster, anomaly, subject): what opened it and with which `evidence`, since when (`opened`), `hold`,
`implied_by`, and `seen_by`: for each partition that says that it holds, when it said so last. Plain JSON values."""


def of(facts: pa.Table) -> pa.Table:
    """Those of the facts that this module joins."""
    return facts.filter(pc.is_in(facts["kind"], value_set=pa.array(KINDS)))


def join(known: Open, facts: pa.Table, now: int) -> tuple[Open, list[Finding]]:
    """Take the facts about shared conditions in, `now` being the newest log time of any; returns what is open after
    them, and the events."""
    findings: list[Finding] = []
    told = [(fact, orjson.loads(fact["about"])) for fact in of(facts).to_pylist()]
    for fact, about in sorted(told, key=_order):
        key = "|".join((fact["cluster"], about["anomaly"], *map(str, about["subject"])))
        place = f"{fact['topic_id']}|{fact['partition']}"
        one = known.get(key)
        if fact["kind"] == "holds":
            if one is None or (one.get("hold"), about["evidence"].get("hold")) == DOWN_SINCE:
                one = known[key] = _opened(known, fact, about) if one is None else one
                one["hold"] = about["evidence"].get("hold")
                findings.append(
                    _event(one, "opened", about["message"], about["evidence"], fact["at"], about["decidable"])
                )
            one["seen_by"][place] = fact["at"]
            one["places"] = max(one["places"], len(one["seen_by"]))
        elif one is not None and one["seen_by"].pop(place, None) is not None and not one["seen_by"]:
            findings.append(_closed(known.pop(key), about["evidence"], fact["at"]))
    for key in list(known):
        one = known[key]
        one["seen_by"] = {place: at for place, at in one["seen_by"].items() if now - at <= FORGOTTEN}
        if not one["seen_by"]:
            findings.append(_closed(known.pop(key), {}, now))
    return known, findings


def _order(entry: tuple[dict[str, Any], dict[str, Any]]) -> tuple[int, int, bool, str, int]:
    """In the order of time, what explains before what waits on it."""
    fact, about = entry
    explains = EXPLAIN_WHAT_WAITS.index(about["anomaly"]) if about["anomaly"] in EXPLAIN_WHAT_WAITS else FOLLOWS
    return fact["at"], explains, fact["kind"] == "ended", fact["topic_id"], fact["partition"]


def _opened(known: Open, fact: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    cluster, run = fact["cluster"], about.get("run", "")
    causes = [
        cause_id(name, cluster, of)
        for name in EXPLAIN_WHAT_WAITS
        for of in ("", run)
        if "|".join((cluster, name, *filter(None, (of,)))) in known and about["anomaly"] in waits_on(name)
    ]
    waits = about.get("waits", False) and bool(causes)
    return {
        "cluster": cluster,
        "anomaly": about["anomaly"],
        "subject": about["subject"],
        "opened": fact["at"],
        "implied_by": causes[0] if waits else None,
        "evidence": about["evidence"],
        "seen_by": {},
        "places": 1,
    }


def _closed(one: dict[str, Any], evidence: dict[str, Any], at: int) -> Finding:
    lasted = (at - one["opened"]) / 1e6
    # As an outage is over nobody is silent any more: who was stays with it.
    was = one.get("evidence", {}) if one["anomaly"] == UNREACHABLE else {}
    ended = {**evidence, **was, "partitions": one["places"], "lasted_s": round(lasted, 3)}
    return _event(one, "closed", f"{one['anomaly']} ended after {lasted:.1f} s", ended, at, at)


def _event(
    one: dict[str, Any], event: Event, message: str, evidence: dict[str, Any], at: int, decidable: int
) -> Finding:
    return Finding(
        anomaly=one["anomaly"],
        cluster=one["cluster"],
        subject=tuple(one["subject"]),
        event=event,
        message=message,
        evidence=evidence,
        at=at,
        decidable=decidable,
        implied_by=one["implied_by"],
    )
