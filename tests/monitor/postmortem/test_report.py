"""`offsetwatch report`: what the page says of a history whose every row is known, and that it stands for itself."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from monitor.config.config import from_environment
from monitor.errors import UserError
from monitor.incidents.overview import Checked
from monitor.postmortem.database import Database
from monitor.postmortem.figures import figures, happenings
from monitor.postmortem.ready_queries import ready_query
from monitor.postmortem.report import Gathered, gather, html, sentences, stretch
from monitor.postmortem.report import charts as charts_of
from monitor.postmortem.report_command import _require_writable
from monitor.postmortem.report_command import write as written
from monitor.postmortem.stretch import Stretch
from rules.vocabulary.slices import Run, Slice
from streaming_jobs.tables.delta_tables import open_tables
from tests.monitor.commands import offsetwatch
from tests.monitor.postmortem.histories import (
    OBSERVER,
    OPERATIONS,
    READ,
    READER,
    SKIPPER,
    STARTS,
    WRITER,
    S,
    row,
    write,
)
from tests.monitor.postmortem.test_sql import sources
from tests.monitor.rows import NOON, finding, record
from tests.monitor.status.serving import state, states

LOST = finding(
    "lost-write",
    (WRITER, 9),
    at=20,
    message=f"value {WRITER}00/9 was acknowledged <b>at</b> 109 & lost; more",
    evidence={"writer": WRITER, "seq": 9, "offset": 109},
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    passed = row("poll", READER, 2, polled=[Run(WRITER, 0, 100, 9)], position_before=100, position_after=113, **READ)
    leader = [
        row("offsets", OBSERVER, at, settings={"led_by": which, "leader_epoch": "4", "in_sync": "1"})
        for at, which in ((2, "1"), (9, "3"), (11, "nobody"), (15, "3"), (38, "nobody"))
    ]
    leader += [
        row("offsets", OBSERVER, at, group="g", settings={"group_coordinator": which})
        for at, which in ((2, "1"), (3, "1"), (10, "nobody"), (11, "3"))
    ]
    silent = [
        row("offsets", OBSERVER, at, type="info", settings={"silent": "2", "leader": "2"}, partition=4)
        for at in (7, 8, 40)
    ]
    crash = row("close", SKIPPER, 6, type="info", error="_CRASHED")
    write(folder, *STARTS, *OPERATIONS[:2], passed, *OPERATIONS[3:6], *leader, *silent, crash)
    record(folder, LOST)
    (folder / "cycles").mkdir()
    return folder


@pytest.fixture(scope="module")
def gathered(data: Path) -> Gathered:
    return gather(sources(data), NOON - 5 * S, NOON + 55 * S, data / "cycles")


def test_two_sentences(gathered: Gathered) -> None:
    assert sentences(gathered) == (
        "Critical lost-write in t/3 since 2024-10-04 12:00:20 UTC: value 7151900/9 was acknowledged <b>at</b> 109 & "
        "lost.",
        "4 clients sent 13 records and were given 14; 1 of 2 writes did not end ok, and broker 2 did not answer for a "
        "while.",
    )
    healthy = replace(gathered, incidents=(), happenings=(), checked=Checked(gathered.end, gathered.end))
    assert sentences(healthy)[0] == "No promise was broken: there is no incident in this time."
    assert sentences(healthy)[1].endswith("and every broker answered.")


def test_a_broken_promise_comes_before_what_was_slow(tmp_path: Path) -> None:
    """A condition of the same severity that began earlier is no headline."""
    slow = finding("stuck-producer", (WRITER,), "opened", at=1, message="no send completes")
    write(tmp_path, *STARTS, *OPERATIONS)
    record(tmp_path, slow, LOST)
    told = gather(sources(tmp_path), NOON - 5 * S, NOON + 55 * S, tmp_path / "cycles").incidents
    assert [one.anomaly for one in told] == ["lost-write", "stuck-producer"]


def test_what_happened_when(gathered: Gathered) -> None:
    found = [(one.begin, one.end, one.kind, one.told) for one in sorted(gathered.happenings)]
    assert found == [
        (NOON + 6.1 * S, None, "client", "reader-2 was abandoned by the canary on purpose"),
        (NOON + 7 * S, NOON + 8 * S, "fault", "broker 2 did not answer for 1 s"),
        (NOON + 9.1 * S, None, "change", "t/3 led by broker 3, after broker 1"),
        (NOON + 10.1 * S, None, "change", "group g coordinated by nobody, after broker 1"),
        (NOON + 11.1 * S, None, "change", "group g coordinated by broker 3, after nobody"),
        (NOON + 11.1 * S, NOON + 15.1 * S, "fault", "t/3 had no leader for 4 s"),
        (NOON + 20 * S, NOON + 20 * S, "critical", "value 7151900/9 was acknowledged <b>at</b> 109 & lost; more"),
        (NOON + 38.1 * S, None, "fault", "t/3 had no leader from here on"),
        (NOON + 40 * S, NOON + 40 * S, "fault", "broker 2 did not answer for a moment"),
    ]


def test_each_spell_of_an_incident_is_told_in_its_own_words(tmp_path: Path) -> None:
    write(tmp_path, *STARTS, *OPERATIONS)
    for who, at in (("w", 1), ("v", 40)):
        for event, when in (("opened", at), ("closed", at + 5)):
            record(tmp_path, finding("stuck-producer", (who,), event, at=when, message=f"no send of {who} completes"))  # type: ignore[arg-type]
    told = gather(sources(tmp_path), NOON - 5 * S, NOON + 55 * S, tmp_path / "cycles").happenings
    assert [(one.begin, one.told) for one in told if one.kind == "critical"] == [
        (NOON + 1 * S, "no send of w completes"),
        (NOON + 40 * S, "no send of v completes"),
    ]


def test_figures(data: Path) -> None:
    with Database(sources(data, since=NOON - 5 * S, until=NOON + 55 * S)) as database:
        of = figures(database, NOON - 5 * S, NOON + 55 * S)
    with Database(sources(data, topics=["another"])) as database:
        assert figures(database, NOON, NOON + S).sent == 0
        assert happenings(database) == []
    assert (of.sent, of.polled, of.clients, of.operations, of.not_ok) == (13, 14, 4, 2, 1)
    (unseen,) = of.unseen
    assert max(value for _, value in unseen.points if value is not None) == 10
    assert unseen.points[-1][1] == 1, "value 9 was given to nobody"

    def points(series: Any) -> dict[str, list[float | None]]:
        return {one.name: [value for _, value in one.points] for one in series}

    assert points(of.availability) == {"send": [100], "txn": [0]}
    assert {one.name: [value for _, value in one.points] for one in of.lag} == {
        "reader-1": [2.0],
        "reader-2": [3.0, 4.0],
    }
    assert {one.name: [value for _, value in one.points] for one in of.latency} == {
        "send": [100],
        "txn": [100],
        "slowest of a hundred": [100],
    }


def test_more_records_than_can_be_followed_are_said(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.postmortem.figures.MOST_RECORDS", 5)
    with Database(sources(data)) as database:
        of = figures(database, NOON, NOON + 60 * S)
    assert (of.unseen, of.lag) == ((), ()) and "27 records are more than 5" in of.left_out[0]


def test_the_order_of_the_partition(gathered: Gathered) -> None:
    (told,) = gathered.told
    assert told.order is not None and told.place == "t/3"
    assert [(one.who, one.moved, one.came_from, one.low) for one in told.order.moves] == [
        ("reader-2", "skipped", 105, 108)
    ]
    assert {one.who for one in told.order.strokes if one.sends} == {"writer-1", "transactions-1"}


class Loads(HTMLParser):
    """What a page loads or leads to, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        self.ids += [value or "" for name, value in attrs if name == "id"]


