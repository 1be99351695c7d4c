"""The registry against a model of plain lists, over random sequences of calls."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lifecycle.adapters import AdapterRegistry
from lifecycle.errors import AdapterError

SLOTS = 3
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


class RegistryAgainstAModel(RuleBasedStateMachine):
    """The model keeps a word, a slot and an id for each name, and a number for each slot."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = AdapterRegistry(slots=SLOTS)
        self.words: dict[str, str] = {}
        self.slots: dict[str, int] = {}
        self.ids: list[int] = []
        self.versions = [0] * SLOTS

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

    @rule(name=NAMES)
    def register(self, name: str) -> None:
        """A name that is free gets the lowest slot and a new id, as long as there is a slot."""
        free = sorted(set(range(SLOTS)) - set(self.slots.values()))
        allowed = name not in self.slots and bool(free)
        self.attempt(self.registry.register, name, allowed=allowed)
        if allowed:
            record = self.registry.find(name)
            assert record is not None
            assert record.adapter.slot == free[0]
            assert record.adapter.registration_id > max(self.ids, default=0)
            self.ids.append(record.adapter.registration_id)
            self.words[name], self.slots[name] = "pending", free[0]

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
            if self.words.get(name) == "pending":
                self.words[name] = "active"

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
        served = sorted(name for name, word in self.words.items() if word in {"active", "retiring"})
        assert list(self.registry.active_adapters()) == served
        wanted = sorted(name for name, word in self.words.items() if word in {"pending", "active"})
        assert list(self.registry.desired()) == wanted


TestRegistryAgainstAModel = RegistryAgainstAModel.TestCase
TestRegistryAgainstAModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
