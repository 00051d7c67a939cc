"""A broker's disk fails, or becomes slow. Both by means of the kernel that need no other file system and no preload.

Linux only. Failing: the limit on the size of the process's files is set to nothing, and every write fails. Slow: its
process is put into a group of control whose writes to the device are throttled (cgroups, version 1 or 2). What Kafka
appends goes to the page cache and is not slowed; what it forces to the disk is: the metadata's log, at every write.
"""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local_kafka import LocalKafka
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.fault import FaultOfRole
from monitor.drill.faults.roles import Role

_ENDS_WITHIN_S: Final = 30.0


class FailingDisk(FaultOfRole):
    """From `begin` on every write of the broker to a file fails. Kafka takes its log folder for failed at the first one
    and, having no other, halts: `begin` returns when it has, or raises after 30 s. `end` gives the disk back, with
    what was written before, and starts the broker."""

    def describe(self) -> str:
        return f"fail all disk writes of {self._whom}"

    def _missing(self, cluster: LocalKafka) -> list[str]:
        if not hasattr(resource, "prlimit"):
            return ["this system cannot limit the files of another process: prlimit is Linux only"]
        return []

    def _begin(self, cluster: LocalKafka) -> None:
        broker = self._find(cluster)
        pid = broker.pid
        if pid is None:
            raise DrillFailed(f"broker {self.node} ended by itself")
        try:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
        except OSError as error:
            raise DrillFailed(f"the files of broker {self.node} cannot be limited: {error.strerror}") from error
        limit = time.monotonic() + _ENDS_WITHIN_S
        while broker.running:
            if time.monotonic() > limit:
                raise DrillFailed(f"broker {self.node} still runs {_ENDS_WITHIN_S:.0f} s after its disk failed")
            time.sleep(0.1)

    def _end(self, cluster: LocalKafka) -> None:
        if self.node is not None:
            cluster.broker(self.node).kill()  # the limit goes with the process
            cluster.broker(self.node).start()


@dataclass(frozen=True, slots=True)
class Throttle:
    """How this machine slows the writes of a group of processes: `group` is its folder, `file` takes `line`."""

    group: Path
    file: str
    line: str

    def take(self, pid: int) -> None:
        """Put the process into the group, which is made. Raises OSError."""
        self.group.mkdir(exist_ok=True)
        (self.group / self.file).write_text(self.line)
        (self.group / "cgroup.procs").write_text(str(pid))

    def release(self) -> None:
        """Let all processes go, and remove the group; nothing where it is not there. Raises OSError."""
        if not self.group.is_dir():
            return
        with suppress(FileNotFoundError):
            for pid in (self.group / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    (self.group.parent / "cgroup.procs").write_text(pid)
            self.group.rmdir()


def throttle(root: Path, device: str, name: str, rate: int) -> Throttle | None:
    """The way to let a group write `rate` bytes a second to a device (major:minor), None where there is none.

    `root`: where the groups are, /sys/fs/cgroup."""
    old = root / "blkio"
    if (old / "blkio.throttle.write_bps_device").is_file() and os.access(old, os.W_OK):
        return Throttle(old / name, "blkio.throttle.write_bps_device", f"{device} {rate}")
    with suppress(OSError):
        if "io" in (root / "cgroup.subtree_control").read_text().split() and os.access(root, os.W_OK):
            return Throttle(root / name, "io.max", f"{device} wbps={rate}")
    return None


def device_of(folder: Path) -> str:
    """The block device that holds a folder, as major:minor; of a partition, the disk that it is a part of."""
    held = folder.stat().st_dev
    device = f"{os.major(held)}:{os.minor(held)}"
    entry = Path("/sys/dev/block") / device
    if (entry / "partition").is_file():
        return (entry.resolve().parent / "dev").read_text().strip()
    return device


class SlowDisk(FaultOfRole):
    """The broker writes no more than `rate` bytes a second to its disk, from `begin` to `end`."""

    def __init__(self, role: Role, *, rate: int = 8_192, groups: Path = Path("/sys/fs/cgroup")) -> None:
        super().__init__(role)
        self.rate, self._groups = rate, groups
        self._throttle: Throttle | None = None

    def describe(self) -> str:
        return f"let {self._whom} write {self.rate} bytes a second to its disk"

    def _missing(self, cluster: LocalKafka) -> list[str]:
        device = device_of(cluster.folder)
        if not (Path("/sys/dev/block") / device).exists():
            return [f"{cluster.folder} is on no block device, whose writes could be slowed"]
        if throttle(self._groups, device, "unused", self.rate) is None:
            return [
                f"no group of control for block devices can be made in {self._groups}: it takes root, and the"
                " controller blkio (cgroups 1) or io (cgroups 2)"
            ]
        return []

    def _begin(self, cluster: LocalKafka) -> None:
        pid = self._find(cluster).pid
        name = f"offsetwatch-{os.getpid()}-{self.node}"
        self._throttle = throttle(self._groups, device_of(cluster.folder), name, self.rate)
        if pid is None or self._throttle is None:
            raise DrillFailed(f"the disk of broker {self.node} cannot be slowed")
        try:
            self._throttle.take(pid)
        except OSError as error:
            raise DrillFailed(f"the disk of broker {self.node} cannot be slowed: {error.strerror}") from error

    def _end(self, cluster: LocalKafka) -> None:
        if self._throttle is not None:
            try:
                self._throttle.release()
            except OSError as error:
                raise DrillFailed(f"the disk of broker {self.node} stays slow: {error.strerror}") from error
        if self.node is not None:
            cluster.broker(self.node).start()
