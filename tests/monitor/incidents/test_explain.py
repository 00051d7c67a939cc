"""`explain`: who did what with a finding's records, by the probes' names, from a real probe log."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from monitor.commands.explain import lines
from monitor.incidents.explained import Explained, Wanted, began, find, named, naming, shown
from monitor.incidents.findings import Filter
from monitor.incidents.overview import gather
from monitor.incidents.witnesses import FindingSubject, asked, names, nearby, operations, witnesses
from rules.vocabulary.slices import Irregular, LeaderEpoch, Run, Slice, to_table
from rules.vocabulary.times import micros
from streaming_jobs.tables.delta_tables import read_table
from tests.alerts.incidents import incident
from tests.monitor.rows import NOON, finding, record

WRITER, READER, OTHER, BLIND = 7151953739595553680, 5077135658695701636, 6522992166584487490, 1234567890123
S = timedelta(seconds=1)
TXN = 8142398312791225829


def slice_(f: str, process: int, at: float, **more: Any) -> Slice:
    given: dict[str, Any] = {
        "cluster": "c",
        "topic_id": "t-id",
        "topic": "t",
        "partition": 3,
        "run": "r",
        "process": process,
        "op": 1,
        "slice": 1,
        "type": "ok",
        "invoked": NOON + at * S,
        "completed": NOON + (at + 0.1) * S,
    }
    return Slice(f=f, **(given | more))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("witnesses") / "tables" / "history"
    rows = [
        slice_("start", WRITER, -60, kind="writer", settings={"name": "transactions-1", "writer": str(WRITER)}),
        slice_("start", WRITER, -60, partition=4, settings={"name": "transactions-1", "writer": str(WRITER)}),
        slice_("start", READER, -60, kind="reader", settings={"name": "reader-1"}),
        slice_("start", OTHER, -60, kind="reader", settings={"name": "reader-2"}),
        slice_(
            "txn",
            WRITER,
            0,
            sent=[Run(WRITER, 5, 100, 4)],
            txn=TXN,
            transactional_id="tx-1",
            txn_intent="commit",
            end_invoked=NOON + 0.05 * S,
        ),
        slice_(
            "poll",
            READER,
            1,
            polled=[Run(WRITER, 1, 96, 8)],
            position_before=96,
            position_after=105,
            isolation="read_committed",
            mode="assign",
        ),
        slice_(
            "poll",
            OTHER,
            2,
            polled=[Run(WRITER, 1, 96, 5)],
            position_before=96,
            position_after=104,
            isolation="read_committed",
            mode="assign",
        ),
        slice_("poll", OTHER, 3, polled=[Run(WRITER, 9, 104, 5)], position_before=104, position_after=109),
        slice_("poll", READER, 4, polled=[Run(WRITER, 6, 101, 1)], partition=2),
        slice_("poll", READER, 4_000, polled=[Run(WRITER, 6, 101, 1)], position_before=0, position_after=200),
        slice_("send", BLIND, 5, type="info", error="_TIMED_OUT", sent=[Run(BLIND, 0, None, 3)]),
    ]
    write_deltalake(str(folder), to_table(rows), partition_by=["date"])
    return folder


def told(history: Path, **about: Any) -> list[tuple[int, str]]:
    given: dict[str, Any] = {"topic_id": "t-id", "partition": 3, "at": NOON, "values": (), "offsets": (), "txn": None}
    return [(one.process, one.did) for one in witnesses(history, FindingSubject(**(given | about)))]


def test_who_sent_it_who_was_given_it_and_who_went_past_it(history: Path) -> None:
    assert told(history, values=[(WRITER, 6)], txn=TXN) == [
        (WRITER, f"sent {WRITER}/6 to offset 101 (ok)"),
        (WRITER, f"transaction {TXN} of tx-1, commit asked at 12:00:00.050, told ok at 12:00:00.100"),
        (READER, f"was given {WRITER}/6 at offset 101 (read_committed, assign, ok)"),
        (OTHER, "went past offset 101, from 96 to 104, and was given nothing (read_committed, assign, ok)"),
    ]


def test_the_leader_epoch_of_what_it_was_given_is_told_where_the_log_has_it(tmp_path: Path) -> None:
    epochs = [LeaderEpoch(3), LeaderEpoch(5, 101)]
    rows = to_table([slice_("poll", READER, 1, polled=[Run(WRITER, 5, 100, 2)], epochs=epochs)])
    write_deltalake(str(tmp_path / "new"), rows, partition_by=["date"])
    write_deltalake(str(tmp_path / "old"), rows.drop_columns(["epochs"]), partition_by=["date"])
    assert told(tmp_path / "new", offsets=[100, 101]) == [
        (READER, f"was given {WRITER}/5 at offset 100 of leader epoch 3 (ok)"),
        (READER, f"was given {WRITER}/6 at offset 101 of leader epoch 5 (ok)"),
    ]
    assert [did for _, did in told(tmp_path / "old", offsets=[101])] == [f"was given {WRITER}/6 at offset 101 (ok)"]


def test_what_an_audit_reads_again_and_again_is_one_line(tmp_path: Path) -> None:
    polls = [(READER, 1), (OTHER, 2), (READER, 60), (READER, 125), (OTHER, 130)]
    rows = [slice_("poll", who, at, polled=[Run(WRITER, 5, 100, 2)], position_before=100) for who, at in polls]
    write_deltalake(str(tmp_path), to_table(rows), partition_by=["date"])
    given = f"was given {WRITER}/6 at offset 101 (ok), and"
    assert told(tmp_path, offsets=[101]) == [
        (READER, f"{given} 2 times more until 12:02:05"),
        (OTHER, f"{given} once more until 12:02:10"),
    ]


def test_the_transaction_behind_a_value_is_told_though_the_finding_does_not_name_it(history: Path) -> None:
    assert told(history, values=[(WRITER, 6)]) == told(history, values=[(WRITER, 6)], txn=TXN)
    assert told(history, offsets=[101])[0][1].startswith("was given"), "nobody asked about its value"


def test_what_stands_at_an_offset(history: Path) -> None:
    assert told(history, offsets=[104]) == [
        (READER, "went past offset 104, from 96 to 105, and was given nothing (read_committed, assign, ok)"),
        (OTHER, f"was given {WRITER}/9 at offset 104 (ok)"),
    ]


def test_a_record_that_cannot_be_read_was_given(tmp_path: Path) -> None:
    broken = Irregular(index=0, offset=104, status="corrupted", hash=7)
    row = slice_("poll", READER, 1, irregular=[broken], position_before=104, position_after=106)
    write_deltalake(str(tmp_path / "history"), to_table([row]), partition_by=["date"])
    assert told(tmp_path / "history", offsets=[104, 105]) == [
        (READER, "went past offset 105, from 104 to 106, and was given nothing (ok)"),
        (READER, "was given a corrupted record at offset 104 (ok)"),
    ]


def test_a_write_of_unknown_outcome(history: Path) -> None:
    assert told(history, values=[(BLIND, 2)]) == [(BLIND, f"sent {BLIND}/2 (info, _TIMED_OUT)")]


def test_nothing_is_told_where_there_is_no_log_or_no_row(history: Path, tmp_path: Path) -> None:
    assert told(tmp_path, offsets=[1]) == []
    assert told(history, offsets=[1], topic_id="another") == []
    assert names(tmp_path, [WRITER]) == {}


def test_names(history: Path) -> None:
    known = names(history, [WRITER, READER, BLIND])
    assert known == {WRITER: "transactions-1", READER: "reader-1"}


def test_where_probes_of_several_runs_work_each_name_says_of_which(history: Path, tmp_path: Path) -> None:
    """Their hosts' probes have the same names. Those of another cluster are another matter."""
    starts = [
        slice_("start", process, -60, run=run, cluster=cluster, settings={"name": "reader-1"})
        for process, run, cluster in ((1, "east", "c"), (2, "west", "c"), (3, "south", "d"))
    ]
    write_deltalake(str(tmp_path / "history"), to_table(starts), partition_by=["date"])
    known = {1: "reader-1 of east", 2: "reader-1 of west", 3: "reader-1"}
    assert names(tmp_path / "history", [1, 2, 3]) == known
    assert names(tmp_path / "history", [1]) == {1: "reader-1 of east"}


