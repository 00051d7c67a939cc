"""How far a journal was written, told beside it: so it is known of a life that died whether its journal lacks anything.

The death of a process may leave the write that it was in the middle of half done, and nothing that was handed to the
kernel before is lost by it. A bad disk, or somebody, may take more, and leaves the same: good frames, and a part of
one. So once a frame is written, and before anybody acts on it, its end is told here. A journal that holds all up to
there lacks nothing, whatever is torn behind it; one that ends earlier does.

It is told by one write of eight bytes, which death does not divide, and is not synced: after the loss of the host a
journal may lack its end anyway. A disk that fails while its host goes on, or is cut off and comes back, takes what
stands on it with the journal's end. So it is told in the host's memory as well (`MEMORY`), where there is such a place:
under the journal folder's path, until the life's folder is deleted, or has been gone for a day (`forget_gone`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import time
from pathlib import Path
from typing import Final

from probes.log.journals.segments import NEW

WRITTEN: Final = "written"
MEMORY: Final = Path("/dev/shm")
GONE_FOR: Final = 86_400.0
"""Seconds: a disk that is away for a while comes back."""
_FORM: Final = struct.Struct("<Q")
_HOW: Final = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


class Told:
    """Of one journal that is written."""

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def tell(self, offset: int) -> None:
        """All bytes of the journal before `offset` are written. Raises OSError."""
        for descriptor in self._descriptors:
            os.pwrite(descriptor, _FORM.pack(offset), 0)

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def begin(life_folder: Path, offset: int) -> Told:
    """Tell it of a new journal, and go on with what this returns. Raises OSError."""
    made = Told([os.open(life_folder / WRITTEN, _HOW, 0o644)])
    try:
        if (place := _in_memory(life_folder)) is not None:
            with contextlib.suppress(OSError):  # it is full, or none of ours
                made._descriptors.append(_begun(place, life_folder))
        made.tell(offset)
    except BaseException:
        made.close()
        raise
    return made


def _begun(place: Path, life_folder: Path) -> int:
    """A descriptor of the life's file in memory, with all the room that it will ever take. Raises OSError."""
    descriptor = os.open(place, _HOW, 0o600)
    try:
        os.pwrite(descriptor, os.fsencode(_named(life_folder).resolve()), _FORM.size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def told(life_folder: Path) -> int | None:
    """How far the journal was written; None where nobody tells: an earlier version did not, or it was lost, too."""
    found = [_read(life_folder / WRITTEN)]
    if (place := _in_memory(life_folder)) is not None:
        found.append(_read(place))
    return max((one for one in found if one is not None), default=None)


def forget(life_folder: Path) -> None:
    """The life's folder is deleted."""
    if (place := _in_memory(life_folder)) is not None:
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)


def forget_gone() -> None:
    """Of lives whose folders are gone, and of which nobody has told for `GONE_FOR`: as those of a demonstration."""
    if (memory := _memory()) is None:
        return
    for place in list(memory.iterdir()):
        with contextlib.suppress(OSError):
            life_folder = os.fsdecode(place.read_bytes()[_FORM.size :])
            if time.time() - place.stat().st_mtime > GONE_FOR and not Path(life_folder).is_dir():
                place.unlink()


def _read(path: Path) -> int | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return int(_FORM.unpack_from(data)[0]) if len(data) >= _FORM.size else None


def _in_memory(life_folder: Path) -> Path | None:
    if (folder := _memory()) is None:
        return None
    journals = hashlib.sha256(os.fsencode(life_folder.parent.parent.resolve())).hexdigest()[:24]
    return folder / f"{journals}-{_named(life_folder).name}"


def _named(life_folder: Path) -> Path:
    return life_folder.with_name(life_folder.name.removesuffix(NEW))


def _memory() -> Path | None:
    """Our folder there, which nobody else can write to; None where there is none."""
    folder = MEMORY / f"offsetwatch-{os.geteuid()}"
    try:
        if MEMORY.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                return folder
    except OSError:
        pass
    return None
