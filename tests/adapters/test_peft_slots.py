"""Slots on a PEFT model: laid out once, zero when empty, the base frozen and under its own names."""

from __future__ import annotations

import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import peft
import pytest
import torch
from torch import nn

from lifecycle.adapters import AdapterHost, AdapterRegistry, DesiredAdapter, LoadedAdapter, PeftAdapters
from lifecycle.errors import AdapterError, ConfigError
from states import AdapterState
from tests.adapters.world import IDS, SLOT_RANK, TARGETS, factors, host, llama, load, logits, quiet, unload


def test_the_host_is_what_the_controller_asks_for() -> None:
    """It implements the protocol."""
    assert isinstance(host(), AdapterHost)
    assert host(slots=2).slots == 2


def test_slot_tensors_are_the_models_own_parameters_under_their_names() -> None:
    """Names of the PeftModel, all targets, the largest rank, zero, and trainable."""
    made = host()
    parameters = dict(made.model.named_parameters())

    for slot in range(3):
        tensors = made.slot_tensors(slot)
        assert len(tensors) == 2 * 2 * len(TARGETS)
        for name, one in tensors.items():
            assert one is parameters[name]
            assert f".slot_{slot}." in name
            assert SLOT_RANK in one.shape
            assert one.requires_grad
            assert not one.any()


def test_the_base_keeps_its_names_its_objects_and_is_frozen() -> None:
    """As in the model before it was wrapped, tied weights once, in the same order."""
    model = llama(tied=True)
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    found, found_buffers = PeftAdapters(model, slots=2, rank=4, target_modules=TARGETS).base_tensors()

    assert list(found) == list(parameters)
    assert all(found[name] is one for name, one in parameters.items())
    assert list(found_buffers) == list(buffers)
    assert all(found_buffers[name] is one for name, one in buffers.items())
    assert "lm_head.weight" not in found
    assert not any(one.requires_grad for one in found.values())


def test_any_module_with_linear_layers_can_have_slots() -> None:
    """No transformers model is needed; biases of the base keep their names too."""
    model = nn.ModuleDict({"q_proj": nn.Linear(4, 6), "rest": nn.Linear(6, 2)})
    names = [name for name, _ in model.named_parameters()]
    made = PeftAdapters(model, slots=1, rank=2, target_modules=["q_proj"])

    assert list(made.base_tensors()[0]) == names
    assert [tuple(one.shape) for one in made.slot_tensors(0).values()] == [(2, 4), (6, 2)]


def test_building_slots_does_not_disturb_the_random_numbers_of_the_user() -> None:
    """The same numbers follow, with slots or without."""
    model = llama()
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    PeftAdapters(model, slots=2, rank=4, target_modules=TARGETS)

    assert torch.equal(torch.rand(3), wanted)


