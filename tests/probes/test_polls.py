"""What a poll returned, sorted out: of a flood of records that are not ours some are listed, and what is ours is not
hidden by them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from probes.records.allowance import A_SECOND, AT_ONCE, LEAST, RUNS_TOLD, Allowance, chosen
from probes.records.envelope import headers_of
from probes.records.polls import Polled, sort_out
from probes.records.tag import KEY, Encoder, decode
from probes.workloads.transactional.transaction_course import epochs_of
from rules.vocabulary.slices import LeaderEpoch, Run
from tests.known import known
from tests.rules.histories import History, Store, number

HERE = ("canary-records", 3)
SENT = 1_763_741_823_123_000
WRITER = number("w")
SECOND = 1_000_000_000


def tagged(run: str, first: int, count: int, *, partition: int = HERE[1], writer: int = WRITER) -> list[bytes]:
    encoder = Encoder(run=run, writer=writer, topic=HERE[0], partition=partition, size=120)
    return encoder.encode(range(first, first + count), sent=SENT, enveloped=True)


def message(offset: int, value: bytes | None, partition: int = HERE[1]) -> Message:
    if value is None or value[:3] != b"OWT":
        return Message(topic=HERE[0], partition=partition, offset=offset, value=value)
    return Message(
        topic=HERE[0],
        partition=partition,
        offset=offset,
        value=value,
        key=value[KEY],
        timestamp=(TIMESTAMP_CREATE_TIME, SENT // 1000),
        headers=headers_of(value) if value[4] & 16 else None,
    )


class Clock:
    now = 0

    def monotonic_ns(self) -> int:
        return self.now


def polled(values: Sequence[bytes | None], allowance: Allowance, first: int = 0) -> Polled:
    messages = [message(first + i, value) for i, value in enumerate(values)]
    found, problems = sort_out(messages, ["ours"], allowance)
    assert not problems
    return found[HERE]


def spent(clock: Clock) -> Allowance:
    allowance = Allowance(clock.monotonic_ns)
    allowance.spend(AT_ONCE)
    return allowance


STRANGE: dict[str, Callable[[int], Sequence[bytes | None]]] = {
    "foreign": lambda count: tagged("another", 0, count, writer=9),
    "corrupted": lambda count: [b"garbage"] * count,
    "empty": lambda count: [None] * count,
    "of many sizes": lambda count: [b"g" * (i % 977) for i in range(count)],
}


@pytest.mark.parametrize("strange", STRANGE)
def test_a_few_are_all_listed(strange: str) -> None:
    values = [*tagged("ours", 0, 2), *STRANGE[strange](3), *tagged("ours", 2, 2)]
    part = polled(values, Allowance(Clock().monotonic_ns))
    whole = decode(values, range(7), topic=HERE[0], partition=HERE[1], runs=["ours"])
    assert part.decoded == whole
    assert [one.index for one in whole.irregular] == [2, 3, 4]
    assert (part.count, part.irregular, part.told, part.next) == (7, 3, 7, 7)


@pytest.mark.parametrize("strange", STRANGE)
def test_of_many_the_edges_and_what_bears_our_run_are_listed(strange: str) -> None:
    """600 of them, two runs of ours, a relocated record and one of ours that was changed on its way."""
    ours = tagged("ours", 0, 4)
    displaced = tagged("ours", 9, 1, partition=5)[0]
    changed = bytearray(tagged("ours", 4, 1)[0])
    changed[-1] ^= 1
    many = STRANGE[strange](600)
    values = [
        *many[:200],
        *ours[:2],
        *many[200:300],
        displaced,
        *many[300:400],
        bytes(changed),
        *many[400:500],
        *ours[2:],
        *many[500:],
    ]
    part = polled(values, spent(Clock()), first=1000)
    assert part.decoded.runs == [Run(WRITER, 0, 1200, 2), Run(WRITER, 2, 1504, 2)]
    listed = part.decoded.irregular
    assert [(one.offset, one.status) for one in listed if one.status == "relocated"] == [(1302, "relocated")]
    assert 1403 in [one.offset for one in listed], "one of ours that was changed"
    edges = {1000, 1202, 1506, 1605}
    assert edges <= {one.offset for one in listed} and len(listed) == len(edges) + LEAST
    assert (part.count, part.irregular, part.told) == (606, 602, 4 + len(listed))
    assert part.altered == []
    # Their places among what is told of, beside the runs.
    order = sorted([(1200, 2), (1504, 2), *((one.offset, 1) for one in listed)])
    before = {offset: sum(length for _, length in order[:i]) for i, (offset, length) in enumerate(order)}
    assert [one.index for one in listed] == [before[one.offset] for one in listed]


def test_partitions_polled_together_are_what_each_is_alone() -> None:
    """Random polls: runs that would go on in the next partition, strange records at every edge, altered ones."""
    rng = random.Random(7)
    seen = 0
    for _ in range(200):
        each: dict[int, list[Message]] = {}
        for partition in rng.sample(range(9), rng.randint(1, 6)):
            values: list[bytes | None] = []
            for _ in range(rng.randint(1, 4)):
                ours = tagged("ours", rng.choice([0, 5, len(values)]), rng.randint(1, 4), partition=partition)
                values += rng.choice([ours, ours, [b"garbage"], [None], tagged("other", 0, 1, partition=partition)])
            first = rng.choice([0, 100, len(values)])
            each[partition] = [message(first + i, value, partition) for i, value in enumerate(values)]
            if rng.random() < 0.3:
                one = each[partition][-1]
                each[partition][-1] = Message(
                    topic=HERE[0],
                    partition=partition,
                    offset=one.offset(),
                    value=one.value(),
                    key=b"changed",
                    timestamp=one.timestamp(),
                    headers=one.headers(),
                )
        mixed = [one for records in each.values() for one in records]
        rng.shuffle(mixed)
        mixed.sort(key=lambda one: one.offset())
        together, _ = sort_out(mixed, ["ours"], Allowance(Clock().monotonic_ns))
        assert together.keys() == {(HERE[0], partition) for partition in each}
        for partition, records in each.items():
            alone, _ = sort_out(records, ["ours"], Allowance(Clock().monotonic_ns))
            assert together == together | alone
            whole = decode(
                [one.value() for one in records],
                [one.offset() for one in records],
                topic=HERE[0],
                partition=partition,
                runs=["ours"],
            )
            assert together[HERE[0], partition].decoded == whole
            seen += len(together[HERE[0], partition].altered)
    assert seen > 50


def test_a_run_ends_with_its_partition() -> None:
    """Whatever follows in the next one, as here the same writer's next number at the next offset."""
    first = [message(i, value, 0) for i, value in enumerate(tagged("ours", 0, 4, partition=0))]
    second = [message(4 + i, value, 1) for i, value in enumerate(tagged("ours", 4, 3, partition=1))]
    found, _ = sort_out([*first, *second], ["ours"], Allowance(Clock().monotonic_ns))
    assert [part.decoded.runs for part in found.values()] == [[Run(WRITER, 0, 0, 4)], [Run(WRITER, 4, 4, 3)]]


