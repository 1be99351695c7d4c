"""A registry outlives its process: everything comes back, and a crash leaves the old file or the new one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch

from lifecycle.adapters import AdapterRegistry, AdapterSettings, RegistryFileError, RegistrySnapshot
from lifecycle.errors import AdapterError
from states import AdapterState
from tests.adapters.world import host, load, peft_directory, registry_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the registry is saved."""
    return tmp_path / "registry.json"


def busy(place: Path) -> AdapterRegistry:
    """A registry with an adapter in every state, settings, counts, and a batch that is not trained yet."""
    registry = AdapterRegistry(slots=6)
    registry.register("done")
    registry.register("fresh", rank=4, alpha=6.5, target_modules=["q_proj"], seed=3)
    settings = AdapterSettings(place / "saves", None, 2, 5, 8)
    registry.register("active", path=peft_directory(place / "a", seed=1, rank=2), settings=settings)
    registry.register("retiring", settings=AdapterSettings(trainable=False))
    registry.register("cleanup")
    registry.record_weight_update(["done", "active", "retiring", "cleanup"])
    registry.record_weight_update(["active"])
    registry.resolve_num_step("active", 100)
    registry.set_step("active", 7)
    registry.record_batch_adapters(1, {"active": 3}, [])
    registry.mark_batch_trained(1)
    registry.record_batch_adapters(2, {"active": 2}, ["active"])
    for name in ("done", "cleanup"):
        registry.deregister(name)
    registry.retire_adapters()
    registry.free_slot("done")
    registry.deregister("retiring")
    return registry


def test_everything_comes_back(tmp_path: Path, file: Path) -> None:
    """Ids, slots and their versions, states, settings, counts, batches, sources, and what is completed."""
    registry = busy(tmp_path)
    registry.save(file)
    loaded = AdapterRegistry.load(file)

    assert loaded.snapshot() == registry.snapshot()
    assert {one.state for one in loaded.snapshot().adapters.values()} == set(AdapterState) - {AdapterState.COMPLETED}
    assert loaded.snapshot().slot_versions == (1, 0, 2, 1, 1, 0)


def test_a_registry_that_was_loaded_goes_on_as_the_saved_one_would(tmp_path: Path, file: Path) -> None:
    """The next id, the lowest free slot, the batch under way, the save directory that is taken, the steps to do."""
    registry = busy(tmp_path)
    registry.save(file)
    both = [registry, AdapterRegistry.load(file)]
    made = [one.register("next") for one in both]
    trained = [one.mark_batch_trained(2) for one in both]
    for one in both:
        with pytest.raises(AdapterError, match="is that of 'active'"):
            one.register("other", settings=AdapterSettings(save=tmp_path / "saves"))

    assert made[0] == made[1]
    assert trained[0] == trained[1]
    assert both[0].snapshot() == both[1].snapshot()


def test_slot_versions_do_not_recur_over_a_restart(file: Path) -> None:
    """A reused slot does not look like an earlier tenant, although that one is long forgotten (FB-35, FB-41)."""
    registry, seen = AdapterRegistry(slots=1), set()
    for turn in range(5):
        registry.register(f"a{turn}")
        registry.record_weight_update([f"a{turn}"])
        pair = (0, registry.slot_version(0))
        assert pair not in seen
        seen.add(pair)
        registry.deregister(f"a{turn}")
        registry.retire_adapters()
        registry.free_slot(f"a{turn}")
        registry.save(file)
        registry = AdapterRegistry.load(file)

    assert registry.register("b").registration_id == 6


def test_the_file_is_the_owners_alone_and_nothing_is_left_beside_it(file: Path) -> None:
    """Mode 0600, also when it replaces another; no temporary file stays."""
    file.write_text("old")
    file.chmod(0o644)
    registry_of("a").save(file)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_an_empty_registry_can_be_saved_too(file: Path) -> None:
    """And is then known to be empty."""
    AdapterRegistry(slots=2).save(file)

    assert AdapterRegistry.load(file).snapshot() == AdapterRegistry(slots=2).snapshot()


def test_a_registry_is_saved_from_any_thread_and_the_file_is_always_whole(file: Path) -> None:
    """Every reader finds a registry, while others register and save."""
    registry = AdapterRegistry(slots=40)
    registry.save(file)

    def work(number: int) -> int:
        registry.register(f"a{number}")
        registry.save(file)
        return len(AdapterRegistry.load(file).snapshot().adapters)

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(work, range(40)))

    assert min(seen) >= 1
    assert AdapterRegistry.load(file).snapshot() == registry.snapshot()


