"""Dependency cycles, name by name: each guilty history beside its nearest innocent twin.

One line an operation: `process.op begun-ended: >partition value@offset ... <partition writer/value@offset ...`; values
are numbers, and the process that sends one is its writer. `| boot` at the end names another clock, `| -` none.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from rules.cycles.components import NAMES
from rules.cycles.dependencies import read
from rules.cycles.picture import picture
from rules.cycles.precedence import graph, realtime_order, suspects
from rules.cycles.search import Limits, search
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from rules.vocabulary.policy import severity
from rules.vocabulary.slices import Outcome, Run, Slice, to_table
from rules.vocabulary.times import EPOCH

START = EPOCH + timedelta(days=20_000)


def rows(history: str) -> list[Slice]:
    found: list[Slice] = []
    for line in history.strip().splitlines():
        told, _, clock = line.partition("|")
        head, _, body = told.partition(":")
        named, times, *kind = head.split()
        outcome: Outcome = "info" if "info" in kind else "fail" if "fail" in kind else "ok"
        process, op = map(int, named.split("."))
        begun, ended = map(int, times.split("-"))
        parts: dict[int, dict[str, list[Run]]] = {}
        here: list[Run] = []
        for word in body.split():
            if word[0] in "<>":
                part = parts.setdefault(int(word[1:]), {"sent": [], "polled": []})
                here = part["sent" if word[0] == ">" else "polled"]
                continue
            value, _, offset = word.partition("@")
            writer, _, seq = value.rpartition("/")
            here.append(Run(int(writer or process), int(seq), int(offset) if offset else None, 1))
        boot = clock.strip() or "boot"
        for partition, lists in parts.items():
            found.append(
                Slice(
                    cluster="c",
                    topic_id="t",
                    topic="topic",
                    partition=partition,
                    run="r",
                    process=process,
                    op=op,
                    slice=op,
                    f="txn",
                    type=outcome,
                    boot=None if boot == "-" else boot,
                    mono_invoked=None if boot == "-" else begun,
                    mono_completed=None if boot == "-" else ended,
                    invoked=START + timedelta(microseconds=begun),
                    completed=START + timedelta(microseconds=ended),
                    isolation="read_uncommitted" if "dirty" in kind else "read_committed",
                    sent=lists["sent"],
                    polled=lists["polled"],
                )
            )
    return found


def cycles(history: str, **options: Any) -> list[Finding]:
    return search(to_table(rows(history)), **options).findings


WRITE_WRITE = {
    "G0": (
        """
        1.0 0-9: >0 1@0 >1 2@1
        2.0 0-9: >0 1@1 >1 2@0
        """,
        """
        1.0 0-9: >0 1@0 >1 2@0
        2.0 0-9: >0 1@1 >1 2@1
        """,
    ),
    "G0-process": (  # one process's earlier operation stands behind what stands behind its later one
        """
        1.0 0-1: >0 1@5
        1.1 2-9: >1 2@0
        2.0 0-9: >1 1@1 >0 2@4
        """,
        """
        1.0 0-1: >0 1@3
        1.1 2-9: >1 2@0
        2.0 0-9: >1 1@1 >0 2@4
        """,
    ),
    "G0-realtime": (
        """
        1.0 0-1: >0 1@5
        2.0 2-3: >0 1@4
        """,
        """
        1.0 0-2: >0 1@5
        2.0 2-3: >0 1@4
        """,
    ),
}
WRITE_READ = {
    "G1c": (
        """
        1.0 0-9: >0 1@0 <1 2/1@0
        2.0 0-9: >1 1@0 <0 1/1@0
        """,
        """
        1.0 0-9: >0 1@0
        2.0 0-9: >1 1@0 <0 1/1@0
        """,
    ),
    "G1c-process": (  # what a process polls comes from one who saw what the process sent only later
        """
        1.0 0-4: <1 2/1@0
        1.1 3-9: >0 1@0
        2.0 0-9: >1 1@0 <0 1/1@0
        """,
        """
        1.1 0-4: <1 2/1@0
        1.0 3-9: >0 1@0
        2.0 0-9: >1 1@0 <0 1/1@0
        """,
    ),
    "G1c-realtime": (
        """
        1.0 0-1: <0 2/1@0
        2.0 2-3: >0 1@0
        """,
        """
        1.0 0-2: <0 2/1@0
        2.0 2-3: >0 1@0
        """,
    ),
}
SEVERAL = """
    1.0 0-9: >0 1@0 <1 2/1@0
    2.0 0-9: >1 1@0 <0 1/1@0
    3.0 20-21: <2 4/1@0
    4.0 22-23: >2 1@0
    5.0 40-41: >3 1@0 <4 6/1@0
    6.0 40-41: >4 1@0 <3 5/1@0
    7.0 60-61: >5 1@0