def test_what_a_flood_costs_is_bounded() -> None:
    """A minute of full polls of six partitions; and what is listed grows again once it is over."""
    clock = Clock()
    allowance = Allowance(clock.monotonic_ns)
    values = [b"garbage"] * 1_000
    listed = 0
    for _ in range(60 * 2):
        messages = [message(i, value, partition) for partition in range(6) for i, value in enumerate(values)]
        found, _ = sort_out(messages, ["ours"], allowance)
        assert all(len(part.decoded.irregular) >= 2 for part in found.values()), "where it began and ended"
        listed += sum(len(part.decoded.irregular) for part in found.values())
        clock.now += SECOND // 2
    polls = 60 * 2 * 6
    assert listed <= AT_ONCE + 60 * A_SECOND + polls * (LEAST + 2)
    clock.now += 20 * SECOND
    assert allowance.share(1) == AT_ONCE


def test_any_choice_holds_every_edge() -> None:
    rng = random.Random(5)
    for _ in range(300):
        values = [rng.choice([None, b"x", b"ours"]) for _ in range(rng.randint(1, 60))]
        odd = [i for i, value in enumerate(values) if value != b"ours"]
        if not odd:
            continue
        room = rng.randint(0, 5)

        some = set(chosen(values, np.array(odd, np.int64), ["ours"], room).tolist())
        edges = {i for i in odd if i == 0 or i - 1 not in odd or i == len(values) - 1}
        assert some <= set(odd) and (len(odd) <= room or edges <= some <= set(odd))
        assert len(some) <= max(len(edges) + room, room)


@pytest.mark.parametrize("others", [0, 1, 500])
def test_of_a_flood_one_record_of_each_run_is_listed(others: int) -> None:
    """A reader that does not know the run before polls its records between those of strangers and its own."""
    before, more = tagged("before", 0, 20, writer=7), [tagged(f"run {i}", 0, 1)[0] for i in range(others)]
    log = [*tagged("elsewhere", 0, 100), b"garbage", None, *more, *before, *tagged("before that", 0, 9)]
    part = polled([*log, *tagged("ours", 0, 5)], spent(Clock()))
    told = {one.run: one.offset for one in part.decoded.irregular if one.run}
    assert told["before"] == len(log) - 29 and told["before that"] == len(log) - 9
    assert len(told) <= RUNS_TOLD + 1 and len(part.decoded.irregular) <= 1 + RUNS_TOLD + LEAST


