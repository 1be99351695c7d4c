"""The errors of the registry, for callers that want to tell them apart.

AdapterError
├── AdapterRefused      the registration may not do that in the state it is in
├── NoFreeSlot          every slot is held
└── SaveDirectoryTaken  another adapter that holds a slot saves there, above or below
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
    """The checkpoints of two adapters would meet in one directory. Nothing changed.

    Attributes:
        save: the directory that was asked for, resolved.
        holder: the adapter that saves there, above or below.
        holder_save: the save directory of that one.
    """

    def __init__(self, adapter: str, save: Path, holder: str, holder_save: Path) -> None:
        near = f"that of {holder!r}" if save == holder_save else f"not apart from {holder_save}, that of {holder!r}"
        super().__init__(adapter, f"its save directory {save} is {near}; give it one of its own beside it")
        self.save = save
        self.holder = holder
        self.holder_save = holder_save


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
