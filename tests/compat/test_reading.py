"""``named_params_and_buffers``: bytes from where they are, and an error where the silent fall-back would be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lifecycle.compat import StaleBackup, maybe_get_cpu_backup, named_params_and_buffers
from lifecycle.errors import ConfigError, UnreadableTensor
from lifecycle.saver import Backup, HostArena
from tests.saver.proc import run_child
from tests.saver.stub import build_stub


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[HostArena]:
    """Closed afterwards."""
    found = HostArena(disk_dir=str(tmp_path))
    yield found
    found.close()


@pytest.fixture
def retaining() -> Iterator[HostArena]:
    """A saver that retains its backups."""
    found = HostArena(retain_host_backup=True)
    yield found
    found.close()


def read(named: dict[str, Tensor], saver: HostArena, **more: object) -> dict[str, Tensor]:
    """All of them."""
    return dict(named_params_and_buffers(named, translate_gpu_to_cpu=True, saver=saver, **more))  # type: ignore[arg-type]


def test_awake_the_live_tensors_are_given(arena: HostArena) -> None:
    """FB-02: a run that never pauses is never refused, whatever backup its regions have."""
    named = {backup.value: torch.ones(2) for backup in Backup}
    for backup in Backup:
        arena.place({"x": named[backup.value]}, backup, backup)

    assert all(read(named, arena)[name] is one for name, one in named.items())


def test_paused_tensors_are_given_from_the_saver_s_backup_without_a_copy(arena: HostArena) -> None:
    """FB-01, FB-17: the source follows from residency; two readings are the same memory."""
    layer = nn.Linear(64, 64)
    before = {name: one.detach().clone() for name, one in layer.named_parameters()}
    arena.place(dict(layer.named_parameters()), "default", Backup.CPU)
    arena.pause("default")
    got = dict(named_params_and_buffers(layer.named_parameters(), translate_gpu_to_cpu=True, saver=arena))

    assert list(got) == ["weight", "bias"]
    assert all(torch.equal(got[name], before[name]) for name in before)
    again = maybe_get_cpu_backup(layer.weight, arena)
    assert again.data_ptr() == got["weight"].data_ptr() != layer.weight.data_ptr()


def test_tensors_outside_of_any_region_are_live_while_others_are_paused(arena: HostArena) -> None:
    """FB-02: adapters that stay resident on purpose."""
    named = {"base": torch.ones(2), "lora": torch.full((3,), 2.0)}
    arena.place({"base": named["base"]}, "default", Backup.CPU)
    arena.pause("default")

    assert read(named, arena)["lora"] is named["lora"]


@pytest.mark.parametrize("backup", ["none", "disk"])
def test_a_paused_tensor_without_a_readable_backup_is_an_error(backup: str, arena: HostArena) -> None:
    """FB-02: asked for it the library ends the process (none), or the paused tensor itself would be read (disk)."""
    named = {"first": torch.ones(2), "base": torch.ones(2)}
    arena.place({"base": named["base"]}, "default", Backup(backup))
    arena.pause("default")
    with pytest.raises(UnreadableTensor, match="default") as caught:
        named_params_and_buffers(named, translate_gpu_to_cpu=True, saver=arena)

    assert caught.value.tensor == "base"
    with pytest.raises(UnreadableTensor):
        maybe_get_cpu_backup(named["base"], arena)


def test_a_retained_backup_is_not_given_for_what_has_trained(retaining: HostArena) -> None:
    """It holds the bytes of the last pause; the library would give it without a word."""
    named = {"base": torch.ones(2), "lora": torch.ones(2)}
    retaining.place(named, "default", Backup.CPU)
    retaining.pause("default")
    retaining.resume("default")
    named["lora"].add_(1)
    with pytest.raises(StaleBackup) as caught:
        read(named, retaining, frozen=["base"])
    assert caught.value.tensor == "lora"

    retaining.pause("default")
    assert read(named, retaining)["lora"].tolist() == [2, 2]


def test_a_retained_backup_is_given_for_what_is_frozen(retaining: HostArena) -> None:
    """Its bytes are those of every pause."""
    named = {"base": torch.ones(2)}
    retaining.place(named, "default", Backup.CPU)
    assert read(named, retaining)["base"] is named["base"]  # there is none yet
    retaining.pause("default")
    retaining.resume("default")

    assert read(named, retaining, frozen=["b*"])["base"] is not named["base"]
    assert maybe_get_cpu_backup(named["base"], retaining, frozen=True).tolist() == [1, 1]
    with pytest.raises(StaleBackup):
        maybe_get_cpu_backup(named["base"], retaining, name="base")


def test_a_stream_looks_again_when_a_tensor_s_turn_comes(arena: HostArena) -> None:
    """FB-03: resumed in between, the rest is read live; paused without backup in between, the rest is an error."""
    named = {"a": torch.ones(2), "b": torch.full((2,), 2.0), "c": torch.ones(2)}
    arena.place({name: named[name] for name in "ab"}, "default", Backup.CPU)
    arena.place({"c": named["c"]}, "scratch", Backup.NONE)
    arena.pause("default")
    stream = named_params_and_buffers(named, translate_gpu_to_cpu=True, saver=arena)
    assert next(stream)[1] is not named["a"]
    arena.resume("default")
    assert next(stream)[1] is named["b"]
    arena.pause("scratch")

    with pytest.raises(UnreadableTensor, match="c"):
        next(stream)


def test_a_backup_that_goes_while_it_is_looked_up_is_looked_for_again(
    arena: HostArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread has resumed the tag, once for good, and once to pause it again."""
    named = {"a": torch.ones(2)}
    arena.place(named, "default", Backup.CPU)
    arena.pause("default")

    def resumed_and_paused(_: Tensor) -> None:
        monkeypatch.undo()
        arena.resume("default")
        arena.pause("default")

    monkeypatch.setattr(arena, "host_backup", resumed_and_paused)
    assert maybe_get_cpu_backup(named["a"], arena).tolist() == [1, 1]
    monkeypatch.setattr(arena, "host_backup", lambda _: arena.resume("default"))

    assert maybe_get_cpu_backup(named["a"], arena) is named["a"]


