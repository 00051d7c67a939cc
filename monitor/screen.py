"""The terminal and the pages, as we write them: what comes from a cluster cannot steer them.

Names and error texts may hold escape sequences that clear the screen, hide text or reverse its order. Each character
that would is shown as one that does nothing."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

HARMLESS: Final = "\N{REPLACEMENT CHARACTER}"
_KEPT: Final = "\n\t"


def harmless(text: str) -> str:
    """The text without characters that steer a terminal: controls, but for line feeds and tabs, and those that set the
    direction or join. As long as before."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(HARMLESS if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in _KEPT else c for c in text)


def one_line(text: str) -> str:
    """The same without line feeds and tabs, which a name may hold: a text that is one line stays one."""
    return harmless(text).translate({ord(one): HARMLESS for one in _KEPT})


def on_a_page(value: Any) -> Any:
    """What a template shows, without such characters: they would do the same to a page."""
    if isinstance(value, Markup):
        return Markup(harmless(value))
    return harmless(value) if isinstance(value, str) else value


class Screen(Console):
    """A console whose `print` makes what it is given harmless first; a rich Text is one line."""

    def __init__(self, **given: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **given)

    def print(self, *objects: Any, **given: Any) -> None:
        super().print(*(_harmless(one) for one in objects), **given)


def _harmless(one: Any) -> Any:
    if isinstance(one, str):
        return harmless(one)
    if isinstance(one, Text) and (said := one_line(one.plain)) != one.plain:
        made = one.copy()
        made.plain = said  # of the same length, so that its styles stay where they are
        return made
    return one
