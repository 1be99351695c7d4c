"""The plan of a hand-over: pure, in bytes, decided before the first step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from states.handover import HandoverPlan, HandoverRefusal, HandoverStep, MemoryPeak, plan_handoff
from states.handover_needs import CUDA_GRAPH, EngineBytes, HandoverConfig, HandoverSizes, TrainerBytes

BASE = 1000
TRAINER = TrainerBytes(
    weights_bytes=BASE, scratch_bytes=100, awake_bytes=1100, backup_bytes=BASE, returned_bytes=BASE, base_bytes=BASE
)
ENGINE = EngineBytes(name="E0", weights_bytes=BASE, kv_cache_bytes=300, mirror_bytes=BASE, mirror_held_bytes=BASE)
SIZES = HandoverSizes(trainer=TRAINER, engines=(ENGINE,), host_held_bytes=BASE, device_held_bytes=1100)
FULL = HandoverConfig(lora=False)
LORA = HandoverConfig()
WEIGHTS = frozenset({"weights"})


def plan(sizes: HandoverSizes = SIZES, config: HandoverConfig = FULL, **asked: Any) -> HandoverPlan:
    """A plan that there is, of a full-parameter run unless asked otherwise."""
    found = plan_handoff(replace(config, **asked), sizes)
    assert isinstance(found, HandoverPlan), found
    return found


def refusal(sizes: HandoverSizes = SIZES, config: HandoverConfig = FULL, **asked: Any) -> HandoverRefusal:
    """A refusal that there is."""
    found = plan_handoff(replace(config, **asked), sizes)
    assert isinstance(found, HandoverRefusal), found
    return found


def engine(**changes: Any) -> HandoverSizes:
    """The same hand-over with another engine."""
    return replace(SIZES, engines=(replace(ENGINE, **changes),))


def names(steps: tuple[HandoverStep, ...]) -> list[str]:
    """The steps in words."""
    return [str(step) for step in steps]


def test_without_budgets_who_gives_memory_goes_first() -> None:
    """The peak is then on the host: backup and mirror exist together, there and back (FB-19)."""
    chosen = plan()

    assert names(chosen.there.steps) == [
        "sleep", "offload", "E0.resume(weights)", "update_weights", "E0.resume(kv_cache)",
    ]  # fmt: skip
    assert names(chosen.back.steps) == ["E0.release(kv_cache,weights)", "wake_up"]
    assert (chosen.there.host_peak_bytes, chosen.back.host_peak_bytes) == (2 * BASE, 2 * BASE)
    assert (chosen.there.device_peak_bytes, chosen.back.device_peak_bytes) == (BASE + 300, BASE + 300)


def test_a_host_that_is_too_small_moves_the_peak_to_the_device() -> None:
    """Scratch and cache are given back before the overlap (FB-19)."""
    chosen = plan(host_budget_bytes=1200, device_budget_bytes=3000)

    assert names(chosen.there.steps) == [
        "sleep", "E0.resume(weights)", "offload", "update_weights", "E0.resume(kv_cache)",
    ]  # fmt: skip
    assert names(chosen.back.steps) == ["E0.release(kv_cache)", "wake_up", "E0.release(weights)"]
    assert (chosen.host_peak_bytes, chosen.there.device_peak_bytes) == (BASE, 2 * BASE)
    assert chosen.back.device_peak_bytes == 2 * BASE + 100


def test_each_step_says_what_is_held_while_it_runs_and_after_it() -> None:
    """A step takes before it gives: host and device, in bytes."""
    chosen = plan(memory_peak=MemoryPeak.DEVICE)
    found = [(str(one), one.host_peak_bytes, one.device_peak_bytes, one.host_bytes, one.device_bytes)
             for one in chosen.steps]  # fmt: skip

    assert found == [
        ("sleep", 1000, 1100, 1000, 1000),
        ("E0.resume(weights)", 1000, 2000, 0, 2000),
        ("offload", 1000, 2000, 1000, 1000),
        ("update_weights", 1000, 1000, 1000, 1000),
        ("E0.resume(kv_cache)", 1000, 1300, 1000, 1300),
        ("E0.release(kv_cache)", 1000, 1300, 1000, 1000),
        ("wake_up", 1000, 2100, 0, 2100),
        ("E0.release(weights)", 1000, 2100, 1000, 1100),
    ]


def test_an_order_that_does_not_fit_is_refused_with_its_prediction() -> None:
    """The peak on the host against 1.2 times the base (FB-19, scenario 1)."""
    found = refusal(memory_peak=MemoryPeak.HOST, host_budget_bytes=1200)

    assert "(2000 bytes) on the host, the budget is" in found.because
    assert "(1200 bytes)" in found.because
    assert found.remedy.startswith('leave memory_peak="host" out')


def test_a_refusal_shows_both_predictions_and_both_budgets() -> None:
    """Whoever reads it can see what would have to be raised, and to what (FB-19, scenario 4)."""
    found = refusal(host_budget_bytes=1200, device_budget_bytes=1500)

    for number in ("2000 bytes", "1200 bytes", "1500 bytes"):
        assert number in found.because
    assert [leg.memory_peak for leg in found.tried["there"]] == list(MemoryPeak)
    assert found.remedy.startswith("raise a budget")


def test_each_way_takes_the_order_that_fits_it() -> None:
    """The trainer comes back with its scratch, so the way back needs more of the device than the way there."""
    chosen = plan(host_budget_bytes=2000, device_budget_bytes=1300)
    assert (chosen.there.memory_peak, chosen.back.memory_peak) == (MemoryPeak.HOST, MemoryPeak.HOST)

    no_mirror_now = replace(engine(resident=WEIGHTS, mirror_held_bytes=0), host_held_bytes=0, device_held_bytes=2100)
    chosen = plan(no_mirror_now, host_budget_bytes=1200, device_budget_bytes=3000)
    assert (chosen.there.memory_peak, chosen.back.memory_peak) == (MemoryPeak.HOST, MemoryPeak.DEVICE)


def test_a_way_back_that_does_not_fit_refuses_the_whole_turn() -> None:
    """A turn that could not come back is not begun."""
    found = refusal(host_budget_bytes=1200, device_budget_bytes=2050)

    assert "the way to the engines" not in found.because
    assert "with the peak on the device the way back needs" in found.because


def test_with_lora_weights_that_fit_beside_the_trainer_stay_on_the_device() -> None:
    """Only the cache is given back, and the next way there resumes nothing of the weights (FB-28: adapter mode)."""
    chosen = plan(config=LORA, device_budget_bytes=2100)
    assert names(chosen.back.steps) == ["E0.release(kv_cache)", "wake_up"]
    assert (chosen.back.keeps_weights, chosen.back.host_bytes, chosen.back.device_bytes) == (True, 0, 2100)

    again = replace(engine(resident=WEIGHTS, mirror_held_bytes=0), host_held_bytes=0, device_held_bytes=2100)
    chosen = plan(again, LORA, device_budget_bytes=2100)
    assert names(chosen.there.steps) == ["sleep", "offload", "update_weights", "E0.resume(kv_cache)"]
    assert chosen.host_peak_bytes == BASE


def test_with_lora_weights_that_do_not_fit_beside_the_trainer_are_released() -> None:
    """One byte too few."""
    chosen = plan(config=LORA, device_budget_bytes=2099)

    assert names(chosen.back.steps) == ["E0.release(kv_cache,weights)", "wake_up"]
    assert not chosen.back.keeps_weights


def test_a_full_parameter_run_releases_the_weights_whatever_fits() -> None:
    """They are sent anew each time: nothing is gained by keeping them."""
    assert not plan(config=FULL, device_budget_bytes=9000).back.keeps_weights


@pytest.mark.parametrize("config", [FULL, LORA])
@pytest.mark.parametrize("keeps", [True, False])
def test_whoever_says_whether_weights_are_kept_is_heard(config: HandoverConfig, *, keeps: bool) -> None:
    """In either mode, and whatever is known of the device."""
    assert plan(config=config, engine_keeps_weights=keeps).back.keeps_weights is keeps
    assert plan(config=config, engine_keeps_weights=keeps, device_budget_bytes=9000).back.keeps_weights is keeps


def test_weights_that_must_be_kept_and_do_not_fit_are_a_refusal() -> None:
    """With the number of bytes that it takes."""
    found = refusal(config=LORA, engine_keeps_weights=True, device_budget_bytes=2000)

    assert "the weights of engines kept, the way back needs" in found.because
    assert "(2100 bytes) on the device" in found.because


def test_where_nothing_is_known_of_the_device_nobody_counts_on_it() -> None:
    """Weights are released then, and kept only if the host has no room for their mirror in any other way."""
    assert not plan(config=LORA).back.keeps_weights

    small = engine(mirror_bytes=3 * BASE)
    assert plan(small, LORA, host_budget_bytes=2 * BASE).back.keeps_weights
    refusal(small, FULL, host_budget_bytes=2 * BASE)


def test_an_engine_that_does_not_say_what_its_weights_take_gives_them_back() -> None:
    """They might not fit."""
    assert not plan(engine(weights_bytes=0), LORA, device_budget_bytes=9000).back.keeps_weights


def test_tags_are_resumed_weights_first_and_released_the_other_way_round() -> None:
    """The cache and the graphs follow the weights that they belong to."""
    graphs = engine(tags=("weights", "kv_cache", CUDA_GRAPH), cuda_graph_bytes=50)
    chosen = plan(graphs)

    assert names(chosen.there.steps)[-3:] == [
        "E0.resume(weights)", "update_weights", "E0.resume(kv_cache,cuda_graph)",
    ]  # fmt: skip
    assert names(chosen.back.steps)[0] == "E0.release(cuda_graph,kv_cache,weights)"
    assert chosen.there.device_bytes == BASE + 350
    kept = plan(graphs, LORA, engine_keeps_weights=True)
    assert names(kept.back.steps)[0] == "E0.release(cuda_graph,kv_cache)"


def test_an_engine_is_asked_for_the_tags_that_it_has_and_no_others() -> None:
    """One without graphs is not asked for them, one on a device of its own for nothing (FB-08)."""
    assert not any(CUDA_GRAPH in step.tags for step in plan().steps)
    assert not any(step.engine for step in plan(engine(tags=(), behind_bytes=7)).steps)


def test_a_tag_that_is_resident_is_not_resumed() -> None:
    """It would end engines that hold a resume of a held tag to be fatal (FB-08, scenario 1)."""
    held = engine(resident=frozenset({"weights", "kv_cache"}))
    assert not any(step.does == "resume" for step in plan(held).there.steps)

    assert names(plan(engine(resident=WEIGHTS)).there.steps)[-1] == "E0.resume(kv_cache)"


def test_an_engine_that_releases_everything_at_once_does_so_when_the_trainer_has_come() -> None:
    """In the device's order its cache is still there meanwhile, and counts; it keeps no weights either."""
    whole = engine(releases_apart=False)
    chosen = plan(whole, memory_peak=MemoryPeak.DEVICE)

    assert names(chosen.back.steps) == ["wake_up", "E0.release(kv_cache,weights)"]
    assert chosen.back.device_peak_bytes == BASE + 300 + 1100
    assert not plan(whole, LORA, engine_keeps_weights=True).back.keeps_weights


