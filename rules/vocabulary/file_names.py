"""Names of the probe log's data files that tell what is in them, so that bytes that rot are noticed.

Parquet's pages may have checksums, its footer has none, and of a canary's file that is a quarter: a flipped bit there
renames a column, which is then read as one without values. So a file that a committer writes is named after a hash of
all its bytes. Of what compaction writes, which has a name of deltalake's, the hash is noted beside the table's log.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

_BYTES: Final = 6
"""Enough to notice that something has changed. Names are short, since for hours each checkpoint of the table's log
tells those of what compaction has replaced, too."""
CHANCE: Final = 3
"""So many bytes by chance follow the hash: what is appended twice stands in the table twice."""
_NAMED: Final = re.compile(rf"(?:.*/)?([0-9a-f]{{{2 * _BYTES}}})[0-9a-f]{{{2 * CHANCE}}}\.parquet")
"""Names that an earlier version gave by chance alone are longer by two."""
NOTED: Final = "_hashes"
"""The folder of a table in which hashes of its files are noted. What begins with "_" is none of the table's, and vacuum
leaves it alone."""


def digest() -> blake2b:
    """What makes the hash of a file's bytes."""
    return blake2b(digest_size=_BYTES)


def named_after(data: bytes, chance: bytes) -> str:
    """The name of a file of these bytes, with `CHANCE` others."""
    made = digest()
    made.update(data)
    return f"{made.hexdigest()}{chance.hex()}.parquet"


def hash_told(path: str) -> str | None:
    """The hash of a file's bytes, as its name tells it."""
    told = _NAMED.fullmatch(path)
    return None if told is None else told[1]
