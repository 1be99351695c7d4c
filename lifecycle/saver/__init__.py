"""Memory savers: the protocol, the emulation on host memory, and the adapter for torch_memory_saver."""

from __future__ import annotations

from lifecycle.saver.protocol import Backup, MemorySaver, TagInfo, Usage

__all__ = ["Backup", "MemorySaver", "TagInfo", "Usage"]
