"""The port of the probes' metrics: one that is taken is served once it is free, and the probes run meanwhile."""

from __future__ import annotations

import errno
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monitor.config.config import load
from monitor.process import probing
from tests.monitor.process.test_standby import until


def test_a_port_that_is_taken_is_served_once_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PORT_AGAIN", 0.1)
    fleet: Any = SimpleNamespace(
        status=lambda: SimpleNamespace(committer=None, probes=(), layout=None, run="r"), cluster=None, fleets=()
    )
    monkeypatch.setattr(probing, "fleets_of", lambda probes: [])
    monkeypatch.setattr(probing, "register_probes", lambda *told: None)
    monkeypatch.setattr(probing, "cluster_of", lambda probes: "")
    said: list[str] = []
    with socket.socket() as taken, ExitStack() as ending:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "ow.toml").write_text(f'data = "{tmp_path}"\n[alerts]\nprobes_port = {port}\n')
        config = load(tmp_path / "ow.toml", {})
        probing.serve(config, fleet, said.append, ending)
        assert [one.partition("; ")[2] for one in said] == [
            "the probes run without until it is free (alerts.probes_port)"
        ]
        taken.close()
        until(lambda: len(said) > 1, tmp_path, 60)
        assert said[1] == f"metrics are served at http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert b"offsetwatch_build_info" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30)


def test_a_folder_that_cannot_be_read_any_more_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def status() -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", "/data/journals")

    fleet: Any = SimpleNamespace(status=status)
    monkeypatch.setattr(probing, "fleets_of", lambda probes: [fleet])
    monkeypatch.setattr(probing, "register_probes", lambda *told: None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "ow.toml").write_text(f'data = "{tmp_path}"\n[alerts]\nprobes_port = {port}\n')
    with ExitStack() as ending:
        probing.serve(load(tmp_path / "ow.toml", {}), fleet, lambda line: None, ending)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=30)
        assert refused.value.code == 503
        assert b"the probes' folder cannot be read: /data/journals: Permission denied" in refused.value.read()
        refused.value.close()
