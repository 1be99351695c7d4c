"""What the engine holds: versions move on commit, and what is not whole is not served."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from lifecycle.engines.local import BASE_ONLY, LocalEngine
from lifecycle.errors import EngineError
from tests.engines.world import FailAt, adapter, base_of, broken, llama, push


def test_a_new_engine_serves_nothing(engine: LocalEngine, prompts: Tensor) -> None:
    """The weights it was built with are nobody's."""
    with pytest.raises(EngineError, match="content undefined"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=1)


def test_versions_are_acknowledged_on_commit_only(engine: LocalEngine) -> None:
    """A push that is under way is not a push that arrived."""
    engine.begin_update()
    engine.send_base("frozen-base", 1, base_of(llama(0)).items())
    engine.load_adapter(adapter("a", 2, seed=1))
    under_way = engine.report().versions
    engine.commit_update()

    assert under_way == {}
    assert engine.report().versions == {"frozen-base": 1, "adapter/a": 2}


def test_an_open_update_fences_the_engine(engine: LocalEngine, prompts: Tensor) -> None:
    """Nothing is served between begin and commit or abort."""
    push(engine, base=1)
    engine.begin_update()
    with pytest.raises(EngineError, match="commit or abort the open update"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=1)
    engine.abort_update()

    assert engine.generate(prompts, BASE_ONLY, max_new_tokens=1).versions == {"frozen-base": 1}


def test_abort_drops_the_versions_of_what_was_touched(engine: LocalEngine, prompts: Tensor) -> None:
    """The adapter that was overwritten is gone, the one beside it is served as before. FB-54."""
    push(engine, adapter("a", 2, seed=1), adapter("b", 3, seed=2), base=1)
    before = engine.generate(prompts, "b", max_new_tokens=3, seed=0)
    engine.begin_update()
    engine.load_adapter(adapter("a", 4, seed=4))
    engine.abort_update()
    after = engine.generate(prompts, "b", max_new_tokens=3, seed=0)
    with pytest.raises(EngineError, match="no valid version"):
        engine.generate(prompts, "a", max_new_tokens=1)

    assert engine.report().versions == {"frozen-base": 1, "adapter/b": 3}
    assert torch.equal(before.logprobs, after.logprobs)


def test_an_aborted_adapter_does_not_keep_its_slot(engine: LocalEngine) -> None:
    """Slots are not lost to pushes that failed. FB-41."""
    push(engine, base=1)
    for attempt in range(5):
        engine.begin_update()
        engine.load_adapter(adapter(f"a{attempt}", 10 + attempt, seed=attempt))
        engine.abort_update()
    push(engine, adapter("b", 20, seed=1), adapter("c", 21, seed=2))

    assert set(engine.report().versions) == {"frozen-base", "adapter/b", "adapter/c"}


@pytest.mark.parametrize("call", range(1, 4))
def test_a_base_push_that_fails_half_way_cannot_be_committed(engine: LocalEngine, prompts: Tensor, call: int) -> None:
    """Wherever it fails, the mixture is not served, not committed and holds no version. FB-39, FB-54."""
    push(engine, base=1)
    engine.fault = FailAt("write", call)
    engine.begin_update()
    with pytest.raises(OSError, match="on request"):
        engine.send_base("frozen-base", 2, base_of(llama(5)).items())
    with pytest.raises(EngineError, match="the update failed"):
        engine.commit_update()
    engine.abort_update()
    with pytest.raises(EngineError, match="content undefined"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=1)

    assert engine.report().versions == {}


def test_a_stream_that_breaks_is_a_push_that_failed(engine: LocalEngine) -> None:
    """The sender's own error breaks the update like one of the engine. FB-03."""

    def stream() -> Iterator[tuple[str, Tensor]]:
        yield next(iter(base_of(llama(0)).items()))
        raise RuntimeError("the lease is gone")

    engine.begin_update()
    with pytest.raises(RuntimeError, match="lease is gone"):
        engine.send_base("frozen-base", 1, stream())
    with pytest.raises(EngineError, match="the lease is gone"):
        engine.commit_update()


