"""Faults of what readers are shown: records that are hidden, changed, exposed, or read in another order."""

from __future__ import annotations

from random import Random

from rules.vocabulary.slices import Run
from tests.rules.model.cluster import Lie, Record, checksum
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
    only,
    pause,
    reflected,
    show,
    t2,
    topic_place,
)
from tests.rules.model.journal import Where
from tests.rules.model.world import PLACES, World

REREAD = POLL_ORDER | EXPLAINED
"""A reader is shown less, or more, than others were: its steps are out of order, and the rows tell why."""


def _three(world: World, dice: Random) -> tuple[Where, Run]:
    """Everybody stands at the end of a partition, and three records are written there."""
    calm(world)
    where = topic_place(dice)
    writer = a_writer(world, dice)
    writer.send(where, 1)
    pause(world)
    calm(world)
    run = writer.send(where, 3)
    pause(world)
    return where, run


def _at(run: Run) -> int:
    assert run.offset is not None
    return run.offset


@fault("lost-write")
def lost(world: World, dice: Random) -> Expected:
    where, run = _three(world, dice)
    gone = dice.randrange(3)
    hide(world, where, _at(run) + gone)
    ends_with(world, where, dice)
    expected = Expected(may=POLL_ORDER)
    expected.add("lost-write", where, run.writer, run.seq + gone)
    return expected


@fault("poll-skip")
def skipped(world: World, dice: Random) -> Expected:
    """One reader goes over the first of three records that others get."""
    where, run = _three(world, dice)
    reader = dice.choice(world.readers[:2])
    hide(world, where, _at(run), only(reader.name))
    op = reader.poll(places=[where])
    world.cluster.partitions[where].lies.clear()
    assert op is not None
    expected = Expected(may=EXPLAINED)
    expected.add("poll-skip", where, reader.process.number, op)
    return expected


@fault("int-poll-skip")
def skipped_inside(world: World, dice: Random) -> Expected:
    where, run = _three(world, dice)
    reader = dice.choice(world.readers[:2])
    hide(world, where, _at(run) + 1, only(reader.name))
    op = reader.poll(places=[where])
    world.cluster.partitions[where].lies.clear()
    assert op is not None
    expected = Expected(may=EXPLAINED)
    expected.add("int-poll-skip", where, reader.process.number, op, _at(run) + 2)
    return expected


@fault("nonmonotonic-poll")
def went_back(world: World, dice: Random) -> Expected:
    where, run = _three(world, dice)
    reader = dice.choice(world.readers[:2])
    reader.poll(places=[where])
    pause(world)
    reader.position[where] = _at(run) + dice.randrange(3)
    op = reader.poll(places=[where])
    assert op is not None
    expected = Expected()
    expected.add("nonmonotonic-poll", where, reader.process.number, op)
    return expected


@fault("int-nonmonotonic-poll")
def went_back_inside(world: World, dice: Random) -> Expected:
    where, run = _three(world, dice)
    reader = dice.choice(world.readers[:2])
    seen, after = world.fetch(reader.process.name, where, reader.position[where], 100)
    again = dice.randrange(3)
    op = reader.tell({where: ([*seen, *seen[again:]], after)})
    expected = Expected()
    expected.add("int-nonmonotonic-poll", where, reader.process.number, op, _at(run) + again)
    return expected


@fault("vanished-record")
def vanished(world: World, dice: Random) -> Expected:
    """One reader has polled it; it is shown to nobody after."""
    where, run = _three(world, dice)
    gone = dice.randrange(2)
    world.readers[0].poll(places=[where])
    pause(world)
    hide(world, where, _at(run) + gone)
    ends_with(world, where, dice)
    pause(world)
    world.audit.turn(dice)
    expected = Expected(may=POLL_ORDER | {"eos-violation"})
    expected.add("vanished-record", where, _at(run) + gone, run.writer, run.seq + gone)
    return expected


@fault("vanished-record behind the frontier")
def vanished_long_ago(world: World, dice: Random) -> Expected:
    """Everybody has read it, and it is settled; an audit does not find it any more."""
    where, offset, run = _settled(world, dice)
    hide(world, where, offset)
    world.audit.turn(dice)
    expected = Expected()
    expected.add("vanished-record", where, offset, run.writer, run.seq + offset - _at(run))
    return expected


@fault("inconsistent-offsets behind the frontier")
def changed_long_ago(world: World, dice: Random) -> Expected:
    where, offset, run = _settled(world, dice)
    other = Record(run.writer, run.seq + dice.choice((0, 2999)), where)
    world.cluster.partitions[where].lies[offset] = Lie(other)
    world.audit.turn(dice)
    expected = Expected(may=frozenset({"duplicate"}))
    expected.add("inconsistent-offsets", where, offset)
    return expected


