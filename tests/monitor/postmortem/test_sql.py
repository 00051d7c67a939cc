"""`offsetwatch sql`: views and ready queries over a history whose every row is known, and what it refuses to do."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from monitor.errors import UserError
from monitor.postmortem.answer_text import lines, write_csv, write_json
from monitor.postmortem.database import DESCRIBED, Database, Sources
from monitor.postmortem.figures import figures
from monitor.postmortem.past import version_at
from monitor.postmortem.ready_queries import parsed, ready_queries, ready_query
from rules.vocabulary.slices import Run
from tests.monitor.commands import COMMAND, environment, offsetwatch
from tests.monitor.postmortem.histories import (
    OBSERVER,
    OPERATIONS,
    READ,
    READER,
    STARTS,
    TRANSACTIONAL,
    TXN,
    WRITER,
    S,
    row,
    write,
)
from tests.monitor.rows import NOON, finding, record


def sources(data: Path, **more: Any) -> Sources:
    given: dict[str, Any] = {"tables": data / "tables", "history": data / "tables" / "history", "now": NOON + 60 * S}
    return Sources(**(given | more))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql")
    write(folder, *STARTS, *OPERATIONS)
    record(folder, finding("lost-write", (WRITER, 9), at=20, evidence={"writer": WRITER, "seq": 9, "offset": 109}))
    return folder


@pytest.fixture(scope="module")
def database(data: Path) -> Iterator[Database]:
    with Database(sources(data)) as opened:
        yield opened


@pytest.mark.parametrize("of", ["this version", "an earlier version"])
def test_a_table_whose_log_has_a_checkpoint_is_asked_by_any_column(data: Path, tmp_path: Path, of: str) -> None:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    table = tmp_path / "tables" / "findings"
    if of == "an earlier version":
        first = table / "_delta_log" / f"{0:020}.json"
        told, taken = re.subn(r'"delta\.dataSkippingStatsColumns":"[^"]*",?', "", first.read_text())
        assert taken == 1
        first.write_text(told.replace('",}', '"}'))
    DeltaTable(table).create_checkpoint()
    with Database(sources(tmp_path)) as opened:
        for where in (
            "severity = 'critical'",
            "anomaly = 'lost-write'",
            "partition = 3",
            "batch is null",
            "severity <> 'info'",
            "\"at\" > timestamptz '2020-01-01'",
            "decidable is not null",
            "implied_by is null",
            "recorded is not null",
        ):
            assert list(opened.run(f"select anomaly from findings where {where}")) == [("lost-write",)], where
        assert list(opened.run("select anomaly from findings where severity = 'info'")) == []


def answer(database: Database, name: str, **parameters: str) -> list[dict[str, Any]]:
    query = ready_query(name)
    rows = database.run(query.text, query.values(parameters))
    return [dict(zip(rows.columns, one, strict=True)) for one in rows]


def at(seconds: float) -> datetime:
    return NOON + seconds * S


EXPECTED: dict[str, tuple[dict[str, str], list[dict[str, Any]]]] = {
    "lost": (
        {},
        [
            {
                "place": "t/3",
                "offset": 109,
                "value": "writer-1:1519/9",
                "acknowledged": at(0.1),
                "txn": None,
                "how": "passed",
                "gone_by": None,
                "passed_by": 1,
                "first_passed": at(2.1),
            }
        ],
    ),
    "offset": (
        {"offset": "104", "partition": "3"},
        [
            {
                "time": at(0.1),
                "client": "writer-1",
                "did": "sent it",
                "value": "writer-1:1519/4",
                "type": "ok",
                "error": None,
                "from": 100,
                "to": 109,
                "isolation": None,
                "topic": "t",
            },
            {
                "time": at(2.1),
                "client": "reader-1",
                "did": "was given it",
                "value": "writer-1:1519/4",
                "type": "ok",
                "error": None,
                "from": 100,
                "to": 108,
                "isolation": "read_committed",
                "topic": "t",
            },
            {
                "time": at(3.1),
                "client": "reader-2",
                "did": "went past it",
                "value": None,
                "type": "ok",
                "error": None,
                "from": 100,
                "to": 104,
                "isolation": "read_committed",
                "topic": "t",
            },
        ],
    ),
    "indefinite": (
        {},
        [
            {
                "began": at(1),
                "client": "transactions-1",
                "transactional_id": "tx-1",
                "txn": TXN,
                "asked_for": "commit",
                "asked_at": at(1.05),
                "given_up_at": at(1.1),
                "error": "_TIMED_OUT",
                "places": "t/3",
                "sent_records": 3,
                "became": "not known",
            }
        ],
    ),
    "duplicates": ({}, []),
    "who": (
        {"writer": "writer-1", "seq": "8"},
        [
            {
                "time": at(0.1),
                "client": "writer-1",
                "did": "sent",
                "place": "t/3",
                "offset": 108,
                "type": "ok",
                "error": None,
                "txn": None,
                "isolation": None,
            },
            {
                "time": at(2.1),
                "client": "reader-1",
                "did": "polled",
                "place": "t/3",
                "offset": 108,
                "type": "ok",
                "error": None,
                "txn": None,
                "isolation": "read_committed",
            },
            {
                "time": at(4.1),
                "client": "reader-2",
                "did": "polled",
                "place": "t/3",
                "offset": 108,
                "type": "ok",
                "error": None,
                "txn": None,
                "isolation": "read_committed",
            },
        ],
    ),
    "moves": (
        {},
        [
            {
                "time": at(4),
                "client": "reader-2",
                "place": "t/3",
                "moved": "skipped",
                "from": 105,
                "to": 108,
                "rebalanced": None,
            }
        ],
    ),
    "errors": (
        {},
        [
            {
                "minute": at(0),
                "client": "observer",
                "f": "offsets",
                "type": "info",
                "error": "_TIMED_OUT",
                "operations": 1,
            },
            {
                "minute": at(0),
                "client": "transactions-1",
                "f": "txn",
                "type": "info",
                "error": "_TIMED_OUT",
                "operations": 1,
            },
        ],
    ),
    "latency": (
        {},
        [
            {"minute": at(0), "f": "send", "operations": 1, "failed": 0, "p50_ms": 100, "p99_ms": 100, "max_ms": 100},
            {"minute": at(0), "f": "txn", "operations": 1, "failed": 1, "p50_ms": 100, "p99_ms": 100, "max_ms": 100},
        ],
    ),
    "silent": (
        {},
        [
            {
                "time": at(6),
                "silent_brokers": "2",
                "brokers": "1,2,3",
                "error": "_TIMED_OUT",
                "partitions_unanswered": 1,
            }
        ],
    ),
}


@pytest.mark.parametrize("name", sorted(ready_queries()))
def test_each_ready_query_answers_what_it_says(database: Database, name: str) -> None:
    parameters, expected = EXPECTED[name]
    found = answer(database, name, **parameters)
    if name == "errors":
        found.sort(key=lambda one: one["client"])
    assert found == expected
    assert answer(database, name, **(parameters | {"topic": "another"})) == []


def test_a_write_is_counted_once_and_an_abort_that_was_asked_for_is_no_failure(tmp_path: Path) -> None:
    both = [("t", 3), ("t", 4)]
    aborted = {"type": "fail", "txn": 1, "transactional_id": "tx-1", "txn_intent": "abort", "txn_partitions": both}
    failed = aborted | {"txn": 2, "txn_intent": "commit", "error": "_FAIL"}
    written = [
        row("txn", TRANSACTIONAL, at, partition=partition, slice=partition, **told)
        for at, told in ((10, aborted), (20, failed))
        for _, partition in both
    ]
    late = row("txn", TRANSACTIONAL, 20, partition=5, completed=NOON + 24 * S, **failed)
    write(tmp_path, *STARTS, *OPERATIONS, *written, late)
    with Database(sources(tmp_path)) as database:
        (_, told) = answer(database, "latency")
        of = figures(database, NOON, NOON + 60 * S)
        writes = database.run("select places, took_ms from writes where txn = 2")
        assert list(writes) == [(["t/3", "t/4", "t/5"], 4_000)]
    assert told == {
        "minute": at(0),
        "f": "txn",
        "operations": 3,
        "failed": 2,
        "p50_ms": 100,
        "p99_ms": 3922,
        "max_ms": 4000,
    }
    assert (of.operations, of.not_ok) == (1 + told["operations"], told["failed"]), "as the report counts them"
    (available,) = (one.points for one in of.availability if one.name == "txn")
    assert [value for _, value in available if value is not None] == [0, 100, 0], (
        "one indefinite, one aborted as asked for, one failed"
    )


def test_a_value_that_stands_twice(tmp_path: Path) -> None:
    twice = row("poll", READER, 9, polled=[*OPERATIONS[2].polled[:1], OPERATIONS[0].sent[0]._replace(offset=200)])
    write(tmp_path, *STARTS, *OPERATIONS, twice)
    with Database(sources(tmp_path)) as database:
        found = answer(database, "duplicates")
    assert {one["value"] for one in found} == {f"writer-1:1519/{seq}" for seq in range(10)}
    nine = next(one for one in found if one["value"].endswith("/9"))
    assert (nine["offsets"], nine["sent_by"], nine["given_to"]) == ([109, 209], ["writer-1"], ["reader-1"])


def test_where_probes_of_several_runs_work_each_client_says_of_which(tmp_path: Path) -> None:
    other = row("start", READER + 1, -60, run="west", kind="reader", settings={"name": "reader-1"})
    given = row("poll", READER + 1, 9, run="west", polled=[Run(WRITER, 8, 108, 1)], **READ)
    write(tmp_path, *STARTS, *OPERATIONS, other, given)
    with Database(sources(tmp_path)) as database:
        told = [(one["client"], one["did"]) for one in answer(database, "who", writer="writer-1", seq="8")]
    assert told == [
        ("writer-1 of r", "sent"),
        ("reader-1 of r", "polled"),
        ("reader-2 of r", "polled"),
        ("reader-1 of west", "polled"),
    ]


def test_one_row_a_record(database: Database) -> None:
    rows = database.run(
        'select "offset", value, did, client, type from records where seq = 1 order by invoked, "offset"'
    )
    assert list(rows) == [
        (101, "writer-1:1519/1", "sent", "writer-1", "ok"),
        (111, "transactions-1:1515/1", "sent", "transactions-1", "info"),
        (101, "writer-1:1519/1", "polled", "reader-1", "ok"),
        (111, "transactions-1:1515/1", "polled", "reader-1", "ok"),
        (101, "writer-1:1519/1", "polled", "reader-2", "ok"),
    ]


@pytest.mark.parametrize(
    ("listed", "passed", "lost"),
    [
        ([(20, 0), (30, 107)], 10, [105, 106]),
        ([(20, 0), (30, 107)], 25, []),
        ([(30, 107)], 10, []),
        ([(30, 106)], 10, [106]),
        ([(20, 0), (30, 0)], 25, [105, 106]),
        ([(20, 0)], 25, [105, 106]),
        ([], 10, [105, 106]),
    ],
    ids=str,
)
def test_what_was_deleted_before_anybody_went_past_is_not_lost(
    tmp_path: Path, listed: list[tuple[int, int]], passed: int, lost: list[int]
) -> None:
    """`listed`: when the log's start was listed, and where it was then. Who goes past what is no more skips nothing;
    that it was there still is known by a listing that was made after the pass."""
    rows = [
        row("send", WRITER, 1, sent=[Run(WRITER, 0, 105, 2)]),
        row("poll", READER, passed, polled=[Run(WRITER, 2, 107, 1)], position_before=105, position_after=108, **READ),
        *(row("offsets", OBSERVER, at, log_start=start, log_end=108, last_stable=108) for at, start in listed),
    ]
    write(tmp_path, *STARTS, *rows)
    with Database(sources(tmp_path)) as opened:
        told = [(one["offset"], one["how"]) for one in answer(opened, "lost")]
    assert told == [(offset, "passed") for offset in lost]


@pytest.mark.parametrize("listed", [15.0, 10.1, 9.95, 9.0], ids=str)
def test_what_a_truncation_took_away_is_lost_although_it_was_given_to_readers(tmp_path: Path, listed: float) -> None:
    """Who was given it before the log was cut has it; what stands there since is not lost, nor what stood below. The
    log's end was listed before it was written again, or after that."""
    again = [
        row("send", WRITER, 10, sent=[Run(WRITER, 10, 107, 1)]),
        row("send", WRITER, 11, sent=[Run(WRITER, 11, 108, 4)]),
        row("poll", READER, 12, polled=[Run(WRITER, 10, 107, 5)], position_before=107, position_after=112, **READ),
    ]
    write(tmp_path, *STARTS, *OPERATIONS, *again)
    evidence = {"log_end": 107, "known": 109, "written_again": 107}
    record(tmp_path, finding("log-truncation", (109,), at=listed, evidence=evidence))
    with Database(sources(tmp_path)) as opened:
        told = [(one["offset"], one["value"], one["how"], one["gone_by"]) for one in answer(opened, "lost")]
    assert told == [(107 + i, f"writer-1:1519/{7 + i}", "cut off", at(10)) for i in range(3)]


