"""How far a journal was written, told beside it: so it is known of a life that died whether its journal lacks anything.

The death of a process may leave the write that it was in the middle of half done, and nothing that was handed to the
kernel before is lost by it. A bad disk, or somebody, may take more, and leaves the same: good frames, and a part of
one. So once a frame is written, and before anybody acts on it, its end is told here. A journal that holds all up to
there lacks nothing, whatever is torn behind it; one that ends earlier does.

It is told by one write of eight bytes, which death does not divide, and is not synced: after the loss of the host a
journal may lack its end anyway.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

WRITTEN: Final = "written"
_FORM: Final = struct.Struct("<Q")


def begin(life_folder: Path, offset: int) -> int:
    """Tell it of a new journal; returns the open descriptor to go on with."""
    descriptor = os.open(life_folder / WRITTEN, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        tell(descriptor, offset)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def tell(descriptor: int, offset: int) -> None:
    """All bytes of the journal before `offset` are written."""
    os.pwrite(descriptor, _FORM.pack(offset), 0)


def told(life_folder: Path) -> int | None:
    """How far the journal was written; None where nobody tells: an earlier version did not, or it was lost, too."""
    try:
        data = (life_folder / WRITTEN).read_bytes()
    except FileNotFoundError:
        return None
    return int(_FORM.unpack(data)[0]) if len(data) == _FORM.size else None