ROW = {"topic_id": "t-id", "partition": 3, "first_at": NOON}


@pytest.mark.parametrize(
    ("partition", "evidence", "values", "offsets"),
    [
        (3, {"writer": 7, "seq": 1, "offset": 5}, {(7, 1)}, {5}),
        (3, {"writer": 7, "seq": 1, "offsets": [4, 9]}, {(7, 1)}, {4, 9}),
        (3, {"offset": 5, "values": [{"writer": 7, "seq": 1}, {"hash": 3}]}, {(7, 1)}, {5}),
        (-1, {"absent": {"partition": 2, "writer": 7, "seq": 1, "offset": 5}}, {(7, 1)}, {5}),
        (3, {"brokers": [1]}, None, None),
        (-1, {"offset": 5}, None, None),
    ],
)
def test_what_is_looked_for(partition: int, evidence: dict[str, Any], values: Any, offsets: Any) -> None:
    found = asked(ROW | {"partition": partition}, evidence)
    assert (found and found.values, found and found.offsets) == (values, offsets)


def test_the_screen_calls_clients_by_their_names(history: Path) -> None:
    evidence = {"writer": WRITER, "seq": 6, "offset": 101, "txn": TXN}
    lost = finding("lost-write", (7,), evidence=evidence, message=f"value {WRITER}/6 was passed by process {OTHER}")
    record(history.parent.parent, lost)
    explained = find(history.parent, history, Wanted(lost.id[:8]), NOON + 9 * S)
    shown = [line.plain for line in lines(explained, NOON + 9 * S, 80)]
    assert shown[:4] == [
        "critical lost-write in t/3",
        "open, since 2024-10-04 12:00:00 UTC, for 9 s",
        "",
        "Value transactions-1:3680/6 was passed by reader-2.",
    ]
    who = shown.index("Who did what with the first of its records")
    assert shown[who + 1] == "10-04 12:00:00.000 transactions-1 sent transactions-1:3680/6 to offset 101 (ok)"
    assert "10-04 12:00:01.100 reader-1 was given transactions-1:3680/6 at offset 101" in "\n".join(shown)
    assert "10-04 12:00:02.000 reader-2 went past offset 101, from 96 to 104, and was" in "\n".join(shown)
    assert json.loads(explained.findings[0]["evidence"])["writer"] == WRITER
    assert max(map(len, shown)) <= 80


