"""`offsetwatch check`: what it finds in small histories, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from monitor.commands.check import Options, run
from rules.vocabulary.catalogue import CATALOGUE
from tests.monitor.history_files.case import Case, Found
from tests.monitor.history_files.cases import CASES
from tests.monitor.history_files.shorthand import edn, events

Checked = Callable[..., dict[str, Any]]


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    """The verdict on a history in shorthand, and under "code" the exit code."""

    def check(
        lines: str, *, strict: bool = False, ww: bool = False, as_edn: bool = False, allow: Sequence[str] = ()
    ) -> dict[str, Any]:
        path = tmp_path / "history"
        path.write_text("".join((edn(e) if as_edn else json.dumps(e)) + "\n" for e in events(lines)))
        code = run([path], Options(json_output=True, strict=strict, ww=ww, allow=allow))
        [line] = capsys.readouterr().out.splitlines()
        return {**json.loads(line), "code": code}

    return check


def agrees(found: Any, expected: Any) -> bool:
    """Does the evidence found have everything that is expected of it?"""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(agrees(found.get(name), value) for name, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(agrees, found, expected))
    return bool(found == expected)


def judged(found: Found, case: Case) -> Found:
    return {name: listed for name, listed in found.items() if name not in (*case.open, "unseen") and listed}


def never_polled(history: str) -> dict[Any, int]:
    """How many values of each key ok operations sent, and none polled."""
    sent: set[tuple[Any, Any]] = set()
    polled: set[tuple[Any, Any]] = set()
    for event in events(history):
        for micro in event["value"] or () if event["f"] in ("send", "poll", "txn") and event["type"] == "ok" else ():
            if micro[0] == "send":
                sent.add((micro[1], micro[2][1] if isinstance(micro[2], list) else micro[2]))
            else:
                polled |= {(key, value) for key, pairs in micro[1].items() for _, value in pairs}
    return dict(Counter(key for key, _ in sent - polled))


EXPECTED = [pytest.param(case, id=case.name) for case in CASES]


@pytest.mark.parametrize("case", EXPECTED)
def test_finds_exactly_what_is_in_a_history(case: Case, checked: Checked) -> None:
    verdict = checked(case.history, ww=case.ww, allow=["unseen"])
    assert {one["key"]: one["values"] for one in verdict["allowed"].get("unseen", ())} == never_polled(case.history)
    for group, expected in (("anomalies", case.anomalies), ("allowed", case.allowed)):
        found, wanted = judged(verdict[group], case), judged(expected, case)
        assert set(found) == set(wanted)
        for name, listed in wanted.items():
            rest = list(found[name])
            for one in listed:
                fitting = [evidence for evidence in rest if agrees(evidence, one)]
                assert fitting, f"{one} is not among {rest}"
                rest.remove(fitting[0])
            assert not rest
    assert verdict["valid"] == (not verdict["anomalies"])
    assert verdict["code"] == (1 if verdict["anomalies"] else 0)


LOST = "0 ok send >3 1@0 2@1\n1 ok poll <3 2@1"


@pytest.mark.long
def test_edn_and_json_give_the_same_verdict(checked: Checked) -> None:
    for case in CASES:
        plain, other = checked(case.history), checked(case.history, as_edn=True)
        assert re.sub(r"([' ]):(?=[a-z])", r"\1", str(other)) == str(plain)


def test_the_verdict_as_json(checked: Checked) -> None:
    verdict = checked(LOST)
    [lost] = verdict["anomalies"]["lost-write"]
    assert (lost["key"], lost["value"], lost["offset"]) == (3, 1, 0)
    assert lost["message"].startswith("value 1 was acknowledged at offset 0")
    assert verdict["anomalies"]["unseen"] == [
        {"key": 3, "values": 1, "first": [{"value": 1}], "message": "1 acknowledged value was never polled"}
    ]
    assert set(verdict) == {
        "file",
        "valid",
        "anomalies",
        "allowed",
        "conditions",
        "left_out",
        "unsearched",
        "code",
    }
    assert not verdict["valid"]
    assert (verdict["allowed"], verdict["conditions"]) == ({}, {})
    assert (verdict["left_out"], verdict["unsearched"]) == ({}, [])


def test_acknowledged_values_that_nobody_polled_make_a_history_invalid_unless_allowed(checked: Checked) -> None:
    lines = "0 ok send >x a@0 b@1 c@2\n0 ok send >y 7\n1 ok poll <x a@0\n2 info poll <x b@1 c@2"
    verdict = checked(lines)
    assert (verdict["code"], verdict["valid"], verdict["allowed"]) == (1, False, {})
    assert verdict["anomalies"] == {
        "unseen": [
            {
                "key": "x",
                "values": 2,
                "first": [{"value": "b"}, {"value": "c"}],
                "message": "2 acknowledged values were never polled",
            },
            {"key": "y", "values": 1, "first": [{"value": 7}], "message": "1 acknowledged value was never polled"},
        ]
    }
    allowing = checked(lines, allow=["duplicate", "unseen"])
    assert (allowing["code"], allowing["valid"]) == (0, True)
    assert (allowing["anomalies"], allowing["allowed"]) == ({}, verdict["anomalies"])
    read = checked(lines + "\n1 ok poll <x b@1 c@2 y 7@0")
    assert (read["code"], read["anomalies"], read["allowed"]) == (0, {}, {})


def test_what_is_allowed_is_allowed_whatever_the_policy_says_and_nothing_else_is(checked: Checked) -> None:
    assert checked(LOST, allow=["lost-write"])["code"] == 1
    verdict = checked(LOST, allow=["lost-write", "unseen"], strict=True)
    assert (verdict["code"], list(verdict["allowed"])) == (0, ["unseen", "lost-write"])
    observed = checked("0 ok send >3 1@0\n1 ok subscribe 3\n1 ok poll <3 1@0", allow=["rebalance"])
    assert (list(observed["conditions"]), observed["allowed"]) == (["rebalance"], {})


@pytest.mark.parametrize(
    ("name", "hint"), [("unsen", "did you mean unseen?"), ("G1C", "did you mean G1c?"), ("zzz", "known are duplicate,")]
)
def test_what_is_allowed_must_be_in_the_catalogue(
    name: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([tmp_path / "none"], Options(allow=["unseen", name])) == 2
    told = capsys.readouterr()
    assert told.out == ""
    [complaint] = told.err.splitlines()
    assert complaint.startswith(f"offsetwatch: --allow: there is no anomaly {name}; {hint}")


def test_what_is_not_listed_is_counted(checked: Checked) -> None:
    """2,600 values at two offsets each, 1,300 offsets with two values, and only what was sent last is read."""
    many = 1300
    sent = [" ".join(f"{v}@{v + by}" for v in range(low, low + many)) for low, by in ((0, 0), (many, -many))]
    polled = " ".join(f"{v}@{v + many}" for v in range(2 * many))
    lines = f"0 ok send >x {sent[0]}\n1 ok send >x {sent[1]} 9999@9000\n2 fail poll <x {polled}\n3 ok poll <x 9999@9000"
    verdict = checked(lines)
    numbers = {name: len(found) + verdict["left_out"].get(name, 0) for name, found in verdict["anomalies"].items()}
    assert numbers["duplicate"] == 2 * many
    assert numbers["inconsistent-offsets"] == many
    assert numbers["lost-write"] == 2 * many
    assert verdict["left_out"]["duplicate"] == 2 * many - 1000
    assert all("more_of_the_same" not in one for found in verdict["anomalies"].values() for one in found)


def test_a_flood_of_what_is_allowed_hides_nothing_that_is_not(checked: Checked) -> None:
    """A reader that subscribed skips 1,100 times, and then one that was assigned once."""
    sent = " ".join(f"{v}@{v}" for v in range(2300))
    skips = "\n".join(f"1 ok poll <x {v}@{v}" for v in range(0, 2204, 2))
    verdict = checked(f"0 ok send >x {sent}\n1 ok subscribe x\n{skips}\n2 ok poll <x 0@0\n2 ok poll <x 2@2")
    assert len(verdict["allowed"]["poll-skip"]) == 1000
    assert [one["process"] for one in verdict["anomalies"]["poll-skip"]] == [2]
    assert verdict["left_out"]["poll-skip"] == 101


def test_every_spurious_zero_is_told(checked: Checked) -> None:
    zeros = "\n".join(f"{v} ok send >x {v}@0" for v in range(1, 41))
    verdict = checked(f"0 ok send >x 0@9\n{zeros}")
    assert sorted(one["value"] for one in verdict["anomalies"]["spurious-zero-offset"]) == list(range(1, 41))


def test_a_search_that_ended_early_says_so(checked: Checked) -> None:
    pairs = "\n".join(
        f"only a{i} invoke txn >x {i} <\nonly b{i} invoke txn >y {i} <\n"
        f"only a{i} ok txn >x {i}@{i} <y {i}@{i}\nonly b{i} ok txn >y {i}@{i} <x {i}@{i}"
        for i in range(101)
    )
    verdict = checked(pairs)
    assert (len(verdict["anomalies"]["G1c"]), verdict["unsearched"], verdict["left_out"]) == (100, ["G1c"], {})
    assert checked(pairs[: pairs.index("only a99")])["unsearched"] == []


def test_strict_allows_nothing(checked: Checked) -> None:
    lines = "0 ok send >3 1@0 2@1 3@2\n1 ok subscribe 3\n1 ok poll <3 1@0\n1 ok poll <3 3@2\n2 ok poll <3 2@1"
    lenient, strict = checked(lines), checked(lines, strict=True)
    assert (lenient["code"], lenient["anomalies"], list(lenient["allowed"])) == (0, {}, ["poll-skip"])
    assert (strict["code"], list(strict["anomalies"]), strict["allowed"]) == (1, ["poll-skip"], {})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("good", "bad", "broken", "missing")}
    for name, lines in (("good", "0 ok send >3 1@0\n1 ok poll <3 1@0"), ("bad", LOST), ("broken", "0 ok poll <3 1@0")):
        paths[name].write_text("".join(json.dumps(event) + "\n" for event in events(lines)))
    with paths["broken"].open("a") as file:
        file.write('{"type": "ok", \n')
    return paths


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["good"], 0),
        (["bad"], 1),
        (["broken"], 2),
        (["missing"], 2),
        (["good", "bad", "good"], 1),
        (["broken", "bad"], 2),
        (["bad", "missing", "good"], 2),
        (["good", "good"], 0),
    ],
)
@pytest.mark.parametrize("json_output", [True, False])
def test_each_file_has_its_verdict_and_the_worst_one_decides(
    names: list[str], code: int, json_output: bool, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([files[name] for name in names], Options(json_output=json_output)) == code
    told = capsys.readouterr()
    unreadable = [name for name in names if name in ("broken", "missing")]
    complaints = told.err.splitlines()
    assert len(complaints) == len(unreadable)
    for name, complaint in zip(unreadable, complaints, strict=True):
        assert complaint.startswith(f"offsetwatch: {files[name]}")
        assert name != "broken" or ", line 3: " in complaint
    if json_output:
        verdicts = [json.loads(line) for line in told.out.splitlines()]
        assert [(v["file"], v["valid"]) for v in verdicts] == [
            (str(files[name]), {"good": True, "bad": False}.get(name)) for name in names
        ]
        assert [v["line"] for v in verdicts if v["valid"] is None] == [3 if n == "broken" else None for n in unreadable]
    else:
        assert told.out.count("lost-write: 1 found") == names.count("bad")
        assert told.out.count(CATALOGUE["lost-write"].meaning) == names.count("bad")
        assert told.out.count("key 3: value 1 was acknowledged at offset 0") == names.count("bad")
        assert told.out.count(": valid") == names.count("good")


def test_the_report_shows_the_first_of_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many"
    sent = " ".join(f"{v}@{v}" for v in range(1200))
    found = events(f"0 ok send >3 {sent}\n1 ok poll <3 1199@1199")
    path.write_text("".join(json.dumps(event) + "\n" for event in found))
    assert run([path]) == 1
    report = capsys.readouterr().out
    assert "lost-write: 1,199 found" in report
    assert report.count("was acknowledged at offset") == 5
    assert "and 1,194 more" in report


def test_a_check_that_fails_means_unknown(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import rules.step

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of no use")

    monkeypatch.setattr(rules.step, "step", broken)
    assert run([files["good"], files["bad"]], Options(json_output=True)) == 2
    told = capsys.readouterr()
    assert [json.loads(line)["valid"] for line in told.out.splitlines()] == [None, None]
    assert "the check itself failed: ZeroDivisionError: of no use; its verdict is unknown" in told.err


def test_a_small_file_starts_no_spark_and_loads_no_client(files: dict[str, Path]) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom monitor.commands.check import Options, run\n"
        "code = run([Path(sys.argv[1])], Options(json_output=True))\n"
        "heavy = sorted({'pyspark', 'delta', 'deltalake', 'confluent_kafka', 'pydantic'} & set(sys.modules))\n"
        "print(code, *heavy)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program, str(files["bad"])],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    code, *heavy = done.stdout.splitlines()[-1].split()
    assert (code, heavy) == ("1", [])
