"""Grafana: dashboards, and the files that provision them with their data source and the alert rules.

The dashboards are written in Python (`boards/`, made of the pieces in `panels.py`) with grafana-foundation-sdk, and
the alert rules are those of `deploy/prometheus/rules.yml`. `python -m deploy.grafana` writes the JSON files that
Grafana reads; it needs what `pip install -e '.[dev]'` installs. A test holds the files to what this makes, and runs
each query against a real Prometheus.
"""