def test_the_last_to_save_is_the_last_that_looked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that is slow on the disk does not put its older registry over a newer one."""
    registry, is_slow, go_on, right = registry_of("a"), Event(), Event(), os.fsync

    def slow(descriptor: int) -> None:
        if not is_slow.is_set():
            is_slow.set()
            go_on.wait(30)
        right(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(registry.save, file)
        assert is_slow.wait(30)
        registry.register("b")
        second = pool.submit(registry.save, file)
        wait([second], timeout=0.5)
        go_on.set()
        first.result(30)
        second.result(30)

    assert AdapterRegistry.load(file).snapshot() == registry.snapshot()


@pytest.mark.parametrize("call", ["fsync", "replace", "write"])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    call: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file and the cause; the registry goes on."""
    registry = registry_of("a")
    registry.save(file)
    old = file.read_bytes()
    registry.register("b")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if call == "write":
        monkeypatch.setattr("lifecycle.adapters.saved_file.open", fail, raising=False)
    else:
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(RegistryFileError, match="No space left") as caught:
        registry.save(file)
    monkeypatch.undo()

    assert caught.value.path == file
    assert file.read_bytes() == old
    assert list(file.parent.iterdir()) == [file]
    registry.save(file)
    assert AdapterRegistry.load(file).snapshot() == registry.snapshot()


_CRASHES = """
import os, sys
from lifecycle.adapters import AdapterRegistry

path, place = sys.argv[1:]
registry = AdapterRegistry.load(path)
registry.register("new")
seen = 0

def trace(event, arguments):
    global seen
    if event in ("open", "os.rename", "os.remove") or event.startswith("tempfile"):
        seen += 1
        if seen == int(os.environ["CRASH_AT"]):
            os._exit(7)

def dying(call):
    def made(*arguments):
        global seen
        seen += 1
        if seen == int(os.environ["CRASH_AT"]):
            os._exit(7)
        return call(*arguments)
    return made

points = 0
while True:
    points += 1
    pid = os.fork()
    if pid == 0:
        os.environ["CRASH_AT"] = str(points)
        for name in ("open", "fsync", "replace", "close", "unlink"):
            setattr(os, name, dying(getattr(os, name)))
        sys.addaudithook(trace)
        registry.save(path)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    names = sorted(AdapterRegistry.load(path).snapshot().adapters)
    print(code, *names, flush=True)
    if code == 0:
        break
"""


def test_a_crash_at_any_point_leaves_the_old_registry_or_the_new_one(file: Path) -> None:
    """The process dies before each call that touches the file; whoever loads it afterwards finds one of the two."""
    registry_of("old", slots=2).save(file)
    command = [sys.executable, "-W", "ignore", "-c", _CRASHES, str(file), str(file.parent)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100)
    lines = [line.split() for line in done.stdout.splitlines()]

    assert {tuple(names) for code, *names in lines if code == "7"} == {("old",), ("new", "old")}
    assert lines[-1] == ["0", "new", "old"]
    assert len(lines) > 5


def test_tensors_that_were_given_in_memory_are_refused_by_name_after_a_restart(file: Path) -> None:
    """The registration is there; what it was to be loaded with is not, and it is not silently a fresh one."""
    given = {"x": torch.zeros(1)}
    registry = AdapterRegistry(slots=3)
    registry.register("a", tensors=given, rank=1)
    registry.save(file)
    loaded = AdapterRegistry.load(file)
    record = loaded.find("a")
    made = host(registry=loaded)

    assert record is not None
    assert (record.source, record.state) == (None, AdapterState.PENDING)
    with pytest.raises(AdapterError, match=r"tensors in memory.*resupply"):
        made.prepare(made.desired()["a"])
    assert registry.find("a") != record


def test_a_registration_that_was_supplied_again_is_the_same_one_and_is_loaded(tmp_path: Path, file: Path) -> None:
    """Its id, slot and counts are kept; its bytes come from where it is told."""
    registry = AdapterRegistry(slots=3)
    registry.register("a", tensors={"x": torch.zeros(1)}, rank=1)
    registry.save(file)
    made = host(registry=AdapterRegistry.load(file))
    adapter = made.registry.resupply("a", path=peft_directory(tmp_path / "a", seed=1, rank=2))
    load(made, "a")

    assert adapter == registry.desired()["a"]
    assert made.loaded()["a"].registration_id == adapter.registration_id
    assert any(bool(one.any()) for one in made.slot_tensors(0).values())


