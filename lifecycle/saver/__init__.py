"""Memory savers: the protocol, the emulation on host memory, and the adapter for torch_memory_saver."""

from __future__ import annotations

from lifecycle.saver.arena import ArenaPort, Faults, HostArena
from lifecycle.saver.managed import ManagedSaver
from lifecycle.saver.native import NativePort
from lifecycle.saver.protocol import Backup, MemorySaver, TagInfo, Usage, Window
from lifecycle.saver.tms import PackagePort, TorchMemorySaver

__all__ = [
    "ArenaPort",
    "Backup",
    "Faults",
    "HostArena",
    "ManagedSaver",
    "MemorySaver",
    "NativePort",
    "PackagePort",
    "TagInfo",
    "TorchMemorySaver",
    "Usage",
    "Window",
]
