"""Sleep, offload and wake: what moves, what stays, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from lifecycle import (
    ConfigError,
    EventRefused,
    HostArena,
    LifecycleConfig,
    Moved,
    SaverError,
    TrainerFaulted,
    TrainerLifecycle,
    TrainerState,
    Unchanged,
)
from tests.lifecycle.world import FakeEngine, SlotHost, TinyModel, World, make_world


def disk_world(path: Path, **changes: object) -> World:
    """A world whose target is a directory on disk."""
    return make_world(arena=HostArena(disk_dir=str(path)), offload_target="disk", **changes)


def cycle(world: World) -> None:
    """Sleep, offload, wake."""
    world.trainer.sleep()
    world.trainer.offload()
    world.trainer.wake_up()


def test_every_byte_is_as_it_was_after_a_cycle_through_host_memory() -> None:
    """Weights and moments come back bit for bit."""
    world = make_world()
    world.train("A", "B")
    before = world.all_bytes()
    cycle(world)

    assert world.all_bytes() == before


def test_every_byte_is_as_it_was_after_a_cycle_through_the_disk(tmp_path: Path) -> None:
    """The disk target restores what the cpu target restores."""
    world = disk_world(tmp_path)
    world.train("A", "B")
    before = world.all_bytes()
    cycle(world)

    assert world.all_bytes() == before


def test_training_goes_on_after_a_cycle_as_if_there_had_been_none() -> None:
    """A run with cycles gives the weights of a run without."""
    straight, cycled = make_world(), make_world()
    for _ in range(3):
        straight.train("A", "B")
        cycled.train("A", "B")
        cycle(cycled)

    assert cycled.all_bytes() == straight.all_bytes()


def test_no_address_changes_in_a_hundred_cycles() -> None:
    """CUDA graphs and compiled code hold addresses: data_ptr of every placed tensor is for ever."""
    world = make_world()
    parts = world.trainer._parts

    def addresses() -> list[int]:
        held = [*parts.inventory.groups().values(), parts.inventory.slot_tensors(), parts.moments.tensors()]
        return [one.data_ptr() for group in held for one in group.values()]

    before = addresses()
    for _ in range(100):
        cycle(world)

    assert addresses() == before


def test_offloaded_to_cpu_holds_the_weights_once_on_the_host_and_nothing_on_the_device() -> None:
    """The saver's backup is the one host copy (FB-17, rule)."""
    world = make_world()
    device = world.trainer.held_bytes()["device"]
    world.trainer.sleep(offload=True)
    held = world.trainer.held_bytes()

    assert held["device"] == 0
    assert held["snapshots"] == 0
    assert 0 < held["saver_host"] < device


def test_sleeping_twice_pauses_once() -> None:
    """Transitions are idempotent at the controller; the saver would end the process (FB-13)."""
    world = make_world()
    world.trainer.sleep()
    world.trainer.offload()

    assert isinstance(world.trainer.sleep(), Unchanged)
    assert isinstance(world.trainer.offload(), Unchanged)
    assert world.trainer.state is TrainerState.OFFLOADED_CPU


def test_waking_twice_resumes_once() -> None:
    """The second wake is a recorded no-op (FB-13)."""
    world = make_world()
    cycle(world)

    assert isinstance(world.trainer.wake_up(), Unchanged)
    assert world.records("unchanged")[-1]["trigger"] == "wake_up"


def test_a_region_that_was_paused_ahead_of_time_is_skipped_and_resumed_once() -> None:
    """Whoever paused the gradients early does not kill the later sleep (FB-13)."""
    world = make_world()
    world.arena.pause("actor/gradients")
    cycle(world)

    assert not any(info.paused for info in world.arena.tags().values())


def test_the_initial_state_is_declared_never_defaulted() -> None:
    """A controller built without a state is an error (FB-16)."""
    model = TinyModel()
    with pytest.raises(TypeError, match="initial_state"):
        TrainerLifecycle(  # type: ignore[call-arg]
            LifecycleConfig(), saver=HostArena(), model=model, optimizer=None, adapters=SlotHost(model)
        )


def test_an_initial_state_that_the_saver_contradicts_is_refused() -> None:
    """Declared, and probed against the books (FB-16)."""
    model = TinyModel()
    with pytest.raises(ConfigError, match="actor/base"):
        TrainerLifecycle(
            LifecycleConfig(),
            saver=HostArena(),
            model=model,
            optimizer=None,
            adapters=SlotHost(model),
            initial_state=TrainerState.OFFLOADED_CPU,
        )


def test_without_a_target_there_is_nothing_to_offload_and_sleep_keeps_the_weights() -> None:
    """A run that never offloads sleeps and wakes all the same (FB-02, no false refusal)."""
    world = make_world(offload_target=None)
    world.trainer.sleep(offload=True)

    assert world.trainer.state is TrainerState.SLEEPING
    with pytest.raises(EventRefused, match="target-is-cpu"):
        world.trainer.offload()
    assert isinstance(world.trainer.update_weights([FakeEngine()]), Moved)


def test_offload_to_disk_is_refused_when_nothing_readable_would_remain(tmp_path: Path) -> None:
    """Not colocated, no other model, disk: no copy could be read while offloaded (FB-01, scenario 4)."""
    world = disk_world(tmp_path, colocate=False, trainable=True, strategy="reference")
    world.trainer.sleep()
    before = world.all_bytes()
    with pytest.raises(EventRefused) as refused:
        world.trainer.offload()

    assert [one.name for one in refused.value.failed] == ["survivors-keep-a-readable-copy"]
    assert "trainable-base" in str(refused.value)
    assert world.trainer.state is TrainerState.SLEEPING
    assert world.all_bytes() == before


IN_MEMORY = "/dev/shm"  # noqa: S108 - tmpfs on purpose


def test_a_base_file_in_memory_in_disguise_is_refused_at_attach() -> None:
    """On tmpfs it would be a copy of the base in the memory that it is meant to free (FB-20)."""
    with pytest.raises(ConfigError, match="tmpfs"):
        make_world(arena=HostArena(disk_dir=IN_MEMORY), offload_target="disk")


def test_offload_into_memory_in_disguise_is_refused(tmp_path: Path) -> None:
    """A disk target on tmpfs would use the memory it is meant to free (FB-20)."""
    settings = {"offload_target": "disk", "strategy": "reference", "base_dir": str(tmp_path)}
    world = make_world(arena=HostArena(disk_dir=IN_MEMORY), trainable=True, **settings)
    world.trainer.sleep()
    with pytest.raises(EventRefused, match="tmpfs"):
        world.trainer.offload()

    assert world.trainer.state is TrainerState.SLEEPING


def test_offload_beyond_the_host_budget_is_refused_with_both_numbers() -> None:
    """Capacity is checked where it can still be refused."""
    world = make_world(host_budget_bytes=1024)
    world.trainer.sleep()
    with pytest.raises(EventRefused, match="1024 bytes are free"):
        world.trainer.offload()

    assert world.trainer.state is TrainerState.SLEEPING


def test_waking_on_a_full_device_is_refused_because_the_saver_would_end_the_process() -> None:
    """The other tenant still holds the device: resume out of memory is exit(1) in the library."""
    model = TinyModel()
    probe = make_world()
    need = probe.arena.usage().device_bytes
    arena = HostArena(capacity_bytes=need + 65536)
    world = make_world(arena=arena)
    world.trainer.sleep(offload=True)
    arena.place({"tenant": model.embed}, "engine/weights", probe_backup())
    hog = TinyModel(slots=2000)
    with pytest.raises(SaverError):
        arena.place(dict(hog.named_parameters()), "engine/too-much", probe_backup())
    while True:
        try:
            arena.place({"more": TinyModel().up}, "engine/weights", probe_backup())
        except SaverError:
            break

    with pytest.raises(EventRefused, match="device-has-room"):
        world.trainer.wake_up()
    assert world.trainer.state is TrainerState.OFFLOADED_CPU
    arena.release("engine/weights")
    world.trainer.wake_up()


