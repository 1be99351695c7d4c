"""Checkpoints without a trainer, what of a directory is whole, and faults at each step of a write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lifecycle.adapters import checkpoint_write
from lifecycle.adapters.checkpoint import CONFIG_NAME, STATE_NAME, VALUES_NAME, WEIGHTS_NAME, step_name
from lifecycle.adapters.checkpoint_manifest import SCHEMA, FileEntry, Manifest
from lifecycle.adapters.checkpoint_read import check_checkpoint, steps_in
from lifecycle.adapters.checkpoint_write import write_checkpoint
from lifecycle.adapters.folder import sha256_of
from lifecycle.errors import AdapterError


def contents_of(seed: int) -> dict[str, bytes]:
    """Four files. Their bytes mean nothing, except to a digest."""
    names = (CONFIG_NAME, WEIGHTS_NAME, VALUES_NAME, STATE_NAME)
    return {name: f"{name} {seed} ".encode() * 500 for name in names}


def manifest_of(contents: dict[str, bytes], step: int, **changes: Any) -> Manifest:
    """Of adapter a at this step."""
    files = {name: FileEntry(sha256_of(one), len(one)) for name, one in contents.items()}
    settings: dict[str, Any] = {
        "schema": SCHEMA,
        "adapter": "a",
        "registration_id": 7,
        "step": step,
        "resumed_from": None,
        "rank": 4,
        "alpha": 8.0,
        "target_modules": ("q_proj",),
        "versions": {"adapter/a": 12},
        "files": files,
    }
    return Manifest(**(settings | changes))


def put(directory: Path, step: int, seed: int, **changes: Any) -> Path:
    """Write the checkpoint of a step."""
    contents = contents_of(seed)
    return write_checkpoint(directory, manifest_of(contents, step, **changes), contents)


def whole(directory: Path) -> dict[int, int]:
    """Every step whose directory is a whole checkpoint, and the seed of its content."""
    found = {}
    for step in steps_in(directory) if directory.is_dir() else ():
        path = directory / step_name(step)
        try:
            check_checkpoint("a", path)
        except AdapterError:
            continue
        found[step] = int((path / CONFIG_NAME).read_bytes().split()[1])
    return found


def damage(path: Path) -> None:
    """Change one byte of the weights."""
    content = bytearray((path / WEIGHTS_NAME).read_bytes())
    content[10] ^= 1
    (path / WEIGHTS_NAME).write_bytes(content)


def _of_six_and(step: int) -> Callable[[Path], object]:
    return lambda directory: (put(directory, 6, 1), put(directory, step, 2))


def _damaged(directory: Path) -> None:
    put(directory, 6, 1)
    damage(put(directory, 9, 2))


def _left_over(directory: Path) -> None:
    put(directory, 6, 1)
    left = directory / ".step-dead.tmp"
    left.mkdir(mode=0o700)
    (left / CONFIG_NAME).write_bytes(b"half")


BEFORE: dict[str, tuple[Callable[[Path], object], dict[int, int]]] = {
    "no directory": (lambda _: None, {}),
    "an older step": (lambda directory: put(directory, 6, 1), {6: 1}),
    "the same checkpoint": (_of_six_and(9), {6: 1, 9: 2}),
    "the same step, damaged": (_damaged, {6: 1}),
    "a dead writer's rest": (_left_over, {6: 1}),
}
"""What is there before step 9 with seed 2 is written, and which of it is whole."""

_CALLS = ("open", "fsync", "mkdir", "rename", "rmdir", "unlink", "listdir")


class Faults:
    """Counts the steps of a write, and acts at one of them.

    Args:
        at: the step, from 0.
        act: what happens there: raises, or kills this process.
        patch: sets an attribute of a module, such as ``setattr``.
        torn: leave half of a file behind where the step is that of writing it.
    """

    def __init__(
        self, at: int, act: Callable[[], object], patch: Callable[[Any, str, object], object], *, torn: bool
    ) -> None:
        self._at, self._act, self._torn = at, act, torn
        self.count = 0
        for name in _CALLS:
            patch(os, name, self._before(getattr(os, name)))
        patch(os, "close", self._with_close(os.close))
        patch(checkpoint_write, "write_synced", self._with_write(checkpoint_write.write_synced))

    def _point(self) -> None:
        self.count += 1
        if self.count == self._at + 1:
            self._act()

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self._point()
            return call(*arguments, **keywords)

        return counted

    def _with_close(self, call: Callable[[int], None]) -> Callable[[int], None]:
        """A close that fails has closed."""

        def closing(descriptor: int) -> None:
            call(descriptor)
            self._point()

        return closing

    def _with_write(self, call: Callable[[Path, bytes], None]) -> Callable[[Path, bytes], None]:
        def writing(path: Path, content: bytes) -> None:
            if self._torn and self.count == self._at:
                path.write_bytes(content[: len(content) // 2])
            self._point()
            call(path, content)

        return writing