def test_a_new_update_gives_up_one_that_was_left_open(engine: LocalEngine) -> None:
    """A trainer that lost its way repairs the engine by pushing again. FB-42."""
    push(engine, adapter("a", 2, seed=1), base=1)
    engine.begin_update()
    engine.load_adapter(adapter("a", 3, seed=3))
    push(engine, adapter("b", 4, seed=2))

    assert engine.report().versions == {"frozen-base": 1, "adapter/b": 4}


def test_a_failed_commit_can_be_aborted(engine: LocalEngine) -> None:
    """An engine that fails on commit acknowledges nothing."""
    engine.fault = FailAt("commit_update")
    with pytest.raises(OSError, match="on request"):
        push(engine, base=1)
    engine.abort_update()

    assert engine.report().versions == {}


@pytest.mark.parametrize("call", ["send_base", "load_adapter", "unload_adapter", "commit_update"])
def test_nothing_is_written_outside_of_an_update(engine: LocalEngine, call: str) -> None:
    """Every write belongs to an update that can be aborted."""
    arguments = {
        "send_base": ("frozen-base", 1, ()),
        "load_adapter": (adapter("a", 1, seed=1),),
        "unload_adapter": ("a",),
        "commit_update": (),
    }
    with pytest.raises(EngineError, match="is asked while it is updating"):
        getattr(engine, call)(*arguments[call])


def test_an_adapter_on_top_of_nothing_is_refused(engine: LocalEngine) -> None:
    """The base comes first. FB-28."""
    engine.begin_update()
    with pytest.raises(EngineError, match="push the base first"):
        engine.load_adapter(adapter("a", 1, seed=1))


def test_a_part_of_a_group_does_not_make_it_whole(engine: LocalEngine, prompts: Tensor) -> None:
    """A version that covers fewer tensors than before leaves the rest undefined. FB-30."""
    push(engine, base=1)
    engine.begin_update()
    engine.send_base("frozen-base", 2, [("model.norm.weight", torch.ones(32))])
    engine.commit_update()
    with pytest.raises(EngineError, match="content undefined"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=1)


def test_a_group_may_come_in_several_calls(engine: LocalEngine, prompts: Tensor) -> None:
    """Buckets of one version add up."""
    tensors = list(base_of(llama(0)).items())
    engine.begin_update()
    engine.send_base("frozen-base", 1, tensors[:4])
    engine.send_base("frozen-base", 1, tensors[4:])
    engine.commit_update()

    assert engine.generate(prompts, BASE_ONLY, max_new_tokens=1).versions == {"frozen-base": 1}


def test_a_bucket_of_another_version_does_not_add_up(engine: LocalEngine, prompts: Tensor) -> None:
    """Half of version 1 and half of version 2 are neither."""
    tensors = list(base_of(llama(0)).items())
    engine.begin_update()
    engine.send_base("frozen-base", 1, tensors[:4])
    engine.send_base("frozen-base", 2, tensors[4:])
    engine.commit_update()
    with pytest.raises(EngineError, match="content undefined"):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=1)


@pytest.mark.parametrize(
    ("name", "tensor", "why"),
    [("model.other.weight", torch.zeros(2), "no tensor model.other"), ("model.norm.weight", torch.zeros(3), "wanted")],
)
def test_a_base_tensor_that_does_not_fit_is_refused(engine: LocalEngine, name: str, tensor: Tensor, why: str) -> None:
    """Another architecture is noticed at the first tensor."""
    engine.begin_update()
    with pytest.raises(EngineError, match=why):
        engine.send_base("frozen-base", 1, [(name, tensor)])


def _without_last(payload: object) -> dict[str, Tensor]:
    tensors = dict(payload.tensors)  # type: ignore[attr-defined]
    tensors.popitem()
    return tensors