def test_an_adapter_that_had_trained_is_refused_by_name_after_a_restart(tmp_path: Path, file: Path) -> None:
    """Its source has the tensors of step 0; loading them as those of step 1 would lose what was learned."""
    registry = AdapterRegistry(slots=3)
    directory = peft_directory(tmp_path / "a", seed=1, rank=2)
    for name in ("a", "b"):
        registry.register(name, path=directory)
    registry.record_weight_update(["a", "b"])
    registry.record_batch_adapters(1, {"a": 1, "b": 1}, ["a"])
    registry.mark_batch_trained(1)
    registry.save(file)
    made = host(registry=AdapterRegistry.load(file))
    load(made, "b")

    with pytest.raises(AdapterError, match=r"trained to step 1.*tensors of step 0"):
        load(made, "a")
    made.registry.resupply("a", path=directory)
    load(made, "a")
    made.registry.save(file)
    again = AdapterRegistry.load(file).find("a")
    assert again is not None
    assert (again.step, again.source_step, again.lost) == (1, 1, "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: one.resupply("a"), "give path or tensors"),
        (lambda one: one.resupply("nobody", tensors={"x": torch.zeros(1)}, rank=1), "not registered"),
        (lambda one: one.resupply("retiring", tensors={"x": torch.zeros(1)}, rank=1), "it is retiring"),
        (lambda one: one.resupply("a", tensors={"x": torch.zeros(1)}), "without their rank"),
        (lambda one: one.resupply("a", path="/nowhere/at/all"), "no directory"),
    ],
)
def test_a_bad_supply_is_refused_and_changes_nothing(change: Callable[[AdapterRegistry], object], why: str) -> None:
    """Nothing to supply with, an unknown or leaving registration, or bytes that do not fit."""
    registry = registry_of("a", "retiring")
    registry.deregister("retiring")
    before = registry.snapshot()

    with pytest.raises(AdapterError, match=why):
        change(registry)

    assert registry.snapshot() == before


def test_what_does_not_fit_the_slots_is_no_supply() -> None:
    """The host checks it as it checks a registration."""
    made = host()
    made.registry.register("a")
    before = made.registry.snapshot()

    with pytest.raises(AdapterError, match="'a'"):
        made.registry.resupply("a", tensors={"x": torch.zeros(1)}, rank=1)

    assert made.registry.snapshot() == before


def test_what_was_on_its_way_out_is_completed_when_a_new_host_connects(tmp_path: Path, file: Path) -> None:
    """A host that holds nothing has nothing to clear: no slot is lost, and no gradients are pretended."""
    busy(tmp_path).save(file)
    registry = AdapterRegistry.load(file)
    registry.connect(lambda name, source: None, dict)
    active = registry.find("active")

    assert [registry.adapter_state(name) for name in ("retiring", "cleanup")] == [AdapterState.COMPLETED] * 2
    assert registry.snapshot().free_slots == (0, 3, 4, 5)
    assert active is not None
    assert active.accumulated_groups == 0


def test_a_host_that_outlived_the_registry_keeps_what_it_holds(tmp_path: Path, file: Path) -> None:
    """Only the registry's process has restarted: nothing is lost, and nothing is to be done."""
    registry = busy(tmp_path)
    held = {name: one.adapter for name, one in registry.snapshot().adapters.items()}
    registry.save(file)
    loaded = AdapterRegistry.load(file)
    loaded.connect(lambda name, source: None, lambda: held)

    assert loaded.snapshot() == registry.snapshot()
    assert loaded.unaccounted() == ()


def test_a_registry_is_begun_with_as_many_slots_as_were_saved(file: Path) -> None:
    """A host with another number of slots is refused as ever."""
    registry_of("a").save(file)

    with pytest.raises(ValueError, match="the saved registry has 3"):
        AdapterRegistry(2, saved=AdapterRegistry.load(file).snapshot())
    with pytest.raises(ValueError, match="registry has 3 slots, the host is to have 2"):
        host(slots=2, registry=AdapterRegistry.load(file))


def test_a_relative_directory_is_found_from_another_working_directory(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has its absolute path, which is all that changes."""
    peft_directory(tmp_path / "a", seed=1, rank=2)
    monkeypatch.chdir(tmp_path)
    registry = AdapterRegistry(slots=3)
    registry.register("a", path="a")
    registry.save(file)
    monkeypatch.chdir("/")
    made = host(registry=AdapterRegistry.load(file))
    load(made, "a")

    assert _without_source(made.registry.snapshot()) == _without_source(registry.snapshot())


def _without_source(snapshot: RegistrySnapshot) -> RegistrySnapshot:
    return replace(snapshot, adapters={name: replace(one, source=None) for name, one in snapshot.adapters.items()})
