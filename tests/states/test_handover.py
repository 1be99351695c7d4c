"""The plan of a hand-over: pure, in bytes, decided before the first step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from states.handover import HandoverOrder, HandoverPlan, HandoverRefusal, plan_handover
from states.handover_needs import EngineBytes, HandoverNeeds, TrainerBytes

BASE = 1000
TRAINER = TrainerBytes(weights_bytes=BASE, scratch_bytes=100, awake_bytes=1100, backup_bytes=BASE, returned_bytes=BASE)
ENGINE = EngineBytes(name="E0", weights_bytes=BASE, kv_cache_bytes=300, mirror_bytes=BASE)
NEEDS = HandoverNeeds(trainer=TRAINER, engines=(ENGINE,), host_held_bytes=BASE, device_held_bytes=1100)


def plan(needs: HandoverNeeds = NEEDS, order: HandoverOrder | None = None) -> HandoverPlan:
    """A plan that there is."""
    found = plan_handover(needs, order)
    assert isinstance(found, HandoverPlan), found
    return found


def test_without_budgets_who_gives_memory_goes_first() -> None:
    """The peak is then on the host: backup and mirror exist together, there and back (FB-19)."""
    chosen = plan()

    assert [str(step) for step in chosen.there.steps] == [
        "sleep", "offload", "E0.resume(weights)", "update_weights", "E0.resume(kv_cache)",
    ]  # fmt: skip
    assert [str(step) for step in chosen.back.steps] == ["E0.release(kv_cache,weights)", "wake_up"]
    assert (chosen.there.host_peak_bytes, chosen.back.host_peak_bytes) == (2 * BASE, 2 * BASE)
    assert (chosen.there.device_peak_bytes, chosen.back.device_peak_bytes) == (BASE + 300, BASE + 300)


def test_a_host_that_is_too_small_moves_the_peak_to_the_device() -> None:
    """Scratch and cache are given back before the overlap (FB-19)."""
    chosen = plan(replace(NEEDS, host_budget_bytes=1200, device_budget_bytes=3000))

    assert [str(step) for step in chosen.there.steps] == [
        "sleep", "E0.resume(weights)", "offload", "update_weights", "E0.resume(kv_cache)",
    ]  # fmt: skip
    assert [str(step) for step in chosen.back.steps] == ["E0.release(kv_cache)", "wake_up", "E0.release(weights)"]
    assert (chosen.host_peak_bytes, chosen.there.device_peak_bytes) == (BASE, 2 * BASE)
    assert chosen.back.device_peak_bytes == 2 * BASE + 100


def test_an_order_that_does_not_fit_is_refused_with_its_prediction() -> None:
    """The host-peak order against 1.2 times the base (FB-19, scenario 1)."""
    refusal = plan_handover(replace(NEEDS, host_budget_bytes=1200), HandoverOrder.HOST_PEAK)

    assert isinstance(refusal, HandoverRefusal)
    assert "(2000 bytes) on the host, the budget is" in refusal.because
    assert "(1200 bytes)" in refusal.because
    assert refusal.remedy.startswith("try the other order")


def test_a_refusal_shows_both_predictions_and_both_budgets() -> None:
    """Whoever reads it can see what would have to be raised, and to what (FB-19, scenario 4)."""
    refusal = plan_handover(replace(NEEDS, host_budget_bytes=1200, device_budget_bytes=1500))

    assert isinstance(refusal, HandoverRefusal)
    for number in ("2000 bytes", "1200 bytes", "1500 bytes"):
        assert number in refusal.because
    assert [leg.order for leg in refusal.tried["there"]] == list(HandoverOrder)
    assert refusal.remedy.startswith("raise a budget")


def test_each_way_takes_the_order_that_fits_it() -> None:
    """The trainer comes back with its scratch, so the way back needs more of the device than the way there."""
    chosen = plan(replace(NEEDS, host_budget_bytes=2000, device_budget_bytes=1300))
    assert (chosen.there.order, chosen.back.order) == (HandoverOrder.HOST_PEAK, HandoverOrder.HOST_PEAK)

    no_mirror_now = replace(NEEDS, host_held_bytes=0, engines=(replace(ENGINE, resident=frozenset({"weights"})),))
    needs = replace(no_mirror_now, device_held_bytes=2100, host_budget_bytes=1200, device_budget_bytes=3000)
    chosen = plan(needs)
    assert (chosen.there.order, chosen.back.order) == (HandoverOrder.HOST_PEAK, HandoverOrder.DEVICE_PEAK)


def test_a_way_back_that_does_not_fit_refuses_the_whole_turn() -> None:
    """A turn that could not come back is not begun."""
    needs = replace(NEEDS, host_budget_bytes=1200, device_budget_bytes=2050)
    refusal = plan_handover(needs)

    assert isinstance(refusal, HandoverRefusal)
    assert "to the engines" not in refusal.because
    assert "device-peak back needs" in refusal.because


def test_a_base_in_a_file_takes_no_host_memory() -> None:
    """Nothing is backed up and the engine's mirror alone is on the host."""
    trainer = replace(TRAINER, backup_bytes=0, returned_bytes=0)
    chosen = plan(replace(NEEDS, trainer=trainer, host_budget_bytes=BASE))

    assert chosen.there.order is HandoverOrder.HOST_PEAK
    assert chosen.host_peak_bytes == BASE