def test_a_finding_of_several_partitions_knows_its_topic_by_name_alone(history: Path) -> None:
    place = {"topic": "t", "partition": 3, "writer": WRITER, "seq": 6, "offset": 101}
    about = asked({"topic_id": "", "topic": "t", "partition": -1, "first_at": NOON}, {"absent": place})
    assert about is not None
    assert [one.process for one in witnesses(history, about)] == [WRITER, WRITER, READER, OTHER]


def test_operations_around_a_record_for_its_diagram(history: Path) -> None:
    about = FindingSubject("t-id", 3, NOON, [(WRITER, 6)], (), None)
    table = operations(history, about)
    assert table is not None

    def near(around: int, most: int = 99) -> list[tuple[str, int]]:
        return [(row["f"], row["process"]) for row in nearby(table, about, around, most)]

    assert near(0) == [("txn", WRITER), ("poll", READER), ("poll", OTHER)]
    assert near(3) == [("txn", WRITER), ("poll", READER), ("poll", OTHER), ("poll", OTHER)], "104 is three further"
    assert near(3, most=2) == [("txn", WRITER), ("poll", READER)], "those nearest in time"


def test_names_are_sought_day_by_day_from_the_newest(history: Path, tmp_path: Path) -> None:
    log = tmp_path / "history"
    for day, name in ((-2, "old"), (0, "new")):
        at = timedelta(days=day) / S
        rows = [slice_("start", OTHER + day, at, settings={"name": name}), slice_("poll", OTHER + day, at + 1)]
        write_deltalake(str(log), to_table(rows), partition_by=["date"], mode="append")
    assert names(log, [OTHER, OTHER - 2]) == {OTHER: "new", OTHER - 2: "old"}
    assert names(log, [OTHER, OTHER - 2], days=1) == {OTHER: "new"}


def test_an_incident_is_explained_by_the_first_of_its_own_name_in_its_present_spell() -> None:
    """A sign that was told before it belongs to it, and a condition has the finding of its first time."""

    def row(anomaly: str, first: float, last: float) -> dict[str, Any]:
        return {"anomaly": anomaly, "first_at": NOON + first * S, "at": NOON + last * S}

    sign, old, cut = row("nonmonotonic-poll", 0, 0), row("log-truncation", -600, -600), row("log-truncation", 1, 1)
    since = incident(anomaly="log-truncation", since=NOON)
    assert naming(Explained(since, [old, sign, cut])) is cut
    assert naming(Explained(None, [sign, cut])) is sign
    assert naming(Explained(since, [sign])) is sign


