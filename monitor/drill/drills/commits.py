"""Drills about what groups have committed: commits that are dropped, and offsets that nobody committed."""

from __future__ import annotations

from typing import Final

from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.lies.groups import CommittedOffset, ServeEarlierGenerations, SwallowCommits, SwallowTxnOffsets
from monitor.drill.lies.plays import LieThenRebalance, OneLie
from monitor.drill.proxy import Where

GROUP: Final = Where(group="*-group")
MEMBER: Final = Where(client_id="offsetwatch-reader-group-1")
TRANSACTIONS: Final = Where(client_id="offsetwatch-transactions-*")
TRANSFORMS: Final = Where(client_id="offsetwatch-transform-*")
ONE_MEMBER: Final = {"reader": {"assign": 1, "group": 1}}
NONE: Final = -1
COMMITTED_FIRST_S: Final = 3.0
"""What the group commits before the lie begins is kept."""

DRILLS: Final = (
    Drill(
        name="dropped-commit",
        case="without-rejoin",
        what="OffsetCommit is answered and not forwarded: the group is where it was, and nobody joins anew.",
        seen_in="the field's checkers",
        must=(found("lost-commit"),),
        may=ORDER,
        probes=ONE_MEMBER,
        play=lambda: OneLie(SwallowCommits(GROUP), after=COMMITTED_FIRST_S, ends=True),
    ),
    Drill(
        name="dropped-commit",
        case="with-rejoin",
        what="OffsetCommit is answered and not forwarded, then the member joins anew, and begins where it had begun"
        " before.",
        seen_in="the field's checkers",
        must=(found("lost-commit"),),
        may=ORDER,
        probes=ONE_MEMBER,
        play=lambda: LieThenRebalance(SwallowCommits(GROUP), MEMBER, acts=3, after=COMMITTED_FIRST_S),
    ),
    Drill(
        name="dropped-commit",
        case="in-a-transaction",
        what="TxnOffsetCommit is answered and not forwarded: transactions commit their records without their offsets.",
        seen_in="the field's checkers",
        must=(found("lost-commit"),),
        may=ORDER,
        probes={"transaction": {"count": 1, "rate": 2.0}},
        play=lambda: OneLie(SwallowTxnOffsets(TRANSACTIONS), after=COMMITTED_FIRST_S, acts=3, ends=True),
    ),
    Drill(
        name="foreign-commit",
        what="Committed offsets are told as 15 more than was ever committed, to the observer and to the member that"
        " joins.",
        seen_in="the field's checkers",
        must=(found("foreign-commit"),),
        may=ORDER | {"lost-write"},
        probes=ONE_MEMBER,
        play=lambda: OneLie(CommittedOffset(GROUP, change=lambda group, real: real + 15), ends=True),
    ),
    Drill(
        name="vanished-commit",
        what="Committed offsets are told as none, seconds after they were committed.",
        seen_in="the field's checkers",
        must=(found("lost-commit"),),
        may=ORDER,
        probes=ONE_MEMBER,
        play=lambda: OneLie(
            CommittedOffset(GROUP, change=lambda group, real: NONE), after=COMMITTED_FIRST_S, ends=True
        ),
    ),
    Drill(
        name="offset-rollback",
        what="OffsetFetch answers with an older committed offset, to the observer too, and a member is made to join"
        " anew.",
        seen_in="Redpanda, Bufstream",
        must=(found("offset-regression", severity="warning"),),
        may=frozenset(
            {"lost-commit", "foreign-commit"}
        ),  # what was committed last is not told, and what is, nobody did
        probes=ONE_MEMBER,
        play=lambda: LieThenRebalance(
            CommittedOffset(GROUP, change=lambda group, real: max(real - 25, 1)),
            MEMBER,
            acts=2,
            after=COMMITTED_FIRST_S,
        ),
    ),
    Drill(
        name="zombie-request",
        case="member",
        what="A commit of offsets by a member that has left its group is granted.",
        seen_in="the field's checkers",
        must=(found("unfenced-zombie"),),
        probes={"zombies": {"count": 1, "interval": 2.0}},
        play=lambda: OneLie(SwallowCommits(Where(group="*-zombies-*")), ends=True),
    ),
    Drill(
        name="zombie-request",
        case="generation",
        what="A commit of offsets as of an earlier generation of its group, by a member that lives, is granted.",
        seen_in="this canary",
        must=(found("unfenced-zombie"),),
        probes={"zombies": {"count": 1, "interval": 2.0}},
        play=lambda: OneLie(ServeEarlierGenerations(Where(group="*-zombies-*")), ends=True),
    ),
    Drill(
        name="double-transform",
        what="TxnOffsetCommit is answered and not forwarded, then the group rebalances: inputs are transformed again.",
        seen_in="exactly-once",
        must=(found("eos-violation"),),
        may=frozenset({"lost-commit"}),
        probes={"transform": {"count": 2, "timeouts": [10.0], "rate": 4.0, "abort_share": 0.0}},
        play=lambda: LieThenRebalance(SwallowTxnOffsets(TRANSFORMS), TRANSFORMS, acts=4, rejoins=2),
    ),
)
