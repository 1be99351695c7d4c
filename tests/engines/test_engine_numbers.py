"""What the engine computes, against transformers and PEFT."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from torch import Tensor, nn

from lifecycle.engines import AdapterPayload
from lifecycle.engines.local import BASE_ONLY, LocalEngine
from tests.engines.world import RANK, TARGETS, adapter, llama, push

CLOSE = 1e-5


def _peft(payload: AdapterPayload) -> nn.Module:
    config = LoraConfig(r=payload.rank, lora_alpha=payload.alpha, target_modules=list(TARGETS))
    model = get_peft_model(llama(0), config)
    set_peft_model_state_dict(model, dict(payload.tensors))
    return model.eval()


@torch.no_grad()
def _reference(model: nn.Module, prompts: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    logits = model(input_ids=torch.cat([prompts, tokens], dim=1)).logits[:, prompts.shape[1] - 1 : -1]
    return torch.log_softmax(logits / temperature, dim=-1).gather(-1, tokens[..., None])[..., 0]


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
@pytest.mark.parametrize("rank", [1, RANK])
def test_log_probabilities_equal_those_of_transformers_with_peft(
    engine: LocalEngine, prompts: Tensor, rank: int
) -> None:
    """Two implementations of LoRA and of the forward pass agree, also for a rank below that of the slots."""
    payload = adapter("a", 2, seed=3, rank=rank)
    push(engine, payload, base=1)
    answer = engine.generate(prompts, "a", max_new_tokens=6, seed=0)
    wanted = _reference(_peft(payload), prompts, answer.tokens)

    torch.testing.assert_close(answer.logprobs, wanted, atol=CLOSE, rtol=0)


def test_without_an_adapter_the_engine_is_the_base(engine: LocalEngine, prompts: Tensor) -> None:
    """The explicit request for the base applies no slot."""
    push(engine, adapter("a", 2, seed=3), base=1)
    answer = engine.generate(prompts, BASE_ONLY, max_new_tokens=6, seed=0)

    torch.testing.assert_close(answer.logprobs, _reference(llama(0), prompts, answer.tokens), atol=CLOSE, rtol=0)


def test_adapters_differ_from_the_base_and_from_each_other(engine: LocalEngine, prompts: Tensor) -> None:
    """A probe that finds an engine which applies nothing. FB-29."""
    push(engine, adapter("a", 2, seed=1), adapter("b", 3, seed=2), base=1)
    answers = [engine.generate(prompts, one, max_new_tokens=1, temperature=0) for one in (BASE_ONLY, "a", "b")]
    first = [one.logprobs for one in answers]

    assert not torch.allclose(first[0], first[1], atol=1e-2)
    assert not torch.allclose(first[1], first[2], atol=1e-2)


def test_a_new_tenant_of_a_slot_gets_its_own_scale_and_rank(engine: LocalEngine, prompts: Tensor) -> None:
    """What the last tenant had beyond the new one's rank is zero. FB-35."""
    push(engine, adapter("a", 2, seed=1, rank=RANK, alpha=64.0), base=1)
    engine.begin_update()
    engine.unload_adapter("a")
    engine.load_adapter(adapter("b", 3, seed=2, rank=1, alpha=2.0))
    engine.commit_update()
    reused = engine.generate(prompts, "b", max_new_tokens=4, seed=0)
    engine.restart()
    push(engine, adapter("b", 3, seed=2, rank=1, alpha=2.0), base=1)
    fresh = engine.generate(prompts, "b", max_new_tokens=4, seed=0)

    assert torch.equal(reused.logprobs, fresh.logprobs)


def test_the_same_seed_gives_the_same_tokens(engine: LocalEngine, prompts: Tensor) -> None:
    """A seed does not depend on, nor change, torch's own generator."""
    push(engine, base=1)
    state = torch.get_rng_state()
    one = engine.generate(prompts, BASE_ONLY, max_new_tokens=8, seed=4)
    torch.manual_seed(11)
    two = engine.generate(prompts, BASE_ONLY, max_new_tokens=8, seed=4)
    torch.set_rng_state(state)

    assert torch.equal(one.tokens, two.tokens)


