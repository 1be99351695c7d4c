"""Greedy probes: recorded while awake without a trace in training, and compared with what an engine answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch.optim import Adam

from lifecycle import (
    ConfigError,
    EngineUnconfirmed,
    GreedyProbe,
    HostArena,
    LifecycleConfig,
    MemoryAudit,
    TrainerLifecycle,
    TrainerState,
    TransitionFailed,
)
from lifecycle.engines.local import BASE_ONLY, LocalEngine
from lifecycle.probes import greedy
from lifecycle.standing import Serves
from tests.adapters.world import IDS, SLOT_RANK, TARGETS, factors, host, llama

PROBE = GreedyProbe(prompts=((1, 5, 9), (3, 3, 60, 11)), max_new_tokens=4)


class Deaf(LocalEngine):
    """A real engine that answers no checksums."""

    def checksums(self, group: str) -> Mapping[str, str] | None:
        return None


class World:
    """A trainer with two slots and a real engine on one arena. Adapter a is loaded."""

    def __init__(
        self, probe: GreedyProbe | None = PROBE, frozen: tuple[str, ...] = ("*inv_freq",), alpha: float = 40
    ) -> None:
        self.arena, self.made, self.audit = HostArena(), host(slots=2), MemoryAudit()
        self.optimizers = self.made.optimizers(lambda parameters: Adam(parameters, lr=0.05))
        self.trainer = TrainerLifecycle(
            LifecycleConfig(frozen_buffers=frozen), saver=self.arena, model=self.made.model, optimizer=self.optimizers,
            adapters=self.made, audit=self.audit, probe=probe, initial_state=TrainerState.AWAKE,
        )  # fmt: skip
        self.engine = Deaf(
            "E0", lambda: llama(99), saver=self.arena, slots=2, rank=SLOT_RANK, target_modules=TARGETS,
            kv_cache_bytes=2**18,
        )  # fmt: skip
        self.load("a", 1, alpha)

    def load(self, name: str, seed: int, alpha: float = 40) -> None:
        """Register and reconcile."""
        self.made.registry.register(name, rank=2, alpha=alpha, tensors=factors(seed, 2))
        self.trainer.reconcile_adapters()

    def train(self, name: str = "a") -> None:
        """A real step, in the mode that the model is in, with random numbers drawn."""
        model = self.made.model
        with self.trainer.step([name]) as step, self.made.use(name):
            loss = model(input_ids=IDS).logits.square().mean() * (1 + torch.rand(()))
            loss.backward()
            self.optimizers[self.made.slot_of(name)].step()
            step.stepped()

    def push(self) -> Mapping[str, str]:
        """How what was sent was verified."""
        outcome = self.trainer.update_weights([self.engine])
        return outcome.engines["E0"].verified

    def recorded(self) -> dict[tuple[str, int], tuple[tuple[int, ...], ...]]:
        """Tokens by group and version."""
        return {key: one.tokens for key, one in self.trainer._parts.runtime.probes.held.items()}

    def notes(self, what: str) -> list[dict[str, Any]]:
        """The remarks on the record that say this."""
        return [one for one in self.audit.records if one.get("note") == what]


@pytest.fixture
def make() -> Iterator[Callable[..., World]]:
    """Worlds whose memory goes with the test."""
    made: list[World] = []

    def new(*arguments: Any, **changes: Any) -> World:
        made.append(World(*arguments, **changes))
        return made[-1]

    yield new
    for one in made:
        one.arena.close()


def test_what_is_recorded_are_the_trainers_own_greedy_tokens(make: Callable[..., World]) -> None:
    """Of every adapter when it is loaded and when it has trained, and of the base once; the old ones are forgotten."""
    world = make()
    world.train()
    world.load("b", 2)
    model, versions, wanted = world.made.model.eval(), world.trainer.versions, {}
    for name in ("a", "b"):
        with torch.no_grad(), world.made.use(name):
            wanted[f"adapter/{name}", versions[f"adapter/{name}"]] = greedy(model, PROBE.prompts, 4)
    with torch.no_grad():
        wanted["frozen-base", versions["frozen-base"]] = greedy(model, PROBE.prompts, 4)

    assert world.recorded() == wanted
    assert len(set(wanted.values())) == 3
    told = [set(one["versions"]) for one in world.notes("greedy probes were recorded")]
    assert told == [{"frozen-base"}, {"adapter/a"}, {"adapter/a"}, {"adapter/b"}]


def test_greedy_tokens_are_those_of_transformers(make: Callable[..., World]) -> None:
    """``generate()`` without sampling gives the same."""
    world = make()
    model, prompt = world.made.model.eval(), torch.tensor([PROBE.prompts[1]])
    with world.made.use("a"):
        given = model.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=4,
            min_new_tokens=4, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        own = greedy(model, PROBE.prompts[1:], 4)

    assert own == (tuple(given[0, 4:].tolist()),)


def trained(world: World) -> dict[str, object]:
    """Everything that three steps come to: bits of weights, moments and gradients, random numbers, modes, use."""
    torch.manual_seed(3)
    world.made.model.train()
    world.made.model.base_model.model.model.layers[0].eval()
    modes = []
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            world.train()
        modes.append([one.training for one in world.made.model.modules()])
    state = world.optimizers[0].state_dict()["state"][0]
    return {
        "modes": modes,
        "weights": [one.tolist() for one in world.made.parameters_of("a")],
        "gradients": [one.grad.tolist() for one in world.made.parameters_of("a")],  # type: ignore[union-attr]
        "moments": {key: torch.as_tensor(one).tolist() for key, one in state.items()},
        "random": torch.rand(4).tolist(),
        "flags": [one.requires_grad for one in world.made.model.parameters()],
        "use": world.made.model.active_adapter,
        "buffers": [one.tolist() for one in world.made.model.buffers()],
    }


def test_training_is_bit_for_bit_the_same_with_and_without_probes(make: Callable[..., World]) -> None:
    """Random numbers, modes of each module, gradients, moments, autocast, buffers and the adapter in use."""
    bare, probed = make(None), make()

    assert trained(bare) == trained(probed)
    assert len(probed.recorded()) == 2


def test_a_forward_pass_that_writes_into_a_buffer_leaves_no_trace(make: Callable[..., World]) -> None:
    """Buffers are put back as they were; it runs without gradients and autocast, in eval mode."""
    seen = []

    def generate(name: str, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        assert not torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert not any(one.training for one in world.made.model.modules())
        torch.rand(3)
        for one in world.made.model.buffers():
            one.add_(1)
        seen.append(name)
        return [[7] * count for _ in prompts]

    world = make(None, frozen=())
    world.trainer._start_probing(world.made.model, GreedyProbe(PROBE.prompts, 4, generate=generate))
    before = [one.clone() for one in world.made.model.buffers()]
    world.made.model.train()
    torch.manual_seed(1)
    expected = torch.rand(2)[1:]
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        world.train()

    assert seen == ["a", BASE_ONLY, "a"]
    assert [torch.equal(one, other) for one, other in zip(before, world.made.model.buffers(), strict=True)] == [
        True
    ] * len(before)
    assert torch.equal(torch.rand(1), expected)


def test_a_recording_that_fails_is_a_note_and_the_version_unverified(make: Callable[..., World]) -> None:
    """The step stands, nobody tries that version again, and the next one is recorded."""
    broken = [True]

    def generate(name: str, prompts: Sequence[Sequence[int]], count: int) -> object:
        if broken[0] and name == "a":
            raise RuntimeError("out of memory")
        return greedy(world.made.model, prompts, count)

    world = make(None)
    world.trainer._start_probing(world.made.model, GreedyProbe(PROBE.prompts, 4, generate=generate))  # type: ignore[arg-type]
    world.train()
    verified = world.push()

    assert verified["frozen-base"] == "probe"
    assert "recording its tokens failed: RuntimeError: out of memory" in verified["adapter/a"]
    assert verified["adapter/a"].startswith("unverified: ")
    assert world.trainer.serving([world.engine])["E0"].serves is Serves.CURRENT
    assert len(world.notes("a greedy probe was not recorded")) == 2
    broken[0] = False
    world.train()
    assert world.push() == {"adapter/a": "probe"}


def test_an_engine_that_answers_the_trainers_tokens_is_verified(make: Callable[..., World]) -> None:
    """Base and adapter, each by its own tokens, also from a trainer that has slept since."""
    world = make()
    world.train()
    world.trainer.sleep(offload=True)
    outcome = world.trainer.update_weights([world.engine])

    assert outcome.engines["E0"].verified == {"frozen-base": "probe", "adapter/a": "probe"}
    [record] = [one for one in world.audit.records if one.get("trigger") == "update_weights" and "details" in one]
    assert record["details"]["engines"]["E0"]["verified"] == {"frozen-base": "probe", "adapter/a": "probe"}


def test_a_prompt_in_the_prefix_cache_is_answered_by_the_new_weights(make: Callable[..., World]) -> None:
    """What was computed for it with the old ones is not used again; the probe asks the same prompts (FB-32)."""
    world = make()
    world.push()
    before = world.engine.greedy("a", PROBE.prompts, 4)
    world.load("b", 3)
    with world.trainer.step(["a"]) as step, torch.no_grad():
        for one in world.made.parameters_of("a"):
            one.mul_(-1.7)
        step.stepped()

    assert world.push()["adapter/a"] == "probe"
    assert world.engine.greedy("a", PROBE.prompts, 4) != before


class Lazy(Deaf):
    """Reports every adapter and applies none."""

    def greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        return super().greedy(BASE_ONLY, prompts, max_new_tokens)


@pytest.mark.parametrize("agreement", [1.0, 0.3])
def test_an_engine_that_reports_an_adapter_and_applies_nothing_is_fenced(
    make: Callable[..., World], agreement: float
) -> None:
    """Also where few tokens have to agree, and do: its answers are those of the base (FB-29, scenario 3)."""
    world = make(GreedyProbe(PROBE.prompts, 4, min_agreement=agreement), alpha=1)
    world.engine.__class__ = Lazy
    told = r"adapter/a: asked as 'a' it answers prompt \d with \d+ as token \d, the trainer's is \d+"
    if agreement < 1:
        told = "adapter/a: asked as 'a' it answers what the base alone answers"
    with pytest.raises(TransitionFailed, match=told) as raised:
        world.push()

    assert isinstance(raised.value.cause, EngineUnconfirmed)
    assert world.trainer.serving([world.engine])["E0"].serves is Serves.FENCED
    world.engine.__class__ = Deaf
    assert set(world.push().values()) == {"probe"}
    assert world.trainer.serving([world.engine])["E0"].serves is Serves.CURRENT


def test_an_engine_that_cannot_generate_yet_is_verified_once_it_can(make: Callable[..., World]) -> None:
    """In a hand-over the key/value memory comes back after the push."""
    world = make()
    world.engine.release(["kv_cache"])
    assert set(world.push().values()) == {
        f"unverified: it has no checksums of {group}, and a probe needs its kv_cache, which is released"
        for group in ("frozen-base", "adapter/a")
    }
    world.engine.resume(["kv_cache"])

    found = world.trainer.verify_engines([world.engine])["E0"]
    assert (found.serves, set(found.verified.values())) == (Serves.CURRENT, {"probe"})


def test_an_engine_that_fails_a_later_verification_is_fenced_and_pushed_again(make: Callable[..., World]) -> None:
    """Requests stop as soon as it is known."""
    world = make()
    world.engine.release(["kv_cache"])
    world.push()
    world.engine.resume(["kv_cache"])
    world.engine.__class__ = Lazy
    found = world.trainer.verify_engines([world.engine])["E0"]
    assert found.serves is Serves.FENCED
    assert "it was not verified: engine E0: adapter/a" in found.because[0]

    world.engine.__class__ = Deaf
    world.push()
    assert world.trainer.serving([world.engine])["E0"].is_routable


def test_a_hand_over_probes_the_engines_before_its_block_begins(make: Callable[..., World]) -> None:
    """When their key/value memory is there again; if one answers otherwise nobody is served, and everybody is back."""
    world = make()
    world.engine.release(["kv_cache", "weights"])
    with world.trainer.handoff([world.engine]):
        found = world.trainer.serving([world.engine])["E0"]
        assert (found.serves, set(found.verified.values())) == (Serves.CURRENT, {"probe"})
    world.train()
    world.engine.__class__ = Lazy
    with pytest.raises(EngineUnconfirmed, match="adapter/a"), world.trainer.handoff([world.engine]):
        pytest.fail("the block must not run")

    assert world.trainer.state is TrainerState.AWAKE
    assert "kv_cache" in world.engine.report().released


def test_tokens_that_were_recorded_on_another_base_verify_nothing(make: Callable[..., World]) -> None:
    """Mutable buffers count by what they hold, not by their id, which changes with every step."""
    world = make(frozen=())
    world.load("b", 2)
    world.train("a")
    assert set(world.push().values()) == {"probe"}
    with torch.no_grad():
        next(iter(world.trainer._parts.inventory.base["buffers"].values())).mul_(1.01)
    world.trainer.begin_step(["a"])
    world.trainer.abort_step()
    world.engine.restart()

    assert "no tokens were recorded of it" in world.push()["adapter/a"]
    assert world.trainer.serving([world.engine])["E0"].verified["adapter/b"].endswith("recorded on another base")


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompts": ()},
        {"prompts": ((),)},
        {"prompts": "text"},
        {"max_new_tokens": 0},
        {"max_new_tokens": True},
        {"min_agreement": 0},
        {"min_agreement": 1.5},
        {"generate": "greedy"},
    ],
)
def test_a_probe_that_cannot_be_asked_is_refused_when_it_is_made(wrong: dict[str, Any]) -> None:
    """Not at the first push."""
    with pytest.raises(ConfigError):
        GreedyProbe(**({"prompts": ((1, 2),)} | wrong))


@pytest.mark.parametrize(
    ("answer", "agreement", "differs"),
    [
        (((1, 2, 3), (4, 5, 6)), 1.0, None),
        (((1, 2, 3), (4, 9, 6)), 1.0, (1, 1)),
        (((1, 2, 3), (4, 9, 6)), 0.6, None),
        (((9, 2, 3), (4, 9, 6)), 0.6, (0, 0)),
        (((1, 2, 3), (4, 5)), 1.0, (1, 2)),
        (((1, 2, 3), (4, 5, 6, 7)), 1.0, None),
    ],
)
def test_answers_agree_as_far_as_their_leading_tokens_do(
    answer: tuple[tuple[int, ...], ...], agreement: float, differs: tuple[int, int] | None
) -> None:
    """After the first token that differs nothing can be compared: the rest follows from it."""
    probe = GreedyProbe(((1,), (2,)), 3, min_agreement=agreement)

    assert probe.difference(((1, 2, 3), (4, 5, 6)), answer) == differs


def test_a_probe_is_a_greedy_probe() -> None:
    """A misspelt one is refused when the controller is built."""
    made = host(slots=1)
    with pytest.raises(ConfigError, match="give a GreedyProbe"):
        TrainerLifecycle(
            LifecycleConfig(), saver=HostArena(), model=made.model, optimizer=None, adapters=made,
            probe=[1, 2], initial_state=TrainerState.AWAKE,  # type: ignore[arg-type]
        )  # fmt: skip