def test_a_log_that_was_written_again_by_an_aborted_transaction_alone_was_cut_all_the_same(tmp_path: Path) -> None:
    aborted = {"type": "fail", "error": "_ABORTED", "txn": 7, "txn_intent": "abort"}
    again = row("txn", TRANSACTIONAL, 10, sent=[Run(TRANSACTIONAL, 3, 107, 3)], **aborted)
    write(tmp_path, *STARTS, *OPERATIONS, again)
    evidence = {"log_end": 107, "known": 109, "written_again": 107}
    record(tmp_path, finding("log-truncation", (109,), at=9.0, evidence=evidence))
    with Database(sources(tmp_path)) as opened:
        told = [(one["offset"], one["value"], one["how"], one["gone_by"]) for one in answer(opened, "lost")]
    assert told == [(107 + i, f"writer-1:1519/{7 + i}", "cut off", at(10)) for i in range(3)]


@pytest.mark.parametrize(("seen_again", "gone_again"), [(False, False), (True, False), (True, True)])
def test_what_vanished_is_lost_since_the_last_that_was_given_it(
    tmp_path: Path, seen_again: bool, gone_again: bool
) -> None:
    """A broker may hide from one reader what others are given."""
    evidence = {
        "writer": WRITER,
        "seq": 5,
        "offset": 105,
        "process": READER,
        "op": 2,
        "passed_process": READER,
        "passed_op": 7,
        "apart_s": 3.0,
    }
    passed = row("poll", READER, 5, op=7, polled=[], position_before=100, position_after=108, **READ)
    more = [row("poll", READER, 12, polled=[Run(WRITER, 5, 105, 1)], **READ)] if seen_again else []
    if gone_again:
        more.append(row("poll", READER, 15, op=9, polled=[], position_before=100, position_after=108, **READ))
    write(tmp_path, *STARTS, *OPERATIONS, passed, *more)
    record(tmp_path, finding("vanished-record", (105, WRITER, 5), at=5.1, evidence=evidence))
    with Database(sources(tmp_path)) as opened:
        told = [one for one in answer(opened, "lost") if one["offset"] == 105]
    assert [(one["value"], one["how"], one["gone_by"]) for one in told] == (
        [] if seen_again != gone_again else [("writer-1:1519/5", "vanished", at(15.1 if gone_again else 5.1))]
    )


