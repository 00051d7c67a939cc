"""Groups' committed offsets that are not what they were are one page, by whatever names and in however many places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.event import FindingEvent
from alerts.incidents.grouping import Incidents
from alerts.incidents.incident import Became
from alerts.receivers.memory import Memory
from tests.alerts.findings import NOON
from tests.alerts.incidents import S
from tests.alerts.test_incidents import told
from tests.alerts.test_told import Hook
from tests.alerts.test_told import hook as hook


def test_an_offset_that_was_set_from_outside_is_one_page() -> None:
    """By hand, as it is done to have a group read again."""
    told_of = {"group": "g", "before": 25737, "told": 25437}
    events = [
        told("foreign-commit", ("g", 25437), at=0.4, counted=11, evidence=told_of),
        told(
            "offset-regression",
            ("g", 25737, 25437),
            at=0.4,
            counted=14,
            evidence={"group": "g", "before": 25737, "after": 25437},
        ),
        told(
            "lost-commit",
            ("g", 25737, 25437),
            at=0.4,
            counted=16,
            evidence={"group": "g", "committed": 25737, "told": 25437},
        ),
        told(
            "lost-commit",
            ("h", 25737, 25437),
            at=0.4,
            counted=16,
            evidence={"group": "h", "committed": 25737, "told": 25437},
        ),
        told(
            "lost-commit",
            ("g", 25737, None),
            at=0.4,
            counted=16,
            evidence={"group": "g", "committed": 25737, "told": None},
        ),
    ]
    incidents = Incidents()
    incidents.take(events)
    assert sorted((one.anomaly, one.findings, one.folded) for one in incidents.at(NOON + 20 * S)) == [
        ("foreign-commit", 5, {"offset-regression": 1, "lost-commit": 3}),
    ]


@pytest.mark.parametrize("apart", [0.0, 3.0, 40.0])
@pytest.mark.parametrize("first", ["offset-regression", "lost-commit", "foreign-commit"])
def test_an_offset_that_was_set_is_one_page_by_its_worst_name(
    first: str, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it went back is a warning, and may be found first: of that nobody is told for a moment. What is found at one
    moment is called by what says most of it."""
    of = {
        "foreign-commit": {"before": 6787, "told": 100},
        "lost-commit": {"committed": 6787, "told": 100},
        "offset-regression": {"before": 6787, "after": 100},
    }
    events = [
        told(name, at=0.4, counted=11 if name == first else 11 + apart, evidence={"group": "g", **evidence})
        for name, evidence in of.items()
    ]
    events = [replace(one, severity="warning") if one.anomaly == "offset-regression" else one for one in events]
    incidents = Incidents()
    for counted in sorted({one.counted for one in events}):
        incidents.take([one for one in events if one.counted == counted])
    found = {one.anomaly: one for one in incidents.at(NOON + 60 * S)}
    worst = first if apart and first != "offset-regression" else "foreign-commit"
    main = found.pop(worst)
    assert (main.until, main.findings, main.folded) == (None, 3, dict.fromkeys(of.keys() - {worst}, 1))
    monkeypatch.setenv("CHAT", "json://localhost")
    hook = Hook()
    hook.hear(events, until=80)
    pages = [title for title, _, _ in hook.chat]
    if apart > 30 and first == "offset-regression":
        (ticket,) = found.values()
        assert (ticket.anomaly, ticket.became) == (first, Became(worst, main.id)) and ticket.until is not None
        assert pages[0] == "offset-regression in orders/3 (warning)" and len(pages) == 3, "and its end"
    else:
        assert not found and pages == [f"{worst} in orders/3 (critical)"]


def test_a_group_that_commits_back_a_while_before_another_is_set_is_another_incident() -> None:
    """The twin: a warning of two minutes ago is no part of it."""
    before = told("offset-regression", 1, at=0, counted=1, evidence={"group": "h", "after": 3})
    now = told("lost-commit", 2, at=130, counted=131, evidence={"group": "g", "committed": 9, "told": 4})
    incidents = Incidents()
    incidents.take([replace(before, severity="warning")])
    incidents.take([now])
    found = [(one.anomaly, one.until, one.became) for one in incidents.at(NOON + 140 * S)]
    assert found == [("lost-commit", None, None), ("offset-regression", None, None)]


