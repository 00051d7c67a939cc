"""Errors that end a command with one line on stderr: the application's own, and those of the packages it wires.

Each package translates what its libraries raise into few errors of its own, with a sentence for the user. Everything
else is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import sys
from typing import Final

USAGE_OR_ENVIRONMENT: Final = 2
"""The exit code of a command that could not do its work: bad input, bad configuration, nothing there to talk to."""

VIOLATION: Final = 1
"""The exit code of a command that did its work, and found something bad."""


class UserError(Exception):
    """The message is one sentence for the user that names what is wrong, and where."""


class ConfigError(UserError):
    """The configuration cannot be used. Each complaint names the file or the environment variable, and the key, on one
    line; the message is all of them."""

    def __init__(self, *complaints: str) -> None:
        super().__init__("; ".join(complaints))
        self.complaints = complaints


_TRANSLATED: Final = (
    ("probes.kafka.errors", "ProbeError"),
    ("probes.log.errors", "ProbeLogError"),
    ("streaming_jobs.errors", "JobError"),
    ("alerts.serving.server", "PortTaken"),
    ("alerts.receivers.chat", "AppriseMissing"),
    ("alerts.receivers.http", "SendFailed"),
    ("alerts.silences", "SilenceRefused"),
    ("deploy.errors", "DeployError"),
)


def known_errors() -> tuple[type[Exception], ...]:
    """The errors of ours. Looks only at modules that are loaded: what is not loaded has raised nothing."""
    found: list[type[Exception]] = [UserError]
    for module, name in _TRANSLATED:
        error = getattr(sys.modules.get(module), name, None)
        if error is not None:
            found.append(error)
    return tuple(found)
