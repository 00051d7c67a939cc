"""Where a consumer begins, as far as its group's coordinator tells."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from probes.kafka.errors import ClientError
from probes.kafka.starting_positions import committed

HERE, THERE = ("t", 0), ("t", 1)


class Told:
    """A consumer whose group's coordinator says this, of the whole question or of one partition."""

    def __init__(self, code: int, *, whole: bool) -> None:
        self._code, self._whole = code, whole

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self._whole:
            raise KafkaException(KafkaError(self._code))
        found = [TopicPartition(tp.topic, tp.partition, 7) for tp in asked]
        found[0].offset = -1001

        class Refused:
            topic, partition, offset, error = found[0].topic, found[0].partition, -1001, KafkaError(self._code)

        return [Refused(), *found[1:]]


@pytest.mark.parametrize("in_callback", [True, False])
def test_a_group_that_nobody_knows_has_committed_nothing(in_callback: bool) -> None:
    whole, part = (Told(KafkaError.GROUP_ID_NOT_FOUND, whole=whole) for whole in (True, False))
    for consumer, expected in ((whole, {HERE: None, THERE: None}), (part, {HERE: None, THERE: 7})):
        found = committed(consumer, [HERE, THERE], lambda: None, in_callback=in_callback)
        assert found == expected


@pytest.mark.parametrize("whole", [True, False])
def test_any_other_error_is_one(whole: bool) -> None:
    with pytest.raises(ClientError, match="COORDINATOR_NOT_AVAILABLE"):
        committed(Told(KafkaError.COORDINATOR_NOT_AVAILABLE, whole=whole), [HERE, THERE], lambda: None)
