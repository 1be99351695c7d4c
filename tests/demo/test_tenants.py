"""The queue before few slots: how the turns are shared out, who is refused, what is written down of whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lifecycle.adapters import PeftAdapters
from lifecycle.demo.model import tiny_llama
from lifecycle.demo.options import DemoOptions, default_turns
from lifecycle.demo.tenants import Tenant, Tenants, plan_tenants
from lifecycle.errors import ConfigError


def _planned(**options: object) -> list[tuple[str, int]]:
    return [(one.name, one.turns) for one in plan_tenants(replace(DemoOptions(), **options))[0]]  # type: ignore[arg-type]


def test_without_a_count_two_begin_and_a_newcomer_takes_the_place_of_the_first() -> None:
    """The first trains for half of the turns, the newcomer for the rest."""
    assert _planned() == [("a", 6), ("b", 12), ("c", 6)]


def test_one_turn_has_no_half() -> None:
    """Nobody retires, nobody joins."""
    assert _planned(turns=1) == [("a", 1), ("b", 1)]


def test_a_newcomer_does_not_take_a_name_that_is_there() -> None:
    """An adapter of one's own may have its name."""
    assert _planned(adapters=(("c", Path("x")),)) == [("c", 6), ("c-1-new", 6)]


@pytest.mark.parametrize(
    ("count", "slots", "turns"), [(16, 4, 16), (16, 4, 23), (5, 2, 3), (7, 3, 11), (3, 3, 1), (40, 1, 40), (9, 4, 4)]
)
def test_the_turns_are_enough_for_all_and_none_is_without_an_adapter(count: int, slots: int, turns: int) -> None:
    """A run that gives free slots to the queue, lowest first, ends in time, and its first slot is never empty."""
    planned, held = plan_tenants(DemoOptions(count=count, slots=slots, turns=turns))
    free_at = [0] * held
    for one in planned:
        slot = min(range(held), key=lambda each: (free_at[each], each))
        free_at[slot] += one.turns

    assert min(one.turns for one in planned) >= 1
    assert max(free_at) == free_at[0] == turns


def test_slots_become_free_at_different_times() -> None:
    """Neighbours go on training while a slot is handed over."""
    turns = [turns for _, turns in _planned(count=8, slots=4, turns=8)]

    assert turns == [4, 3, 4, 3, 4, 4, 4, 4]


def test_names_go_on_after_the_alphabet() -> None:
    """No name is given twice."""
    names = [name for name, _ in _planned(count=60, slots=60, turns=1)]

    assert (names[0], names[25], names[26], names[59]) == ("a", "z", "a1", "h2")
    assert len(set(names)) == 60


@pytest.mark.parametrize(
    ("count", "slots", "turns"), [(None, None, 12), (16, 4, 16), (16, None, 16), (3, None, 4), (3, 1, 12), (0, 0, 4)]
)
def test_the_turns_follow_from_the_queue_unless_given(count: int | None, slots: int | None, turns: int) -> None:
    """Four for each adapter that follows another in a slot."""
    assert default_turns(count, slots) == turns


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"count": 0}, "--adapters is 0; use 1 or more"),
        ({"count": 4, "slots": 0}, "--slots is 0; use 1 to 4"),
        ({"count": 4, "slots": 5}, "--slots is 5; use 1 to 4"),
        ({"slots": 2}, "--slots needs --adapters"),
        ({"count": 2, "adapters": (("a", Path("x")),)}, "--adapters and --adapter are both given"),
        ({"count": 16, "slots": 4, "turns": 3}, "--turns is 3; 16 adapters in 4 slots need at least 4"),
        ({"reconcile": "sleeping"}, "--reconcile is 'sleeping'; use awake or offloaded"),
        ({"reconcile": "offloaded", "offload_target": None}, "--reconcile offloaded needs an --offload-target"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_the_options_name(bad: dict[str, object], why: str) -> None:
    """Before anything is built."""
    with pytest.raises(ConfigError, match=f"^{why}"):
        replace(DemoOptions(), **bad)


def test_who_finds_no_slot_waits() -> None:
    """The registry refuses the third; the queue keeps it, and asks again when a slot is free."""
    host = PeftAdapters(tiny_llama(0).trainer(), slots=2, rank=8)
    planned = tuple(Tenant(index, name, 1) for index, name in enumerate("abc"))
    tenants = Tenants(host, DemoOptions(), planned)
    admitted = tenants.admit(), tenants.admit()
    host.registry.deregister("a")  # never loaded: its slot is free at once

    assert admitted == (("a", "b"), ())
    assert tenants.admit() == ("c",)
    assert {name: host.registry.desired()[name].slot for name in "bc"} == {"b": 1, "c": 0}
