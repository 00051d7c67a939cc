"""The overview: is the cluster safe, how well does it serve, and what was found?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana.panels import HERE, JUDGED, Panel, Query, available, board, filled, lines, number, quantiles


def overview() -> Dashboard:
    """Is the cluster safe, is it well, and who says so?"""
    made = board("offsetwatch-overview", "Offsetwatch: overview", "Is the cluster safe, and how well does it serve?")
    return filled(
        made,
        {
            "Is it safe?": _safety(),
            "How well does it serve?": [*_availability(), *_latency_and_failures()],
            "What was found?": _found(),
        },
    )


def _safety() -> list[Panel]:
    """What was found, in numbers, and whether anybody looks."""
    return [
        number(
            "Violations",
            "Findings that the policy calls critical or warnings, in the time shown.",
            "short",
            f'sum(increase(offsetwatch_findings_total{{{HERE}, kind="violation", {JUDGED}}}[$__range]))',
            (0.5, 0.5),
        ),
        number(
            "Conditions open",
            "What is wrong now, and may end. `offsetwatch findings` lists it.",
            "short",
            f"sum(offsetwatch_conditions_open{{{HERE}, {JUDGED}}})",
            (1, 1),
        ),
        number(
            "Lost records",
            "Acknowledged and proven gone, in the time shown.",
            "short",
            f"sum(increase(offsetwatch_lost_records_total{{{HERE}}}[$__range]))",
            (0.5, 0.5),
        ),
        number(
            "Duplicated records",
            "At two or more offsets, in the time shown.",
            "short",
            f"sum(increase(offsetwatch_duplicated_records_total{{{HERE}}}[$__range]))",
            (0.5, 0.5),
        ),
        number(
            "Age of the evidence",
            "The newest row that was checked. Where it is old, nothing here says anything.",
            "s",
            f"max(offsetwatch_evidence_age_seconds{{{HERE}}})",
            (30, 300),
        ),
        number(
            "Brokers that lead",
            "Brokers that lead partitions of the probe topics.",
            "short",
            f"count(count by (broker) (offsetwatch_produce_records_total{{{HERE}}}))",
        ),
    ]


def _availability() -> list[Panel]:
    """Availability, as clients get it."""
    return [
        available("Produce availability", "produce_records", "produce_record_failures"),
        available("End-to-end availability", "end_to_end_records", "end_to_end_record_failures"),
        available("Consume availability", "consume_records", "consume_record_failures"),
        available("Offset commits", "offset_commits", "offset_commit_failures"),
        available("Transaction commits", "transaction_commits", "transaction_commit_failures"),
        available("Metadata", "metadata_requests", "metadata_request_failures"),
    ]


def _latency_and_failures() -> list[Panel]:
    """Latency and failures, as clients get them."""
    return [
        lines(
            "Produce latency",
            "From handing a record to the producer until its acknowledgement.",
            "s",
            *quantiles("offsetwatch_produce_latency_seconds", HERE),
        ),
        lines(
            "End-to-end latency",
            "From handing a record to the producer until it is polled at read_committed.",
            "s",
            *quantiles("offsetwatch_end_to_end_latency_seconds", HERE),
        ),
        lines(
            "End-to-end latency by leader",
            "The slowest percent. One broker that stands out is slow, or far away.",
            "s",
            *quantiles("offsetwatch_end_to_end_latency_seconds", HERE, "broker"),
        ),
        lines(
            "Failures",
            "Records a second that were not acknowledged, not read in time, or came too late.",
            "reqps",
            *(
                Query(f"sum(rate(offsetwatch_{name}_total{{{HERE}}}[$__rate_interval]))", words)
                for name, words in (
                    ("produce_record_failures", "not written"),
                    ("consume_record_failures", "written, not read"),
                    ("end_to_end_record_failures", "not back in time"),
                    ("end_to_end_delayed_records", "back too late"),
                )
            ),
        ),
        lines(
            "Since the last success",
            "Seconds since an operation was last seen to succeed. Rebalances are rare.",
            "s",
            Query(
                "time() - max by (operation) (offsetwatch_last_success_timestamp_seconds"
                f'{{{HERE}, operation!="rebalance"}})',
                "{{operation}}",
            ),
        ),
        lines(
            "Error budget burn",
            "Share of failures over an hour by the budget of 0.1 %: 1 spends it in a month, 14.4 pages.",
            "short",
            *(
                Query(f"offsetwatch:{what}_errors:ratio_rate1h{{{HERE}}} / 0.001", words)
                for what, words in (("produce", "produce"), ("end_to_end", "end to end"))
            ),
        ),
    ]


def _found() -> list[Panel]:
    """Findings and conditions over time."""
    return [
        lines(
            "Findings",
            "New findings by anomaly, the most frequent.",
            "short",
            Query(
                "topk(8, sum by (anomaly) (increase(offsetwatch_findings_total"
                f"{{{HERE}, {JUDGED}}}[$__rate_interval])))",
                "{{anomaly}}",
            ),
        ),
        lines(
            "Open conditions",
            "By name, those with the most places.",
            "short",
            Query(f"topk(8, sum by (anomaly) (offsetwatch_conditions_open{{{HERE}, {JUDGED}}}))", "{{anomaly}}"),
        ),
    ]