@pytest.mark.parametrize("kind", ["garbage", "none", "changed on its way"])
def test_what_is_broken_among_whole_records_of_an_unknown_run_is_listed(kind: str) -> None:
    """The folder of the journals was put back: all that was written since is of a run that nobody here knows."""
    before = tagged("before", 0, 600, writer=7)
    changed = bytearray(before[400])
    changed[-1] ^= 1
    strange = {"garbage": b"garbage", "none": None, "changed on its way": bytes(changed)}[kind]
    part = polled([*before[:400], strange, *before[401:]], spent(Clock()), first=1000)
    assert [(one.offset, one.status) for one in part.decoded.irregular if one.status != "foreign"] == [
        (1400, "corrupted")
    ]
    assert len(part.decoded.irregular) <= LEAST + 2
    assert part.irregular == 600


def test_what_is_no_whole_head_bears_no_run() -> None:
    values = [b"OWT", b"OWT" + bytes(41), b"", None, b"OWT\x01\x00\xff" + bytes(60)]
    assert set(chosen(values, np.arange(5), ["ours"], 0).tolist()) == {0, 4}


def test_what_is_ours_is_judged_beside_a_flood() -> None:
    """A duplicate and a healthy log, in polls of which a hundredth is ours: the one is told, of the other nothing."""
    clock = Clock()
    for guilty in (False, True):
        h, allowance = History(), spent(clock)
        log: list[bytes] = []
        for seq in range(0, 40, 2):
            log += [b"garbage"] * 100
            at = len(log)
            log += tagged("ours", seq, 2)
            h.send("w", seq, 2, at=at)
        if guilty:
            log += tagged("ours", 38, 2)
        for first in range(0, len(log), 150):
            part = polled(log[first : first + 150], allowance, first=first)
            h.poll(
                "r",
                [("w", one.seq, one.length, known(one.offset)) for one in part.decoded.runs],
                irregular=part.decoded.irregular,
                position_before=first,
                position_after=part.next,
            )
        for _ in range(30):
            h.observe(end=len(log))
            h.mark(1.0)
        store = Store()
        store.feed(h.rows)
        assert {f.anomaly for f in store.findings} == {"corrupted-record", *(["duplicate"] if guilty else [])}
        assert len(h.rows) < 400 and len([f for f in store.findings if f.anomaly == "duplicate"]) == 2 * guilty


def appended(offset: int, epoch: int | None, count: int = 1) -> list[Message]:
    """Records of one leader epoch; None: of a broker that tells none."""
    told = {} if epoch is None else {"leader_epoch": epoch}
    return [
        Message(
            topic=HERE[0],
            partition=HERE[1],
            offset=offset + i,
            value=value,
            key=value[KEY],
            timestamp=(TIMESTAMP_CREATE_TIME, SENT // 1000),
            headers=headers_of(value) if value[4] & 16 else None,
            **told,
        )
        for i, value in enumerate(tagged("ours", offset, count))
    ]


@pytest.mark.parametrize("many", [1, 300], ids=["few", "in columns"])
@pytest.mark.parametrize(
    ("epochs", "told"),
    [
        ([4, 4], [LeaderEpoch(4)]),
        ([4, 6], [LeaderEpoch(4), LeaderEpoch(6, 1)]),
        ([4, 4, 6, 6, 7], [LeaderEpoch(4), LeaderEpoch(6, 2), LeaderEpoch(7, 4)]),
        ([6, 4], [LeaderEpoch(6), LeaderEpoch(4, 1)]),
        ([None, None], []),
        ([None, 4], []),
        ([4, None], []),
    ],
    ids=str,
)
def test_leader_epochs_are_told_where_they_begin(epochs: list[int | None], told: list[LeaderEpoch], many: int) -> None:
    records = [one for at, epoch in enumerate(epochs) for one in appended(at * many, epoch, many)]
    found, _ = sort_out(records, ["ours"], Allowance(Clock().monotonic_ns))
    expected = [LeaderEpoch(one.epoch, None if one.offset is None else one.offset * many) for one in told]
    assert found[HERE].epochs == expected


def test_leader_epochs_of_several_polls_are_those_of_one() -> None:
    polls = [
        appended(0, 4, 3),
        appended(3, 4, 2),
        appended(5, 6, 1) + appended(6, 7, 1),
        appended(7, None),
        appended(8, 8),
    ]
    parts = [sort_out(poll, ["ours"], Allowance(Clock().monotonic_ns))[0][HERE] for poll in polls]
    assert epochs_of(parts) == [LeaderEpoch(4), LeaderEpoch(6, 5), LeaderEpoch(7, 6), LeaderEpoch(8, 8)]
    assert epochs_of(parts[3:4]) == epochs_of([]) == []