def probe_backup() -> object:
    """The backup kind of the other tenant."""
    from lifecycle import Backup  # noqa: PLC0415 - a helper of one test

    return Backup.CPU


def test_a_disk_backup_of_another_run_is_never_opened_and_the_log_says_so(tmp_path: Path) -> None:
    """Run 2 on the directory of run 1 gets its own bytes back (FB-07)."""
    (tmp_path / "tms_abc123").write_bytes(b"\xff" * 65536)
    world = disk_world(tmp_path)
    before = world.all_bytes()
    world.trainer.sleep()
    outcome = world.trainer.offload()
    world.trainer.wake_up()

    assert isinstance(outcome, Moved)
    assert dict(outcome.details)["ignored_files"]["names"] == ["tms_abc123"]  # type: ignore[index]
    assert world.all_bytes() == before


def corrupt(directory: Path, content: bytes) -> None:
    """Flip a bit of these bytes where the backup file holds them."""
    path = next(one for one in (*directory.glob("tms_*"), *directory.glob("base-*")) if content in one.read_bytes())
    held = path.read_bytes()
    assert held.count(content) == 1
    path.write_bytes(held.replace(content, bytes([content[0] ^ 1]) + content[1:]))


def bytes_of(tensor: Tensor) -> bytes:
    """The bytes of a live tensor."""
    return tensor.detach().numpy().tobytes()


def test_a_corrupt_base_file_refuses_the_wake_up_and_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    """Nothing is resumed on bytes of another content, and nothing is invented (FB-07)."""
    world = disk_world(tmp_path)
    content = bytes_of(world.model.up)
    world.trainer.sleep(offload=True)
    corrupt(tmp_path, content)
    with pytest.raises(EventRefused, match=r"no copy: frozen-base.*its bytes are not those of its digest"):
        world.trainer.wake_up()

    assert world.trainer.state is TrainerState.OFFLOADED_DISK
    with pytest.raises(EventRefused, match="frozen-base"):
        world.trainer.weights()


def test_a_corrupt_base_file_is_passed_over_for_another_copy(tmp_path: Path) -> None:
    """What is kept elsewhere brings the base back, the outcome says why, and the next sleep does without the file."""
    world = disk_world(tmp_path)
    before, content = world.all_bytes(), bytes_of(world.model.up)
    world.trainer.snapshots.keep_own("actor", ("frozen-base",))
    world.trainer.sleep(offload=True)
    corrupt(tmp_path, content)
    outcome = world.trainer.wake_up()

    assert isinstance(outcome, Moved)
    assert "its bytes are not those of its digest" in str(dict(outcome.details)["base_file"])
    assert world.all_bytes() == before
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    assert world.all_bytes() == before


def test_a_base_file_that_was_only_touched_goes_on_serving(tmp_path: Path) -> None:
    """Other times are no other bytes: it is compared once, and used."""
    world = disk_world(tmp_path)
    before = world.all_bytes()
    world.trainer.sleep(offload=True)
    next(tmp_path.glob("base-*")).touch()
    world.trainer.wake_up()

    assert world.all_bytes() == before


