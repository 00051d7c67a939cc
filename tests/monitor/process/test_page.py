"""The status page and the metrics, as the configuration wants them served."""

from __future__ import annotations

import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from alerts.metrics import Metrics
from alerts.serving.server import PortTaken
from monitor.config.config import from_environment
from monitor.errors import ConfigError
from monitor.process.page import serve
from tests.monitor.status.serving import Monitor, state

TOKEN = "sixteen characters"


def serving(ending: ExitStack, data: Path, **status: str) -> tuple[str, list[str]]:
    said: list[str] = []
    config = from_environment({"OFFSETWATCH_DATA": str(data), "OFFSETWATCH_ALERTS__METRICS_PORT": "0", **status})
    board = Monitor().board(state(3))
    return serve(config, board, Metrics(build={}).registry, said.append, ending), said


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=120) as given:
            return given.status, given.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_page_and_metrics_are_at_one_port_and_said(tmp_path: Path) -> None:
    with ExitStack() as ending:
        url, said = serving(ending, tmp_path)
        assert said == [f"metrics are served at {url}metrics", f"the status page is served at {url}"]
        assert "Everything healthy" in get(url)[1]
        assert "offsetwatch_batches_total 0.0" in get(f"{url}metrics")[1]
        assert "_created" not in get(f"{url}metrics")[1]
    with pytest.raises(urllib.error.URLError):
        get(url)


def test_the_metrics_alone(tmp_path: Path) -> None:
    with ExitStack() as ending:
        url, said = serving(ending, tmp_path, OFFSETWATCH_STATUS__PAGE="false")
        assert said == [f"metrics are served at {url}metrics"]
        assert get(f"{url}metrics")[0] == get(f"{url}ready")[0] == 200
        assert get(f"{url}status")[0] == 404


def test_whoever_serves_it_to_all_is_told_of_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everybody = {"OFFSETWATCH_ALERTS__METRICS_HOST": "0.0.0.0"}
    with ExitStack() as ending:
        _, said = serving(ending, tmp_path, **everybody)
        assert said[2:] == ["whoever reaches 0.0.0.0 can look at it: status.token asks for a token"]
    monkeypatch.setenv("PAGE_TOKEN", TOKEN)
    with ExitStack() as ending:
        url, said = serving(ending, tmp_path, OFFSETWATCH_STATUS__TOKEN='{ env = "PAGE_TOKEN" }', **everybody)
        assert len(said) == 2 and TOKEN not in " ".join(said)
        assert get(url)[0] == get(f"{url}metrics")[0] == 401
        assert get(f"{url}live")[0] == 200


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with ExitStack() as ending:
        url, _ = serving(ending, tmp_path)
        port = url.rpartition(":")[2].strip("/")
        with pytest.raises(PortTaken, match=f"metrics cannot be served on 127.0.0.1:{port}: Address already in use"):
            serving(ending, tmp_path, OFFSETWATCH_ALERTS__METRICS_PORT=port)


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    files = {
        "OFFSETWATCH_STATUS__CERTIFICATE": str(tmp_path / "no.pem"),
        "OFFSETWATCH_STATUS__KEY": str(tmp_path / "no.pem"),
    }
    with ExitStack() as ending, pytest.raises(ConfigError, match=r"no\.pem: no usable certificate and key"):
        serving(ending, tmp_path, **files)
