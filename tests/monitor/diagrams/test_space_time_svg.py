"""The diagram's SVG: well-formed, escaped, within its frame, with words for everything."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from monitor.diagrams.space_time import Focus, SpaceTime, space_time
from monitor.diagrams.space_time_svg import STYLE, WIDTH, rows, svg
from tests.monitor.diagrams.operations import NAMES, R1, R2, W, at, poll, run, send

LOST = [
    send(W, 0, run(W, 3, 98, 4)),
    poll(R1, 0.2, 98, 102, run(W, 3, 98, 4)),
    poll(R2, 3_600, 98, 101, run(W, 3, 98, 2), type="info"),
]


def diagram(*given: dict[str, Any], names: dict[int, str] | None = None, offsets: Any = (100,)) -> SpaceTime:
    return space_time(given, Focus((), offsets), NAMES if names is None else names)


def elements(drawn: str, name: str) -> list[Any]:
    return [one for one in ElementTree.fromstring(drawn).iter() if one.tag == name]


def test_every_shape_has_words_and_lies_inside() -> None:
    drawn = svg(diagram(*LOST))
    root = ElementTree.fromstring(drawn)
    height = float(root.attrib["viewBox"].split()[3])
    bars = [one for one in elements(drawn, "rect") if one.find("title") is not None]
    assert len(bars) == 3
    for bar in bars:
        x, y, wide, high = (float(bar.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x > 0 and x + wide < WIDTH and y > 0 and y + high < height
    marks = [one for one in elements(drawn, "path") if one.find("title") is not None]
    assert sorted(re.findall(r"st-mark st-(\w+)", " ".join(one.attrib["class"] for one in marks))) == [
        "given",
        "passed",
        "sent",
    ]
    assert "went past offset 100 (info), 13:00:00.100" in [one.findtext("title") for one in marks]


def test_the_hour_between_is_cut_out_and_said() -> None:
    texts = [one.text for one in elements(svg(diagram(*LOST)), "text")]
    assert "60 min left out" in texts


def test_names_from_a_cluster_are_text_and_nothing_else() -> None:
    evil = '<script>alert("1")</script>&'
    drawn = svg(diagram(*LOST, names={W: evil, R1: evil, R2: evil}), name='"><script>')
    assert "<script" not in drawn
    assert {one.findtext("title") for one in elements(drawn, "g")} > {f"{evil} (process {W})"}


def test_it_needs_its_style_sheet_and_no_more() -> None:
    drawn = svg(diagram(*LOST))
    used = {name for one in re.findall(r'class="([^"]+)"', drawn) for name in one.split()}
    assert {name for name in used if f".{name}" not in STYLE} == set()
    assert "style=" not in drawn and "url(" not in drawn + STYLE and "http" not in drawn + STYLE
    assert "prefers-color-scheme: dark" in STYLE


def test_labels_of_many_offsets_do_not_lie_on_each_other() -> None:
    rows = [send(W, 0, run(W, 0, 90, 20)), poll(R1, 0.2, 90, 110, run(W, 0, 90, 20))]
    for offsets in ([98, 99], [98, 99, 100, 108], list(range(90, 110))):
        texts = [
            one for one in elements(svg(diagram(*rows, offsets=offsets)), "text") if one.get("class") == "st-offset"
        ]
        of_lanes = [[float(one.attrib["y"]) for one in texts[: len(texts) // 2]], [one.text for one in texts]]
        heights = of_lanes[0]
        assert all(one - two >= 12.9 for one, two in pairwise(heights)), offsets
    assert "+17 more" in of_lanes[1]


def test_the_same_as_rows_of_a_table() -> None:
    told = rows(diagram(*LOST))
    assert [(one.at, one.who, one.in_focus) for one in told] == [
        (at(0), "writer-1", True),
        (at(0.2), "reader-1", True),
        (at(3_600), "reader-2", True),
    ]
    assert told[2].did == (
        "polled from offset 98 to 101, and was given 2 records; it went past offset 100 (info, after 0.100 s)"
    )


def test_nothing_to_draw_is_nothing() -> None:
    assert svg(diagram()) == ""