def test_the_page_stands_for_itself(gathered: Gathered) -> None:
    page = html(gathered, NOON + 60 * S)
    loads = Loads()
    loads.feed(page)
    assert all(one.startswith(("#", "data:application/gzip;base64,")) for one in loads.found), loads.found
    assert not {"script", "link", "iframe", "object", "form"} & set(loads.tags)
    assert "url(" not in page and "@import" not in page
    assert len(loads.ids) == len(set(loads.ids))
    assert "<b>at</b>" not in page and "&lt;b&gt;at&lt;/b&gt; 109 &amp; lost" in page
    for shown in ("Critical lost-write in t/3", "it skipped", "broker 2 silent", "Unseen records", "gone past"):
        assert shown in page, shown


def test_the_raw_operations_are_inside(gathered: Gathered, tmp_path: Path) -> None:
    page = html(gathered, NOON)
    (packed,) = re.findall(r'href="data:application/gzip;base64,([^"]+)" download="operations.jsonl.gz"', page)
    events = [json.loads(line) for line in gzip.decompress(base64.b64decode(packed)).splitlines()]
    assert [one["f"] for one in events if one["type"] != "invoke"][:3] == ["legend", "send", "txn"]
    none = html(replace(gathered, raw=None), NOON)
    assert "offsetwatch export operations.jsonl.gz --since 2024-10-04T11:59:55 --until 2024-10-04T12:00:55" in none


