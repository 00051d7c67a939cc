"""Faults of what a cluster says of its offsets and transactions, and of transforms that do not reflect exactly once."""

from __future__ import annotations

from random import Random
from typing import Literal

from rules.vocabulary.slices import Run
from rules.vocabulary.times import micros
from tests.rules.model.faults import (
    ORDER,
    POLL_ORDER,
    WAITING,
    Expected,
    a_writer,
    calm,
    ends_with,
    fault,
    pause,
    reflected,
    t2,
    topic_place,
)
from tests.rules.model.journal import Where
from tests.rules.model.world import World


@fault("spurious-zero-offset acknowledged")
def zero_acknowledged(world: World, dice: Random) -> Expected:
    calm(world)
    where, writer = topic_place(dice), a_writer(world, dice)
    writer.send(where, 2)
    pause(world)
    run = writer.append(where, 1)
    writer.write("send", {where: {"sent": [run._replace(offset=0)]}})
    expected = Expected(may=POLL_ORDER | {"nonmonotonic-send", "duplicate", "inconsistent-offsets"})
    expected.add("spurious-zero-offset", where, "acknowledgement", run.writer, run.seq)
    return expected


@fault("spurious-zero-offset committed")
def zero_committed(world: World, dice: Random) -> Expected:
    where = _committed(world, dice)
    world.journal.write(world.observer, "offsets", {where: {"committed": 0}}, group=world.group.name)
    expected = Expected()
    expected.add("spurious-zero-offset", where, "committed", world.group.name)
    return expected


@fault("spurious-zero-offset position")
def zero_position(world: World, dice: Random) -> Expected:
    """A reader's client says that it stands at 0."""
    calm(world)
    where = topic_place(dice)
    a_writer(world, dice).send(where, 2)
    pause(world)
    reader = dice.choice(world.readers[:2])
    reader.poll(places=[where])
    pause(world)
    op = reader.write("position", {where: {"position_after": 0}}, mode="assign", assigned=True)
    # Where it says that it stands, there is much to read, and it polls nothing of it.
    expected = Expected(may=POLL_ORDER, conditions=Expected().conditions | {"stuck-consumer"})
    expected.add("spurious-zero-offset", where, reader.process.number, op)
    return expected


@fault("spurious-zero-offset listed")
def zero_listed(world: World, dice: Random) -> Expected:
    calm(world)
    where = topic_place(dice)
    a_writer(world, dice).send(where, 2)
    pause(world)
    world.readers[0].poll()  # on the observer's host: what other clocks say proves no order
    world.tick(1.0)
    pause(world)  # the end is listed once before
    world.journal.write(world.observer, "offsets", {where: {"log_end": 0}})
    expected = Expected()
    expected.add("spurious-zero-offset", where, "listed", micros(world.observer.host.wall(world.journal.time)))
    return expected


def _committed(world: World, dice: Random) -> Where:
    """A member commits where it stands, well above 0, and the observer has read it."""
    calm(world)
    where = topic_place(dice)
    a_writer(world, dice).send(where, 4)
    pause(world)
    calm(world)
    member = world.group.owner[where]
    world.group.committed[where] = member.position[where]
    member.write("commit", {where: {"committed": member.position[where]}}, group=world.group.name)
    world.tick(1.0)
    pause(world)
    return where


def _asked_for(world: World, where: Where) -> set[int]:
    """What the group may have been asked to commit, by anybody."""
    rows = [row for row in world.journal.rows if row.partition == where.partition]
    asked = {row.committed for row in rows if row.f in ("commit", "txn")}
    asked |= {row.position_after for row in rows if row.f == "txn" and row.type != "ok"}
    return {offset for offset in asked if offset is not None}


@fault("offset-regression")
def regression(world: World, dice: Random) -> Expected:
    """The group's committed offset is told to be lower, which nobody asked for. Where the commit was made on the
    observer's host, which had read it, it is lost as well."""
    where = _committed(world, dice)
    before = world.group.committed[where]
    lower = sorted(set(range(1, before)) - _asked_for(world, where))
    expected = Expected(may=frozenset({"lost-commit"}))
    if lower:
        after, name = dice.choice(lower), world.group.name
        world.journal.write(world.observer, "offsets", {where: {"committed": after}}, group=name)
        expected.add("offset-regression", where, name, before, after)
        expected.add("foreign-commit", where, name, after)
        pause(world)  # where a member lets go in the same moment, a stranger may have held the partition
    return expected


@fault("lost-commit")
def dropped(world: World, dice: Random) -> Expected:
    """A commit is acknowledged and dropped: its member is told the one before it, or none. Another host's commits of
    late, and those of unknown outcome, may have landed after it."""
    where = _committed(world, dice)
    group, member = world.group, world.group.owner[where]
    before = group.committed[where]
    a_writer(world, dice).send(where, 3)
    pause(world)
    member.poll(places=[where])
    committed = member.position[where]
    member.write("commit", {where: {"committed": committed}}, group=group.name)
    pause(world)
    told = dice.choice((None, before))
    member.write("offsets", {where: {"committed": told}}, group=group.name)
    if told is None:
        del group.committed[where]
    expected = Expected()
    rows = [row for row in world.journal.rows if row.f in ("commit", "txn") and row.partition == where.partition]
    unsure = any(row.f == "commit" and row.boot != member.process.host.name for row in rows)
    unsure |= any(row.type == "info" and before in (row.committed, row.position_after) for row in rows)
    if told is None or not unsure:
        expected.add("lost-commit", where, group.name, committed, -1 if told is None else told)
    return expected


