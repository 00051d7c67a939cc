"""What tests of the application may ask for, beside `tests/conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitor.secured import Secured, secured_broker


@pytest.fixture(scope="session")
def secured(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that wants TLS and a login, for all tests of the session."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker
