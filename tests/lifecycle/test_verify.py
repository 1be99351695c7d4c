"""Verify mode: bytes that come back different are never trained on and never pushed (FB-24)."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from lifecycle import DigestMismatch, EventRefused, Moved, TrainerFaulted, TrainerState, TransitionFailed
from lifecycle.base_file.opened import _stamp
from lifecycle.weights.frozen_file import FrozenFile
from tests.lifecycle.faulty import FaultyPort, byte_of, faulty_saver, flip
from tests.lifecycle.world import FakeEngine, World, make_world

MIB = 2**20
GROUPS = {
    "up": "frozen-base",
    "bias": "buffers",
    "p": "trainable-base",
    "lora_a.0": "adapter/A",
    "lora_b.1": "adapter/B",
    "lora_a.0#exp_avg": "adapter-moments/slot 0",
    "p#exp_avg_sq": "base-moments",
}


def faulty_world(disk_dir: Path | None = None, **changes: object) -> tuple[World, FaultyPort]:
    """A trained world on a saver that can be told to change a byte."""
    saver = faulty_saver(disk_dir)
    world = make_world(arena=saver, trainable=True, **changes)  # type: ignore[arg-type]
    world.train("A", "B")
    port = saver._port
    assert isinstance(port, FaultyPort)
    return world, port


def tensor(world: World, name: str) -> Tensor:
    """A weight or a moment of the trainer by name."""
    parts = world.trainer._parts
    return {**parts.inventory.tensors(), **parts.moments.tensors()}[name]


def mismatch(error: TrainerFaulted) -> DigestMismatch:
    """What the fault was about."""
    assert isinstance(error.cause, DigestMismatch)
    return error.cause


@pytest.mark.parametrize("verify", ["always", "sampled"])
@pytest.mark.parametrize("name", GROUPS)
def test_a_byte_that_changes_across_a_pause_faults_the_trainer_and_is_named(name: str, verify: str) -> None:
    """The wake names group and tensor; nothing trains and nothing is pushed afterwards (FB-24, scenario 1)."""
    world, port = faulty_world(verify=verify)
    engine = FakeEngine()
    world.trainer.sleep(offload=True)
    port.flips = [byte_of(tensor(world, name))]
    with pytest.raises(TrainerFaulted, match=GROUPS[name]) as faulted:
        world.trainer.wake_up()

    assert mismatch(faulted.value).group == GROUPS[name]
    assert mismatch(faulted.value).tensors == (name,)
    assert world.trainer.state is TrainerState.FAULTED
    for call in (lambda: world.trainer.begin_step(["A"]), lambda: world.trainer.update_weights([engine])):
        with pytest.raises(EventRefused, match="recover"):
            call()
    assert engine.calls == []


def test_switched_off_nothing_is_compared() -> None:
    """The control: the same byte goes unseen."""
    world, port = faulty_world(verify="off")
    world.trainer.sleep(offload=True)
    port.flips = [byte_of(tensor(world, "p"))]

    assert isinstance(world.trainer.wake_up(), Moved)


@pytest.mark.parametrize("verify", ["always", "sampled"])
@pytest.mark.parametrize("name", [name for name in GROUPS if "#" not in name])
def test_recover_brings_the_bytes_back_from_a_second_copy(name: str, verify: str) -> None:
    """Exact, and the outcome says what was mended (FB-24, scenario 2)."""
    world, port = faulty_world(verify=verify, strategy="duplicate")
    before = world.all_bytes()
    world.trainer.sleep(offload=True)
    port.flips = [byte_of(tensor(world, name))]
    with pytest.raises(TrainerFaulted, match=r"recover.* mends it from: actor"):
        world.trainer.wake_up()
    port.flips = []
    outcome = world.trainer.recover()

    assert isinstance(outcome, Moved)
    assert dict(outcome.details)["mended"] == [GROUPS[name]]
    assert world.all_bytes() == before
    assert world.trainer.state is TrainerState.AWAKE
    world.train("A", "B")


@pytest.mark.parametrize("name", ["up", "p", "lora_a.0", "lora_a.0#exp_avg"])
def test_recover_without_a_second_copy_says_so_and_stays_faulted(name: str) -> None:
    """Nothing is invented (FB-24, scenario 2). Moments have no copy at all."""
    world, port = faulty_world(strategy="duplicate" if "#" in name else "lean")
    world.trainer.sleep(offload=True)
    port.flips = [byte_of(tensor(world, name))]
    with pytest.raises(TrainerFaulted):
        world.trainer.wake_up()
    for _ in range(2):
        with pytest.raises(TrainerFaulted, match="no copy of it is kept") as faulted:
            world.trainer.recover()
        assert mismatch(faulted.value).group == GROUPS[name]

    assert world.trainer.state is TrainerState.FAULTED


def test_recover_passes_over_a_copy_that_has_gone_bad_too() -> None:
    """Of two copies the first is damaged: the second one mends the group, and the first."""
    world, port = faulty_world(strategy="duplicate")
    before = world.all_bytes()
    world.trainer.keep_model("spare")
    world.trainer.sleep(offload=True)
    flip(byte_of(world.trainer.snapshots.tensor("actor", "trainable-base", "p")))
    port.flips = [byte_of(tensor(world, "p"))]
    with pytest.raises(TrainerFaulted):
        world.trainer.wake_up()
    world.trainer.recover()

    assert world.all_bytes() == before
    assert bytes(world.trainer.snapshots.tensor("actor", "trainable-base", "p").numpy()) == bytes(
        tensor(world, "p").detach().numpy()
    )


def test_sampled_looks_at_other_blocks_in_every_cycle() -> None:
    """A byte in the middle of a large tensor that each resume changes is met sooner or later; by always at once."""
    found = {}
    for verify in ("always", "sampled"):
        world, port = faulty_world(verify=verify, ballast_bytes=MIB)
        port.flips = [byte_of(tensor(world, "ballast"), 300_000)]
        for cycle in range(1, 200):
            world.trainer.sleep(offload=True)
            try:
                world.trainer.wake_up()
            except TrainerFaulted as error:
                found[verify] = (cycle, mismatch(error).group)
                break

    assert found["always"] == (1, "frozen-base")
    assert found["sampled"][0] > 1
    assert found["sampled"][1] == "frozen-base"


@pytest.mark.parametrize("verify", ["always", "sampled", "off"])
@pytest.mark.parametrize("strategy", ["lean", "reference", "duplicate"])
def test_what_a_reconcile_writes_into_the_backup_is_what_has_to_come_back(strategy: str, verify: str) -> None:
    """Loaded, replaced and retired while offloaded: no false alarm, and the new bytes are on the device."""
    world, _ = faulty_world(verify=verify, strategy=strategy)
    world.trainer.sleep(offload=True)
    world.host.register("C", 2)
    world.host.register("A", 0)
    world.host.deregister("B")
    world.trainer.reconcile_adapters()
    expected = world.all_bytes()
    world.trainer.wake_up()

    assert world.all_bytes() == expected
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    assert world.all_bytes() == expected


@pytest.mark.parametrize("name", ["lora_a.2", "lora_a.2#exp_avg", "lora_b.1"])
def test_a_byte_of_what_was_written_while_offloaded_is_compared_too(name: str) -> None:
    """The write is noted anew; what it left alone stays noted."""
    world, port = faulty_world()
    world.trainer.sleep(offload=True)
    world.host.register("C", 2)
    world.trainer.reconcile_adapters()
    port.flips = [byte_of(tensor(world, name))]
    with pytest.raises(TrainerFaulted) as faulted:
        world.trainer.wake_up()

    assert mismatch(faulted.value).tensors == (name,)


def test_a_reconcile_that_is_undone_while_offloaded_leaves_the_notes_as_they_were() -> None:
    """The old bytes are back, and they are what is compared."""
    world, _ = faulty_world()
    before = world.all_bytes()
    world.trainer.sleep(offload=True)
    world.host.register("A", 0)
    world.host.register("C", 2)
    effects = world.trainer._runner.effects
    write = effects["write-adapters"]

    def fails_behind(parts: object, work: object) -> object:
        write(parts, work)()  # type: ignore[arg-type]
        raise OSError("injected")

    effects["write-adapters"] = fails_behind  # type: ignore[assignment]
    with pytest.raises(TransitionFailed):
        world.trainer.reconcile_adapters()
    effects["write-adapters"] = write
    world.trainer.wake_up()

    assert world.all_bytes() == before


def test_a_restore_of_the_users_into_the_backup_is_no_mismatch() -> None:
    """Other bytes of another version, on purpose."""
    world, _ = faulty_world(verify="always", strategy="reference")
    world.trainer.snapshots.backup("actor")
    world.train("A")
    world.trainer.keep_model("newest")
    world.trainer.sleep(offload=True)
    world.trainer.snapshots.restore("actor")
    expected = world.all_bytes()
    world.trainer.wake_up()

    assert world.all_bytes() == expected


def test_a_byte_of_what_a_restore_wrote_is_compared_too() -> None:
    """The restored bytes take the place of those that were noted."""
    world, port = faulty_world(strategy="reference")
    world.trainer.snapshots.backup("actor")
    world.train("A")
    world.trainer.keep_model("newest")
    world.trainer.sleep(offload=True)
    world.trainer.snapshots.restore("actor")
    port.flips = [byte_of(tensor(world, "lora_a.0"))]
    with pytest.raises(TrainerFaulted) as faulted:
        world.trainer.wake_up()

    assert mismatch(faulted.value).tensors == ("lora_a.0",)


@pytest.mark.parametrize("verify", ["always", "sampled"])
@pytest.mark.parametrize("name", ["up", "p", "lora_a.0"])
def test_a_source_that_changed_is_not_sent(name: str, verify: str) -> None:
    """A byte of the saver's backup is turned while the trainer is offloaded: the engine hears nothing of it."""
    world, _ = faulty_world(verify=verify)
    engine = FakeEngine()
    world.trainer.sleep(offload=True)
    backup = world.trainer._parts.door.own_bytes(name, tensor(world, name))
    flip(byte_of(backup))
    del backup
    with pytest.raises(TrainerFaulted, match=r"read from saver-backup") as faulted:
        world.trainer.update_weights([engine])

    assert mismatch(faulted.value).group == GROUPS[name]
    assert engine.calls == []
    with pytest.raises(TrainerFaulted, match="no copy of it is kept"):
        world.trainer.recover()


