"""Azure's blob store for tests: Azurite, Microsoft's own emulator, as npm brings it. Skips where npm is not, or has it
not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.waiting import first_answer

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the account that every emulator has, as its documentation tells."""


def installed() -> Path:
    """Its program. Kept beside what else was fetched for this checkout, since it takes a minute and 360 MB."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    folder = Path(__file__).resolve().parent.parent / ".offsetwatch" / f"azurite-{VERSION}"
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        asked = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"azurite@{VERSION}"]
        had = subprocess.run(asked, capture_output=True, text=True, check=False)
        if had.returncode:
            pytest.skip(f"azurite cannot be had: {had.stderr.strip()[-200:]}")
    return program


@contextmanager
def store() -> Iterator[int]:
    """A store with a container named `bucket`; its port."""
    program = installed()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asked = ["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    quiet = ["--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    with subprocess.Popen([*asked, *quiet], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _make_container(port)
            yield port
        finally:
            process.terminate()


def _make_container(port: int) -> None:
    """Make it as soon as the store answers. Raises TimeoutError."""
    path, headers = f"/{ACCOUNT}/bucket", {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = f"PUT{chr(10) * 12}{signed}/{ACCOUNT}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    status, said = first_answer(port, lambda asked: asked.request("PUT", f"{path}?restype=container", headers=headers))
    assert status == 201, said


def environment(port: int) -> dict[str, str]:
    """How a process is told of the store, or of the proxy, at this port."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
        "AZURE_ALLOW_HTTP": "true",
    }
