"""`offsetwatch check` and dependency cycles: by the command itself, in both forms of file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.monitor.commands import offsetwatch
from tests.monitor.history_files.shorthand import edn, events

EACH_OTHER = """
    only alice invoke txn >x a <
    only bob invoke txn >y b <
    only alice ok txn >x a@0 <y b@0
    only bob ok txn >y b@0 <x a@0
"""
ONE_SIDED = EACH_OTHER.replace("<y b@0", "<")
BEFORE_IT_WAS_SENT = """
    0 ok txn <x 1@0
    1 ok send >x 1@0
"""
IN_TIME = """
    only 0 invoke txn <
    1 ok send >x 1@0
    only 0 ok txn <x 1@0
"""


def write(folder: Path, lines: str, form: str) -> Path:
    path = folder / f"history.{form}"
    path.write_text("".join((edn(e) if form == "edn" else json.dumps(e)) + "\n" for e in events(lines)))
    return path


def checked(path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = offsetwatch("check", "--json", "--allow", "unseen", *options, str(path), cwd=path.parent)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("form", ["edn", "jsonl"])
@pytest.mark.parametrize(
    ("name", "guilty", "innocent"),
    [("G1c", EACH_OTHER, ONE_SIDED), ("G1c-realtime", BEFORE_IT_WAS_SENT, IN_TIME)],
)
def test_finds_the_cycle_in_a_file(tmp_path: Path, form: str, name: str, guilty: str, innocent: str) -> None:
    code, verdict = checked(write(tmp_path, guilty, form))
    assert (code, list(verdict["anomalies"])) == (1, [name])
    code, verdict = checked(write(tmp_path, innocent, form))
    assert name not in verdict["anomalies"]
    assert code == 0


def test_tells_it_in_the_files_own_terms(tmp_path: Path) -> None:
    _, verdict = checked(write(tmp_path, EACH_OTHER, "jsonl"))
    [found] = verdict["anomalies"]["G1c"]
    assert found["key"] is None
    assert [(o["process"], o["index"], o["type"]) for o in found["operations"]] == [
        ("alice", 2, "ok"),
        ("bob", 3, "ok"),
    ]
    assert found["steps"] == [
        {"kind": "wr", "key": "x", "value": "a", "offset": 0},
        {"kind": "wr", "key": "y", "value": "b", "offset": 0},
    ]
    assert found["why"] == [
        "operation 2 of process alice wrote a, which operation 3 of process bob polled from offset 0 of key x",
        "operation 3 of process bob wrote b, which operation 2 of process alice polled from offset 0 of key y",
    ]


def test_write_write_edges_are_asked_for_and_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, EACH_OTHER, "jsonl")
    code, verdict = checked(path, "--ww")
    assert (code, verdict["anomalies"], list(verdict["allowed"])) == (0, {}, ["G1c"])
    code, verdict = checked(path, "--ww", "--strict")
    assert (code, list(verdict["anomalies"])) == (1, ["G1c"])


def test_the_search_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, EACH_OTHER, "jsonl")
    assert checked(path, "--no-cycles")[0] == 0
    done = offsetwatch("check", "--no-cycles", "--ww", str(path), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "offsetwatch: --ww is for the search of cycles, which --no-cycles leaves out\n"


def test_words_and_pictures(tmp_path: Path) -> None:
    path = write(tmp_path, EACH_OTHER, "jsonl")
    done = offsetwatch("check", "--pictures", "drawn", str(path), cwd=tmp_path)
    assert done.returncode == 1
    assert "which operation 3 of process bob polled from offset 0 of key x" in done.stdout
    [drawn] = (tmp_path / "drawn").iterdir()
    assert drawn.name.startswith("history-G1c-")
    said = " ".join(ElementTree.fromstring(drawn.read_text()).itertext())
    assert "operation 2 of process alice: txn, ok" in said
    (tmp_path / "file").touch()
    done = offsetwatch("check", "--pictures", "file", str(path), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "offsetwatch: --pictures file: File exists\n"