BAD_ADAPTERS = {
    "a rank larger than the slots": lambda good: broken(good, rank=64),
    "a rank that the tensors do not have": lambda good: broken(good, rank=2),
    "a module without slots": lambda good: broken(
        good, tensors={"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 32)}
    ),
    "a factor without its partner": lambda good: broken(good, tensors=_without_last(good)),
    "no tensors at all": lambda good: broken(good, tensors={}),
    "a tensor that is no LoRA factor": lambda good: broken(good, tensors={"model.norm.weight": torch.zeros(32)}),
}


@pytest.mark.parametrize("damage", BAD_ADAPTERS)
def test_a_bad_adapter_is_refused_before_the_first_byte(engine: LocalEngine, prompts: Tensor, damage: str) -> None:
    """The adapter that is served under this name keeps its version and its bits. FB-39."""
    push(engine, adapter("a", 2, seed=1), base=1)
    before = engine.generate(prompts, "a", max_new_tokens=3, seed=0)
    engine.begin_update()
    with pytest.raises(EngineError, match="nothing was written"):
        engine.load_adapter(BAD_ADAPTERS[damage](adapter("a", 3, seed=3)))
    engine.abort_update()
    after = engine.generate(prompts, "a", max_new_tokens=3, seed=0)

    assert engine.report().versions["adapter/a"] == 2
    assert torch.equal(before.logprobs, after.logprobs)


def test_a_full_engine_says_what_it_holds(engine: LocalEngine) -> None:
    """One adapter more than there are slots is refused with their names."""
    push(engine, adapter("a", 2, seed=1), adapter("b", 3, seed=2), base=1)
    engine.begin_update()
    with pytest.raises(EngineError, match="loaded are a, b"):
        engine.load_adapter(adapter("c", 4, seed=3))


def test_a_refresh_needs_no_free_slot(engine: LocalEngine) -> None:
    """Ten refreshes of a loaded adapter fit into a full engine. FB-39."""
    push(engine, adapter("a", 2, seed=1), adapter("b", 3, seed=2), base=1)
    for version in range(10, 20):
        push(engine, adapter("a", version, seed=version))

    assert engine.report().versions["adapter/a"] == 19


def test_an_unloaded_adapter_is_not_served_and_its_slot_is_free(engine: LocalEngine, prompts: Tensor) -> None:
    """Its successor takes the slot; unloading what is not there is no error. FB-35, FB-42."""
    push(engine, adapter("a", 2, seed=1), adapter("b", 3, seed=2), base=1)
    engine.begin_update()
    engine.unload_adapter("a")
    engine.unload_adapter("nobody")
    engine.load_adapter(adapter("c", 4, seed=3))
    engine.commit_update()
    with pytest.raises(EngineError, match="no valid version"):
        engine.generate(prompts, "a", max_new_tokens=1)

    assert set(engine.report().versions) == {"frozen-base", "adapter/b", "adapter/c"}


def test_an_expected_version_that_is_not_held_is_refused(engine: LocalEngine, prompts: Tensor) -> None:
    """Whoever knows what should answer can say so; a stale engine refuses with both numbers. FB-51."""
    push(engine, adapter("a", 2, seed=1), base=1)
    with pytest.raises(EngineError, match="adapter/a is 2, wanted is 3"):
        engine.generate(prompts, "a", max_new_tokens=1, expected={"adapter/a": 3, "frozen-base": 1})

    answer = engine.generate(prompts, "a", max_new_tokens=1, expected={"adapter/a": 2})
    assert answer.versions == {"frozen-base": 1, "adapter/a": 2}


@pytest.mark.parametrize(
    "bad", [{"max_new_tokens": 0}, {"temperature": -1.0}, {"prompts": torch.zeros(3, dtype=torch.int64)}]
)
def test_a_malformed_request_is_refused(engine: LocalEngine, prompts: Tensor, bad: dict[str, object]) -> None:
    """Bad arguments do not end in an error of another library."""
    push(engine, base=1)
    request = {"prompts": prompts, "adapter": BASE_ONLY, "max_new_tokens": 1} | bad
    with pytest.raises(EngineError, match="must be"):
        engine.generate(**request)


def test_target_modules_that_the_model_lacks_are_an_error(make_engine: Callable[..., LocalEngine]) -> None:
    """An engine on which no adapter could do anything is not built."""
    with pytest.raises(EngineError, match="no linear module named nothing"):
        make_engine(target_modules=("nothing",))
