"""Every finding that a test of the rules makes is held against the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rules.vocabulary.finding import Finding
from tests.rules.conforming import faults

_made = Finding.__init__


@pytest.fixture(autouse=True)
def _as_the_catalogue_says(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After the test, so that no rule's own handling of errors can hide it."""
    wrong: dict[str, tuple[Finding, list[str]]] = {}

    def make(finding: Finding, *values: Any, **named: Any) -> None:
        _made(finding, *values, **named)
        if len(wrong) < 10 and (found := faults(finding)):
            wrong.setdefault(f"{finding.anomaly} {finding.event}: {found}", (finding, found))

    monkeypatch.setattr(Finding, "__init__", make)
    yield
    assert not wrong, "\n".join(f"{told}\n    {finding}" for told, (finding, _) in wrong.items())