@pytest.mark.parametrize(
    ("polled", "how"),
    [
        ([Run(WRITER, 10, 107, 5)], ["overwritten"] * 3),
        ([Run(WRITER, 10, 107, 5), Run(WRITER, 7, 112, 2)], ["overwritten"]),  # two of them stand elsewhere
        ([Run(WRITER, 13, 110, 2)], ["passed"]),  # nobody has seen that something else is there
    ],
)
def test_what_was_written_over_is_lost_where_nobody_listed_an_end_between(
    tmp_path: Path, polled: list[Run], how: list[str]
) -> None:
    again = [
        row("send", WRITER, 10, sent=[Run(WRITER, 10, 107, 5)]),
        row("poll", READER, 12, polled=polled, position_before=polled[0].offset, position_after=112, **READ),
    ]
    write(tmp_path, *STARTS, *OPERATIONS, *again)
    with Database(sources(tmp_path)) as opened:
        told = [(one["offset"], one["value"], one["how"], one["gone_by"]) for one in answer(opened, "lost")]
    gone_by = None if how == ["passed"] else at(10)
    assert told == [(110 - i, f"writer-1:1519/{10 - i}", how[0], gone_by) for i in range(len(how), 0, -1)]


def test_an_incident_that_came_back_tells_of_each_time(tmp_path: Path) -> None:
    """Of five outages of a cluster within minutes, the last alone could be asked for."""
    write(tmp_path, *STARTS, *OPERATIONS)
    where: dict[str, Any] = {"topic": "", "partition": -1, "evidence": {"brokers": [1]}}
    for start in (0, 100, 200):
        record(tmp_path, finding("cluster-unreachable", (), "opened", at=start, **where))
        record(tmp_path, finding("cluster-unreachable", (), "closed", at=start + 40, **where))
    with Database(sources(tmp_path, now=NOON + 600 * S)) as opened:
        ((since, until, spells),) = opened.run("select since, until, spells from incidents")
    assert [(one["since"], one["until"]) for one in spells] == [(at(100 * i), at(100 * i + 40)) for i in range(3)]
    assert (since, until) == (at(200), at(240))


