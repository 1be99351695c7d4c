"""The engine is a tenant of the saver: its tags are really released, resumed and full of its own bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lifecycle.engines import RolloutEngine
from lifecycle.engines.local import BASE_ONLY, TAGS, LocalEngine
from lifecycle.errors import EngineError, SaverError
from lifecycle.saver import Backup
from lifecycle.saver.arena import HostArena
from tests.engines.world import adapter, base_of, llama, push


def test_it_implements_the_engine_protocol(engine: LocalEngine) -> None:
    """The controller's protocol is what the engine offers."""
    assert isinstance(engine, RolloutEngine)


def test_its_memory_lies_in_two_tags_of_its_own(engine: LocalEngine, arena: HostArena) -> None:
    """Weights come back after a release, the key/value cache does not have to."""
    kinds = {tag: info.backup for tag, info in arena.tags().items()}

    assert kinds == {"e0/weights": Backup.CPU, "e0/kv_cache": Backup.NONE}
    assert engine.report().resident == frozenset(TAGS)


def test_a_release_gives_device_memory_back(engine: LocalEngine, arena: HostArena) -> None:
    """A second tenant frees what it held, all of it."""
    before = arena.usage().device_bytes
    engine.release(TAGS)

    assert before > 2**18
    assert arena.usage().device_bytes == 0
    assert engine.report().released == frozenset(TAGS)


def test_two_engines_fit_in_turns_where_they_do_not_fit_together(make_engine: Callable[..., LocalEngine]) -> None:
    """The device has room for one engine; the other resumes only after the first has released. FB-03."""
    weights = base_of(llama(0))
    one_engine = sum(one.numel() * one.element_size() for one in weights.values()) + 2**18
    device = HostArena(capacity_bytes=int(one_engine * 1.6))
    first = make_engine("e0", saver=device)
    first.release(TAGS)
    second = make_engine("e1", saver=device)
    with pytest.raises(EngineError, match="make room"):
        first.resume(TAGS)
    second.release(TAGS)
    first.resume(TAGS)

    assert (first.report().released, second.report().released) == (frozenset(), frozenset(TAGS))


def test_an_engine_without_room_leaves_no_memory_behind(make_engine: Callable[..., LocalEngine]) -> None:
    """Construction is all or nothing."""
    device = HostArena(capacity_bytes=2**17)
    with pytest.raises(EngineError, match="no room"):
        make_engine(saver=device)

    assert not device.tags()


def test_releasing_and_resuming_twice_asks_the_saver_once(engine: LocalEngine, arena: HostArena) -> None:
    """What already holds is skipped, so the saver never sees misuse. FB-08, FB-13."""
    engine.resume(TAGS)
    engine.release(["weights"])
    engine.release(TAGS)
    engine.release(TAGS)
    engine.resume(["kv_cache"])

    assert [tag for tag, info in arena.tags().items() if info.paused] == ["e0/weights"]


def test_an_unknown_tag_is_an_error_that_names_the_tags(engine: LocalEngine) -> None:
    """A typing error is not a silent success."""
    with pytest.raises(EngineError, match="there are weights, kv_cache"):
        engine.release(["weight"])


@pytest.mark.parametrize("tag", TAGS)
def test_a_half_awake_engine_refuses_to_generate(engine: LocalEngine, prompts: Tensor, tag: str) -> None:
    """One released tag is enough, and the message names it. FB-15."""
    push(engine, base=1)
    engine.release([tag])
    with pytest.raises(EngineError, match=f"not resident: {tag}"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=2)


def test_a_sleeping_engine_refuses_an_update(engine: LocalEngine) -> None:
    """A push into released memory is refused before the first byte. FB-04."""
    push(engine, base=1)
    engine.release(["weights"])
    with pytest.raises(EngineError, match="weights is released"):
        engine.begin_update()

    assert engine.report().versions == {"frozen-base": 1}


def test_weights_come_back_before_a_push_and_the_cache_after_it(engine: LocalEngine, prompts: Tensor) -> None:
    """The order that leaves the most room: resume the weights, push, resume the cache, serve. FB-04."""
    push(engine, adapter("a", 2, seed=1), base=1)
    engine.generate(prompts, "a", max_new_tokens=2, seed=0)
    engine.release(TAGS)
    engine.resume(["weights"])
    push(engine, adapter("a", 3, seed=3))
    engine.resume(["kv_cache"])

    assert engine.generate(prompts, "a", max_new_tokens=2).versions == {"frozen-base": 1, "adapter/a": 3}


@pytest.mark.parametrize("call", ["release", "resume"])
def test_memory_does_not_move_under_an_open_update(engine: LocalEngine, arena: HostArena, call: str) -> None:
    """Refused, and the update of whoever is sending can still be committed. FB-04."""
    push(engine, base=1)
    before = arena.usage()
    engine.begin_update()
    with pytest.raises(EngineError, match="commit or abort the open update first"):
        getattr(engine, call)(["kv_cache", "weights"])
    engine.load_adapter(adapter("a", 2, seed=1))
    engine.commit_update()

    assert engine.report().versions == {"frozen-base": 1, "adapter/a": 2}
    assert arena.usage() == before


