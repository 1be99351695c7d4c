"""Strategy ``lean``: one host copy of a frozen tensor, ever; and the same weights as ``reference`` gives (FB-17)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lifecycle import Backup, EventRefused, HostArena, LifecycleConfig, Moved, TrainerLifecycle, TrainerState
from lifecycle.errors import ConfigError, UnreadableTensor
from states import FROZEN_BASE, Strategy
from tests.lifecycle.world import WIDTH, FakeEngine, SlotHost, TinyModel, World, make_world

FROZEN_BYTES = 2 * WIDTH * WIDTH * 4 + WIDTH * WIDTH * 2
IN_FILE = {"frozen_base": "file"}
ON_DISK = {"offload_target": "disk"}


def lean_world(folder: Path, **changes: object) -> World:
    """A world whose saver has a disk directory, so that any placement can be had."""
    return make_world(arena=HostArena(disk_dir=str(folder)), **changes)


def another_base(world: World) -> dict[str, torch.Tensor]:
    """A model whose frozen base differs in every byte."""
    return {name: one.detach() + 1 for name, one in world.trainer._parts.inventory.base[FROZEN_BASE].items()}


def offloaded(world: World) -> Moved:
    """The outcome of an offload."""
    world.trainer.sleep()
    outcome = world.trainer.offload()
    assert isinstance(outcome, Moved)
    return outcome


def test_lean_is_what_a_configuration_without_a_strategy_gets() -> None:
    """The default holds the least."""
    assert LifecycleConfig().strategy == Strategy.LEAN


@pytest.mark.parametrize("kept", [(), ("ref",), ("ref", "old_actor", "rollout_actor")])
def test_kept_models_that_share_the_frozen_base_hold_no_copy_of_it(kept: tuple[str, ...], tmp_path: Path) -> None:
    """They note its version; the bytes are those that the saver holds anyway."""
    world = lean_world(tmp_path, with_ref=True, keep_old_actor=True)
    held = []
    for tag in kept:
        before = world.trainer.snapshots.host_bytes()
        world.train("A", "B")
        world.trainer.keep_model(tag)
        held.append(world.trainer.snapshots.host_bytes() - before)
    offloaded(world)

    assert all(0 < one < FROZEN_BYTES / 2 for one in held)
    assert world.trainer.held_bytes()["snapshots"] == sum(held)


@pytest.mark.parametrize("changes", [{}, IN_FILE, ON_DISK], ids=["cpu", "cpu-file", "disk"])
def test_a_kept_model_that_borrows_reads_the_same_bytes_in_every_state(changes: dict[str, str], tmp_path: Path) -> None:
    """Whatever brings the base back also serves the models that share it."""
    world = lean_world(tmp_path, with_ref=True, **changes)
    world.trainer.keep_model("ref")
    base = {name: one.detach().clone() for name, one in world.trainer._parts.inventory.base[FROZEN_BASE].items()}

    def same() -> bool:
        kept = world.trainer.snapshots.get("ref")
        return all(torch.equal(kept[name], one) for name, one in base.items())

    assert same()
    world.trainer.sleep()
    assert same()
    world.trainer.offload()
    assert same()
    world.trainer.wake_up()
    assert same()


def test_a_borrowed_tensor_that_outlives_its_reading_stops_the_pause_that_would_take_it() -> None:
    """It is the trainer's own memory; whoever holds it is named."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref")
    kept = world.trainer.snapshots.get("ref")
    world.trainer.sleep()
    with pytest.raises(EventRefused, match=r'get\("ref"\) \(closed, but .* outlived it'):
        world.trainer.offload()

    del kept
    world.trainer.offload()


@pytest.mark.parametrize("changes", [{}, IN_FILE, ON_DISK], ids=["cpu", "cpu-file", "disk"])
def test_switching_to_another_base_keeps_the_outgoing_bytes_first_and_brings_every_byte_back(
    changes: dict[str, str], tmp_path: Path
) -> None:
    """Lean has no copy of the actor until somebody is about to overwrite it; a base file needs none even then."""
    world = lean_world(tmp_path, with_ref=True, **changes)
    world.train("A")
    world.trainer.keep_model("ref", another_base(world))
    world.trainer.keep_model("old_actor")
    before = world.all_bytes()
    outcome = world.trainer.switch_model("ref")
    assert isinstance(outcome, Moved)

    assert outcome.edge == ("switches" if changes else "keeps-and-switches")
    assert dict(outcome.moved)["snapshot"] == (1 if changes else 2) * FROZEN_BYTES
    old = world.trainer.snapshots.get("old_actor")
    assert torch.equal(old["up"] + 1, world.model.up)
    del old
    world.trainer.switch_model("actor")
    assert world.all_bytes() == before