def test_incidents_are_those_of_the_findings(database: Database) -> None:
    rows = database.run("select anomaly, state, place, findings from incidents")
    assert list(rows) == [("lost-write", "open", "t/3", 1)]
    assert list(database.run("select anomaly, state from current_findings")) == [("lost-write", "raised")]


def test_every_table_is_described_and_can_be_read(database: Database) -> None:
    for name, about in DESCRIBED.items():
        assert about.endswith("."), name
        list(database.run(f"select * from {name} limit 1"))


def test_only_operations_in_between_are_read(data: Path) -> None:
    with Database(sources(data, since=at(2), until=at(3.05))) as database:
        assert list(database.run("select f, client from operations")) == [("poll", "reader-1")]


@pytest.mark.parametrize(
    "question",
    [
        "copy (select 1) to '{folder}/written.csv'",
        "attach '{folder}/written.db'",
        "export database '{folder}/written'",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('{folder}/secret')",
        "select * from '{folder}/secret'",
        "select * from glob('{folder}/*')",
        "install httpfs",
        "load '{folder}/secret'",
        "set enable_external_access = true",
        "reset lock_configuration",
        "pragma profile_output = '{folder}/written'",
        "select getenv('HOME')",
        "create persistent secret s (type s3)",
    ],
)
def test_nothing_can_be_written_or_read_beside_the_tables(database: Database, tmp_path: Path, question: str) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(UserError):
        list(database.run(question.format(folder=tmp_path)))
    assert [one.name for one in tmp_path.iterdir()] == ["secret"]


