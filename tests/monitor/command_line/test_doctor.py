"""`offsetwatch doctor`: against a real broker, against nobody, and its judgements case by case."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.paging import receivers
from alerts.receivers.http import SendFailed
from deploy.local_kafka import LocalKafka
from monitor.commands import doctor
from monitor.commands.doctor import Answer
from monitor.config.config import Config
from probes.config import TopicsConfig
from probes.kafka.client import Connection
from probes.topics.probe_topics import ClusterView, TopicView
from probes.topology import Broker
from tests.monitor.commands import offsetwatch, silent_address

SAFE = {
    "cleanup.policy": "delete",
    "min.insync.replicas": "2",
    "retention.ms": "86400000",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
APPRISE = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""As it is loaded it uses what Python is about to drop."""
TOPIC = TopicView("id", ((1, 2, 3), (2, 3, 1), (3, 1, 2)) * 2, (1, 2, 3) * 2, SAFE)
BROKERS = tuple(Broker(node, f"b{node}:9092") for node in (1, 2, 3))
CONFIG = TopicsConfig()


def judged(
    topic: TopicView | None, config: TopicsConfig = CONFIG, brokers: tuple[Broker, ...] = BROKERS
) -> list[Answer]:
    view = ClusterView("c", brokers, {"t": topic} if topic is not None else {})
    return list(doctor.probe_topics(view, ["t"], config))


def with_config(**changed: str) -> TopicView:
    return replace(TOPIC, config=SAFE | {name.replace("_", "."): value for name, value in changed.items()})


TOPICS = [
    (judged(TOPIC), [("ok", "6 partitions, 3 replicas")]),
    (judged(None), [("ok", "will be created")]),
    (judged(None, TopicsConfig(manage=False)), [("bad", "is not there, and manage is off")]),
    (judged(with_config(unclean_leader_election_enable="true")), [("bad", "unclean.leader.election.enable is true")]),
    (judged(with_config(cleanup_policy="compact,delete")), [("bad", "cleanup.policy holds compact")]),
    (judged(with_config(min_insync_replicas="1")), [("bad", "min.insync.replicas is 1 with 3 replicas")]),
    (judged(with_config(retention_ms="1")), [("warning", "will be changed at the next start: retention.ms=86400000")]),
    (
        judged(with_config(retention_ms="1"), TopicsConfig(manage=False)),
        [("warning", "differs from what was asked: retention.ms=86400000")],
    ),
    (judged(replace(TOPIC, config=None)), [("ok", "6 partitions, 3 replicas")]),
    (judged(replace(TOPIC, leaders=(1, None, 3, 1, 2, None))), [("bad", "2 partitions have no leader")]),
    (
        judged(replace(TOPIC, replicas=((1,),) * 6, leaders=(1,) * 6, config=SAFE | {"min.insync.replicas": "1"})),
        [("warning", "will be changed at the next start"), ("warning", "1 replica(s), 3 were asked for")],
    ),
]


@pytest.mark.parametrize(("answers", "expected"), TOPICS)
def test_topics(answers: list[Answer], expected: list[tuple[str, str]]) -> None:
    assert len(answers) == len(expected), answers
    for answer, (state, detail) in zip(answers, expected, strict=True):
        assert answer.state == state, answer
        assert detail in answer.detail


def test_an_absent_package_and_an_old_python_are_bad() -> None:
    answers = {a.about: a for a in doctor.software({"python": "3.10.1", "version": "1", "pyspark": "absent"}, (3, 10))}
    assert {name: answer.state for name, answer in answers.items()} == {
        "python": "bad",
        "offsetwatch": "ok",
        "pyspark": "bad",
    }


def test_client_settings_are_held_against_what_verdicts_assume(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {a.state for a in doctor.clients(Connection("b:1"))} == {"ok"}
    monkeypatch.setattr(doctor, "producer_settings", lambda *a, **k: {"acks": "1", "enable.idempotence": "true"})
    (producer, *_) = doctor.clients(Connection("b:1"))
    assert producer == Answer(
        "producer settings", "bad", "acks is 1, not all; allow.auto.create.topics is not set, not false"
    )


def test_a_folder_that_cannot_be_used_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    too_long = tmp_path / ("x" * 300)
    for path, why in [
        (tmp_path / "file", f"{tmp_path / 'file'} is there, and is no folder"),
        (tmp_path / "file" / "data", f"{tmp_path / 'file'} is there, and is no folder"),
        (tmp_path / "gone" / "data", f"{tmp_path / 'gone'} is there, and is no folder"),
        (too_long, "cannot be made: File name too long"),
        (Path("/proc/offsetwatch/data"), "cannot be made: "),
        (Path("/proc"), "cannot be written: "),
    ]:
        answer = doctor.folder(path)
        assert answer.state == "bad" and why in answer.detail, answer
        assert answer.detail.startswith(str(path))
    assert doctor.folder(tmp_path / "not" / "yet").state in ("ok", "warning")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "gone"], "what was tried is removed"
    for free, state in ((10e9, "ok"), (1e9, "warning"), (1e6, "bad")):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: shutil._ntuple_diskusage(1, 1, free))
        assert doctor.folder(tmp_path).state == state