def test_a_cycle_with_another_base_active_gives_it_back_and_then_the_actor(tmp_path: Path) -> None:
    """The pause writes what is live, the actor's base comes from its file."""
    world = lean_world(tmp_path, with_ref=True, **IN_FILE)
    actor = world.all_bytes()
    world.trainer.keep_model("ref", another_base(world))
    world.trainer.switch_model("ref")
    ref = world.all_bytes()
    offloaded(world)
    world.trainer.wake_up()

    assert world.all_bytes() == ref
    world.trainer.switch_model("actor")
    assert world.all_bytes() == actor


@pytest.mark.parametrize("changes", [IN_FILE, ON_DISK], ids=["cpu-file", "disk"])
def test_sleep_and_offload_copy_nothing_of_a_base_in_a_file(changes: dict[str, str], tmp_path: Path) -> None:
    """Adapters, buffers and moments go to the host, the base is already where it comes back from."""
    world = lean_world(tmp_path, **changes)
    before = world.all_bytes()
    outcome = offloaded(world)
    tags = world.arena.tags()

    assert tags["actor/base"].backup is Backup.NONE
    others = sum(one.size_bytes for tag, one in tags.items() if tag not in {"actor/base", "actor/gradients"})
    assert outcome.moved == (("backup", others),)
    assert world.trainer.held_bytes()["saver_host"] == others
    woken = world.trainer.wake_up()
    assert isinstance(woken, Moved)
    assert dict(woken.moved)["base-file-read"] == FROZEN_BYTES
    assert world.all_bytes() == before


def test_a_base_file_is_named_by_its_content_and_shared_by_who_has_the_same(tmp_path: Path) -> None:
    """Two trainers with one base make one file; another base makes another."""
    first, second = (lean_world(tmp_path, model=name, **IN_FILE) for name in ("actor", "critic"))
    names = [one.name for one in tmp_path.glob("base-*")]
    other = TinyModel()
    with torch.no_grad():
        other.up += 1
    third = TrainerLifecycle(
        LifecycleConfig(frozen_base="file", base_dir=str(tmp_path)),
        saver=HostArena(),
        model=other,
        optimizer=None,
        adapters=SlotHost(other),
        initial_state=TrainerState.AWAKE,
    )

    assert len(names) == 1
    assert len(list(tmp_path.glob("base-*"))) == 2
    assert names[0] == first.trainer._parts.file.held()[0].path.name  # type: ignore[union-attr]
    assert {one.trainer.held_bytes()["base_file"] for one in (first, second)} == {third.held_bytes()["base_file"]}


def test_a_base_in_a_file_needs_a_folder(tmp_path: Path) -> None:
    """Refused before anything is moved, with what to set."""
    with pytest.raises(ConfigError, match="base_dir"):
        make_world(**IN_FILE)
    make_world(base_dir=str(tmp_path), **IN_FILE)


@pytest.mark.parametrize("changes", [IN_FILE, ON_DISK], ids=["cpu-file", "disk"])
def test_a_base_that_a_framework_built_with_a_cpu_backup_cannot_be_backed_by_a_file(
    changes: dict[str, str], tmp_path: Path
) -> None:
    """The kind is fixed when memory is allocated; nothing was moved, and no file was written."""
    arena, model = HostArena(disk_dir=str(tmp_path)), TinyModel()
    arena.place({"embed": model.embed, "up": model.up, "down": model.down}, "everything", Backup.CPU)
    before = model.bias.data_ptr()
    with pytest.raises(ConfigError, match="tag everything: frozen-base lies in a region with backup cpu"):
        TrainerLifecycle(
            LifecycleConfig(**changes),  # type: ignore[arg-type]
            saver=arena,
            model=model,
            optimizer=None,
            adapters=SlotHost(model),
            initial_state=TrainerState.AWAKE,
        )

    assert (model.bias.data_ptr(), list(tmp_path.iterdir())) == (before, [])


def adopted_world(backup: Backup, folder: Path, **changes: object) -> World:
    """A base that a framework has placed in a region of its own."""
    world = make_world(adapters=(), offload_target=None)
    arena, model, host = HostArena(disk_dir=str(folder)), world.model, world.host
    arena.place({"embed": model.embed, "up": model.up, "down": model.down}, "framework", backup)
    trainer = TrainerLifecycle(
        LifecycleConfig(**changes),  # type: ignore[arg-type]
        saver=arena,
        model=model,
        optimizer=None,
        adapters=host,
        initial_state=TrainerState.AWAKE,
    )
    return World(model, host, arena, world.audit, trainer, {})


