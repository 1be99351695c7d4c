"""A registered adapter whose files change under us, between plan and apply: an error, and nothing is loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.optim import Adam

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState, TransitionFailed
from lifecycle.adapters import AdapterRegistry, DesiredAdapter, PeftAdapters, PreparedAdapter
from lifecycle.adapters.files import read_adapter
from lifecycle.errors import AdapterError
from tests.adapters.world import change_config, change_weights, factors, host, peft_directory

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
STATES = (TrainerState.AWAKE, TrainerState.SLEEPING, TrainerState.OFFLOADED_CPU)


class World:
    """A trainer with adapter a in slot 0, and a directory beside those that tests register."""

    def __init__(self, arena: HostArena) -> None:
        self.made: PeftAdapters = host()
        self.trainer = TrainerLifecycle(
            LifecycleConfig(),
            saver=arena,
            model=self.made.model,
            optimizer=self.made.optimizers(lambda parameters: Adam(parameters, lr=0.01)),
            adapters=self.made,
            audit=MemoryAudit(),
            initial_state=TrainerState.AWAKE,
        )
        self.registry.register("a", tensors=factors(1, 4), rank=4)
        self.trainer.reconcile_adapters()

    @property
    def registry(self) -> AdapterRegistry:
        """What should be loaded."""
        return self.made.registry

    def bring(self, state: TrainerState) -> None:
        """Into a state, by way of awake."""
        self.trainer.wake_up()
        if state is not TrainerState.AWAKE:
            self.trainer.sleep(offload=state is TrainerState.OFFLOADED_CPU)

    def bytes_of_slots(self) -> dict[str, Tensor]:
        """Copies of every slot's parameters and moments, wherever they are."""
        parts = self.trainer._parts
        slots = parts.inventory.slot_tensors()
        held = {**slots, **parts.moments.of(slots)}
        return {name: parts.door.own_bytes(name, one).clone() for name, one in held.items()}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Shared: a refused reconcile leaves nothing behind."""
    arena = HostArena()
    yield World(arena)
    arena.close()


def _move_away_and_link(directory: Path) -> None:
    """The same bytes, but elsewhere."""
    away = directory.with_name("away")
    directory.rename(away)
    directory.symlink_to(away)


def _link_out(directory: Path, name: str) -> None:
    (directory / name).rename(directory.with_name(name))
    (directory / name).symlink_to(directory.with_name(name))


def _into_a_pipe(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    os.mkfifo(directory / WEIGHTS)


def _into_a_directory(directory: Path) -> None:
    (directory / CONFIG).unlink()
    (directory / CONFIG).mkdir()


def _flip_a_bit(directory: Path) -> None:
    content = bytearray((directory / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (directory / WEIGHTS).write_bytes(content)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "one bit of the weights": (_flip_a_bit, f"{WEIGHTS} has changed since it was registered"),
    "other weights of the same size": (
        lambda directory: change_weights(directory, factors(9, 4)),
        f"{WEIGHTS} has changed since it was registered",
    ),
    "cut weights": (lambda directory: os.truncate(directory / WEIGHTS, 100), f"{WEIGHTS} has changed"),
    "another alpha": (lambda directory: change_config(directory, lora_alpha=7), f"{CONFIG} has changed"),
    "no weights": (lambda directory: (directory / WEIGHTS).unlink(), f"has no {WEIGHTS}"),
    "no configuration": (lambda directory: (directory / CONFIG).unlink(), f"has no {CONFIG}"),
    "no directory": (shutil.rmtree, "is no directory"),
    "weights linked out": (lambda directory: _link_out(directory, WEIGHTS), f"{WEIGHTS} is a link that leads out of"),
    "configuration linked out": (lambda directory: _link_out(directory, CONFIG), f"{CONFIG} is a link that leads out"),
    "a pipe": (_into_a_pipe, f"{WEIGHTS} is no regular file"),
    "a directory for a file": (_into_a_directory, CONFIG),
    "the directory linked elsewhere": (_move_away_and_link, "and led to"),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_between_plan_and_apply_is_an_error_and_nothing_is_loaded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: TrainerState, change: str
) -> None:
    """The error names the adapter and the file; slots, records and state are as before, byte for byte."""
    act, why = CHANGES[change]
    world.bring(state)
    directory = peft_directory(tmp_path / "b", seed=3, rank=4)
    world.registry.register("b", path=directory)
    before, loaded, registered = world.bytes_of_slots(), world.made.loaded(), world.registry.snapshot()
    _before_apply(monkeypatch, world, lambda: act(directory))
    with pytest.raises(TransitionFailed) as caught:
        world.trainer.reconcile_adapters()
    after, then = world.bytes_of_slots(), world.registry.snapshot()
    world.registry.deregister("b")
    world.registry.retire_adapters()

    assert isinstance(caught.value.cause, AdapterError)
    assert caught.value.cause.adapter == "b"
    assert why in caught.value.cause.why
    assert all(torch.equal(after[name], one) for name, one in before.items())
    assert (world.made.loaded(), then, world.trainer.state) == (loaded, registered, state)


def _before_apply(monkeypatch: pytest.MonkeyPatch, world: World, act: Callable[[], object]) -> None:
    """Act when the plan was made and the adapter is about to be read."""
    prepare = world.made.prepare

    def acting(desired: DesiredAdapter) -> PreparedAdapter:
        act()
        return prepare(desired)

    monkeypatch.setattr(world.made, "prepare", acting)


def test_a_link_to_the_directory_is_followed_as_long_as_it_leads_to_the_same_one(world: World, tmp_path: Path) -> None:
    """It may be pointed elsewhere and back; what is loaded is what was registered."""
    world.bring(TrainerState.AWAKE)
    one, other = (peft_directory(tmp_path / name, seed=3, rank=4) for name in ("one", "other"))
    link = tmp_path / "link"
    link.symlink_to(one)
    wanted = world.registry.register("linked", path=link)
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(AdapterError, match=f"leads to {other} now, and led to {one} when it was registered"):
        world.made.prepare(wanted)
    link.unlink()
    link.symlink_to(one)

    assert world.made.prepare(wanted).rank == 4
    world.registry.deregister("linked")


def test_files_that_were_written_anew_with_the_same_bytes_are_the_same_adapter(world: World, tmp_path: Path) -> None:
    """Content says what an adapter is, not the time or the number of a file."""
    world.bring(TrainerState.AWAKE)
    directory = peft_directory(tmp_path / "b", seed=3, rank=4)
    wanted = world.registry.register("b", path=directory)
    for name in (CONFIG, WEIGHTS):
        content = (directory / name).read_bytes()
        (directory / name).unlink()
        (directory / name).write_bytes(content)

    assert world.made.prepare(wanted).rank == 4
    world.registry.deregister("b")


def test_a_file_that_changes_while_it_is_registered_is_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that were checked are those whose digest is remembered."""
    directory = peft_directory(tmp_path / "b", seed=3, rank=4)
    check = world.registry._check
    assert check is not None

    def changing(*arguments: object) -> object:
        _flip_a_bit(directory)
        return check(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(world.registry, "_check", changing)
    with pytest.raises(AdapterError, match="has changed since it was registered"):
        world.registry.register("b", path=directory)

    assert world.registry.find("b") is None or "b" not in world.registry.desired()


def test_a_registry_without_slots_remembers_what_a_directory_was(tmp_path: Path) -> None:
    """A host that is connected later loads nothing else."""
    directory = peft_directory(tmp_path / "b", seed=3, rank=4)
    registry = AdapterRegistry(3)
    wanted = registry.register("b", path=directory)
    change_config(directory, lora_alpha=7)
    made = host(registry=registry)

    with pytest.raises(AdapterError, match=f"{CONFIG} has changed"):
        made.prepare(wanted)


@pytest.mark.parametrize("part", ["sub", "sub/real"])
def test_a_link_that_is_put_in_place_between_the_look_and_the_use_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Each part of the path is opened in the one above it."""
    directory = peft_directory(tmp_path / "b", seed=3, rank=4)
    (directory / "sub").mkdir()
    (directory / WEIGHTS).rename(directory / "sub" / "real")
    (directory / WEIGHTS).symlink_to("sub/real")
    realpath = os.path.realpath

    def swapping(path: Path, *, strict: bool) -> str:
        found = realpath(path, strict=strict)
        if Path(path).name == WEIGHTS:
            (directory / part).rename(tmp_path / "out")
            (directory / part).symlink_to(tmp_path / "out")
        return found

    monkeypatch.setattr(os.path, "realpath", swapping)
    with pytest.raises(AdapterError, match=f"{WEIGHTS} cannot be read"):
        read_adapter("b", directory)