def test_an_engine_that_discards_takes_no_host_memory_and_is_sent_the_base_again() -> None:
    """The base comes after the resume, and the plan says how much it is (FB-12, FB-28)."""
    discards = engine(discards=True, discarded=WEIGHTS, mirror_bytes=0, mirror_held_bytes=0, behind_bytes=20)
    chosen = plan(replace(discards, host_held_bytes=0))
    steps = names(chosen.there.steps)

    assert steps.index("E0.resume(weights)") < steps.index("update_weights")
    assert [one.sends_bytes for one in chosen.there.steps if one.does == "update_weights"] == [BASE]
    assert [one.discards for one in chosen.back.steps] == [True, False]
    assert chosen.host_peak_bytes == BASE


def test_what_each_engine_lacks_is_what_is_sent() -> None:
    """Summed over the engines, those on a device of their own among them."""
    far = EngineBytes(name="E1", tags=(), behind_bytes=30)
    sizes = replace(SIZES, engines=(replace(ENGINE, behind_bytes=12), far))

    assert [one.sends_bytes for one in plan(sizes).there.steps if one.does == "update_weights"] == [42]


def test_a_base_in_a_file_takes_no_host_memory() -> None:
    """Nothing is backed up and the engine's mirror alone is on the host."""
    trainer = replace(TRAINER, backup_bytes=0, returned_bytes=0)
    chosen = plan(replace(SIZES, trainer=trainer), host_budget_bytes=BASE)

    assert chosen.there.memory_peak is MemoryPeak.HOST
    assert chosen.host_peak_bytes == BASE


