"""The sentence that is read first, what each partition's cell says, and the same for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from alerts.incidents.silence import Silence
from monitor.status.overview_view import Page, as_json, page, told
from monitor.status.traffic import TrafficPace
from tests.alerts.incidents import condition, incident
from tests.monitor.rows import NOON
from tests.monitor.status.serving import Monitor, state

M = timedelta(minutes=1)


def verdict(*rows: dict[str, Any], **monitor: Any) -> tuple[str, str]:
    return told(Monitor(**monitor).board(*rows).seen())


def shown(*rows: dict[str, Any], pace: TrafficPace | None = None, **monitor: Any) -> Page:
    return page(Monitor(**monitor).board(*rows).seen(), pace)


def test_all_is_well() -> None:
    assert verdict(state(1, checked=-1.2), state(2, checked=-1)) == (
        "ok",
        "Everything healthy, checked through 11:59:58 UTC, 1.2 s ago",
    )
    assert verdict(state(1, checked=-34.6))[1].endswith("checked through 11:59:25 UTC, 35 s ago")


def test_an_incident_is_open() -> None:
    assert verdict(state(3, checked=-1.2), incidents=[incident()]) == (
        "critical",
        "1 incident open: lost-write in orders/3, critical, since 12:00:00; everything else healthy, "
        "checked through 11:59:58 UTC",
    )
    assert verdict(state(3), incidents=[condition(severity="warning")])[0] == "warning"
    assert verdict(state(3), incidents=[incident(ended=0)])[0] == "ok"


def test_what_is_silenced_is_shown_as_before_and_says_so() -> None:
    silence = Silence(
        id="ab12cd", cluster="c", topic="orders", since=NOON - M, until=NOON + 90 * M, because="new disks", by="ops"
    )
    over = replace(silence, id="ffffff", until=NOON - M / 2)
    monitor: dict[str, Any] = {"incidents": [incident(silence=silence), condition()], "silences": [silence, over]}
    made = shown(state(3), **monitor)
    assert made.silences == ["Silenced until 13:30 UTC: topic orders of cluster c (new disks, by ops); ab12cd"]
    assert sorted((one.anomaly, one.silenced) for one in made.open) == [("lost-write", "13:30"), ("unseen", "")]
    assert made.state == "critical", "a silence hides nothing"
    told_of = as_json(Monitor(**monitor).board(state(3)).seen(), None)
    assert [one["id"] for one in told_of["silences"]] == ["ab12cd"]
    assert {one["anomaly"]: one["silenced_until"] for one in told_of["incidents"]} == {
        "lost-write": "2024-10-04T13:30:00Z",
        "unseen": None,
    }


@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        (("c", "c"), "but some is checked only through 11:55:00 UTC"),
        (("c", "d"), "but some of orders-eu is checked only through 11:55:00 UTC"),
        (("d", "c"), "but some of d is checked only through 11:55:00 UTC"),
    ],
)
def test_of_several_clusters_it_is_said_which_one_is_checked_less_far(clusters: tuple[str, str], words: str) -> None:
    late, well = (state(i, cluster=cluster, checked=[-300.0, -1.0][i]) for i, cluster in enumerate(clusters))
    seen = Monitor().board(late, well, names=lambda cluster: {"c": "orders-eu"}.get(cluster, "")).seen()
    assert words in told(seen)[1]


@pytest.mark.parametrize(
    ("rows", "monitor", "state_", "words"),
    [
        ([], {}, "silent", "Nothing has been checked yet. No incident is open."),
        (
            [],
            {"not_ready": "starting: blind since 12:00:05 UTC"},
            "silent",
            "Nothing has been checked yet: blind since 12:00:05 UTC.",
        ),
        ([state(1)], {"now": NOON + 3 * M}, "silent", "NOTHING HAS BEEN CHECKED FOR 3m"),
        ([state(1)], {"now": NOON + 3 * M, "incidents": [incident()]}, "critical", "NOTHING HAS BEEN CHECKED FOR 3m"),
        ([state(1, checked=-300)], {}, "behind", "but some is checked only through 11:55:00 UTC"),
        ([state(1), state(2, check_failed="ValueError: no")], {}, "failed", "the checks of orders/2 have failed"),
        (
            [state(1)],
            {"not_ready": "the checks have stopped, and begin again"},
            "silent",
            "Right now nothing is checked: the checks have stopped, and begin again. Before: No incident is open",
        ),
    ],
)
def test_what_is_not_known_never_looks_healthy(
    rows: list[dict[str, Any]], monitor: dict[str, Any], state_: str, words: str
) -> None:
    got, sentence = verdict(*rows, **monitor)
    assert got == state_
    assert words in sentence
    assert not sentence.startswith("Everything healthy")


@pytest.mark.parametrize(
    ("row", "monitor", "state_", "sign"),
    [
        (state(3), {}, "ok", "✓"),
        (state(3), {"incidents": [incident()]}, "critical", "✕"),
        (state(3), {"incidents": [incident(severity="warning")]}, "warning", "!"),
        (state(3, check_failed="KeyError"), {"incidents": [incident()]}, "failed", "?"),
        (state(3, now=NOON - 2 * M), {}, "silent", "–"),
        (state(3, now=None), {}, "silent", "–"),
        (state(3, checked=-90), {}, "behind", "…"),
        (state(3, checked_through=None), {}, "behind", "…"),
    ],
)
def test_a_partition_has_a_state_a_sign_and_words(
    row: dict[str, Any], monitor: dict[str, Any], state_: str, sign: str
) -> None:
    [(topic, [cell])] = shown(row, **monitor).clusters[0].topics
    assert (topic, cell.state, cell.sign) == ("orders", state_, sign)
    assert cell.told.startswith("orders partition 3: ")
    assert cell.incident == (incident().id if monitor else None)


def test_clusters_each_with_their_topics_in_order() -> None:
    rows = [
        state(10, topic="b"),
        state(2, topic="b"),
        state(0, topic="a"),
        state(0, topic="a", cluster="d", checked=-300),
    ]
    clusters = shown(*rows, incidents=[incident(cluster="e", subjects=(), topic="")]).clusters
    assert [(one.id, one.state, one.sentence) for one in clusters] == [
        ("c", "ok", "3 partitions, all healthy"),
        ("d", "behind", "1 partition, 1 nobody knows of"),
        ("e", "critical", "0 partitions, 1 incident open"),
    ]
    assert [(topic, [cell.partition for cell in cells]) for topic, cells in clusters[0].topics] == [
        ("a", [0]),
        ("b", [2, 10]),
    ]


def test_clusters_with_names_are_called_so_in_the_order_of_their_names() -> None:
    monitor = Monitor(incidents=[incident(cluster="d", cluster_name="billing", topic="orders")])
    called = {"c": "orders-eu", "d": "billing"}
    seen = monitor.board(state(1), state(3, cluster="d"), names=called.__getitem__).seen()
    assert [(one.name, one.id) for one in page(seen, None).clusters] == [("billing", "d"), ("orders-eu", "c")]
    assert page(seen, None).open[0].where == "orders/3 of billing"
    assert "lost-write in orders/3 of billing, critical" in told(seen)[1]
    got = as_json(seen, None)
    assert [one["cluster_name"] for one in (*got["partitions"], *got["incidents"])] == [
        "orders-eu",
        "billing",
        "billing",
    ]


def test_of_very_many_partitions_the_worst_are_shown_and_the_others_counted() -> None:
    rows = [state(n) for n in range(2_500)]
    got = shown(*rows, incidents=[incident(subjects=("orders/2499",))])
    cells = got.clusters[0].topics[0][1]
    assert (len(cells), got.left_out) == (2_000, 500)
    assert cells[-1].partition == 2_499 and cells[-1].state == "critical"


def test_incidents_the_open_ones_first_and_ids_cut_to_their_last_digits() -> None:
    one = incident(message=f"value {2**60}/5 is lost", findings=12)
    over = [incident(f"{n:016x}", ended=n) for n in range(60)]
    got = shown(state(3), incidents=[one, *over])
    assert [(row.id, row.message) for row in got.open] == [(one.id, "value …6976/5 is lost")]
    assert (len(got.over), got.more_over) == (50, 10)


def test_figures() -> None:
    lagging = state(3, readers=[{"process": 1, "position": 70, "mode": "assign"}], unseen=2)
    pace = TrafficPace(440.4, 2_808, 49.2, 12_345.0, 3)
    got = {one.name: one.value for one in shown(lagging, pace=pace).figures}
    assert got == {
        "Newest evidence": "0.5 s",
        "Checked": "unknown",
        "Sent": "440 /s",
        "Polled": "2,808 /s",
        "Acknowledged within": "49 ms",
        "Not ok": "3",
        "Slowest reader": "30",
        "Unseen": "2",
    }


def test_what_was_hours_ago_is_not_told_as_now() -> None:
    lagging = state(3, readers=[{"process": 1, "position": 70, "mode": "assign"}], unseen=2)
    pace = TrafficPace(440.4, 2_808, 49.2, 12_345.0, 3)
    late: dict[str, Any] = {"now": NOON + 120 * M}
    got = {one.name: (one.value, one.meaning) for one in shown(lagging, pace=pace, **late).figures}
    assert {name for name, (value, _) in got.items() if value == "unknown"} == {
        "Checked",
        "Sent",
        "Polled",
        "Acknowledged within",
        "Slowest reader",
        "Unseen",
    }
    assert "Not ok" not in got and got["Acknowledged within"][1] == "half of the sends"
    assert as_json(Monitor(**late).board(lagging).seen(), pace)["probes"] is None


def test_for_programs() -> None:
    monitor = Monitor(incidents=[incident()])
    got = json.loads(json.dumps(as_json(monitor.board(state(3)).seen(), None)))
    assert (got["state"], got["now"], got["not_ready"]) == ("critical", "2024-10-04T12:00:00Z", None)
    assert got["incidents"][0]["evidence"] == {"writer": str(2**60), "offset": 5}, "JavaScript would round it"
    assert got["partitions"] == [
        {
            "cluster": "c",
            "cluster_name": None,
            "topic": "orders",
            "partition": 3,
            "state": "critical",
            "incident": incident().id,
            "checked_through": "2024-10-04T11:59:59Z",
            "log_start": 0,
            "log_end": 100,
            "unseen": 0,
            "lag": None,
        },
    ]
    assert got["verdict"].startswith("1 incident open")
