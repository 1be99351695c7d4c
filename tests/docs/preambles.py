"""What a reader has at hand where a page shows code, page by page, and what must have come of it afterwards.

Each preamble is a generator: before each block of its page it yields the names that the block runs with. A block that
has none ends the test, and so does one that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.optim import AdamW

from lifecycle import AuditLog, LifecycleConfig, TorchMemorySaver, TrainerLifecycle, TrainerState
from lifecycle.adapters import AdapterRegistry, AdapterSettings, MegatronAdapters, PeftAdapters
from lifecycle.auditing import audit_logs
from tests.adapters.world import peft_directory
from tests.docs.blocks import code_of
from tests.docs.frameworks import grpo_names
from tests.docs.parts import Names, Place, filled, peft_trainer, stand_in, wide
from tests.docs.servers import sglang_at, vllm_over
from tests.lifecycle.world import FakeEngine, make_world
from tests.megatron.world import gpt, parallel
from tests.models import llama


def checkpoints(place: Place) -> Iterator[Names]:
    """Saved; retired and resumed; a step that is counted and saved; an adapter as its file says."""
    names = peft_trainer(place, "math")
    trainer, registry = names["trainer"], names["adapters"].registry
    yield names
    registry.deregister("math")
    trainer.reconcile_adapters()
    yield names
    assert registry.find("math").resumed_from is not None
    registry.deregister("math")
    trainer.reconcile_adapters()
    registry.register("math", settings=AdapterSettings(save="counted/math"))
    trainer.reconcile_adapters()
    trainer.update_weights([FakeEngine()])
    registry.record_batch_adapters(3, {"math": 1}, ["math"])
    yield names | {"rollout_id": 3}
    assert Path("counted/math/step_1").is_dir()
    registry.deregister("math")
    trainer.reconcile_adapters()
    Path("adapter.yaml").write_text(code_of("checkpoints.md", "yaml")[0], encoding="utf-8")
    yield names
    assert registry.find("math").settings.num_step == 200


def engines(place: Place) -> Iterator[Names]:
    """A vLLM server over the same model, an SGLang server on its checkpoint, and an engine of the reader's own."""
    names = peft_trainer(place, "my-adapter", model=wide())
    place.patches.setattr("lifecycle.engines.vllm.VllmEngine", vllm_over(wide()))
    names |= {"token": None}
    yield names
    assert [*map(len, names["answer"].logprobs)] == [*map(len, names["answer"].tokens)] == [32, 32]
    world = make_world(adapters=("A",))
    place.patches.setattr("lifecycle.engines.sglang.SglangEngine", partial(sglang_at, place.closing))
    names = {"trainer": world.trainer}
    yield names
    assert names["answer"]
    yield names
    assert names["trainer"].serving([names["mine"]])["mine"].serves == "current"
    assert names["mine"].report().versions == names["trainer"].versions
    assert not names["trainer"].update_weights([names["mine"]]).engines


def megatron(place: Place) -> Iterator[Names]:
    """A GPTModel of one rank; ``...`` is what every trainer is given."""
    place.closing.enter_context(parallel(dist.HashStore()))
    model = gpt()
    rest = {"saver": place.arena(), "initial_state": TrainerState.AWAKE}
    registry = AdapterRegistry(slots=4)
    registry.register("math")
    place.patches.setattr(MegatronAdapters, "__init__", partialmethod(MegatronAdapters.__init__, registry=registry))
    names = {
        "model": model,
        "make": lambda slot: AdamW(slot, lr=1e-2),
        "TrainerLifecycle": filled(attached, config=LifecycleConfig(), **rest),
    }
    yield names
    assert names["trainer"].state is TrainerState.AWAKE


def attached(config: LifecycleConfig, **parts: Any) -> TrainerLifecycle:
    """A trainer whose slots are what its registry says."""
    trainer = TrainerLifecycle(config, **parts)
    trainer.reconcile_adapters()
    return trainer


def registry(place: Place) -> Iterator[Names]:
    """Two adapters in PEFT directories, the first of which has been served."""
    names = peft_trainer(place)
    kept = names["adapters"].registry
    for name, seed in (("math", 1), ("judge", 2)):
        peft_directory(Path("adapters") / name, seed, rank=4, target_modules=["q_proj", "v_proj"])
    place.patches.setattr("lifecycle.adapters.AdapterRegistry", lambda slots: kept)
    yield names
    names["trainer"].reconcile_adapters()
    names["trainer"].update_weights([FakeEngine()])
    Path("run").mkdir()
    yield names
    assert names["trained"].stepped
    assert Path("run/registry.json").is_file()


def slots(place: Place) -> Iterator[Names]:
    """Slots of bfloat16, whose main copies the optimizers step."""
    adapters = PeftAdapters(llama().bfloat16(), slots=4, rank=4, dtype=torch.bfloat16)
    rest = {
        "config": LifecycleConfig(),
        "saver": place.arena(),
        "model": adapters.model,
        "adapters": adapters,
        "initial_state": TrainerState.AWAKE,
    }
    yield {
        "adapters": adapters,
        "warm_up": lambda step: min(1.0, (step + 1) / 10),
        "TrainerLifecycle": filled(TrainerLifecycle, **rest),
    }