def test_all_that_is_wrong_with_a_configuration_is_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "offsetwatch.toml").write_text("[probes]\nwritr = 1\n[alerts]\nmetrics_port = 70000\n")
    wrong = {"OFFSETWATCH_PROBE__X": "1", "OFFSETWATCH_JOB__CORES": "none"}
    done = offsetwatch("doctor", "--json", cwd=tmp_path, **wrong)
    assert (done.returncode, done.stderr) == (1, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    complaints = [one["detail"] for one in answers if one["about"] == "configuration"]
    assert all(one["state"] == "bad" for one in answers if one["about"] == "configuration")
    assert {"python", "java", "jars"} <= {one["about"] for one in answers}, "what needs no configuration is answered"
    begins = [
        "OFFSETWATCH_PROBE__X: there is no key probe; ",
        "offsetwatch.toml: probes.writr: unknown key; ",
        "OFFSETWATCH_JOB__CORES: job.cores: ",
        "offsetwatch.toml: alerts.metrics_port: ",
    ]
    assert len(complaints) == len(begins)
    assert all(any(one.startswith(begin) for one in complaints) for begin in begins), complaints
    other = offsetwatch("findings", cwd=tmp_path, **wrong)
    assert other.returncode == 2
    assert other.stderr.splitlines() == [f"offsetwatch: {one}" for one in complaints]


RECEIVERS = """
[alerts.webhook]
urls = ["http://127.0.0.1:1/"]
secret = { env = "HOOK" }
[alerts.chat]
targets = [{ file = "nowhere" }]
"""


@pytest.mark.parametrize("plain", [True, False])
def test_a_secret_that_stands_in_the_file_is_a_warning(plain: bool, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    password = '"hunter2"' if plain else '{ file = "password" }'
    settings = f'security.protocol = "SASL_PLAINTEXT"\nsasl.mechanism = "PLAIN"\nsasl.password = {password}'
    (tmp_path / "offsetwatch.toml").write_text(f'[cluster.security]\nsasl.username = "me"\n{settings}')
    with silent_address() as nobody:
        done = offsetwatch("doctor", "--json", cwd=tmp_path, OFFSETWATCH_CLUSTER__BOOTSTRAP=nobody)
    told = [one for one in map(json.loads, done.stdout.splitlines()) if one["about"] == "secrets"]
    warning = "offsetwatch.toml: cluster.security.sasl.password stands there as it is: give"
    assert [(one["state"], one["detail"].startswith(warning)) for one in told] == [("warning", True)] * plain
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["doctor", "monitor"])
def test_receivers_whose_secrets_cannot_be_read(command: str, tmp_path: Path) -> None:
    """Nobody would notice before the first incident."""
    (tmp_path / "offsetwatch.toml").write_text(RECEIVERS)
    unset = "alerts.webhook.secret: the environment variable HOOK is not set"
    away = "alerts.chat.targets: nowhere cannot be read: No such file or directory"
    with silent_address() as nobody:
        if command == "doctor":
            done = offsetwatch("doctor", "--json", cwd=tmp_path, OFFSETWATCH_CLUSTER__BOOTSTRAP=nobody)
            told = [one for one in map(json.loads, done.stdout.splitlines()) if one["about"] == "receivers"]
            assert [(one["state"], one["detail"]) for one in told] == [("bad", unset), ("bad", away)]
            return
    done = offsetwatch("monitor", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"offsetwatch: {unset}")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            '[alerts.alertmanager]\nurls = ["https://a"]\nca = "/no/ca"',
            "alerts.alertmanager: /no/ca: No such file or directory",
        ),
        ('[alerts.webhook]\nurls = ["https://a"]\nca = "/no/ca"', "alerts.webhook: /no/ca: No such file or directory"),
        (
            '[alerts.chat]\ntargets = [{ env = "TARGET" }]',
            "alerts.chat.targets: what TARGET holds is no address that Apprise knows",
        ),
    ],
)
@APPRISE
def test_receivers_that_could_never_be_told(monkeypatch: pytest.MonkeyPatch, told: str, said: str) -> None:
    pytest.importorskip("apprise")
    monkeypatch.setenv("TARGET", "slak://hunter2")
    config = Config.model_validate_json(json.dumps(tomllib.loads(told)))
    assert [(one.state, one.detail) for one in doctor.receivers(config)] == [("bad", said)]
    with pytest.raises(SendFailed, match=re.escape(said)):
        receivers(config.alerts)


