"""The status page in a real browser: live, old, without scripts, by keyboard, narrow, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from monitor.status.app import FOLDER
from monitor.status.board import Board
from tests.alerts.incidents import incident
from tests.monitor.status.chromium import Chromium, chromium, needs_chromium
from tests.monitor.status.folder import EVIL, lost_write
from tests.monitor.status.serving import Monitor, S, served, state

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("chromium")) as made:
        yield made


def board(monitor: Monitor, partitions: int = 12) -> Board:
    rows = [state(n, topic=topic) for topic in ("orders", "payments") for n in range(partitions)]
    return monitor.board(*rows)


def headline(browser: Chromium) -> str:
    return str(browser.value("document.querySelector('h1').textContent"))


def test_it_is_live_and_announces_what_changes(browser: Chromium, tmp_path: Path) -> None:
    monitor = Monitor()
    with served(board(monitor), tmp_path) as page:
        browser.look()
        browser.said.clear()
        browser.open(f"{page.url}/")
        assert headline(browser).startswith("Everything healthy, checked through 11:59:59 UTC, 1.0 s ago")
        assert browser.value("document.title") == "healthy – Offsetwatch"
        browser.value(
            "document.getElementById('cell-1-2-7').focus(); document.getElementById('all-partitions').open = true"
        )
        monitor.incidents.append(incident())
        monitor.now += 2 * S
        browser.until(lambda: headline(browser).startswith("1 incident open: lost-write in orders/3, critical"))
        assert browser.value("document.title") == "critical – Offsetwatch"
        assert "1 incident open" in browser.value("document.getElementById('announce').textContent")
        assert browser.value("document.activeElement.id") == "cell-1-2-7", "focus stays where it was"
        assert browser.value("document.getElementById('all-partitions').open") is True
        assert browser.value("document.getElementById('pulse').textContent").startswith("live, as of 12:00:0")
        assert browser.said == []


def test_a_page_whose_monitor_has_gone_never_looks_healthy(browser: Chromium, tmp_path: Path) -> None:
    with served(board(Monitor()), tmp_path) as page:
        browser.look()
        browser.open(f"{page.url}/")
        assert browser.value("document.getElementById('no-answer').hidden") is True
    browser.until(lambda: browser.value("document.getElementById('no-answer').hidden") is False)
    said = browser.value("document.getElementById('no-answer').innerText")
    assert said == ("✕ The monitor does not answer. What you see is from 12:00:00 UTC, and may not be true any more.")
    assert browser.value("document.title") == "? no answer – Offsetwatch"
    assert browser.value("getComputedStyle(document.querySelector('.verdict h1')).textDecorationLine") == "line-through"
    assert browser.value("getComputedStyle(document.getElementById('live')).filter") == "grayscale(1)"
    assert browser.value("document.getElementById('pulse').textContent") == "old: as of 12:00:00"


def test_a_monitor_that_fails_is_named_and_one_that_comes_back_is_live_again(
    browser: Chromium, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = Monitor()
    made = board(monitor)
    with served(made, tmp_path) as page:
        browser.look()
        browser.open(f"{page.url}/")
        standing, made._standing = made._standing, lambda now: 1 / 0  # type: ignore[assignment,return-value]
        monitor.now += 2 * S
        browser.until(lambda: browser.value("document.getElementById('no-answer').hidden") is False)
        assert "The monitor answers with an error (500)" in browser.value(
            "document.getElementById('no-answer').innerText"
        )
        made._standing = standing
        browser.until(lambda: browser.value("document.getElementById('no-answer').hidden") is True)
        assert browser.value("document.title") == "healthy – Offsetwatch"


def test_it_asks_nothing_while_nobody_looks(browser: Chromium, tmp_path: Path) -> None:
    monitor = Monitor()
    with served(board(monitor), tmp_path) as page:
        browser.look()
        browser.open(f"{page.url}/")
        browser.hide(True)
        assert browser.value("document.getElementById('pulse').textContent") == "paused, as of 12:00:00"
        monitor.incidents.append(incident())
        monitor.now += 60 * S
        browser.value("new Promise((done) => setTimeout(done, 5000))")
        assert headline(browser).startswith("Everything healthy")
        browser.hide(False)
        browser.until(lambda: "1 incident" in headline(browser))


def test_without_scripts_it_says_the_same(browser: Chromium, tmp_path: Path) -> None:
    found = lost_write(tmp_path)
    with served(board(Monitor(incidents=[incident(found.id)])), tmp_path / "tables") as page:
        browser.look(scripts=False)
        browser.open(f"{page.url}/")
        assert headline(browser).startswith("1 incident open: lost-write in orders/3")
        assert browser.value("document.getElementById('pulse').textContent") == "as of 12:00:00"
        browser.open(f"{page.url}/incidents/{found.id}")
        assert browser.value("document.querySelectorAll('svg .st-mark').length") > 3
        browser.look()


def test_by_keyboard_alone(browser: Chromium, tmp_path: Path) -> None:
    found = lost_write(tmp_path)
    with served(board(Monitor(incidents=[incident(found.id)]), 3), tmp_path / "tables") as page:
        browser.look()
        browser.open(f"{page.url}/")
        browser.press("Tab")
        assert browser.value("document.activeElement.className") == "skip"
        assert browser.value("document.activeElement.getBoundingClientRect().left") >= 0, (
            "it is seen once it is reached"
        )
        reached = []
        for _ in range(30):
            browser.press("Tab")
            here = browser.value(
                "(() => { const e = document.activeElement, s = getComputedStyle(e);"
                "return [e.id || e.className || e.tagName, s.outlineStyle, parseFloat(s.outlineWidth)] })()"
            )
            reached.append(here[0])
            if here[0] == "BODY":
                break
            assert here[1] == "solid" and here[2] >= 2, f"the focus on {here[0]} is seen"
        cells = [f"cell-1-{topic}-{n}" for topic in (1, 2) for n in range(3)]
        assert [one for one in reached if one.startswith("cell")] == cells
        assert f"incident-{found.id}" in reached
        browser.value(f"document.getElementById('incident-{found.id}').focus()")
        browser.press("Enter")
        browser.until(lambda: browser.value("location.pathname") == f"/incidents/{found.id}")


def test_a_cell_leads_to_its_row_which_unfolds(browser: Chromium, tmp_path: Path) -> None:
    with served(board(Monitor()), tmp_path) as page:
        browser.look()
        browser.open(f"{page.url}/")
        browser.value("document.getElementById('cell-1-2-9').click()")
        browser.until(lambda: browser.value("document.getElementById('all-partitions').open"))
        assert browser.value("document.querySelector(':target').querySelector('th').textContent") == "payments/9"


@pytest.mark.parametrize(("width", "dark"), list(product((1280, 800, 390), (False, True))))
def test_nothing_runs_over_the_edge(browser: Chromium, tmp_path: Path, width: int, dark: bool) -> None:
    found = lost_write(tmp_path, name="a-transactional-id-that-is-as-long-as-people-make-them-" * 3)
    long = "a.topic-with-a-name-as-long-as-kafka-allows." * 5
    monitor = Monitor(incidents=[incident(found.id, subjects=(f"{long}/3",), message="word " * 60)])
    rows = [state(n, topic=long) for n in range(40)]
    with served(monitor.board(*rows, state(3)), tmp_path / "tables") as page:
        browser.look(width=width, dark=dark)
        for path in ("/", f"/incidents/{found.id}"):
            browser.open(page.url + path)
            assert browser.value("document.documentElement.scrollWidth") <= width, path
            browser.screenshot(tmp_path / f"{width}-{dark}.png")
            assert (tmp_path / f"{width}-{dark}.png").stat().st_size > 5_000
        background = browser.value("getComputedStyle(document.documentElement).backgroundColor")
        brightness = sum(int(part) for part in re.findall(r"\d+", background)[:3])
        assert brightness < 200 if dark else brightness > 600


def test_hostile_names_do_nothing(browser: Chromium, tmp_path: Path) -> None:
    found = lost_write(tmp_path, name=EVIL, topic=EVIL)
    evil = incident(found.id, message=EVIL, cluster=EVIL, topic=EVIL, subjects=(f"{EVIL}/3",))
    monitor = Monitor(incidents=[evil])
    with served(monitor.board(state(3, topic=EVIL, cluster=EVIL)), tmp_path / "tables") as page:
        browser.look()
        browser.said.clear()
        for path in ("/", f"/incidents/{found.id}"):
            browser.open(page.url + path)
            assert browser.value("document.querySelectorAll('main img, main script').length") == 0
            assert "pwned" not in browser.value("document.title").replace(EVIL, "")
        browser.open(f"{page.url}/")
        monitor.now += 2 * S
        browser.until(lambda: "12:00:02" in browser.value("document.getElementById('pulse').textContent"))
        assert browser.value("document.title") == "critical – Offsetwatch"
        assert browser.said == []


def test_logging_in(browser: Chromium, tmp_path: Path) -> None:
    token = "a token of the tests"
    with served(board(Monitor()), tmp_path, token=token) as page:
        browser.look()
        browser.open(f"{page.url}/")
        assert browser.value("document.activeElement.id") == "token"
        browser.value(f"document.getElementById('token').value = {token!r}; document.querySelector('form').submit()")
        browser.until(lambda: "Everything healthy" in browser.value("document.body ? document.body.innerText : ''"))
        assert browser.value("document.cookie") == "", "scripts do not see it"
        browser.open(f"{page.url}/?token={token.replace(' ', '%20')}")
        assert browser.value("location.href") == f"{page.url}/"


# Contrast: that of the style sheet's own colours, by WCAG's formula


def _luminance(colour: str) -> float:
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, two: str) -> float:
    low, high = sorted((_luminance(one), _luminance(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(dark: bool) -> None:
    style = (FOLDER / "static" / "page.css").read_text()
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", re.split(r"prefers-color-scheme: dark", style)[dark]))
    pairs = [(ink, paper) for ink in ("ink", "soft", "link") for paper in ("ground", "paper")]
    pairs += [(f"{name}-ink", name) for name in ("ok", "warning", "critical", "behind", "failed", "silent", "alarm")]
    pairs += [("silent-ink", "ground"), ("critical-ink", "paper"), ("warning-ink", "paper")]
    low = {pair: round(_contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}


@pytest.mark.long
def test_contrast_is_that_of_the_standard() -> None:
    assert _contrast("#000000", "#ffffff") == pytest.approx(21)
    assert _contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
