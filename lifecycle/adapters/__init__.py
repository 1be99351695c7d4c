"""Adapters: the registry of what should be loaded, files on disk, and slots on a PEFT model or a megatron-core model.

Importing this needs neither peft, megatron-core nor safetensors; they are imported where they are used.
"""

from __future__ import annotations

from lifecycle.adapters.files import save_adapter
from lifecycle.adapters.lenient import LenientRegistry
from lifecycle.adapters.megatron_host import MegatronAdapters
from lifecycle.adapters.peft_host import PeftAdapters
from lifecycle.adapters.protocol import AdapterHost, DesiredAdapter, PreparedAdapter
from lifecycle.adapters.records import AdapterRecord, LoadedAdapter, RegistrySnapshot, TrainedBatch
from lifecycle.adapters.refusals import AdapterRefused, NoFreeSlot, RegistryFileError, SaveDirectoryTaken
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.settings import AdapterSettings
from lifecycle.adapters.sources import AdapterSource

__all__ = [
    "AdapterHost",
    "AdapterRecord",
    "AdapterRefused",
    "AdapterRegistry",
    "AdapterSettings",
    "AdapterSource",
    "DesiredAdapter",
    "LenientRegistry",
    "LoadedAdapter",
    "MegatronAdapters",
    "NoFreeSlot",
    "PeftAdapters",
    "PreparedAdapter",
    "RegistryFileError",
    "RegistrySnapshot",
    "SaveDirectoryTaken",
    "TrainedBatch",
    "save_adapter",
]
