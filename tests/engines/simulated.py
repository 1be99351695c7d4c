"""An engine that really does what it is told: tags, bytes, caches and requests, and every way in which a call can fail.

What a real engine may die of, or silently get wrong, is an :class:`AssertionError` here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lifecycle.errors import EngineRefused, EngineUnanswered
from states.engine_memory import EngineSaid, TagState

TAGS = ("weights", "kv_cache", "cuda_graph")
BASE = ("buffers", "frozen-base")
UNANSWERED = ("before", "after", "half")
FAULTS = (*UNANSWERED, "refused")
RESIDENT, RELEASED, DISCARDED = TagState.RESIDENT, TagState.RELEASED, TagState.DISCARDED


@dataclass
class SimulatedEngine:
    """Its bytes are versions: a group that is missing holds bytes that mean nothing.

    Attributes:
        mirrored: tags of which a release keeps the bytes.
        keeps_adapters: neither a release with a mirror nor a new base harms adapters.
        instance: changes at a restart; a call that is meant for another one is not answered.
        fault: how the next call fails.
        calls: how many calls have reached it.
    """

    mirrored: tuple[str, ...] = ("weights",)
    keeps_adapters: bool = False
    instance: int = 1
    fault: str = ""
    calls: int = 0
    admits: bool = True
    in_flight: int = 0
    tags: dict[str, TagState] = field(default_factory=lambda: dict.fromkeys(TAGS, RESIDENT))
    bytes: dict[str, int] = field(default_factory=dict)
    cached: list[tuple[str, dict[str, int]]] = field(default_factory=list)

    def restart(self) -> None:
        """Another process: it serves whoever asks, with a checkpoint that nobody pushed."""
        self.instance += 1
        self.admits, self.in_flight, self.bytes, self.cached = True, 0, {}, []
        self.tags = dict.fromkeys(TAGS, RESIDENT)

    def says(self, *, base: bool = False, adapters: bool = True) -> EngineSaid:
        """What it answers when it is asked; few engines know the version of their base."""
        told: dict[str, int | None] = {group: held for group, held in self.bytes.items() if adapters}
        told = {group: held for group, held in told.items() if group not in BASE}
        told |= {group: self.bytes.get(group) for group in BASE if base}
        return EngineSaid(
            instance_id=str(self.instance), is_open=self.admits or self.in_flight > 0, tags=dict(self.tags),
            versions=told, tells_adapters=adapters,
        )  # fmt: skip

    # what it is told

    def _call(self, instance: str) -> str:
        """Whether and how this call fails. It fails before anything is done, or *half* or *after* is left to do."""
        if instance != str(self.instance):
            raise EngineUnanswered("sim", "the connection was reset")
        fault, self.fault = self.fault, ""
        if fault == "refused":
            raise EngineRefused("sim", "it answered 400", status=400, answer="no")
        if fault == "before":
            raise EngineUnanswered("sim", "timed out")
        self.calls += 1
        return fault

    @staticmethod
    def _answer(fault: str) -> None:
        if fault:
            raise EngineUnanswered("sim", "timed out")

    def pause(self, instance: str) -> None:
        """Admit nobody, and wait for those who are there; *half* is a wait that took too long."""
        fault = self._call(instance)
        self.admits = False
        if fault != "half":
            self.in_flight = 0
        self._answer(fault)

    def unpause(self, instance: str) -> None:
        """Admit requests."""
        fault = self._call(instance)
        assert all(state is RESIDENT for state in self.tags.values()), "requests would meet released memory"
        self.admits = True
        self._answer(fault)

    def release(self, instance: str, tags: Iterable[str], *, discard: bool) -> None:
        """Give memory back. *half*: only of the first tag."""
        fault = self._call(instance)
        assert self.in_flight == 0, "memory was released under a request"
        for tag in tuple(tags)[: 1 if fault == "half" else None]:
            allowed = (RESIDENT, RELEASED) if discard else (RESIDENT,)
            assert self.tags[tag] in allowed, f"{tag} was released twice"
            self.drop(tag, discard=discard)
        self._answer(fault)

    def drop(self, tag: str, *, discard: bool) -> None:
        """What a release comes to."""
        keeps = tag in self.mirrored and not discard
        self.tags[tag] = RELEASED if keeps else DISCARDED
        if tag == "kv_cache":
            self.cached = []
        if tag == "weights" and not (keeps and self.keeps_adapters):
            self.bytes = {group: held for group, held in self.bytes.items() if keeps and group in BASE}

    def resume(self, instance: str, tags: Iterable[str]) -> None:
        """Take memory again. *half*: only of the first tag."""
        fault = self._call(instance)
        for tag in tuple(tags)[: 1 if fault == "half" else None]:
            assert self.tags[tag] is not RESIDENT, f"{tag} was resumed and is not released"
            self.tags[tag] = RESIDENT
        self._answer(fault)

    def write(self, instance: str, group: str, version: int | None) -> None:
        """Write a group in place; None drops it. *half*: what is there then means nothing."""
        fault = self._call(instance)
        assert self.tags["weights"] is RESIDENT, "it was written into released memory"
        assert not self.admits, "it was written while it admits requests"
        assert self.in_flight == 0, "it was written under a request"
        assert group in BASE or version is None or set(BASE) <= set(self.bytes), "an adapter on top of nothing"
        self.bytes.pop(group, None)
        if fault == "refused late":
            raise EngineRefused("sim", "it answered 400 to the second bucket", status=400, answer="no")
        if group in BASE and not self.keeps_adapters:
            self.bytes = {one: held for one, held in self.bytes.items() if one in BASE}
        if version is not None and fault != "half":
            self.bytes[group] = version
        self._answer(fault)

    def flush(self, instance: str) -> None:
        """Drop everything that was cached."""
        fault = self._call(instance)
        self.cached = []
        self._answer(fault)

    def nothing(self, instance: str) -> None:
        """A commit or an abort: an exchange that changes no byte."""
        self._answer(self._call(instance))

    def generate(self, instance: str, adapter: str) -> dict[str, int]:
        """Answer with the bytes that are there, and with what was cached for this name."""
        fault = self._call(instance)
        assert self.admits, "a request that would wait for ever"
        assert all(state is RESIDENT for state in self.tags.values()), "it met released memory"
        own = (*BASE, *([f"adapter/{adapter}"] if adapter != "@base" else []))
        assert set(own) <= set(self.bytes), f"bytes that mean nothing answered for {adapter}"
        used = {group: self.bytes[group] for group in own}
        assert all(then == used for name, then in self.cached if name == adapter), "a prefix of other weights answered"
        self.cached.append((adapter, used))
        self._answer(fault)
        return used