def test_a_picture_of_a_cycle(data: Path, gathered: Gathered) -> None:
    (data / "cycles" / f"{LOST.id}.svg").write_text("<svg><script>alert(1)</script></svg>")
    drawn = gather(sources(data), NOON - 5 * S, NOON + 55 * S, data / "cycles")
    (data / "cycles" / f"{LOST.id}.svg").unlink()
    page = html(drawn, NOON)
    assert '<img class="cycle" src="data:image/svg+xml;base64,' in page and "<script" not in page
    assert '<img class="cycle"' not in html(gathered, NOON)


def test_which_time_is_reported(data: Path, tmp_path: Path) -> None:
    of = sources(data)
    begin, end = stretch(of)
    assert (begin, end) == (NOON - 59.9 * S, NOON + 40.1 * S), "around the incident, as far as there are rows"
    assert stretch(replace(of, since=NOON)) == (NOON, of.now)
    assert stretch(replace(of, since=NOON, until=NOON + S)) == (NOON, NOON + S)
    write(tmp_path, *OPERATIONS)
    record(tmp_path)
    assert stretch(sources(tmp_path, now=NOON + 60 * S)) == (NOON + 0.1 * S, NOON + 6.1 * S)


def test_nothing_at_all(tmp_path: Path) -> None:
    write(tmp_path, *STARTS)
    record(tmp_path)
    page = html(gather(sources(tmp_path), NOON, NOON + 60 * S, tmp_path), NOON)
    assert "Nothing was recorded in this time" in page and "No client sent or polled anything" in page
    assert "No promise was broken" not in page and "every broker answered" not in page
    assert '<section class="verdict s-silent"' in page


def found_in(data: Path) -> tuple[str, str, str]:
    of = gather(sources(data), NOON - 60 * S, NOON + 120 * S, data)
    (box,) = re.findall(r'<section class="verdict s-(\w+)"', html(of, NOON))
    return box, *sentences(of)


def test_what_is_found_right_after_it_may_be_about_it(data: Path) -> None:
    """The time in which a lost value was written: the loss is known when readers have gone past it."""
    of = gather(sources(data), NOON - 5 * S, NOON + 10 * S, data)
    of = replace(of, checked=Checked(NOON + 60 * S, NOON + 60 * S))
    (told,) = (one for one in gather(sources(data), NOON, NOON + 55 * S, data).incidents if one.anomaly == "lost-write")
    assert sentences(of)[0] == (
        f"No incident begins in this time, but one does 10 s after it: critical lost-write in t/3 ({told.id}), which "
        "may be about what was done before."
    )
    assert '<section class="verdict s-warning"' in html(of, NOON)
    long_before = gather(sources(data), NOON - 1200 * S, NOON - 900 * S, data)
    assert long_before.following is None
    after = gather(sources(data), NOON + 50 * S, NOON + 55 * S, data)
    assert after.following is None


