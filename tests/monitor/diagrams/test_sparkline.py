"""A sparkline: from 0 at its bottom to its largest value, the newest at the right."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from monitor.diagrams.sparkline import HEIGHT, WIDTH, sparkline


def line(*values: float) -> list[tuple[float, float]]:
    path = ElementTree.fromstring(sparkline(values)).findall("path")[1].attrib["d"]
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


def test_it_goes_from_left_to_right_and_0_is_at_the_bottom() -> None:
    assert line(0, 5, 10) == [(2, HEIGHT - 2), (WIDTH / 2, HEIGHT / 2), (WIDTH - 2, 2)]


def test_nothing_happened() -> None:
    assert {y for _, y in line(0, 0, 0)} == {HEIGHT - 2}
    assert sparkline([1.0]) == sparkline([]) == ""