@pytest.mark.parametrize("backup", [Backup.NONE, Backup.DISK])
def test_what_a_pause_would_hide_is_copied_once_and_nothing_else_is(backup: Backup, tmp_path: Path) -> None:
    """A region without a readable backup needs the actor copy; adapters and buffers do not."""
    world = adopted_world(backup, tmp_path)
    before = world.all_bytes()
    slept = world.trainer.sleep()
    assert isinstance(slept, Moved)

    assert dict(slept.moved) == {"snapshot": FROZEN_BYTES}
    assert dict(world.trainer.snapshots.versions("actor")).keys() == {FROZEN_BASE}
    world.trainer.offload()
    assert world.weights()
    world.trainer.wake_up()
    assert world.all_bytes() == before
    again = world.trainer.sleep()
    assert isinstance(again, Moved)
    assert again.moved_bytes == 0


def test_a_retained_backup_serves_what_is_frozen_and_nothing_else() -> None:
    """Awake it holds the bytes of the last pause: the adapter has been trained since, the base never is."""
    world = make_world(arena=HostArena(retain_host_backup=True), with_ref=True)
    offloaded(world)
    world.trainer.wake_up()
    world.train("A")
    base, adapter = (world.trainer.facts().content(group) for group in (FROZEN_BASE, "adapter/A"))
    assert base is not None
    assert adapter is not None

    assert (base.retained, base.saver_is_fresh()) == (True, True)
    assert (adapter.retained, adapter.saver_is_fresh()) == (True, False)


@pytest.mark.parametrize("retain", [False, True])
def test_the_actors_base_is_read_in_place_from_the_copy_that_the_switch_made(*, retain: bool) -> None:
    """While another model is live. A retained backup holds it too, until the next pause: nothing may rely on it."""
    world = make_world(arena=HostArena(retain_host_backup=retain), with_ref=True)
    before = world.weights()
    offloaded(world)
    world.trainer.wake_up()
    world.trainer.keep_model("ref", another_base(world))
    switched = world.trainer.switch_model("ref")
    assert isinstance(switched, Moved)
    assert dict(switched.moved)["snapshot"] == 2 * FROZEN_BYTES
    content = world.trainer.facts().content(FROZEN_BASE)
    assert content is not None
    assert content.saver_is_fresh() is retain
    with world.trainer.weights("export", groups=[FROZEN_BASE]) as lease:
        assert set(lease.sources) == {"snapshot:actor"}
        kept = world.trainer.snapshots.tensor("actor", FROZEN_BASE, "up")
        assert lease["up"].data_ptr() == kept.data_ptr()

    assert {name: one for name, one in world.weights().items() if name in before} == before


def _visit_another_base(world: World) -> None:
    world.trainer.keep_model("ref", another_base(world))
    world.trainer.keep_model("old_actor")
    world.trainer.switch_model("ref")
    world.trainer.switch_model("actor")


def test_the_copy_that_a_switch_to_another_base_made_is_given_up_when_no_such_model_is_left() -> None:
    """As long as one is kept the next switch would copy it again; then one host copy is enough, and tags borrow it."""
    world = make_world(with_ref=True)
    before, base = world.weights(), world.model.up.detach().clone()
    _visit_another_base(world)
    assert world.trainer.snapshots.holders(FROZEN_BASE, _version(world)) == ("actor", "old_actor")
    world.trainer.snapshots.release("ref")

    assert world.trainer.snapshots.holders(FROZEN_BASE, _version(world)) == ()
    assert world.trainer.snapshots.borrowers(FROZEN_BASE) == ("actor", "old_actor")
    assert world.trainer.held_bytes()["snapshots"] < FROZEN_BYTES
    offloaded(world)
    assert torch.equal(world.trainer.snapshots.get("old_actor")["up"], base)
    world.trainer.wake_up()
    assert world.weights() == before


@pytest.mark.parametrize("how", ["replaced", "backed up"])
def test_it_is_given_up_too_when_the_other_model_takes_the_actors_base(how: str) -> None:
    """Whatever call leaves no other base behind."""
    world = make_world(with_ref=True)
    _visit_another_base(world)
    same = {name: one.detach().clone() for name, one in world.trainer._parts.inventory.base[FROZEN_BASE].items()}
    if how == "replaced":
        world.trainer.keep_model("ref", same)
    else:
        world.trainer.snapshots.backup("ref")

    assert world.trainer.snapshots.holders(FROZEN_BASE, _version(world)) == ()


