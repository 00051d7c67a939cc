"""What an endurance run concludes: a violation fails it, and only the name of a defect that explains it excuses it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.drill.definition.graded import Graded
from monitor.drill.endurance.defects import DEFECTS, named
from monitor.drill.endurance.endure import Endurance
from monitor.errors import VIOLATION, UserError
from tests.monitor.drill.made import one


def judged(found: Sequence[Graded], folder: Path, excuse: Sequence[str] = ()) -> int:
    endurance = Endurance(folder, 60.0, 1, threading.Event(), named(list(excuse)))
    return endurance.judge(found, {"acknowledged": 10})


def in_topic(found: Graded, topic: str) -> Graded:
    return replace(found, finding=replace(found.finding, topic=topic))


CONDITION = one("stuck-producer", event="opened")
DUPLICATE = in_topic(one("duplicate"), "endure-records")
TOLD = {"told": "aborted", "next_told": "committed"}
NO_MARKER = in_topic(one("G1a", evidence=TOLD | {"offsets_between": 0}), "endure-transactions")
MARKER = in_topic(one("G1a", evidence=TOLD | {"offsets_between": 1}), "endure-transactions")


@pytest.mark.parametrize(
    ("found", "excuse", "code"),
    [
        ([], [], 0),
        ([CONDITION], [], 0),
        ([one("rebalance", "info")], [], 0),
        ([one("nonmonotonic-poll", "allowed")], [], 0),
        ([DUPLICATE], [], 1),
        ([one("offset-regression", "warning")], [], 1),
        ([one("check-failed", event="opened")], [], 1),
        ([DUPLICATE], ["librdkafka-4953"], 0),
        ([DUPLICATE], ["KAFKA-17754"], 1),
        ([DUPLICATE, one("lost-write")], ["librdkafka-4953"], 1),
        ([in_topic(one("duplicate"), "endure-transactions")], ["librdkafka-4953"], 1),
        ([NO_MARKER], ["KAFKA-20734"], 0),
        ([MARKER], ["KAFKA-20734"], 1),
        ([in_topic(NO_MARKER, "endure-records")], ["KAFKA-20734"], 1),
    ],
)
def test_the_exit_code(found: list[Graded], excuse: list[str], code: int, tmp_path: Path) -> None:
    assert judged(found, tmp_path, excuse) == code
    told = json.loads((tmp_path / "endure.json").read_bytes())
    assert bool(told["violations"]) is (code == 1)
    assert len(told["violations"]) + len(told["excused"]) <= len(found)


def test_only_published_defects_excuse() -> None:
    assert [defect.name for defect in named(["KAFKA-17754"])] == ["KAFKA-17754"]
    assert all(defect.what for defect in DEFECTS)
    with pytest.raises(UserError, match="no published defect KAFKA-1"):
        named(["KAFKA-1"])


def test_a_row_that_was_rejected_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endurance = Endurance(tmp_path, 1.0, 0, threading.Event(), [])
    assert endurance.judge([], {}, ["log_end is negative"] * 2) == VIOLATION
    assert "2 rows were rejected: log_end is negative" in capsys.readouterr().out
