"""A probe log that is kept is judged like one that grows: the same verdicts, exit codes and forms as of a file."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from alerts.incidents.judged import kind_of
from monitor.commands.check import Options, run
from monitor.history_files.probe_log import judge, located, verdict
from probes.log.commits.history import History as Table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import APPENDS_MISSING, Mark, Slice
from streaming_jobs.history.replay import Replay
from tests.monitor.commands import offsetwatch
from tests.rules.histories import History, Store, number
from tests.rules.model import FAULTS, SETTLE, World, turns
from tests.streaming_jobs.probe_log import commit


def rows_of(fault: str | None, seed: int = 5) -> list[Slice]:
    """A model's history, with one broken promise in its middle."""
    world = World().run(turns(seed, 60))
    if fault is not None:
        FAULTS[fault](world, random.Random(seed))
    world.run(turns(seed + 1, 60)).settle(SETTLE)
    return list(world.journal.rows)


def kept(folder: Path, rows: list[Slice], commits: int = 7) -> Path:
    """A data folder with these rows, as a monitor leaves it."""
    table = folder / "tables" / "history"
    step = max(1, len(rows) // commits)
    for begin in range(0, len(rows), step):
        commit(table, rows[begin : begin + step])
    return folder


@pytest.mark.long
@pytest.mark.parametrize("fault", ["duplicate", "lost-write", "G1a", "torn-transaction committed", "corrupted-record"])
def test_a_kept_log_has_the_verdict_of_a_live_one(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(fault)
    live = Store()
    live.feed(rows)
    expected = {f.id for f in live.findings if f.event == "raised"}
    data = kept(tmp_path / "data", rows)
    said: list[str] = []
    for table in (data / "tables" / "history", located(data), located(data / "tables")):
        assert table is not None
        judged = judge(table, Objectives(), cycles=False, say=said.append)
        assert {f.id for f in judged.findings if f.event == "raised"} >= expected and judged.rows == len(rows)
    assert said == [], "nothing was aged out"
    told = verdict(judged.findings)
    assert not told.valid
    assert run([data], Options(json_output=True)) == 1
    (line,) = capsys.readouterr().out.splitlines()
    shown = json.loads(line)
    assert (shown["file"], shown["valid"]) == (str(data), False)
    assert {name: len(one) for name, one in shown["anomalies"].items()} == {
        name: len(one) for name, one in told.anomalies.items()
    }
    some = next(iter(shown["anomalies"].values()))[0]
    assert some["where"].rpartition("/")[2].isdigit() and some["message"]


def test_a_healthy_log_is_valid_whatever_conditions_have_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(None)
    data = kept(tmp_path / "data", rows)
    assert run([data]) == 0
    assert capsys.readouterr().out.startswith(f"{data}: valid ({len(rows):,} rows)\n")


@pytest.mark.parametrize("read", [True, False])
def test_what_was_never_polled_until_the_log_ended_makes_it_not_valid(read: bool, tmp_path: Path) -> None:
    h = History()
    h.row("r", "assign", assigned=True, mode="assign", isolation="read_committed")
    h.send("w", 0, 3, at=0)
    for second in range(60):
        h.observe(end=3)
        h.mark(1.0)
        if second == 30 and read:
            h.poll("r", [("w", 0, 3, 0)], position_before=0, position_after=3)
    judged = judge(located(kept(tmp_path, h.rows)) or tmp_path, Objectives())
    told = verdict(judged.findings)
    assert any(f.anomaly == "unseen" for f in judged.findings)
    assert (list(told.anomalies) == ["unseen"], told.valid) == (not read, read)


def test_the_committers_own_rows_are_not_taken_for_aged_out(tmp_path: Path) -> None:
    """A committer vouches for itself once it ends, and has no rows but marks; of `w` there is no row."""
    table = tmp_path / "history"
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    rows = [
        Slice(
            cluster="c",
            topic_id="t",
            topic="topic",
            partition=0,
            run="run",
            process=number("committer"),
            op=i,
            slice=i,
            f="mark",
            type="ok",
            invoked=now + timedelta(seconds=i),
            completed=now + timedelta(seconds=i),
            marks=[Mark(number(who), 5, now + timedelta(seconds=i)) for who in ("w", "committer")[: 1 + i // 4]],
        )
        for i in range(5)
    ]
    commit(table, rows)
    said: list[str] = []
    judge(table, Objectives(), say=said.append)
    assert said == ["the first rows of 1 partition have been aged out: they are judged from where rows are left"]
    (edge,) = Replay(table).edges()
    assert list(edge.gone) == [number("w")]


@pytest.mark.parametrize("hole", [True, False])
def test_rows_that_are_missing_in_the_middle_are_not_aged_out(hole: bool, tmp_path: Path) -> None:
    """A reader began in a hole of the log, which the marks behind it tell. What was lost is judged, and not passed over
    for ten minutes as where the log begins."""
    h = History()
    h.row("r", "assign", assigned=True, mode="assign", isolation="read_committed")

    def go_on(first: int, seconds: int, *, lose: int = -1) -> None:
        for second in range(first, first + seconds):
            h.send("w", second, at=second)
            if second != lose:
                h.poll("r", [("w", second, 1, second)])
            h.observe(end=second + 1)
            h.mark(1.0)

    go_on(0, 90, lose=20)
    hidden = [h.row("q", "assign", assigned=True, mode="assign", isolation="read_committed"), h.poll("q", [])]
    go_on(90, 30)
    h.poll("q", [])
    now = h.at(h.time)
    marks = [Mark(number(process), h._slices[number(process), 0], now) for process in h.processes]
    h.row("committer", "mark", error=APPENDS_MISSING, marks=marks, invoked=now, completed=now)
    go_on(120, 60, lose=140)
    rows = [row for row in h.rows if not hole or row not in hidden]
    said: list[str] = []
    judged = judge(located(kept(tmp_path, rows)) or tmp_path, Objectives(), say=said.append)
    assert [f.subject[1] for f in judged.findings if f.anomaly == "lost-write"] == [20, 140]
    assert said == []


def test_of_a_log_that_takes_long_it_is_said_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.history_files.probe_log.SAY_EVERY", -1.0)
    monkeypatch.setattr(Replay.pieces, "__defaults__", (100,))
    h = History()
    h.assign("r")
    for i in range(1000):
        h.send("w", i, at=i)
    said: list[str] = []
    rows = judge(located(kept(tmp_path, h.rows)) or tmp_path, Objectives(), cycles=False, say=said.append).rows
    assert said[-1] == f"{rows:,} of {rows:,} rows are judged" and len(said) > 1


def test_the_findings_of_a_kept_log_are_shown_like_those_of_the_tables(tmp_path: Path) -> None:
    data = kept(tmp_path / "data", rows_of("duplicate"))
    done = offsetwatch("findings", "--history", str(data), "--json", "--kind", "violation", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert "duplicate" in {one["anomaly"] for one in shown}
    assert {one["state"] for one in shown} == {"raised"}
    told = judge(data / "tables" / "history", Objectives())
    assert {one["id"] for one in shown} == {f.id for f in told.findings if kind_of(f.anomaly) == "violation"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"], "nothing is left beside it"
    screen = offsetwatch("findings", "--history", str(data), cwd=tmp_path, COLUMNS="300")
    assert (screen.returncode, screen.stderr) == (0, "")
    first = screen.stdout.splitlines()[0]
    assert "open: duplicate in " in first and "everything else healthy, checked through " in first, "by log time"
    none = offsetwatch("findings", "--history", "elsewhere", cwd=tmp_path)
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr == ("offsetwatch: elsewhere: there is no probe log: no Delta table, nor one in tables/history\n")


def test_a_report_is_made_of_a_kept_log(tmp_path: Path) -> None:
    data = kept(tmp_path / "data", rows_of("duplicate"))
    done = offsetwatch("report", "--history", str(data), "--output", "report.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "duplicate" in (tmp_path / "report.html").read_text()


def test_a_folder_that_holds_no_probe_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = offsetwatch("check", "empty", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "offsetwatch: empty: is a folder without a probe log: no Delta table, nor one in tables/history\n"
    )


def test_a_log_of_another_format_is_one_line(tmp_path: Path) -> None:
    table = kept(tmp_path / "data", rows_of(None)[:20]) / "tables" / "history"
    DeltaTable(str(table)).alter.set_table_properties({"offsetwatch.format": "2"}, raise_if_not_exists=False)
    done = offsetwatch("check", "data", "--json", cwd=tmp_path)
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert told["valid"] is None
    assert told["error"] == (
        "The probe log in data/tables/history has format 2, and this version of Offsetwatch reads format 1: use the "
        "version that wrote it"
    )
    assert done.stderr == f"offsetwatch: data: {told['error']}\n"


def test_a_new_table_says_its_format(tmp_path: Path) -> None:
    history = Table(str(tmp_path / "history"))
    history.id()
    assert DeltaTable(history.uri).metadata().configuration["offsetwatch.format"] == "1"
