"""The files that are generated: a JSON file for each dashboard, and the alert rules as Grafana provisions them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.boards import BOARDS

FOLDER: Final = Path(__file__).resolve().parent
RULES: Final = FOLDER.parent / "prometheus" / "rules.yml"
EVALUATED: Final = "30s"
"""How often Grafana evaluates the alerts; a multiple of its scheduler's ten seconds."""
SOURCE: Final = "offsetwatch-prometheus"
"""The uid of the data source in `provisioning/datasources/prometheus.yml`."""


def made() -> dict[str, str]:
    """The contents of the files, by their path below this folder."""
    files = {
        f"dashboards/{name}.json": JSONEncoder(sort_keys=True, indent=1).encode(make().build()) + "\n"
        for name, make in BOARDS.items()
    }
    files["provisioning/alerting/rules.json"] = json.dumps(alerting(yaml.safe_load(RULES.read_text())), indent=1) + "\n"
    return files


def alerting(rules: Mapping[str, Any]) -> dict[str, Any]:
    """The alerts of a Prometheus rules file, in the form of Grafana's provisioning. What is recorded is not among them:
    Prometheus goes on recording it."""
    groups = []
    for group in rules["groups"]:
        alerts = [_alert(rule) for rule in group["rules"] if "alert" in rule]
        if alerts:
            groups.append(
                {"orgId": 1, "name": group["name"], "folder": "Offsetwatch", "interval": EVALUATED, "rules": alerts}
            )
    return {"apiVersion": 1, "groups": groups}


def _alert(rule: Mapping[str, Any]) -> dict[str, Any]:
    """An alert fires for each series that its expression returns, whatever its value."""
    query = {"refId": "A", "expr": rule["expr"].strip(), "instant": True, "range": False, "editorMode": "code"}
    fires = {"refId": "B", "type": "math", "expression": "is_number($A) || is_inf($A)"}
    return {
        "uid": re.sub(r"(?<!^)(?=[A-Z])", "-", rule["alert"]).lower(),
        "title": rule["alert"],
        "condition": "B",
        "data": [
            {"refId": "A", "relativeTimeRange": {"from": 600, "to": 0}, "datasourceUid": SOURCE, "model": query},
            {"refId": "B", "datasourceUid": "__expr__", "model": fires},
        ],
        "for": rule.get("for", "0s"),
        "noDataState": "OK",
        "execErrState": "Error",
        "labels": dict(rule["labels"]),
        "annotations": {name: _words(text) for name, text in rule["annotations"].items()},
        "isPaused": False,
    }


def _words(text: str) -> str:
    """Of Prometheus' templates `$labels` is Grafana's as well; the value is that of the query. Grafana's ask no other
    series: a cluster is called by its id."""
    text = re.sub(r"{{ with .*? }}.*?{{ else }}(.*?){{ end }}", r"\1", text)
    return text.replace("$value", "$values.A.Value")
