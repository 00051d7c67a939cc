"""The probes' section of the configuration refuses what it does not know, and says what it wants instead."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from probes.config import ProbesConfig, TopicsConfig
from probes.topics import settings


def test_every_field_is_described_and_has_a_default() -> None:
    def check(section: type[BaseModel]) -> None:
        for name, field in section.model_fields.items():
            assert not field.is_required(), name
            if isinstance(field.default, BaseModel):
                check(type(field.default))
            else:
                assert field.description, name

    check(ProbesConfig)
    assert ProbesConfig().topics.records == "offsetwatch-records"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"writers": {}}, "writers"),
        ({"writer": {"ratio": 1}}, "writer.ratio"),
        ({"writer": {"rate": "fast"}}, "writer.rate"),
        ({"writer": {"rate": 0}}, "writer.rate"),
        ({"reader": {"poll_wait": 2}}, "reader.poll_wait"),
        ({"transaction": {"abort_share": 1.5}}, "transaction.abort_share"),
        ({"transaction": {"timeouts": [0.5]}}, "transaction.timeouts"),
        ({"topics": {"prefix": "no spaces"}}, "topics.prefix"),
        ({"supervision": {"host": "fibers"}}, "supervision.host"),
        ({"run": "x" * 65}, "run"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ProbesConfig.model_validate(given)
    assert ".".join(str(part) for part in refused.value.errors()[0]["loc"]) == named


def test_records_must_have_room_for_their_tag() -> None:
    with pytest.raises(ValidationError, match="record_bytes 80 is too small for a tag in topic offsetwatch-records"):
        ProbesConfig.model_validate({"writer": {"record_bytes": 80}})


@pytest.mark.parametrize(
    ("replication", "min_in_sync", "in_sync"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (3, 1, 1), (3, 3, 2)]
)
def test_no_more_replicas_are_asked_to_be_in_sync_than_one_less_than_there_are(
    replication: int, min_in_sync: int, in_sync: int
) -> None:
    """What the topics get is what the observer holds them to: who asks for one replica has what was asked for."""
    config = TopicsConfig(replication=replication, min_in_sync=min_in_sync)
    assert config.in_sync_of(replication) == in_sync
    told = settings.told({}, {}, replication, 3, config)
    assert told == {"replicas_asked": str(replication), "min_insync_asked": str(in_sync), "replicas": str(replication)}