def test_offsets_of_many_groups_that_were_set_at_once_are_one_page() -> None:
    """What is told first of one of them needs not be told of all: an offset that was set to where somebody had once
    committed, or to the beginning, has another name."""
    by_name: dict[str, Callable[[str, int], dict[str, Any]]] = {
        "foreign-commit": lambda g, n: {"group": g, "before": n, "told": n - 50},
        "spurious-zero-offset": lambda g, n: {"group": g, "known": n, "process": "7"},
        "offset-regression": lambda g, n: {"group": g, "before": n - 9, "after": n - 50},
        "lost-commit": lambda g, n: {"group": g, "committed": n, "told": n - 50},
    }
    places = [("g", 0, 700), ("g", 1, 600), ("h", 0, 710), ("h", 1, 12)]
    untold = {("foreign-commit", "h", 1), ("offset-regression", "g", 0)} | {
        ("spurious-zero-offset", group, partition) for group, partition, _ in places[:3]
    }
    events = [
        told(
            name,
            (group, i),
            at=0.4,
            counted=16.0 + i,
            topic=f"t{partition}",
            partition=partition,
            evidence=evidence(group, offset),
        )
        for i, (name, evidence) in enumerate(by_name.items())
        for group, partition, offset in places
        if (name, group, partition) not in untold
    ]
    incidents = Incidents()
    incidents.take(events)
    (one,) = incidents.at(NOON + 30 * S)
    assert (one.anomaly, one.folded) == (
        "foreign-commit",
        {"spurious-zero-offset": 1, "offset-regression": 3, "lost-commit": 4},
    )
    incidents.take(
        [told("lost-commit", ("g", 9), at=90, counted=100, evidence={"group": "g", "committed": 9, "told": 4})]
    )
    assert len(incidents.at(NOON + 110 * S)) == 2, "what is found of a later time may be another fault"


def test_a_group_that_was_set_to_the_beginning_is_one_page_whatever_its_topics() -> None:
    zero = {"group": "g", "known": 23102, "process": "7"}
    events = [
        told("spurious-zero-offset", ("committed", "g"), topic=topic, partition=partition, evidence=zero)
        for topic in ("orders", "payments")
        for partition in (0, 1)
    ]
    events.append(
        told(
            "lost-commit",
            ("g", 23102, 0),
            topic="orders",
            partition=0,
            at=5,
            evidence={"group": "g", "committed": 23102, "told": 0},
        )
    )
    incidents = Incidents()
    incidents.take(events)
    (one,) = incidents.at(NOON + 20 * S)
    assert (one.anomaly, one.topic, one.places, one.findings, one.folded) == (
        "spurious-zero-offset",
        "",
        4,
        5,
        {"lost-commit": 1},
    )


def test_offsets_that_are_set_while_an_earlier_page_goes_on_are_one_page_more() -> None:
    """And not one for each name: what the earlier one tells of is of another time."""
    before = told("lost-commit", 1, at=0, counted=10, evidence={"group": "h", "committed": 90, "told": None})
    of = {"group": "transform", "before": 1217, "after": 1157}
    again = {"group": "transform", "input_offset": 1157}
    events = [
        told("spurious-zero-offset", ("g",), at=72, counted=80, evidence={"group": "g", "known": 9, "process": "7"}),
        replace(told("offset-regression", 2, at=72.1, counted=80, topic="in", evidence=of), severity="warning"),
        told("eos-violation", 3, at=73, counted=80, topic="out", evidence=again),
        told("lost-commit", 4, at=76, counted=85, topic="in", evidence={"group": "g", "committed": 9, "told": 4}),
    ]
    incidents = Incidents()
    incidents.take([before, *events])
    later, earlier = incidents.at(NOON + 100 * S)
    assert (earlier.anomaly, earlier.findings) == ("lost-commit", 1)
    folded = {"offset-regression": 1, "eos-violation": 1, "lost-commit": 1}
    assert (later.anomaly, later.severity, later.folded) == ("spurious-zero-offset", "critical", folded)


