"""A disk of its own for a host, whose power can be cut and which can be filled."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

import pytest

SHUTDOWN: Final = 0x8004587D
WITHOUT_ITS_LOG: Final = 2
"""The ioctl of ext4 that takes the power, FS_IOC_SHUTDOWN, and how: what is not on the disk is gone."""
PIECE: Final = 1 << 20


class Disk:
    """A small ext4 of its own, of the defaults; of `size` bytes."""

    def __init__(self, folder: Path, size: int = 2 << 30) -> None:
        self.at, self._images = folder / "disk", [folder / "image"]
        self.at.mkdir()
        with self._images[0].open("wb") as image:
            image.truncate(size)
        _run("mkfs.ext4", "-q", "-F", str(self._images[0]))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._images[-1]), str(self.at))

    def cut_the_power(self) -> None:
        descriptor = os.open(self.at, os.O_RDONLY)
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_ITS_LOG))
        os.close(descriptor)

    def begin_again(self) -> None:
        """What is on the disk, as the next boot finds it."""
        before, after = self._images[-1], self._images[-1].with_suffix(f".{len(self._images)}")
        shutil.copy(before, after)
        self.unmount()
        subprocess.run(["fsck.ext4", "-fy", str(after)], check=False, capture_output=True)
        self._images.append(after)
        self.mount()

    def fill(self) -> Path:
        """Leave no byte free; the file that took them."""
        file = self.at / "ballast"
        size = PIECE
        with file.open("wb", buffering=0) as into:
            while size:
                try:
                    into.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
        return file

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.at)], check=False, capture_output=True)


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no disk of its own can be had here: {done.stderr.strip()}")