def test_the_tables_cannot_be_changed(database: Database, data: Path) -> None:
    before = version_at(data / "tables" / "history", datetime.now(UTC))
    for question in ("delete from history", "insert into findings select * from findings", "drop table history"):
        with pytest.raises(UserError):
            list(database.run(question))
    assert version_at(data / "tables" / "history", datetime.now(UTC)) == before


def test_a_question_that_takes_too_much_memory_is_refused(data: Path) -> None:
    greedy = "select list(i) from range(200000000) t(i)"
    with Database(sources(data, memory="50MB")) as database, pytest.raises(UserError, match="more memory"):
        list(database.run(greedy))


@pytest.mark.parametrize("memory", ["lots", "1", "-1", "0GB", ""])
def test_memory_is_a_size(data: Path, memory: str) -> None:
    with pytest.raises(UserError, match=f"^--memory {memory}: this is no size like 500MB or 2GB$"):
        Database(sources(data, memory=memory))


@pytest.mark.parametrize("question", ["", "  ", ";", "-- nothing"])
def test_an_empty_question_is_refused(database: Database, question: str) -> None:
    with pytest.raises(UserError, match="the question is empty"):
        database.run(question)


def test_a_column_that_is_a_word_of_sql_is_said_to_want_quotes(database: Database) -> None:
    with pytest.raises(
        UserError, match=r'^Parser Error: .* \(a name that SQL takes .* the column "at", stands in double'
    ):
        database.run("select at, anomaly from findings")
    assert list(database.run('select "at", anomaly from findings')) is not None