def test_a_large_source_is_sampled_against_what_was_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a full digest would cost too much, the blocks of this pause are looked at."""
    monkeypatch.setattr("lifecycle.transition.verify.SMALL_BYTES", 0)
    world, _ = faulty_world()
    engine = FakeEngine()
    world.trainer.sleep(offload=True)
    flip(byte_of(world.trainer._parts.door.own_bytes("up", tensor(world, "up"))))
    with pytest.raises(TrainerFaulted) as faulted:
        world.trainer.update_weights([engine])

    assert mismatch(faulted.value).tensors == ("up",)


def test_a_copy_that_changed_is_not_sent_and_recover_mends_it_while_offloaded() -> None:
    """The backup is right: the copy is written from it, the push is sent, and the error holds no lease open."""
    world, _ = faulty_world(strategy="duplicate")
    expected, engine = world.all_bytes(), FakeEngine()
    world.trainer.sleep(offload=True)
    flip(byte_of(world.trainer.snapshots.tensor("actor", "trainable-base", "p")))
    with pytest.raises(TrainerFaulted, match="read from actor") as kept:
        world.trainer.update_weights([engine])
    outcome = world.trainer.recover()

    assert isinstance(outcome, Moved)
    assert dict(outcome.details)["mended"] == ["trainable-base in actor"]
    assert world.trainer.state is TrainerState.OFFLOADED_CPU
    assert isinstance(world.trainer.update_weights([engine]), Moved)
    assert isinstance(world.trainer.wake_up(), Moved)
    assert world.all_bytes() == expected
    assert kept.value.cause is not None


def test_a_comparison_that_fails_itself_sends_nothing_and_keeps_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error lives on in the test; the bytes it was about must not, or the trainer could not wake."""
    world, _ = faulty_world()
    engine = FakeEngine()
    world.trainer.sleep(offload=True)

    def fails(tensors: dict[str, Tensor]) -> str:
        first, *_ = tensors.values()
        raise OSError(f"{first.dtype} cannot be read")

    monkeypatch.setattr("lifecycle.transition.verify.digest", fails)
    with pytest.raises(TransitionFailed, match="cannot be read") as kept:
        world.trainer.update_weights([engine])
    monkeypatch.undo()

    assert engine.calls == []
    assert isinstance(world.trainer.wake_up(), Moved)
    assert kept.value.effect == "check-sources"


