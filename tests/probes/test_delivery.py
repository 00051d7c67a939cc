"""What became of a batch, from any mixture of delivery reports."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from probes.kafka.errors import ClientError
from probes.records.delivery import Batch, Fate, fates, runs_to_send
from probes.records.tag import Encoder
from probes.topology import Partition
from rules.vocabulary.slices import Run

HERE = ("canary-records", 0)
ENCODER = Encoder(run="r", writer=7, topic=HERE[0], partition=0, size=100)


@dataclass
class Report:
    """What the client hands to a delivery callback."""

    seq: int
    at: int | None = None
    code: int = 0
    where: Partition = HERE

    def error(self) -> KafkaError | None:
        return KafkaError(self.code) if self.code else None

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def offset(self) -> int | None:
        return self.at

    def value(self) -> bytes:
        return ENCODER.encode(range(self.seq, self.seq + 1), sent=0)[0]


def outcome(first: int, count: int, *reports: Report) -> list[Fate]:
    return fates(Batch(7, {HERE: (first, count)}, list(reports)))[HERE]


def test_reports_in_any_order_make_one_run() -> None:
    assert outcome(4, 3, Report(6, 102), Report(4, 100), Report(5, 101)) == [Fate("ok", None, [Run(7, 4, 100, 3)])]


def test_a_marker_between_two_requests_makes_two_runs() -> None:
    assert outcome(0, 3, Report(0, 8), Report(1, 9), Report(2, 11)) == [
        Fate("ok", None, [Run(7, 0, 8, 2), Run(7, 2, 11, 1)])
    ]


def test_each_outcome_of_a_partition_stands_for_itself() -> None:
    timed_out, refused = KafkaError._MSG_TIMED_OUT, KafkaError.INVALID_REQUIRED_ACKS
    reports = [Report(3, code=timed_out), Report(0, 50), Report(1, code=refused), Report(2, code=timed_out)]
    assert outcome(0, 5, *reports) == [
        Fate("ok", None, [Run(7, 0, 50, 1)]),
        Fate("info", "_MSG_TIMED_OUT", [Run(7, 2, None, 2)]),
        Fate("info", "_TIMED_OUT", [Run(7, 4, None, 1)]),
        Fate("fail", "INVALID_REQUIRED_ACKS", [Run(7, 1, None, 1)]),
    ]


def test_an_acknowledgement_without_an_offset_is_ok_all_the_same() -> None:
    assert outcome(0, 3, Report(0, 5), Report(1), Report(2, 7)) == [
        Fate("ok", None, [Run(7, 0, 5, 1), Run(7, 1, None, 1), Run(7, 2, 7, 1)])
    ]


def test_an_acknowledgement_at_offset_zero_keeps_it() -> None:
    assert outcome(9, 1, Report(9, 0)) == [Fate("ok", None, [Run(7, 9, 0, 1)])]


def test_what_never_entered_the_queue_failed() -> None:
    batch = Batch(7, {HERE: (0, 3)}, [Report(0, 4)])
    batch.refused[HERE] = (np.array([1, 2]), "_QUEUE_FULL")
    assert fates(batch)[HERE] == [
        Fate("ok", None, [Run(7, 0, 4, 1)]),
        Fate("fail", "_QUEUE_FULL", [Run(7, 1, None, 2)]),
    ]


OTHER = ("canary-records", 1)
DESYNCHRONIZED = (
    "ProduceRequest for canary-records [0] with 1 message(s) failed due to sequence desynchronization with broker 1"
    " (PID{Id:7,Epoch:0}, base seq 307, idemp state change 28ms ago, last partition error NO_ERROR)"
)


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("text", [DESYNCHRONIZED, "something else"])
def test_a_partition_is_not_blamed_for_what_another_s_broker_answered(text: str, reported: bool) -> None:
    """The client gives up for good, and all that it had queued the same error, in its reports or without any."""
    code = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    reports = [Report(0, code=code), Report(0, code=code, where=OTHER)] if reported else []
    fatal = ClientError("OUT_OF_ORDER_SEQUENCE_NUMBER", text, fatal=True)
    found = fates(Batch(7, {HERE: (0, 1), OTHER: (0, 1)}, list(reports), fatal=fatal))
    elsewhere = "_FATAL" if text is DESYNCHRONIZED else "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert found[HERE] == [Fate("info", "OUT_OF_ORDER_SEQUENCE_NUMBER", [Run(7, 0, None, 1)])]
    assert found[OTHER] == [Fate("info", elsewhere, [Run(7, 0, None, 1)])]


CODES = [0, KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE]


@given(st.lists(st.tuples(st.sampled_from([*CODES, None]), st.integers(-1, 3)), min_size=1, max_size=12), st.randoms())
def test_every_record_has_exactly_one_fate_and_only_acknowledged_ones_an_offset(
    fortunes: list[tuple[int | None, int]], random: Random
) -> None:
    reports = [
        Report(i, 10 * i + at if 10 * i + at >= 0 else None, code)
        for i, (code, at) in enumerate(fortunes)
        if code is not None
    ]
    random.shuffle(reports)
    found = outcome(0, len(fortunes), *reports)
    by_seq = {run.seq + i: (fate, run) for fate in found for run in fate.runs for i in range(run.length)}
    assert sum(fate.records for fate in found) == len(fortunes)
    assert sorted(by_seq) == list(range(len(fortunes)))
    for seq, (code, at) in enumerate(fortunes):
        fate, run = by_seq[seq]
        assert (fate.type == "ok") == (code == 0)
        told = None if code != 0 or 10 * seq + at < 0 else 10 * seq + at
        assert (None if run.offset is None else run.offset + seq - run.seq) == told
    assert len({(fate.type, fate.error) for fate in found}) == len(found)


def test_before_anything_is_known_there_is_one_run_a_partition_without_offset() -> None:
    assert runs_to_send(7, {HERE: (3, 4)}) == {HERE: [Run(7, 3, None, 4)]}
