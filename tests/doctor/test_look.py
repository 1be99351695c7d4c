"""What is found in surroundings that are made up, and in the real ones."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from lifecycle.doctor import look
from lifecycle.doctor.ask import cuda as ask_cuda
from lifecycle.doctor.ask import gloo as ask_gloo
from lifecycle.doctor.ask import hook_loads, importable
from lifecycle.doctor.asking import ASK_S, Answer
from lifecycle.doctor.findings import UNLIMITED, Device, Package
from lifecycle.doctor.judge import hook_line
from lifecycle.doctor.lines import Status
from lifecycle.memory import cgroup
from tests.saver.stub import build_stub, compile_shared

ROOT = Path(__file__).parents[2]
REQUIRES = [
    "torch>=2.6",
    'peft>=0.15; extra == "peft"',
    'numpy; extra == "peft"',
    'numpy>=2; extra == "megatron"',
    'numpy>=1.9; extra == "engines"',
    'adapter-lifecycle[peft]; extra == "demo"',
    'matplotlib>=3.9; extra == "bench"',
    'no-such-package>=1; extra == "ray"',
    'torch; extra == "ray"',
]


class Asks:
    """Stands in for the programs: gives these answers, and notes what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Answer) -> None:
        self.asked: list[tuple[tuple[str, ...], dict[str, str]]] = []
        self._answers = answers
        monkeypatch.setattr(look, "ask", self)

    def __call__(self, *asked: str, env: dict[str, str] | None = None, timeout_s: float = 0.0) -> Answer:
        self.asked.append((asked, env or {}))
        return self._answers[asked[0]]


def test_each_requirement_is_listed_once_with_all_of_its_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests and the bench are left out, and the greatest version that is asked for counts."""
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRES)

    found = {one.name: one for one in look.requirements()}

    assert list(found) == ["torch", "peft", "numpy", "no-such-package"]
    assert (found["torch"].wanted, found["torch"].extras) == ("2.6", ())
    assert found["torch"].version == metadata.version("torch")
    assert (found["numpy"].wanted, found["numpy"].extras) == ("2", ("peft", "megatron", "engines"))
    assert found["no-such-package"].version is None


def test_what_is_for_users_is_what_the_readme_names_for_them() -> None:
    """Nobody is told to install what only this project's own tests and pages need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    sentence = readme[readme.index("`pip install -e '.[peft]'`") : readme.index("The package to import is")]

    for_users = set(project["optional-dependencies"]) - look.NOT_FOR_USERS

    assert {"engines", "ray"} < for_users
    assert [one for one in sorted(for_users - {"peft"}) if f"`{one}`" not in sentence] == []


def test_the_librarys_own_requirements_can_be_read() -> None:
    """As they are installed here."""
    found = {one.name: one for one in look.requirements()}

    assert found["torch"].wanted == "2.6"
    assert found["peft"].extras == ("peft",)
    assert "pytest" not in found


PACKAGES = [
    Package("torch", "", (), "2.13"),
    Package("megatron-core", "0.16", ("megatron",), "0.16.1"),
    Package("none", "", ("none",), None),
    Package("ray", "", ("ray",), "2.60"),
]


@pytest.fixture
def not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of these packages this process has imported torch alone, whatever ran before."""
    for module in ("megatron", "megatron.core", "ray"):
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.mark.usefixtures("not_here")
def test_packages_are_imported_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names of their modules; not those that are missing, or here already."""
    why = "ImportError: http://user:hunter2@host/ has none"
    asks = Asks(monkeypatch, importable=Answer({"megatron.core": why, "ray": ""}))

    found = look.packages(PACKAGES)

    assert asks.asked == [(("importable", "megatron.core", "ray"), {})]
    assert [one.why for one in found] == ["", "ImportError: http://[redacted]@host/ has none", "", ""]
    assert [one.name for one in found] == [one.name for one in PACKAGES]


BROKEN = {
    "ends": "import os; os._exit(3)",
    "hangs": "import time; time.sleep(600)",
    "leaves": "raise SystemExit",
    "noise": "print('{}'); print('[1'); print('noise', end='')",
    "closes": "import os; os.close(1)",
    "words": "raise OSError('lib.so: cannot open\\n' + 'why ' * 200)",
    "well": "",
}


