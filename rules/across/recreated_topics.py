"""`topic-recreated`: a topic whose id is not what it was is another log, whatever its name.

A partition's checks know one topic id. Whoever knows all partitions, the job's sink, sees that a name has two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Place


def recreated(known: Iterable[tuple[Place, str]], new: Mapping[Place, tuple[str, int]]) -> list[Finding]:
    """What partitions that are here for the first time tell.

    `known`: (place, topic) of all partitions before; `new`: topic, and when the first process began there
    (microseconds), of those that came now: by these times, since a catch-up hears of several at once.
    """
    before: dict[tuple[str, str, int], str] = {}
    for place, topic in known:
        before[place.cluster, topic, place.partition] = place.topic_id
    findings = []
    for place, (topic, at) in sorted(new.items(), key=lambda item: (item[1][1], item[0])):
        name = (place.cluster, topic, place.partition)
        earlier = before.get(name)
        before[name] = place.topic_id
        if earlier is None or earlier == place.topic_id:
            continue
        findings.append(
            Finding(
                anomaly="topic-recreated",
                cluster=place.cluster,
                topic_id=place.topic_id,
                topic=topic,
                partition=place.partition,
                subject=(earlier,),
                message=f"topic {topic} had id {earlier} and has {place.topic_id} now: it is a new log",
                evidence={"before": earlier, "now": place.topic_id},
                at=at,
                decidable=at,
            )
        )
    return findings
