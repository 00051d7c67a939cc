"""Numbers in settings are numbers, or nothing."""

from __future__ import annotations

import pytest

from rules.vocabulary.settings import natural, whole


@pytest.mark.parametrize(
    ("told", "number"),
    [
        ("0", 0),
        ("17", 17),
        ("-4", -4),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("²", None),
        ("--1", None),
        ("1 ", None),
        ("", None),
        (None, None),
    ],
)
def test_a_number_in_a_setting(told: str | None, number: int | None) -> None:
    assert whole(told) == number
    assert natural(told) == (number if number is not None and number >= 0 else -1)