@pytest.mark.parametrize(
    ("through", "box", "said"),
    [
        (-30, "behind", "No incident is known in this time, but it is checked only through 2024-10-04 11:59:30 UTC."),
        (110, "ok", "No promise was broken through 2024-10-04 12:01:50 UTC: there is no incident in this time."),
        (120, "ok", "No promise was broken: there is no incident in this time."),
        (None, "silent", "No incident is known in this time, but nothing of it has been checked."),
    ],
)
def test_only_what_was_checked_is_called_well(tmp_path: Path, through: float | None, box: str, said: str) -> None:
    write(tmp_path, *STARTS, *OPERATIONS)
    record(tmp_path)
    at = None if through is None else NOON + through * S
    rows = states(state(3, topic="t", now=NOON + 120 * S, checked_through=at))
    open_tables(tmp_path / "tables")["partition_state"].write(rows, mode="append")
    assert found_in(tmp_path)[:2] == (box, said)


def test_without_a_table_of_findings_nothing_was_checked(tmp_path: Path) -> None:
    write(tmp_path, *STARTS, *OPERATIONS)
    box, first, _ = found_in(tmp_path)
    assert box == "failed" and first.startswith("Nothing was checked: there is no table of findings")


def test_observations_that_failed_as_a_whole(tmp_path: Path) -> None:
    failed = [row("offsets", OBSERVER, at, type="info", error="_TIMED_OUT") for at in (20, 21)]
    write(tmp_path, *STARTS, *OPERATIONS[:6], *failed)
    record(tmp_path)
    _, _, second = found_in(tmp_path)
    assert second.endswith("1 of 2 writes did not end ok, and 2 observations were not answered.")
    with Database(sources(tmp_path)) as database:
        told = [one.told for one in happenings(database) if one.kind == "fault"]
        silent = list(database.run(ready_query("silent").text, {"topic": "%"}))
    assert told == ["observations were not answered for 1 s"]
    assert silent == [(NOON + at * S, None, None, "_TIMED_OUT", 1) for at in (20, 21)]


def test_only_who_was_asked_in_vain_is_silent(tmp_path: Path) -> None:
    """Not whoever leads the partition by the time that the question is given up, nor by what other rows say."""
    answers = [
        row("offsets", OBSERVER, at, log_start=0, log_end=9, last_stable=9, settings={"led_by": by, "in_sync": by})
        for at, by in ((19, "2"), (24, "3"))
    ]
    late = row(
        "offsets",
        OBSERVER,
        23,
        type="info",
        error="_NO_OFFSET",
        completed=NOON + 25.5 * S,
        settings={"silent": "3", "brokers": "1,2,3", "leader": "3"},
    )
    other = row("offsets", OBSERVER, 26, log_start=0, partition=4, settings={"silent": "3", "brokers": "1,2,3"})
    refused = row(
        "offsets",
        OBSERVER,
        27,
        type="info",
        error="FENCED_LEADER_EPOCH",
        settings={"silent": "3", "brokers": "1,2,3", "leader": "3"},
    )
    write(tmp_path, *STARTS, *OPERATIONS[:6], *answers, late, other, refused)
    record(tmp_path)
    _, _, second = found_in(tmp_path)
    assert second.endswith("and broker 2 did not answer for a while.")
    with Database(sources(tmp_path)) as database:
        told = [one.told for one in happenings(database) if one.kind == "fault"]
        silent = list(database.run(ready_query("silent").text, {"topic": "%"}))
    assert told == ["broker 2 did not answer for 2 s"]
    assert silent == [
        (NOON + 25 * S, "2", "1,2,3", "_NO_OFFSET", 1),
        (NOON + 27 * S, None, "1,2,3", "FENCED_LEADER_EPOCH", 1),
    ]


