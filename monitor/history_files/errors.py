"""What can be wrong with a history file: always one sentence that names the file and, where there is one, the line."""

from __future__ import annotations

from pathlib import Path

from monitor.errors import UserError
from monitor.history_files.source import called


class Malformed(Exception):
    """Something in the text is not what it should be. `line` is 1-based, absent where the reader does not know it."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class UnreadableHistory(UserError):
    """The file cannot be read as a history."""

    def __init__(self, given: str | Path, reason: str, line: int | None = None) -> None:
        name = called(given) if isinstance(given, Path) else given
        where = name if line is None else f"{name}, line {line}"
        super().__init__(f"{where}: {reason}")
        self.reason = reason
        self.line = line
