"""The registry against a model of plain lists, over random sequences of calls."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lifecycle.adapters import AdapterRegistry, AdapterSettings, RegistrySnapshot
from lifecycle.errors import AdapterError

SLOTS = 3
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


class RegistryAgainstAModel(RuleBasedStateMachine):
    """The model keeps for each name a word, a slot, an id and counts, for each slot a number, and the batches."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = AdapterRegistry(slots=SLOTS)
        self.words: dict[str, str] = {}
        self.slots: dict[str, int] = {}
        self.ids: list[int] = []
        self.versions = [0] * SLOTS
        self.served: set[tuple[int, int]] = set()
        self.counts: dict[str, list[int]] = {}
        self.saves: dict[str, str] = {}
        self.batches: dict[int, dict[str, tuple[int, bool]]] = {}
        self.directory = Path(tempfile.mkdtemp())
        self.file = self.directory / "registry.json"

    def teardown(self) -> None:
        """The saved file is not kept."""
        shutil.rmtree(self.directory)

    def attempt(self, call: object, *arguments: object, allowed: bool) -> None:
        """The call succeeds exactly when the model allows it, and changes nothing otherwise."""
        before = self.registry.snapshot()
        try:
            call(*arguments)  # type: ignore[operator]
        except AdapterError:
            assert not allowed
            assert self.registry.snapshot() == before
        else:
            assert allowed

    @rule(name=NAMES, save=st.sampled_from(["", "x", "y"]), num_step=st.sampled_from([None, 2]), frozen=st.booleans())
    def register(self, name: str, save: str, num_step: int | None, *, frozen: bool) -> None:
        """A name that is free gets the lowest slot and a new id, as long as there is a slot and a directory."""
        free = sorted(set(range(SLOTS)) - set(self.slots.values()))
        is_taken = save != "" and save in {self.saves[one] for one in self.slots}
        allowed = name not in self.slots and bool(free) and not is_taken
        given = AdapterSettings(Path("/saves") / save if save else None, num_step, trainable=not frozen)
        self.attempt(lambda: self.registry.register(name, settings=given), allowed=allowed)
        if allowed:
            record = self.registry.find(name)
            assert record is not None
            assert record.adapter.slot == free[0]
            assert record.adapter.registration_id > max(self.ids, default=0)
            self.ids.append(record.adapter.registration_id)
            self.words[name], self.slots[name], self.saves[name] = "pending", free[0], save
            self.counts[name] = [0, 0, num_step or 10**9, int(frozen)]

    @rule(name=NAMES)
    def deregister(self, name: str) -> None:
        """Pending and active ones begin to retire."""
        allowed = self.words.get(name) in {"pending", "active"}
        self.attempt(self.registry.deregister, name, allowed=allowed)
        if allowed:
            self.words[name] = "retiring"

    @rule()
    def retire(self) -> None:
        """All that retire are demoted."""
        names = tuple(sorted(name for name, word in self.words.items() if word == "retiring"))
        assert self.registry.retire_adapters() == names
        self.words |= dict.fromkeys(names, "cleanup")

    @rule(name=NAMES)
    def free(self, name: str) -> None:
        """Only a slot in clean-up is freed."""
        allowed = self.words.get(name) == "cleanup"
        self.attempt(self.registry.free_slot, name, allowed=allowed)
        if allowed:
            self.words[name] = "completed"
            del self.slots[name]

    @rule(names=st.lists(NAMES, max_size=4))
    def push(self, names: list[str]) -> None:
        """Served slots move on by one, pending ones become active."""
        self.registry.record_weight_update(names)
        for name in set(names):
            if self.words.get(name) in {"pending", "active", "retiring"}:
                self.versions[self.slots[name]] += 1
                pair = (self.slots[name], self.versions[self.slots[name]])
                assert pair not in self.served
                self.served.add(pair)
            if self.words.get(name) == "pending":
                self.words[name] = "active"

    @rule(rollout=st.integers(0, 2), names=st.lists(NAMES, min_size=1, max_size=2, unique=True), steps=st.booleans())
    def note_a_batch(self, rollout: int, names: list[str], *, steps: bool) -> None:
        """Of adapters that were served and are trained; it counts nothing yet."""
        allowed = all(self.words.get(name) in {"active", "retiring", "cleanup"} for name in names)
        allowed = allowed and not any(self.counts[name][3] for name in names)
        groups = dict.fromkeys(names, 2)
        self.attempt(self.registry.record_batch_adapters, rollout, groups, names[:steps], allowed=allowed)
        if allowed:
            self.batches[rollout] = {name: (self.newest_id(name), steps and name == names[0]) for name in names}

    @rule(rollout=st.integers(0, 2))
    def train_a_batch(self, rollout: int) -> None:
        """Counted once, for the registrations that were in it; who has done its steps begins to retire."""
        trained = self.registry.mark_batch_trained(rollout)
        stepped = []
        for name, (identity, steps) in self.batches.pop(rollout, {}).items():
            if self.newest_id(name) != identity or self.words[name] == "completed":
                continue
            count = self.counts[name]
            count[0], count[1] = (count[0] + 1, 0) if steps else (count[0], count[1] + 2)
            stepped += [name] * steps
            if steps and count[0] >= count[2] and self.words[name] == "active":
                self.words[name] = "retiring"
        assert list(trained.stepped) == sorted(stepped)

    def newest_id(self, name: str) -> int:
        """The id of the newest registration."""
        record = self.registry.find(name)
        assert record is not None
        return record.adapter.registration_id

    @rule()
    def restart(self) -> None:
        """Saved and loaded: all but the sources of what has trained is as before, and it goes on."""
        before = self.registry.snapshot()
        self.registry.save(self.file)
        self.registry = AdapterRegistry.load(self.file)
        assert plain(self.registry.snapshot()) == plain(before)

    @rule(name=NAMES)
    def release_and_undo(self, name: str) -> None:
        """A release that is undone leaves every state, slot and version as before."""
        record = self.registry.find(name)
        if record is not None:
            self.registry.release(record.adapter)
            self.registry.reinstate(record.adapter)

    @invariant()
    def agrees(self) -> None:
        """State by name, slot by name, version by slot, and what follows from them."""
        snapshot = self.registry.snapshot()
        assert {name: self.registry.adapter_state(name) for name in self.words} == self.words
        assert {name: one.adapter.slot for name, one in snapshot.adapters.items()} == self.slots
        assert list(snapshot.slot_versions) == self.versions
        assert len(set(self.slots.values())) == len(self.slots)
        assert sorted([*self.slots.values(), *snapshot.free_slots]) == list(range(SLOTS))
        found = {name: self.registry.find(name) for name in self.words}
        assert {name: [one.step, one.accumulated_groups] for name, one in found.items() if one} == {
            name: count[:2] for name, count in self.counts.items()
        }
        served = sorted(name for name, word in self.words.items() if word in {"active", "retiring"})
        assert list(self.registry.active_adapters()) == served
        wanted = sorted(name for name, word in self.words.items() if word in {"pending", "active"})
        assert list(self.registry.desired()) == wanted


def plain(snapshot: RegistrySnapshot) -> RegistrySnapshot:
    """Without what a file cannot hold: sources of what has trained, and what an undo would need."""
    live = {name: replace(one, source=None, lost="") for name, one in snapshot.adapters.items()}
    return replace(snapshot, adapters=live, completed=tuple(replace(o, released_from=None) for o in snapshot.completed))


TestRegistryAgainstAModel = RegistryAgainstAModel.TestCase
TestRegistryAgainstAModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
