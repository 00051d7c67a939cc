'''The lying proxy: Kafka's protocol between real clients and real brokers, altered where a lie says so.

    with LocalKafka(folder) as kafka, Proxy(kafka.bootstrap, [lie]) as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "client.id": "victim"})

Without lies everything passes as bytes. Only addresses of brokers are replaced (`addresses`), and ApiVersions is
narrowed to the versions that can be read here (`versions`). A frame is decoded when a lie asks for what is in it, and
encoded again when a lie has changed it.

How to write a lie
------------------
A lie is a small class: which requests it looks at, and what it does with the request or the response.

    class SwallowCommit(Lie):
        """EndTxn(commit) is answered, and an abort is carried out."""

        apis = frozenset({Api.END_TXN})

        async def on_request(self, exchange: Exchange) -> Decision:
            if exchange.request.committed and self.turn():
                exchange.request = replace(exchange.request, committed=False)
                self.did("turned a commit into an abort", exchange)
            return PASS

    Proxy(bootstrap, [SwallowCommit(Where(transactional_id="victim-*"), When(after=2, times=1))], seed=7)

- `apis` and the `Where` (client id, transactional id, group, topic, partitions, broker; names with `*`) decide which
  exchanges the hooks see, `only_if` is any further predicate; `self.turn()` asks the `When` whether this occasion
  is taken, and counts it. `arm()` and `disarm()` turn a lie on and off from the drill's thread.
- `exchange.request` and `exchange.response` are kio's classes, frozen: set a `dataclasses.replace`d one. Other
  attributes: `api`, `version`, `client_id`, `transactional_id`, `group`, `node`, `broker`, `connection`, `places()`.
- What a hook decides: `PASS`, `Answer(payload)`, `DROP`, `CLOSE`, `Delay(seconds)`, see `lie`. `answer(exchange,
  error)` makes a response of the right version. A hook may `await`; what comes behind on the same connection waits
  for it.
- `edits` changes the partitions and batches of Produce and Fetch, `records` what is in a batch; checksums and
  compression are seen to. A batch that is left out of a fetch altogether is asked for again for ever: leave its records
  out instead (`Batch.with_records([])`), as compaction does. A Produce that loses or gains records loses the
  producer's sequence numbers with them: the next batch fails, for good.
- To keep a request for later: `DROP` or `PASS` it, keep the exchange, and `await self.side.resend(exchange)` on a new
  connection, from a hook or with `proxy.run(...)`.
- `self.side` also makes requests of the proxy's own: `produce`, `transaction`, `offset`, `delete_records`, `leader`.
- `self.did(what, exchange, place, **facts)` records an `Act`; a drill reads `lie.acts`, or waits with `lie.wait(n)`.
- What is known at once is also safe to read from the drill's thread; what changes the lie's state goes through
  `proxy.run`.

`monitor.drill.lies` holds finished ones. An error in a hook is not swallowed: the connection closes, and leaving the
proxy raises.

Limits: clients speak to the proxy in the clear. Where brokers want TLS or a login (PLAIN, SCRAM), the proxy does both
(`upstream`); a client's own login passes through otherwise, but for GSSAPI, which binds the host's name. ACL principals
and quotas see the proxy's address as the client's.
'''

from monitor.drill.proxy.edits import answer
from monitor.drill.proxy.errors import ProxyFailed
from monitor.drill.proxy.exchange import Exchange, Place
from monitor.drill.proxy.lie import (
    ALWAYS,
    CLOSE,
    DROP,
    EVERYWHERE,
    ONCE,
    PASS,
    Act,
    Answer,
    Decision,
    Delay,
    Lie,
    When,
    Where,
)
from monitor.drill.proxy.proxy import Proxy
from monitor.drill.proxy.side import Side, SideTransaction
from probes.kafka.wire.errors import CannotConnect, Refused, Undecodable
from probes.kafka.wire.messages import Api
from probes.kafka.wire.upstream import Login, Upstream, upstream

__all__ = [
    "ALWAYS",
    "CLOSE",
    "DROP",
    "EVERYWHERE",
    "ONCE",
    "PASS",
    "Act",
    "Answer",
    "Api",
    "CannotConnect",
    "Decision",
    "Delay",
    "Exchange",
    "Lie",
    "Login",
    "Place",
    "Proxy",
    "ProxyFailed",
    "Refused",
    "Side",
    "SideTransaction",
    "Undecodable",
    "Upstream",
    "When",
    "Where",
    "answer",
    "upstream",
]