def test_without_a_target_the_weights_stay_on_the_device() -> None:
    """There is no offload, and the engine needs room beside the trainer."""
    trainer = replace(TRAINER, target=None, backup_bytes=0, returned_bytes=0)
    chosen = plan(replace(SIZES, trainer=trainer))

    assert "offload" not in [step.does for step in chosen.there.steps]
    assert chosen.device_peak_bytes == 2 * BASE + 300
    other = plan(replace(SIZES, trainer=trainer), memory_peak=MemoryPeak.DEVICE)
    assert max(step.device_peak_bytes for step in other.back.steps[1:]) == 2 * BASE + 100


def test_what_is_done_already_is_not_counted_twice() -> None:
    """An offloaded trainer and a resident engine take nothing more on the way there."""
    trainer = TrainerBytes(awake_bytes=1100, returned_bytes=BASE)
    held = replace(ENGINE, resident=frozenset({"weights", "kv_cache"}), mirror_held_bytes=0)
    chosen = plan(HandoverSizes(trainer=trainer, engines=(held,), host_held_bytes=BASE, device_held_bytes=BASE + 300))

    assert (chosen.there.host_peak_bytes, chosen.there.device_peak_bytes) == (BASE, BASE + 300)


def test_a_copy_that_replaces_another_is_there_beside_it_for_a_moment() -> None:
    """A step takes before it gives."""
    trainer = replace(TRAINER, kept_bytes=70, replaced_bytes=60)
    first = plan(replace(SIZES, trainer=trainer)).there.steps[0]

    assert (first.host_peak_bytes, first.host_bytes) == (BASE + 70, BASE + 10)


