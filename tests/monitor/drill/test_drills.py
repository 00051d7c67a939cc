"""A handful of real drills on real brokers, as `offsetwatch drill run` runs them, and the command itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.drill.definition.drill import Drill, found
from monitor.drill.definition.play import Play, Watched
from monitor.drill.definition.stage import Stage
from monitor.drill.errors import DrillStopped
from monitor.drill.registry import chosen
from monitor.drill.running.session import Session
from tests.monitor.commands import offsetwatch

pytestmark = pytest.mark.kafka

SHORT = (
    "idempotent-duplicate",
    *(
        pytest.param(name, marks=pytest.mark.drills)
        for name in ("vanished-tail", "swallowed-commit", "indefinite-not-leader/idempotent", "phantom-record")
    ),
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    said: list[str] = []
    session = Session(tmp_path_factory.mktemp("drills"), say=said.append, stop=threading.Event())
    yield session
    session.close()


@pytest.mark.parametrize("name", SHORT)
def test_a_drill_passes(session: Session, name: str) -> None:
    (drill,) = chosen([name])
    result = session.run(drill)
    assert result.verdict.passed, f"{result.verdict}: {[one.finding.message for one in result.found[:5]]}"
    assert result.history is None
    if drill.must:
        assert result.verdict.first is not None and result.verdict.first < 30
        assert result.acts


EXPECTANT = Drill(
    name="baseline",
    what="Nothing is done, and something is to be found.",
    seen_in="a test",
    must=(found("lost-write"),),
    limit=1.0,
    play=lambda: Watched("nothing is done"),
)


def test_a_drill_that_finds_nothing_fails_and_keeps_its_history(session: Session) -> None:
    result = session.run(EXPECTANT)
    assert str(result.verdict) == "failed: missed lost-write"
    assert result.history is not None and (result.history / "tables" / "history" / "_delta_log").is_dir()
    assert "name='drill-baseline" in (result.history / "brokers" / "1.log").read_text()


class Unable(Play):
    def act(self, stage: Stage) -> None:
        stage.wait(lambda: False, 0.2, "that pigs fly")


def test_a_drill_that_cannot_be_performed_says_why(session: Session) -> None:
    result = session.run(replace(EXPECTANT, play=Unable))
    assert str(result.verdict) == "not performed: that pigs fly did not happen within 0 s"


def test_a_stop_ends_the_drill_and_everything_of_it(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    session = Session(tmp_path, say=lambda line: None, stop=stop)
    try:
        with pytest.raises(DrillStopped):
            session.run(EXPECTANT)
    finally:
        session.close()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"drill-checker", "lying-proxy", "committer"}


def test_the_command_reports(tmp_path: Path) -> None:
    done = offsetwatch("drill", "run", "corrupted-record", "--report", "report", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "recall 1 of 1, 0 false alarms" in done.stdout
    told = json.loads((tmp_path / "report" / "drills.json").read_bytes())
    assert [one["verdict"] for one in told["drills"]] == ["passed"]
    assert (tmp_path / "report" / "drills.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["drill", "run", "no-such-drill"], "there is no drill no-such-drill"),
        (["drill", "run"], "name the drills, or say --all"),
        (["drill", "endure", "--minutes", "1", "--excuse", "hope"], "there is no published defect hope"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = offsetwatch(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_list_names_every_drill(tmp_path: Path) -> None:
    done = offsetwatch("drill", "list", "--json", cwd=tmp_path)
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert {"baseline", "broker-crash", "phantom-record"} <= {one["drill"] for one in listed}
    assert all(one["what_happens"] and one["seen_in"] for one in listed)
