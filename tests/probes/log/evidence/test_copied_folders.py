"""A journal folder and a copy of it, which both append through a topic of a real cluster: all of either is taken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from probes.log.commits.committer import committer
from probes.log.commits.history import History
from probes.log.evidence.intake import Intake
from probes.log.evidence.topic import EvidenceTopic
from tests.probes.log.evidence.carried import a_host, a_topic, carried, carry
from tests.probes.log.lives import Prober, StillClock, logged, table_rows


@pytest.mark.parametrize("at_once", [True, False], ids=["at_once", "one_by_one"])
def test_what_a_copied_folder_and_its_original_append_is_all_taken(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, at_once: bool
) -> None:
    """They begin together, and give the same numbers to their appends."""
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
    prober.close()
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    taken = Intake(topic, History(str(history)), said.append)
    if not at_once:
        carry(taken)
    probers = []
    for process, each in ((2, folder), (3, copied)):
        probers.append(Prober.start(each, process, clock))
        with committer(each, EvidenceTopic(topic), clock) as one:
            for _ in range(3):
                probers[-1].send(0)
                probers[-1].alive()
                one.commit()
        if not at_once:
            carry(taken)
    carry(taken)
    taken.close()
    rows = table_rows(history)
    for process, prober in enumerate(probers, 2):
        assert logged(rows, process) == prober.must_be_logged()
    assert [line.partition(" in the name")[0] for line in said] == [f"two append to {topic}"]
    assert carried(topic, history) == 0, "it is there already"
