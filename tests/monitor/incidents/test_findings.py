"""`offsetwatch findings` over real Delta tables."""

from __future__ import annotations

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monitor.incidents.findings import Filter, place, read
from streaming_jobs.tables.delta_tables import open_table
from tests.monitor.commands import offsetwatch
from tests.monitor.postmortem.histories import row, write
from tests.monitor.rows import NOON, finding, record

DUPLICATE = finding("duplicate", (7, 1), at=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    record(
        folder,
        DUPLICATE,
        finding("G1a", (7, 2), at=1, topic="u", partition=0, implied_by=DUPLICATE.id),
        finding("poll-skip", (1, 2), at=2, context={"mode": "subscribe"}),
        finding("unseen", (), "opened", at=3),
        finding("suspected", (), "opened", at=4),
    )
    record(folder, finding("suspected", (), "closed", at=6), finding("suspected", (), "opened", at=7))
    record(folder, finding("foreign-record", (9,), at=0), finding("unseen", (), "closed", at=8))
    return folder


def test_what_hides_findings_by_mistake_is_refused(data: Path, tmp_path: Path) -> None:
    for words, said in (
        (["--topic", "nosuch"], "--topic: nothing is known of a topic nosuch; known are: t, u"),
        (["--partition", "-5"], "--partition"),
        (
            ["--since", "2026-02-03T07:00", "--until", "2026-02-03T06:00"],
            "--until 2026-02-03T06:00 is before --since 2026",
        ),
    ):
        done = offsetwatch("findings", "--data", str(data), *words, cwd=tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_topic_that_is_only_in_the_log_is_known(tmp_path: Path) -> None:
    record(tmp_path, DUPLICATE)
    write(tmp_path, row("send", 1, 0), row("send", 1, 0, topic="new"))
    where = ("findings", "--data", str(tmp_path))
    done = offsetwatch(*where, "--topic", "new", "--topic", "t", cwd=tmp_path)
    assert done.returncode == 0 and " duplicate t/3" in done.stdout, done.stderr
    done = offsetwatch(*where, "--topic", "new", cwd=tmp_path)
    assert done.returncode == 0 and " duplicate t/3" not in done.stdout, done.stderr
    done = offsetwatch(*where, "--topic", "new", "--topic", "newer", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "offsetwatch: --topic: nothing is known of a topic newer; known are: new, t\n",
    )


def test_a_folder_without_its_findings_is_not_healthy(tmp_path: Path) -> None:
    record(tmp_path, DUPLICATE)
    open_table(tmp_path / "tables", "partition_state")
    shutil.rmtree(tmp_path / "tables" / "findings")
    done = offsetwatch("findings", "--data", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "tables/findings is missing: nobody can say what was found" in done.stderr


def test_a_row_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    record(tmp_path, DUPLICATE)
    table = open_table(tmp_path / "tables", "findings")
    rows = table.read()
    odd = rows.set_column(rows.schema.get_field_index("evidence"), "evidence", pa.array(["no JSON"]))
    odd = odd.set_column(rows.schema.get_field_index("id"), "id", pa.array(["00000000000000ff"]))
    table.write(odd.cast(rows.schema), mode="append")
    done = offsetwatch("findings", "--data", str(tmp_path), "--all", cwd=tmp_path, COLUMNS="160")
    assert done.returncode == 0, done.stderr
    assert "writer=7  seq=1  offsets=[4, 9]" in done.stdout
    assert "unreadable=no JSON" in done.stdout


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    record(tmp_path, DUPLICATE)
    for file in (tmp_path / "tables" / "findings").rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])
    done = offsetwatch("findings", "--data", str(tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "The table findings in" in done.stderr


def test_a_commit_that_is_empty_is_named(tmp_path: Path) -> None:
    for _ in range(2):
        record(tmp_path, DUPLICATE)
    emptied = max((tmp_path / "tables" / "findings" / "_delta_log").glob("*.json"))
    emptied.write_bytes(b"")
    done = offsetwatch("findings", "--data", str(tmp_path), cwd=tmp_path)
    said = "is empty: what was told there is not listed, and is looked for when a monitor starts"
    assert (done.returncode, done.stderr) == (0, f"offsetwatch: {emptied} {said}\n")


def test_a_log_of_a_table_that_is_cut_short_is_not_one_that_could_not_be_created(tmp_path: Path) -> None:
    record(tmp_path, DUPLICATE)
    for entry in (tmp_path / "tables" / "findings" / "_delta_log").glob("*.json"):
        entry.write_text(entry.read_text()[:20])
    done = offsetwatch("findings", "--data", str(tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert re.search(r"The table findings in \S+ could not be opened: ", done.stderr)


def test_the_screen_opens_with_the_verdict(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), cwd=tmp_path, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:4] == [
        "Nothing has been checked yet: is the monitor running? 1 incident open: suspected",
        "in t/3, warning, since 2024-10-04 12:00:07.",
        "",
        "Open (1)",
    ]
    over = done.stdout.partition("Over (2)")[2].splitlines()[1:3]
    assert [" ".join(line.split()[5:]) for line in over] == [
        "unseen t/3 a unseen happened",
        "duplicate t/3 a duplicate happened",
    ]
    assert "Only counted: 1 foreign-record, 1 poll-skip (allowed); --all lists them" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_each_finding_is_listed_when_asked_for(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), "--all", cwd=tmp_path, COLUMNS="160")
    rows = [line for line in done.stdout.splitlines() if " 2024-10-04 " in line and not line.startswith("Nothing")]
    assert [row.split()[4] for row in rows] == [
        "unseen",
        "suspected",
        "duplicate",
        "poll-skip",
        "G1a",
        "foreign-record",
    ]
    assert f"{DUPLICATE.id} 2024-10-04 12:00:05 critical duplicate t/3\n  a duplicate happened\n" in done.stdout
    assert "writer=7  seq=1  offsets=[4, 9]" in done.stdout
    assert f"(explained by {DUPLICATE.id})" in done.stdout
    assert "suspected open ×2 t/3" in done.stdout


def test_json_lines(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), "--json", "--anomaly", "duplicate", cwd=tmp_path)
    (shown,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert shown == {
        "id": DUPLICATE.id,
        "anomaly": "duplicate",
        "severity": "critical",
        "cluster": "c",
        "cluster_name": None,
        "topic_id": "t-id",
        "topic": "t",
        "partition": 3,
        "message": "a duplicate happened",
        "evidence": {"writer": 7, "seq": 1, "offsets": [4, 9]},
        "context": {},
        "at": "2024-10-04T12:00:05Z",
        "decidable": "2024-10-04T12:00:05Z",
        "implied_by": None,
        "batch": None,
        "recorded": "2024-10-04T12:00:05.500000Z",
        "state": "raised",
        "first_at": "2024-10-04T12:00:05Z",
        "opened": 1,
        "incident": DUPLICATE.id,
    }


FILTERS: list[tuple[Filter, set[str]]] = [
    (Filter(severities=["critical"]), {"duplicate", "G1a", "unseen"}),
    (Filter(severities=["allowed", "info"]), {"poll-skip", "foreign-record"}),
    (Filter(kinds=["condition"]), {"unseen", "suspected"}),
    (Filter(kinds=["violation"], severities=["allowed"]), {"poll-skip"}),
    (Filter(states=["open"]), {"suspected"}),
    (Filter(topics=["u"]), {"G1a"}),
    (Filter(partition=0), {"G1a"}),
    (Filter(since=NOON + timedelta(seconds=5)), {"duplicate", "suspected", "unseen"}),
    (Filter(anomalies=["G1a", "duplicate"], topics=["t"]), {"duplicate"}),
    (Filter(topics=["no-such"]), set()),
]


@pytest.mark.parametrize(("wanted", "shown"), FILTERS)
def test_filters(data: Path, wanted: Filter, shown: set[str]) -> None:
    assert {row["anomaly"] for row in read(data / "tables", wanted)} == shown


def test_the_options_are_the_filters(data: Path, tmp_path: Path) -> None:
    options = [
        "--severity",
        "critical",
        "--kind",
        "violation",
        "--state",
        "raised",
        "--topic",
        "t",
        "--partition",
        "3",
        "--since",
        "2024-10-04T12:00:05",
        "--json",
    ]
    done = offsetwatch("findings", "--data", str(data), *options, cwd=tmp_path)
    assert [json.loads(line)["anomaly"] for line in done.stdout.splitlines()] == ["duplicate"]


def test_a_long_list_is_cut_and_says_so(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), "--all", "--limit", "2", cwd=tmp_path, COLUMNS="160")
    assert "poll-skip" not in done.stdout
    assert "6 findings, the newest 2 are shown (--limit)" in done.stdout
    done = offsetwatch("findings", "--data", str(data), "--limit", "2", cwd=tmp_path)
    assert "Over (2, the first 1 are shown (--limit))" in done.stdout


def test_nothing_of_what_is_asked_for(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), "--anomaly", "zombie-write", cwd=tmp_path, COLUMNS="120")
    said = "Nothing has been checked yet: is the monitor running? No incident is open but 1 that was not asked for.\n"
    assert (done.returncode, done.stdout) == (0, said)


def test_names_that_hold_line_feeds_and_escapes_break_no_line(tmp_path: Path) -> None:
    name = "a\nopen, since never\x1b[2J\r"
    found = finding("duplicate", (7, 1), topic=name, message=f"value of {name} twice", evidence={"writer": 7})
    record(tmp_path, found)
    screens = [
        offsetwatch(*words, "--data", str(tmp_path), cwd=tmp_path, COLUMNS="80").stdout
        for words in (["explain", found.id], ["findings"], ["findings", "--all"], ["status"])
    ]
    for screen in screens:
        assert not set("\x1b\r") & set(screen)
        assert not any(line.startswith("open, since never") for line in screen.splitlines()), screen
    head, state, *_ = screens[0].splitlines()
    assert head.startswith("critical duplicate in a") and state.startswith("over, since 2024-10-04")


def test_a_time_that_is_none_is_one_line(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), "--since", "soon", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("offsetwatch: --since: 'soon' is no time: give 03:12, 2h")


def test_an_incident_is_explained_by_the_first_digits_of_its_id(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("explain", DUPLICATE.id[:6], "--data", str(data), cwd=tmp_path, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:5] == [
        "critical duplicate in t/3",
        "over, since 2024-10-04 12:00:01 UTC, lasted 4 s",
        "",
        "A duplicate happened. 2 findings so far. With it came 1 × G1a. The last of it",
        "was seen at 2024-10-04 12:00:05 UTC, 4 s after it began.",
    ]
    assert "duplicate: One value stands at two or more offsets of a partition." in done.stdout
    assert "docs/runbook.md#duplicate" in done.stdout
    assert "writer=7  seq=1  offsets=[4, 9]" in done.stdout
    counted = offsetwatch("explain", finding("foreign-record", (9,)).id, "--data", str(data), cwd=tmp_path)
    assert "only counted: it judges nothing" in counted.stdout
    for wrong, said in (("abc", "give at least 4 digits"), ("ffffffff", "no finding and no incident has the id")):
        refused = offsetwatch("explain", wrong, "--data", str(data), cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in refused.stderr


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ({"topic": "t", "partition": 3, "cluster": "c"}, "t/3"),
        ({"topic": "t", "partition": -1, "cluster": "c"}, "t"),
        ({"topic": "", "partition": -1, "cluster": "c"}, "c"),
        ({"topic": "", "partition": -1, "cluster": ""}, "all clusters"),
    ],
)
def test_where_a_finding_is(row: dict[str, Any], where: str) -> None:
    assert place(row) == where
