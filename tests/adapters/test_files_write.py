"""Writing a PEFT directory: whole or not at all, private, and readable by PEFT."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lifecycle.adapters import files as files_module
from lifecycle.adapters import save_adapter
from lifecycle.adapters.files import read_adapter
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import AdapterError
from tests.adapters.world import TARGETS, factors
from tests.saver.proc import run_child

PAYLOAD = AdapterPayload("a", 7, 4, 6.0, TARGETS, factors(1, 4))


def mode(path: Path) -> int:
    """Permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    """Rank, alpha, targets and every tensor."""
    written = save_adapter(tmp_path / "a", PAYLOAD)
    found = read_adapter("a", written)

    assert (found.config.rank, found.config.alpha, found.config.target_modules) == (4, 6.0, ("down_proj", "q_proj"))
    assert found.tensors.keys() == PAYLOAD.tensors.keys()
    assert all(torch.equal(found.tensors[name], one) for name, one in PAYLOAD.tensors.items())


def test_an_alpha_that_is_no_integer_is_kept(tmp_path: Path) -> None:
    """That of a converted rsLoRA adapter."""
    save_adapter(tmp_path / "a", replace(PAYLOAD, alpha=6 * 3**0.5))

    assert read_adapter("a", tmp_path / "a").config.alpha == 6 * 3**0.5


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    """The directory 0700, the files 0600, whatever the umask says."""
    before = os.umask(0)
    try:
        written = save_adapter(tmp_path / "a", PAYLOAD)
    finally:
        os.umask(before)

    assert mode(written) == 0o700
    assert {mode(one) for one in written.iterdir()} == {0o600}
    assert {one.name for one in written.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


def test_views_of_one_storage_are_written_as_they_look(tmp_path: Path) -> None:
    """What a lease hands out are views, not contiguous, maybe of one storage."""
    names = sorted(PAYLOAD.tensors)
    storage = torch.arange(64.0).reshape(8, 8)
    payload = replace(PAYLOAD, tensors={names[0]: storage[:, :3], names[1]: storage[2:5], names[2]: storage.T})
    found = read_adapter("a", save_adapter(tmp_path / "a", payload)).tensors

    assert torch.equal(found[names[0]], storage[:, :3])
    assert torch.equal(found[names[1]], storage[2:5])
    assert torch.equal(found[names[2]], storage.T)


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link"])
def test_nothing_that_exists_is_overwritten(tmp_path: Path, kind: str) -> None:
    """An adapter gets a directory of its own."""
    target = tmp_path / "a"
    {"file": target.touch, "directory": target.mkdir, "dangling link": lambda: target.symlink_to("nowhere")}[kind]()

    with pytest.raises(AdapterError, match="exists"):
        save_adapter(target, PAYLOAD)

    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_a_directory_that_cannot_be_written_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    """A file where the parent should be, and no parent at all."""
    (tmp_path / "file").write_text("x")

    for target in (tmp_path / "file" / "a", tmp_path / "missing" / "a", tmp_path / "nu\0l", tmp_path / ("a" * 300)):
        with pytest.raises(AdapterError, match="cannot be written to") as caught:
            save_adapter(target, PAYLOAD)
        assert caught.value.adapter == "a"

    assert [one.name for one in tmp_path.iterdir()] == ["file"]


_FULL = """
import resource, sys
from pathlib import Path
import torch
from lifecycle.adapters import save_adapter
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import AdapterError

resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
name = "base_model.model.m.lora_A.weight"
try:
    save_adapter(Path(sys.argv[1]) / "a", AdapterPayload("a", 1, 4, 4.0, ("m",), {name: torch.zeros(4, 4096)}))
except AdapterError as error:
    print(error)
"""


def test_a_limit_on_file_size_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    """The kernel refuses the write in the middle of the weights file."""
    child = run_child(_FULL, str(tmp_path))

    assert child.returncode == 0, child.stderr
    assert "cannot be written to" in child.stdout
    assert "File too large" in child.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "write", "rename", "sync of the parent"])
def test_a_full_disk_is_an_error_wherever_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Some file systems report it when the file is synced, or when the directory is changed."""

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    def full_above(path: Path) -> None:
        if path == tmp_path:
            full()

    owner, name = {
        "fsync": (os, "fsync"),
        "write": (files_module, "write_synced"),
        "rename": (Path, "rename"),
        "sync of the parent": (files_module, "sync_folder"),
    }[call]
    monkeypatch.setattr(owner, name, full_above if name == "sync_folder" else full)
    with pytest.raises(AdapterError, match="No space left on device"):
        save_adapter(tmp_path / "a", PAYLOAD)

    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a write."""

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files_module, "write_synced", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_adapter(tmp_path / "a", PAYLOAD)

    assert list(tmp_path.iterdir()) == []