def _settled(world: World, dice: Random) -> tuple[Where, int, Run]:
    """Some blocks that everybody has read, settled; an offset in a block that is whole."""
    calm(world)
    where = topic_place(dice)
    run = a_writer(world, dice).send(where, 3000)
    world.settle(16)
    calm(world)
    first = -(-_at(run) // 1024) * 1024
    return where, first + dice.randrange(1, 1024), run


@fault("late-record")
def late(world: World, dice: Random) -> Expected:
    """The answer to a send is lost, and an audit passes where it is shown later."""
    calm(world)
    where, writer = topic_place(dice), a_writer(world, dice)
    writer.send(where, 1)  # a reader that goes over nothing else has made no step
    pause(world)
    run = writer.append(where, 1)
    writer.write("send", {where: {"sent": [run._replace(offset=None)]}}, type="info", error="_MSG_TIMED_OUT")
    partition = world.cluster.partitions[where]
    hide(world, where, _at(run))
    ends_with(world, where, dice)
    pause(world)
    world.audit.turn(dice)
    partition.lies.clear()
    pause(world)
    calm(world)
    expected = Expected(may=POLL_ORDER)
    expected.add("late-record", where, _at(run), run.writer, run.seq)
    return expected


@fault("rewritten-record")
def rewritten(world: World, dice: Random) -> Expected:
    """One reader is shown another value at the same offset."""
    where, run = _three(world, dice)
    place = _at(run) + dice.randrange(3)
    other = Record(run.writer, run.seq - 1, where)
    reader = dice.choice(world.readers[:2])
    world.cluster.partitions[where].lies[place] = Lie(other, only(reader.name))
    reader.poll(places=[where])
    expected = Expected(may=ORDER | {"duplicate"})
    expected.add("inconsistent-offsets", where, place)
    return expected


@fault("corrupted-record")
def corrupted(world: World, dice: Random) -> Expected:
    where, run = _three(world, dice)
    place = dice.randrange(3)
    broken = Record(run.writer, run.seq + place, where, broken=True)
    reader = dice.choice(world.readers[:2])
    partition = world.cluster.partitions[where]
    partition.lies[_at(run) + place] = Lie(broken, only(reader.name))
    reader.poll(places=[where])
    partition.lies.clear()
    expected = Expected()
    expected.add("corrupted-record", where, _at(run) + place, checksum(broken))
    return expected


@fault("G1a")
def exposed(world: World, dice: Random) -> Expected:
    """An aborted transaction's records are shown: to everybody, or to one reader."""
    calm(world)
    where, transactor = topic_place(dice), t2(world)
    transactor.begin()
    count = dice.randint(1, 3)
    transactor.add(where, count)
    pause(world)
    (run,) = transactor.sent[where]
    transactor.finish(intent="abort", type="fail")
    to = only(dice.choice(world.readers[:2]).name) if dice.random() < 0.5 else lambda _: True
    # Polled, it counts as part of the log, and those who are not shown it wait for it where nothing follows.
    conditions = Expected().conditions | {"stuck-consumer"}
    expected = Expected(may=REREAD | {"eos-violation"}, conditions=conditions)
    for i in range(count):
        show(world, where, _at(run) + i, to)
        expected.add("G1a", where, run.writer, run.seq + i)
    pause(world)
    for reader in world.readers[:2]:
        reader.poll()
    return expected


@fault("precommitted-read")
def own(world: World, dice: Random) -> Expected:
    """A transaction polls what it has just written."""
    calm(world)
    where, transactor = topic_place(dice), world.transactors[0]
    transactor.begin()
    transactor.poll(1_000_000)
    transactor.add(where, 2)
    (run,) = transactor.sent[where]
    for i in range(2):
        show(world, where, _at(run) + i, only("t1"))
    transactor.poll(1_000_000)
    world.cluster.partitions[where].lies.clear()
    pause(world)
    type = dice.choice(("ok", "info", "fail"))
    transactor.finish(intent="abort" if type == "fail" else "commit", type=type)
    # Polled, it counts as part of the log, and the others wait for it where nothing follows.
    expected = Expected(may=REREAD, conditions=Expected().conditions | {"stuck-consumer"})
    for i in range(2):
        expected.add(
            "precommitted-read", where, run.writer, run.seq + i, transactor.process.number, transactor.process.ops - 1
        )
    return expected


@fault("unseen")
def stale_tail(world: World, dice: Random) -> Expected:
    """The newest records stay hidden from everybody for a while."""
    where, run = _three(world, dice)
    partition = world.cluster.partitions[where]
    partition.veiled = _at(run)
    for _ in range(14):
        world.tick(1.0)
    partition.veiled = None
    expected = Expected(conditions=frozenset())
    expected.add("unseen", where)
    return expected


@fault("stuck-consumer")
def stuck(world: World, dice: Random) -> Expected:
    """One reader does not move, although there is more to read."""
    reflected(world)
    calm(world)
    where, reader = PLACES[1], dice.choice(world.readers)
    reader.poll()
    reader.down = True
    for _ in range(36):
        world.writers[0].send(where, 1)
        world.tick(1.0)
    reader.down = False
    expected = Expected(conditions=frozenset())
    expected.add("stuck-consumer", where, reader.process.number)
    for place in PLACES:  # whatever else it holds, and somebody has written to
        expected.perhaps.add(("stuck-consumer", place.topic, place.partition, (reader.process.number,)))
    return expected
