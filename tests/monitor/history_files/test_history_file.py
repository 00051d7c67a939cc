"""From a file to slices: every form gives the same table, and the table is what the file says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.history_files.errors import UnreadableHistory
from monitor.history_files.history_file import HistoryFile, read
from rules.cycles.search import search
from rules.step import step
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import SLICE_SCHEMA
from tests.monitor.history_files import generate
from tests.monitor.history_files.shorthand import Event, edn, events

COLONS = {"type": str, "f": str}


def keyword(event: Event, value: Any = None) -> Any:
    """The event as a program that keeps the colons of keywords writes it into JSON."""
    return {f":{k}": f":{v}" if k in COLONS else v for k, v in event.items()}


FORMS: dict[str, Callable[[list[Event]], str]] = {
    "JSON lines": lambda found: "".join(json.dumps(e) + "\n" for e in found),
    "JSON lines, compact, no last newline": lambda found: "\n".join(
        json.dumps(e, separators=(",", ":")) for e in found
    ),
    "JSON lines with colons": lambda found: "".join(json.dumps(keyword(e)) + "\n\n" for e in found),
    "JSON array": json.dumps,
    "JSON array, a map a line": lambda found: "[\n" + ",\n".join(json.dumps(e) for e in found) + "\n]\n",
    "JSON array, indented": lambda found: json.dumps(found, indent=2),
    "EDN lines": lambda found: "".join(edn(e) + "\n" for e in found),
    "EDN vector": lambda found: "[" + "\n ".join(edn(e) for e in found) + "]",
    "EDN list": lambda found: "(" + " ".join(edn(e) for e in found) + ")\n",
    "EDN records": lambda found: "".join(f"#jepsen.history.Op{edn(e)}\n" for e in found),
    "EDN of many lines": lambda found: "\n".join(edn(e).replace(",", "\n") + " ; one event" for e in found),
}


def write(path: Path, found: list[Event], form: str = "JSON lines") -> Path:
    path.write_text(FORMS[form](found))
    return path


def rows(history: HistoryFile, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[c] for c in columns) for row in history.slices.select(columns).to_pylist()]


def runs(listed: list[dict[str, Any]] | None) -> list[tuple[Any, ...]] | None:
    return None if listed is None else [(r["writer"], r["seq"], r["offset"], r["length"]) for r in listed]


MIXED = """
    0 ok assign 3 5
    0 ok send >3 17@0 18@1 >5 17@0                        # event 3
    1 ok subscribe 3
    1 ok poll <3 17@0 18@1                                # event 7
    0 info txn >3 19 >5 18 20@4 <5 17@0 <3 17@0 18@1 5 18@2 19@3 rebalance 5
    1 fail txn >3 21@9 <
    2 ok poll <
    0 invoke send >5 30 31
