"""Weight sync broken on purpose, in three ways. Two nets hang under it, and each catches all three.

The version rule refuses before anything wrong is served. The log-probability check looks at numbers
only; to see it work, the version rule is switched off by hand: a request that expects no version, a door
that lies about what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lifecycle.demo.build import Colocated, colocated
from lifecycle.demo.options import DemoOptions, Training
from lifecycle.demo.report import LOGPROB_TOLERANCE
from lifecycle.demo.run import Loop
from lifecycle.engines import AdapterPayload
from lifecycle.errors import EngineError, EventRefused, TrainerFaulted, TransitionFailed
from lifecycle.weights.aliases import alias
from states import Read

SMALL = Training(prompts=4, new_tokens=4, inner_steps=2, learning_rate=0.05)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Colocated]:
    """A trainer and an engine that were in sync, after which both adapters have trained."""
    with colocated(DemoOptions(out=tmp_path, training=SMALL)) as made:
        loop = Loop(made)
        made.trainer.snapshots.backup("before")
        loop.turn(0)
        yield made


def _difference(world: Colocated, *, checked: bool) -> float:
    """What the log-probability check finds for adapter a, with or without the version rule before it."""
    loop = Loop(world)
    prompts = loop.prompts("a")
    expected = loop.wanted("a") if checked else None
    rollout = world.engine.generate(prompts, "a", max_new_tokens=4, seed=0, expected=expected)
    world.engine.release(["weights", "kv_cache"])
    world.trainer.wake_up()
    return loop.difference("a", prompts, rollout)


def _to_engine(world: Colocated, *, push: bool = True) -> None:
    world.trainer.sleep(offload=True)
    world.engine.resume(["weights", "kv_cache"])
    if push:
        world.trainer.update_weights([world.engine])


def test_a_sync_that_is_not_broken_passes_both_nets(world: Colocated) -> None:
    """The nets do not catch what is right."""
    _to_engine(world)

    assert _difference(world, checked=True) <= LOGPROB_TOLERANCE


def test_a_skipped_push_is_refused_by_version(world: Colocated) -> None:
    """The engine says which version it holds and which one is wanted. FB-30, FB-51."""
    _to_engine(world, push=False)
    with pytest.raises(EngineError, match="stale: adapter/a is"):
        _difference(world, checked=True)


def test_a_skipped_push_shows_in_the_log_probabilities(world: Colocated) -> None:
    """Tokens of the policy before the step are not those of the policy after it."""
    _to_engine(world, push=False)

    assert _difference(world, checked=False) > LOGPROB_TOLERANCE


def test_a_stale_source_is_refused_by_version(world: Colocated) -> None:
    """Bytes of an older version have an older id: nothing is read from them and nothing is sent. FB-01, FB-45."""
    before = world.engine.report().versions
    snapshots = world.trainer.snapshots
    for group in snapshots.versions("before"):
        snapshots.restore_group("before", group)  # past the gate, which would not let anybody
    world.trainer.sleep()
    world.engine.resume(["weights", "kv_cache"])
    with pytest.raises(EventRefused) as refused:
        world.trainer.update_weights([world.engine])

    assert [verdict.name for verdict in refused.value.failed] == ["sources-are-fresh"]
    assert world.engine.report().versions == before


def _give_out_old_bytes(world: Colocated, monkeypatch: pytest.MonkeyPatch) -> None:
    door = world.trainer._parts.door
    honest, snapshots = door.read, world.trainer.snapshots

    def stale(name: str, tensor: Tensor, read: Read, pin: object = None) -> Tensor:
        if read.group.startswith("adapter/"):
            return alias(snapshots.tensor("before", read.group, name))
        return honest(name, tensor, read, pin)  # type: ignore[arg-type]

    monkeypatch.setattr(door, "read", stale)


def test_a_door_that_gives_out_old_bytes_faults_the_trainer_before_it_pushes_them(
    world: Colocated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is about to be sent is compared with the digest of its version. FB-24."""
    _give_out_old_bytes(world, monkeypatch)
    with pytest.raises(TrainerFaulted, match="adapter/a"):
        _to_engine(world)


