"""What the in-process engine says of the bytes it serves, and what it answers without sampling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lifecycle.engines import AnswersChecksums, AnswersGreedily
from lifecycle.engines.local import BASE_ONLY, LocalEngine
from lifecycle.errors import EngineError
from lifecycle.weights.digests import tensor_sha256
from states import FROZEN_BASE
from tests.engines.world import adapter, base_of, broken, llama, push


def sums(tensors: dict[str, Tensor]) -> dict[str, str]:
    """The sender's own."""
    return {name: tensor_sha256(one) for name, one in tensors.items()}


def test_checksums_are_those_of_what_was_sent_under_its_names(engine: LocalEngine) -> None:
    """Base and adapter, of a smaller rank than its slot, while the one beside it has other bytes."""
    a, b = adapter("a", 2, seed=1, rank=2), adapter("b", 3, seed=2)
    push(engine, a, b, base=1)

    assert isinstance(engine, AnswersChecksums)
    assert engine.checksums(FROZEN_BASE) == sums(base_of(llama(0)))
    assert engine.checksums("adapter/a") == sums(dict(a.tensors))
    assert engine.checksums("adapter/b") == sums(dict(b.tensors)) != engine.checksums("adapter/a")


def test_checksums_are_of_the_bytes_that_lie_there_now(engine: LocalEngine) -> None:
    """Not of what was received: one bit that changed since shows, in the tensor where it is."""
    a = adapter("a", 2, seed=1)
    push(engine, a, base=1)
    before = engine.checksums("adapter/a")
    assert before is not None
    slot = next(iter(engine._instance._lora._up.values()))
    slot[0, 0, 0] += 1
    after = engine.checksums("adapter/a")

    assert after is not None
    assert [name for name in before if before[name] != after[name]] == [next(one for one in before if "lora_B" in one)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_adapter_that_was_widened_is_hashed_in_the_dtype_it_came_in(engine: LocalEngine, dtype: torch.dtype) -> None:
    """Slots are float32, which holds those exactly."""
    given = adapter("a", 2, seed=1)
    sent = {name: one.to(dtype) for name, one in given.tensors.items()}
    push(engine, broken(given, tensors=sent), base=1)

    assert engine.checksums("adapter/a") == sums(sent)


def test_what_was_rounded_on_its_way_has_no_checksums(engine: LocalEngine) -> None:
    """It cannot be what was sent; the greedy probe has to do."""
    given = adapter("a", 2, seed=1)
    push(engine, broken(given, tensors={name: one.double() for name, one in given.tensors.items()}), base=1)

    assert engine.checksums("adapter/a") is None
    assert engine.checksums(FROZEN_BASE) is not None


def test_a_group_without_a_version_has_no_checksums(engine: LocalEngine) -> None:
    """Never sent, aborted, or unloaded."""
    assert engine.checksums(FROZEN_BASE) is None
    push(engine, adapter("a", 2, seed=1), base=1)
    engine.begin_update()
    engine.load_adapter(adapter("a", 3, seed=2))
    engine.abort_update()

    assert engine.checksums("adapter/a") is None


def test_a_group_that_is_sent_anew_has_the_checksums_of_what_it_is_now(engine: LocalEngine) -> None:
    """Another trainer may draw its groups otherwise: nothing of the old ones is left in the new ones (FB-52)."""
    whole, other = base_of(llama(0)), base_of(llama(1))
    buffers = {name: one for name, one in other.items() if name.endswith("inv_freq")}
    rest = {name: one for name, one in other.items() if name not in buffers}
    push(engine, base=1)
    engine.begin_update()
    engine.send_base(FROZEN_BASE, 2, list(rest.items())[:3])
    engine.send_base(FROZEN_BASE, 2, list(rest.items())[3:])
    engine.send_base("buffers", 3, buffers.items())
    engine.commit_update()
    assert set(whole) == set(rest) | set(buffers)
    assert engine.checksums(FROZEN_BASE) == sums(rest)
    assert engine.checksums("buffers") == sums(buffers)

    engine.begin_update()
    engine.send_base(FROZEN_BASE, 4, whole.items())
    engine.commit_update()
    assert engine.checksums(FROZEN_BASE) == sums(whole)


def test_released_weights_have_no_checksums(engine: LocalEngine) -> None:
    """Its memory is not there to be read."""
    push(engine, base=1)
    engine.release(["weights"])
    with pytest.raises(EngineError, match="cannot hash weights: weights released"):
        engine.checksums(FROZEN_BASE)


def test_greedy_tokens_are_the_most_probable_ones_of_prompts_of_any_length(
    engine: LocalEngine, make_engine: Callable[..., LocalEngine]
) -> None:
    """The same as one prompt at a time at temperature 0, under the adapter that is asked for."""
    assert isinstance(engine, AnswersGreedily)
    push(engine, adapter("a", 2, seed=1), base=1)
    prompts = ((1, 5, 9), (3, 3, 60, 11, 0, 2))
    found = engine.greedy("a", prompts, 4)
    alone = [engine.generate(torch.tensor([one]), "a", max_new_tokens=4, temperature=0).tokens for one in prompts]

    assert found == tuple(tuple(one[0].tolist()) for one in alone)
    assert engine.greedy(BASE_ONLY, prompts, 4) != found
    with pytest.raises(EngineError, match="adapter 'b' has no valid version"):
        engine.greedy("b", prompts, 4)