def test_a_report_tells_a_mirror_from_bytes_that_are_gone(engine: LocalEngine) -> None:
    """The cache never has a mirror; the weights have one unless they are discarded, also later. FB-12."""
    push(engine, base=1)
    engine.release(TAGS)
    mirrored = engine.report()
    engine.release(["weights"], discard=True)
    gone = engine.report()

    assert (mirrored.discarded, mirrored.versions) == (frozenset({"kv_cache"}), {"frozen-base": 1})
    assert (gone.discarded, gone.versions) == (frozenset(TAGS), {})


def test_a_release_that_fails_half_way_is_reported_as_it_is(make_engine: Callable[..., LocalEngine]) -> None:
    """What was given back before the saver failed is released, the rest is resident. FB-13."""

    class Stuck(HostArena):
        def pause(self, tag: str) -> None:
            if tag.endswith("weights"):
                raise SaverError(tag, "stuck")
            super().pause(tag)

    device = Stuck()
    engine = make_engine(saver=device)
    with pytest.raises(EngineError, match="stuck"):
        engine.release(TAGS)

    assert (engine.report().resident, engine.report().released) == (frozenset({"weights"}), frozenset({"kv_cache"}))
    device.close()


def test_content_survives_a_release(engine: LocalEngine, prompts: Tensor) -> None:
    """The same request gives the same bits before and after, adapters included. FB-29."""
    push(engine, adapter("a", 2, seed=1), base=1)
    before = engine.generate(prompts, "a", max_new_tokens=4, seed=7)
    engine.release(TAGS)
    engine.resume(TAGS)
    after = engine.generate(prompts, "a", max_new_tokens=4, seed=7)

    assert torch.equal(before.tokens, after.tokens)
    assert torch.equal(before.logprobs, after.logprobs)


def test_a_discarding_release_leaves_no_version(engine: LocalEngine, prompts: Tensor) -> None:
    """Mapped memory is not valid content: everything has to be pushed again. FB-12."""
    push(engine, adapter("a", 2, seed=1), base=1)
    engine.release(TAGS, discard=True)
    engine.resume(TAGS)
    with pytest.raises(EngineError, match="content undefined"):
        engine.generate(prompts, "a", max_new_tokens=2)

    assert engine.report().versions == {}


def test_a_discarding_release_leaves_no_byte_and_no_slot_taken(engine: LocalEngine) -> None:
    """What comes back cannot pass for the old weights, and a full engine has room again. FB-12."""
    push(engine, adapter("a", 2, seed=1), adapter("b", 3, seed=2), base=1)
    engine.release(TAGS, discard=True)
    engine.resume(TAGS)
    norm = engine._instance.base["model.norm.weight"].clone()
    push(engine, adapter("c", 5, seed=1), adapter("d", 6, seed=2), base=4)

    assert norm.isnan().all()
    assert set(engine.report().versions) == {"frozen-base", "adapter/c", "adapter/d"}


def test_pushing_parameters_without_buffers_does_not_make_an_engine_whole(engine: LocalEngine, prompts: Tensor) -> None:
    """After a discard the rotary tables are gone too, and the refusal names them. FB-12."""
    engine.release(TAGS, discard=True)
    engine.resume(TAGS)
    engine.begin_update()
    engine.send_base("frozen-base", 1, llama(0).named_parameters())
    engine.commit_update()
    with pytest.raises(EngineError, match=r"model\.rotary_emb\.inv_freq"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=2)
    engine.begin_update()
    engine.send_base("buffers", 2, llama(0).named_buffers())
    engine.commit_update()

    assert engine.generate(prompts, BASE_ONLY, max_new_tokens=2).versions == {"buffers": 2, "frozen-base": 1}


def test_a_restart_holds_nothing(engine: LocalEngine, prompts: Tensor) -> None:
    """A new instance has a new identity, no versions, both tags resident. FB-42, FB-51."""
    push(engine, adapter("a", 2, seed=1), base=1)
    before = engine.report()
    engine.release(["weights"])
    engine.restart()
    after = engine.report()
    with pytest.raises(EngineError, match="content undefined"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=2)

    assert after.instance_id != before.instance_id
    assert (after.versions, after.released) == ({}, frozenset())


def test_restarts_do_not_pile_up_memory(engine: LocalEngine, arena: HostArena) -> None:
    """The memory of the old instance is given back."""
    before = arena.usage()
    for _ in range(3):
        engine.restart()

    assert arena.usage() == before


def test_close_gives_everything_back(engine: LocalEngine, arena: HostArena) -> None:
    """Nothing of the engine stays in the saver."""
    engine.release(["weights"])
    engine.close()

    assert not arena.tags()


def test_a_key_value_buffer_that_is_too_small_is_an_error_and_harms_nothing(
    make_engine: Callable[..., LocalEngine], prompts: Tensor
) -> None:
    """The message gives the bytes; a smaller request is answered afterwards."""
    engine = make_engine(kv_cache_bytes=6000)
    push(engine, base=1)
    with pytest.raises(EngineError, match="raise kv_cache_bytes"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=40)

    assert engine.generate(prompts[:1, :2], BASE_ONLY, max_new_tokens=1).tokens.shape == (1, 1)


def test_pointers_never_change(engine: LocalEngine) -> None:
    """Pushes, releases and retirements write in place."""
    tensors = engine._instance.weights()
    before = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    for version in range(1, 6):
        push(engine, adapter(f"a{version % 2}", 10 * version, seed=version), base=version)
        engine.release(TAGS)
        engine.resume(TAGS)

    assert {name: tensor.data_ptr() for name, tensor in engine._instance.weights().items()} == before