def weight_sync(place: Place) -> Iterator[Names]:
    """An engine that is up to date, and one that was never pushed to; a trainer that is built with a probe."""
    names = peft_trainer(place, "math")
    served, strange = FakeEngine("E0"), FakeEngine("E1")
    names["trainer"].update_weights([served])
    names |= {"engines": [served, strange]}
    yield names
    assert names["routable"] == ["E0"]
    names |= {"TrainerLifecycle": filled(partial(peft_trainer, place, "math"))}
    yield names
    assert names["trainer"]["trainer"].state is TrainerState.AWAKE


def start(place: Place) -> Iterator[Names]:
    """A model, and torch; then a file that needs nothing, and learns."""
    place.patches.setattr("lifecycle.HostArena", place.arena)
    names: Names = {"model": llama(), "torch": torch}
    yield names
    assert names["trainer"].state is TrainerState.AWAKE
    assert names["trainer"].tally.refused
    torch.manual_seed(0)
    names = {}
    yield names
    assert names["rewards"].mean() > 0.4  # a quarter is chance
    assert list(audit_logs(["run/loop.jsonl"])) == []


def concepts(place: Place) -> Iterator[Names]:
    """One trainer with a log through all blocks, offloaded in some; and an engine that knows nothing yet."""
    names = peft_trainer(place, "math", audit=AuditLog("run/audit.jsonl")) | {"engine": FakeEngine()}
    states = []
    for _ in range(9):
        yield names
        states.append(names["trainer"].state)
    assert states == [TrainerState.AWAKE, *[TrainerState.OFFLOADED_CPU] * 3, *[TrainerState.AWAKE] * 5]
    assert names["engine"].calls.count("base:frozen-base") == 1
    assert names["engine"].calls.count("adapter:code") == 2


def embedding(place: Place) -> Iterator[Names]:
    """A model; then a trainer, an engine, and the two functions that are the reader's; then a run of TRL."""
    place.patches.setattr("lifecycle.TorchMemorySaver", partial(stand_in, place, TorchMemorySaver))
    built: Names = {"model": wide(), "device": "cpu"}
    yield built
    assert built["trainer"].state is TrainerState.AWAKE
    names = peft_trainer(place, "math")
    engine, seen = FakeEngine(), []

    def generate(one: FakeEngine, name: str) -> torch.Tensor:
        seen.append((names["trainer"].state, one.versions[f"adapter/{name}"]))
        return torch.arange(32).reshape(4, 8)

    def loss(rollouts: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = names["adapters"].model(input_ids=rollouts, labels=rollouts).loss
        return found

    names |= {"engine": engine, "generate": generate, "loss": loss, "turns": 2}
    for _ in range(4):
        yield names
        assert names["trainer"].state is TrainerState.AWAKE
    assert [state for state, _ in seen] == [TrainerState.OFFLOADED_CPU] * 5
    versions = [version for _, version in seen]
    assert versions == sorted(versions)
    assert len(set(versions)) == 4, "each rollout but one is of what was trained before"
    place.patches.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    yield from grpo_names(peft_trainer(place, "math", model=wide()), wide())
    names = peft_trainer(place, "math", config=LifecycleConfig(ref="snapshot"))
    yield names | {"engine": FakeEngine(), "tokens": torch.arange(8)[None]}
    assert names["trainer"].active_model == "actor"
    assert names["trainer"].ledger.held.snapshots.keys() == {"ref"}


def handover(place: Place) -> Iterator[Names]:
    """A trainer and an engine; the hand-over goes as it was planned."""
    names = peft_trainer(place, "math") | {"engine": FakeEngine()}
    yield names
    taken = [event for (event, _), _ in names["trainer"].tally.moved.items()]
    assert [event for event in taken if event in names["plan"].order] == taken[-4:]


def operating(place: Place) -> Iterator[Names]:
    """A trainer that is awake, so that it cannot be offloaded."""
    names = {"trainer": make_world().trainer}
    yield names
    assert names["trainer"].state is TrainerState.AWAKE


PREAMBLES: Final[dict[str, Callable[[Place], Iterator[Names]]]] = {
    "checkpoints.md": checkpoints,
    "concepts.md": concepts,
    "embedding.md": embedding,
    "engines.md": engines,
    "handover.md": handover,
    "megatron.md": megatron,
    "operating.md": operating,
    "registry.md": registry,
    "slots.md": slots,
    "start.md": start,
    "weight-sync.md": weight_sync,
}
"""Of each page whose blocks are run one after the other."""

ELSEWHERE: Final = {
    "README.md": "tests/test_readme.py",
    "asyncio.md": "tests/aio/test_page.py",
    "audit-log.md": "tests/audit/test_replay.py",
    "cohort.md": "tests/cohort/test_page.py",
    "from-miles.md": "tests/compat/test_page.py",
    "metrics.md": "tests/metrics/test_metrics.py",
    "ranks.md": "tests/docs/test_ranks_page.py",
    "ray.md": "tests/ray/test_docs.py",
    "report.md": "tests/report/test_page_of_docs.py",
    "transport.md": "tests/transport/test_page.py",
    "watch.md": "tests/watch/test_page_of_docs.py",
}
"""Of each page whose blocks are run by a test of its own, which looks closer: that test."""
