"""The adapter for torch_memory_saver, without a GPU: what it refuses, and which calls of the package it makes."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from lifecycle.errors import ConfigError, SaverError
from lifecycle.memory import host
from lifecycle.saver import tms
from lifecycle.saver.protocol import Backup
from lifecycle.saver.tms import PackagePort, TorchMemorySaver
from tests.saver.proc import run_child

MIB = 1 << 20


class FakeLibrary:
    """The two functions that the adapter calls directly."""

    def __init__(self) -> None:
        self.interesting = False
        self.slot = (ctypes.c_uint8 * 64)()

    def tms_get_interesting_region(self) -> bool:
        return self.interesting

    def tms_get_cpu_backup_pointer(self, pointer: object, size_bytes: int) -> object:
        cast = ctypes.POINTER(ctypes.c_uint8)
        return ctypes.cast(self.slot, cast) if size_bytes <= 64 else cast()


class FakePackage:
    """The package's singleton: started at its first use, in the hook mode that was set before."""

    def __init__(self) -> None:
        self.library = FakeLibrary()
        self.calls: list[tuple[object, ...]] = []
        self._impl: types.SimpleNamespace | None = None
        self.hook_mode = "preload"
        self.retain = False
        self.disk_dir: Path | None = None

    def start(self) -> None:
        """First use."""
        if self._impl is None:
            binary = types.SimpleNamespace(cdll=self.library)
            self._impl = types.SimpleNamespace(_hook_mode=self.hook_mode, _binary_wrapper=binary)

    @property
    def retain_cpu_backup(self) -> bool:
        self.start()
        return self.retain

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self.start()
        self.retain = value

    @contextmanager
    def region(self, tag: str, *, enable_cpu_backup: bool, enable_disk_backup: bool) -> Iterator[None]:
        self.calls.append(("region", tag, enable_cpu_backup, enable_disk_backup))
        yield

    @contextmanager
    def disable(self) -> Iterator[None]:
        assert self.library.interesting, "disable() should be called only when tms is active"
        self.library.interesting = False
        self.calls.append(("disable",))
        yield
        self.library.interesting = True

    def pause(self, tag: str) -> None:
        self.calls.append(("pause", tag))
        if self.disk_dir is not None:
            (self.disk_dir / "tms_abcdef").write_bytes(bytes(4096))

    def resume(self, tag: str) -> None:
        self.calls.append(("resume", tag))

    def set_disk_backup_dir(self, path: str) -> None:
        self.disk_dir = Path(path)
        self.calls.append(("set_disk_backup_dir", path))


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    """A machine with a device, the package and its hook."""
    fake = FakePackage()
    module = types.ModuleType("torch_memory_saver")
    module.__spec__ = importlib.util.spec_from_loader("torch_memory_saver", None)
    module.torch_memory_saver = fake  # type: ignore[attr-defined]
    empty = torch.empty
    monkeypatch.setitem(sys.modules, "torch_memory_saver", module)
    monkeypatch.setenv("LD_PRELOAD", "/lib/torch_memory_saver_hook_mode_preload_cu13.abi3.so:/lib/other.so")
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: fake.calls.append(("synchronize",)))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (100 * MIB, 200 * MIB))

    def host_empty(*size: int, device: object = None, **options: object) -> torch.Tensor:
        return empty(*size, device=None if device == "cuda" else device, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(torch, "empty", host_empty)
    monkeypatch.setattr(TorchMemorySaver, "_live", None)
    return fake


def test_without_cuda_it_is_refused_and_the_process_lives() -> None:
    """The package is installed, its first use would load libcuda: it is not reached."""
    program = """
import sys
from lifecycle.saver import TorchMemorySaver
from lifecycle.errors import ConfigError
try:
    TorchMemorySaver()
except ConfigError as error:
    print(error, "torch_memory_saver" in sys.modules)
"""
    child = run_child(program)

    assert child.returncode == 0, child.stderr
    assert "use HostArena" in child.stdout
    assert child.stdout.endswith(" False\n")


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("LD_PRELOAD", "", "configure_subprocess"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "unset it"),
        ("PYTORCH_ALLOC_CONF", "a:1,expandable_segments:True", "unset it"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments: True , a:1", "unset it"),
    ],
)
def test_an_environment_it_cannot_work_in_is_refused(
    variable: str, value: str, remedy: str, package: FakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook is not loaded, or torch's allocator is in a mode that it does not support."""
    monkeypatch.setenv(variable, value)

    with pytest.raises(ConfigError, match=remedy):
        TorchMemorySaver()

    assert package._impl is None


def test_a_missing_package_is_refused(package: FakePackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy names the package and the alternative."""
    monkeypatch.setattr(tms, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="pip install torch-memory-saver, or use HostArena"):
        TorchMemorySaver()


def test_a_package_that_cannot_start_is_refused(package: FakePackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its assertions and loader errors come as an error of the configuration."""

    def fail() -> None:
        raise AssertionError("observes invalid LD_PRELOAD")

    monkeypatch.setattr(package, "start", fail)

    with pytest.raises(ConfigError, match=r"AssertionError: observes invalid LD_PRELOAD.*0\.0\.10"):
        TorchMemorySaver()


def test_an_unknown_hook_mode_is_refused(package: FakePackage) -> None:
    """There are two."""
    with pytest.raises(ConfigError, match="preload or torch"):
        TorchMemorySaver("ld")  # type: ignore[arg-type]


def test_a_hook_mode_that_was_started_before_is_refused(package: FakePackage) -> None:
    """The package keeps the mode of its first use for the life of the process."""
    package.start()

    with pytest.raises(ConfigError, match="hook_mode='preload'"):
        TorchMemorySaver("torch")


def test_the_torch_hook_needs_no_preload(package: FakePackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is set before the first use."""
    monkeypatch.setenv("LD_PRELOAD", "")

    saver = TorchMemorySaver("torch")

    assert saver.enabled
    assert package._impl is not None
    assert package._impl._hook_mode == "torch"


def test_a_second_saver_in_a_process_is_refused_while_the_first_lives(package: FakePackage) -> None:
    """Two sets of books cannot both be true."""
    first = TorchMemorySaver()
    with pytest.raises(ConfigError, match="two sets of books"):
        TorchMemorySaver()

    del first
    TorchMemorySaver()


@pytest.mark.parametrize(
    ("backup", "flags"),
    [(Backup.NONE, (False, False)), (Backup.CPU, (True, False)), (Backup.DISK, (False, True))],
)
def test_the_calls_of_one_cycle(backup: Backup, flags: tuple[bool, bool], package: FakePackage, tmp_path: Path) -> None:
    """Allocate in a region of the tag with one kind, wait for the device, pause, resume. Retain is set."""
    saver = TorchMemorySaver(retain_host_backup=True, disk_dir=str(tmp_path))
    saver.place({"x": torch.ones(4)}, "tag", backup)
    saver.pause("tag")
    saver.resume("tag")

    assert package.retain
    assert package.calls == [
        ("set_disk_backup_dir", str(tmp_path)),
        ("region", "tag", *flags),
        ("synchronize",),
        ("pause", "tag"),
        ("resume", "tag"),
    ]


def test_the_backup_pointer_is_the_librarys(package: FakePackage) -> None:
    """A null pointer is None."""
    port = PackagePort()

    assert port.backup_pointer(4096, 8) == ctypes.addressof(package.library.slot)
    assert port.backup_pointer(4096, 65) is None


def test_unmanaged_disables_inside_a_region_only_and_once(package: FakePackage) -> None:
    """The package asserts that a region is active: outside, and nested, nothing is called (FB-22)."""
    saver = TorchMemorySaver()
    with saver.unmanaged():
        pass
    assert package.calls == []

    package.library.interesting = True
    with saver.unmanaged(), saver.unmanaged():
        assert not package.library.interesting

    assert package.calls == [("disable",)]
    assert package.library.interesting


def test_tensors_of_a_framework_are_adopted_without_a_native_call(package: FakePackage) -> None:
    """What Megatron allocated in a region of the package is paused by its tag and read at its address."""
    saver = TorchMemorySaver()
    buffer = torch.ones(8)
    saver.adopt({"buffer": buffer, "view": buffer[2:]}, "param_buffer", Backup.CPU, paused=False)
    assert package.calls == []
    saver.pause("param_buffer")

    backup = saver.host_backup(buffer)

    assert package.calls == [("synchronize",), ("pause", "param_buffer")]
    assert backup is not None
    assert backup.data_ptr() == ctypes.addressof(package.library.slot)
    saver.release("param_buffer")
    assert saver.tags() == {}


def test_a_full_device_at_placement_is_an_error_of_the_saver(
    package: FakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's own error names no tag and no remedy."""
    saver = TorchMemorySaver()
    tensor = torch.ones(4)

    def full(*size: int, **options: object) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(SaverError, match="pause or release another tag"):
        saver.place({"x": tensor}, "tag", Backup.CPU)
    monkeypatch.undo()

    assert saver.tags() == {}


def test_a_resume_without_room_is_refused_before_the_native_call(
    package: FakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment counts, not the tensor: 4 bytes take 2 MiB."""
    saver = TorchMemorySaver()
    saver.place({"x": torch.ones(1)}, "tag", Backup.CPU)
    saver.pause("tag")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2 * MIB - 1, 200 * MIB))

    with pytest.raises(SaverError, match="free device memory first"):
        saver.resume("tag")

    assert ("resume", "tag") not in package.calls


@pytest.mark.parametrize("backup", [Backup.CPU, Backup.DISK])
def test_a_pause_whose_backup_has_no_room_is_refused_before_the_native_call(
    backup: Backup, package: FakePackage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A full host or disk ends the process in the library (FB-20)."""
    saver = TorchMemorySaver(disk_dir=str(tmp_path))
    saver.place({"x": torch.ones(1)}, "tag", backup)
    monkeypatch.setattr(host, "host_free_bytes", lambda: MIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=MIB))

    with pytest.raises(SaverError, match="make room first"):
        saver.pause("tag")

    assert ("pause", "tag") not in package.calls
    assert not saver.tags()["tag"].paused


def test_the_driver_says_what_is_in_use(package: FakePackage) -> None:
    """Total less free, not what the books hold: a pause that frees nothing shows there (FB-27)."""
    saver = TorchMemorySaver()
    saver.place({"x": torch.ones(4)}, "tag", Backup.CPU)
    saver.pause("tag")

    assert saver.usage().device_bytes == 0
    assert saver.device_used_bytes() == 100 * MIB


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ("0.0.9.post1", False),
        ("0.0.10", True),
        ("0.0.10.post1", True),
        ("0.0.10+cu13", True),
        ("0.1", True),
        ("1.0.0", True),
        ("0.0.10rc1", False),
        ("0.0.9", False),
        ("a fork", False),
    ],
)
def test_freeing_while_paused_is_safe_from_version_0_0_10_on(
    version: str,
    safe: bool,  # noqa: FBT001  # pytest passes by name
    package: FakePackage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Older versions release the handle twice and end the process; what cannot be read counts as older (FB-25)."""
    monkeypatch.setattr(tms.metadata, "version", lambda name: version)

    assert TorchMemorySaver().frees_while_paused is safe


def test_a_package_without_metadata_counts_as_an_old_one(package: FakePackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source tree on the path has no version to go by (FB-25)."""

    def missing(name: str) -> str:
        raise tms.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(tms.metadata, "version", missing)

    assert not TorchMemorySaver().frees_while_paused