def test_packages_that_end_or_hang_are_named_and_the_others_are_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In real processes: each that does not come back costs another one; what was imported before it stands."""
    for name, text in BROKEN.items():
        (tmp_path / f"broken_{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(look, "ASK_S", 3.0)
    names = [f"broken_{name}" for name in BROKEN]

    found = look.packages([Package(name, "", (), "1") for name in names])
    why = {one.name.removeprefix("broken_"): one.why for one in found}

    assert (why["closes"], why["noise"], why["well"]) == ("", "", "")
    assert why["ends"] == "its process ended with 3"
    assert why["hangs"] == "it did not end within 3 s"
    assert why["leaves"].startswith("SystemExit")
    assert why["words"].startswith("OSError: lib.so: cannot open why why")
    assert len(why["words"]) < 320


def test_what_could_not_be_tried_in_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not said to be well."""
    Asks(monkeypatch, importable=Answer(why="it did not end within 1 s"))

    (found,) = look.packages([Package("broken_else", "", (), "1")], within_s=0.0)

    assert found.why == "it was not tried: what was imported before it left no time"


@pytest.mark.parametrize(("within_s", "least_s", "most_s"), [(5.0, 0.0, 5.0), (1e6, ASK_S, ASK_S)])
def test_imports_get_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, within_s: float, least_s: float, most_s: float
) -> None:
    """And never more than any other program."""
    times: list[float] = []

    def ask(_: str, *modules: str, timeout_s: float) -> Answer:
        times.append(timeout_s)
        return Answer(dict.fromkeys(modules, ""))

    monkeypatch.setattr(look, "ask", ask)
    look.packages([Package("no-such-package", "", (), "1")], within_s)

    assert [least_s <= one <= most_s for one in times] == [True]