@pytest.mark.parametrize(
    ("at", "message", "others"),
    [
        (None, "broker 2", [0]),
        (7_300, "broker 2", [0]),
        (60, "broker 3", [7_200]),
        (-60, "broker 3", [7_200]),
    ],
)
def test_each_of_several_incidents_of_one_id_can_be_asked_for(
    tmp_path: Path, at: float | None, message: str, others: list[float]
) -> None:
    """As brokers that were away, two hours apart: the same condition, and another page."""
    spells = [(0, "broker 3", 40), (7_200, "broker 2", 60)]
    for since, what, lasted in spells:
        for event, when in (("opened", since), ("closed", since + lasted)):
            record(tmp_path, finding("cluster-unreachable", (), event, at=when, message=f"{what} is away"))  # type: ignore[arg-type]
    (id_,) = {row["id"] for row in read_table(tmp_path / "tables", "findings").to_pylist()}
    asked_at = None if at is None else NOON + at * S
    tables = tmp_path / "tables"
    found = find(tables, tables / "history", Wanted(id_, asked_at), NOON + 10_000 * S)
    assert found.incident is not None
    assert (found.incident.message, [one.first_since for one in found.others]) == (
        f"{message} is away",
        [NOON + other * S for other in others],
    )
    assert not found.incident.open and found.findings
    screen = " ".join(str(line) for line in lines(found, NOON + 10_000 * S, 200))
    assert (
        f"This id had other incidents, since {NOON + others[0] * S:%Y-%m-%dT%H:%M:%S}Z: explain them with --at"
        in screen
    )


def _two_spells_of_which_an_outage_explains_the_second(data: Path) -> str:
    """A writer was stuck by itself, and is stuck again minutes later, first by itself, and then for an outage."""
    return _told(
        data,
        (0, "opened", W, None),
        (18, "closed", W, None),
        (300, "opened", V, None),
        (340, "opened", AWAY, None),
        (341, "closed", V, None),
        (345, "opened", W, AWAY),
        (380, "closed", W, AWAY),
        (381, "closed", AWAY, None),
    )


Named = tuple[str, tuple[Any, ...]]
W: Named = "stuck-producer", ("w",)
V: Named = "stuck-producer", ("v",)
AWAY: Named = "cluster-unreachable", ()


def _told(data: Path, *events: tuple[float, str, Named, Named | None]) -> str:
    """When each was told, of what, explained by what; the id of `W`."""
    for at, event, (anomaly, of), by in events:
        why = None if by is None else finding(*by).id
        record(data, finding(anomaly, of, event, at=at, message=f"{of} is stuck", implied_by=why))  # type: ignore[arg-type]
    return finding(*W).id


@pytest.mark.parametrize(("at", "of", "since"), [(60, "w", 0), (320, "v", 290), (650, "v", 290)])
def test_so_can_one_whose_second_spell_began_with_a_finding_that_an_outage_explained_later(
    tmp_path: Path, at: float, of: str, since: float
) -> None:
    id_ = _told(
        tmp_path,
        (0, "opened", W, None),
        (18, "closed", W, None),
        (290, "opened", V, None),
        (310, "closed", V, None),
        (600, "opened", AWAY, None),
        (610, "opened", V, AWAY),
        (690, "closed", V, AWAY),
        (700, "closed", AWAY, None),
        (900, "opened", AWAY, None),
        (930, "opened", W, AWAY),
        (960, "closed", W, AWAY),
        (961, "closed", AWAY, None),
    )
    tables = tmp_path / "tables"
    found = find(tables, tables / "history", Wanted(id_, NOON + at * S), NOON + 10_000 * S)
    assert found.incident is not None
    assert (found.incident.message, found.incident.since) == (f"('{of}',) is stuck", NOON + since * S)
    assert [one.since for one in found.others] == [NOON + 900 * S, NOON + 290 * S][: 2 - (of == "v")]


@pytest.mark.parametrize(
    ("at", "anomaly", "since"),
    [(None, "cluster-unreachable", 340), (60, "stuck-producer", 0), (350, "cluster-unreachable", 340)],
)
def test_a_finding_that_was_told_alone_before_can_be_asked_for_as_it_was(
    tmp_path: Path, at: float | None, anomaly: str, since: float
) -> None:
    id_ = _two_spells_of_which_an_outage_explains_the_second(tmp_path)
    tables = tmp_path / "tables"
    wanted = Wanted(id_, None if at is None else NOON + at * S)
    found = find(tables, tables / "history", wanted, NOON + 10_000 * S)
    assert found.incident is not None
    assert (found.incident.anomaly, found.incident.since) == (anomaly, NOON + since * S)
    listed, _ = gather(tables, NOON + 10_000 * S, Filter(until=wanted.at))
    assert (anomaly, NOON + since * S) in {(one.anomaly, one.since) for one in listed.incidents}
    if at == 60:
        assert len(listed.incidents) == 1