def test_threads_that_build_slots_at_once_keep_each_others_warnings_and_random_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are one for the whole process: two that put them back out of turn leave what neither had."""
    inside, most, wrap = [0], [0], peft.get_peft_model

    def wrapping(*arguments: Any, **keywords: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        made = wrap(*arguments, **keywords)
        inside[0] -= 1
        return made

    monkeypatch.setattr(peft, "get_peft_model", wrapping)
    models = [llama() for _ in range(3)]
    torch.manual_seed(3)
    expected, filters = torch.rand(3), list(warnings.filters)
    torch.manual_seed(3)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda model: PeftAdapters(model, slots=2, rank=4), models))

    assert most == [1]
    assert torch.equal(torch.rand(3), expected)
    assert list(warnings.filters) == filters


def test_empty_slots_and_no_slot_compute_the_base_exactly() -> None:
    """Outside use() no adapter is applied, and an empty model is the unwrapped one, bit for bit."""
    wanted = logits(llama())
    made = host()
    alone = logits(made.model)
    with made.base_only():
        inside = logits(made.model)

    assert torch.equal(alone, wanted)
    assert torch.equal(inside, wanted)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"rank": True}, "rank is True"),
        ({"slots": 0}, "slots is 0"),
        ({"target_modules": ()}, "target_modules is"),
        ({"target_modules": "q_proj"}, "target_modules is"),
        ({"target_modules": ("q_proj", "qkv")}, "no module named qkv; its linear modules are named down_proj, gate"),
        ({"target_modules": ("embed_tokens",)}, "model.embed_tokens is Embedding"),
        ({"registry": AdapterRegistry(slots=2)}, "the registry has 2 slots, the host is to have 3"),
    ],
)
def test_slots_that_cannot_be_built_are_refused(changes: dict[str, Any], why: str) -> None:
    """Before the model is touched."""
    with pytest.raises(ConfigError, match=why):
        host(**changes)


def test_a_model_that_is_wrapped_already_is_refused() -> None:
    """By this library or by PEFT."""
    with quiet():
        wrapped = peft.get_peft_model(llama(), peft.LoraConfig(r=2, target_modules=["k_proj"]))

    for model in (wrapped, wrapped.get_base_model()):
        with pytest.raises(ConfigError, match="wrapped by PEFT already"):
            PeftAdapters(model, slots=1, rank=2, target_modules=("o_proj",))


def test_without_peft_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "peft", None)

    with pytest.raises(ConfigError, match=r"install adapter-lifecycle\[peft\]"):
        host()


def test_slots_of_another_dtype_are_made_when_asked_for() -> None:
    """Loaded values are cast once, and a value that does not fit is an error."""
    made = host(dtype=torch.float16)
    tensors = factors(1, 2)
    made.registry.register("fits", tensors=tensors, rank=2)
    name = next(iter(tensors))
    made.registry.register("large", tensors=tensors | {name: tensors[name] + 1e6}, rank=2)
    prepared = made.prepare(made.desired()["fits"])

    assert {one.dtype for one in made.slot_tensors(0).values()} == {torch.float16}
    assert {one.dtype for one in prepared.tensors.values()} == {torch.float16}
    with pytest.raises(AdapterError, match=r"too large for the slot's torch\.float16"):
        made.prepare(made.desired()["large"])


def test_preparing_touches_nothing() -> None:
    """No slot, no record; the result is on the CPU, in the shape of the slot, for every tensor of it."""
    made = host()
    made.registry.register("a", rank=3)
    before = made.registry.snapshot()
    prepared = made.prepare(made.desired()["a"])

    assert prepared.tensors.keys() == made.slot_tensors(0).keys()
    assert all(one.shape == made.slot_tensors(0)[name].shape for name, one in prepared.tensors.items())
    assert made.loaded() == {}
    assert made.registry.snapshot() == before
    assert not any(bool(one.any()) for one in made.slot_tensors(0).values())


def test_installing_and_uninstalling_write_no_bytes() -> None:
    """Bytes are the controller's affair: they may be in a host backup at that moment."""
    made = host()
    made.registry.register("a", tensors=factors(1, 4), rank=4)
    made.install(made.prepare(made.desired()["a"]))
    after_install = [bool(one.any()) for one in made.slot_tensors(0).values()]
    load(made, "a")
    kept = {name: one.detach().clone() for name, one in made.slot_tensors(0).items()}
    with made.use("a", successor=None):
        made.uninstall("a")
        emptied = logits(made.model)

    assert not any(after_install)
    assert torch.equal(emptied, logits(llama()))
    assert all(torch.equal(kept[name], one) for name, one in made.slot_tensors(0).items())


