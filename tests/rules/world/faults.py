"""What a cluster does wrong. Each fault is an event of a plan: armed at a time, it strikes when it can and is then
written down as `Planted`, which is all that the oracle knows of it beside the true log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rules.vocabulary.slices import Run
from tests.rules.world.cluster import Partition, Record, Txn, Value

if TYPE_CHECKING:
    from tests.rules.world.world import World

Event = tuple[int, str, Callable[["World"], None]]


@dataclass(slots=True)
class Planted:
    """A fault that struck. `values` are what it hit, `offsets` where."""

    kind: str
    at: int
    partition: int
    values: list[Value]
    offsets: list[int] = field(default_factory=list)
    txn: int | None = None
    topic_id: str = ""


def _plain(world: World, record: Record, of: str | None) -> bool:
    if record.txn is not None:
        return False
    return of is None or any(life.process == record.writer for life in world.probes[of].lives)


def lose(at: int, partition: int = 0, count: int = 1, of: str | None = None) -> Event:
    """The next `count` plain records (of probe `of`) are acknowledged and never stored."""

    def arm(world: World) -> None:
        hit = Planted("lost", world.kernel.now, partition, [])

        def strike(p: Partition, record: Record) -> bool:
            if p.number != partition or len(hit.values) == count or not _plain(world, record, of):
                return False
            hit.values.append((p.number, record.writer, record.seq))
            hit.offsets.append(record.offset)
            return True

        world.cluster.on_append.append(strike)
        world.plant(hit)

    return at, f"lose@{at // 1_000_000}", arm


def duplicate(at: int, partition: int = 0, of: str | None = None) -> Event:
    """The next plain record (of probe `of`) is stored twice, the second time a little later."""

    def arm(world: World) -> None:
        hit, cluster = Planted("duplicate", world.kernel.now, partition, []), world.cluster

        def strike(p: Partition, record: Record) -> bool:
            if p.number == partition and not hit.values and _plain(world, record, of):
                hit.values.append((p.number, record.writer, record.seq))
                hit.offsets.append(record.offset)
                world.kernel.at(
                    world.kernel.now + 300_000,
                    lambda: hit.offsets.append(cluster.append(p.number, record.writer, record.seq)),
                )
            return False

        world.cluster.on_append.append(strike)
        world.plant(hit)

    return at, f"duplicate@{at // 1_000_000}", arm


def expose(at: int) -> Event:
    """The records of the next transaction that aborts are given to read_committed readers."""

    def arm(world: World) -> None:
        cluster, done = world.cluster, list[Txn]()

        def strike(txn: Txn, commit: bool) -> bool:
            if commit or done or not txn.first:
                return False
            done.append(txn)
            for p in cluster.partitions:
                hit = [r for r in p.records if r.txn == txn.id]
                for r in hit:
                    r.exposed = True
                if hit:
                    values, offsets = [(p.number, r.writer, r.seq) for r in hit], [r.offset for r in hit]
                    world.plant(Planted("exposed", world.kernel.now, p.number, values, offsets, txn.id), cluster)
            return True

        cluster.on_end.append(strike)

    return at, f"expose@{at // 1_000_000}", arm


def store_refused(at: int) -> Event:
    """The records of the next send that is refused are stored all the same."""

    def arm(world: World) -> None:
        cluster, done = world.cluster, list[int]()

        def strike(partition: int, run: Run) -> None:
            if not done:
                done.append(run.seq)
                offsets = [cluster.append(partition, run.writer, run.seq + i) for i in range(run.length)]
                values = [(partition, run.writer, run.seq + i) for i in range(run.length)]
                world.plant(Planted("exposed", world.kernel.now, partition, values, offsets), cluster)

        cluster.on_refusal.append(strike)

    return at, f"store_refused@{at // 1_000_000}", arm


def tear(at: int, partition: int = 0) -> Event:
    """Of the next transaction that commits over several partitions, `partition` loses its records."""

    def arm(world: World) -> None:
        cluster, done = world.cluster, list[Txn]()

        def strike(txn: Txn, commit: bool) -> bool:
            if not commit or done or partition not in txn.first or len(txn.first) < 2:
                return False
            done.append(txn)
            hit = [r for r in cluster.partitions[partition].records if r.txn == txn.id]
            for r in hit:
                cluster.remove(partition, r.offset)
            values, offsets = [(partition, r.writer, r.seq) for r in hit], [r.offset for r in hit]
            world.plant(Planted("torn", world.kernel.now, partition, values, offsets, txn.id), cluster)
            return True

        cluster.on_end.append(strike)

    return at, f"tear@{at // 1_000_000}", arm


def only_for(at: int, probe: str, partition: int = 0) -> Event:
    """The next plain record is given to one reader, and hidden from all others: for them it is a hole."""

    def arm(world: World) -> None:
        hit = Planted("only", world.kernel.now, partition, [])

        def strike(p: Partition, record: Record) -> bool:
            if p.number == partition and not hit.values and _plain(world, record, None):
                record.only = probe
                hit.values.append((p.number, record.writer, record.seq))
                hit.offsets.append(record.offset)
            return False

        world.cluster.on_append.append(strike)
        world.plant(hit)

    return at, f"only_for({probe})@{at // 1_000_000}", arm


def drop_commits(at: int, group: str, lasts: int, partition: int = 0) -> Event:
    """Commits of the group are acknowledged and dropped for a while."""

    def arm(world: World) -> None:
        hit = Planted("dropped-commit", world.kernel.now, partition, [])
        world.plant(hit)
        until = world.kernel.now + lasts

        def strike(name: str, p: int, offset: int, before: int | None) -> bool:
            if name != group or p != partition or world.kernel.now >= until or before is None:
                return False
            hit.offsets.append(offset)
            return True

        world.cluster.on_commit.append(strike)

    return at, f"drop_commits@{at // 1_000_000}", arm


def tell_commits(at: int, group: str, lasts: int, by: int, partition: int = 0) -> Event:
    """For a while the group's committed offset is told `by` higher (or lower) than it was at the beginning: an
    offset that nobody had committed until then."""

    def arm(world: World) -> None:
        before = world.cluster.committed.get((group, partition))
        if before is None:
            return
        told = before + by
        while told in world.cluster.commits[group, partition]:
            told += -1 if by < 0 else 1
        if told < 0:
            return
        hit = Planted("told-low" if by < 0 else "told-high", world.kernel.now, partition, [], [told])
        world.plant(hit)
        world.cluster.told_committed[group, partition] = told
        world.kernel.at(world.kernel.now + lasts, world.cluster.told_committed.clear)

    return at, f"tell_commits({by:+})@{at // 1_000_000}", arm


def vanish(at: int, partition: int = 0) -> Event:
    """A record that stands well below every reader's position is gone, and leaves a hole."""

    def strike(world: World) -> None:
        p = world.cluster.partitions[partition]
        old = [r for r in p.records if r.at < world.kernel.now - 15_000_000]
        if old:
            record = old[len(old) // 2]
            world.cluster.remove(partition, record.offset)
            hit = [(partition, record.writer, record.seq)]
            world.plant(Planted("vanished", world.kernel.now, partition, hit, [record.offset]))

    return at, f"vanish@{at // 1_000_000}", strike


def appear(at: int, after: int, partition: int = 0) -> Event:
    """The next plain record is acknowledged, and stored only `after` microseconds later, at its offset."""

    def arm(world: World) -> None:
        hit, cluster = Planted("late", world.kernel.now, partition, []), world.cluster

        def strike(p: Partition, record: Record) -> bool:
            if p.number != partition or hit.values or not _plain(world, record, None):
                return False
            hit.values.append((p.number, record.writer, record.seq))
            hit.offsets.append(record.offset)
            world.kernel.at(world.kernel.now + after, lambda: cluster.insert(partition, record))
            return True

        world.cluster.on_append.append(strike)
        world.plant(hit)

    return at, f"appear@{at // 1_000_000}", arm


def phantom(at: int, writer: str = "w1", partition: int = 0) -> Event:
    """The log holds a record that the writer never sent."""

    def strike(world: World) -> None:
        life, cluster = world.probes[writer].life, world.probes[writer].cluster
        if life is not None:
            before = sum(p.kind == "phantom" for p in world.planted)  # another value each time
            seq = life.next_seq[partition] + 10_000 + 100 * before
            offset = cluster.append(partition, life.process, seq)
            hit = [(partition, life.process, seq)]
            world.plant(Planted("phantom", world.kernel.now, partition, hit, [offset]), cluster)

    return at, f"phantom@{at // 1_000_000}", strike


def cut(at: int, count: int, partition: int = 0) -> Event:
    """An unclean election: the log loses its last `count` offsets, none of them of an open transaction."""

    def strike(world: World) -> None:
        p = world.cluster.partitions[partition]
        to = max(p.start, p.end - count)
        if p.open:
            world.kernel.at(world.kernel.now + 20_000, lambda: strike(world))
            return
        end = p.end
        gone = world.cluster.cut(partition, to)
        values = [(partition, r.writer, r.seq) for r in gone]
        world.plant(Planted("cut", world.kernel.now, partition, values, [to, end]))

    return at, f"cut({count})@{at // 1_000_000}", strike


def cut_and_put_back(at: int, count: int, after: int, partition: int = 0) -> Event:
    """The log loses its last `count` offsets, and `after` microseconds later what it held there is put back in the
    place of what came since: a leader is made from a damaged disk, and the disk is restored."""

    def strike(world: World) -> None:
        cluster = world.cluster
        p = cluster.partitions[partition]
        if p.open:
            world.kernel.at(world.kernel.now + 20_000, lambda: strike(world))
            return
        to, end = max(p.start, p.end - count), p.end
        gone = cluster.cut(partition, to)
        world.plant(Planted("cut", world.kernel.now, partition, _values(gone), [to, end]), cluster)

        def put_back() -> None:
            if p.open:
                world.kernel.at(world.kernel.now + 20_000, put_back)
                return
            until, start = p.end, max(to, p.start)
            since = cluster.put_back(partition, gone, start, max(start, end))
            hit = [start, max(until, end)]
            world.plant(Planted("cut", world.kernel.now, partition, _values(since), hit), cluster)

        world.kernel.at(world.kernel.now + after, put_back)

    def _values(records: list[Record]) -> list[Value]:
        return [(partition, r.writer, r.seq) for r in records]

    return at, f"cut_and_put_back@{at // 1_000_000}+{after // 1_000_000}", strike


def zombie(at: int, after: int, probe: str = "t1") -> Event:
    """A transactional writer is killed in mid transaction, and long after its next life has begun the transaction that
    nobody committed becomes visible."""

    def strike(world: World) -> None:
        cluster = world.probes[probe].cluster
        life = world.probes[probe].life
        calls = [] if life is None else [op.more for op in life.in_flight.values() if op.f == "txn"]
        open_ = [cluster.txns[more["txn"]] for more in calls if "end_invoked" not in more]
        txn = next((t for t in open_ if t.state == "open" and t.first), None)
        if txn is None:
            world.kernel.at(world.kernel.now + 1_000, lambda: strike(world))
            return
        txn.zombie = True
        world.probes[probe].kill()
        for p in cluster.partitions:
            hit = [r for r in p.records if r.txn == txn.id]
            if hit:
                values = [(p.number, r.writer, r.seq) for r in hit]
                offsets = [r.offset for r in hit]
                world.plant(Planted("zombie", world.kernel.now, p.number, values, offsets, txn.id), cluster)

        def commit() -> None:
            cluster.end(txn.id, commit=True)

        world.kernel.at(world.kernel.now + after, commit)

    return at, f"zombie@{at // 1_000_000}", strike


def stale_listing(at: int, lasts: int, partition: int = 0) -> Event:
    """For a while the partition's leader lists the end that it had at the beginning."""

    def strike(world: World) -> None:
        p = world.cluster.partitions[partition]
        start, end = p.start, p.end
        until = world.kernel.now + lasts
        world.plant(Planted("stale", world.kernel.now, partition, []))

        def lie(asked: Partition) -> tuple[int, int, int] | None:
            return (start, end, end) if asked is p and world.kernel.now < until else None

        world.cluster.listed = lie

    return at, f"stale_listing@{at // 1_000_000}", strike


def recreate(at: int) -> Event:
    """The topic is deleted and created again: a new log, and no fault."""
    return at, f"recreate@{at // 1_000_000}", lambda world: world.recreate()


def delete_records(at: int, partition: int = 0, keep: int = 0) -> Event:
    """DeleteRecords or retention, and no fault: only the last `keep` offsets stay."""

    def act(world: World) -> None:
        cluster = world.cluster
        cluster.delete_to(partition, cluster.partitions[partition].end - keep)

    return at, f"delete_records@{at // 1_000_000}", act