def test_a_stale_source_shows_in_the_log_probabilities(world: Colocated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unverified, old bytes under the new version deceive the engine, but not the numbers."""
    parts = world.trainer._parts
    parts.config = replace(parts.config, verify="off")
    _give_out_old_bytes(world, monkeypatch)
    _to_engine(world)

    assert _difference(world, checked=True) > LOGPROB_TOLERANCE


def _swap_names(world: Colocated, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent for a arrives as b, and the other way round. Versions travel with the bytes."""
    honest, other = world.engine.load_adapter, {"a": "b", "b": "a"}

    def swapped(payload: AdapterPayload) -> None:
        honest(replace(payload, name=other[payload.name]))

    monkeypatch.setattr(world.engine, "load_adapter", swapped)


def _push_swapped(world: Colocated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The push itself finds it: what the engine says after the commit is not what it was sent. FB-54."""
    _swap_names(world, monkeypatch)
    with pytest.raises(TransitionFailed, match="after the commit it holds other versions than it was sent: adapter/a"):
        _to_engine(world)


def test_tensors_of_another_adapter_are_refused_by_version(world: Colocated, monkeypatch: pytest.MonkeyPatch) -> None:
    """No two adapters ever share a version id, so the engine cannot take one for the other. FB-35."""
    _push_swapped(world, monkeypatch)
    with pytest.raises(EngineError, match="stale: adapter/a is"):
        _difference(world, checked=True)


def test_the_next_pass_repairs_an_engine_that_got_tensors_of_another_adapter(world: Colocated) -> None:
    """The engine's own report shows that it is behind; a pass that is not broken ends in sync. FB-42."""
    with pytest.MonkeyPatch.context() as broken:
        _push_swapped(world, broken)
    world.trainer.update_weights([world.engine])

    assert _difference(world, checked=True) <= LOGPROB_TOLERANCE


def test_tensors_of_another_adapter_show_in_the_log_probabilities(
    world: Colocated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that expects no version is answered, and the numbers are those of the other adapter."""
    _push_swapped(world, monkeypatch)

    assert _difference(world, checked=False) > LOGPROB_TOLERANCE


def test_an_export_that_takes_the_neighbours_tensors_is_not_sent(
    world: Colocated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read for a payload has to be the adapter's own. FB-30, FB-35."""
    honest = world.host.export
    monkeypatch.setattr(world.host, "export", lambda name, read: honest({"a": "b", "b": "a"}[name], read))
    with pytest.raises(TransitionFailed, match=r"a v\d+ not of it: "):
        _to_engine(world)


def _swap_tensors(world: Colocated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine takes the tensors of b for those of a, under the right version: a lie that no version can see."""
    honest, kept = world.engine.load_adapter, {}

    def swapped(payload: AdapterPayload) -> None:
        kept[payload.name] = payload
        if len(kept) == 2:
            for name, other in (("a", "b"), ("b", "a")):
                honest(replace(kept[name], tensors=kept[other].tensors))
            kept.clear()

    monkeypatch.setattr(world.engine, "load_adapter", swapped)


def test_bytes_of_another_adapter_under_the_right_version_show_in_the_checksums(
    world: Colocated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine hashes what it serves, and the trainer what it has."""
    _swap_tensors(world, monkeypatch)
    with pytest.raises(TransitionFailed, match="adapter/a: these tensors are not the trainer's: ") as raised:
        _to_engine(world)

    assert raised.value.cause.tensors[0].endswith("lora_A.weight")  # type: ignore[attr-defined]


def test_bytes_of_another_adapter_under_the_right_version_show_in_the_log_probabilities(
    world: Colocated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is hashed the numbers see it."""
    parts = world.trainer._parts
    parts.config = replace(parts.config, verify="off")
    _swap_tensors(world, monkeypatch)
    _to_engine(world)

    assert _difference(world, checked=True) > LOGPROB_TOLERANCE


def test_the_engines_own_weights_are_not_the_trainers(world: Colocated) -> None:
    """A base that was not pushed could not be right by chance."""
    own = world.engine._make().base["lm_head.weight"]

    assert not torch.allclose(own, world.host.model.base_model.model.lm_head.weight)
