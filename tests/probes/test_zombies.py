"""The probe of zombies on a real broker: what it asks is refused, and granted where somebody serves zombies."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from deploy.local_kafka import LocalKafka
from monitor.drill.lies.groups import ServeEarlierGenerations, SwallowCommits
from monitor.drill.lies.transactions import ServeZombies
from monitor.drill.proxy import Proxy, Where
from probes.kafka.client import Connection
from probes.workloads.probe import Probe
from probes.workloads.zombies import Zombies
from rules.store import MemoryStore
from rules.vocabulary.slices import Slice, to_table
from tests.known import known
from tests.monitor.commands import silent_address
from tests.probes.conftest import MakeStage, witness

pytestmark = pytest.mark.kafka

ASKED = ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "InitProducerId", "OffsetCommit", "OffsetCommit"]
FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
LEFT = {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}


def asked(probe: Probe, rounds: int = 1) -> list[Slice]:
    """The rows of so many rounds in which everything was asked: a new cluster makes its coordinators' topics when they
    are asked for, and until then not all of a round is answered."""
    whole: list[Slice] = []
    while len(whole) < rounds * len(ASKED):
        probe.turn()
        every = [row for row in witness(probe).of("zombie") if row.type != "info"]
        begun = [i for i, row in enumerate(every) if known(row.settings)["request"] == ASKED[0]]
        turns = [every[i:j] for i, j in pairwise([*begun, len(every)])]
        whole = [row for turn in turns if len(turn) >= len(ASKED) for row in turn]
    return whole


def committed(rows: list[Slice]) -> tuple[list[Slice], list[Slice]]:
    """The commits of members that live, and those of members that have left."""
    every = [row for row in rows if known(row.settings)["request"] == "OffsetCommit"]
    return (
        [row for row in every if "latest_generation" in known(row.settings)],
        [row for row in every if "latest_generation" not in known(row.settings)],
    )


def found(rows: list[Slice]) -> Counter[str]:
    stepped = MemoryStore().step(to_table(rows))
    return Counter(finding.anomaly for out in stepped.values() for finding in out.findings)


def test_a_broker_refuses_them_all_and_goes_on_with_the_living(stage: MakeStage) -> None:
    one = stage(zombies={"interval": 0.2})
    probe = one.put(Zombies, "zombies")
    rows = asked(probe, rounds=2)
    assert [known(row.settings)["request"] for row in rows] == 2 * ASKED
    assert {row.error for row in rows if known(row.settings)["request"] != "OffsetCommit"} <= FENCED
    # Who is no member at all would be told so: that its generation is the fault says that it lives.
    living, left = committed(rows)
    assert {row.error for row in living} == {"ILLEGAL_GENERATION"}
    assert {row.error for row in left} <= LEFT
    assert {row.type for row in rows} == {"fail"}
    for before, after in zip(living, left, strict=True):
        assert known(before.settings)["member"] == known(after.settings)["member"]
        assert known(before.settings)["latest_generation"] == known(after.settings)["generation"]
        assert int(known(before.settings)["generation"]) < int(known(after.settings)["generation"])
    for row in rows:
        if "epoch" in known(row.settings):
            assert int(known(row.settings)["epoch"]) < int(known(row.settings)["latest_epoch"])
        assert int(known(row.settings)["over"]) <= known(row.mono_invoked) < known(row.mono_completed)
    assert not found(witness(probe).rows)


def test_what_is_granted_is_found(kafka: LocalKafka, stage: MakeStage) -> None:
    """The same requests, well formed: with the latest epoch in them the broker grants them all."""
    lies = [ServeZombies(), SwallowCommits(Where(group="*-zombies"))]
    with Proxy(kafka.bootstrap, lies) as proxy:
        one = stage(zombies={"interval": 0.2})
        one.connection = Connection(proxy.bootstrap)
        probe = one.put(Zombies, "zombies")
        rows = asked(probe)
    assert [(known(row.settings)["request"], row.type) for row in rows] == [(name, "ok") for name in ASKED]
    assert found(rows) == {"unfenced-zombie": len(ASKED)}


def test_an_earlier_generation_that_is_granted_is_found(kafka: LocalKafka, stage: MakeStage) -> None:
    """As the group's latest generation the member may commit while it lives, and not when it has left."""
    with Proxy(kafka.bootstrap, [ServeEarlierGenerations(Where(group="*-zombies"))]) as proxy:
        one = stage(zombies={"interval": 0.2})
        one.connection = Connection(proxy.bootstrap)
        probe = one.put(Zombies, "zombies")
        rows = asked(probe)
    living, left = committed(rows)
    assert [row.type for row in living] == ["ok"] and {row.error for row in left} <= LEFT
    assert {row.type for row in rows if row not in living} == {"fail"}
    assert found(rows) == {"unfenced-zombie": 1}


def test_a_cluster_that_does_not_answer_proves_nothing(stage: MakeStage) -> None:
    one = stage(zombies={"interval": 0.01})
    with silent_address() as nobody:
        one.connection = Connection(nobody)
        probe = one.put(Zombies, "zombies")
        while probe.counters.errors < 2:
            probe.turn()
    assert not witness(probe).of("zombie")


def test_a_login_that_it_does_not_know_asks_nothing(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    one = stage(zombies={"interval": 0.01})
    one.connection = Connection(
        one.connection.bootstrap, {"security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI"}
    )
    probe = one.put(Zombies, "zombies")
    probe.turn()
    assert "zombies asks nothing" in caplog.text
    assert not witness(probe).of("zombie") and not probe.counters.errors
