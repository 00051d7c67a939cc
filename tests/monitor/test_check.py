"""`offsetwatch check`: what it finds in small histories, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.check import Options, run
from rules.vocabulary.catalogue import CATALOGUE
from tests.monitor.history_files.cases import CASES, Case, Found
from tests.monitor.history_files.shorthand import edn, events

Checked = Callable[..., dict[str, Any]]


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    """The verdict on a history in shorthand, and under "code" the exit code."""

    def check(lines: str, *, strict: bool = False, ww: bool = False, as_edn: bool = False) -> dict[str, Any]:
        path = tmp_path / "history"
        path.write_text("".join((edn(e) if as_edn else json.dumps(e)) + "\n" for e in events(lines)))
        code = run([path], Options(json_output=True, strict=strict, ww=ww))
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
    return {name: listed for name, listed in found.items() if name not in case.open and listed}


EXPECTED = [pytest.param(case, id=case.name) for case in CASES]


@pytest.mark.parametrize("case", EXPECTED)
def test_finds_exactly_what_is_in_a_history(case: Case, checked: Checked) -> None:
    verdict = checked(case.history, ww=case.ww)
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


def test_edn_and_json_give_the_same_verdict(checked: Checked) -> None:
    for case in CASES:
        plain, other = checked(case.history), checked(case.history, as_edn=True)
        assert re.sub(r"([' ]):(?=[a-z])", r"\1", str(other)) == str(plain)


def test_the_verdict_as_json(checked: Checked) -> None:
    verdict = checked(LOST)
    [lost] = verdict["anomalies"]["lost-write"]
    assert (lost["key"], lost["value"], lost["offset"]) == (3, 1, 0)
    assert lost["message"].startswith("value 1 was acknowledged at offset 0")
    [unseen] = verdict["conditions"]["unseen"]
    assert (unseen["key"], unseen["values"]) == (3, 1)
    assert set(verdict) == {"file", "valid", "anomalies", "allowed", "conditions", "code"}
    assert not verdict["valid"]
    assert verdict["allowed"] == {}


def test_conditions_alone_make_no_history_invalid(checked: Checked) -> None:
    verdict = checked("0 ok send >3 1@0 2@1\n1 ok poll <3 1@0")
    assert (verdict["code"], verdict["valid"], list(verdict["conditions"])) == (0, True, ["unseen"])


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
        (["good"], 0), (["bad"], 1), (["broken"], 2), (["missing"], 2), (["good", "bad", "good"], 1),
        (["broken", "bad"], 2), (["bad", "missing", "good"], 2), (["good", "good"], 0),
    ],
)  # fmt: skip
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
        "import sys\nfrom pathlib import Path\nfrom monitor.check import Options, run\n"
        "code = run([Path(sys.argv[1])], Options(json_output=True))\n"
        "heavy = sorted({'pyspark', 'delta', 'deltalake', 'confluent_kafka', 'pydantic'} & set(sys.modules))\n"
        "print(code, *heavy)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, str(files["bad"])],
        capture_output=True, text=True, check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    code, *heavy = done.stdout.splitlines()[-1].split()
    assert (code, heavy) == ("1", [])