def test_a_copy_that_somebody_reads_is_given_up_when_the_reader_is_gone() -> None:
    """A lease pins what it reads; what was missed is made up for at the next commit."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref", another_base(world))
    world.trainer.switch_model("ref")
    lease = world.trainer.weights("exporter", groups=[FROZEN_BASE])
    assert set(lease.sources) == {"snapshot:actor"}
    world.trainer._parts.runtime.active_model = "actor"
    world.trainer._parts.versions.region[FROZEN_BASE] = _version(world)
    world.trainer.snapshots.release("ref")
    assert world.trainer.snapshots.holders(FROZEN_BASE, _version(world)) == ("actor",)
    lease.close()
    world.train("A")

    assert world.trainer.snapshots.holders(FROZEN_BASE, _version(world)) == ()


def test_a_copy_of_bytes_that_a_pause_would_hide_is_never_given_up(tmp_path: Path) -> None:
    """Nobody could read them while the trainer is offloaded."""
    world = adopted_world(Backup.NONE, tmp_path)
    world.trainer.sleep()
    world.trainer.wake_up()
    world.trainer.keep_model("ref")
    world.trainer.snapshots.release("ref")

    assert world.trainer.snapshots.holders(FROZEN_BASE, _version(world)) == ("actor",)


def _version(world: World) -> int:
    return world.trainer._parts.versions.wanted[FROZEN_BASE]


def test_a_copy_of_the_actor_that_training_made_stale_is_given_back() -> None:
    """It was made for a switch; the next one needs the bytes of then."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref")
    world.train("A")
    world.trainer.switch_model("ref")
    world.trainer.switch_model("actor")
    version = world.trainer.snapshots.versions("actor")["adapter/A"]
    assert world.trainer.snapshots.holders("adapter/A", version) == ("actor",)
    world.train("A")

    assert world.trainer.snapshots.holders("adapter/A", version) == ()


def test_a_loaded_checkpoint_is_compared_and_only_what_differs_takes_a_new_version(tmp_path: Path) -> None:
    """The same base again: nothing is copied, sent or written; the adapters count as changed."""
    world, engine = lean_world(tmp_path, **IN_FILE), FakeEngine()
    world.trainer.update_weights([engine])
    before = {one.group: one.version for one in world.trainer.facts().contents}
    with world.trainer.loading_checkpoint():
        world.model.load_state_dict({name: one.clone() for name, one in world.model.state_dict().items()})
    after = {one.group: one.version for one in world.trainer.facts().contents}

    assert after[FROZEN_BASE] == before[FROZEN_BASE]
    assert len(list(tmp_path.glob("base-*"))) == 1
    engine.calls.clear()
    world.trainer.update_weights([engine])
    assert "base:frozen-base" not in engine.calls


def test_a_loaded_checkpoint_with_another_base_gets_a_file_of_its_own(tmp_path: Path) -> None:
    """It survives the next cycle, the engine gets it, and the file of the old one is let go."""
    world, engine = lean_world(tmp_path, **IN_FILE), FakeEngine()
    world.trainer.update_weights([engine])
    with world.trainer.loading_checkpoint(), torch.no_grad():
        world.model.up.data += 1
    before = world.all_bytes()
    offloaded(world)
    outcome = world.trainer.update_weights([engine])
    world.trainer.wake_up()

    assert isinstance(outcome, Moved)
    assert "base:frozen-base" in engine.calls
    assert world.all_bytes() == before


def test_a_kept_model_that_shares_the_old_base_keeps_it_when_a_checkpoint_replaces_it() -> None:
    """It gets bytes of its own before the first one is overwritten."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref")
    old = world.model.up.detach().clone()
    with world.trainer.loading_checkpoint(), torch.no_grad():
        world.model.up += 1

    assert torch.equal(world.trainer.snapshots.get("ref")["up"], old)


def _load_half(world: World) -> None:
    with world.trainer.loading_checkpoint(), torch.no_grad():
        world.model.up += 1
        raise RuntimeError("half-way")


def test_a_checkpoint_that_fails_to_load_leaves_no_bytes_under_an_old_version(tmp_path: Path) -> None:
    """Half of it is in the model: what differs counts as changed, and survives a cycle as it is."""
    world = lean_world(tmp_path, **IN_FILE)
    version = world.trainer.facts().content(FROZEN_BASE).version  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="half-way"):
        _load_half(world)
    before = world.all_bytes()
    offloaded(world)
    world.trainer.wake_up()

    assert world.trainer.facts().content(FROZEN_BASE).version > version  # type: ignore[union-attr]
    assert world.all_bytes() == before


def test_a_checkpoint_is_not_loaded_under_a_reader() -> None:
    """A lease over the live base pins it."""
    world = make_world()
    loading = world.trainer.loading_checkpoint()
    with world.trainer.weights("exporter", groups=[FROZEN_BASE]), pytest.raises(EventRefused, match="exporter"):
        loading.__enter__()


def test_a_version_that_nobody_keeps_any_more_is_an_error_and_not_other_bytes() -> None:
    """Borrowed bytes are asked for by version."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref")
    world.trainer._parts.versions.region[FROZEN_BASE] = None
    with pytest.raises(UnreadableTensor, match="not in the trainer's memory"):
        world.trainer.snapshots.get("ref")


