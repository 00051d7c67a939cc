"""The pages as they are served: what is in them, and that nothing from a cluster is more than text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from alerts.incidents.incident import Incident
from alerts.receivers.alertmanager import Links
from monitor.status.runbook import sections
from rules.vocabulary.catalogue import CATALOGUE
from tests.alerts.incidents import incident
from tests.monitor.rows import finding, record
from tests.monitor.status.folder import EVIL, WRITER, lost_write
from tests.monitor.status.serving import Monitor, Served, served, state

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Its elements, by name: attributes and the text within. Fails where one is not closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("data")
    return folder, lost_write(folder).id


@pytest.fixture(scope="module")
def one(data: tuple[Path, str]) -> Incident:
    return incident(data[1], message=f"value {WRITER}/6 is lost")


@pytest.fixture(scope="module")
def page(data: tuple[Path, str], one: Incident) -> Iterator[Served]:
    monitor = Monitor(incidents=[one], not_ready=None)
    with served(monitor.board(state(3), state(4)), data[0] / "tables") as made:
        yield made


def test_what_stands_now(page: Served, one: Incident) -> None:
    got = Page(page.get("/", Accept="text/html").text)
    assert got.words.index("1 incident open: lost-write in orders/3, critical") < 200, "it is read first"
    cells = [a for a in got.all("a") if "cell" in (a.get("class") or "")]
    assert [(a["href"], a["aria-label"]) for a in cells] == [
        (
            f"/incidents/{one.id}",
            "orders partition 3: critical; lost-write since 12:00:00 UTC; checked through 11:59:59 UTC",
        ),
        ("#row-1-1-4", "orders partition 4: healthy; checked through 11:59:59 UTC"),
    ]
    assert {a["id"] for a in got.all("tr") if "id" in a} == {"row-1-1-3", "row-1-1-4"}
    assert got.all("html")[0]["lang"] == "en"
    assert got.all("a")[0]["href"] == "#content"
    assert {"http-equiv": "refresh", "content": "10"} in got.all("meta"), "without the script"


def test_the_part_that_is_refreshed_is_the_part_of_the_page(page: Served) -> None:
    whole = page.get("/").text
    part = page.get("/fragments/overview").text
    assert part.startswith('<div id="live"')
    assert part.strip() in whole


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_inline(page: Served, data: tuple[Path, str]) -> None:
    for path in ("/", f"/incidents/{data[1]}"):
        got = Page(page.get(path, Accept="text/html").text)
        assert [a.get("src") for a in got.all("script")] == (["/static/page.js"] if path == "/" else [])
        assert got.all("style") == []
        for tag, attributes in got.elements:
            assert "style" not in attributes and not any(name.startswith("on") for name in attributes), tag
            for name in ("src", "href", "action"):
                assert (attributes.get(name) or "/").startswith(("/", "#", "data:,")), attributes
    for asset in ("/static/page.css", "/static/page.js"):
        assert not re.search(r"https?://|url\(|@import|innerHTML|eval\(", page.get(asset).text)


def test_the_evidence_of_an_incident(page: Served, data: tuple[Path, str]) -> None:
    got = Page(page.get(f"/incidents/{data[1]}", Accept="text/html").text)
    for words in (
        "lost-write in orders/3",
        "critical, open, since 2024-10-04 12:00:00 UTC",
        "Value transactions-1:3680/6 of transactions-1 was passed by reader-2.",
        CATALOGUE["lost-write"].meaning,
        "note partition and offset; look in the brokers' logs",
        "sent 4 records to offsets 100 to 103 in a transaction of transactions-1; asked to commit it at 12:00:00.050",
        "reader-2 polled from offset 100 to 104, and was given 1 record; it went past offset 101",
        "101 transactions-1/6 transactions-1 reader-1 reader-2",
        f"offsetwatch explain {data[1][:6]}",
    ):
        assert words in got.words, words
    assert len(got.all("svg")) == 1
    assert [a["class"] for a in got.all("tr") if a.get("class")] == ["focus"]


def test_an_id_may_be_cut_and_what_is_not_there_is_named(page: Served, data: tuple[Path, str]) -> None:
    assert page.get(f"/incidents/{data[1][:6]}").status == 200
    got = page.get("/incidents/ffffffffffff")
    assert (got.status, got.text.splitlines()) == (
        404,
        ["no finding and no incident has the id ffffffffffff: offsetwatch findings lists them"],
    )
    evil = page.get("/incidents/%3Cscript%3Ealert(1)%3C%2Fscript%3E", Accept="text/html")
    assert evil.status == 404 and "<script>alert" not in evil.text


def test_an_incident_that_could_not_be_written_yet_is_told_all_the_same(data: tuple[Path, str]) -> None:
    """The page of one comes while the disk is full: its link must not lead to an id that nobody knows."""
    told = incident("0123456789abcdef", message="Nothing is being checked: No space left on device.")
    with served(Monitor(incidents=[told]).board(state(3)), data[0] / "tables") as page:
        got = page.get("/incidents/012345")
        assert got.status == 503
        assert "Nothing is being checked: No space left on device." in got.text
        assert "Its evidence is not in the tables yet" in got.text
        assert page.get("/incidents/ffffff").status == 404 and page.get("/incidents/0").status == 404


def test_alerts_link_to_the_incident_where_it_is(page: Served, one: Incident) -> None:
    for configured in (page.url, f"{page.url}/"):
        link = Links(page=configured).of(one)["dashboard"]
        assert page.get(link.removeprefix(page.url), Accept="text/html").status == 200


def test_for_programs(page: Served, one: Incident) -> None:
    told = json.loads(page.get("/status").text)
    assert (told["state"], [found["id"] for found in told["incidents"]]) == ("critical", [one.id])
    families = list(text_string_to_metric_families(page.get("/metrics").text))
    assert [sample.value for family in families for sample in family.samples] == [42]
    assert page.get("/metrics?name[]=another").text == ""
    openmetrics = page.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.text.endswith("# EOF\n")


def test_live_and_ready(tmp_path: Path) -> None:
    monitor = Monitor(not_ready="starting: blind since 12:00:05 UTC")
    with served(monitor.board(), tmp_path) as made:
        assert [made.get(path).status for path in ("/live", "/ready")] == [200, 503]
        assert made.get("/ready").text == "starting: blind since 12:00:05 UTC\n"
        assert "Nothing has been checked yet" in made.get("/").text
        monitor.not_ready = None
        assert made.get("/ready").text == "ok\n"


def test_whatever_a_cluster_calls_things_is_text(tmp_path: Path) -> None:
    found = lost_write(tmp_path, name=EVIL, topic=EVIL)
    evil = incident(found.id, message=EVIL, topic=EVIL, cluster=EVIL, subjects=(f"{EVIL}/3",), anomaly="lost-write")
    board = Monitor(incidents=[evil]).board(
        state(3, topic=EVIL, cluster=EVIL, check_failed=EVIL), state(4, topic="javascript:alert(1)", cluster="c")
    )
    with served(board, tmp_path / "tables") as made:
        for path in ("/", "/fragments/overview", f"/incidents/{found.id}"):
            text = made.get(path, Accept="text/html").text
            got = Page(text)
            assert EVIL in "".join(got.text), path
            assert {a.get("src") for a in got.all("script")} <= {"/static/page.js"}
            assert got.all("img") == []
            assert "javascript:" not in {str(a.get("href"))[:11] for a in got.all("a")}
        assert made.get("/status").headers["content-type"].startswith("application/json")


def test_an_incident_about_no_record_has_its_evidence_alone(tmp_path: Path) -> None:
    stuck = finding("cluster-unreachable", (), "opened", topic="", topic_id="", partition=-1, evidence={"brokers": [1]})
    record(tmp_path, stuck)
    with served(Monitor().board(), tmp_path / "tables") as made:
        got = Page(made.get(f"/incidents/{stuck.id}", Accept="text/html").text)
    assert "cluster-unreachable in cluster c" in got.words
    assert "brokers [1]" in got.words
    assert got.all("svg") == []


def test_evidence_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    found = lost_write(tmp_path)
    for file in (tmp_path / "tables" / "history").rglob("*.parquet"):
        file.unlink()
    with served(Monitor().board(), tmp_path / "tables") as made:
        got = made.get(f"/incidents/{found.id}", Accept="text/html")
        assert got.status == 503
        assert "The evidence cannot be read right now: The probe log in" in got.text
        assert made.get("/").status == 200


def test_a_page_that_fails_says_so_and_keeps_its_headers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(now: object) -> list[Incident]:
        raise RuntimeError("a fault of ours")

    board = Monitor().board()
    board._standing = broken
    with served(board, tmp_path) as made:
        got = made.get("/")
    assert (got.status, "a fault of ours" in got.text) == (500, False)
    assert got.text == "This page has failed; the monitor's log says how. The checks go on.\n"
    assert "content-security-policy" in got.headers
    told = [one.getMessage() for one in caplog.records if one.name == "monitor.status.app"]
    assert told == ["the page / failed: RuntimeError: a fault of ours"]


def test_every_anomaly_has_something_to_do() -> None:
    told = sections()
    assert {name for name, entry in CATALOGUE.items() if entry.kind != "classified"} <= set(told)
    assert [part.kind for part in told["int-poll-skip"][0]] == ["prose", "see", "prose"]
    assert all(part.text for paragraphs in told.values() for one in paragraphs for part in one)
    assert sections(Path("/no/such/file")) == {}