def test_log_probabilities_are_those_of_the_distribution_that_was_sampled(engine: LocalEngine, prompts: Tensor) -> None:
    """Temperature divides the logits before both."""
    push(engine, base=1)
    answer = engine.generate(prompts, BASE_ONLY, max_new_tokens=4, seed=0, temperature=0.5)
    wanted = _reference(llama(0), prompts, answer.tokens, temperature=0.5)

    torch.testing.assert_close(answer.logprobs, wanted, atol=CLOSE, rtol=0)


def test_temperature_zero_takes_the_most_probable_token(engine: LocalEngine, prompts: Tensor) -> None:
    """Greedy decoding, with the log-probabilities of the model's own distribution."""
    push(engine, base=1)
    answer = engine.generate(prompts, BASE_ONLY, max_new_tokens=1, temperature=0)
    with torch.no_grad():
        logits = llama(0)(input_ids=prompts).logits[:, -1]

    assert torch.equal(answer.tokens[:, 0], logits.argmax(-1))


def test_cached_prefixes_are_used_again_for_the_very_same_request(engine: LocalEngine, prompts: Tensor) -> None:
    """The answer is that of an engine that computes everything."""
    push(engine, base=1)
    engine.generate(prompts, BASE_ONLY, max_new_tokens=6, seed=1)
    again = engine.generate(prompts, BASE_ONLY, max_new_tokens=6, seed=2)

    assert engine.prefix_hits == 1
    torch.testing.assert_close(again.logprobs, _reference(llama(0), prompts, again.tokens), atol=CLOSE, rtol=0)


def test_a_prefix_of_another_adapter_or_version_is_never_used(engine: LocalEngine, prompts: Tensor) -> None:
    """A swap under the same name flushes what was computed with the old weights. FB-32."""
    push(engine, adapter("a", 2, seed=1), adapter("b", 3, seed=2), base=1)
    engine.generate(prompts, "a", max_new_tokens=2, seed=0)
    engine.generate(prompts, "b", max_new_tokens=2, seed=0)
    engine.generate(prompts, "a", max_new_tokens=2, seed=0)
    flushes, hits = engine.prefix_flushes, engine.prefix_hits
    push(engine, adapter("a", 4, seed=5))
    swapped = engine.generate(prompts, "a", max_new_tokens=3, seed=0)
    engine.restart()
    push(engine, adapter("a", 4, seed=5), base=1)
    fresh = engine.generate(prompts, "a", max_new_tokens=3, seed=0)

    assert torch.equal(swapped.logprobs, fresh.logprobs)
    assert (flushes, hits) == (1, 0)


def test_a_prefix_of_other_prompts_is_never_used(engine: LocalEngine, prompts: Tensor) -> None:
    """Prompts of the same shape are not the same prompts."""
    push(engine, base=1)
    engine.generate(prompts, BASE_ONLY, max_new_tokens=3, seed=0)
    other = engine.generate((prompts + 1) % 64, BASE_ONLY, max_new_tokens=3, seed=0)

    torch.testing.assert_close(
        other.logprobs, _reference(llama(0), (prompts + 1) % 64, other.tokens), atol=CLOSE, rtol=0
    )


def test_released_key_value_memory_loses_its_prefixes(engine: LocalEngine, prompts: Tensor) -> None:
    """The buffer comes back without values; what was in it is not read."""
    push(engine, base=1)
    before = engine.generate(prompts, BASE_ONLY, max_new_tokens=3, seed=0)
    engine.release(["kv_cache"])
    engine.resume(["kv_cache"])
    after = engine.generate(prompts, BASE_ONLY, max_new_tokens=3, seed=0)

    assert engine.prefix_hits == 0
    assert torch.equal(before.logprobs, after.logprobs)
