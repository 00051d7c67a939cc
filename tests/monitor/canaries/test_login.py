"""A real broker that wants TLS and a login: probes come in, secrets are read anew, no secret is written anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from monitor.config.config import Config, load
from monitor.process.reach import connection, reach
from probes.kafka.client import (
    Connection,
    Transactional,
    admin_settings,
    consumer_settings,
    open_admin,
    open_consumer,
    open_producer,
)
from probes.kafka.client import producer_settings as producing
from probes.workloads.observer import Observer
from tests.monitor.secured import LIMIT_S, PASSWORD, TOKEN_HOOK, USER, Secured, change_password
from tests.probes.conftest import Stage

CONFIG = """
data = "data"
[cluster]
bootstrap = "{broker.bootstrap}"
{more}
[cluster.security]
security.protocol = "SASL_SSL"
ssl.ca.location = "{broker.certificate}"
{login}
[probes.topics]
replication = 1
min_in_sync = 1
partitions = 2
"""
SCRAM = f'''
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "{USER}"
sasl.password = {{ file = "password" }}
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return tmp_path


def configured(broker: Secured, login: str, *, more: str = "") -> Config:
    Path("offsetwatch.toml").write_text(CONFIG.format(broker=broker, login=login, more=more))
    return load(None, {})


def offsetwatch(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from monitor.cli import main; main()", *words]
    said = Path(f"said-{words[-1]}").open("wb")  # noqa: SIM115 - the child's
    with said:
        return subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": PROJECT}
        )


PROJECT = str(Path(__file__).resolve().parents[3])


def written(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "password":
            yield file, file.read_bytes()


def test_nothing_that_is_said_or_written_holds_the_secret(secured: Secured, folder: Path) -> None:
    configured(secured, SCRAM, more="reachable_within = 60.0")
    running = offsetwatch("--debug", "probe", "run")
    try:
        deadline = time.monotonic() + 400
        while not list(folder.glob("data/tables/history/date=*/**/*.parquet")):
            assert running.poll() is None and time.monotonic() < deadline, Path("said-run").read_text()
            time.sleep(0.5)
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(300) == 0
    assert offsetwatch("--debug", "doctor").wait(300) == 0, Path("said-doctor").read_text()
    assert offsetwatch("--debug", "probe", "drain").wait(300) == 0, Path("said-drain").read_text()
    everything = list(written(folder))
    assert {"said-run", "said-doctor", "said-drain", "probes.log"} <= {file.name for file, _ in everything}
    assert any(b"SASL_SSL" in held for _, held in everything), "the settings are logged, without the secret"
    assert [file for file, held in everything if PASSWORD.encode() in held] == []


def test_a_secret_that_was_changed_is_used_by_the_next_client(secured: Secured, folder: Path) -> None:
    config = configured(secured, SCRAM)
    to = connection(config)
    assert open_admin(admin_settings(to, client="before")).list_topics(timeout=LIMIT_S).brokers
    change_password(secured.plain, "changed-hush")
    try:
        (folder / "password").write_text("changed-hush")
        assert open_admin(admin_settings(to, client="after")).list_topics(timeout=LIMIT_S).brokers
    finally:
        change_password(secured.plain, PASSWORD)


def test_who_only_asks_hears_that_its_login_is_refused(secured: Secured, folder: Path) -> None:
    one = Stage(secured.plain, folder / "journal")
    one.connection = Connection(secured.bootstrap, secured.security(sasl__password="another"))
    observer = one.put(Observer, "observer")
    deadline = time.monotonic() + LIMIT_S
    while observer.login_refused is None:
        observer.turn()
        assert time.monotonic() < deadline
    assert observer.login_refused.code == "_AUTHENTICATION"
    one.end()


def test_a_function_of_the_users_gives_the_token_to_every_client(secured: Secured, folder: Path) -> None:
    login = f'sasl.mechanism = "OAUTHBEARER"\nsasl.oauthbearer.config = "{USER}"'
    config = configured(secured, login, more=f'token = "{TOKEN_HOOK}"')
    reached = reach(config)
    to = connection(config)
    reached.admin.create_topics([NewTopic("tokens", 1, 1)])["tokens"].result(LIMIT_S)
    failed: list[Exception] = []
    producer = open_producer(producing(to, client="p", transactional=Transactional("t", 60.0)), failed.append)
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce("tokens", b"here", partition=0)
    producer.commit_transaction(LIMIT_S)
    consumer = open_consumer(consumer_settings(to, client="c", group="tokens"), failed.append)
    consumer.assign([TopicPartition("tokens", 0, 0)])
    message = consumer.poll(LIMIT_S)
    consumer.close()
    assert message is not None and message.value() == b"here"
    assert failed == []


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("no.such.module:token", "cluster.security: the function no.such.module:token for tokens cannot be had"),
        ("no function", "cluster.token: string should match pattern"),
    ],
)
def test_a_function_that_is_not_there_is_named(folder: Path, token: str, said: str) -> None:
    broker = Secured("", "127.0.0.1:1", Path("none.pem"))
    with pytest.raises(Exception, match=said):
        connection(configured(broker, SCRAM, more=f'token = "{token}"'))
