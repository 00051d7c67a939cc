"""What every lie is made of: where it applies, how often, what it decides, and what it says it did."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final, Protocol

from monitor.drill.proxy.exchange import Exchange, Place
from monitor.drill.proxy.side import Side
from probes.kafka.wire.messages import Api, Payload


class Teller(Protocol):
    """What a lie asks of the proxy that tells it."""

    clock: Callable[[], datetime]
    side: Side


@dataclass(frozen=True, slots=True)
class Pass:
    """Go on: to the next lie, and then to the broker or the client, changed or not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The client gets this response, and the broker never sees the request."""

    payload: Payload


@dataclass(frozen=True, slots=True)
class Drop:
    """A request is not forwarded and never answered; a response is not handed on.

    Later responses of the connection pass: librdkafka pairs them by correlation id and waits for the missing one until
    its request times out; a Java client closes the connection."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Go on after so many seconds. What comes behind it on the same connection waits too, as behind a slow broker."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Close:
    """Both connections are closed at once: the client's, and the one to the broker behind it."""


Decision = Pass | Answer | Drop | Delay | Close

PASS: Final = Pass()
DROP: Final = Drop()
CLOSE: Final = Close()


@dataclass(frozen=True, slots=True)
class Where:
    """Which requests a lie concerns. What is None does not matter. Names may hold `*` and `?`.

    `topics` and `partitions` apply to requests that name partitions, `transactional_id` to those that have one:
    a request without any is not meant by a selector that asks for one."""

    client_id: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    topic: str | None = None
    partitions: Collection[int] | None = None
    node: int | None = None

    def __contains__(self, place: Place) -> bool:
        return _like(place.topic, self.topic) and (self.partitions is None or place.partition in self.partitions)

    @property
    def _asks_for_places(self) -> bool:
        return self.topic is not None or self.partitions is not None

    def means(self, exchange: Exchange, *, places: bool = True) -> bool:
        """Whether the exchange is concerned. Decodes it only if a selector asks for what is in it."""
        return (
            _like(exchange.client_id, self.client_id)
            and (self.node is None or exchange.node == self.node)
            and (self.transactional_id is None or _like(exchange.transactional_id, self.transactional_id))
            and (self.group is None or _like(exchange.group, self.group))
            and (not places or not self._asks_for_places or any(place in self for place in exchange.places()))
        )


EVERYWHERE: Final = Where()


def _like(name: str | None, pattern: str | None) -> bool:
    return pattern is None or (name is not None and fnmatchcase(name, pattern))


@dataclass(frozen=True, slots=True)
class When:
    """How often: the first `after` occasions are let pass, then `times` are taken (None: all), each with `chance`."""

    after: int = 0
    times: int | None = None
    chance: float = 1.0


ALWAYS: Final = When()
ONCE: Final = When(times=1)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a lie did. `at` is UTC; `facts` are whatever the lie thinks a drill may want to know."""

    at: datetime
    what: str
    client_id: str | None = None
    place: Place | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Lie:
    """The base of all lies. A subclass names its `apis` and overrides one or both hooks. What
    else it has to be told, and what it keeps, are fields (`kw_only`).

    Hooks run on the proxy's event loop, for one request of a connection at a time. They may wait; what comes behind on
    the same connection waits with them. A hook is called for exchanges that `apis` and `where` mean, while the lie is
    armed; it asks `turn()` whether this occasion is to be taken, and calls `did()` when it has done something. An
    error in a hook closes the connection, and leaving the proxy raises it."""

    apis: ClassVar[frozenset[int]] = frozenset()

    where: Where = EVERYWHERE
    when: When = ALWAYS
    armed: bool = field(default=True, kw_only=True)
    only_if: Callable[[Exchange], bool] | None = field(default=None, kw_only=True)
    acts: list[Act] = field(default_factory=list, init=False)
    _seen: int = field(default=0, init=False)
    _taken: int = field(default=0, init=False)
    _acted: threading.Condition = field(default_factory=threading.Condition, init=False)
    _teller: Teller | None = field(default=None, init=False)
    _random: random.Random = field(default_factory=lambda: random.Random(0), init=False)

    async def on_request(self, exchange: Exchange) -> Decision:
        """Called before a request is forwarded. `exchange.request` may be set to another."""
        return PASS

    async def on_response(self, exchange: Exchange) -> Decision:
        """Called before a response is handed to the client; not for a proxy's own. `exchange.response` may be set."""
        return PASS

    def bind(self, teller: Teller, seed: int) -> None:
        """Called once by the proxy that takes the lie."""
        self._teller = teller
        self._random = random.Random(seed)

    def turn(self) -> bool:
        """Whether this occasion is to be taken. Counts it: ask once for each."""
        self._seen += 1
        if self._seen <= self.when.after or (self.when.times is not None and self._taken >= self.when.times):
            return False
        if self.when.chance < 1.0 and self._random.random() >= self.when.chance:
            return False
        self._taken += 1
        return True

    def did(self, what: str, exchange: Exchange | None = None, place: Place | None = None, **facts: Any) -> None:
        """Record an act, at the proxy's clock."""
        act = Act(self._told_by.clock(), what, exchange.client_id if exchange else None, place, facts)
        with self._acted:
            self.acts.append(act)
            self._acted.notify_all()

    def concerns(self, exchange: Exchange) -> bool:
        """Whether the hooks are to be called for the exchange.

        The request of an incremental Fetch names only the partitions that are new: which it is about, its response
        tells."""
        if not self.armed or exchange.api not in self.apis:
            return False
        told = exchange.api != Api.FETCH or exchange.response_frame is not None
        return self.where.means(exchange, places=told) and (self.only_if is None or self.only_if(exchange))

    @property
    def _told_by(self) -> Teller:
        assert self._teller is not None, "the lie is not in a proxy"
        return self._teller

    @property
    def side(self) -> Side:
        """Connections of the proxy's own, for use in hooks."""
        return self._told_by.side

    # For the thread that runs the drill

    def arm(self) -> None:
        """From now on the lie is told."""
        self.armed = True

    def disarm(self) -> None:
        self.armed = False

    def wait(self, count: int = 1, timeout: float = 10.0) -> list[Act]:
        """The lie's acts, once there are `count` of them. Raises `TimeoutError` after `timeout` seconds."""
        with self._acted:
            if not self._acted.wait_for(lambda: len(self.acts) >= count, timeout):
                limit = timedelta(seconds=timeout)
                raise TimeoutError(f"{type(self).__name__} did {len(self.acts)} of {count} things within {limit}")
            return list(self.acts)


async def first_decision(lies: list[Lie], exchange: Exchange, *, response: bool) -> Decision:
    """What the lies decide together: the first that does not let the exchange pass has the word.

    Delays are waited for here, and the lies after it are asked then."""
    for lie in lies:
        if not lie.concerns(exchange):
            continue
        decision = await (lie.on_response(exchange) if response else lie.on_request(exchange))
        if isinstance(decision, Delay):
            await asyncio.sleep(decision.seconds)
        elif not isinstance(decision, Pass):
            return decision
    return PASS
