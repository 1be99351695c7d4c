"""What was found here of packages, devices and memory, judged. Pure: findings in, lines out."""

from __future__ import annotations

import re
import stat
from typing import Final

from lifecycle.doctor.findings import UNLIMITED, AuditFolder, Cuda, Gloo, Hook, Memory, Package, Room
from lifecycle.doctor.lines import Line, Status

GIB: Final = 2**30
LOW_BYTES: Final = GIB
"""Less than this is hardly a model's adapters, let alone a base."""

FULL_BYTES: Final = 2**20
"""Less than this is none: not even a header fits."""

_LIBRARIES: Final = ("libcuda.so", "libcudart.so", "could not detect CUDA runtime")
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*")


def package_line(found: Package) -> Line:
    """Installed, new enough, importable."""
    install = _install(found.extras[0]) if found.extras else f"pip install '{found.name}'"
    if found.version is None and not found.extras:
        return Line(found.name, Status.BROKEN, "not installed, and nothing works without it", install)
    if found.version is None:
        return Line(found.name, Status.MISSING, f"not installed; it is for {', '.join(found.extras)}", install)
    if is_older(found.version, found.wanted):
        why = f"{found.version}, and {found.wanted} or later is needed"
        return Line(found.name, Status.BROKEN, why, f"pip install '{found.name}>={found.wanted}'")
    if found.why:
        todo = "mend what the error names, or install it again"
        return Line(found.name, Status.BROKEN, f"{found.version} cannot be imported: {found.why}", todo)
    return Line(found.name, Status.OK, found.version)


def _install(extra: str) -> str:
    """The library is on no package index: asked for by name there, something else may come."""
    return f"pip install -e '.[{extra}]' in the checkout of this library"


def is_older(version: str, wanted: str) -> bool:
    """Whether a release is older than another one. What cannot be read is not."""
    have, need = _RELEASE.match(version), _RELEASE.match(wanted)
    if have is None or need is None:
        return False
    return _numbers(have[0]) < _numbers(need[0])


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.sub(r"(\.0+)*$", "", release).split("."))


def cuda_line(found: Cuda) -> Line:
    """A build of torch with CUDA, a driver, and a device that torch would use."""
    torch = f"torch {found.torch}".rstrip() + (f" for CUDA {found.build}" if found.build else "")
    arena = "without one use HostArena"
    if found.why:
        return Line("cuda", Status.BROKEN, f"{torch}: {found.why}", "see what the error names")
    if not found.driver:
        return Line("cuda", Status.MISSING, f"{torch}, no NVIDIA driver", f"run on a machine with a GPU; {arena}")
    devices = f"driver {found.driver}, {_devices(found)}"
    if not found.build:
        why = f"{torch} has no CUDA, {devices}"
        return Line("cuda", Status.BROKEN, why, f"install a build of torch with CUDA; {arena}")
    if not found.devices:
        return Line("cuda", Status.MISSING, f"{torch}, {devices}", f"pass a GPU to this machine or container; {arena}")
    if is_older(found.runs.partition(".")[0], found.build.partition(".")[0]):
        why = f"{torch}, {devices}; this driver runs CUDA {found.runs} at most"
        return Line("cuda", Status.BROKEN, why, f"install a driver for CUDA {found.build}, or another torch")
    if not found.usable:
        hidden = found.visible is not None
        why = f"CUDA_VISIBLE_DEVICES={found.visible!r} hides them" if hidden else "torch can use none of them"
        todo = "unset CUDA_VISIBLE_DEVICES" if hidden else "see what torch.cuda.init() says"
        return Line("cuda", Status.BROKEN, f"{torch}, {devices}; {why}", todo)
    return Line("cuda", Status.OK, f"{torch}, {devices}")


def _devices(found: Cuda) -> str:
    told = [f"{one.name} ({one.free_bytes / GIB:.1f} of {one.total_bytes / GIB:.1f} GiB free)" for one in found.devices]
    return "; ".join(told) or "no device"


def hook_line(found: Hook) -> Line:
    """Whether a process can be started with torch_memory_saver's library."""
    check = "torch_memory_saver/hook"
    if not found.installed:
        return Line(check, Status.MISSING, "torch_memory_saver is not installed", _install("tms"))
    if found.loads:
        here = "this process has it" if found.preloaded else "this process was started without it"
        start = "start the trainer inside torch_memory_saver.configure_subprocess(), or use TorchMemorySaver('torch')"
        return Line(check, Status.OK, f"{found.path} loads; {here}", "" if found.preloaded else start)
    if any(library in found.why for library in _LIBRARIES):
        return Line(check, Status.MISSING, found.why, "it needs the driver and the CUDA runtime; use HostArena here")
    return Line(check, Status.BROKEN, found.why, "install torch_memory_saver built for this torch's CUDA")


