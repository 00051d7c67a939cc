"""The prompt of `offsetwatch sql`: questions that end with a semicolon, and commands that begin with a dot."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

from monitor.errors import UserError
from monitor.postmortem.database import Database, Rows
from monitor.postmortem.ready_queries import ready_queries, ready_query

PROMPT: Final = "offsetwatch> "
FURTHER: Final = "        ...> "
HELP: Final = """\
.queries                  the questions that are asked after every incident
.run NAME [key=value...]  run one of them
.tables                   tables and views
.columns NAME             the columns of one
.quit                     leave (Ctrl-D)
Anything else is SQL, as DuckDB understands it, and ends with a semicolon. It only reads."""


def talk(database: Database, show: Callable[[Rows], None], say: Callable[[str], None] = print) -> None:
    """Answer until the end of the input. A question that fails is told, and the next one is asked."""
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401  (gives input() its history and editing)

        say("The tables of the monitor, in SQL. .help, .queries and .tables say more; Ctrl-D leaves.")
    for asked in _questions(interactive):
        try:
            if not _command(database, asked, show, say):
                return
        except UserError as error:
            say(f"offsetwatch: {error}")
        except KeyboardInterrupt:
            say("interrupted")


def _questions(interactive: bool) -> Iterator[str]:
    """What is typed, one command or one whole question at a time."""
    text = ""
    while True:
        try:
            line = input((FURTHER if text else PROMPT) if interactive else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            text = ""
            print()
            continue
        if not text and line.strip().startswith("."):
            yield line.strip()
            continue
        text = f"{text}\n{line}".strip()
        if text.endswith(";"):
            yield text
            text = ""
    if text:
        yield text


def _command(database: Database, asked: str, show: Callable[[Rows], None], say: Callable[[str], None]) -> bool:
    """Do what was asked; false where it was to leave."""
    if not asked.startswith("."):
        show(database.run(asked))
        return True
    name, *given = asked.split()
    match name:
        case ".quit" | ".exit":
            return False
        case ".queries":
            for one in ready_queries().values():
                say(f"{one.usage}\n    {one.about}")
        case ".tables":
            for table, about in database.tables():
                say(f"{table}\n    {about}")
        case ".columns" if len(given) == 1:
            show(database.run(f'select column_name, column_type from (describe "{given[0]}")'))
        case ".run" if given:
            query = ready_query(given[0])
            show(database.run(query.text, query.values(parameters(given[1:]))))
        case _:
            say(HELP)
    return True


def parameters(given: list[str]) -> dict[str, str]:
    """key=value, as they were typed. Raises UserError for what is not."""
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise UserError(f"{one!r} is no parameter: give name=value")
        found[name] = value
    return found
