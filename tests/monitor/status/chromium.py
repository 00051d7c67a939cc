"""A real Chromium without a window, driven through its own protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAM: Final = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="there is no chromium in the PATH")
_PATIENCE: Final = 180.0


class Chromium:
    """One page of it. `said`: what it wrote to its console, refusals of the content-security policy among it."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._number = 0
        self._rest = b""
        self.said: list[str] = []
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._commands, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                result: dict[str, Any] = told["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._answers, 1 << 16)
            assert part, "chromium has gone"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        if told.get("method") == "Log.entryAdded":
            self.said.append(told["params"]["entry"]["text"])
        elif told.get("method") == "Runtime.exceptionThrown":
            self.said.append(str(told["params"]["exceptionDetails"]))
        elif told.get("method") == "Runtime.consoleAPICalled":
            self.said.append(str(told["params"]["args"]))
        return told

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """How the next page is looked at."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.until(
            lambda: self.value("document.readyState") == "complete" and self.value("location.href") != "about:blank"
        )

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as a person presses it."""
        codes = {"Tab": 9, "Enter": 13}
        given = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            given["text"] = "\r"
        self._call("Input.dispatchKeyEvent", type="keyDown", **given)
        self._call("Input.dispatchKeyEvent", type="keyUp", **given)

    def hide(self, hidden: bool) -> None:
        """As if another tab were in front of it, or no longer."""
        self.value(
            f"Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {str(hidden).lower()}}});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    def until(self, holds: Callable[[], object], seconds: float = _PATIENCE) -> None:
        limit = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < limit, self.value("document.body ? document.body.innerText : ''")
            time.sleep(0.1)

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """A browser that keeps what it keeps in `folder`."""
    assert PROGRAM is not None
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    arguments = [
        PROGRAM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-pipe",
        "--no-first-run",
        f"--user-data-dir={folder}",
        "--disable-background-networking",
        "--hide-scrollbars",
    ]
    started = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *arguments]
    child = subprocess.Popen(
        started, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Chromium(commands, answers)
    finally:
        os.close(commands)
        os.close(answers)
        child.terminate()
        child.wait()
