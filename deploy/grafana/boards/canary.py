"""Offsetwatch itself: whether it sees and keeps up, what its probes do, and what all that takes."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana.panels import HERE, Panel, Query, board, filled, lines, number, quantiles


def canary() -> Dashboard:
    """Offsetwatch itself: whether it sees, keeps up, and what it takes."""
    made = board("offsetwatch-canary", "Offsetwatch: the canary itself", "Does Offsetwatch see, and does it keep up?")

    return filled(
        made,
        {
            "Does it see?": [*_sight(), *_keeping_up()],
            "The probes": _probes(),
            "What it takes": _costs(),
        },
    )


def _by(label: str, metric: str) -> Query:
    return Query(f"sum by ({label}) (rate({metric}{{{HERE}}}[$__rate_interval]))", f"{{{{{label}}}}}")


def _each(metric: str, legend: str) -> Query:
    return Query(f"{metric}{{{HERE}}}", legend)


def _sight() -> list[Panel]:
    """Whether the checks see, and keep up, now."""
    return [
        number(
            "Processes that answer",
            "Monitors and probe hosts that Prometheus can scrape.",
            "short",
            'sum(up{job=~"offsetwatch-.*"})',
            (1, 0.5),
        ),
        number(
            "Age of the evidence",
            "The newest row that was checked.",
            "s",
            f"max(offsetwatch_evidence_age_seconds{{{HERE}}})",
            (30, 300),
        ),
        number(
            "Verdicts behind",
            "Of the topic that is furthest behind.",
            "s",
            f"max(offsetwatch_topic_checked_behind_seconds{{{HERE}}})",
            (30, 120),
        ),
        number(
            "Unread commits",
            "Of the probe log, by the checks.",
            "short",
            f"max(offsetwatch_probe_log_unread_commits{{{HERE}}})",
            (10, 30),
        ),
        number(
            "Not in the log yet",
            "Journals that the committer has not appended.",
            "bytes",
            f"sum(offsetwatch_probe_log_backlog_bytes{{{HERE}}})",
            (8e6, 64e6),
        ),
        number(
            "Undelivered",
            "Deliveries to channels and receivers that failed, in the time shown.",
            "short",
            f"sum(increase(offsetwatch_alert_channel_failures_total{{{HERE}}}[$__range]))",
            (0.5, 0.5),
        ),
    ]


def _keeping_up() -> list[Panel]:
    """How they kept up."""
    return [
        lines(
            "Duration of a batch",
            "Of checks. Two seconds at the median is the objective.",
            "s",
            *quantiles("offsetwatch_batch_duration_seconds", HERE),
        ),
        lines(
            "Checked",
            "Rows of the probe log, and records in them, a second.",
            "reqps",
            Query(f"sum(rate(offsetwatch_slices_checked_total{{{HERE}}}[$__rate_interval]))", "rows"),
            Query(f"sum(rate(offsetwatch_records_checked_total{{{HERE}}}[$__rate_interval]))", "records"),
        ),
        lines(
            "Rows that came in",
            "To the last batch, a second.",
            "reqps",
            _each("offsetwatch_batch_input_slices_per_second", "{{instance}}"),
        ),
        lines(
            "The probe log",
            "Duration of the last append.",
            "s",
            _each("offsetwatch_probe_log_append_seconds", "{{instance}}"),
        ),
    ]


def _probes() -> list[Panel]:
    """What the probes do."""
    return [
        lines(
            "Records sent", "A second, by kind of probe.", "reqps", _by("kind", "offsetwatch_probe_records_sent_total")
        ),
        lines(
            "Records polled",
            "A second, by kind of probe.",
            "reqps",
            _by("kind", "offsetwatch_probe_records_polled_total"),
        ),
        lines(
            "Clients opened",
            "A second. Some crash on purpose (probes.unrest).",
            "reqps",
            _by("kind", "offsetwatch_probe_lives_total"),
        ),
        lines("Clients' errors", "A second.", "reqps", _by("kind", "offsetwatch_probe_errors_total")),
        lines(
            "Records that may not be written",
            "A second, of unknown outcome, by kind of probe: an outage, a client that crashed on purpose.",
            "reqps",
            _by("kind", "offsetwatch_probe_records_indefinite_total"),
        ),
        lines(
            "Held back by quotas",
            "Seconds a second, of all clients of a kind: brokers throttle the canary.",
            "short",
            _by("kind", "offsetwatch_probe_throttled_seconds_total"),
        ),
    ]


def _costs() -> list[Panel]:
    """What the processes take."""
    return [
        lines(
            "Processor",
            "Cores: of the processes themselves, Spark's JVM, and others they started.",
            "cores",
            Query(
                f"sum by (instance, process) (rate(offsetwatch_process_cpu_seconds_total{{{HERE}}}[$__rate_interval]))",
                "{{instance}} {{process}}",
            ),
        ),
        lines(
            "Memory",
            "Resident.",
            "bytes",
            _each("offsetwatch_process_resident_memory_bytes", "{{instance}} {{process}}"),
        ),
        lines(
            "Threads and files",
            "Threads, and open file descriptors.",
            "short",
            _each("offsetwatch_process_threads", "{{instance}} {{process}}, threads"),
            _each("offsetwatch_process_open_files", "{{instance}} {{process}}, files"),
        ),
        lines(
            "Disk",
            "What the data take, and what is free beside them.",
            "bytes",
            _each("offsetwatch_data_bytes", "{{instance}} data"),
            _each("offsetwatch_disk_free_bytes", "{{instance}} free"),
        ),
    ]