def test_views_transposed_and_empty_tensors_keep_their_shape(arena: HostArena) -> None:
    """The native library wants contiguous ones."""
    whole = torch.arange(12.0).reshape(3, 4)
    named = {"t": whole.t(), "row": whole[1], "none": torch.zeros(0, 5)}
    arena.place({"whole": whole, **named}, "default", Backup.CPU)
    arena.pause("default")
    got = read(named, arena)

    assert torch.equal(got["t"], torch.arange(12.0).reshape(3, 4).t())
    assert got["row"].tolist() == [4, 5, 6, 7]
    assert got["none"].shape == (0, 5)


def test_without_translation_tensors_are_given_as_they_are() -> None:
    """No saver is needed for it."""
    named = [("a", torch.ones(2)), ("b", torch.ones(2))]

    assert [(name, one.data_ptr()) for name, one in named_params_and_buffers(named)] == [
        (name, one.data_ptr()) for name, one in named
    ]


@pytest.mark.parametrize("saver", [None, object()])
def test_a_saver_that_cannot_be_asked_is_refused(saver: object) -> None:
    """The singleton of the package itself has no books."""
    with pytest.raises(ConfigError, match="TorchMemorySaver"):
        named_params_and_buffers({}, translate_gpu_to_cpu=True, saver=saver)  # type: ignore[arg-type]


def test_the_same_over_the_compiled_library(tmp_path: Path) -> None:
    """torch_memory_saver 0.0.10 itself: reads by residency, and lives on where a direct question ends the process."""
    build_stub(tmp_path)
    child = run_child("from tests.compat.real import main; import sys; main(sys.argv[1])", str(tmp_path))

    assert child.stdout.splitlines()[-4:] == [
        "asked directly, paused without backup: exit 1",
        "asked directly, retained while awake: [0, 0, 0, 0]",
        "asked here: held",
        "copies: held",
    ], child.stdout + child.stderr
    assert child.returncode == 0