@pytest.mark.parametrize(
    ("at", "anomaly", "since"),
    [(None, "stuck-producer", 400), (410, "stuck-producer", 400), (350, "cluster-unreachable", 340)],
)
def test_an_incident_that_began_again_without_what_it_is_named_after_is_what_its_id_leads_to(
    tmp_path: Path, at: float | None, anomaly: str, since: float
) -> None:
    """Pages have that id. What it is named after was part of an outage between the two."""
    id_ = _told(
        tmp_path,
        (300, "opened", W, None),
        (300, "opened", V, None),
        (320, "closed", W, None),
        (321, "closed", V, None),
        (340, "opened", AWAY, None),
        (345, "opened", W, AWAY),
        (360, "closed", W, AWAY),
        (361, "closed", AWAY, None),
        (400, "opened", V, None),
        (420, "closed", V, None),
    )
    tables = tmp_path / "tables"
    wanted = Wanted(id_, None if at is None else NOON + at * S)
    found = find(tables, tables / "history", wanted, NOON + 10_000 * S)
    assert found.incident is not None
    assert (found.incident.anomaly, found.incident.since) == (anomaly, NOON + since * S)


def test_an_outage_can_be_asked_for_by_the_time_that_it_is_told_to_have_begun(tmp_path: Path) -> None:
    """Which is before it was found."""
    away = {"since": micros(NOON + 900 * S)}
    for at, event in ((0, "opened"), (40, "closed"), (930, "opened"), (950, "closed")):
        told = finding("cluster-unreachable", (), event, at=at, evidence=away if at > 900 else {"since": micros(NOON)})  # type: ignore[arg-type]
        record(tmp_path, told)
    tables, asked_at = tmp_path / "tables", NOON + 901 * S
    (id_,) = {row["id"] for row in read_table(tables, "findings").to_pylist()}
    found = find(tables, tables / "history", Wanted(id_, asked_at), NOON + 10_000 * S)
    assert found.incident is not None
    assert found.incident.since == NOON + 930 * S
    listed, _ = gather(tables, NOON + 10_000 * S, Filter(since=asked_at, until=asked_at))
    assert [one.since for one in listed.incidents] == [NOON + 930 * S]


def test_of_many_findings_those_of_its_own_name_and_losses_are_shown() -> None:
    def row(anomaly: str, number: int) -> dict[str, Any]:
        return {"anomaly": anomaly, "id": number, "at": NOON + number * S}

    rows = [row("inconsistent-offsets", n) for n in range(400)]
    rows += [row("lost-write", n) for n in range(400, 412)] + [row("log-truncation", n) for n in range(412, 417)]
    found = Explained(incident(anomaly="log-truncation"), rows)
    assert [(one["anomaly"], one["id"]) for one in shown(found)] == [
        ("log-truncation", 412),
        ("lost-write", 400),
        ("inconsistent-offsets", 0),
        ("log-truncation", 413),
        ("lost-write", 401),
        ("inconsistent-offsets", 1),
        ("log-truncation", 414),
        ("lost-write", 402),
        ("inconsistent-offsets", 2),
        ("log-truncation", 415),
    ]
    assert shown(Explained(None, rows[:20])) == rows[:10], "in order, where all have one name"


@pytest.mark.parametrize(
    ("state", "evidence", "at"),
    [
        ("raised", "{}", 0),
        ("open", "{}", 600),
        ("closed", '{"lasted_s": 14.9}', 585.1),
        ("closed", "{}", 0),
    ],
)
def test_what_a_condition_tells_is_of_its_newest_spell(state: str, evidence: str, at: float) -> None:
    row = {"state": state, "evidence": evidence, "first_at": NOON, "at": NOON + 600 * S}
    assert began(row) == NOON + at * S


def test_a_probe_whose_name_stands_before_its_number_is_named_once() -> None:
    names = {7187767221400365440: "writer-five-1", 8234358752463397575: "west/transactions-1"}
    for said, told in (
        ("Writer-five-1 (process 7187767221400365440) reports", "Writer-five-1 reports"),
        ("process 7187767221400365440 went back", "writer-five-1 went back"),
        (
            "transactions-1 (process 8234358752463397575) of run west",
            "transactions-1 (west/transactions-1) of run west",
        ),
        ("value 7187767221400365440/3", "value writer-five-1:5440/3"),
    ):
        assert named(said, names) == told
