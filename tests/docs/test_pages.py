"""The pages: no link leads nowhere, every page is found, and the site can be built of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
DOCS = PROJECT / "docs"
PAGES = sorted([*PROJECT.glob("*.md"), *DOCS.glob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)


def prose(page: Path) -> str:
    return CODE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_no_link_leads_nowhere(page: Path) -> None:
    astray = []
    for link in LINK.findall(prose(page)):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            astray.append(link)
    assert astray == []


def test_the_site_has_every_page_once() -> None:
    nav = (PROJECT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"([\w-]+\.md)$", nav, re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))


def test_what_pages_include_is_there() -> None:
    included = [name for page in DOCS.glob("*.md") for name in INCLUDED.findall(page.read_text())]
    assert included
    assert [name for name in included if not ((DOCS / name).is_file() or (PROJECT / name).is_file())] == []


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "metrics_port" in (tmp_path / "configuration.html").read_text(), "the reference is on the page"
