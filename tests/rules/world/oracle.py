"""What must be found in a world, and by when; and which findings the truth bears out. From the definitions alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rules.vocabulary.finding import Finding
from tests.rules.world.clocks import true_time
from tests.rules.world.cluster import Value
from tests.rules.world.committed import CommittedOffsets
from tests.rules.world.engine import values_of
from tests.rules.world.explains import ALWAYS, NAMED, explained_by
from tests.rules.world.faults import Planted
from tests.rules.world.kernel import SECOND
from tests.rules.world.life import Life
from tests.rules.world.must import GRACE, MEASURED, Must
from tests.rules.world.skews import Skews, is_there
from tests.rules.world.truth import NEVER, READERS, Truth
from tests.rules.world.world import World

SLACK = 5 * SECOND
BLOCK = 1024
"""Offsets of an audit block."""
SILENT = 30 * SECOND
"""So long log time waits for a host that says nothing, and the settled frontier for a reader that stands still."""
TICK = SECOND
"""Log time goes in steps of this: what is due within one is due at its end."""
OPEN = 5 * SECOND
"""So far behind log time stays for an operation that has not returned."""
CLOSE = 2 * SECOND
"""So close nobody can tell whether a log reaches to when a loss is due: log time goes in ticks of a second, the bound
of two clocks is no better than what it was measured by, and a pass is known before the acknowledgement or after it."""
AT_ONCE = frozenset({"duplicate", "G1a", "inconsistent-offsets"})
"""What is proven by what was seen, whatever log time it is."""


class Oracle:
    def __init__(self, world: World, patience: int = 0) -> None:
        self.world = world
        self.slack = SLACK + patience
        self.spread = self._spread()
        self.truths = {cluster.topic_id: Truth(world, cluster.topic_id) for cluster in world.clusters}
        self.truth, self.skews = self.truths["t1"], Skews(world)
        """Of the topic's life that is looked at."""
        self.just_due: dict[Value, int] = {}
        """Lost values that are due as the log of a reader ends for ever, and their offsets."""
        self.musts = [m for topic_id in self.truths for m in self._all(topic_id)]

    def _spread(self) -> int:
        """How far apart the hosts' clocks ever were: what is concluded across hosts may wait so much longer."""
        offs = []
        for h in self.world.plan.hosts:
            drift = round(self.world.plan.length * abs(h.drift) / 1e6)
            skews = [h.skew, *itertools.accumulate((r.by for r in h.reboots), initial=h.skew)]
            offs.append((min(skews) - drift, max(skews) + drift))
        return max(o[1] for o in offs) - min(o[0] for o in offs)

    def _comparable(self, partition: int, hosts: set[str]) -> bool:
        """Whether a listing can be told to have come after what these hosts did."""
        observing = {life.host.name for life in self.world.lives if life.kind == "observer"}
        return all(self.skews.bounded(partition, ahead=b, of=a) for a in hosts for b in observing)

    def _holes_comparable(self, partition: int, sender: str) -> bool:
        """Whether what this host sent can be told to have come after what is missing of readers elsewhere."""
        with_holes = {
            life.host.name
            for life in self.world.lives
            if life.kind in READERS and (life.crashed is not None or any(e.rejected for e in life.entries))
        }
        return all(self.skews.bounded(partition, ahead=sender, of=host) for host in with_holes)

    # What must be.

    def _all(self, topic_id: str) -> list[Must]:
        self.truth, self.skews = self.truths[topic_id], Skews(self.world, topic_id)
        musts = [m for planted in self.world.planted if planted.topic_id == topic_id for m in self._of(planted)]
        for must in musts:
            must.topic_id = topic_id
            if must.by is not None and must.anomaly not in AT_ONCE:
                must.by = self._once_log_time_goes_on(must.by, must.partition)
                must.optional |= must.by > self.world.plan.length
                # Offsets are settled as log time goes on, and nobody marks a topic that is gone.
                must.optional |= must.prompt and must.by > self._marked_until(topic_id)
        return musts

    def _once_log_time_goes_on(self, by: int, partition: int) -> int:
        """Later, where a host says nothing then, or a row is missing: log time stands still until it comes, or is not
        waited for."""
        hosts = [host.name for host in self.world.hosts]
        while (later := max([self._anybody_spoke(by), *(self._spoke(name, partition, by) for name in hosts)])) > by:
            by = later
        return max([by, *(min(end + self.slack, by + OPEN) for end in self._open_at(partition, by - self.slack))])

    def _open_at(self, partition: int, time: int) -> Iterator[int]:
        """When the operations ended that were open then: log time stays up to `OPEN` behind while one is."""
        for life in self.world.lives:
            for e in life.entries:
                if e.row.partition == partition and e.invoked < time < e.completed:
                    yield e.completed
            for op in life.in_flight.values():
                if partition in op.partitions and op.invoked < time:
                    yield self.world.plan.length

    def _marked_until(self, topic_id: str) -> int:
        """When the last mark of a topic that was created again came."""
        if topic_id == self.world.cluster.topic_id:
            return self.world.plan.length
        return max(a.arrived for a in self.world.appends if any(row.topic_id == topic_id for row in a.marks))

    def _spoke(self, host: str, partition: int, by: int) -> int:
        came = [0, *(a.arrived for a in self.world.appends if a.host == host), self.world.plan.length]
        lives = [life for life in self.world.lives if life.host.name == host]
        gone = [e for life in lives for e in life.entries if e.rejected and e.row.partition == partition]
        pauses = [(e.invoked, e.invoked + SILENT) for e in gone if e.invoked < by]
        pauses += [(a, b) for a, b in itertools.pairwise(sorted(came)) if a < by and b - a > 3 * SECOND]
        over = max((min(b, a + SILENT) for a, b in pauses), default=0)
        return over + self.slack if over + self.slack > by else by

    def _anybody_spoke(self, by: int) -> int:
        """Later, where no host says anything then: there is no log time but what marks tell."""
        came = sorted({0, *(a.arrived for a in self.world.appends), self.world.plan.length})
        over = max((b for a, b in itertools.pairwise(came) if a < by and b - a > 3 * SECOND), default=0)
        return max(by, over + self.slack)

    def _of(self, planted: Planted) -> list[Must]:
        committed = CommittedOffsets(self)
        if planted.kind == "lost":
            lost = [self._lost(v, o) for v, o in zip(planted.values, planted.offsets, strict=True)]
            return lost + [skip for m, o in zip(lost, planted.offsets, strict=True) for skip in self._skips(m, o)]
        if planted.kind == "torn":
            return [self._lost(v, o) for v, o in zip(planted.values, planted.offsets, strict=True)] + [
                self._torn(planted)
            ]
        if planted.kind == "duplicate":
            return [self._duplicate(planted)]
        if planted.kind == "exposed":
            return [self._exposed(v) for v in planted.values]
        if planted.kind == "dropped-commit":
            return [committed.told(planted, "lost-commit")]
        if planted.kind == "told-low" and planted.offsets == [0]:  # which nobody asked for
            return [committed.told(planted, "spurious-zero-offset")]
        if planted.kind == "told-low":
            return [committed.told(planted, "lost-commit"), committed.told(planted, "offset-regression")]
        if planted.kind == "told-high":
            return [committed.told(planted, "foreign-commit")]
        if planted.kind == "cut":
            return [*self._inconsistent(planted), *self._truncated(planted)]
        if planted.kind in ("vanished", "late"):
            return [self._changed(planted)] if planted.offsets else []
        if planted.kind == "phantom":
            return [self._phantom(planted)]
        if planted.kind == "zombie":
            return [self._zombie(planted)]
        return []

    def _lost(self, value: Value, offset: int) -> Must:
        """Acknowledged, polled by no ok operation, passed by a reader in assign mode, above the log start."""
        partition = value[0]
        must = Must("lost-write", partition, value, None, True, "")
        sent = self.truth.sends.get(value)
        if sent is None or sent.entry.row.type != "ok" or sent.entry.arrived is None or sent.entry.rejected:
            must.why = "its acknowledgement never came"
            return must
        if any(p.kind == "cut" and p.partition == partition and p.offsets[0] <= offset for p in self.world.planted):
            must.why = "its offset was given again"
            return must
        if any(self.truth.polled_ok(value)):
            must.why = "it was polled, if at read_uncommitted alone"
            return must
        passes = self.truth.passed(partition, offset)
        if not passes:
            must.why = "nobody passed it"
            return must
        readers = [life for life in self.world.lives if life.kind in READERS]
        if not self._comparable(partition, {life.host.name for life in readers if is_there(life, partition)}):
            must.why = "nobody can know how far apart the clocks are"
            return must
        if not self._holes_comparable(partition, sent.life.host.name):
            must.why = "nobody can know whether it was sent before a hole in a reader's log was over"
            return must
        since = max(passes[0].entry.completed, sent.entry.completed) + GRACE
        came = [sent.entry.arrived, passes[0].entry.arrived, self.truth.observed(partition, since)]
        until = since + self.spread  # the pass and the acknowledgement may be told by two clocks, and so the grace
        came += [self.truth.known(life, partition, sent.entry.invoked, until) for life in readers]
        came += [
            self.truth.known(life, partition, sent.entry.invoked, until)
            for life in self._where_one_left(readers, until)
        ]
        if any(c is None for c in came):
            must.why = "a log is lost for ever"
            if any(self.truth.doubt(life, time) for life in readers for time in (since, until)):
                self.just_due[value] = offset
            return must
        sent_by = sent.life.host
        sent_at = {life.host.name: sent.entry.invoked - (MEASURED if life.host != sent_by else 0) for life in readers}
        if any(self.truth.known(r, partition, sent_at[r.host.name], until + CLOSE) is None for r in readers):
            must.why = "a log ends just as it is sent, or as it is due"
            self.just_due[value] = offset
            return must
        came += [self.truth.known(r, partition, sent_at[r.host.name], until + TICK) for r in readers]
        must.by = max(c for c in came if c is not None) + self.slack + 2 * self.spread
        started = self._started(partition, offset)
        if started is not None and started <= must.by + GRACE:
            must.why = "the log start passed it"
            return must
        must.optional = must.by > self.world.plan.length
        must.why = f"sent at {sent.entry.invoked // SECOND}s"
        return must

    def _where_one_left(self, readers: list[Life], until: int) -> list[Life]:
        """Who still lives, and reads nothing, on hosts where somebody has read who ended in order, and nobody does any
        more: another may have begun there, of whom nobody knows before the host tells of that time."""
        reading = {life.host.name for life in readers if life.began <= until and (life.closed or life.died) is None}
        left = {life.host.name for life in readers if life.closed is not None and life.closed <= until} - reading
        return [
            life
            for life in self.world.lives
            if life.host.name in left and life.kind not in READERS and (life.closed or life.died) is None
        ]

    def _skips(self, lost: Must, offset: int) -> list[Must]:
        """Every reader in assign mode that polled before and after the lost value has skipped its index. One that
        comes later than that (an audit) may find the index settled and forgotten."""
        if lost.optional or lost.value is None or self.world.plan.rejects is not None:
            return []
        out = []
        for p in self.truth.passed(lost.partition, offset):
            if p.life.kind != "reader" or p.entry.completed > self.truth.sends[lost.value].entry.completed + GRACE:
                continue
            mine = self.truth.polled_by(p.life, lost.partition)
            first = min((o for o in mine if o > offset), default=None)
            if first is not None and any(o < offset for o in mine):
                reached = max(p.entry.arrived or 0, self._reached(lost.partition, first, p.entry.completed))
                settled = reached + GRACE + self.truth.exchanged_within(lost.partition, reached + GRACE)
                by = max(lost.by or 0, settled + self.slack + 2 * self.spread)
                skip = Must("poll-skip|int-poll-skip", lost.partition, lost.value, by, by > self.world.plan.length, "")
                skip.reader, skip.over, skip.why, skip.prompt = p.life.process, offset, f"by {p.life.name}", True
                out.append(skip)
        return out

    def _reached(self, partition: int, offset: int, at: int) -> int:
        """When all that read at the time had gone past an offset, or stood still for too long to be waited for."""
        ended = {
            life.process: min((t for t in (life.died, life.closed) if t is not None), default=at + SILENT)
            for life in self.world.lives
            if life.kind in READERS and life.began <= at < (life.crashed or at) + SILENT
        }
        reading = [process for process, end in ended.items() if end > at]
        past = [min(self.truth.past(process, partition, offset), ended[process], at + SILENT) for process in reading]
        return max(past, default=at)

    def _changed(self, planted: Planted) -> Must:
        """Polled by one reader; another, at the same isolation level, passed its offset as a hole. The digests of a
        block tell it once the block is complete and all of it was read again."""
        offset = planted.offsets[0]
        must = Must("vanished-record|late-record", planted.partition, None, None, True, planted.kind, offset=offset)
        block = offset // BLOCK
        value = planted.values[0]
        polls = [s for s in self.truth.polled_ok(value) if s.entry.arrived is not None and not s.entry.rejected]
        holes = [p for p in self.truth.passed(planted.partition, offset) if all(s.entry is not p.entry for s in polls)]
        whole = (
            [
                self.truth.read_whole(life, planted.partition, block * BLOCK, (block + 1) * BLOCK)
                for life in {s.life.process: s.life for s in polls}.values()
            ],
            [
                self.truth.read_whole(life, planted.partition, block * BLOCK, (block + 1) * BLOCK)
                for life in {p.life.process: p.life for p in holes}.values()
            ],
        )
        first = [min((t for t in times if t is not None), default=None) for times in whole]
        if first[0] is not None and first[1] is not None:
            must.by = max(first[0], first[1]) + 4 * GRACE + self.slack + 2 * self.spread
            started = self._started(planted.partition, block * BLOCK)
            must.optional = must.by > self.world.plan.length or (started is not None and started < must.by)
        return must

    def _inconsistent(self, planted: Planted) -> list[Must]:
        """An offset that was given again, where both values were told by rows of the table while it was not settled: no
        reader had gone past it the grace time before, in this log or in a longer one that it had been."""
        out = []
        for offset, told in sorted(self.truth.told_between(planted.partition, *planted.offsets).items()):
            came = sorted(told.values())
            if len(came) > 1 and came[1] < self.truth.anybody_past(planted.partition, offset) + GRACE:
                by = came[1] + GRACE + self.slack
                must = Must("inconsistent-offsets", planted.partition, None, by, by > self.world.plan.length, "cut")
                must.offset, must.prompt = offset, True
                out.append(must)
        return out

    def _truncated(self, planted: Planted) -> list[Must]:
        """Listed at or below an offset that was acknowledged before, by a clock of the same boot; then given again."""
        must = Must("log-truncation", planted.partition, None, None, True, "cut")
        for e in self.truth.listings[planted.partition]:
            end, arrived = e.row.log_end, e.arrived
            if e.invoked < planted.at or e.rejected or arrived is None or end is None or must.by is not None:
                continue
            acks = self.truth.acknowledged(planted.partition, end, e)
            if acks and (again := self.truth.given_again(planted.partition, end, max(acks), e)) is not None:
                given_up = CommittedOffsets(self).given_up(
                    planted.partition, e.completed, {life.kind for life in self.world.lives}
                )
                must.by = max(arrived, again, given_up) + 2 * GRACE + self.slack + 2 * self.spread
                must.optional = must.by > self.world.plan.length
        return [must]

    def _phantom(self, planted: Planted) -> Must:
        """Polled, and beyond all that its writer invoked up to then, as that writer's own log tells."""
        value = planted.values[0]
        must = Must("phantom-read", planted.partition, value, None, True, "phantom")
        polls = [s for s in self.truth.polled(value) if s.entry.arrived is not None and not s.entry.rejected]
        if not polls:
            return must
        first = min(polls, key=lambda s: s.entry.arrived or 0)
        writer = next(life for life in self.world.lives if life.process == value[1])
        if not self.skews.known(planted.partition, writer.host.name, first.life.host.name):
            return must
        known = self.truth.known(writer, planted.partition, 0, first.entry.completed + GRACE)
        if known is not None:
            must.by = max(known, first.entry.arrived or 0) + GRACE + self.slack + 2 * self.spread
            must.optional = must.by > self.world.plan.length
        return must

    def _zombie(self, planted: Planted) -> Must:
        """Visible, and its commit was never invoked: the life's recovered row and a poll tell it."""
        must = Must("zombie-write", planted.partition, None, None, True, "zombie", any_of=frozenset(planted.values))
        value = planted.values[0]
        sent = self.truth.sends.get(value)
        polls = [
            s.entry.arrived
            for s in self.truth.polled_ok(value)
            if s.entry.arrived and not s.entry.rejected and s.entry.row.isolation == "read_committed"
        ]
        if sent is None or sent.entry.arrived is None or sent.entry.rejected or not polls:
            return must
        if sent.entry.row.txn is None:
            return must
        must.by = max(min(polls), sent.entry.arrived) + GRACE + self.slack + 2 * self.spread
        must.optional = must.by > self.world.plan.length
        return must

    def _started(self, partition: int, offset: int) -> int | None:
        """When the log start was first listed above the offset."""
        over = [e.invoked for e in self.truth.listings[partition] if (e.row.log_start or 0) > offset]
        return min(over, default=None)

    def _torn(self, planted: Planted) -> Must:
        """One value polled at read_committed, another acknowledged at an offset that was passed."""
        must = Must("torn-transaction", planted.partition, None, None, True, "torn", planted.txn)
        lost = [self._lost(v, o) for v, o in zip(planted.values, planted.offsets, strict=True)]
        if all(m.optional for m in lost):
            return must
        assert planted.txn is not None
        kept = [v for v, s in self.truth.sends.items() if s.entry.row.txn == planted.txn and v not in planted.values]
        seen = [s.entry.arrived for v in kept for s in self.truth.polled_ok(v) if s.entry.arrived is not None]
        if not seen:
            return must
        must.by = max(min(seen), *(m.by for m in lost if m.by is not None)) + self.slack
        must.optional = must.by > self.world.plan.length
        return must

    def _duplicate(self, planted: Planted) -> Must:
        """Seen at both offsets, by polls or by the acknowledgement."""
        value = planted.values[0] if planted.values else None
        must = Must("duplicate", planted.partition, value, None, True, "duplicate")
        if value is None or len(planted.offsets) < 2:
            return must
        places: dict[int, int] = {}
        seen = self.truth.polled(value)
        if (sent := self.truth.sends.get(value)) is not None:
            seen.append(sent)
        for s in seen:
            if s.offset is not None and s.entry.arrived is not None and not s.entry.rejected:
                places[s.offset] = min(places.get(s.offset, s.entry.arrived), s.entry.arrived)
        if len(places) > 1:
            must.by = sorted(places.values())[1] + self.slack
            must.optional = must.by > self.world.plan.length
        return must

    def _exposed(self, value: Value) -> Must:
        must = Must("G1a", value[0], value, None, True, "exposed")
        sent = self.truth.sends.get(value)
        if sent is None or sent.entry.row.type != "fail" or sent.entry.arrived is None or sent.entry.rejected:
            return must
        seen = [
            s.entry.arrived
            for s in self.truth.polled_ok(value)
            if s.entry.arrived is not None and not s.entry.rejected and s.entry.row.isolation == "read_committed"
        ]
        if seen:
            must.by = max(min(seen), sent.entry.arrived) + self.slack
            must.optional = must.by > self.world.plan.length
        return must

    # What may be.

    def _unpolled(self, named: set[Value], at: int) -> bool:
        """After a cut a reader may go on above what took the place of what it had read: lost to the letter, until
        an audit reads it."""
        until = at + self.spread
        return any(
            v in self.truth.sends and all(s.entry.completed > until for s in self.truth.polled_ok(v)) for v in named
        )

    def _polled(self, planted: Planted, f: Finding) -> bool:
        """Whether anybody polled what was planted before its loss could be told, in an operation that returned, of whom
        the log can know."""
        by = self._decidable(f)
        seen = (s for v in planted.values for s in self.truth.polled_ok(v) if s.entry.completed <= by)
        return any(self._may_be_known(s.life) for s in seen)

    def polled_after_all(self, f: Finding) -> bool:
        """Whether somebody polled a value only when its loss could be told already: then it is one or none, as the
        rows come."""
        self.truth = self.truths.get(f.topic_id, self.truth)
        by = self._decidable(f)
        return any(s.entry.completed > by for value in values_of(f) for s in self.truth.polled_ok(value))

    def _decidable(self, f: Finding) -> int:
        """When the loss of what it names could be told at the earliest: not for the grace time, whatever it says."""
        sent = (self.truth.sends[value].entry.completed for value in values_of(f) if value in self.truth.sends)
        return max(true_time(f.decidable), max(sent, default=0) + GRACE)

    def _may_be_known(self, life: Life) -> bool:
        """Not where a life's host lost all that it did, and was never heard of in its topic before that: a topic that
        is made anew is a new log, and nobody waits there for whom it has never mentioned."""
        over = NEVER if life.crashed is None else life.crashed
        return any(e.arrived is not None for e in life.entries) or any(
            a.host == life.host.name and a.arrived < over and any(row.topic_id == life.topic_id for row in a.rows)
            for a in self.world.appends
        )

    def explained(self, f: Finding) -> bool:
        """Whether a violation follows from a fault that was planted."""
        if f.anomaly in ALWAYS:
            return True
        self.truth = self.truths.get(f.topic_id, self.truth)
        for planted in self.world.planted:
            if f.topic_id not in (planted.topic_id, "") or f.anomaly not in explained_by(planted):
                continue
            if planted.kind == "only" and f.anomaly == "lost-write" and self._polled(planted, f):
                continue
            named = values_of(f)
            if f.anomaly in NAMED:
                if named & set(planted.values) or (planted.kind == "cut" and self._unpolled(named, true_time(f.at))):
                    return True
            elif f.anomaly == "torn-transaction" or f.partition == planted.partition:
                return True
        return False
