"""Drills on another implementation of Kafka's protocol, as `offsetwatch drill run NAME --against CONFIG` runs them.

What is found of a lie does not depend on whose broker the proxy lies about. Drills that do something to brokers want
Kafka's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.drill.registry import chosen
from monitor.drill.running.session import Options, Session, Staging
from probes.kafka.client import Connection
from tests.monitor.commands import offsetwatch
from tests.probes import kfake

pytestmark = [pytest.mark.kafka, pytest.mark.drills]

DRILLS = (
    "retry-without-idempotence",
    "idempotent-duplicate",
    "wrong-ack-offset",
    "relocated-record",
    "vanished-tail",
    "indefinite-not-leader/timed-out",
    "exposed-abort",
    "rewind-in-transaction/told",
    "commit-says-invalid-state",
    "lost-in-transaction",
    "delayed-end-txn/4.3.1",
    "zombie/unfenced",
    "stale-register/applied-twice",
    "double-transform",
    "dropped-commit/with-rejoin",
    "stale-end",
    "phantom-record",
    "rewritten-timestamps/key",
)
"""Of each kind of lie some: about acknowledgements, the log, fetches, transactions, groups, listed offsets, a record's
bytes; and two in which nothing must be found."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kfake.served(kfake.built(tmp_path_factory.mktemp("kfake"))) as address:
        yield address


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_passes(name: str, bootstrap: str, tmp_path: Path) -> None:
    (drill,) = chosen([name])
    options = Options(against=Staging(Connection(bootstrap), brokers=1))
    session = Session(tmp_path, say=lambda line: None, stop=threading.Event(), options=options)
    result = session.run(drill)
    assert result.verdict.passed, f"{result.verdict}: {[one.finding.message for one in result.found[:5]]}"
    assert result.acts or not drill.must


def test_the_command_takes_its_address_from_a_configuration(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "kfake.toml").write_text(f'[cluster]\nbootstrap = "{bootstrap}"\n')
    done = offsetwatch(
        "drill", "run", "corrupted-record", "--against", "kfake.toml", "--report", "report", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = json.loads((tmp_path / "report" / "drills.json").read_bytes())["drills"]
    assert (told["drill"], told["verdict"]) == ("corrupted-record", "passed")
