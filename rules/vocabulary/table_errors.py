"""What an error of a Delta table's storage says, as a phrase for people.

An object store answers with XML, its client puts the whole request and a tree of causes in colours around it, and a
request's address may carry a signature (Azure's SAS); Delta's kernel adds where in its own code it was. None of that is
for a log or a screen.
"""

from __future__ import annotations

import re
from typing import Final

_COLOURS: Final = re.compile(r"\x1b\[[\d;]*m")
_BACKTRACE: Final = re.compile(r"\n\s+0: .*", re.DOTALL)
_QUERY: Final = re.compile(r"(\w+://[^\s?]+)\?\S+")
_ANSWER: Final = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_REQUEST: Final = re.compile(r"Error performing [A-Z]+ (\w+://[^\s/]+)")
_LONGEST: Final = 300


def in_words(error: BaseException) -> str:
    """The error's text on a line, as the end of a sentence without its stop: of an object store its answer, or why it
    gave none."""
    text = _QUERY.sub(r"\1", _BACKTRACE.sub("", _COLOURS.sub("", str(error))))
    request = _REQUEST.search(text)
    if answer := _ANSWER.search(text):
        told = ": ".join(part.strip() for part in answer.groups() if part and part.strip())
    elif request is not None:
        causes = [line.strip(" ↳") for line in text[request.end() :].splitlines()[1:]]
        told = ": ".join([one for one in causes if one][-2:])
    else:
        told = text
    words = " ".join(told.split()) or type(error).__name__
    where = f"{request[1]} says " if request is not None and answer else f"{request[1]}: " if request else ""
    return f"{where}{words}"[:_LONGEST].rstrip(".")
