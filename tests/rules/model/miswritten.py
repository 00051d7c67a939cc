"""Faults of what is written, and of what writers are told: copies, transactions torn, lives that are not fenced."""

from __future__ import annotations

from random import Random
from typing import Any

from rules.vocabulary.slices import Run
from tests.rules.model.cluster import Record
from tests.rules.model.faults import (
    EXPLAINED,
    ORDER,
    POLL_ORDER,
    Expected,
    a_writer,
    calm,
    ends_with,
    fault,
    hide,
    pause,
    show,
    some_record,
    t2,
    topic_place,
)
from tests.rules.model.journal import Where
from tests.rules.model.world import PLACES, World
from tests.rules.model.writers import Transactor, Writer


def _some_record(world: World, dice: Random) -> tuple[Where, Record]:
    """A record of any age that readers are shown, and where."""
    calm(world)
    where = topic_place(dice)
    a_writer(world, dice).send(where, 2)
    pause(world)
    found = some_record(world, where, dice)
    assert found is not None
    return where, found[1]


@fault("duplicate")
def duplicate(world: World, dice: Random) -> Expected:
    """A copy of a record, of any age, is appended."""
    where, record = _some_record(world, dice)
    world.cluster.partitions[where].append(record.writer, [record.seq])
    expected = Expected(may=ORDER | {"eos-violation"})
    expected.add("duplicate", where, record.writer, record.seq)
    return expected


@fault("inconsistent-offsets")
def wrong_acknowledgement(world: World, dice: Random) -> Expected:
    """A batch is acknowledged at the offset of another that was written just before."""
    calm(world)
    where = topic_place(dice)
    count = dice.randint(1, 3)
    one = world.writers[0].send(where, count)
    pause(world)
    other = world.writers[1].append(where, count)
    world.writers[1].write("send", {where: {"sent": [other._replace(offset=one.offset)]}})
    assert one.offset is not None
    expected = Expected(may=ORDER | {"duplicate"})
    for i in range(count):
        expected.add("inconsistent-offsets", where, one.offset + i)
    return expected


@fault("nonmonotonic-send")
def exchanged(world: World, dice: Random) -> Expected:
    """Two single-record batches in flight change places, and their acknowledgements with them."""
    calm(world)
    where, writer = topic_place(dice), a_writer(world, dice)
    writer.send(where, 1)
    pause(world)
    first, second = writer.take(where, 2)
    offset = world.cluster.partitions[where].append(writer.id, [second, first])
    writer.write("send", {where: {"sent": [Run(writer.id, first, offset + 1, 1)]}})
    pause(world)
    op = writer.write("send", {where: {"sent": [Run(writer.id, second, offset, 1)]}})
    expected = Expected()
    expected.add("nonmonotonic-send", where, writer.process.number, op)
    return expected


@fault("int-nonmonotonic-send")
def exchanged_inside(world: World, dice: Random) -> Expected:
    calm(world)
    where, writer = topic_place(dice), a_writer(world, dice)
    first, second = writer.take(where, 2)
    offset = world.cluster.partitions[where].append(writer.id, [second, first])
    sent = [Run(writer.id, first, offset + 1, 1), Run(writer.id, second, offset, 1)]
    op = writer.write("send", {where: {"sent": sent}})
    expected = Expected()
    expected.add("int-nonmonotonic-send", where, writer.process.number, op, offset)
    return expected


@fault("relocated-write")
def relocated(world: World, dice: Random) -> Expected:
    """A copy of a record is appended to a partition that it was not sent to."""
    where, record = _some_record(world, dice)
    other = PLACES[1 - where.partition]
    partition = world.cluster.partitions[other]
    partition.log.append(Record(record.writer, record.seq, where))
    expected = Expected(may=ORDER)
    expected.add("relocated-write", other, record.writer, where.topic, where.partition, record.seq, partition.end - 1)
    return expected


@fault("phantom-read")
def phantom(world: World, dice: Random) -> Expected:
    """A record that no probe sent, with the tag of a writer that lives."""
    calm(world)
    where, writer = topic_place(dice), a_writer(world, dice)
    writer.send(where, 1)
    seq = writer.next[where] + 1_000_000 + dice.randrange(100)
    world.cluster.partitions[where].append(writer.id, [seq])
    expected = Expected()
    expected.add("phantom-read", where, writer.id, seq)
    return expected


def _over_both(world: World) -> tuple[Transactor, dict[Where, Run]]:
    """A transaction that has written to both partitions of the topic."""
    calm(world)
    transactor = t2(world)
    transactor.begin()
    for where in PLACES[:2]:
        transactor.add(where, 2)
    pause(world)
    return transactor, {where: runs[0] for where, runs in transactor.sent.items()}


def _torn(world: World, dice: Random, type: str) -> Expected:
    """Committed (or so it may be), and what it wrote to one partition is not there."""
    transactor, runs = _over_both(world)
    where = topic_place(dice)
    run = runs[where]
    assert transactor.transaction is not None and run.offset is not None
    txn = transactor.transaction.number
    error: dict[str, Any] = {"error": "_TIMED_OUT"} if type == "info" else {}
    transactor.finish(type=type, **error)
    gone = dice.choice(((0,), (1,), (0, 1)))
    expected = Expected(may=POLL_ORDER)
    for i in gone:
        hide(world, where, run.offset + i)
        expected.add("lost-write", where, run.writer, run.seq + i)
    expected.must.add(("torn-transaction", where.topic, -1, (txn,)))
    ends_with(world, where, dice)
    return expected


@fault("torn-transaction committed")
def torn_committed(world: World, dice: Random) -> Expected:
    return _torn(world, dice, "ok")


