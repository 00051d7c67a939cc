"""The closing report: two numbers, a table, JSON and a page."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from monitor.drill import registry
from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.reporting import report
from monitor.errors import UserError
from tests.monitor.drill.made import one, result

FIRST = Drill(
    name="retry-without-idempotence",
    what="Something <b>happens</b>.",
    seen_in="a test",
    must=(found("duplicate"),),
    may=ORDER | {"lost-write"},
    play=Play,
)
AGAIN = replace(FIRST, case="again")
SILENT = Drill(name="baseline", what="Nothing happens.", seen_in="a test", play=Play)


def test_recall_counts_drills_and_alarms_count_findings() -> None:
    good = [result(FIRST, [one("duplicate")]), result(SILENT)]
    assert str(report.numbers(good)) == "recall 1 of 1, 0 false alarms"
    # A drill is recalled if each of its runs is; an alarm counts wherever it is.
    bad = [*good, result(AGAIN), result(SILENT, [one("G1a"), one("G1a", subject="o")])]
    numbers = report.numbers(bad)
    assert str(numbers) == "recall 0 of 1, 2 false alarms"
    assert numbers.failed == ("retry-without-idempotence/again", "baseline")


def test_a_report_is_written(tmp_path: Path) -> None:
    results = [result(FIRST, [one("duplicate", seen=2.0)]), result(SILENT, error="no cluster")]
    content, page = report.write(results, tmp_path / "into")
    told = json.loads(content.read_bytes())
    assert told["recall"] == {"found": 1, "of": 1}
    assert told["false_alarms"] == 0
    assert told["failed"] == ["baseline"]
    first = told["drills"][0]
    assert (first["may"], first["first_s"], first["found"]) == (["order", "lost-write"], 2.0, {"duplicate": 1})
    text = page.read_text()
    assert "Something &lt;b&gt;happens&lt;/b&gt;." in text and "duplicate &lt;here&gt;" in text
    assert "http" not in text.replace("http-equiv", ""), "the page needs nothing from elsewhere"
    assert "not performed: no cluster" in text


def test_ids_of_a_report_are_exact_wherever_they_are_read(tmp_path: Path) -> None:
    process = 2**60 + 1
    guilty = one("duplicate", evidence={"process": process, "places": [{"offset": 3, "writer": process}]})
    content, _ = report.write([result(FIRST, [guilty])], tmp_path)
    (told,) = json.loads(content.read_bytes())["drills"][0]["findings"]
    assert told["evidence"] == {"process": str(process), "places": [{"offset": 3, "writer": str(process)}]}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        report.write([], tmp_path / "file" / "below")


def test_the_table_shows_every_column() -> None:
    console = Console(width=240, record=True, file=io.StringIO())
    console.print(report.table([result(FIRST, [one("duplicate", seen=2.0)])]))
    text = console.export_text()
    for part in ("retry-without-idempotence", "duplicate", "order, lost-write", "2.0 s", "passed"):
        assert part in text


def test_drills_are_found_by_name_and_by_case() -> None:
    assert [drill.name for drill in registry.EVERY] == sorted(
        (d.name for d in registry.EVERY), key=registry.TABLE.index
    )
    assert len({drill.title for drill in registry.EVERY}) == len(registry.EVERY)
    assert all(drill.what and drill.seen_in for drill in registry.EVERY)
    assert [d.case for d in registry.chosen(["filtered-fetch"])] == ["from-the-first", "after-one", "a-groups-reader"]
    assert [d.title for d in registry.chosen(["filtered-fetch/after-one"])] == ["filtered-fetch/after-one"]


def test_every_drill_names_known_anomalies() -> None:
    from rules.vocabulary.catalogue import CATALOGUE

    for drill in registry.EVERY:
        named = {name for must in drill.must for name in must.names} | drill.may | drill.never
        assert named <= set(CATALOGUE), drill.title


def test_an_unknown_name_is_refused_with_a_hint() -> None:
    with pytest.raises(UserError, match=r"there is no drill stale-tial; did you mean stale-tail\?"):
        registry.chosen(["stale-tial"])
