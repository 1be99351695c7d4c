"""Trainers in processes of their own, forked from this one, that say what they do and can be killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, ClassVar

import torch

from lifecycle import HostArena
from lifecycle.audit.log import AuditLog
from tests.lifecycle.faulted_events import readable_bytes
from tests.lifecycle.world import World, make_world

SETTINGS: dict[str, dict[str, object]] = {
    "lean on disk": {"strategy": "lean", "offload_target": "disk"},
    "reference on disk, trainable": {"strategy": "reference", "offload_target": "disk", "trainable": True},
    "lean in a file": {"strategy": "lean", "frozen_base": "file"},
}
Say = Callable[..., None]


class Forked:
    """A function in a fork of this process. What it says can be read here.

    Args:
        run: gets something to say things with: ``say(WHAT, KEY=VALUE)``.

    Attributes:
        living: those that were not killed yet.
    """

    living: ClassVar[list[Forked]] = []

    def __init__(self, run: Callable[[Say], None]) -> None:
        here, there = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(here)
            _run(run, there)
        os.close(there)
        self.living.append(self)
        self._said: TextIOWrapper = os.fdopen(here, encoding="utf-8")

    def wait_for(self, what: str) -> dict[str, Any]:
        """Read until it says this.

        Raises:
            AssertionError: it ends before, or said what went wrong.
        """
        for line in self._said:
            said: dict[str, Any] = json.loads(line)
            assert said["what"] != "wrong", said["why"]
            if said["what"] == what:
                return said
        raise AssertionError(f"it ended before it said {what!r}")

    def kill(self) -> None:
        """End it with SIGKILL, at once."""
        self.living.remove(self)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._said.close()


def _run(run: Callable[[Say], None], descriptor: int) -> None:
    def say(what: str, **more: object) -> None:
        os.write(descriptor, json.dumps({"what": what, **more}).encode() + b"\n")

    try:
        run(say)
    except BaseException:  # noqa: BLE001 - shown by the other process
        say("wrong", why=traceback.format_exc())
    finally:
        signal.pause()  # until it is killed: nothing is cleaned up on the way out
        os._exit(1)


def trainer(name: str, folder: Path) -> World:
    """The same world in every process, with a base of 4 MiB so that its file takes a while."""
    torch.manual_seed(5)
    return make_world(arena=HostArena(disk_dir=str(folder)), ballast_bytes=4 * 2**20, **SETTINGS[name])


def live(name: str, folder: Path, cycles: int, say: Say) -> None:
    """Cycles, and in each a checkpoint with another base, which writes another file."""
    say("starts")
    world = trainer(name, folder)
    world.trainer._runner.recorder._audit = AuditLog(folder / "audit" / "log.jsonl")
    for _ in range(cycles):
        before = readable_bytes(world)
        say("sleeps")
        world.trainer.sleep()
        say("offloads")
        world.trainer.offload()
        say("wakes")
        world.trainer.wake_up()
        assert readable_bytes(world) == before
        with world.trainer.loading_checkpoint(), torch.no_grad():
            world.model.up += 1
            say("loads")
    say("is done", files=sorted(own_files(world)))
    signal.pause()


def restart(name: str, folder: Path, held: list[str], say: Say) -> None:
    """A new trainer survives a cycle, and there are no other files than its own and those that others hold."""
    world = trainer(name, folder)
    bytes_ = readable_bytes(world)
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    assert readable_bytes(world) == bytes_
    found = {path.name for path in folder.iterdir() if path.is_file()}
    assert found == {*held, *own_files(world)}, found
    say("is right", bytes=bytes_)


def own_files(world: World) -> set[str]:
    """Names of the base file and the backup files that a trainer has."""
    file, _ = world.trainer._parts.file.held()
    backups = [block.file for block in world.arena.port._estate.blocks.values()]
    return {Path(one).name for one in (*backups, None if file is None else file.path) if one is not None}
