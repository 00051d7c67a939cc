"""What comes from a cluster steers no terminal."""

from __future__ import annotations

import io

from markupsafe import Markup
from rich.text import Text

from monitor.screen import HARMLESS, Screen, harmless, on_a_page

CLEAR = "\x1b[2J\x1b[8mhidden"


def printed(*objects: object) -> str:
    stream = io.StringIO()
    Screen(file=stream, width=80).print(*objects)
    return stream.getvalue()


def test_escapes_controls_and_directions_are_shown_as_what_does_nothing() -> None:
    assert harmless("a\x1b[2J\x00\x9b\u202eb\u2066c\ud800") == f"a{HARMLESS}[2J{HARMLESS * 3}b{HARMLESS}c{HARMLESS}"
    assert harmless("größer als 表 → …\n\tx") == "größer als 表 → …\n\tx"


def test_nor_do_they_anything_on_a_page() -> None:
    assert on_a_page("a\u202eb\u200bc\ud800") == f"a{HARMLESS}b{HARMLESS}c{HARMLESS}"
    assert isinstance(on_a_page(Markup("<b>\u202e</b>")), Markup)
    assert on_a_page(3) == 3


def test_texts_keep_their_styles_and_lose_what_steers() -> None:
    assert "\x1b" not in printed(CLEAR)
    line = Text("safe ")
    line.append(CLEAR, style="bold")
    assert printed(line) == f"safe {HARMLESS}[2J{HARMLESS}[8mhidden\n"
    assert line.plain == f"safe {CLEAR}", "what was given is not changed"
    assert printed(Text("one\nline,\tand one")) == f"one{HARMLESS}line,{HARMLESS}and one\n"
    assert printed("[red]no markup[/red] :boom:") == "[red]no markup[/red] :boom:\n"
