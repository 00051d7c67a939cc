"""The dashboards and what provisions them: they are what their source makes, and each query of them, and of the rules,
returns data from a real Prometheus that scrapes a real monitor and real probes."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.local_kafka import LocalKafka
from tests.alerts.exported import exported, monitor, probes, samples
from tests.alerts.servers import eventually, get, program, prometheus, sink
from tests.monitor.commands import started

pytest.importorskip("grafana_foundation_sdk", reason="pip install -e '.[dev]'")
yaml: Any = pytest.importorskip("yaml", reason="PyYAML comes with Apprise: pip install 'offsetwatch[chat]'")

from deploy.grafana.files import FOLDER, RULES, SOURCE, made  # noqa: E402

DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in (FOLDER / "dashboards").glob("*.json")}
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
WIDTH = 24


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board: dict[str, Any]) -> list[tuple[str, str]]:
    """(panel and reference, expression)."""
    return [
        (f"{panel['title']}/{target['refId']}", target["expr"])
        for panel in panels(board)
        for target in panel["targets"]
    ]


def test_the_files_are_what_their_source_makes() -> None:
    files = {name: (FOLDER / name).read_text() for name in made()}
    assert files == made(), "python -m deploy.grafana"
    assert {path.name for path in (FOLDER / "dashboards").iterdir()} == {f"{name}.json" for name in DASHBOARDS}
    assert set(DASHBOARDS) == {"overview", "topic", "transactions", "canary"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_panel_says_what_it_shows_and_rows_are_filled(name: str) -> None:
    board = DASHBOARDS[name]
    assert board["uid"] == f"offsetwatch-{name}"
    assert [panel for panel in panels(board) if not panel.get("description") or not panel.get("title")] == []
    rows: dict[int, int] = {}
    for panel in panels(board):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH, panel["title"]
        rows[place["y"]] = rows.get(place["y"], 0) + place["w"]
    assert set(rows.values()) == {WIDTH}, "no hole is left"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_speaks_of_metrics_that_are_exported(name: str) -> None:
    recorded = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
    known = samples(monitor()) | samples(probes()) | recorded | {"up"}
    variables = [
        variable["query"] for variable in DASHBOARDS[name]["templating"]["list"] if variable["type"] == "query"
    ]
    for where, expr in [*queries(DASHBOARDS[name]), *(("variable", query) for query in variables)]:
        named = set(re.findall(r"\boffsetwatch[a-z0-9_:]+", expr))
        assert named <= known, where
        assert "$cluster" in expr or where in ("Processes that answer/A", "variable"), f"{where} is of any cluster"


def test_rules_and_dashboards_match_labels_that_there_are() -> None:
    known = {one.name: set(one.labels) for registry in (monitor(), probes()) for one in exported(registry).values()}
    asked = [rule["expr"] for group in GROUPS for rule in group["rules"]]
    asked += [expr for board in DASHBOARDS.values() for _, expr in queries(board)]
    matched = 0
    for expr in asked:
        for name, matchers in re.findall(r"\b(offsetwatch_[a-z0-9_]+)\{([^}]*)\}", expr):
            labels = known[re.sub(r"_(bucket|sum|count)$", "", name)]
            assert set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", matchers)) <= labels, f"{name}: {matchers}"
            matched += 1
    assert matched > 50


def test_what_provisions_the_dashboards_names_them_and_their_source() -> None:
    (source,) = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert (source["uid"], source["type"]) == (SOURCE, "prometheus")
    (provider,) = yaml.safe_load((FOLDER / "provisioning/dashboards/offsetwatch.yml").read_text())["providers"]
    assert provider["options"]["path"].endswith("/dashboards")


def test_grafana_is_given_each_alert_of_the_rules() -> None:
    groups = json.loads((FOLDER / "provisioning/alerting/rules.json").read_text())["groups"]
    assert all(int(group["interval"].removesuffix("s")) % 10 == 0 for group in groups), "Grafana refuses others"
    given = {rule["title"]: rule for group in groups for rule in group["rules"]}
    alerts = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
    assert given.keys() == alerts.keys()
    for name, rule in given.items():
        query, fires = rule["data"]
        assert query["model"]["expr"] == alerts[name]["expr"].strip()
        assert query["datasourceUid"] == SOURCE
        assert rule["condition"] == fires["refId"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert len(rule["uid"]) <= 40
        assert "$value " not in rule["annotations"]["summary"]


class Fleet(NamedTuple):
    """A Prometheus that scrapes a monitor and probes; the cluster's id."""

    prometheus: str
    cluster: str


SMALL = {
    "OFFSETWATCH_PROBES__TOPICS__PARTITIONS": "1",
    "OFFSETWATCH_PROBES__TOPICS__PREFIX": "grafana",
    "OFFSETWATCH_PROBES__WRITER__WITH_FIVE_IN_FLIGHT": "0",
    "OFFSETWATCH_PROBES__WRITER__RATE": "50",
    "OFFSETWATCH_PROBES__READER__COMMIT_INTERVAL": "1",
    "OFFSETWATCH_PROBES__READER__RESTLESS": "0",
    "OFFSETWATCH_PROBES__READER__PER_BROKER": "false",
    "OFFSETWATCH_PROBES__TRANSACTION__COUNT": "1",
    "OFFSETWATCH_PROBES__TRANSFORM__COUNT": "1",
    "OFFSETWATCH_PROBES__REGISTERS__COUNT": "1",
    "OFFSETWATCH_PROBES__UNREST__ENABLED": "false",
    "OFFSETWATCH_ALERTS__METRICS_PORT": "0",
    "OFFSETWATCH_ALERTS__PROBES_PORT": "0",
    "OFFSETWATCH_JOB__SHUFFLE_PARTITIONS": "2",
}