def test_what_an_interrupted_installation_left_behind_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of metadata without any breaks no other line."""
    (tmp_path / "no_such_package-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRES)

    assert {one.name: one.version for one in look.requirements()}["no-such-package"] is None


def test_no_package_is_imported_before_it_is_looked_at() -> None:
    """The doctor itself needs none: any of them may be what is broken, torch first of all."""
    program = "import sys, lifecycle.doctor; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    needed = {one.name.replace("-", "_") for one in look.requirements()}
    assert needed & set(done.stdout.split()) == set()


def test_a_module_that_cannot_be_imported_says_why() -> None:
    """Also one that would end the process."""
    assert importable.why_not("json") == ""
    assert importable.why_not("no_such_module") == "ModuleNotFoundError: No module named 'no_such_module'"


def test_cuda_is_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch is told to ask the driver's books, which make no context."""
    driver = {"driver": "580.1", "runs": "13.0", "devices": [["H200", 140, 139]]}
    said = {**driver, "torch": "2.13", "build": "13.0", "usable": 1}
    asks = Asks(monkeypatch, cuda=Answer(said))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    found = look.cuda()

    assert (found.driver, found.runs, found.devices) == ("580.1", "13.0", (Device("H200", 140, 139),))
    assert (found.usable, found.visible, found.torch, found.build) == (1, "0", "2.13", "13.0")
    assert asks.asked == [(("cuda",), {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"})]
    Asks(monkeypatch, cuda=Answer(why="it did not end"))
    assert look.cuda().why == "it did not end"


def test_the_hook_is_preloaded_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before what is preloaded already; what the loader says is taken without the interpreter's path."""
    path, loads = Answer({"path": "/tms.so"}), Answer({"why": ""})
    asks = Asks(monkeypatch, hook_path=path, hook_loads=loads)
    monkeypatch.setenv("LD_PRELOAD", "/other.so")

    assert look.hook().loads
    assert asks.asked[1] == (("hook_loads", "/tms.so"), {"LD_PRELOAD": "/tms.so:/other.so"})
    why = "its process ended with 127: /python: error while loading shared libraries: libcuda.so.1: cannot open"
    Asks(monkeypatch, hook_path=path, hook_loads=Answer(why=why))
    assert look.hook().why == "libcuda.so.1: cannot open"
    assert not look.hook().loads


def test_a_hook_that_is_not_there_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is missing, or has no library for this CUDA."""
    asks = Asks(monkeypatch, hook_path=Answer(why="RuntimeError: found 0"))

    assert look.hook().why == "RuntimeError: found 0"
    monkeypatch.setattr(look, "_version", lambda _: None)
    assert not look.hook().installed
    assert len(asks.asked) == 1


def test_the_limit_of_locked_memory_is_the_processs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soft one; no limit is a number of its own."""
    monkeypatch.setattr(cgroup, "room_bytes", lambda: 5)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, resource.RLIM_INFINITY))
    assert (look.memory().locked_bytes, look.memory().room_bytes) == (4096, 5)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert look.memory().locked_bytes == UNLIMITED
    assert look.memory().available_bytes > 0


def test_a_directory_has_the_room_of_its_file_system(tmp_path: Path) -> None:
    """One that does not exist says so."""
    found = look.room(str(tmp_path))

    assert (found.problem, found.total_bytes > found.free_bytes > 0) == ("", True)
    assert look.room(str(tmp_path / "none")).problem.endswith("is not a directory")
    assert not look.room("/dev/shm").is_real_disk  # noqa: S108 - it is looked at


def test_an_audit_directory_is_looked_at_with_its_logs(tmp_path: Path) -> None:
    """Its mode, whose it is, and logs that others may read; other files are not looked at."""
    tmp_path.chmod(0o750)
    for name, mode in (("a.jsonl", 0o600), ("b.jsonl", 0o640), ("c.jsonl.1.gz", 0o606), ("d.txt", 0o666)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)

    found = look.audit_folder(str(tmp_path))

    assert (found.exists, found.problem, found.mode, found.is_ours) == (True, "", 0o750, True)
    assert found.open_files == ("b.jsonl", "c.jsonl.1.gz")


def test_an_audit_directory_that_is_not_there_can_be_made_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at where it would be made; a file in its place is a problem."""
    assert not look.audit_folder(str(tmp_path / "a" / "b")).exists
    assert look.audit_folder(str(tmp_path / "a" / "b")).problem == ""
    (tmp_path / "file").touch()
    assert look.audit_folder(str(tmp_path / "file")).problem.endswith("is not a directory")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert look.audit_folder(str(tmp_path / "a")).problem == f"it cannot be made: {tmp_path} is not writable"


def test_gloo_is_tried_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took some time, or it says why it did not work."""
    Asks(monkeypatch, gloo=Answer({"seconds": 0.5}))
    assert look.gloo().seconds == 0.5
    Asks(monkeypatch, gloo=Answer(why="connect timeout"))
    assert look.gloo().why == "connect timeout"


def test_two_ranks_add_up_on_loopback() -> None:
    """The program itself."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - this test's alone

    import torch.distributed as dist  # noqa: PLC0415 - the same

    store: Any = dist.HashStore()  # type: ignore[attr-defined]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask_gloo.add_up, range(2), [store] * 2)) == [3.0, 3.0]


def test_a_library_that_this_process_has_was_preloaded() -> None:
    """One that it has not says why it cannot be loaded, or that it was not preloaded."""
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line)

    assert hook_loads.loads(libc) == {"why": ""}
    assert "/no/such/library.so" in hook_loads.loads("/no/such/library.so")["why"]


def test_a_torch_that_cannot_be_imported_takes_nothing_from_what_the_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what is broken most often, and says why."""
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    found = look.cuda()

    assert found.why == "torch cannot be imported: OSError: libcudart.so.13: cannot open shared object file"
    assert found.torch == ""


def test_where_there_is_no_driver_there_are_no_devices() -> None:
    """Its library is missing."""
    assert ask_cuda.from_driver("/no/such/nvml.so") == {"driver": ""}


def test_the_drivers_library_is_asked_for_its_devices(tmp_path: Path) -> None:
    """Over a stand-in for it: version, names and bytes; an error of it is told, but for a driver that is not loaded."""
    library = _nvml(tmp_path, code=0)

    found = ask_cuda.from_driver(str(library))

    devices = [("NVIDIA H200", 150, 140), ("NVIDIA H200", 151, 140)]
    assert found == {"driver": "580.95", "runs": "13.2", "devices": devices}
    assert ask_cuda.from_driver(str(_nvml(tmp_path, code=9))) == {"driver": ""}
    assert ask_cuda.from_driver(str(_nvml(tmp_path, code=18)))["why"].endswith("error 18")


def _nvml(folder: Path, code: int) -> Path:
    """A library with the functions of NVML that are called, which answers its first one with *code*."""
    source, library = folder / f"nvml{code}.c", folder / f"nvml{code}.so"
    source.write_text(f"int nvmlInit_v2(void) {{ return {code}; }}\n" + _NVML)
    compile_shared(library, source)
    return library


_NVML = """
#include <string.h>
int nvmlSystemGetDriverVersion(char *to, unsigned size) { strncpy(to, "580.95", size); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { *to = 13020; return 0; }
int nvmlDeviceGetCount_v2(unsigned *to) { *to = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to) { *to = (void *)(size_t)index; return 0; }
int nvmlDeviceGetName(void *device, char *to, unsigned size) {
    (void)device; strncpy(to, "NVIDIA H200", size); return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *to) {
    to[0] = 150 + (size_t)device; to[1] = 140; to[2] = 10; return 0;
}
"""


def test_the_real_hook_loads_over_a_stand_in_for_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package finds its library, and a process is started with it; without the stand-in it is said what lacks."""
    without = look.hook()
    build_stub(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    found = look.hook()

    assert (found.loads, found.why, found.preloaded) == (True, "", False)
    assert Path(found.path).exists()
    assert without.loads or hook_line(without).status is Status.MISSING