def test_a_base_file_that_went_bad_unnoticed_is_not_sent_and_recover_does_without_it(tmp_path: Path) -> None:
    """Its times say that nobody touched it; recover compares it in full, and another copy serves from then on."""
    world, _ = faulty_world(frozen_base="file", base_dir=str(tmp_path))
    before, engine = world.all_bytes(), FakeEngine()
    world.trainer.snapshots.keep_own("spare", ("frozen-base",))
    content = tensor(world, "up").detach().numpy().tobytes()
    world.trainer.sleep(offload=True)
    (path,) = tmp_path.glob("base-*")
    path.write_bytes(path.read_bytes().replace(content, bytes([content[0] ^ 1]) + content[1:]))
    opened = world.trainer._parts.file.held()[0]
    assert opened is not None
    opened._stamp = _stamp(path.stat())
    with pytest.raises(TrainerFaulted, match="read from base-file"):
        world.trainer.update_weights([engine])
    outcome = world.trainer.recover()

    assert isinstance(outcome, Moved)
    assert "its bytes are not those of its digest" in str(dict(outcome.details)["base_file"])
    assert engine.calls == []
    assert isinstance(world.trainer.update_weights([engine]), Moved)
    world.trainer.wake_up()
    assert world.all_bytes() == before


def test_an_adapter_that_changed_without_an_event_is_not_sent() -> None:
    """Awake, too: its digest is known since the step that made it."""
    world, _ = faulty_world()
    flip(byte_of(tensor(world, "lora_a.0")))
    with pytest.raises(TrainerFaulted, match=r"adapter/A: .* changed outside of step\(\)"):
        world.trainer.update_weights([FakeEngine()])