def segments_line(variable: str | None, *, has_saver: bool) -> Line:
    """Whether torch's allocator is in a mode that torch_memory_saver does not allow.

    Args:
        variable: the environment variable that sets it, None when none does.
        has_saver: torch_memory_saver is installed.
    """
    check = "expandable_segments"
    if variable is None:
        return Line(check, Status.OK, "not set")
    status = Status.BROKEN if has_saver else Status.WARNING
    return Line(check, status, f"{variable} sets it, which torch_memory_saver does not allow", f"unset {variable}")


def memory_lines(found: Memory) -> list[Line]:
    """Room for backups, and how much of it may be pinned."""
    room = found.available_bytes if found.room_bytes is None else min(found.available_bytes, found.room_bytes)
    limit = f"a limit leaves {room / GIB:.1f} GiB" if room < found.available_bytes else "no tighter limit"
    low = room < LOW_BYTES
    told = f"{found.available_bytes / GIB:.1f} GiB available, {limit}"
    todo = "raise the container's memory limit, or free memory: an offload to the cpu keeps a backup here"
    lines = [Line("host_memory", Status.WARNING if low else Status.OK, told, todo if low else "")]
    if found.locked_bytes == UNLIMITED or found.locked_bytes >= room:
        told = "unlimited" if found.locked_bytes == UNLIMITED else f"{found.locked_bytes / GIB:.1f} GiB"
        return [*lines, Line("pinned_memory", Status.OK, f"RLIMIT_MEMLOCK is {told}")]
    told = f"RLIMIT_MEMLOCK is {found.locked_bytes / 2**20:.1f} MiB; RDMA and some drivers hold pinned memory to it"
    return [*lines, Line("pinned_memory", Status.WARNING, told, "ulimit -l unlimited; docker run --ulimit memlock=-1")]


def shared_memory_line(found: Room) -> Line:
    """Adapters for engines and transports lie there."""
    todo = "docker run --ipc=host, or --shm-size=8g; or give engines a directory= of their own"
    if found.problem:
        return Line("shared_memory", Status.MISSING, found.problem, todo)
    low = found.free_bytes < LOW_BYTES
    told = f"{found.path}: {found.free_bytes / GIB:.1f} of {found.total_bytes / GIB:.1f} GiB free"
    return Line("shared_memory", Status.WARNING if low else Status.OK, told, todo if low else "")


def disk_line(found: Room) -> Line:
    """A directory for disk backups and base files."""
    if found.problem:
        return Line("disk_dir", Status.BROKEN, found.problem, "make it, or name another one that this user may write")
    told = f"{found.path}: {found.free_bytes / GIB:.1f} of {found.total_bytes / GIB:.1f} GiB free"
    if not found.is_real_disk:
        todo = "name a directory on a disk: what lies here takes host memory, and an offload to it is refused"
        return Line("disk_dir", Status.WARNING, f"{told}, in memory (tmpfs)", todo)
    low = found.free_bytes < LOW_BYTES
    todo = "free room, and remove files of earlier runs with adapter-lifecycle clean" if low else ""
    if found.free_bytes < FULL_BYTES:
        return Line("disk_dir", Status.BROKEN, f"{told}: it is full", todo)
    return Line("disk_dir", Status.WARNING if low else Status.OK, told, todo)


def audit_line(found: AuditFolder) -> Line:
    """A directory that its owner alone reads and writes."""
    if found.problem:
        return Line("audit_dir", Status.BROKEN, found.problem, "name a directory that this user may write")
    if not found.exists:
        return Line("audit_dir", Status.OK, f"{found.path} is made, 0700, when a log is opened")
    told = f"{found.path} has the mode {found.mode:04o}"
    if not found.is_ours or found.mode & 0o022:
        whose = "" if found.is_ours else " and is another user's"
        is_shared = not found.is_ours or found.mode & stat.S_ISVTX  # such as /tmp: its mode is as it has to be
        todo = "name a folder of your own below it, which is made 0700" if is_shared else f"chmod 700 {found.path}"
        return Line("audit_dir", Status.BROKEN, f"{told}{whose}: others may change logs", todo)
    if found.open_files:
        names = ", ".join(found.open_files)
        return Line("audit_dir", Status.WARNING, f"{told}; others may read or write {names}", "chmod 600 the logs")
    if found.mode & 0o055:
        return Line("audit_dir", Status.WARNING, f"{told}: others may list it", f"chmod 700 {found.path}")
    return Line("audit_dir", Status.OK, told)


def gloo_line(found: Gloo) -> Line:
    """Whether ranks could agree on this machine."""
    if found.why:
        todo = "several ranks need it: see that torch has torch.distributed, and that loopback is up and open"
        return Line("gloo", Status.BROKEN, found.why, todo)
    return Line("gloo", Status.OK, f"two ranks on loopback agreed within {found.seconds:.1f} s")
