"""What a rebuild tells: conditions end as the rebuilt state has them, and what was told is not told again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pytest

from rules.step import Told
from rules.vocabulary.finding import FINDING_SCHEMA, Event, Finding
from rules.vocabulary.finding import to_table as findings_table
from streaming_jobs.tables.findings import current
from streaming_jobs.tables.schemas import FINDINGS, SPECS
from streaming_jobs.verdicts.untold import Untold

PLACE = ("c", "t", 0)
REACHED = 100
Outcome = tuple[list[tuple[str, int]], str]


def event(
    event: Event, at: int, *, anomaly: str = "unseen", partition: int = 0, subject: Any = (), **more: Any
) -> Finding:
    topic_id, topic = ("t", "topic") if partition >= 0 else ("", "")
    return Finding(
        anomaly=anomaly,
        cluster="c",
        topic_id=topic_id,
        topic=topic,
        partition=partition,
        subject=subject,
        event=event,
        message="m",
        at=at,
        decidable=at,
        **more,
    )


def table(*findings: Finding) -> pa.Table:
    return findings_table((f, "warning") for f in findings)


def told(*findings: Finding) -> dict[str, pa.Table]:
    rows = table(*findings)
    own = {
        "batch": pa.nulls(rows.num_rows, pa.int64()),
        "recorded": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * rows.num_rows, pa.timestamp("us", tz="UTC")),
    }
    stamped = pa.table([own[f.name] if f.name in own else rows[f.name] for f in FINDINGS], schema=FINDINGS)
    return {name: SPECS[name].schema.empty_table() for name in ("rejected", "transactions", "rechecks", "lookups")} | {
        "findings": stamped
    }


def outcome(
    before: list[Finding], again: list[Finding], *, reloaded: bool = False
) -> tuple[list[tuple[str, int]], str]:
    """The events that a rebuild adds, as (event, at), and what the condition is in the end."""
    untold = Untold(told(*before), {PLACE: REACHED})
    added = [untold.findings(table(f)) for f in again]
    if reloaded:
        dumped = untold.dump()
        untold = Untold(told(*before), {PLACE: REACHED})
        untold.load(dumped)
    settled = untold.settle({PLACE: 200})
    added.append(untold.findings(settled))
    rows = pa.concat_tables(added)
    written = told(*before)["findings"]
    own: dict[str, Any] = {"batch": pa.nulls(rows.num_rows, pa.int64())}
    own["recorded"] = pa.array([datetime(2026, 1, 2, tzinfo=UTC)] * rows.num_rows, pa.timestamp("us", tz="UTC"))
    new = pa.table([own[f.name] if f.name in own else rows[f.name] for f in FINDINGS], schema=FINDINGS)
    states = current(pa.concat_tables([written, new]))["state"].to_pylist()
    at = rows["at"].cast(pa.int64()).to_pylist()
    return list(zip(rows["event"].to_pylist(), at, strict=True)), states[0] if states else "none"


OPEN: Final = "opened"
END: Final = "closed"
Moments = list[tuple[Event, int]]

CASES: dict[str, tuple[Moments, Moments, Moments, str]] = {
    # name: what the table tells, what the rebuild finds, what is added, how it ends
    "the same again": ([(OPEN, 10), (END, 20)], [(OPEN, 11), (END, 19)], [], "closed"),
    "cut in other ways, it was not seen": ([(OPEN, 10), (END, 20)], [], [], "closed"),
    "open then and now": ([(OPEN, 90)], [(OPEN, 91)], [], "open"),
    "open then, ended since": ([(OPEN, 90)], [(OPEN, 91), (END, 150)], [(END, 150)], "closed"),
    "open then, and never rebuilt": ([(OPEN, 90)], [], [(END, 200)], "closed"),
    "open then, rebuilt as ended before": ([(OPEN, 90)], [(OPEN, 80), (END, 85)], [(END, 90)], "closed"),
    "opened since": ([], [(OPEN, 150)], [(OPEN, 150)], "open"),
    "opened and closed since": ([], [(OPEN, 150), (END, 160)], [(OPEN, 150), (END, 160)], "closed"),
    "found in what was judged before": ([], [(OPEN, 50), (END, 60)], [], "none"),
    "open in what was judged before, and still": ([], [(OPEN, 50)], [(OPEN, 50)], "open"),
    "closed then, open in truth": ([(OPEN, 10), (END, 95)], [(OPEN, 50)], [(OPEN, 96)], "open"),
    "open then, closed and opened since": (
        [(OPEN, 90)],
        [(OPEN, 91), (END, 120), (OPEN, 150)],
        [(END, 120), (OPEN, 150)],
        "open",
    ),
}


@pytest.mark.parametrize("reloaded", [False, True], ids=["at once", "interrupted"])
@pytest.mark.parametrize("name", CASES)
def test_conditions_end_as_they_were_rebuilt(name: str, reloaded: bool) -> None:
    before, again, added, state = CASES[name]
    found = outcome([event(*e) for e in before], [event(*e) for e in again], reloaded=reloaded)
    assert found == (added, state)


def test_a_violation_is_known_by_its_id_whatever_its_time() -> None:
    one, other = (event("raised", 10, anomaly="duplicate", subject=(n,)) for n in (1, 2))
    untold = Untold(told(one), {PLACE: REACHED})
    again = table(event("raised", 12, anomaly="duplicate", subject=(1,)), other)
    assert untold.findings(again)["id"].to_pylist() == [other.id]


def test_a_partition_whose_rule_failed_keeps_what_it_told() -> None:
    untold = Untold(told(event(OPEN, 90), event(OPEN, 95, anomaly="check-failed")), {PLACE: REACHED})
    assert untold.settle({}, [PLACE]).num_rows == 0


SHARED: Any = {"anomaly": "cluster-unreachable", "partition": -1}


@pytest.mark.parametrize("reloaded", [False, True], ids=["at once", "interrupted"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("anomaly", ["cluster-unreachable", "evidence-late", "check-failed"])
def test_what_many_partitions_see_ends_as_it_was_rebuilt(anomaly: str, name: str, reloaded: bool) -> None:
    before, again, added, state = CASES[name]
    shared = SHARED | {"anomaly": anomaly}
    found = outcome([event(*e, **shared) for e in before], [event(*e, **shared) for e in again], reloaded=reloaded)
    assert found == (added, state)


def test_what_many_partitions_see_was_judged_as_far_as_the_furthest_of_them() -> None:
    reached = {PLACE: REACHED, ("c", "t", 1): 140, ("other", "t", 0): 900}
    untold = Untold(told(), reached)
    moments: Moments = [(OPEN, 130), (END, 135), (OPEN, 150), (END, 160)]
    again = table(*(event(what, at, **SHARED) for what, at in moments))
    assert untold.findings(again)["at"].cast(pa.int64()).to_pylist() == [150, 160]


def test_what_many_partitions_saw_ends_with_the_newest_of_its_own_cluster() -> None:
    untold = Untold(told(event(OPEN, 90, **SHARED)), {PLACE: REACHED})
    ended = untold.settle({PLACE: 200, ("c", "t", 1): 180, ("other", "t", 0): 900})
    assert ended.select(["event", "partition", "message"]).to_pylist() == [
        {"event": END, "partition": -1, "message": "cluster-unreachable no longer held when the state was rebuilt"}
    ]
    assert ended["at"].cast(pa.int64()).to_pylist() == [200]


def test_what_many_partitions_saw_stands_where_none_of_them_could_be_checked() -> None:
    untold = Untold(told(event(OPEN, 90, **SHARED)), {PLACE: REACHED})
    assert untold.settle({("other", "t", 0): 200}, [PLACE, ("c", "t", 1)]).num_rows == 0
    assert untold.settle({("c", "t", 1): 200}, [PLACE]).num_rows == 1


def test_the_job_s_own_conditions_are_left_alone() -> None:
    untold = Untold(told(event(OPEN, 90, anomaly="evidence-stalled", partition=-1)), {})
    assert untold.settle({PLACE: 200}).schema == FINDING_SCHEMA
    assert untold.settle({PLACE: 200}).num_rows == 0


def test_what_the_rebuilt_state_goes_on_with_stays_open() -> None:
    stuck = event(OPEN, 80, anomaly="stuck-consumer", subject=(7,), evidence={"process": 7})
    other = event(OPEN, 85, anomaly="stuck-consumer", subject=(8,), evidence={"process": 8})
    elsewhere = event(OPEN, 60, partition=1)
    explained = event(OPEN, 90, implied_by="cluster-unreachable")
    untold = Untold(told(stuck, other, elsewhere, explained, event(OPEN, 90, **SHARED)), {PLACE: REACHED})
    left = untold.left_open()
    assert left == {
        PLACE: {"stuck-consumer:7": Told(80), "stuck-consumer:8": Told(85), "unseen": Told(90, explained=True)},
        ("c", "t", 1): {"unseen": Told(60)},
    }
    ended = untold.settle({PLACE: 200, ("c", "t", 1): 200}, carried={PLACE: {"stuck-consumer:7", "unseen"}})
    assert set(zip(ended["id"].to_pylist(), ended["event"].to_pylist(), strict=True)) == {
        (one.id, END) for one in (other, elsewhere, event(OPEN, 90, **SHARED))
    }


def test_what_is_open_in_the_rebuilt_state_is_not_left_open() -> None:
    untold = Untold(told(event(OPEN, 90)), {PLACE: REACHED})
    untold.findings(table(event(OPEN, 91)))
    assert untold.left_open() == {}