def test_always_finds_bytes_that_changed_without_an_event_before_they_are_backed_up() -> None:
    """A stray write into the base: the backup would hold it for ever; recover mends it asleep."""
    world, _ = faulty_world(verify="always", strategy="duplicate")
    before = world.all_bytes()
    world.trainer.sleep()
    flip(byte_of(tensor(world, "up")))
    with pytest.raises(TrainerFaulted, match="changed without an event"):
        world.trainer.offload()
    outcome = world.trainer.recover()

    assert isinstance(outcome, Moved)
    assert dict(outcome.details)["mended"] == ["frozen-base"]
    assert world.trainer.state is TrainerState.SLEEPING
    world.trainer.wake_up()
    assert world.all_bytes() == before


@pytest.mark.parametrize("verify", ["always", "sampled"])
def test_what_comes_back_from_the_base_file_is_compared(
    verify: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that returns other bytes without an error: faulted, and the next read of the file mends it."""
    world, _ = faulty_world(verify=verify, frozen_base="file", base_dir=str(tmp_path))
    before, read = world.all_bytes(), FrozenFile.read_into

    def reads_wrong(file: FrozenFile, name: str, into: Tensor) -> int:
        moved = read(file, name, into)
        flip(byte_of(into))
        return moved

    world.trainer.sleep(offload=True)
    monkeypatch.setattr(FrozenFile, "read_into", reads_wrong)
    with pytest.raises(TrainerFaulted, match="mends it from: the base file") as faulted:
        world.trainer.wake_up()
    monkeypatch.undo()
    outcome = world.trainer.recover()

    assert mismatch(faulted.value).group == "frozen-base"
    assert isinstance(outcome, Moved)
    assert dict(outcome.details)["mended"] == ["frozen-base"]
    assert world.all_bytes() == before


@pytest.mark.parametrize("name", ["p", "p#exp_avg_sq"])
def test_what_the_saver_wrote_to_disk_is_compared_in_full(name: str, tmp_path: Path) -> None:
    """In sampled too: between write and read the file lies where others can reach it."""
    world, _ = faulty_world(tmp_path, offload_target="disk", strategy="reference")
    with world.trainer.step(["A"]):
        world.backward("A")
        world.optimizers[3].step()
    content = tensor(world, name).detach().numpy().tobytes()
    world.trainer.sleep(offload=True)
    notes = world.trainer._parts.notes
    assert all(notes.of(*key).full is not None for key in _on_disk(world))  # type: ignore[union-attr]
    path = next(one for one in tmp_path.glob("tms_*") if content in one.read_bytes())
    held = path.read_bytes()
    path.write_bytes(held.replace(content, bytes([content[0] ^ 1]) + content[1:]))
    with pytest.raises(TrainerFaulted, match=GROUPS[name]):
        world.trainer.wake_up()


def _on_disk(world: World) -> list[tuple[str, int | None]]:
    return [("trainable-base", world.trainer._parts.versions.region["trainable-base"]), ("base-moments", None)]


def test_a_fault_that_has_nothing_to_do_with_bytes_recovers_offloaded_and_is_compared_at_the_wake() -> None:
    """What recover leaves in the backup is noted, if nothing was noted before."""
    world, port = faulty_world()
    world.trainer.sleep(offload=True)
    runner = world.trainer._runner
    first, last = runner.effects["resume-weights"], runner.effects["resume-scratch"]
    runner.effects["resume-weights"] = lambda parts, work: lambda: 1 / 0  # type: ignore[assignment,return-value]
    runner.effects["resume-scratch"] = lambda parts, work: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(TrainerFaulted):
        world.trainer.wake_up()
    runner.effects["resume-weights"], runner.effects["resume-scratch"] = first, last
    world.trainer._parts.notes.clear()
    world.trainer.recover()
    port.flips = [byte_of(tensor(world, "p"))]
    with pytest.raises(TrainerFaulted, match="trainable-base"):
        world.trainer.wake_up()


def test_nothing_stays_noted_while_the_trainer_is_awake_or_only_sleeps() -> None:
    """Notes are of one pause: a failed offload and a wake leave none."""
    world, port = faulty_world()
    notes = world.trainer._parts.notes
    world.trainer.sleep()
    port.keeps_share = 1.0
    with pytest.raises(TransitionFailed):
        world.trainer.offload()
    assert not notes.open
    port.keeps_share = 0.0
    world.trainer.offload()
    assert notes.open
    world.trainer.wake_up()

    assert not notes.open


def test_an_accumulation_that_was_under_way_at_a_fault_is_not_kept_twice() -> None:
    """Recover writes the gradients home and forgets the copies."""
    world, port = faulty_world(strategy="duplicate")
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    world.trainer.sleep(offload=True)
    port.flips = [byte_of(tensor(world, "up"))]
    with pytest.raises(TrainerFaulted):
        world.trainer.wake_up()
    world.trainer.recover()

    assert world.trainer.held_bytes()["kept_gradients"] == 0
    assert world.trainer.facts().accumulated