def test_a_fresh_adapter_follows_from_its_seed_alone() -> None:
    """Equal seeds, equal tensors in any slot; A is random, B is zero, so that it can learn and does nothing yet."""
    made = host()
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        made.registry.register(name, rank=4, seed=seed)
    prepared = {name: made.prepare(one) for name, one in made.desired().items()}
    a, b, c = (list(prepared[name].tensors.values()) for name in ("a", "b", "c"))

    assert all(torch.equal(one, other) for one, other in zip(a, b, strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(a, c, strict=True))
    for name, one in prepared["a"].tensors.items():
        assert bool(one.any()) == ("lora_A" in name)
        if "lora_A" in name:
            assert one[:4].abs().max() <= 1 / one.shape[1] ** 0.5
            assert not one[4:].any()


def test_a_fresh_adapter_does_not_depend_on_the_order_of_modules() -> None:
    """Two builds of one model that list their modules differently start alike."""
    found = []
    for names in (("up", "down"), ("down", "up")):
        model = nn.ModuleDict({name: nn.Linear(4, 4) for name in names})
        made = PeftAdapters(model, slots=1, rank=2, target_modules=["up", "down"])
        made.registry.register("a", seed=3)
        found.append(made.prepare(made.desired()["a"]).tensors)

    assert all(torch.equal(one, found[1][name]) for name, one in found[0].items())


def test_a_fresh_adapter_may_have_fewer_modules() -> None:
    """The others stay zero; a target without slots is refused."""
    made = host()
    made.registry.register("a", target_modules=["q_proj"])
    prepared = made.prepare(made.desired()["a"])

    assert prepared.target_modules == ("q_proj",)
    assert (prepared.rank, prepared.alpha) == (SLOT_RANK, SLOT_RANK)
    assert not any(bool(one.any()) for name, one in prepared.tensors.items() if "down_proj" in name)
    with pytest.raises(AdapterError, match="k_proj has no slots"):
        made.registry.register("b", target_modules=["k_proj"])
    with pytest.raises(AdapterError, match="its rank is 9"):
        made.registry.register("b", rank=9)


def test_a_registration_that_has_ended_is_not_prepared() -> None:
    """Nor is an older registration of the same name (FB-35)."""
    made = host()
    first = made.registry.register("a")
    made.registry.deregister("a")
    made.registry.retire_adapters()
    with pytest.raises(AdapterError, match="this registration has ended"):
        made.prepare(first)
    made.registry.register("a")

    with pytest.raises(AdapterError, match="this registration has ended"):
        made.prepare(first)


def test_a_retired_adapter_frees_its_slot_when_it_is_uninstalled() -> None:
    """Whether it was demoted before or not."""
    made = host()
    for name in ("a", "b"):
        made.registry.register(name)
        load(made, name)
        made.registry.deregister(name)
    unload(made, "a")
    demoted = made.registry.retire_adapters()
    unload(made, "b")

    assert demoted == ("b",)
    assert made.registry.adapter_state("a") is AdapterState.COMPLETED
    assert made.registry.adapter_state("b") is AdapterState.COMPLETED
    assert made.registry.register("c").slot == 0


def test_reinstating_puts_everything_back() -> None:
    """A reconcile that fails half-way: records, scales and registry are as before it (FB-39)."""
    made = host()
    made.registry.register("a", tensors=factors(1, 4), rank=4, alpha=8)
    load(made, "a")
    with made.use("a"):
        wanted = logits(made.model)
    made.registry.deregister("a")
    made.registry.register("b", rank=2, alpha=64)
    loaded, states = made.loaded(), [made.registry.adapter_state(name) for name in "ab"]

    made.uninstall("a")
    made.install(made.prepare(made.desired()["b"]))
    made.reinstate(loaded)
    with made.use("a"):
        found = logits(made.model)

    assert made.loaded() == loaded
    assert [made.registry.adapter_state(name) for name in "ab"] == states
    assert torch.equal(found, wanted)


def test_loaded_tells_what_a_slot_holds() -> None:
    """Name, registration, slot, rank, alpha and targets."""
    made = host()
    made.registry.register("a", rank=2, alpha=8)
    load(made, "a")

    assert made.loaded() == {"a": LoadedAdapter("a", 1, 0, 2, 8.0, ("down_proj", "q_proj"))}
    assert made.slot_of("a") == 0
    assert [id(one) for one in made.parameters_of("a")] == [id(one) for one in made.slot_tensors(0).values()]


@pytest.mark.parametrize("call", ["slot_of", "parameters_of", "uninstall"])
def test_what_is_not_loaded_is_an_error_that_says_what_is(call: str) -> None:
    """Registered is not loaded."""
    made = host()
    made.registry.register("a")
    load(made, "a")
    made.registry.register("b")

    with pytest.raises(AdapterError, match=r"not loaded \(loaded: a\)"):
        getattr(made, call)("b")
    with pytest.raises(AdapterError, match="not loaded"), made.use("b"):
        pytest.fail("the body runs")
    with pytest.raises(AdapterError, match="not loaded"):
        made.export("b", lambda name: torch.zeros(1))


def test_a_push_of_an_older_registration_does_not_promote_the_newer_one() -> None:
    """The name is the same, the tensors that were sent are not (FB-35)."""
    made = host()
    made.registry.register("a")
    load(made, "a")
    made.pushed(("a", "nobody"))
    pushed = made.registry.adapter_state("a")
    made.registry.deregister("a")
    made.registry.retire_adapters()
    made.registry.free_slot("a")
    made.registry.register("a")
    made.pushed(("a",))

    assert pushed is AdapterState.ACTIVE
    assert made.registry.adapter_state("a") is AdapterState.PENDING
    assert made.desired()["a"] == DesiredAdapter("a", 2, 0)


def test_use_applies_one_adapter_and_nests() -> None:
    """The inner one counts; what was before comes back, also after an error."""
    made = host()
    for name, seed in (("a", 1), ("b", 2)):
        made.registry.register(name, tensors=factors(seed, 4), rank=4)
        load(made, name)
    base = logits(made.model)
    with made.use("a"):
        a = logits(made.model)
        with made.use("b"):
            b = logits(made.model)
            with made.base_only():
                none = logits(made.model)
        with pytest.raises(RuntimeError, match="body"), made.use("b"):
            raise RuntimeError("body")
        again = logits(made.model)

    assert not torch.equal(a, b)
    assert not torch.equal(a, base)
    assert torch.equal(again, a)
    assert torch.equal(none, base)
    assert torch.equal(logits(made.model), base)


def test_choosing_an_adapter_changes_nobodys_trainability() -> None:
    """PEFT freezes what is not active; here every slot stays trainable and the base frozen, always (FB-38)."""
    made = host()
    made.registry.register("a")
    load(made, "a")
    flags = {name: one.requires_grad for name, one in made.model.named_parameters()}
    with made.use("a"):
        inside = {name: one.requires_grad for name, one in made.model.named_parameters()}
    with made.base_only():
        pass
    unload(made, "a")

    assert inside == flags
    assert {name: one.requires_grad for name, one in made.model.named_parameters()} == flags
    assert {name for name, trains in flags.items() if trains} == {
        name for slot in range(3) for name in made.slot_tensors(slot)
    }


def test_an_export_is_cut_to_the_adapters_rank_and_aliases_what_was_read() -> None:
    """PEFT's own names, no copy, the targets of the adapter only."""
    made = host()
    made.registry.register("a", rank=3, alpha=5, target_modules=["q_proj"])
    load(made, "a")
    asked: list[str] = []

    def read(name: str) -> torch.Tensor:
        asked.append(name)
        return made.slot_tensors(0)[name].detach()

    rank, alpha, targets, tensors = made.export("a", read)

    assert (rank, alpha, targets) == (3, 5.0, ("q_proj",))
    assert sorted(tensors) == sorted(factors(0, 3, ("q_proj",)))
    assert all(one.shape == factors(0, 3)[name].shape for name, one in tensors.items())
    storages = {made.slot_tensors(0)[name].untyped_storage().data_ptr() for name in asked}
    assert {one.untyped_storage().data_ptr() for one in tensors.values()} == storages
    assert len(asked) == len(tensors)


def test_a_gradient_reaches_the_adapter_in_use_and_no_other() -> None:
    """Also when the backward pass runs after use() has ended."""
    made = host()
    for name, seed in (("a", 1), ("b", 2)):
        made.registry.register(name, tensors=factors(seed, 4), rank=4)
        load(made, name)
    with made.use("a"):
        loss = made.model(input_ids=IDS).logits.square().mean()
    loss.backward()

    assert all(one.grad is not None and one.grad.any() for one in made.parameters_of("a"))
    assert all(one.grad is None for one in made.parameters_of("b"))