@contextmanager
def process(folder: Path, data: Path, kafka: LocalKafka, *arguments: str, **more: str) -> Iterator[str]:
    """A command that runs, and where it serves its metrics."""
    folder.mkdir()
    asked = SMALL | {"OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap, "OFFSETWATCH_DATA": str(data)} | more
    child = started(*arguments, cwd=folder, **asked)

    def served() -> str | None:
        said = (folder / "err.txt").read_text()
        assert child.poll() is None, said
        found = re.search(r"metrics are served at http://(\S+)/metrics", said)
        return found[1] if found else None

    try:
        yield eventually(served, "metrics", 240)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(300)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


@pytest.fixture(scope="module")
def fleet(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    program("prometheus")
    folder = tmp_path_factory.mktemp("grafana")
    with ExitStack() as stack:
        alertmanager = stack.enter_context(sink())  # what the monitor tells it is not looked at here
        more = {"OFFSETWATCH_ALERTS__ALERTMANAGER__URLS": f'["{alertmanager.url}"]'}
        targets = {
            job: stack.enter_context(process(folder / job, folder / "data", kafka, *command, **more))
            for job, command in (("offsetwatch-probes", ("probe", "run")), ("offsetwatch-monitor", ("monitor",)))
        }
        url = stack.enter_context(prometheus(folder / "prometheus", targets, RULES))
        for job, target in targets.items():
            eventually(lambda at=target: get(f"http://{at}/ready"), f"{job} that is ready", 480)  # type: ignore[misc]
            assert get(f"http://{target}/live") == "ok\n"
        checked = "offsetwatch_topic_unseen_records"
        found: list[Any] = eventually(lambda: ask(url, checked), f"{checked} in Prometheus", 240)
        yield Fleet(url, found[0]["metric"]["cluster"])


def ask(url: str, query: str) -> list[Any]:
    """The series that a query returns with a value that is a number. Fails where Prometheus refuses the query."""
    text = get(f"{url}/api/v1/query?query={urllib.parse.quote(query)}&time={time.time():.3f}")
    assert text is not None, f"Prometheus refuses {query}"
    return [one for one in json.loads(text)["data"]["result"] if not math.isnan(float(one["value"][1]))]


def filled_in(expr: str, cluster: str) -> str:
    """As Grafana would ask it, of the last minute and of the writers' topic."""
    for variable, value in (
        ("$__rate_interval", "20s"),
        ("$__range", "60s"),
        ("$cluster", cluster),
        ("$topic", "grafana-records"),
    ):
        expr = expr.replace(variable, value)
    assert "$" not in expr
    return expr


@pytest.mark.evening
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_query_of_a_dashboard_returns_data(name: str, fleet: Fleet) -> None:
    for where, expr in queries(DASHBOARDS[name]):
        query = filled_in(expr, fleet.cluster)
        eventually(lambda asked=query: ask(fleet.prometheus, asked), f"data of {name}, {where}: {query}", 300)  # type: ignore[misc]
    for variable in DASHBOARDS[name]["templating"]["list"]:
        if variable["type"] == "query":
            label_values = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
            assert label_values is not None
            asked = filled_in(label_values[1], fleet.cluster)
            found = eventually(lambda asked=asked: ask(fleet.prometheus, asked), f"values for {asked}")  # type: ignore[misc]
            assert {one["metric"][label_values[2]] for one in found} - {""}


@pytest.mark.evening
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_each_rule_is_evaluated_and_each_of_its_selectors_returns_data(fleet: Fleet) -> None:
    for rule in (rule for group in GROUPS for rule in group["rules"]):
        name = rule.get("record") or rule["alert"]
        ask(fleet.prometheus, rule["expr"])
        whole = [rule["expr"]] if "record" in rule else []
        # Without their matchers: a healthy fleet has no critical finding, and so no time of the last one.
        for query in [*whole, *re.findall(r"\boffsetwatch[a-z0-9_:]+|\bup\{[^}]*\}", rule["expr"])]:
            eventually(lambda asked=query: ask(fleet.prometheus, asked), f"data of {name}: {query}", 300)  # type: ignore[misc]
    groups = json.loads(get(f"{fleet.prometheus}/api/v1/rules") or "{}")["data"]["groups"]
    assert [
        (rule["name"], rule.get("lastError")) for group in groups for rule in group["rules"] if rule.get("lastError")
    ] == []
    firing = json.loads(get(f"{fleet.prometheus}/api/v1/alerts") or "{}")["data"]["alerts"]
    critical = [one for one in firing if one["labels"]["severity"] == "critical" and one["state"] == "firing"]
    assert critical == [], "the fleet is well"


@pytest.mark.evening
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("job", ["offsetwatch-probes", "offsetwatch-monitor"])
def test_everything_that_a_process_exports_names_the_cluster(job: str, fleet: Fleet) -> None:
    def names(selector: str) -> set[str]:
        asked = f'count by (__name__) ({{job="{job}", __name__=~"offsetwatch_.+"{selector}}})'
        return {one["metric"]["__name__"] for one in ask(fleet.prometheus, asked)}

    def all_named() -> set[str]:
        """Some may be scraped for the first time between the two questions."""
        named = names(f', cluster="{fleet.cluster}"')
        return named if named == names("") else set()

    named = eventually(all_named, "cluster in everything that is exported")
    for own in ("build_info", "process_cpu_seconds_total", "process_threads", "disk_free_bytes", "data_bytes"):
        assert f"offsetwatch_{own}" in named
    exported = samples(monitor()) | samples(probes())
    assert named <= exported | {"offsetwatch_build_info"}, "docs/metrics.md knows them"