@fault("foreign-commit")
def of_nobody(world: World, dice: Random) -> Expected:
    """The group's committed offset is told to be one that nobody asked for, and higher."""
    where = _committed(world, dice)
    told = world.group.committed[where] + dice.choice((1, 15, 1000))
    world.journal.write(world.observer, "offsets", {where: {"committed": told}}, group=world.group.name)
    expected = Expected()
    if told not in _asked_for(world, where):
        expected.add("foreign-commit", where, world.group.name, told)
    pause(world)  # as above
    return expected


@fault("log-truncation")
def truncation(world: World, dice: Random) -> Expected:
    """The log's end is listed below what was acknowledged, and the next write is acknowledged there. The log itself
    goes on: what is shown later is there."""
    where, run, end = _listed_short(world, dice)
    writer = world.writers[0]  # on the observer's host
    again = writer.append(where, 1)
    writer.write("send", {where: {"sent": [again._replace(offset=end)]}})
    pause(world)
    assert run.offset is not None
    expected = Expected(may=ORDER | {"duplicate", "inconsistent-offsets"})
    expected.add("log-truncation", where, run.offset + 2)
    return expected


@fault("log end of a deposed leader")
def deposed(world: World, dice: Random) -> Expected:
    """A leader that was cut off lists the end that it knew."""
    _listed_short(world, dice)
    return Expected()


def _listed_short(world: World, dice: Random) -> tuple[Where, Run, int]:
    """The log's end is listed below the last of three records, which were polled. Returns them, and the end."""
    calm(world)
    where = topic_place(dice)
    run = a_writer(world, dice).send(where, 3)
    assert run.offset is not None
    pause(world)
    world.readers[0].poll()  # on the observer's host: what other clocks say proves no order
    pause(world, 1.0)
    end = run.offset + dice.randint(1, 2)
    world.journal.write(world.observer, "offsets", {where: {"log_end": end}})
    pause(world, 1.0)
    return where, run, end


@fault("eos-violation twice")
def twice(world: World, dice: Random) -> Expected:
    """The committed offset is lost, and the next life reads some inputs again."""
    transform = reflected(world)
    run = a_writer(world, dice).send(transform.source, 4)
    assert run.offset is not None
    pause(world)
    transform.rest(dice)
    pause(world)
    again = dice.randint(1, 3)
    transform.committed = run.offset + 4 - again
    transform.restart()
    pause(world)
    transform.rest(dice)
    expected = Expected()
    for i in range(4 - again, 4):
        expected.add("eos-violation", transform.target, "twice", transform.group, run.writer, run.seq + i)
    return expected


@fault("eos-violation missing")
def missing(world: World, dice: Random) -> Expected:
    """An offset was committed without the outputs."""
    transform = reflected(world)
    writer = a_writer(world, dice)
    writer.send(transform.source, 1)
    pause(world)
    transform.rest(dice)
    pause(world)
    run = writer.send(transform.source, 3)
    assert run.offset is not None
    left_out = dice.randint(1, 3)
    transform.committed = run.offset + left_out
    transform.restart()
    ends_with(world, transform.source, dice)
    expected = Expected()
    for i in range(left_out):
        expected.add("eos-violation", transform.source, "missing", transform.group, run.writer, run.seq + i)
    return expected


@fault("hanging-transaction")
def hanging(world: World, dice: Random) -> Expected:
    """A transaction ends, and the last stable offset stays where it began."""
    calm(world)
    where, transactor = topic_place(dice), t2(world)
    transactor.begin()
    transactor.add(where, 2)
    pause(world)
    partition = world.cluster.partitions[where]
    partition.stuck_at = transactor.sent[where][0].offset
    transactor.finish()
    for _ in range(60):
        world.tick(1.0)
    partition.stuck_at = None
    expected = Expected(conditions=WAITING | {"stuck-consumer"})
    expected.add("hanging-transaction", where)
    return expected


@fault("unrecovered-transaction")
def unrecovered(world: World, dice: Random) -> Expected:
    """The next life's init_transactions returns, and what its predecessor left open still holds the log."""
    calm(world)
    where, transactor = topic_place(dice), t2(world)
    world.tick(1.0)
    transaction = transactor.begin()
    transactor.add(where, 2)
    transactor.down = True
    world.tick(0.5)
    partition = world.cluster.partitions[where]
    partition.stuck_at = transactor.sent[where][0].offset
    transactor.killed(committing=True)
    for _ in range(15):
        world.tick(1.0)
    partition.stuck_at = None
    assert transaction.state == "aborted"
    expected = Expected(conditions=WAITING | {"stuck-consumer"})
    expected.add("unrecovered-transaction", where, transactor.transactional_id)
    return expected


@fault("abort-position")
def abort_position(world: World, dice: Random) -> Expected:
    """A consumer stands anywhere after its transaction was aborted; the class is in the finding's context."""
    calm(world)
    where = topic_place(dice)
    a_writer(world, dice).send(where, 4)
    pause(world)
    calm(world)
    end = world.cluster.partitions[where].end
    before, reached = max(1, end - 3), end
    kind: Literal["advance", "rewind", "rewind-further", "other"] = dice.choice(
        ("advance", "rewind", "rewind-further", "other")
    )
    after = {"advance": reached, "rewind": before, "rewind-further": before - 1, "other": before + 1}[kind]
    process = world.journal.born(f"abort-{dice.random()}", "boot-a")
    world.journal.write(process, "start", kind="aborts", settings={})
    txn = 900_000 + dice.randrange(1000)
    world.journal.write(
        process,
        "position",
        {where: {"position_before": before, "reached": reached, "position_after": after}},
        txn=txn,
        rebalanced=dice.random() < 0.5,
    )
    world.journal.write(process, "close")
    process.closed = world.journal.time
    expected = Expected()
    expected.add("abort-position", where, process.number, txn)
    return expected
