"""The probes at work behind the proxy: nothing is found."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from monitor.drill.definition.drill import Drill
from monitor.drill.lies.plays import OneLie
from monitor.drill.proxy import PASS, Decision, Exchange, Lie
from monitor.drill.running.session import Session
from probes.kafka.wire.messages import ALL_APIS


class Look(Lie):
    """Sees everything, and alters nothing."""

    apis = ALL_APIS

    def __init__(self) -> None:
        super().__init__()
        self.spoken: set[int] = set()

    async def on_request(self, exchange: Exchange) -> Decision:
        if exchange.api not in self.spoken:
            self.spoken.add(exchange.api)
            self.did(f"saw request {exchange.api}", exchange)
        return PASS


@pytest.mark.kafka
def test_a_healthy_canary_behind_the_proxy_finds_nothing(tmp_path: Path) -> None:
    look = Look()

    drill = Drill(
        name="behind-the-proxy",
        what="Every workload goes on for some seconds.",
        seen_in="every healthy cluster",
        probes={
            "reader": {"group": 1},
            "transaction": {"count": 1},
            "transform": {"count": 1},
            "registers": {"count": 1},
        },
        play=lambda: OneLie(look, at_once=True, after=5.0),
    )
    session = Session(tmp_path, say=print, stop=threading.Event())
    try:
        result = session.run(drill)
    finally:
        session.close()
    assert result.verdict.passed, result.verdict
    assert not [found.told() for found in result.found if found.violation]
    assert len(look.spoken) > 15, "produce, fetch, transactions, groups, offsets: all of it passed"
