"""The real controller with SGLang servers as the other tenants, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lifecycle import EventRefused, Moved, TrainerState, TransitionFailed, Unchanged
from lifecycle.engines import BASE_ONLY
from lifecycle.engines.sglang import SglangEngine
from lifecycle.errors import EngineError
from states import FROZEN_BASE
from tests.engines.sglang_host import Fault, SglangHost, sglang
from tests.engines.sglang_rules import Start, adapter_digest, continuation, digest_of, read_tensors
from tests.engines.sglang_world import CLIENT, PROMPT
from tests.lifecycle.world import TinyModel, World, make_world

RESUME, OPEN = "/resume_memory_occupation", "/continue_generation"
LOAD, UNLOAD, WEIGHTS = "/load_lora_adapter", "/unload_lora_adapter", "/update_weights_from_tensor"


class Both:
    """A trainer with adapters A and B, and servers that start from another base than its own."""

    def __init__(self, *hosts: SglangHost, **how: object) -> None:
        self.world: World = make_world()
        self.trainer = self.world.trainer
        self.hosts = hosts
        settings = {"timeout_s": 20.0, "slow_s": 20.0, "drain_s": 0.1, "client": CLIENT} | how
        self.engines = [SglangEngine(f"E{i}", host.url, **settings) for i, host in enumerate(hosts)]

    def push(self) -> object:
        return self.trainer.update_weights(self.engines)

    def right(self, name: str, index: int = 0) -> tuple[int, ...]:
        """What the newest weights of the trainer answer."""
        with self.trainer.weights("test") as lease:
            read = {one: lease[one].detach().clone() for one in lease}
        names = self.hosts[index].process.base
        digest = ""
        if name != BASE_ONLY:
            rank, alpha, _, tensors = self.world.host.export(name, read.__getitem__)
            digest = adapter_digest(tensors, rank, alpha)
        return tuple(continuation(digest_of({one: read[one] for one in names}), digest, PROMPT, 4))

    def answer(self, name: str, index: int = 0) -> tuple[int, ...]:
        return self.engines[index].greedy(name, [PROMPT], 4)[0]

    def is_current(self, index: int = 0) -> bool:
        """Whether a server answers under every name as the trainer's newest weights do."""
        names = ("A", "B", BASE_ONLY)
        return all(self.answer(name, index) == self.right(name, index) for name in names)


def other_base() -> Start:
    """A checkpoint of the trainer's model with other values."""
    model = TinyModel(0)
    return Start(checkpoint={name: one.detach() * 2 for name, one in model.named_parameters()})


def names_sent(host: SglangHost) -> set[str]:
    """Names of the base tensors that a server was sent."""
    return {name for body in host.bodies(WEIGHTS) for name, _ in read_tensors(body["serialized_named_tensors"][0])}


@pytest.fixture
def both() -> Iterator[Both]:
    """One trainer, one server with a host mirror."""
    with sglang(other_base()) as host:
        yield Both(host)


@pytest.fixture
def pair() -> Iterator[Both]:
    """One trainer, two servers."""
    with ExitStack() as stack:
        yield Both(*(stack.enter_context(sglang(other_base())) for _ in range(2)))


def test_a_new_server_gets_the_base_before_the_adapters(both: Both) -> None:
    """FB-28.1: then it serves, and answers as the trainer's weights do."""
    outcome = both.push()
    asked = both.hosts[0].asked()

    assert isinstance(outcome, Moved)
    assert asked.index(WEIGHTS) < asked.index(LOAD) < asked.index(OPEN)
    assert both.is_current()


def test_two_pushes_with_nothing_trained_in_between_send_once(both: Both) -> None:
    """FB-56.3."""
    both.push()
    before = len(both.hosts[0].asked())

    assert isinstance(both.push(), Unchanged)
    assert both.hosts[0].asked()[before:] == []


def test_only_the_adapter_that_changed_is_sent(both: Both) -> None:
    """FB-28.2: also after a release that kept the weights; a step may change a buffer, never the frozen base."""
    both.push()
    both.engines[0].release(["weights", "kv_cache"])
    both.world.train("A")
    both.engines[0].resume(["weights", "kv_cache"])
    both.hosts[0].heard.clear()
    both.push()

    assert [body["lora_name"] for body in both.hosts[0].bodies(LOAD)] == ["A"]
    assert names_sent(both.hosts[0]) == {"bias"}
    assert both.is_current()


def test_a_release_that_threw_the_weights_away_brings_the_base_back_first() -> None:
    """FB-28.3, FB-12: and nothing is served before."""
    with sglang(Start(**{**vars(other_base()), "enable_weights_cpu_backup": False})) as host:
        both = Both(host)
        both.push()
        both.engines[0].release(["weights", "kv_cache"])
        both.engines[0].resume(["weights", "kv_cache"])
        with pytest.raises(EngineError):
            both.answer("A")
        host.heard.clear()
        both.push()
        asked = host.asked()

        assert asked.index(WEIGHTS) < asked.index(LOAD) < asked.index("/continue_generation")
        assert both.is_current()


