"""Zombies: does the cluster refuse what a life asks that is over?

A client library stops a fenced producer, and a member that was thrown out, before they ask anything more; a process
that slept, or is cut off, asks nevertheless. So this probe speaks Kafka's protocol itself. Once an interval it begins a
transactional id twice, opens a transaction in the second life, and asks as the first one: for partitions, for a group,
for the commit, for the next epoch. Then it joins a group of its own, joins it anew, and commits offsets as of the
generation before, while it is a member; it leaves, and commits as the member that it was. Each such request is logged
in a `zombie` row: granted is `ok` (`unfenced-zombie` is found in it), refused is `fail` with the broker's error, and no
certain answer `info`.

The row's settings: `request` (its name in the protocol), `over` (when that life was over, monotonic nanoseconds), and
of a producer `producer_id`, `epoch`, `latest_producer_id`, `latest_epoch`, of a member `member` and `generation`, and
`latest_generation` where it lived.

The group is a classic one, whatever protocol the readers have. In one by the consumer protocol (KIP-848) an earlier
member epoch proves nothing: since KIP-1251 brokers take it for partitions that the member has held since.

Nothing is sent to a partition, and the transaction that was opened is aborted, by its own life or its timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from probes.kafka.client import admin_settings
from probes.kafka.errors import ClientError
from probes.kafka.wire.errors import CannotConnect, Refused, Undecodable
from probes.kafka.wire.messages import Api, Payload, build, element, milliseconds, request_class
from probes.kafka.wire.upstream import Address, Stream, Upstream, addresses, asked, upstream
from probes.topology import Partition
from probes.workloads.pace import Pace
from probes.workloads.probe import Probe
from rules.vocabulary.slices import Outcome

log = logging.getLogger("offsetwatch.probe")

VERSIONS: Final = {
    Api.FIND_COORDINATOR: 3,
    Api.INIT_PRODUCER_ID: 3,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.JOIN_GROUP: 3,
    Api.SYNC_GROUP: 3,
    Api.LEAVE_GROUP: 2,
    Api.OFFSET_COMMIT: 7,
}
"""Those that clients may ask, and brokers have answered since Kafka 2.5."""
NAMES: Final = {
    Api.INIT_PRODUCER_ID: "InitProducerId",
    Api.ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn",
    Api.ADD_OFFSETS_TO_TXN: "AddOffsetsToTxn",
    Api.END_TXN: "EndTxn",
    Api.OFFSET_COMMIT: "OffsetCommit",
}
WITHIN: Final = 10.0
"""Seconds for a connection, or for an answer. A group's first member waits three for others."""
TRANSACTION_TIMEOUT_MS: Final = 10_000
SESSION_MS: Final = 10_000
SETTLED_WITHIN: Final = 50
"""Tenths of a second that a transaction's markers may take."""
GROUP, TRANSACTION = 0, 1
"""What a coordinator is asked for."""
UNDECIDED: Final = frozenset(
    {
        ErrorCode.unknown_server_error,
        ErrorCode.request_timed_out,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
    }
)
"""Answers that neither grant nor refuse."""