def test_without_a_target_the_weights_stay_on_the_device() -> None:
    """There is no offload, and the engine needs room beside the trainer."""
    trainer = replace(TRAINER, target=None, backup_bytes=0, returned_bytes=0)
    chosen = plan(replace(NEEDS, trainer=trainer))

    assert "offload" not in [step.does for step in chosen.there.steps]
    assert chosen.device_peak_bytes == 2 * BASE + 300
    other = plan(replace(NEEDS, trainer=trainer), HandoverOrder.DEVICE_PEAK)
    assert max(step.device_bytes for step in other.back.steps[1:]) == 2 * BASE + 100


def test_what_is_done_already_is_not_counted_twice() -> None:
    """An offloaded trainer and a resident engine take nothing more on the way there."""
    trainer = TrainerBytes(awake_bytes=1100, returned_bytes=BASE)
    engine = replace(ENGINE, resident=frozenset({"weights", "kv_cache"}))
    chosen = plan(HandoverNeeds(trainer=trainer, engines=(engine,), host_held_bytes=BASE, device_held_bytes=BASE + 300))

    assert (chosen.there.host_peak_bytes, chosen.there.device_peak_bytes) == (BASE, BASE + 300)


def test_a_budget_is_what_may_be_held_so_just_as_much_fits() -> None:
    """Equal is enough; one byte less is not."""
    fits = replace(NEEDS, host_budget_bytes=2 * BASE, device_budget_bytes=1300)
    assert plan(fits).host_peak_bytes == 2 * BASE
    assert isinstance(plan_handover(replace(fits, host_budget_bytes=2 * BASE - 1)), HandoverRefusal)


def test_engines_that_tell_no_sizes_are_named() -> None:
    """They count as nothing, and the plan says so."""
    assert plan(replace(NEEDS, engines=(EngineBytes(name="E9"), ENGINE))).unsized == ("E9",)


def test_sizes_are_counted_from_zero() -> None:
    """A negative number of bytes is a mistake of the caller."""
    for build in (
        lambda: TrainerBytes(weights_bytes=-1),
        lambda: EngineBytes(name="E0", mirror_bytes=-1),
        lambda: HandoverNeeds(host_held_bytes=-1),
    ):
        with pytest.raises(ValueError, match="counted from 0"):
            build()


def test_neither_answer_has_a_truth_value() -> None:
    """A refusal is no False that somebody forgets to look at."""
    for answer in (plan(), plan_handover(replace(NEEDS, host_budget_bytes=0))):
        with pytest.raises(TypeError, match="no truth value"):
            bool(answer)


sizes = st.integers(0, 5000)


@given(
    weights=sizes, scratch=sizes, engine=sizes, cache=sizes, mirror=sizes,
    host=st.none() | sizes, device=st.none() | st.integers(0, 20_000),
)  # fmt: skip
def test_a_plan_keeps_within_the_budgets_at_every_step_and_ends_where_it_began(
    weights: int, scratch: int, engine: int, cache: int, mirror: int, host: int | None, device: int | None
) -> None:
    """And there is a refusal only where every order exceeds a budget on one of the ways."""
    held = TrainerBytes(
        weights_bytes=weights, scratch_bytes=scratch, awake_bytes=weights + scratch,
        backup_bytes=weights, returned_bytes=weights,
    )  # fmt: skip
    other = EngineBytes(name="E0", weights_bytes=engine, kv_cache_bytes=cache, mirror_bytes=mirror)
    needs = HandoverNeeds(
        trainer=held, engines=(other,), host_held_bytes=mirror, device_held_bytes=weights + scratch,
        host_budget_bytes=host, device_budget_bytes=device,
    )  # fmt: skip
    answer = plan_handover(needs)
    free = replace(needs, host_budget_bytes=None, device_budget_bytes=None)
    every = [plan_handover(free, order) for order in HandoverOrder]
    limits = (float("inf") if host is None else host, float("inf") if device is None else device)
    fits = [
        any(
            leg.host_peak_bytes <= limits[0] and leg.device_peak_bytes <= limits[1]
            for one in every
            if isinstance(one, HandoverPlan)
            for leg in [getattr(one, way)]
        )
        for way in ("there", "back")
    ]

    assert isinstance(answer, HandoverPlan) == all(fits)
    if isinstance(answer, HandoverPlan):
        for step in (*answer.there.steps, *answer.back.steps):
            assert step.host_bytes <= limits[0]
            assert step.device_bytes <= limits[1]
        last = answer.back.steps[-1]
        assert last.device_bytes - (engine if last.engine else 0) == weights + scratch


@pytest.mark.parametrize("order", list(HandoverOrder))
@pytest.mark.parametrize("way", ["there", "back"])
def test_the_page_shows_the_steps_that_are_planned(order: HandoverOrder, way: str) -> None:
    """docs/handover.md is written by hand; its table says what the plan does."""
    page = (Path(__file__).parents[2] / "docs" / "handover.md").read_text(encoding="utf-8")
    leg = getattr(plan(order=order), way)
    steps = ", ".join(f"`{step}`".replace("E0", "engine") for step in leg.steps)

    assert f"| `{order}` | {way} | {steps} |" in page