@pytest.mark.parametrize("away", [True, False])
def test_a_broker_that_was_away_for_too_short_a_time_to_be_silent_was_out_of_sync(tmp_path: Path, away: bool) -> None:
    """It was killed again and again, and its leaders moved at once: nobody asked it in vain."""

    def told(at: float, partition: int, in_sync: str) -> Slice:
        settings = {"led_by": "1", "replicas_on": "1,2,3", "in_sync": in_sync}
        return row("offsets", OBSERVER, round(at), partition=partition, completed=NOON + at * S, settings=settings)

    changes = (
        [(20, "1,2,3"), (22, "1,2"), (45, "1,2,3"), (50, "2,1"), (52, "1,2")]
        if away
        else [(20, "1,2,3"), (45, "3,2,1")]
    )
    rows = [told(at + 0.25 * partition, partition, listed) for at, listed in changes for partition in (3, 4)]
    write(tmp_path, *STARTS, *OPERATIONS[:6], *rows)
    record(tmp_path)
    _, _, second = found_in(tmp_path)
    with Database(sources(tmp_path)) as database:
        found = [(one.begin, one.end, one.row, one.told) for one in happenings(database) if "sync" in one.row]
    if not away:
        assert found == [] and second.endswith("1 of 2 writes did not end ok, and every broker answered.")
        return
    assert second.endswith("replicas on broker 3 were out of sync 2 times, and every broker answered.")
    lacking = "the replicas of 2 partitions on broker 3 were not in sync"
    assert found == [
        (NOON + 22.75 * S, NOON + 46 * S, "broker 3 out of sync", f"{lacking} for 23 s"),
        (NOON + 50.75 * S, None, "broker 3 out of sync", f"{lacking} from here on"),
    ]


@pytest.mark.parametrize("moved", [True, False])
def test_a_replica_that_was_moved_away_lacks_nothing(tmp_path: Path, moved: bool) -> None:
    """It was behind until then; the twin stays where it is, and behind."""
    rows = [
        row("offsets", OBSERVER, at, settings={"led_by": "1", "replicas_on": replicas, "in_sync": "1,2"})
        for at, replicas in ((20, "1,2"), (22, "1,2,3"), (30, "1,2" if moved else "1,2,3"))
    ]
    write(tmp_path, *STARTS, *OPERATIONS[:6], *rows)
    record(tmp_path)
    with Database(sources(tmp_path)) as database:
        told = [one.told for one in happenings(database) if "sync" in one.row]
    lasted = "for 8 s" if moved else "from here on"
    assert told == [f"the replicas of 1 partition on broker 3 were not in sync {lasted}"]


def test_that_a_report_cannot_be_written_is_known_before_anything_is_read(tmp_path: Path) -> None:
    """There is nothing to be read: that would be the other complaint."""
    output = tmp_path / "none" / "report.html"
    config = from_environment({"OFFSETWATCH_DATA": str(tmp_path / "nothing")})
    with pytest.raises(UserError, match=f"{output}: No such file"):
        written(output, Stretch(), config, None)


@pytest.mark.parametrize("there", [True, False])
def test_trying_whether_a_report_can_be_written_changes_nothing(tmp_path: Path, there: bool) -> None:
    """An empty file that is there stays, as a device would; none is left behind where the work fails."""
    output = tmp_path / "report.html"
    if there:
        output.touch()
    before = output.stat().st_ino if there else 0
    _require_writable(output)
    assert output.exists() == there and (not there or output.stat().st_ino == before)


def test_offsets_that_cannot_be_read_are_no_silence_of_a_broker(tmp_path: Path) -> None:
    """A transaction that is open for long holds what its group has committed."""
    held = [row("offsets", OBSERVER, at, type="info", error="_TIMED_OUT", group="g") for at in range(20, 50, 2)]
    write(tmp_path, *STARTS, *OPERATIONS[:6], *held)
    record(tmp_path)
    _, _, second = found_in(tmp_path)
    assert second.endswith("1 of 2 writes did not end ok, and every broker answered.")
    with Database(sources(tmp_path)) as database:
        told = [(one.kind, one.row, one.told) for one in happenings(database) if one.begin >= NOON + 20 * S]
    why = "the offsets of g could not be read for 28 s: its coordinator did not answer, or a transaction held them"
    assert told == [("change", "offsets unread", why)]


def test_a_topic_that_was_made_anew_is_told(tmp_path: Path) -> None:
    anew = [row("offsets", OBSERVER, at, topic_id="t-id-2") for at in (31, 33)]
    elsewhere = row("offsets", OBSERVER, 32, cluster="d", topic_id="another")
    write(tmp_path, *STARTS, *OPERATIONS, row("offsets", OBSERVER, 29), *anew, elsewhere)
    record(tmp_path)
    with Database(sources(tmp_path)) as database:
        told = [(one.begin, one.kind, one.told) for one in happenings(database) if "made anew" in one.told]
    assert told == [(NOON + 31.1 * S, "change", "t was deleted and made anew")]