def test_a_corrupt_disk_backup_faults_the_trainer_and_recover_mends_it_from_the_actor_copy(tmp_path: Path) -> None:
    """A digest mismatch is faulted, never a training step; another copy mends it (FB-07)."""
    world = disk_world(tmp_path, trainable=True, strategy="reference")
    before = world.all_bytes()
    content = bytes_of(world.model.p)
    world.trainer.sleep(offload=True)
    corrupt(tmp_path, content)
    with pytest.raises(TrainerFaulted, match="trainable-base"):
        world.trainer.wake_up()

    assert world.trainer.state is TrainerState.FAULTED
    for call in (lambda: world.trainer.begin_step(["A"]), world.trainer.weights, lambda: world.trainer.live("eval")):
        with pytest.raises(EventRefused, match=r"recover|wake_up"):
            call()
    outcome = world.trainer.recover()
    assert isinstance(outcome, Moved)
    assert dict(outcome.details)["mended"] == ["trainable-base"]
    assert world.trainer.state is TrainerState.AWAKE
    assert world.all_bytes() == before


def test_a_corrupt_backup_without_another_copy_stays_faulted_and_says_so(tmp_path: Path) -> None:
    """Nothing is invented: without a copy the trainer stays faulted (FB-07)."""
    world = disk_world(tmp_path, trainable=True, strategy="reference")
    content = bytes_of(world.model.p)
    world.trainer.sleep(offload=True)
    corrupt(tmp_path, content)
    world.trainer.snapshots._tags.clear()  # the gate would not let anybody
    with pytest.raises(TrainerFaulted, match="trainable-base"):
        world.trainer.wake_up()
    with pytest.raises(TrainerFaulted, match="no copy of it is kept"):
        world.trainer.recover()

    assert world.trainer.state is TrainerState.FAULTED


def test_gradients_outside_their_region_are_led_home_when_the_step_ends() -> None:
    """``zero_grad()`` sets gradients to None, autograd then allocates anew; the region must not be left."""
    world = make_world()
    with world.trainer.step(["A"]) as step:
        world.optimizers[0].zero_grad(set_to_none=True)
        world.backward("A")
        world.optimizers[0].step()
        step.stepped()
    cycle(world)

    assert world.trainer.facts().strays == ()


def test_a_gradient_that_strays_is_named_and_refuses_the_offload() -> None:
    """A guard names strays: their memory would not be given back."""
    world = make_world()
    world.model.lora_a[0].grad = world.model.lora_a[0].detach().clone()
    world.trainer.sleep()
    with pytest.raises(EventRefused, match=r"lora_a\.0\.grad"):
        world.trainer.offload()


def test_an_empty_step_takes_in_what_was_trained_outside_of_one() -> None:
    """Its gradients come home and its bytes get a version of their own, so the next hand-over sends them."""
    world, engine = make_world(), FakeEngine()
    cycle(world)
    before = world.trainer.versions["adapter/A"]
    for parameter in world.model.lora_a[0], world.model.lora_b[0]:
        parameter.grad = parameter.detach() + 1
    world.optimizers[0].step()
    with world.trainer.step(["A"]):
        pass
    world.trainer.sleep(offload=True)

    assert world.trainer.versions["adapter/A"] > before
    assert "adapter/A" in world.trainer.update_weights([engine]).engines["E0"].sent


def test_accumulated_gradients_survive_a_sleep_bit_for_bit() -> None:
    """They are copied to the host before their region is paused and come back after resume."""
    straight, slept = make_world(), make_world()
    for world in (straight, slept):
        with world.trainer.step(["A"]) as step:
            world.backward("A")
            step.accumulated()
    slept.trainer.sleep(offload=True)
    kept = slept.trainer.held_bytes()["kept_gradients"]
    slept.trainer.wake_up()
    for world in (straight, slept):
        world.train("A", from_zero=False)

    assert kept == 2 * 4 * 32 * 4
    assert slept.trainer.held_bytes()["kept_gradients"] == 0
    assert slept.all_bytes() == straight.all_bytes()


def test_without_accumulation_no_gradient_byte_is_kept() -> None:
    """The extra host bytes are exactly the accumulated gradients, 0 when there are none."""
    world = make_world()
    world.train("A")
    world.trainer.sleep(offload=True)

    assert world.trainer.held_bytes()["kept_gradients"] == 0
