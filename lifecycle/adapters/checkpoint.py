"""Checkpoints of an adapter: what one directory ``step_N`` holds, and what a manifest says of it.

::

    DIR/.lock                             held by who writes
    DIR/step_200/adapter_config.json      these two are a PEFT directory,
    DIR/step_200/adapter_model.safetensors    which peft.PeftModel.from_pretrained reads
    DIR/step_200/optimizer.json           settings, counts that are numbers, the scheduler's progress
    DIR/step_200/optimizer.safetensors    moments, step counts, fp32 main copies
    DIR/step_200/checkpoint.json          the manifest: what it is, and the SHA-256 of the other four

A directory named ``step_N`` is always whole: it gets that name when everything in it is on the disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from torch import Tensor

from lifecycle.adapters.folder import CONFIG_NAME, WEIGHTS_NAME, FileIdentity

MANIFEST_NAME: Final = "checkpoint.json"
VALUES_NAME: Final = "optimizer.json"
STATE_NAME: Final = "optimizer.safetensors"
FILES: Final = (CONFIG_NAME, WEIGHTS_NAME, VALUES_NAME, STATE_NAME)
STEP_MAX: Final = 2**53

_STEP: Final = re.compile(r"step_(0|[1-9][0-9]{0,15})")


@dataclass(frozen=True, slots=True)
class Origin:
    """The registration that a checkpoint is of.

    Attributes:
        adapter: its name.
        registration_id: its id in the registry of that run.
        step: optimizer steps it had done.
    """

    adapter: str
    registration_id: int
    step: int


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """What belongs to a slot besides its weights, by names that are those of slot 0 whatever the slot.

    Attributes:
        values: optimizers, groups, counts, the scheduler's progress. Tensors in them are in *tensors* too.
        tensors: moments, counts and main copies, CPU, of the slot's shapes. Owned by this object.
        told: for the log: where it was read from, and what was passed over.
    """

    values: Mapping[str, object]
    tensors: Mapping[str, Tensor] = field(repr=False)
    told: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A directory that was passed over.

    Attributes:
        name: of the directory.
        why: what is wrong with it.
    """

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """The checkpoint that an adapter is registered with; nothing else is loaded from its directory later.

    Attributes:
        path: the directory ``step_N``.
        origin: whose it is.
        manifest_sha256: of the manifest, which has the digests of everything else.
        identity: the real path, and the digests of the two PEFT files.
        skipped: newer directories that are not whole.
    """

    path: Path
    origin: Origin
    manifest_sha256: str
    identity: FileIdentity
    skipped: tuple[Skipped, ...] = ()

    def told(self) -> dict[str, object]:
        """What the log says of it."""
        passed_over = [f"{one.name}: {one.why}" for one in self.skipped]
        origin = {"adapter": self.origin.adapter, "registration_id": self.origin.registration_id}
        return {"step": self.origin.step, "from": origin, "passed_over": passed_over}


def step_name(step: int) -> str:
    """The name of the directory of a step."""
    return f"step_{step}"


def step_of(name: str) -> int | None:
    """The step that a directory's name says, None when it is no such name."""
    found = _STEP.fullmatch(name)
    return None if found is None else int(found[1])
