"""The probes at work behind the proxy: nothing is found."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from monitor.drill.definition.drill import Drill
from monitor.drill.definition.stage import Stage
from monitor.drill.proxy import PASS, Exchange, Lie, Verdict
from monitor.drill.proxy.messages import ALL_APIS
from monitor.drill.running.run import Session


class Look(Lie):
    """Sees everything, and alters nothing."""

    apis = ALL_APIS

    def __init__(self) -> None:
        super().__init__()
        self.spoken: set[int] = set()

    async def on_request(self, exchange: Exchange) -> Verdict:
        if exchange.api not in self.spoken:
            self.spoken.add(exchange.api)
            self.did(f"saw request {exchange.api}", exchange)
        return PASS


@pytest.mark.kafka
def test_a_healthy_canary_behind_the_proxy_finds_nothing(tmp_path: Path) -> None:
    look = Look()

    class BehindTheProxy(Drill):
        name = "behind-the-proxy"
        seen_in = "every healthy cluster"
        settle = 1.0
        probes: ClassVar = {
            "reader": {"group": 1},
            "transaction": {"count": 1},
            "transform": {"count": 1},
            "registers": {"count": 1},
        }

        def lies(self) -> Sequence[Lie]:
            return [look]

        def act(self, stage: Stage) -> None:
            stage.pause(5.0)

    session = Session(tmp_path, say=print, stop=threading.Event())
    try:
        result = session.run(BehindTheProxy())
    finally:
        session.close()
    assert result.verdict.passed, result.verdict
    assert not [found.told() for found in result.found if found.violation]
    assert len(look.spoken) > 15, "produce, fetch, transactions, groups, offsets: all of it passed"
