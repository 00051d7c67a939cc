"""Which partitions a committer marks: the log's clock goes on while probes are down, and ends where nobody is left."""

from __future__ import annotations

from probes.log.commits.marks import MARKED_ON, PlaceName, current_places
from probes.log.journals.progress import Life, LifeProgress

NOW = 10**15
BEFORE = {PlaceName("one", "id", "t", 0): NOW - 1, PlaceName("one", "id", "t", 1): NOW - MARKED_ON}


def at_work(cluster: str, *partitions: int) -> tuple[Life, LifeProgress]:
    life = Life(
        cluster=cluster,
        run="run",
        process=1,
        kind="writer",
        writer=None,
        transactional_id=None,
        boot="boot",
        settings={},
    )
    return life, LifeProgress(topics={("id", partition): "t" for partition in partitions})


def places(*lives: tuple[Life, LifeProgress]) -> list[tuple[str, int]]:
    return sorted((place.cluster, place.partition) for place in current_places(lives, BEFORE, NOW))


def test_while_the_probes_are_down_all_of_them_are() -> None:
    assert places() == [("one", 0), ("one", 1)]


def test_where_the_last_process_is_over_for_long_it_is_not() -> None:
    assert places(at_work("one", 2)) == [("one", 0), ("one", 2)]


def test_nor_in_a_cluster_that_the_probes_have_left_for_another_one() -> None:
    assert places(at_work("two", 0)) == [("one", 0), ("two", 0)]
