"""A journal folder and a copy of it, which both append through a topic of a real cluster: all of either is taken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from probes.log.commits.committer import committer
from probes.log.commits.history import History
from probes.log.commits.numbers import number_of
from probes.log.evidence.intake import Intake
from probes.log.evidence.taken import BEFORE, LAST
from probes.log.evidence.topic import EvidenceTopic
from tests.probes.log.evidence.carried import a_host, a_topic, app_of, carried, carry
from tests.probes.log.lives import Prober, StillClock, check_marks, check_slices, logged, table_rows


@pytest.mark.parametrize("way", ["at_once", "one_by_one", "by_another_intake"])
def test_what_a_copied_folder_and_its_original_append_is_all_taken(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock, way: str
) -> None:
    """They begin together, and give the same numbers to their appends. Nobody needs to remember what they held."""
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    with committer(folder, EvidenceTopic(topic), clock) as one:
        one.commit()
    prober.close()
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    taken = Intake(topic, History(str(history)), said.append)
    if way != "at_once":
        carry(taken)
    probers = []
    for process, each in ((2, folder), (3, copied)):
        probers.append(Prober.start(each, process, clock))
        with committer(each, EvidenceTopic(topic), clock) as one:
            for _ in range(3):
                probers[-1].send(0)
                probers[-1].alive()
                one.commit()
        if way == "one_by_one":
            carry(taken)
        elif way == "by_another_intake":
            carried(topic, history, said)
    carry(taken)
    taken.close()
    rows = table_rows(history)
    for process, prober in enumerate(probers, 2):
        assert logged(rows, process) == prober.must_be_logged()
        assert sum(row["process"] == process for row in rows) == sum(map(len, prober.told.values())), "each once"
    assert {line.partition(" in the name")[0] for line in said} == {f"two append to {topic}"}
    assert carried(topic, history) == 0, "it is there already"


def test_who_begins_again_and_again_is_no_copy(
    kafka: LocalKafka, tmp_path: Path, history: Path, clock: StillClock
) -> None:
    """It makes its last append again each time: of that it does not know."""
    topic, said = a_topic(kafka), list[str]()
    folder, prober = a_host(tmp_path, "host", 1, clock)
    for turn in range(8):
        with committer(folder, EvidenceTopic(topic), clock) as one:
            prober.send(0)
            one.commit()
            prober.send(0)
            one.commit()
        if turn % 3:
            carried(topic, history, said)
    carried(topic, history, said)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(history) > 0
    assert said == []
    app = app_of(folder)
    known = History(str(history)).last_versions([app + LAST, app + BEFORE])
    assert [number_of(version) for version in known.values()] == [9, 8]