"""
PAIRS = [(name, *pair, name in WRITE_WRITE) for name, pair in (WRITE_WRITE | WRITE_READ).items()]


@pytest.mark.parametrize(("name", "guilty", "innocent", "ww"), PAIRS, ids=[p[0] for p in PAIRS])
def test_each_name_and_its_innocent_twin(name: str, guilty: str, innocent: str, ww: bool) -> None:
    [found] = cycles(guilty, ww=ww)
    assert found.anomaly == name
    assert found.context == {"ww": "true" if ww else "false"}
    assert cycles(innocent, ww=ww) == []
    if ww:
        assert cycles(guilty) == []  # write-write edges come on request only


def test_every_name_is_in_the_catalogue() -> None:
    assert {p[0] for p in PAIRS} == set(NAMES)
    assert all(CATALOGUE[name].kind == "violation" for name in NAMES)


@pytest.mark.parametrize(
    ("clocks", "found"),
    [(("boot", "boot"), ["G1c-realtime"]), (("boot", "other"), []), (("-", "-"), []), (("boot", "-"), [])],
)
def test_order_in_time_is_concluded_within_one_clock_alone(clocks: tuple[str, str], found: list[str]) -> None:
    history = f"1.0 0-1: <0 2/1@0 | {clocks[0]}\n2.0 200-300: >0 1@0 | {clocks[1]}"
    assert [f.anomaly for f in cycles(history)] == found


def test_a_stronger_name_is_given_only_where_no_weaker_one_holds() -> None:
    history = """
        1.0 0-1: >0 1@0 <1 2/1@0
        2.0 2-9: >1 1@0 <0 1/1@0
    """  # also a cycle in real time: what 2 sent was polled before 2 began
    assert [f.anomaly for f in cycles(history)] == ["G1c"]


def test_a_moment_that_ends_one_and_begins_the_other_orders_nothing() -> None:
    history = """
        1.0 5-6: >0 1@0
        2.0 0-5: >1 1@0 <0 1/1@0
        3.0 1-3: <1 2/1@0
    """
    [found] = cycles(history)
    assert (found.anomaly, found.evidence["length"]) == ("G1c-realtime", 3)


def test_independent_faults_are_each_reported() -> None:
    assert sorted(f.anomaly for f in cycles(SEVERAL)) == ["G1c", "G1c", "G1c-realtime"]


@pytest.mark.parametrize("kind", ["ok", "info", "fail"])
def test_operations_of_every_outcome_are_nodes(kind: str) -> None:
    history = f"""
        1.0 0-9 {kind}: >0 1@0 <1 2/1@0
        2.0 0-9: >1 1@0 <0 1/1@0
    """
    [found] = cycles(history)
    assert found.evidence["operations"][0]["type"] == kind


def test_a_value_of_two_writers_has_no_writer() -> None:
    history = """
        1.0 0-9: >0 1@0 <1 2/1@0
        1.1 0-9: >0 1@0
        2.0 0-9: >1 1@0 <0 1/1@0
    """
    assert cycles(history) == []


def test_what_a_read_uncommitted_reader_polls_is_told_and_allowed() -> None:
    history = """
        1.0 0-9 {kind}: >0 1@0 <1 2/1@0
        2.0 0-9: >1 1@0 <0 1/1@0
    """
    [committed], [dirty] = cycles(history.format(kind="ok")), cycles(history.format(kind="dirty"))
    assert severity(committed.anomaly, committed.context) == "critical"
    assert dirty.context["isolation"] == "read_uncommitted"
    assert severity(dirty.anomaly, dirty.context) == "allowed"
    assert severity(dirty.anomaly, dirty.context, strict=True) == "critical"


@pytest.mark.parametrize(
    ("why", "history"),
    [
        ("two values at one offset tell no order", "1.0 0-9: >0 1@0 >1 2@1\n2.0 0-9: >0 1@1 >1 2@0\n3.0 0-9: >0 1@0"),
        ("of two offsets the last counts", "1.0 0-9: >0 1@0 >1 2@1\n2.0 0-9: >0 1@1 >1 2@0\n3.0 0-9: <0 1/1@4"),
        ("a failed write that nobody saw has no place", "1.0 0-9 fail: >0 1@0 >1 2@1\n2.0 0-9: >0 1@1 >1 2@0"),
        ("an indefinite write that nobody saw has no place", "1.0 0-9 info: >0 1@0 >1 2@1\n2.0 0-9: >0 1@1 >1 2@0"),
    ],
)
def test_write_write_edges_follow_the_log(why: str, history: str) -> None:
    assert cycles(history, ww=True) == [], why


@pytest.mark.parametrize(
    "first_key",
    [
        "2.0 0-9: >0 1@2 >1 2@1\n1.0 0-9: >0 1@1 >1 2@4\n3.0 0-9: <0 2/1@3",  # twice in a row
        "2.0 0-9: >0 1@3 >1 2@1\n1.0 0-9: >0 1@1 >1 2@4\n4.0 0-9: >0 1@2\n3.0 0-9: <0 4/1@9",  # another's earlier place
    ],
)
def test_an_earlier_place_of_a_value_parts_no_neighbours(first_key: str) -> None:
    found = cycles(first_key, ww=True)
    assert "G0" in [f.anomaly for f in found]
    assert cycles(first_key.replace(">1 2@1", ">1 2@5"), ww=True) == []


def test_an_indefinite_write_that_was_seen_anywhere_is_in_the_log() -> None:
    history = "1.0 0-9 info: >0 1@0 >1 2@1 >2 3\n2.0 0-9: >0 1@1 >1 2@0\n3.0 0-9: <2 1/3@0"
    assert [f.anomaly for f in cycles(history, ww=True)] == ["G0"]


def test_the_whole_finding() -> None:
    [found] = cycles(WRITE_READ["G1c-realtime"][0])
    assert (found.cluster, found.topic, found.partition, found.subject) == ("c", "topic", 0, (1, 0, 2, 0))
    assert found.message == (
        "2 operations each come before the next, the last before the first: operation 0 of process 1 had completed"
        " before operation 0 of process 2 was invoked, by one clock; operation 0 of process 2 wrote 2/1, which"
        " operation 0 of process 1 polled from offset 0 of partition 0"
    )
    assert found.evidence["steps"] == [
        {"kind": "realtime"},
        {"kind": "wr", "partition": 0, "writer": 2, "seq": 1, "offset": 0},
    ]
    assert len(found.evidence["why"]) == found.evidence["length"] == 2


def chain(length: int) -> str:
    """A G1c of `length` operations, each polling what the one before sent."""
    lines = []
    for i in range(length):
        before = (i - 1) % length
        lines.append(f"{i + 1}.0 {i}-{length + i}: >{i} 1@0 <{before} {before + 1}/1@0")
    return "\n".join(lines)


@pytest.mark.parametrize("length", [2, 3, 7, 40])
def test_the_picture_is_whole_and_speaks_for_itself(length: int) -> None:
    [found] = [f for f in cycles(chain(length)) if f.anomaly == "G1c"]
    drawn = picture(found.anomaly, found.evidence)
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert root.find(f"{space}title").text == f"G1c: a cycle of {length} operations"  # type: ignore[union-attr]
    described = root.findtext(f"{space}desc") or ""
    assert all(sentence in described for sentence in found.evidence["why"])
    shown = len(found.evidence["operations"])
    assert len(root.findall(f"{space}path")) == shown == min(length, 24)
    assert found.evidence["left_out"] == length - shown
    assert (f"{length - shown} operations that are not drawn" in " ".join(root.itertext())) == (length > 24)
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")


def test_a_long_cycle_leaves_room_for_a_short_one_of_a_stronger_name() -> None:
    length = 20
    lines = chain(length).splitlines()
    lines[-1] = lines[-1].replace(f"{length - 1}-{2 * length - 1}", "500-501")
    lines[0] = lines[0].replace(f"0-{length}", "0-1")
    assert sorted((f.anomaly, f.evidence["length"]) for f in cycles("\n".join(lines))) == [
        ("G1c", length),
        ("G1c-realtime", 2),
    ]


def test_how_many_are_reported_is_bounded() -> None:
    history = "\n".join(
        f"{2 * i + 1}.0 0-9: >0 1@{i} <1 {2 * i + 2}/1@{i}\n{2 * i + 2}.0 0-9: >1 1@{i} <0 {2 * i + 1}/1@{i}"
        for i in range(20)
    )
    assert len(cycles(history)) == 20
    bounded = search(to_table(rows(history)), limits=Limits(most=1))
    assert bounded.truncated == ("G1c",)


def test_rows_in_any_order_and_twice_give_the_same() -> None:
    chance = np.random.default_rng(3)
    table = to_table(rows(SEVERAL))
    whole = search(table, ww=True).findings
    for _ in range(20):
        order = chance.permutation(np.concatenate((np.arange(table.num_rows), chance.integers(0, table.num_rows, 3))))
        assert search(table.take(order), ww=True).findings == whole


def test_realtime_edges_are_few_and_say_what_all_pairs_would() -> None:
    chance = np.random.default_rng(5)
    for _ in range(200):
        size = int(chance.integers(1, 30))
        begun = chance.integers(0, 40, size)
        ended = begun + chance.integers(0, 12, size)
        clock = chance.integers(-1, 3, size)
        lines = [
            f"{i}.0 {b}-{e}: >0 1@{i} | {'-' if c < 0 else f'boot{c}'}"
            for i, (b, e, c) in enumerate(zip(begun.tolist(), ended.tolist(), clock.tolist(), strict=True))
        ]
        operations = read(to_table(rows("\n".join(lines)))).operations
        source, target, times = realtime_order(operations)
        assert len(times) <= size
        assert len(source) <= 3 * size
        after: dict[int, set[int]] = {}
        for a, b in zip(source.tolist(), target.tolist(), strict=True):
            after.setdefault(a, set()).add(b)
        for a in range(size):
            reached, waiting = set(), [a]
            while waiting:
                for following in after.get(waiting.pop(), ()):
                    if following < size:
                        reached.add(following)
                    elif following not in reached:
                        reached.add(following)
                        waiting.append(following)
            expected = {b for b in range(size) if clock[a] >= 0 and clock[a] == clock[b] and ended[a] < begun[b]}
            assert {n for n in reached if n < size} == expected


def test_what_no_backward_edge_spans_is_not_searched() -> None:
    healthy = "\n".join(
        f"{i % 3}.{i} {10 * i}-{10 * i + 15}: >0 {i}@{i} <0 {(i + 2) % 3}/{i - 1}@{i - 1}" for i in range(1, 90)
    )
    table = to_table(rows(healthy))
    history = read(table)
    assert len(suspects(graph(history.operations, history.dependencies)).node) == 0
    late = to_table(rows(healthy + "\n7.0 400-405: <0 0/45@45"))  # polled before it was sent, in the middle
    found = search(late)
    assert [f.anomaly for f in found.findings] == ["G1c-realtime"]
    assert found.suspects < 40
