"""The errors of the registry, for callers that want to tell them apart.

AdapterError
├── AdapterRefused      the registration may not do that in the state it is in
├── NoFreeSlot          every slot is held
└── SaveDirectoryTaken  another adapter that holds a slot saves there
RegistryFileError       the world: a registry's file is missing, damaged, of another schema, or no plain file
"""

from __future__ import annotations

from pathlib import Path

from lifecycle.errors import AdapterError, LifecycleError
from states.adapters import AdapterRefusal


class AdapterRefused(AdapterError):
    """The table has no such move. Nothing changed.

    Attributes:
        refusal: state, event, reason and remedy.
    """

    def __init__(self, adapter: str, refusal: AdapterRefusal) -> None:
        super().__init__(adapter, f"cannot {refusal.event}: {refusal.because}; {refusal.remedy}")
        self.refusal = refusal


class NoFreeSlot(AdapterError):
    """Every slot is held by another adapter. Nothing changed.

    Attributes:
        slots: how many there are.
    """

    def __init__(self, adapter: str, slots: int) -> None:
        super().__init__(adapter, f"no slot is free ({slots} in use); deregister another one and reconcile")
        self.slots = slots


class SaveDirectoryTaken(AdapterError):
    """Two adapters would overwrite each other's checkpoints. Nothing changed.

    Attributes:
        save: the directory, resolved.
        holder: the adapter that saves there.
    """

    def __init__(self, adapter: str, save: Path, holder: str) -> None:
        super().__init__(adapter, f"its save directory {save} is that of {holder!r}; give it one of its own")
        self.save = save
        self.holder = holder


class RegistryFileError(LifecycleError, ValueError):
    """A saved registry that cannot be written, read or trusted. Nothing was changed.

    Attributes:
        path: the file.
        why: what is wrong with it.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"registry file {path}: {why}")
        self.path = path
        self.why = why