@fault("torn-transaction indefinite")
def torn_indefinite(world: World, dice: Random) -> Expected:
    return _torn(world, dice, "info")


@fault("torn-transaction aborted")
def torn_aborted(world: World, dice: Random) -> Expected:
    """What an aborted transaction wrote to one partition is shown."""
    transactor, runs = _over_both(world)
    where = topic_place(dice)
    other = PLACES[1 - where.partition]
    run = runs[where]
    assert transactor.transaction is not None and run.offset is not None
    txn = transactor.transaction.number
    transactor.finish(intent="abort", type="fail")
    expected = Expected(may=POLL_ORDER | EXPLAINED)
    for i in range(2):
        show(world, where, run.offset + i)
        expected.add("G1a", where, run.writer, run.seq + i)
    expected.must.add(("torn-transaction", other.topic, -1, (txn,)))
    ends_with(world, other, dice)
    return expected


@fault("zombie-write")
def zombie(world: World, dice: Random) -> Expected:
    """The successor has taken the transactional id over; the old life commits, and is believed."""
    calm(world)
    where, transactor = topic_place(dice), t2(world)
    transactor.begin()
    transactor.add(where, dice.randint(1, 3))
    pause(world)
    old, next_seq = transactor.process, dict(transactor.next)
    successor = transactor._born()
    world.journal.write(successor, "start", kind=transactor.kind, settings={"writer": str(successor.number)})
    world.journal.write(successor, "init", transactional_id=transactor.transactional_id)
    pause(world, dice.choice((0.1, 2.0)))
    transactor.process, transactor.next = old, next_seq
    transactor.finish(type=dice.choice(("ok", "info")))
    op = old.ops - 1
    transactor.close(killed=True)
    transactor.process, transactor.next, transactor.unsure = successor, {}, set()
    expected = Expected()
    expected.add("zombie-write", where, old.number, op)
    return expected


@fault("sequence-loss")
def broken_sequence(world: World, dice: Random) -> Expected:
    calm(world)
    where, writer = topic_place(dice), a_writer(world, dice)
    writer.send(where, 2)
    pause(world)
    op = _broken(writer, where, dice)
    expected = Expected()
    expected.add("sequence-loss", where, writer.process.number, op)
    return expected


@fault("benign-retention")
def forgotten_sequence(world: World, dice: Random) -> Expected:
    """The same error, and what the broker forgot is deleted."""
    calm(world)
    where, writer = topic_place(dice), a_writer(world, dice)
    writer.send(where, 2)
    pause(world)
    calm(world)
    world.transform.rest(dice)
    world.transactors[0].begin()
    world.transactors[0].poll(1_000_000)
    pause(world)
    world.transactors[0].finish()
    partition = world.cluster.partitions[where]
    partition.start = partition.end
    op = _broken(writer, where, dice)
    expected = Expected()
    expected.add("benign-retention", where, writer.process.number, op)
    return expected


def _broken(writer: Writer, where: Where, dice: Random) -> int:
    seq = writer.take(where, 1)[0]
    error = dice.choice(("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "_GAPLESS_GUARANTEE"))
    return writer.write("send", {where: {"sent": [Run(writer.id, seq, None, 1)]}}, type="info", error=error)


@fault("misleading-error")
def misleading_error(world: World, dice: Random) -> Expected:
    """The commit takes effect, and the client hears that it cannot."""
    calm(world)
    where, transactor = topic_place(dice), t2(world)
    transactor.begin()
    transactor.add(where, 2)
    pause(world)
    transactor.finish(type="info", error=dice.choice(("INVALID_TXN_STATE", "NOT_COORDINATOR")))
    expected = Expected()
    expected.add("misleading-error", where, transactor.process.number, transactor.process.ops - 1)
    return expected


@fault("misleading-fence")
def misleading_fence(world: World, dice: Random) -> Expected:
    """The transaction times out at the broker, and the client hears that it was fenced."""
    calm(world)
    where, transactor = topic_place(dice), t2(world)
    transaction = transactor.begin()
    transactor.add(where, 2)
    pause(world)
    world.cluster.end(transaction, commit=False)
    pause(world)
    transactor.finish(type="fail", error=dice.choice(("_FENCED", "INVALID_PRODUCER_EPOCH")))
    expected = Expected()
    expected.add("misleading-fence", where, transactor.process.number, transactor.process.ops - 1)
    pause(world)
    transactor.restart()
    return expected


@fault("stuck-producer")
def stuck_producer(world: World, dice: Random) -> Expected:
    """A send does not return."""
    calm(world)
    where, writer = topic_place(dice), a_writer(world, dice)
    writer.send(where, 1)
    run = Run(writer.id, writer.take(where, 1)[0], None, 1)
    pause(world)
    begun = world.journal.time
    writer.down, writer.process.pending = True, begun
    for _ in range(40):
        world.tick(1.0)
    writer.down, writer.process.pending = False, None
    writer.write("send", {where: {"sent": [run]}}, type="info", error="_MSG_TIMED_OUT", invoked=begun)
    pause(world)
    expected = Expected()
    for sent_to in sorted(writer.next):
        writer.send(sent_to, 1)
        expected.add("stuck-producer", sent_to, f"{writer.name} of run run")
    return expected


@fault("stuck-close")
def stuck_close(world: World, dice: Random) -> Expected:
    """Closing a client does not return."""
    calm(world)
    client = dice.choice([*world.readers, *world.writers])
    client.write("close", type="info", error="_CLOSE_STUCK", invoked=world.journal.time - 0.5)
    old = client.process
    old.closed = world.journal.time
    client.process = client._born()
    client.open()
    pause(world, 2.0)
    world.journal.write(old, "close")
    expected = Expected()
    for where in PLACES:
        expected.add("stuck-close", where, old.number)
    return expected