def test_a_budget_is_what_may_be_held_so_just_as_much_fits() -> None:
    """Equal is enough; one byte less is not."""
    assert plan(host_budget_bytes=2 * BASE, device_budget_bytes=1300).host_peak_bytes == 2 * BASE
    refusal(host_budget_bytes=2 * BASE - 1, device_budget_bytes=1300)


def test_engines_that_tell_no_sizes_are_named() -> None:
    """They count as nothing, and the plan says so. One with nothing to give is not among them."""
    others = (EngineBytes(name="E9"), EngineBytes(name="E8", tags=()))

    assert plan(replace(SIZES, engines=(*others, ENGINE))).unsized == ("E9",)


def test_sizes_are_counted_from_zero_and_tags_are_known_ones() -> None:
    """A negative number of bytes is a mistake of the caller, and so is another tag."""
    for build in (
        lambda: TrainerBytes(weights_bytes=-1),
        lambda: EngineBytes(name="E0", mirror_bytes=-1),
        lambda: HandoverSizes(host_held_bytes=-1),
        lambda: HandoverConfig(host_budget_bytes=-1),
    ):
        with pytest.raises(ValueError, match="counted from 0"):
            build()
    with pytest.raises(ValueError, match="E0: no tag lora; there are weights, kv_cache, cuda_graph"):
        EngineBytes(name="E0", tags=("weights", "lora"))


def test_neither_answer_has_a_truth_value() -> None:
    """A refusal is no False that somebody forgets to look at."""
    for answer in (plan(), refusal(host_budget_bytes=0)):
        with pytest.raises(TypeError, match="no truth value"):
            bool(answer)


PAGE = (Path(__file__).parents[2] / "docs" / "handover.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("peak", list(MemoryPeak))
@pytest.mark.parametrize("way", ["there", "back"])
def test_the_page_shows_the_steps_that_are_planned(peak: MemoryPeak, way: str) -> None:
    """docs/handover.md is written by hand; its table says what the plan does."""
    leg = getattr(plan(memory_peak=peak), way)
    steps = ", ".join(f"`{step}`".replace("E0", "engine") for step in leg.steps)

    assert f'| `"{peak}"` | {way} | {steps} |' in PAGE


@pytest.mark.parametrize("way", ["there", "back"])
def test_the_page_shows_the_steps_of_weights_that_stay(way: str) -> None:
    """The third pair of rows: with LoRA, where they fit."""
    leg = getattr(plan(engine(resident=WEIGHTS, mirror_held_bytes=0), LORA, device_budget_bytes=9000), way)
    steps = ", ".join(f"`{step}`".replace("E0", "engine") for step in leg.steps)

    assert f"| weights kept | {way} | {steps} |" in PAGE