"""


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_table(tmp_path: Path, form: str) -> None:
    path = tmp_path / "h"
    expected = read(write(path, events(MIXED)))
    history = read(write(path, events(MIXED), form))
    assert history.slices.schema == SLICE_SCHEMA
    assert history.slices.equals(expected.slices)
    assert history.operations == 8


def test_the_table_is_what_the_file_says(tmp_path: Path) -> None:
    history = read(write(tmp_path / "h.jsonl", events(MIXED)))
    history.slices.validate(full=True)
    told = [
        (*row[:-2], runs(row[-2]), runs(row[-1]))
        for row in rows(
            history,
            "partition",
            "process",
            "op",
            "slice",
            "f",
            "type",
            "mode",
            "assigned",
            "rebalanced",
            "sent",
            "polled",
        )
    ]
    assert told == [
        (3, 0, 1, 0, "assign", "ok", "assign", True, False, None, None),
        (3, 0, 3, 1, "send", "ok", "assign", None, False, [(0, 17, 0, 2)], None),
        (3, 1, 5, 0, "subscribe", "ok", "subscribe", True, False, None, None),
        (3, 1, 7, 1, "poll", "ok", "subscribe", None, False, None, [(0, 17, 0, 2)]),
        (3, 0, 9, 2, "txn", "info", "assign", None, False, [(0, 19, None, 1)], [(0, 17, 0, 2)]),
        (3, 1, 11, 2, "txn", "fail", "subscribe", None, False, [(0, 21, 9, 1)], None),
        (5, 0, 1, 0, "assign", "ok", "assign", True, False, None, None),
        (5, 0, 3, 1, "send", "ok", "assign", None, False, [(0, 17, 0, 1)], None),
        (
            5,
            0,
            9,
            2,
            "txn",
            "info",
            "assign",
            None,
            True,
            [(0, 18, None, 1), (0, 20, 4, 1)],
            [(0, 17, 0, 1), (0, 18, 2, 2)],
        ),
        (5, 0, 14, 3, "send", "info", "assign", None, False, [(0, 30, None, 2)], None),
    ]
    names = {"cluster", "topic", "topic_id", "run", "boot"}
    assert {tuple(row) for row in rows(history, *names)} == {("h.jsonl",) * 5}
    assert rows(history, "txn")[4:6] == [(9,), (11,)]
    assert [row for row in rows(history, "txn") if row[0] is not None] == [(9,), (11,), (9,)]
    mono = rows(history, "mono_invoked", "mono_completed", "invoked", "completed")
    assert mono[1][:2] == (2000, 3000)  # counted in events: taken for microseconds
    assert [t.microsecond for t in mono[1][2:]] == [2, 3]
    assert mono[-1][:2] == (14_000, 14_000)


@pytest.mark.parametrize("f", ["assign", "subscribe"])
@pytest.mark.parametrize(
    ("outcome", "first", "second"),
    [
        ("ok", {"x": False, "y": True, "z": False}, {"z": True, "y": False}),
        ("info", {"x": False, "y": True, "z": False}, {"z": True, "x": False, "y": False}),
        ("fail", {"y": None}, {"z": True, "x": False}),
    ],
)
def test_an_assignment_tells_the_partitions_that_were_touched(
    tmp_path: Path, f: str, outcome: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    lines = f"0 ok send >x a@0\n0 ok poll <z b@0\n1 ok send >w c@0\n0 {outcome} {f} y\n0 ok {f} z"
    history = read(write(tmp_path / "h", events(lines)))
    told: dict[int, dict[str, Any]] = {7: {}, 9: {}}
    for partition, op, kind, assigned, mode in rows(history, "partition", "op", "f", "assigned", "mode"):
        if kind == f:
            told[op][history.names.keys[partition]] = assigned
            assert mode == f
    assert told[7] == first
    assert told[9] == second


def test_a_transaction_tells_where_it_wrote_if_that_is_in_several_keys(tmp_path: Path) -> None:
    lines = "0 ok txn >3 1@0 >5 1@0 <7 9@9\n1 info txn >7 1 <3 1@0\n1 ok send >3 2@1 >7 2@1\n0 fail txn >5 2 >3 3 >5 3"
    history = read(write(tmp_path / "h", events(lines)))
    both = [{"topic": "h", "partition": 3}, {"topic": "h", "partition": 5}]
    assert rows(history, "partition", "op", "txn_partitions") == [
        (3, 1, both),
        (3, 3, None),
        (3, 5, None),
        (3, 7, both),
        (5, 1, both),
        (5, 7, both),
        (7, 1, None),
        (7, 3, None),
        (7, 5, None),
    ]


def test_seeking_to_the_beginning_gives_up_the_position(tmp_path: Path) -> None:
    lines = "0 ok poll <x a@0\n0 ok assign x y rewind\n0 ok poll <x a@0\n1 ok assign x rewind"
    history = read(write(tmp_path / "h", events(lines)))
    told = rows(history, "partition", "process", "slice", "op", "f", "assigned")
    assert told == [
        (0, 0, 0, 1, "poll", None),
        (0, 0, 1, 3, "assign", False),
        (0, 0, 2, 3, "assign", True),
        (0, 0, 3, 5, "poll", None),
        (0, 1, 0, 7, "assign", True),
        (1, 0, 0, 3, "assign", True),
    ]


def test_a_crashed_process_whose_id_is_used_again_is_another_process(tmp_path: Path) -> None:
    lines = "0 ok poll <x 1@0\n0 info crash\n" * 2 + "0 ok poll <x 1@0\n0 info txn <x 2@1\n0 ok poll <x 2@1"
    history = read(write(tmp_path / "h", events(lines)))
    assert rows(history, "process", "slice") == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert history.names.processes == {0: 0, 1: "0, life 2", 2: "0, life 3"}


def test_rebalances_that_name_no_partition_concern_all(tmp_path: Path) -> None:
    lines = "0 ok poll <x 1@0 y 1@0 rebalance y\n0 ok poll <x 2@1 y 2@1 rebalance"
    history = read(write(tmp_path / "h", events(lines)))
    assert rows(history, "partition", "op", "rebalanced") == [(0, 1, False), (0, 3, True), (1, 1, True), (1, 3, True)]


def test_invocations_without_completion_are_indefinite(tmp_path: Path) -> None:
    history = read(write(tmp_path / "h", events("0 invoke send >x 1\n1 invoke send >x 2\n2 ok send >x 3@0")))
    told = rows(history, "process", "slice", "type", "op", "mono_invoked", "mono_completed")
    assert told == [
        (2, 0, "ok", 3, 2000, 3000),
        (0, 0, "info", 0, 0, 3000),
        (1, 0, "info", 1, 1000, 3000),
    ]


def test_a_completion_without_invocation_began_no_earlier_than_its_process_had_completed_the_one_before(
    tmp_path: Path,
) -> None:
    lines = "only 0 ok send >x 1@0\nonly 1 ok send >x 2@1\n1 ok send >x 3@2\nonly 0 ok send >x 4@3\nonly 2 ok poll <"
    lines += "\nonly 2 ok poll <x 1@0"
    told = rows(read(write(tmp_path / "h", events(lines))), "process", "mono_invoked", "mono_completed", "invoked")
    assert [(p, begun, ended, at.microsecond) for p, begun, ended, at in told] == [
        (0, 0, 0, 0),
        (1, 0, 1000, 1),
        (1, 2000, 3000, 2),
        (0, 0, 4000, 4),
        (2, 5000, 6000, 6),
    ]


def test_a_completion_without_value_has_that_of_its_invocation(tmp_path: Path) -> None:
    found = events("0 info send >x 1 2")
    found[1]["value"] = None
    [(kind, sent)] = rows(read(write(tmp_path / "h", found)), "type", "sent")
    assert (kind, runs(sent)) == ("info", [(0, 1, None, 2)])


def test_what_concerns_no_client_is_passed_over(tmp_path: Path) -> None:
    plain = events("0 ok send >3 1@0")
    other: list[Event] = [
        {"type": "info", "process": "nemesis", "f": "kill", "value": {"n1": "x"}, "time": 1},
        {"type": "invoke", "process": 1, "f": "debug-topic-partitions", "value": [3], "time": 1},
        {"type": "ok", "process": 1, "f": "debug-topic-partitions", "value": {"3": {}}, "time": 1},
        {"type": "info", "process": ":nemesis", "f": "send", "value": "x", "time": 1},
    ]
    history = read(write(tmp_path / "h", [*other[:2], *plain, *other[2:]]))
    assert rows(history, "process", "op", "slice") == [(0, 3, 0)]


def test_values_and_keys_of_any_kind_lead_back(tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    values = [
        "1",
        ":a",
        '"1"',
        "1.0",
        "true",
        "nil",
        "-5",
        str(2**40),
        str(2**70),
        "{:a [1]}",
        "[7 #{1 2}]",
        r"\c",
        '#inst "x"',
    ]
    path.write_text(
        "".join(
            f"{{:type :ok, :process :p{i % 2}, :f :send, :value [[:send {k} [{i} {v}]]]}}\n"
            for i, v in enumerate(values)
            for k in (":x", '"y"', "7", "[:topic 1]", "-1")
        )
    )
    history = read(path)
    assert history.names.keys == {7: 7, 8: ":x", 9: "y", 10: [":topic", 1], 11: -1}
    assert sorted(history.names.processes.values()) == [":p0", ":p1"]
    for partition in range(7, 12):
        mine = [runs(sent) for p, sent in rows(history, "partition", "sent") if p == partition]
        identities = {(run[0], run[1]) for sent in mine for run in sent or ()}
        assert len(identities) == len(values)
        assert (0, 1) in identities
        assert 2**70 in [history.names.value(*identity) for identity in identities]


def test_offsets_may_be_absent(tmp_path: Path) -> None:
    found = events("0 ok send >x 1@0 2 3 5\n1 ok poll <x 1@0 2@1")
    found[1]["value"][1][2] = [None, 2]
    found[1]["value"][2][2] = [-1001, 3]
    found[3]["value"][0][1]["x"][1][0] = None
    history = read(write(tmp_path / "h", found))
    told = rows(history, "sent", "polled")
    assert runs(told[0][0]) == [(0, 1, 0, 1), (0, 2, None, 2), (0, 5, None, 1)]
    assert runs(told[1][1]) == [(0, 1, 0, 1), (0, 2, None, 1)]


def test_order_within_an_operation_is_kept(tmp_path: Path) -> None:
    history = read(write(tmp_path / "h", events("0 ok txn >x 3@7 2@6 <x 1@5 1@5 <x 9@3 y 1@1 <x 10@4")))
    [sent, polled] = [runs(column) for column in rows(history, "sent", "polled")[0]]
    assert sent == [(0, 3, 7, 1), (0, 2, 6, 1)]
    assert polled == [(0, 1, 5, 1), (0, 1, 5, 1), (0, 9, 3, 2)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([None, None, None, None], [(0, 1000), (2000, 3000)]),
        ([0, 1, 2, 3], [(0, 1000), (2000, 3000)]),
        ([5_000_000, 6_000_000, 7_500_001, 8_000_000], [(5_000_000, 6_000_000), (7_500_001, 8_000_000)]),
        ([-2_000_000, 6_000_000, None, 7_000_000], [(0, 8_000_000), (8_000_000, 9_000_000)]),
        ([10_000_000, 9_000_000, 12_000_000, 12_000_000], [(10_000_000, 10_000_000), (12_000_000, 12_000_000)]),
        ([50_000_000, 60_000_000, 10_000_000, 20_000_000], [(50_000_000, 60_000_000), (10_000_000, 60_000_000)]),
    ],
)
def test_times(tmp_path: Path, times: list[int | None], expected: list[tuple[int, int]]) -> None:
    found = events("0 ok send >x 1@0\n0 ok send >x 2@1")
    for event, time in zip(found, times, strict=True):
        event["time"] = time
    assert rows(read(write(tmp_path / "h", found)), "mono_invoked", "mono_completed") == expected


def test_evidence_names_operations_by_their_index(tmp_path: Path) -> None:
    found = events("0 ok send >x 1@0\n0 ok send >x 2@1")
    assert read(write(tmp_path / "h", found)).names.index(3) == 3
    for event in found:
        event["index"] += 100
    del found[1]["index"]
    names = read(write(tmp_path / "h", found)).names
    assert [names.index(op) for op in (1, 3)] == [1, 103]


def test_what_only_a_clock_that_went_back_puts_in_order_has_none(tmp_path: Path) -> None:
    """The file says that the send came first, its times that the poll did: neither is concluded."""
    found = events("0 ok send >x 1@0\n1 ok poll <x 1@0")
    for event, time in zip(found, (50_000_000, 60_000_000, 10_000_000, 20_000_000), strict=True):
        event["time"] = time
    assert not search(read(write(tmp_path / "h", found)).slices).findings


def test_numbers_that_json_lines_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    """Beyond 64 bits they come as floats, and two values would be one that stands twice."""
    found = events("0 ok send >x 1@0")
    found[1]["value"] = [["send", "x", [0, 2**70]], ["send", "x", [1, 2**70 + 1]]]
    with pytest.raises(UnreadableHistory, match="too large to be told from the numbers beside it") as error:
        read(write(tmp_path / "h", found))
    assert error.value.line == 2
    for form in ("JSON array", "EDN lines"):
        assert read(write(tmp_path / "h", found, form)).names.interned == [2**70, 2**70 + 1]


DEEP = 50_000 * "[" + 50_000 * "]"
DIGITS = 6_000 * "9"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'[{{"type": "ok", "process": 0, "f": "send", "value": {DEEP}}}]', "nested too deeply"),
        (f"{{:type :ok, :process 0, :f :send, :value {DEEP}}}", "nested too deeply"),
        (f"{{:type :ok, :process 0, :f :send, :value #x {DEEP}}}", "nested too deeply"),
        (f'[{{"type": "ok", "process": 0, "f": "send", "value": [["send", 0, {DIGITS}]]}}]', "too many digits"),
        (f"{{:type :ok, :process 0, :f :send, :value [[:send 0 {DIGITS}]]}}", "9... is not a number"),
        ('{:type :ok, :process 0, :f :send, :value [[:send 0 "\\ud800"]]}', "half a character"),
    ],
)
def test_what_is_beyond_any_reader_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "h"
    path.write_text(text)
    with pytest.raises(UnreadableHistory, match=re.escape(reason)) as error:
        read(path)
    assert len(str(error.value)) < 300


def test_both_halves_of_a_character_are_one(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_text('{:type :ok, :process 0, :f :send, :value [[:send 0 "\\ud83d\\ude00"]]}')
    assert read(path).names.interned == ["\N{GRINNING FACE}"]


def test_a_name_that_is_not_utf_8_is_no_matter(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff"))
    write(path, events("0 ok send >x 1@0"))
    assert read(path).operations == 1


def test_a_byte_order_mark_is_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "h"
    for form in FORMS:
        write(path, events(MIXED), form)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert read(path).operations == 8


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_it_is_no_matter_where_a_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, size: int
) -> None:
    found = events(MIXED)
    found[3]["error"] = 'the {first\n of [many \\ "errors'
    expected = read(write(tmp_path / "h", found))
    path = write(tmp_path / "h", events(MIXED), form)
    if form.startswith("EDN"):  # whose strings may go over many lines
        path.write_text(path.read_text().replace("}", ', :error "the {first\n of [many \\\\ \\"errors"}', 1))
    monkeypatch.setattr("monitor.history_files.events.CHUNK", size)
    assert read(path).slices.equals(expected.slices)


def test_a_large_healthy_history(tmp_path: Path) -> None:
    found = list(generate.history(400, processes=5, keys=12))
    path = tmp_path / "h"
    path.write_text("".join(json.dumps(event) + "\n" for event in found))
    history = read(path)
    path.write_text("".join(generate.edn(event) + "\n" for event in found))
    assert read(path).slices.equals(history.slices)
    assert history.operations == 5 + 400 + 5
    counts = {
        column: sum(run["length"] for listed in history.slices[column].to_pylist() for run in listed or ())
        for column in ("sent", "polled")
    }
    assert counts == {"sent": 800, "polled": 800}
    [stepped] = [step({}, history.slices, Objectives(), finished=True)]
    assert {finding.anomaly for one in stepped.values() for finding in one.findings} <= {"int-send-skip"}