def test_the_tables_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, *STARTS, OPERATIONS[0])
    first = datetime.now(UTC)
    write(tmp_path, *OPERATIONS[1:])
    with Database(sources(tmp_path, at=first)) as database:
        assert list(database.run("select count(*) from operations where f <> 'start'")) == [(1,)]
    with Database(sources(tmp_path)) as database:
        assert list(database.run("select count(*) from operations where f <> 'start'")) == [(len(OPERATIONS),)]
    with pytest.raises(UserError, match=r"the table history is not kept as it was at .*: its first version is of"):
        Database(sources(tmp_path, at=first - timedelta(days=1)))


def test_questions_that_cannot_be_answered_are_one_line(database: Database) -> None:
    with pytest.raises(UserError, match=r"^Catalog Error: Table with name nothing does not exist") as raised:
        database.run("select * from nothing")
    assert "\n" not in str(raised.value)


def test_parameters() -> None:
    query = parsed("q", "-- What it answers,\n-- in short.\n-- $a: the one\n-- $b = %: the other\nselect $a, $b\n")
    assert (query.about, query.usage) == ("What it answers, in short.", "q a=... [b=%]")
    assert query.values({"a": "1"}) == {"a": "1", "b": "%"}
    with pytest.raises(UserError, match="needs a, the one"):
        query.values({"b": "1"})
    with pytest.raises(UserError, match="has no parameter c"):
        query.values({"a": "1", "c": "1"})
    with pytest.raises(UserError, match="did you mean lost"):
        ready_query("lots")


def test_a_table_where_there_is_room_and_blocks_where_there_is_none(database: Database) -> None:
    question = "select timestamptz '2026-01-01 12:00:00.5+00' as time, 7 as n, 'a b' as words, null as nothing"
    assert list(lines(database.run(question), 80)) == [
        "time                     n  words",
        "───────────────────────  ─  ─────",
        "2026-01-01 12:00:00.500  7  a b",
    ]
    assert list(lines(database.run(question), 30)) == [
        "times of 2026-01-01, UTC",
        "time          n  words",
        "────────────  ─  ─────",
        "12:00:00.500  7  a b",
    ]
    assert list(lines(database.run(question), 20)) == [
        "times of 2026-01-01, UTC",
        "─ 1 ────────────────",
        "time   12:00:00.500",
        "n      7",
        "words  a b",
    ]
    assert list(lines(database.run("select 1 where false"), 80)) == ["no rows"]
    assert "the first 2 rows" in list(lines(database.run("select * from range(3)"), 80, limit=2))[-1]


