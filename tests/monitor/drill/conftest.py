"""Clusters of other releases, and topics of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local_kafka import LocalKafka


@pytest.fixture(scope="session")
def kafka_of_3_8(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One broker of the release with the older transaction protocol, for all tests of the session."""
    with LocalKafka(tmp_path_factory.mktemp("kafka-3.8"), brokers=1, version="3.8.1") as cluster:
        yield cluster