def test_a_push_into_a_sleeping_server_is_refused_and_then_comes_in_order(both: Both) -> None:
    """FB-04: zero writes; then weights, push, kv cache, and nothing else."""
    both.push()
    both.engines[0].release(["weights", "kv_cache"])
    both.world.train("A")
    both.hosts[0].heard.clear()
    with pytest.raises(EventRefused, match="E0"):
        both.push()
    refused = both.hosts[0].asked()
    both.engines[0].resume(["weights"])
    both.push()
    both.engines[0].resume(["kv_cache"])

    assert refused == []
    assert both.hosts[0].asked(RESUME, UNLOAD, LOAD, OPEN) == [RESUME, UNLOAD, LOAD, RESUME, OPEN]
    assert both.is_current()


def test_turns_of_training_and_serving_answer_as_the_trainer_would(both: Both) -> None:
    """FB-13, FB-08: three whole hand-overs; nothing that would end the server is ever sent."""
    both.push()
    right = []
    for names in (("A",), ("B",), ("A", "B")):
        both.world.train(*names)
        with both.trainer.handoff(both.engines):
            right.append(both.is_current())

    assert right == [True, True, True]
    assert both.trainer.state is TrainerState.AWAKE
    assert both.hosts[0].process.dead == ""


def test_an_adapter_that_was_retired_is_unloaded(both: Both) -> None:
    """Who asks for it is refused here and there."""
    both.push()
    both.world.host.deregister("B")
    both.trainer.reconcile_adapters()
    both.push()
    with pytest.raises(EngineError):
        both.answer("B")

    assert list(both.hosts[0].process.registry) == ["A"]


def test_a_server_that_was_started_anew_is_repaired_by_the_next_pass(pair: Both) -> None:
    """FB-51: it is known and not current; the other one gets nothing."""
    pair.push()
    pair.hosts[1].restart()
    version = pair.engines[1].report().versions
    pair.hosts[0].heard.clear()
    pair.push()

    assert version == {}
    assert pair.hosts[0].asked() == []
    assert (pair.is_current(0), pair.is_current(1)) == (True, True)


@pytest.mark.parametrize("path", [WEIGHTS, LOAD, "/end_weight_update", "/flush_cache", "/update_weight_version"])
def test_a_fleet_of_which_one_failed_is_repaired_where_it_failed(pair: Both, path: str) -> None:
    """FB-54: each server serves one version or nothing; the next pass goes to the one that failed."""
    pair.hosts[1].faults[path] = [Fault(400)] * 4
    with pytest.raises(TransitionFailed):
        pair.push()
    pair.hosts[1].faults.clear()
    with pytest.raises(EngineError):
        pair.answer("A", 1)
    first = pair.is_current(0)
    pair.hosts[0].heard.clear()
    pair.push()

    assert first
    assert pair.hosts[0].asked() == []
    assert (pair.is_current(0), pair.is_current(1)) == (True, True)


@pytest.mark.parametrize("path", [WEIGHTS, LOAD, UNLOAD, "/update_weight_version"])
@pytest.mark.parametrize("fault", [Fault(500), Fault("drop", done=True)])
def test_a_server_that_fails_in_the_middle_leaves_trainer_and_versions_consistent(
    both: Both, path: str, fault: Fault
) -> None:
    """It holds no version of what was touched, the trainer is as before, and the next pass repairs it."""
    both.push()
    both.world.train("A")
    if path == WEIGHTS:
        both.hosts[0].restart()
    both.hosts[0].faults[path] = [fault] * 4
    state, weights = both.trainer.state, both.world.weights()
    with pytest.raises(TransitionFailed):
        both.push()
    both.hosts[0].faults.clear()
    held = both.engines[0].report().versions

    assert (both.trainer.state, both.world.weights()) == (state, weights)
    assert "adapter/A" not in held
    assert (FROZEN_BASE in held) is (path != WEIGHTS)
    both.push()
    assert both.is_current()


def test_a_server_that_ends_in_the_middle_is_repaired_when_it_is_back(both: Both) -> None:
    """FB-51.3: the push was to another process."""
    both.push()
    both.world.train("A")
    both.hosts[0].kill()
    with pytest.raises((TransitionFailed, EventRefused)):
        both.push()
    both.hosts[0].restart()
    both.push()

    assert both.is_current()


def test_a_server_that_took_its_old_weights_again_is_pushed_to(both: Both) -> None:
    """FB-56.1: a wake that reloads a checkpoint; the server's own name of its weights gives it away."""
    both.push()
    process = both.hosts[0].process
    process.base = {name: one.clone() for name, one in other_base().checkpoint.items()}
    process.weight_version = "default"
    both.push()

    assert both.is_current()
