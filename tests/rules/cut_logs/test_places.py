"""A topic that is created again."""

from __future__ import annotations

from rules.across.recreated_topics import recreated
from rules.vocabulary.slices import Place

OLD, NEW = Place("c", "id-1", 0), Place("c", "id-2", 0)


def test_a_new_topic_id_is_a_new_log() -> None:
    (finding,) = recreated([(OLD, "topic")], {NEW: ("topic", 7)})
    assert (finding.topic_id, finding.subject, finding.at) == ("id-2", ("id-1",), 7)


def test_both_may_come_at_once_in_the_order_of_their_times() -> None:
    (finding,) = recreated([], {NEW: ("topic", 7), OLD: ("topic", 5)})
    assert (finding.topic_id, finding.subject) == ("id-2", ("id-1",))


def test_another_partition_topic_or_cluster_is_none() -> None:
    new = {Place("c", "id-2", 1): ("topic", 7), Place("d", "id-2", 0): ("topic", 7), NEW: ("other", 7)}
    assert recreated([(OLD, "topic")], new) == []


def test_a_topic_that_is_still_the_same() -> None:
    assert recreated([(OLD, "topic")], {OLD: ("topic", 7)}) == []