SCRIPTS = {
    "alone": {},
    "with a ref": {"with_ref": True},
    "trainable base": {"trainable": True, "with_ref": True},
    "disaggregated": {"colocate": False},
    "disk": ON_DISK,
    "file": IN_FILE,
    "no target": {"offload_target": None},
}


@pytest.mark.parametrize("settings", SCRIPTS.values(), ids=SCRIPTS)
def test_lean_serves_what_reference_serves_bit_for_bit_and_never_holds_or_copies_more(
    settings: dict[str, object], tmp_path: Path
) -> None:
    """The same run under both: the same bytes at each step, in the trainer and in the engine."""
    _compare({strategy: _run(strategy, settings, tmp_path / strategy) for strategy in ("lean", "reference")})


@pytest.mark.parametrize("name", [name for name, settings in SCRIPTS.items() if settings.get("with_ref")])
@pytest.mark.parametrize("changes", [{}, IN_FILE, ON_DISK], ids=["cpu", "cpu-file", "disk"])
def test_lean_holds_and_copies_no_more_also_where_each_turn_switches_to_another_base_and_back(
    name: str, changes: dict[str, object], tmp_path: Path
) -> None:
    """The base is copied at the first of those switches; the copy stays, since the next one would need it again."""
    settings = SCRIPTS[name] | changes
    told = {one: _run(one, settings, tmp_path / one, turns=3, other_base=True) for one in ("lean", "reference")}
    _compare(told)


def _compare(told: dict[str, list[tuple[object, ...]]]) -> None:
    for lean, reference in zip(told["lean"], told["reference"], strict=True):
        assert lean[0] == reference[0]
        assert lean[1:3] == reference[1:3], lean[0]
        assert lean[3] <= reference[3], f"{lean[0]} holds more"
        assert lean[4] <= reference[4], f"until {lean[0]} it copied more"


def _run(
    strategy: str, settings: dict[str, object], folder: Path, *, turns: int = 2, other_base: bool = False
) -> list[tuple[object, ...]]:
    """What a run shows at each step: name, weights, the engine's digests, host bytes held, bytes copied since attach.

    Args:
        strategy: of the run.
        settings: its configuration.
        folder: for files, made here.
        turns: how often it trains and hands over.
        other_base: ref has another frozen base than the actor, and each turn switches to it and back.
    """
    folder.mkdir()
    torch.manual_seed(3)
    world, engine = lean_world(folder, strategy=strategy, **settings), FakeEngine()
    if settings.get("with_ref"):
        world.trainer.keep_model("ref", another_base(world) if other_base else None)
    rows: list[tuple[object, ...]] = []

    def note(name: str, _: object = None) -> None:
        held = world.trainer.held_bytes()
        copied = sum(count for (_, kind), count in world.trainer.ledger.moved.items() if kind != "sync")
        rows.append((name, world.weights(), dict(engine.digests), held["saver_host"] + held["snapshots"], copied))

    note("attached")
    for turn in range(turns):
        world.trainer.begin_step(["A"])
        world.backward("A")
        world.optimizers[0].step()
        note("trained", world.trainer.trained())
        if turn == 1:
            world.host.register("C", 2)
            note("reconciled", world.trainer.reconcile_adapters())
        note("sleep", world.trainer.sleep())
        if settings.get("offload_target", "cpu") is not None:
            note("offload", world.trainer.offload())
        note("update", world.trainer.update_weights([engine]))
        note("wake", world.trainer.wake_up())
        if settings.get("with_ref"):
            note("ref", world.trainer.switch_model("ref") if other_base or turn == 0 else None)
            note("actor", world.trainer.switch_model("actor"))
    return rows