class Zombies(Probe):
    """One life of the probe."""

    kind: ClassVar[str] = "zombies"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = self.world.config.zombies
        self._targets = list(self.layout.partitions(self.world.config.topics.transactions))
        base = f"{self.world.config.topics.prefix}-{self.world.run}-{self.name}"
        self._transactional_id = self._group = base
        self._able = True
        self._turns = 0
        self._pace = Pace(self.world.clock, self._config.interval)

    def settings(self) -> Mapping[str, str]:
        return admin_settings(self.world.connection, client=self.client)

    def open(self) -> None:
        self._pace.start()
        try:
            self._means()
        except CannotConnect as error:
            self._able = False
            log.warning("%s asks nothing: %s", self.name, error)

    def _means(self) -> Upstream:
        """How brokers are reached, with the secrets as they are now."""
        return upstream(self.world.connection.security, self.world.connection.token)

    def turn(self) -> None:
        wait = self._pace.wait()
        if wait or not self._able:
            self.pause(min(wait or 0.25, 0.25))
            return
        where = self._targets[self._turns % len(self._targets)]
        self._turns += 1
        for ask in (self.ask_as_producer, self.ask_as_member):
            try:
                asyncio.run(self._watched(ask(where)))
            except (OSError, CannotConnect, Refused, Undecodable) as error:
                self.on_error(ClientError("_TRANSPORT", str(error) or type(error).__name__))

    def close(self) -> None:
        return

    async def _watched(self, work: Awaitable[None]) -> None:
        """Do it, unless the fleet is stopping, and say meanwhile that we live."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=0.25))[0]:
            self.log.alive()
            if self.stopping.is_set():
                task.cancel()
        if not task.cancelled():
            task.result()

    async def ask_as_producer(self, where: Partition) -> None:
        """Begin a transactional id twice, and ask as the first of both; raises where the ordinary requests fail."""
        async with self._coordinator(TRANSACTION, self._transactional_id) as line:
            first = await self._begin(line)
            second = await self._begin(line)
            over = self.world.clock.monotonic_ns()
            opened = await self._answer(line, Api.ADD_PARTITIONS_TO_TXN, **self._partitions(second, where))
            _raise_for(opened, "AddPartitionsToTxn")
            told = dict(zip(("producer_id", "epoch"), map(str, first), strict=True))
            told |= dict(zip(("latest_producer_id", "latest_epoch"), map(str, second), strict=True))

            async def ask(api: Api, **values: Any) -> ErrorCode:
                row = {"transactional_id": self._transactional_id, "settings": self._told(api, over, told)}
                return await self._ask_as_zombie(line, where, api, values, row)

            await ask(Api.ADD_PARTITIONS_TO_TXN, **self._partitions(first, where))
            await ask(Api.ADD_OFFSETS_TO_TXN, **self._of(first), group_id=self._group)
            await ask(Api.END_TXN, **self._of(first), committed=True)
            # Kafka 4.3 lets this one abort an open transaction of the latest life, before it refuses it.
            await self._answer(line, Api.END_TXN, **self._of(second), committed=False)
            await self._settled(ask, first)

    async def _settled(self, ask: Callable[..., Awaitable[ErrorCode]], life: tuple[int, int]) -> None:
        """Ask for the next epoch, once the transaction's markers are written."""
        timeout = milliseconds(TRANSACTION_TIMEOUT_MS)
        for _ in range(SETTLED_WITHIN):
            code = await ask(Api.INIT_PRODUCER_ID, **self._of(life), transaction_timeout=timeout)
            if code is not ErrorCode.concurrent_transactions:
                return
            await asyncio.sleep(0.1)

    async def ask_as_member(self, where: Partition) -> None:
        """Join the group twice, commit as of the first time; leave it, and commit as the member. Raises where the
        ordinary requests fail."""
        async with self._coordinator(GROUP, self._group) as line:
            member, earlier = await self._join(line)
            _, latest = await self._join(line, member)
            # By now the new generation is written: none of before can come back with another coordinator.
            over = self.world.clock.monotonic_ns()
            if earlier < latest:
                told = {"member": member, "generation": str(earlier), "latest_generation": str(latest)}
                await self._commit_as_zombie(line, where, over, told)
            _raise_for(await self._answer(line, Api.LEAVE_GROUP, group_id=self._group, member_id=member), "LeaveGroup")
            told = {"member": member, "generation": str(latest)}
            await self._commit_as_zombie(line, where, self.world.clock.monotonic_ns(), told)

    async def _commit_as_zombie(self, line: Stream, where: Partition, over: int, told: Mapping[str, str]) -> None:
        """Commit offsets as this member of the group, as of this generation."""
        kind = request_class(Api.OFFSET_COMMIT, VERSIONS[Api.OFFSET_COMMIT])
        assert kind is not None
        topic = element(kind, "topics")
        part = build(element(topic, "partitions"), partition_index=where[1], committed_leader_epoch=-1)
        values = {
            "group_id": self._group,
            "generation_id_or_member_epoch": int(told["generation"]),
            "member_id": told["member"],
            "topics": (build(topic, name=where[0], partitions=(part,)),),
        }
        row = {"group": self._group, "settings": self._told(Api.OFFSET_COMMIT, over, told)}
        await self._ask_as_zombie(line, where, Api.OFFSET_COMMIT, values, row)

    async def _ask_as_zombie(
        self, line: Stream, where: Partition, api: Api, values: Mapping[str, Any], row: Mapping[str, Any]
    ) -> ErrorCode:
        """One request that must be refused, and its row."""
        op, invoked = self.log.next_op(), self.log.now()
        self.log.opened(op, [self.log.row(where, "zombie", "info", op, invoked, **row)])
        try:
            code = code_of(await self._answer(line, api, **values))
        except (OSError, Undecodable) as error:
            self._end(op, where, invoked, "info", "_TRANSPORT", row)
            raise error
        outcome: Outcome = "ok" if code is ErrorCode.none else "info" if code in UNDECIDED else "fail"
        self._end(op, where, invoked, outcome, None if outcome == "ok" else code.name.upper(), row)
        return code

    def _end(
        self, op: int, where: Partition, invoked: Any, outcome: Outcome, error: str | None, row: Mapping[str, Any]
    ) -> None:
        self.log.append([self.log.row(where, "zombie", outcome, op, invoked, self.log.now(), error=error, **row)])

    @asynccontextmanager
    async def _coordinator(self, kind: int, key: str) -> AsyncIterator[Stream]:
        """A connection to who coordinates this group or transactional id."""
        failed: Exception = OSError("no broker is configured")
        for address in addresses(self.world.connection.bootstrap):
            try:
                async with self._connected(address) as line:
                    found = await self._answer(line, Api.FIND_COORDINATOR, key=key, key_type=kind)
            except OSError as error:
                failed = error
                continue
            _raise_for(found, "FindCoordinator")
            async with self._connected(Address(found.host, found.port)) as line:
                yield line
            return
        raise failed

    @asynccontextmanager
    async def _connected(self, address: Address) -> AsyncIterator[Stream]:
        async with asyncio.timeout(WITHIN):
            line = await self._means().connect(address)
        try:
            yield line
        finally:
            line[1].transport.abort()

    async def _answer(self, line: Stream, api: Api, **values: Any) -> Payload:
        async with asyncio.timeout(WITHIN):
            return await asked(line, api, VERSIONS[api], self.client, **values)

    async def _begin(self, line: Stream) -> tuple[int, int]:
        """A new life of the transactional id: its producer id and epoch."""
        told = await self._answer(
            line,
            Api.INIT_PRODUCER_ID,
            transactional_id=self._transactional_id,
            producer_id=-1,
            producer_epoch=-1,
            transaction_timeout=milliseconds(TRANSACTION_TIMEOUT_MS),
        )
        _raise_for(told, "InitProducerId")
        return int(told.producer_id), int(told.producer_epoch)

    def _of(self, life: tuple[int, int]) -> dict[str, Any]:
        return {"transactional_id": self._transactional_id, "producer_id": life[0], "producer_epoch": life[1]}

    def _partitions(self, life: tuple[int, int], where: Partition) -> dict[str, Any]:
        kind = request_class(Api.ADD_PARTITIONS_TO_TXN, VERSIONS[Api.ADD_PARTITIONS_TO_TXN])
        assert kind is not None
        topic = build(element(kind, "v3_and_below_topics"), name=where[0], partitions=(where[1],))
        return {f"v3_and_below_{name}": value for name, value in self._of(life).items()} | {
            "v3_and_below_topics": (topic,)
        }

    async def _join(self, line: Stream, member: str = "") -> tuple[str, int]:
        """Be the group's only member, a new one or this one anew: its id and generation. Who leads a group, as its only
        member does, begins a generation by joining anew."""
        kind = request_class(Api.JOIN_GROUP, VERSIONS[Api.JOIN_GROUP])
        assert kind is not None
        told = await self._answer(
            line,
            Api.JOIN_GROUP,
            group_id=self._group,
            session_timeout=milliseconds(SESSION_MS),
            rebalance_timeout=milliseconds(SESSION_MS),
            member_id=member,
            protocol_type="consumer",
            protocols=(build(element(kind, "protocols"), name="range", metadata=b""),),
        )
        _raise_for(told, "JoinGroup")
        synced = await self._answer(
            line, Api.SYNC_GROUP, group_id=self._group, generation_id=told.generation_id, member_id=told.member_id
        )
        _raise_for(synced, "SyncGroup")
        return str(told.member_id), int(told.generation_id)

    @staticmethod
    def _told(api: Api, over: int, more: Mapping[str, str]) -> dict[str, str]:
        return {"request": NAMES[api], "over": str(over), **more}


def code_of(answer: Payload) -> ErrorCode:
    """The error of an answer, wherever it has it: of several partitions the first that is one."""
    for name in ("results_by_topic_v3_and_below", "topics"):
        for topic in getattr(answer, name, ()):
            for part in getattr(topic, "results_by_partition", ()) or getattr(topic, "partitions", ()):
                code: ErrorCode = getattr(part, "partition_error_code" if "results" in name else "error_code")
                if code is not ErrorCode.none:
                    return code
    return getattr(answer, "error_code", ErrorCode.none)


def _raise_for(answer: Payload, what: str) -> None:
    code = code_of(answer)
    if code is not ErrorCode.none:
        raise Refused(what, code.name)
