"""What is said of a cluster that does not do what it is asked: the truth about who answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from deploy.local_kafka import LocalKafka
from monitor.config.config import Config
from monitor.drill.proxy import PASS, Api, Decision, Exchange, Lie, Proxy
from monitor.errors import ConfigError
from monitor.process.reach import reach
from probes.config import TopicsConfig
from probes.kafka.client import Connection, admin_settings, open_admin
from probes.kafka.errors import Unreachable
from probes.topics.probe_topics import ProbeTopics


class NoController(Lie):
    """Brokers answer, and tell of no controller: as in a cluster whose quorum is lost."""

    apis: ClassVar = frozenset({Api.METADATA, Api.DESCRIBE_CLUSTER})

    async def on_response(self, exchange: Exchange) -> Decision:
        self.did("took the controller out", exchange)
        exchange.response = replace(exchange.response, controller_id=-1)  # type: ignore[type-var]
        return PASS


@pytest.mark.kafka
def test_brokers_that_answer_and_tell_of_no_controller_are_not_called_silent(kafka: LocalKafka, tmp_path: Path) -> None:
    with Proxy(kafka.bootstrap, lies=[NoController()]) as proxy:
        told = {"bootstrap": proxy.bootstrap, "reachable_within": 2.0}
        config = Config.model_validate({"data": str(tmp_path), "cluster": told})
        with pytest.raises(ConfigError, match=r"1 broker.s. answer at .*, and none of them tells who"):
            reach(config)
        admin = open_admin(admin_settings(Connection(proxy.bootstrap), client="t"))
        topics = ProbeTopics(admin, TopicsConfig(prefix="reach"))
        with pytest.raises(Unreachable, match="brokers of the cluster answer, and none of them tells"):
            topics.view()
