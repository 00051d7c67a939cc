"""One of the probe topics, as a whole and by partition."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana.panels import Panel, Query, board, filled, lines, number, quantiles

TOPIC: Final = 'cluster="$cluster", topic="$topic"'
MAYBE: Final = "None are shown where `alerts.partition_series` is `none`."


def topic() -> Dashboard:
    """One of the probe topics, by partition and by leader."""
    made = board("offsetwatch-topic", "Offsetwatch: one topic", "One probe topic, by partition and leader.", topic=True)
    return filled(
        made,
        {
            "$topic": [*_in_numbers(), *_over_time()],
            "By partition": _partitions(),
        },
    )


def _in_numbers() -> list[Panel]:
    """The topic as a whole, in numbers."""
    return [
        number(
            "Records written a second",
            "By plain producers.",
            "reqps",
            f"sum(rate(offsetwatch_produce_records_total{{{TOPIC}}}[$__rate_interval]))",
        ),
        number(
            "Not acknowledged",
            "Failed or of unknown outcome, in the time shown.",
            "short",
            f"sum(increase(offsetwatch_produce_record_failures_total{{{TOPIC}}}[$__range]))",
            (0.5, 0.5),
        ),
        number(
            "Lost",
            "Acknowledged and proven gone, in the time shown.",
            "short",
            f"sum(increase(offsetwatch_lost_records_total{{{TOPIC}}}[$__range]))",
            (0.5, 0.5),
        ),
        number(
            "Duplicated",
            "At two or more offsets, in the time shown.",
            "short",
            f"sum(increase(offsetwatch_duplicated_records_total{{{TOPIC}}}[$__range]))",
            (0.5, 0.5),
        ),
        number(
            "Unseen",
            "Acknowledged, and not polled within the delivery objective.",
            "short",
            f"max(offsetwatch_topic_unseen_records{{{TOPIC}}})",
            (1, 1),
        ),
        number(
            "Verdicts behind",
            "Of the partition that is furthest behind the evidence.",
            "s",
            f"max(offsetwatch_topic_checked_behind_seconds{{{TOPIC}}})",
            (30, 120),
        ),
    ]


def _over_time() -> list[Panel]:
    """The topic as a whole, over time."""
    return [
        lines(
            "Produce latency",
            "Until the acknowledgement.",
            "s",
            *quantiles("offsetwatch_produce_latency_seconds", TOPIC),
        ),
        lines(
            "Produce latency by leader",
            "The slowest percent.",
            "s",
            *quantiles("offsetwatch_produce_latency_seconds", TOPIC, "broker"),
        ),
        lines(
            "End-to-end latency",
            "Measured in the topic of the plain writers alone.",
            "s",
            *quantiles("offsetwatch_end_to_end_latency_seconds", TOPIC),
        ),
        lines(
            "Records written by leader",
            "Records a second, of plain producers.",
            "reqps",
            Query(
                f"sum by (broker) (rate(offsetwatch_produce_records_total{{{TOPIC}}}[$__rate_interval]))",
                "broker {{broker}}",
            ),
        ),
        lines(
            "Readers' lag",
            "Records from the furthest-behind reader to the last stable offset, by how it reached its partitions.",
            "short",
            Query(f"offsetwatch_topic_readers_lag_records{{{TOPIC}}}", "{{mode}}"),
        ),
        lines(
            "Held back by open transactions",
            "The most offsets of a partition between the last stable offset and the log's end.",
            "short",
            Query(f"offsetwatch_topic_unstable_records{{{TOPIC}}}", "offsets"),
        ),
    ]


def _partitions() -> list[Panel]:
    """Each of its partitions."""
    return [
        lines(
            "Growth",
            f"Offsets a second. {MAYBE}",
            "reqps",
            Query(f"deriv(offsetwatch_partition_log_end_offset{{{TOPIC}}}[$__rate_interval])", "{{partition}}"),
        ),
        lines(
            "Unseen",
            f"Acknowledged, and not polled within the objective. {MAYBE}",
            "short",
            Query(f"offsetwatch_partition_unseen_records{{{TOPIC}}}", "{{partition}}"),
        ),
        lines(
            "Readers' lag",
            f"Records. {MAYBE}",
            "short",
            Query(f"max by (partition) (offsetwatch_partition_readers_lag_records{{{TOPIC}}})", "{{partition}}"),
        ),
        lines(
            "Verdicts behind",
            f"Log time. {MAYBE}",
            "s",
            Query(f"offsetwatch_partition_checked_behind_seconds{{{TOPIC}}}", "{{partition}}"),
        ),
    ]