def test_topics_are_named_exactly(data: Path, tmp_path: Path) -> None:
    write(tmp_path, *STARTS, *OPERATIONS, row("send", WRITER, 1, topic="tx", sent=[Run(WRITER, 50, 0, 5)]))
    record(tmp_path)

    def sent(*topics: str) -> int:
        return gather(sources(tmp_path, topics=topics), NOON - 5 * S, NOON + 55 * S, tmp_path).figures.sent

    assert (sent("t"), sent("tx"), sent("t", "tx"), sent()) == (13, 5, 18, 18)
    assert sent("%") == sent("_") == 0
    page = html(gather(sources(tmp_path, topics=("t", "tx")), NOON, NOON + S, tmp_path), NOON)
    assert "topic <code>t</code>, <code>tx</code>" in page


def test_of_several_clusters_one_can_be_asked_for(tmp_path: Path) -> None:
    other = row("send", WRITER, 1, cluster="d", sent=[Run(WRITER, 50, 0, 5)])
    write(tmp_path, *STARTS, *OPERATIONS, other)
    record(tmp_path, *(finding("duplicate", (n,), cluster=name) for n, name in enumerate("cd")))

    def told(cluster: str | None) -> tuple[int, list[str], int]:
        of = gather(sources(tmp_path, cluster=cluster), NOON - 5 * S, NOON + 55 * S, tmp_path)
        lines = gzip.decompress(of.raw or b"").count(b'"type":"invoke"')
        return of.figures.sent, sorted(one.cluster for one in of.incidents), lines

    whole, first, second = told(None), told("c"), told("d")
    assert (whole[:2], first[:2], second[:2]) == ((18, ["c", "d"]), (13, ["c"]), (5, ["d"]))
    assert (second[2], first[2]) == (1, whole[2] - 1)


def test_the_cluster_of_a_report_is_named_by_its_name_or_id(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("report", "--cluster", "nobody", "--data", str(data), "-o", "-", cwd=tmp_path)
    said = "offsetwatch: --cluster: nothing is known of a cluster nobody; known are: c\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_shows_it(gathered: Gathered, tmp_path: Path, width: int) -> None:
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("chromium is not installed")
    (tmp_path / "report.html").write_text(html(gathered, NOON))
    done = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},1000",
            "--enable-logging=stderr",
            f"--screenshot={tmp_path / 'shown.png'}",
            f"file://{tmp_path / 'report.html'}",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (tmp_path / "shown.png").stat().st_size > 20_000, done.stderr
    assert "Content Security Policy" not in done.stderr and "Refused" not in done.stderr


def test_the_command(data: Path, tmp_path: Path) -> None:
    where = ("--data", str(data))
    done = offsetwatch("report", *where, "--from", "2024-10-04T12:00", "--to", "2024-10-04T12:01", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("Critical lost-write in t/3"), done.stderr
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    piped = offsetwatch("report", *where, "-o", "-", cwd=tmp_path)
    assert piped.stdout.startswith("<!doctype html>") and piped.stdout.rstrip().endswith("</html>")
    assert piped.stderr.startswith("offsetwatch: Critical lost-write") and not (tmp_path / "-").exists()
    for bad in (
        ("-o", "none/x.html"),
        ("--from", "soon"),
        ("--topic", "nothing"),
        ("--topic", "%"),
        ("--data", str(tmp_path / "none")),
    ):
        done = offsetwatch("report", *where, *bad, cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    done = offsetwatch("report", *where, "--from", "2100-01-01T00:00", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("offsetwatch: --from 2100-01-01T00:00 is yet to come: it is ")


def test_every_chart_says_what_it_means(gathered: Gathered) -> None:
    told: list[tuple[Any, str]] = charts_of(gathered)
    assert [one.title for one, _ in told] == [
        "Unseen records",
        "Realtime lag of readers",
        "Latency of writes",
        "Availability for writes",
    ]
    assert all(meaning.endswith(".") for _, meaning in told)
    assert {one.begin for one, _ in told} == {NOON - timedelta(seconds=5)} and isinstance(told[0][0].end, datetime)