@pytest.mark.parametrize(("group", "at"), [("transform", 3.0), ("transform", 70.0), ("another", 3.0)])
def test_inputs_that_are_reflected_twice_take_in_that_their_group_was_set_back(group: str, at: float) -> None:
    """That it was, to where it had once committed, is a warning by itself."""
    of = {"group": "transform", "before": 1217, "after": 1157}
    back = replace(told("offset-regression", 1, at=0, counted=10, topic="in", evidence=of), severity="warning")
    again = {"group": group, "input_offset": 1157}
    twice = told("eos-violation", 2, at=at, counted=at + 8, topic="out", evidence=again)
    incidents = Incidents()
    incidents.take([back])
    incidents.take([twice])
    found = {one.anomaly: one.folded for one in incidents.at(NOON + 100 * S) if not one.absorbed}
    if (group, at) == ("transform", 3.0):
        assert found == {"eos-violation": {"offset-regression": 1}}
    else:
        assert found == {"eos-violation": {}, "offset-regression": {}}


def test_what_is_found_late_of_an_earlier_time_begins_no_page_that_takes_what_follows() -> None:
    """The twin: what a later one tells of goes on to join what was told of its own time."""
    now = told("lost-commit", 1, at=100, counted=110, evidence={"group": "g", "committed": 90, "told": None})
    late = told("spurious-zero-offset", 2, at=10, counted=115, evidence={"group": "i", "known": 9, "process": "7"})
    of = {"group": "h", "before": 1217, "after": 1157}
    next_of_now = told("offset-regression", 3, at=110, counted=120, topic="in", evidence=of)
    incidents = Incidents()
    incidents.take([now, late, next_of_now])
    assert [(one.anomaly, one.findings) for one in incidents.at(NOON + 130 * S)] == [
        ("lost-commit", 2),
        ("spurious-zero-offset", 1),
    ]


def test_acknowledgements_of_offset_zero_in_two_topics_are_two() -> None:
    events = [
        told(
            "spurious-zero-offset",
            ("acknowledgement", 7, 9),
            topic=topic,
            evidence={"writer": 7, "seq": 9, "known": 23102, "process": "7", "op": 4},
        )
        for topic in ("orders", "payments")
    ]
    incidents = Incidents()
    incidents.take(events)
    assert [(one.anomaly, one.findings) for one in incidents.at(NOON + 20 * S)] == [("spurious-zero-offset", 1)] * 2


def test_inputs_that_are_reflected_twice_after_another_groups_offset_was_set_are_told(hook: Hook) -> None:
    """Who was told of a reader that was set back knows nothing of a transform that counts everything twice."""

    def zero(group: str, *, at: float) -> FindingEvent:
        evidence = {"group": group, "committed": 0, "before": 3455}
        return told("spurious-zero-offset", (group,), at=at, topic=f"{group}-in", evidence=evidence)

    twice = [
        told("eos-violation", n, at=202 + n / 100, topic="out", evidence={"group": "transform", "input_offset": n})
        for n in range(500)
    ]
    heard = hook.hear([zero("reader", at=0), zero("transform", at=200), *twice], until=400)
    assert [(at, state) for at, state, _ in heard] == [(12, "open"), (201, "worse"), (261, "worse")]
    assert heard[2][2].startswith("spurious-zero-offset with eos-violation in ")
    assert "With it came 500 × eos-violation" in hook.said(2)
    assert len({body["id"] for _, body in hook.told}) == 3


def test_that_inputs_are_reflected_twice_is_told_with_the_page_that_comes_later(hook: Hook) -> None:
    """And an incident that says so itself does not grow worse by it."""
    commit = told("lost-commit", 1, at=0, counted=5, evidence={"group": "g", "committed": 90, "told": None})
    twice = told("eos-violation", 1, at=1, counted=4.5, evidence={"group": "g", "input_offset": 7})
    heard = hook.hear([commit, twice], until=200)
    assert [state for _, state, _ in heard] == ["open"]
    stands = told("duplicate", 1, at=0, evidence={"writer": 7, "seq": 1})
    reflected = told("eos-violation", 2, at=5, topic="out", evidence={"writer": 7, "seq": 1, "group": "g"})
    assert [state for _, state, _ in Hook().hear([stands, reflected], until=200)] == ["open"]


def test_a_restart_remembers_that_it_was_told_of_what_was_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT", "json://localhost")
    commit = told("lost-commit", 1, at=0, counted=5, evidence={"group": "g", "committed": 90, "told": None})
    events = [commit, told("eos-violation", 1, at=20, evidence={"group": "g", "input_offset": 7})]
    first = Hook(Memory(tmp_path / "webhook.json", NOON - 999 * S))
    assert [state for _, state, _ in first.hear(events, until=200)] == ["open", "worse"]
    second = Hook(Memory(tmp_path / "webhook.json", NOON))
    assert second.hear(events, until=200) == []
