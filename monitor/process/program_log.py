"""What the program says about itself, apart from findings: one line on stderr each, for people or as JSON, or a file.

The Kafka clients' own chatter (a broker is away, it is back) goes to a file if there is one, and to stderr only when
debugging: it repeats by the second, and what matters of it is logged by the probes as the outcome of operations.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from monitor.errors import ConfigError
from rules.vocabulary.times import rfc3339

OURS: Final = ("offsetwatch", "monitor", "probes", "streaming_jobs", "alerts", "deploy")
CHATTER: Final = "offsetwatch.client"
_FORM: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_FILE_BYTES: Final = 16 << 20
SAID_AGAIN_AFTER: Final = 600.0
CHATTER_SPELL: Final = 60.0
"""Seconds."""
REMEMBERED: Final = 4096
_of_the_root: Final[list[logging.Handler]] = []


def say(line: str) -> None:
    """One line for the person who started the program."""
    line = f"{_Lines.of}{line}"
    said = _json(time.time(), "info", "offsetwatch", line) if _Lines.as_json else f"offsetwatch: {line}"
    print(said, file=sys.stderr, flush=True)


def configure(
    *, debug: bool = False, file: Path | None = None, quiet: bool = False, as_json: bool = False, cluster: str = ""
) -> None:
    """Send our loggers' warnings to stderr (everything when debugging, nothing when `quiet`), all of it to `file`.
    `as_json`: each line on stderr is an object with time, level, logger and message. `cluster`: the name of the
    one that all of it is about, where other processes write of others.

    Raises ConfigError where the file cannot be written. May be called again: the last call counts."""
    _Lines.as_json, _Lines.of = as_json, f"{cluster}: " if cluster else ""
    stderr = logging.StreamHandler(sys.stderr)
    stderr.setFormatter(
        _JsonFormatter() if as_json else logging.Formatter(_FORM.replace("%(message)s", f"{_Lines.of}%(message)s"))
    )
    stderr.setLevel(logging.DEBUG if debug else logging.CRITICAL + 1 if quiet else logging.WARNING)
    if not debug:
        stderr.addFilter(lambda record: record.name != CHATTER)
    handlers: list[logging.Handler] = [stderr]
    if file is not None:
        handlers.append(_to_file(file))
    # py4j tells the root logger of each call into a JVM that has gone, with a stack trace.
    root = logging.getLogger()
    for handler in _of_the_root:
        root.removeHandler(handler)
    _of_the_root[:] = handlers if debug else handlers[1:] or [logging.NullHandler()]
    for handler in _of_the_root:
        root.addHandler(handler)
    logging.captureWarnings(True)  # Python would print them, with lines of source, as of a client that closes late
    for handler in handlers:
        handler.addFilter(_Once())
    for name in OURS:
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            with suppress(OSError):
                handler.close()
        for handler in handlers:
            logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if debug else logging.INFO)
        logger.propagate = False


class _Lines:
    """How what is said is written, as `configure` was told."""

    as_json = False
    of = ""


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = f"{_Lines.of}{record.getMessage()}"
        if record.exc_info:
            said = f"{said}\n{self.formatException(record.exc_info)}"
        return _json(record.created, record.levelname.lower(), record.name, said)


def _json(at: float, level: str, logger: str, message: str) -> str:
    when = rfc3339(datetime.fromtimestamp(at, UTC), "milliseconds")
    return json.dumps({"time": when, "level": level, "logger": logger, "message": message}, ensure_ascii=False)


class _Once(logging.Filter):
    """What many say again and again (`extra={"said_once": what}`), as of a full disk, is told once in a while, and
    after `spell` seconds in which nobody said it: then it is another time. So is what a Kafka client says by the second
    for as long as a broker is away, or refuses its login. State: the `REMEMBERED` that were said last."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        what, spell = getattr(record, "said_once", None), getattr(record, "spell", SAID_AGAIN_AFTER)
        if record.name == CHATTER and what is None:  # how long it took differs each time
            what, spell = record.getMessage().partition(" (after ")[0], CHATTER_SPELL
        if what is None:
            return True
        last = self._last.pop(what, 0.0)
        self._last[what] = record.created
        if len(self._last) > REMEMBERED:
            oldest = next(iter(self._last))
            del self._last[oldest]
            self._told.pop(oldest, None)
        due = record.created - self._told.get(what, 0.0) >= SAID_AGAIN_AFTER or record.created - last >= spell
        if due:
            self._told[what] = record.created
        return due


class _File(RotatingFileHandler):
    """A disk that is full must not fill the terminal with what could not be written to it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def _to_file(file: Path) -> logging.Handler:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = _File(file, maxBytes=_FILE_BYTES, backupCount=3, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    handler.setFormatter(logging.Formatter(_FORM))
    handler.setLevel(logging.INFO)
    return handler
