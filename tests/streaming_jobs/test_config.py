"""The section of the configuration, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from rules.vocabulary.objectives import SECOND
from streaming_jobs.config import JobConfig


def test_paths_lie_below_the_root_unless_they_are_given() -> None:
    config = JobConfig(root=Path("/data"))
    assert config.history_path == Path("/data/tables/history")
    assert config.tables_path == Path("/data/tables")
    assert config.checkpoint_path == Path("/data/checkpoints/integrity")
    assert JobConfig(history=Path("/log")).history_path == Path("/log")


def test_objectives_are_seconds_here_and_microseconds_in_the_rules() -> None:
    config = JobConfig.model_validate({"objectives": {"grace": 2.5, "liveness": 60}})
    assert config.objectives.objectives().grace == 2_500_000
    assert config.objectives.objectives().liveness == 60 * SECOND


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({"triger": 1}, "triger"),
        ({"objectives": {"grace": -1}}, "objectives.grace"),
        ({"objectives": {"grase": 1}}, "objectives.grase"),
        ({"cores": "two"}, "cores"),
        ({"driver_memory": "lots"}, "driver_memory"),
        ({"upkeep": {"vacuum_hours": 0}}, "upkeep.vacuum_hours"),
    ],
)
def test_what_is_unknown_or_wrong_is_named(section: dict[str, object], where: str) -> None:
    with pytest.raises(ValidationError) as refused:
        JobConfig.model_validate(section)
    assert [".".join(map(str, e["loc"])) for e in refused.value.errors()] == [where]
