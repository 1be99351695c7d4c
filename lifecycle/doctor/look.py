"""Looks at packages, devices, memory and folders. Decides nothing."""

from __future__ import annotations

import os
import re
import resource
import shutil
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Final

from lifecycle.doctor.asking import ASK_S, ask, shown
from lifecycle.doctor.findings import UNLIMITED, AuditFolder, Cuda, Device, Gloo, Hook, Memory, Package, Room
from lifecycle.doctor.judge import is_older
from lifecycle.memory import cgroup, host
from lifecycle.memory.environment import is_preloaded

OURS: Final = "adapter-lifecycle"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - it is looked at
NOT_FOR_USERS: Final = frozenset({"test", "bench", "browser", "demo", "docs"})
IMPORTS_S: Final = 2 * ASK_S
"""All packages are imported within this, so that one that hangs leaves time for the others."""
_NO_TIME: Final = "it was not tried: what was imported before it left no time"
_REQUIREMENT: Final = re.compile(r"([\w.-]+)\s*(?:>=\s*([\w.]+))?[^;]*(?:;.*extra\s*==\s*[\"']([\w-]+)[\"'])?")
_MODULES: Final = {"megatron-core": "megatron.core", "pyyaml": "yaml", "opentelemetry-api": "opentelemetry.trace"}


def requirements() -> list[Package]:
    """What the installed library and its extras ask for, each once, and the versions that are here.

    Raises:
        importlib.metadata.PackageNotFoundError: the library itself is not installed.
    """
    found: dict[str, Package] = {}
    for text in metadata.requires(OURS) or ():
        match = _REQUIREMENT.match(text)
        if match is None or match[1] == OURS or match[3] in NOT_FOR_USERS:
            continue
        name, extra = match[1], match[3]
        before = found.get(name, Package(name, "", (), _version(name)))
        is_ours = extra is None or (name in found and not before.extras)
        extras = () if is_ours else (*before.extras, extra)
        wanted = before.wanted if is_older(match[2] or "", before.wanted) or not match[2] else match[2]
        found[name] = Package(name, wanted, extras, before.version)
    return list(found.values())


def packages(found: Sequence[Package], within_s: float = IMPORTS_S) -> list[Package]:
    """The same, with why they cannot be imported. One that hangs, or ends its process, is one that cannot.

    Args:
        found: what is installed or not.
        within_s: what has not been imported by then is said to be so.
    """
    modules = [module for one in found if one.version and (module := _module(one)) not in sys.modules]
    why, deadline = dict.fromkeys(modules, _NO_TIME), time.monotonic() + within_s
    while modules and (left_s := deadline - time.monotonic()) > 0:
        answer = ask("importable", *modules, timeout_s=min(ASK_S, left_s))
        told = {module: shown(str(answer.said[module])) for module in modules if module in answer.said}
        modules = [module for module in modules if module not in told]
        if modules:  # the first of them is what it did not come back from
            told[modules.pop(0)] = answer.why or "it ended the process"
        why |= told
    return [replace(one, why=why.get(_module(one), "")) for one in found]


def _module(one: Package) -> str:
    return _MODULES.get(one.name, one.name.replace("-", "_"))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name) or None
    except metadata.PackageNotFoundError:
        return None
    except Exception:  # noqa: BLE001 - a folder that an interrupted installation left behind
        return None


def cuda() -> Cuda:
    """Asked in a process that ends again: nothing of CUDA is loaded here."""
    answer = ask("cuda", env={"PYTORCH_NVML_BASED_CUDA_CHECK": "1"})
    said = answer.said
    return Cuda(
        torch=str(said.get("torch", "")),
        build=str(said.get("build", "")),
        driver=str(said.get("driver", "")),
        runs=str(said.get("runs", "")),
        devices=tuple(Device(*one) for one in said.get("devices", ())),
        usable=int(said.get("usable", 0)),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        why=answer.why or shown(str(said.get("why", ""))),
    )


def hook_is_installed() -> bool:
    """Whether torch_memory_saver is here at all."""
    return _version("torch_memory_saver") is not None


def hook() -> Hook:
    """Which library it is, and whether a process can be started with it: that may end the process."""
    if not hook_is_installed():
        return Hook(installed=False)
    where = ask("hook_path")
    if where.why:
        return Hook(installed=True, why=where.why)
    path = str(where.said.get("path", ""))
    before = os.environ.get("LD_PRELOAD", "")
    loaded = ask("hook_loads", path, env={"LD_PRELOAD": f"{path}:{before}".removesuffix(":")})
    why = (loaded.why or str(loaded.said.get("why", ""))).rpartition("loading shared libraries: ")[2]
    return Hook(installed=True, path=path, loads=not why, preloaded=is_preloaded(), why=why)


def memory() -> Memory:
    """Of the host, of this container, and what this process may lock."""
    import psutil  # noqa: PLC0415 - importing lifecycle does without

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    locked = UNLIMITED if soft == resource.RLIM_INFINITY else soft
    return Memory(int(psutil.virtual_memory().available), cgroup.room_bytes(), locked)


def room(directory: str) -> Room:
    """A directory and the file system that it lies on."""
    problem = host.disk_problem(directory)
    if problem:
        return Room(directory, problem)
    usage = shutil.disk_usage(directory)
    return Room(directory, "", host.is_real_disk(directory), usage.total, usage.free)


def audit_folder(directory: str) -> AuditFolder:
    """Who may read and write logs there."""
    path = Path(directory)
    if not path.exists():
        above = next(one for one in path.absolute().parents if one.exists())
        problem = host.disk_problem(str(above))
        return AuditFolder(directory, exists=False, problem=f"it cannot be made: {problem}" if problem else "")
    problem = host.disk_problem(directory)
    if problem:
        return AuditFolder(directory, exists=True, problem=problem)
    found = path.stat()
    shared = sorted(one.name for one in path.glob("*.jsonl*") if one.is_file() and one.stat().st_mode & 0o077)
    mode = stat.S_IMODE(found.st_mode)
    return AuditFolder(directory, True, "", mode, found.st_uid == os.geteuid(), tuple(shared))


def gloo() -> Gloo:
    """Whether two ranks come together on loopback."""
    answer = ask("gloo")
    return Gloo(why=answer.why) if answer.why else Gloo(float(answer.said.get("seconds", 0.0)))