def test_programs_are_given_all_rows_and_whole_numbers(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(database.run("select 9007199254740993 as id, [1] as l, now() is not null as t"))
    assert json.loads(capsys.readouterr().out) == {"id": "9007199254740993", "l": [1], "t": True}
    write_json(database.run("select 1 / 0 as a, ['nan'::double, 1.5::double] as b"))
    told = capsys.readouterr().out
    assert json.loads(told, parse_constant=pytest.fail) == {"a": "Infinity", "b": ["NaN", 1.5]}
    write_csv(database.run("select i, {'a': i} as s from range(2001) t(i)"))
    lines = capsys.readouterr().out.splitlines()
    assert (lines[:2], len(lines)) == (["i,s", '0,"{""a"": 0}"'], 2002)


def test_a_spreadsheet_is_given_no_formula(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(
        database.run(
            "select '=1+1' as a, '+1' as b, '-x' as c, '@x' as d, chr(9) || '=1' as e, -5 as f, -0.5::double as g, "
            "'a=b' as h, timestamptz '2026-01-01 12:00:00+00' as i, ['-'] as j"
        )
    )
    _, row = csv.reader(io.StringIO(capsys.readouterr().out))
    assert row == ["'=1+1", "'+1", "'-x", "'@x", "'\t=1", "-5", "-0.5", "a=b", "2026-01-01T12:00:00Z", '["-"]']


def test_the_command(data: Path, tmp_path: Path) -> None:
    where = ("--data", str(data))
    done = offsetwatch("sql", *where, "--query", "lost", "--json", "--param", "topic=t", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["offset"]) == (0, 109), done.stderr
    whens = [("--as-of", when, "select 1") for when in ("1999-01-01", "2999-01-01")]
    of_offset = ("--query", "offset", "--param", "offset=x", "--param", "partition=0")
    done = offsetwatch("sql", *where, *of_offset, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "offsetwatch: --param offset=x: this is no whole number\n")
    for bad in (("select",), ("select $a::int",), ("--query", "lots"), ("--param", "a=1"), *whens, ("",)):
        done = offsetwatch("sql", *where, *bad, cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert offsetwatch("sql", "--data", str(tmp_path / "none"), "select 1", cwd=tmp_path).returncode == 2


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    history = write(tmp_path, *STARTS, *OPERATIONS)
    (file,) = history.rglob("*.parquet")
    file.unlink()
    with pytest.raises(UserError) as refused, Database(sources(tmp_path)) as opened:
        opened.run("select count(*) from history where op = 1")
    said = str(refused.value)
    assert said.startswith("a table cannot be read: ") and said.count(file.name) == 1
    assert "[31m" not in said and "\n" not in said, said


@pytest.mark.long
def test_the_prompt(data: Path, tmp_path: Path) -> None:
    typed = (
        "select wrong;\n.queries\n.tables\nselect count(*) as n\nfrom incidents;\n.run who seq=8 writer=writer-1\n"
        ".x\n.quit\n"
    )
    done = subprocess.run(
        [*COMMAND, "sql", "--data", str(data)],
        input=typed,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "offsetwatch: Binder Error" in done.stdout and "Ctrl-D" in done.stdout
    assert "\nn\n─\n1\n" in done.stdout and "reader-2" in done.stdout
    assert all(name in done.stdout for name in (*ready_queries(), *DESCRIBED))


def test_a_run_with_numbers_that_no_probe_gives_stops_no_figure(tmp_path: Path) -> None:
    """The row was rejected; others are there."""
    poison = row("poll", READER, 7, polled=[Run(WRITER, 2**63 - 1, 113, 1), Run(WRITER, -3, 114, 1)], **READ)
    write(tmp_path, *STARTS, *OPERATIONS, poison)
    with Database(sources(tmp_path)) as opened:
        assert figures(opened, NOON, NOON + 60 * S) is not None
        (seqs,) = opened.run("select min(seq), max(seq) from records")
    assert seqs == (0, 9)


@pytest.mark.long
def test_a_terminal_that_knows_no_lines_gets_the_rest(data: Path) -> None:
    asked = ["sql", "--data", str(data), "select severity from findings"]
    done = subprocess.run(
        [*COMMAND, *asked], env=environment({"PYTHONIOENCODING": "ascii"}), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["severity", "????????", "critical"]
