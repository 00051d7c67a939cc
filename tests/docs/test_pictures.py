"""The pictures of docs/anomalies.md are those of the histories as the checks judge them now."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from rules.vocabulary.catalogue import CATALOGUE
from tests.docs.guilty_histories import HISTORIES, PICTURES, picture

MOST_BYTES = 12_000
WITHOUT = {
    "suspected",
    "unverifiable",
    "window-overflow",
    "evidence-stalled",
    "checks-stalled",
    "checks-behind",
    "evidence-late",
    "check-failed",
    "evidence-gap",
    "cluster-unreachable",
    "under-min-isr",
    "throttled",
    "under-replicated-probe-topic",
    "replicas-out-of-sync",
    "unsafe-config",
    "stuck-producer",
    "refused-reads",
    "refused-writes",
    "stuck-close",
    "unrecovered-transaction",
    "abort-position",
    "misleading-error",
    "rebalance",
    "topic-recreated",
    "replaced-cluster",
    "unfenced-zombie",
}
"""What is no matter of records and offsets, or has nothing to see: an operation that does not end, a setting."""


@pytest.mark.parametrize("anomaly", HISTORIES)
def test_a_picture_is_that_of_its_history(anomaly: str) -> None:
    drawn = picture(anomaly)
    assert (PICTURES / f"{anomaly}.svg").read_text(encoding="utf-8") == drawn, "python -m tests.docs.guilty_histories"
    assert len(drawn.encode()) < MOST_BYTES
    root = ElementTree.fromstring(drawn)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and not root.findall(".//{*}script")
    marked = [one for one in root.iter() if {"guilty", "bad"} & set(one.get("class", "").split())]
    assert marked, "what the finding is about is marked"


def test_every_anomaly_that_can_be_seen_has_a_picture() -> None:
    assert set(HISTORIES) == set(CATALOGUE) - WITHOUT
    assert {file.stem for file in PICTURES.glob("*.svg")} == set(HISTORIES)
