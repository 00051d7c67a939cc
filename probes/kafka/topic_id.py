"""What a topic is known by."""

from __future__ import annotations

from typing import Any, Final

_NONE: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Sixteen bytes of zero, as clients write them: the broker told no id."""


def topic_id(name: str, description: Any) -> str:
    """The id of a topic that was described as `description`; its `name` where the brokers give topics no ids.

    Apache Kafka gives them from 2.8 on. To go on with the zeros that older brokers tell would make all topics one."""
    told = str(description.topic_id)
    return name if told == _NONE else told
