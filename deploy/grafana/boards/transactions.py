"""Transactions, and what coordinators answer: groups and committed offsets."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana.panels import (
    HERE,
    JUDGED,
    Panel,
    Query,
    available,
    board,
    filled,
    lines,
    number,
    quantiles,
    quantiles_so_far,
)

OUTCOMES: Final = (
    ("committed", "committed"),
    ("aborted", "aborted on purpose"),
    ("failed", "failed"),
    ("indefinite", "of unknown outcome"),
)
OF_TRANSACTIONS: Final = (
    'anomaly=~"G0.*|G1.*|torn-transaction|dirty-read|precommitted-read|hanging-transaction|unrecovered-transaction'
    '|zombie-write|unfenced-zombie|eos-violation|lost-commit"'
)


def transactions() -> Dashboard:
    """Transactions, and what coordinators do: groups and committed offsets."""
    made = board("offsetwatch-transactions", "Offsetwatch: transactions", "Transactions, groups and committed offsets.")
    return filled(
        made,
        {
            "Transactions": [*_endings(), *_endings_over_time()],
            "Groups and committed offsets": _coordinators(),
        },
    )


def _ended(outcome: str) -> str:
    return f"sum(rate(offsetwatch_probe_transactions_{outcome}_total{{{HERE}}}[$__rate_interval]))"


def _number_of(outcome: str) -> str:
    return f"sum(increase(offsetwatch_probe_transactions_{outcome}_total{{{HERE}}}[$__range]))"


def _endings() -> list[Panel]:
    """How transactions end, in numbers."""
    return [
        available("Commits that succeed", "transaction_commits", "transaction_commit_failures"),
        number(
            "Failed",
            "Were to be committed, and certainly were not; in the time shown.",
            "short",
            _number_of("failed"),
            (0.5, 10),
        ),
        number(
            "Of unknown outcome",
            "In the time shown. Crashes on purpose are among them.",
            "short",
            _number_of("indefinite"),
        ),
        number(
            "Held back",
            "The most offsets that open transactions hold back in a partition.",
            "short",
            f"max(offsetwatch_topic_unstable_records{{{HERE}}})",
        ),
        number(
            "Since the last commit",
            "Of a transaction.",
            "s",
            f'time() - max(offsetwatch_last_success_timestamp_seconds{{{HERE}, operation="transaction-commit"}})',
            (60, 300),
        ),
        number(
            "Findings about transactions",
            "Dirty reads, torn transactions, cycles; in the time shown.",
            "short",
            f"sum(increase(offsetwatch_findings_total{{{HERE}, {JUDGED}, {OF_TRANSACTIONS}}}[$__range]))",
            (0.5, 0.5),
        ),
    ]


def _endings_over_time() -> list[Panel]:
    """How transactions end, over time."""
    return [
        lines(
            "Commit latency",
            "From the call until it returns.",
            "s",
            *quantiles("offsetwatch_transaction_commit_latency_seconds", HERE),
        ),
        lines(
            "Outcomes",
            "Transactions a second.",
            "reqps",
            *(Query(_ended(outcome), words) for outcome, words in OUTCOMES),
        ),
        lines(
            "Held back by open transactions",
            "Offsets between the last stable offset and the log's end, of each topic's worst partition.",
            "short",
            Query(f"offsetwatch_topic_unstable_records{{{HERE}}}", "{{topic}}"),
        ),
        lines(
            "Records of aborted transactions",
            "Written and never to be seen, records a second.",
            "reqps",
            Query(
                f"sum by (kind) (rate(offsetwatch_probe_records_aborted_total{{{HERE}}}[$__rate_interval]))", "{{kind}}"
            ),
        ),
    ]


def _coordinators() -> list[Panel]:
    """What coordinators answer."""
    return [
        lines(
            "Offset commit latency",
            "From the request until its answer.",
            "s",
            *quantiles("offsetwatch_offset_commit_latency_seconds", HERE),
        ),
        lines(
            "Rebalances",
            "How long a member was without partitions, of all since the probes began: they are rare.",
            "s",
            *quantiles_so_far("offsetwatch_rebalance_duration_seconds", HERE),
        ),
        lines(
            "Offset commits",
            "A second.",
            "reqps",
            Query(f"sum(rate(offsetwatch_offset_commits_total{{{HERE}}}[$__rate_interval]))", "tried"),
            Query(f"sum(rate(offsetwatch_offset_commit_failures_total{{{HERE}}}[$__rate_interval]))", "failed"),
        ),
        lines(
            "Metadata latency",
            "Describing the probe topics, once a second.",
            "s",
            *quantiles("offsetwatch_metadata_latency_seconds", HERE),
        ),
    ]
