"""The screen for somebody who was asleep two minutes ago."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest

from alerts.event import recorded
from alerts.incidents.grouping import HOLD, Incidents
from alerts.incidents.incident import Incident, explanation
from alerts.silences import FolderSilences, path_of
from monitor.commands.overview import lines, row
from monitor.commands.storage import survey
from monitor.config.config import Config, from_environment
from monitor.errors import UserError
from monitor.incidents.explained import Explained, UnknownId, find_where_there_is_room
from monitor.incidents.findings import Filter
from monitor.incidents.overview import Checked, Overview, checked, overview_of, verdict, with_silences
from monitor.incidents.room import no_room
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.times import micros
from tests.monitor.rows import NOON, events, finding

S = timedelta(seconds=1)
NOW = NOON + 120 * S
FRESH = Checked(NOW - 2 * S, NOW - 4 * S)
LOST = finding("lost-write", topic="orders-canary", message="value 7151953739595553680/1 was acknowledged at offset 5")
UNSAFE = [
    finding("unsafe-config", (), "opened", at=-9, topic=t, topic_id=t, partition=n) for t in "ab" for n in range(2)
]


def in_folder(data: Path, **job: str) -> Config:
    given = {f"OFFSETWATCH_JOB__{name.upper()}": value for name, value in job.items()}
    return from_environment({"OFFSETWATCH_DATA": str(data), **given})


def incidents(*found: object, now: datetime = NOW) -> list[Incident]:
    made = Incidents(kept=None)
    made.take(recorded(events(*found).to_pylist()))  # type: ignore[arg-type]
    return made.at(now)


def said(*found: object, of: Checked = FRESH, now: datetime = NOW) -> str:
    return verdict(Overview(now, incidents(*found, now=now) if found else [], {}, of))


def test_one_incident_and_the_rest_healthy() -> None:
    assert said(LOST) == (
        "1 incident open: lost-write in orders-canary/3, critical, since 12:00:00; everything else healthy, "
        "checked through 12:01:56 UTC"
    )


def test_nothing_open() -> None:
    assert said() == "No incident is open; everything healthy, checked through 12:01:56 UTC"
    over = said(LOST, now=NOON + HOLD + S, of=Checked(NOON + HOLD, NOON + HOLD))
    assert over.startswith("No incident is open; everything healthy")


@pytest.mark.parametrize(("checked_at", "is_open"), [(HOLD.total_seconds() + 119, False), (30, True)])
def test_nothing_is_over_because_nobody_looks_any_more(checked_at: float, is_open: bool) -> None:
    now = NOON + HOLD + 120 * S
    found, _ = overview_of(events(LOST), states((0, checked_at, checked_at, None)), now, Filter())
    assert bool(found.open) is is_open


def test_several_begin_with_the_worst() -> None:
    assert said(*UNSAFE, LOST) == (
        "2 incidents open, 1 critical, first lost-write in orders-canary/3, since 12:00:00; everything else healthy, "
        "checked through 12:01:56 UTC"
    )
    assert "1 incident open: unsafe-config in " in said(*UNSAFE)
    assert " and 3 more, warning, since 11:59:51; everything else healthy, " in said(*UNSAFE)


def test_of_what_is_equally_bad_data_come_first_and_then_what_says_why() -> None:
    older = [
        replace(finding(name, (), "opened", evidence={"writer": "w"}), at=LOST.at - back * 1_000_000)
        for name, back in (("stuck-producer", 30), ("refused-writes", 20), ("cluster-unreachable", 10))
    ]
    for found, first in (
        (older[:1], ""),
        (older[:2], "refused-writes"),
        (older, "cluster-unreachable"),
        ([*older, LOST], "lost-write"),
    ):
        assert (f" critical, first {first} in " in said(*found)) == bool(first)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (Checked(None, None), "Nothing has been checked yet: is the monitor running? 1 incident open: lost-write"),
        (Checked(NOW - 3_700 * S, NOW - 3_700 * S), "NOTHING HAS BEEN CHECKED FOR 1h, since 11:00:20 UTC: is the "),
        (Checked(NOW, NOW - 90 * S), "but some is checked only through 12:00:30 UTC, 1m ago"),
        (Checked(NOW, NOW, ["t/1", "t/2"]), "the checks of t/1 and 1 more have failed: nobody knows how these are"),
    ],
)
def test_what_nobody_can_know_is_not_called_healthy(of: Checked, expected: str) -> None:
    told = said(LOST, of=of)
    assert expected in told
    assert "everything else healthy, checked through" not in told


def test_where_the_monitor_said_that_no_rows_came_the_probes_are_asked_for() -> None:
    stalled = finding("evidence-stalled", (), "opened", topic="", topic_id="", partition=-1)
    told = said(stalled, of=Checked(NOW - 180 * S, NOW - 180 * S))
    assert told.startswith("NOTHING HAS BEEN CHECKED FOR 3m, since 11:59:00 UTC: no rows came, are the probes running,")
    assert "is the monitor running" not in told


def test_where_a_rebuild_is_not_done_it_is_said() -> None:
    found = Overview(NOW, [], {}, Checked(NOW - 180 * S, NOW - 180 * S), rebuilding=True)
    assert verdict(found) == (
        "NOTHING HAS BEEN CHECKED FOR 3m, since 11:59:00 UTC: the checks' state is being rebuilt, if the monitor is"
        " running. Then, no incident was open."
    )


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("anomaly", [a.name for a in CATALOGUE.values() if a.kind != "classified"])
def test_each_incident_is_one_line_with_its_whole_name_and_its_message(anomaly: str, width: int) -> None:
    found = finding(anomaly, (), topic="offsetwatch-transactions", message=LOST.message)
    for one in incidents(found, now=NOON + S) or incidents(finding("duplicate", message=LOST.message)):
        grown = replace(one, places=31, findings=4_321)
        text = row(grown, NOW, width).plain
        assert len(text) <= width
        assert f" {one.anomaly} ×4321 " in text
        assert "+30 value …3680/1" in text or (width == 80 and "+30 value" in text) or "+30 val" in text
        assert row(grown, NOW, width, dated=True).plain.startswith(f"{one.id[:6]} ")


def test_a_row() -> None:
    (one,) = incidents(LOST)
    assert row(one, NOW, 80).plain == (
        f"{one.id[:6]} 12:00  2m crit lost-write orders-canary/3 value …3680/1 was acknowledged…"
    )
    assert row(one, NOW, 120, clusters=True).plain == (
        f"{one.id[:6]} 12:00:00  2m crit lost-write c orders-canary/3 value …3680/1 was acknowledged at offset 5"
    )


def test_a_host_in_a_row_is_told_by_the_end_of_its_long_number() -> None:
    (one,) = incidents(finding("evidence-late", (), "opened", topic="", partition=-1, evidence={"host": 10**18 + 7}))
    assert " warn evidence-late host …0007 a evidence-late" in row(one, NOW, 80).plain
    named = {"host": 10**18 + 7, "hostname": "probe-2"}
    (one,) = incidents(finding("evidence-late", (), "opened", topic="", partition=-1, evidence=named))
    assert " warn evidence-late host probe-2 a evidence-late" in row(one, NOW, 80).plain


def test_a_cluster_answers_nobody_since_its_last_answer_and_not_since_that_was_noticed() -> None:
    answered = {"brokers": [1], "since": micros(NOON - 31 * S)}
    away = finding("cluster-unreachable", (), "opened", topic="", topic_id="", partition=-1, evidence=answered)
    (one,) = incidents(away)
    assert row(one, NOW, 80).plain.startswith(f"{one.id[:6]} 11:59  2m crit cluster-unreachable ")
    assert "cluster-unreachable in cluster c, critical, since 11:59:29" in said(away)


def test_what_is_open_and_was_not_asked_for_is_not_healthy() -> None:
    def told(*names: str) -> str:
        found, _ = overview_of(events(LOST, *UNSAFE), states((0, 115, 115, None)), NOW, Filter(anomalies=names))
        return verdict(found)

    nothing = told("duplicate")
    assert nothing.startswith("No incident is open but 2 that were not asked for; everything else healthy, checked")
    one = told("lost-write")
    assert one.startswith("1 incident open: lost-write") and ", and 1 that was not asked for; everything else" in one
    assert "asked for" not in told()


def test_open_comes_before_over_and_counts_come_last() -> None:
    old = finding("duplicate", at=-3_000)
    found = incidents(LOST, old, *UNSAFE)
    shown = [line.plain for line in lines(Overview(NOW, found, {("rebalance", "info"): 5}, FRESH), 80, limit=50)]
    assert [line.split()[0] for line in shown if line and line.split()[0].isalpha()] == ["Open", "Over", "Only", "What"]
    assert shown[1] == "Open (2)"
    assert [line.split()[4] for line in shown[2:4]] == ["lost-write", "unsafe-config"]
    assert shown[-3:] == [
        "Only counted: 5 rebalance; --all lists them",
        "",
        f"What happened, and what to do: offsetwatch explain {LOST.id[:6]}",
    ]


def test_that_a_topic_was_made_anew_is_counted_once_and_said_with_what_came_of_it() -> None:
    anew = [finding("topic-recreated", ("t-id-1",), partition=n, topic_id="t-id-2", at=-1) for n in range(2)]
    found, _ = overview_of(events(LOST, *anew), states((0, 115, 115, None)), NOW, Filter())
    assert found.counted == {("topic-recreated", "info"): 2}
    (lost,) = found.incidents
    assert "t had been deleted and made anew" in explanation(lost)


def away(event: str, at: float, said: str = "") -> object:
    answered = {"brokers": [1], "since": micros(NOON + at * S)} if event == "opened" else {}
    more = {"topic": "", "topic_id": "", "partition": -1, "evidence": answered, "message": said}
    return finding("cluster-unreachable", (), event, at=at, **more)  # type: ignore[arg-type]


NIGHT = [
    *(away("opened", -4_000, "no broker answers"), away("closed", -3_960)),
    *(away("opened", -3_900, "the login is refused"), away("closed", -3_850)),
    *(away("opened", -3_800, "no broker answers again"), away("closed", -3_740)),
]


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (
            None,
            None,
            ["10:56 1m no broker answers again", "10:55 50s the login is refused", "10:53 40s no broker answers"],
        ),
        (-3_920, -3_870, ["10:55 50s the login is refused"]),
        (-3_845, -3_805, []),
        (-3_990, -3_970, ["10:53 40s no broker answers"]),
        (-3_860, None, ["10:56 1m no broker answers again", "10:55 50s the login is refused"]),
    ],
)
def test_each_outage_of_the_night_is_a_line(since: float | None, until: float | None, expected: list[str]) -> None:
    """Each was told, and each is asked for in the morning, also where they are spells of one incident."""
    wanted = Filter(
        since=None if since is None else NOON + since * S, until=None if until is None else NOON + until * S
    )
    found, _ = overview_of(events(*NIGHT), states((0, 115, 115, None)), NOW, wanted)  # type: ignore[arg-type]
    shown = [line.plain for line in lines(found, 120, limit=50)]
    rows = [line.split(maxsplit=3) for line in shown if "cluster-unreachable" in line]
    said = [f"{at[:5]} {took} {rest.removeprefix('crit cluster-unreachable ')}" for _, at, took, rest in rows]
    assert said == expected
    assert len({one for one, *_ in rows}) <= 1


def states(*rows: tuple[int, float, float, str | None]) -> pa.Table:
    return pa.table(
        {
            "cluster": ["c"] * len(rows),
            "topic": ["t"] * len(rows),
            "partition": [r[0] for r in rows],
            "now": [NOON + r[1] * S for r in rows],
            "checked_through": [NOON + r[2] * S for r in rows],
            "check_failed": pa.array([r[3] for r in rows], pa.string()),
        }
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(0, 10, 8, None), (1, 9, 5, None)], (10, 5, [])),
        ([(0, 1000, 998, None), (1, 9, 5, None)], (1000, 998, [])),
        ([(0, 10, 8, None), (1, 10, 2, "ZeroDivisionError")], (10, 8, ["t/1"])),
    ],
)
def test_how_far_things_are_checked(
    rows: Sequence[tuple[int, float, float, str | None]], expected: tuple[int, int, list[str]]
) -> None:
    newest, through, failed = expected
    assert checked(states(*rows)) == Checked(NOON + newest * S, NOON + through * S, failed)
    assert checked(states()) == Checked(None, None)


class Disk:
    """What `statvfs` tells of one with so many bytes and inodes free."""

    f_frsize, f_files = 4096, 1000

    def __init__(self, free: int, inodes: int = 500, *, read_only: bool = False) -> None:
        self.f_bavail, self.f_favail = free // 4096, inodes
        self.f_flag = os.ST_RDONLY * read_only


@pytest.mark.parametrize(
    ("disk", "told"),
    [
        (Disk(0), "THE DISK IS FULL: 0 bytes are free where "),
        (Disk(1_000_000), "THE DISK IS FULL: 999,424 bytes are free where "),
        (Disk(10**9, inodes=0), "THE DISK IS FULL: no file can be made any more (inodes) where "),
        (Disk(10**9, read_only=True), "THE DISK IS READ-ONLY: nothing can be written where "),
        (Disk(10**7), None),
    ],
)
def test_a_full_disk_is_named_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, told: str | None
) -> None:
    """The tables then lack what is found, and whether a monitor runs is not the question."""
    monkeypatch.setattr("os.statvfs", lambda folder: disk)
    found = with_silences(
        Overview(NOW, [], {}, Checked(NOW - timedelta(hours=1), None)),
        FolderSilences(path_of(tmp_path)),
        no_room(in_folder(tmp_path)),
    )
    if told is None:
        assert verdict(found).endswith(": is the monitor running? Then, no incident was open.")
        return
    assert verdict(found).startswith(f"{told}{tmp_path} is. ")
    assert ". By the tables: NOTHING HAS BEEN CHECKED FOR 1h" in verdict(found)
    gets_it = "it can be written again" if "READ-ONLY" in told else "there is room"
    assert f"and the tables get it when {gets_it}." in verdict(found)
    assert "is the monitor running" not in verdict(found)
    assert "DISK" not in verdict(found, by_monitor=True)


def test_where_there_is_no_folder_nothing_is_said_of_its_disk(tmp_path: Path) -> None:
    assert no_room(in_folder(tmp_path / "none")) is None


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is but one disk")
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("full", "told"),
    [
        ("tables", "tables is. What a running monitor finds now it tells by itself"),
        ("job", "job is. What a running monitor finds now it tells by itself"),
        ("history", "history is. What probes log now waits in their journals"),
        ("journals", "journals is. The probes whose journals these are do nothing"),
        ("data", "data is. Silences, and what the program logs, cannot be written"),
    ],
)
def test_the_disk_that_is_full_is_told_and_what_that_does(
    full: str, told: str, other_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = {name: (other_disk if name == full else tmp_path) / name for name in ("data", "job", "tables", "history")}
    for folder in at.values():
        folder.mkdir()
    (at["data"] / "journals").symlink_to(other_disk if full == "journals" else tmp_path)
    loaded = in_folder(at["data"], **{name: str(at[name]) for name in ("tables", "history")}, root=str(at["job"]))
    device = other_disk.stat().st_dev
    with monkeypatch.context() as disks:
        disks.setattr("os.statvfs", lambda folder: Disk(0 if folder.stat().st_dev == device else 10**9))
        said = no_room(loaded)
    assert said is not None and said.count("THE DISK IS FULL: 0 bytes are free where ") == 1 and told in said
    storage = survey(loaded)  # once: others write to these disks meanwhile
    (other,) = storage.others
    assert (storage.log_disk == other) == (full in ("history", "data"))


def test_an_id_that_the_tables_do_not_know_may_be_of_a_page_that_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> Explained:
        raise UnknownId("no finding and no incident has the id 1234ab: offsetwatch findings lists them")

    with pytest.raises(UserError, match=r"^no finding and no incident has the id 1234ab: offsetwatch findings"):
        find_where_there_is_room(in_folder(tmp_path), "1234ab", unknown)
    monkeypatch.setattr("os.statvfs", lambda folder: Disk(0))
    with pytest.raises(UserError, match=r"^the tables hold nothing with the id 1234ab yet\. THE DISK IS FULL: 0 bytes"):
        find_where_there_is_room(in_folder(tmp_path), "1234ab", unknown)