@APPRISE
def test_receivers_that_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("apprise")
    monkeypatch.setenv("TARGET", "json://localhost/a")
    told = '[alerts.chat]\ntargets = [{ env = "TARGET" }]\n[alerts.webhook]\nurls = ["http://a"]\nca = "/no/ca"'
    (one,) = doctor.receivers(Config.model_validate_json(json.dumps(tomllib.loads(told))))
    assert (one.state, one.detail) == ("ok", "1 webhook, 1 chat")


@pytest.mark.parametrize(
    ("told", "state", "said"),
    [
        ("", "ok", "at port 9477"),
        (
            '[status]\ntoken = { env = "SHORT" }',
            "bad",
            "status.token: it has 5 characters, and needs 16 at least",
        ),
        (
            '[status]\ncertificate = "/no/c"\nkey = "/no/k"',
            "bad",
            "status.certificate, status.key: /no/c, /no/k: No such file or directory",
        ),
        (
            "[alerts]\nmetrics_port = 9478",
            "bad",
            "alerts.metrics_port and alerts.probes_port are both 9478: each has one of its own",
        ),
        ("[alerts]\nmetrics_port = 0\nprobes_port = 0", "ok", "at port 0"),
    ],
)
def test_a_page_that_could_not_be_served(monkeypatch: pytest.MonkeyPatch, told: str, state: str, said: str) -> None:
    monkeypatch.setenv("SHORT", "12345")
    one = doctor.page(Config.model_validate_json(json.dumps(tomllib.loads(told))))
    assert (one.about, one.state, one.detail) == ("status page", state, said)


@pytest.mark.kafka
def test_a_real_cluster(kafka: LocalKafka, tmp_path: Path) -> None:
    asked = {"OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap, "OFFSETWATCH_PROBES__TOPICS__PREFIX": "doctor"}
    done = offsetwatch("doctor", cwd=tmp_path, COLUMNS="150", **asked)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {" ".join(line.split()[:2]): line for line in done.stdout.splitlines()[1:]}
    assert kafka.bootstrap in lines["ok cluster"]
    assert "will be created" in lines["ok topic"]
    assert "acks=all; enable.idempotence=true" in lines["ok producer"]
    assert "bad" not in {name.split()[0] for name in lines}


def test_a_dead_port(tmp_path: Path) -> None:
    asked = {"OFFSETWATCH_CLUSTER__BOOTSTRAP": "127.0.0.1:1", "OFFSETWATCH_CLUSTER__REACHABLE_WITHIN": "1"}
    done = offsetwatch("doctor", cwd=tmp_path, COLUMNS="250", **asked)
    assert done.returncode == 1
    (bad,) = [line for line in done.stdout.splitlines() if line.startswith("bad")]
    assert "OFFSETWATCH_CLUSTER__BOOTSTRAP: cluster.bootstrap: no broker answers at 127.0.0.1:1 within 1 s: " in bad
    assert "Connection refused" in bad
    assert done.stderr == ""


@pytest.mark.kafka
def test_each_of_several_clusters_is_asked_and_two_names_of_one_are_bad(kafka: LocalKafka, tmp_path: Path) -> None:
    clusters = {"orders-eu": kafka.bootstrap, "same": kafka.bootstrap, "nowhere": "127.0.0.1:1"}
    text = "".join(f"[clusters.{n}]\nbootstrap = '{b}'\nreachable_within = 20\n" for n, b in clusters.items())
    (tmp_path / "offsetwatch.toml").write_text(text)
    done = offsetwatch("doctor", "--json", cwd=tmp_path, OFFSETWATCH_CLUSTERS__NOWHERE__REACHABLE_WITHIN="1")
    assert done.returncode == 1, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    about = [(one["cluster"], one["about"], one["state"]) for one in told if "cluster" in one]
    assert [one for one in about if one[1] == "cluster"] == [
        ("orders-eu", "cluster", "ok"),
        ("same", "cluster", "ok"),
        ("same", "cluster", "bad"),
        ("nowhere", "cluster", "bad"),
    ]
    (same,) = [one["detail"] for one in told if one.get("cluster") == "same" and one["state"] == "bad"]
    assert same == "it is the same cluster as orders-eu: only one of them can be watched"
    assert {one[0] for one in about if one[1] == "producer settings"} == {"orders-eu", "same"}


def test_the_table_has_a_heading_for_each_cluster() -> None:
    shown = doctor.table(
        [
            Answer("java", "ok", "17"),
            Answer("cluster", "ok", "x", "a"),
            Answer("connection", "ok", "y", "a"),
            Answer("cluster", "bad", "z", "b"),
        ]
    )
    assert [str(cell) for cell in shown.columns[1].cells] == ["java", "a", "cluster", "connection", "b", "cluster"]
