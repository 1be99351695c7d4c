"""When each adapter was in a slot, how often it changed and how often it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lifecycle.report.model import Happening, Lane, Noted, Opened, Transition
from states import ADAPTER_PREFIX


@dataclass(frozen=True, slots=True)
class Life:
    """One stay of an adapter in a slot. A name that returns has another one.

    Attributes:
        model: whose slot it is.
        adapter: its name.
        loaded_s: when, seconds since 1970.
        ended_s: when it was gone, or the last time that the log knows.
        end: ``retired``, ``session ended``, or empty where it is still there.
        changes: how often its bytes became others, without those it was loaded with.
        pushes: in how many syncs it was sent.
        engines: to which engines, in order.
    """

    model: str
    adapter: str
    loaded_s: float
    ended_s: float
    end: str = ""
    changes: int = 0
    pushes: int = 0
    engines: tuple[str, ...] = ()


class Lives:
    """The adapters of one model, by the log of one rank: they are the same on all."""

    def __init__(self, lane: Lane) -> None:
        self._model = lane.model
        self._open: dict[str, Life] = {}
        self._now_s = 0.0

    def take(self, happening: Happening) -> Iterator[Life]:
        """The lives that end with it."""
        if isinstance(happening, Opened):
            if happening.restarted:
                yield from self.rest("session ended")
            self._now_s = happening.time_s
        elif isinstance(happening, Transition):
            self._now_s = happening.ended_s
            yield from self._changed(happening)
            self._sent(happening)
        elif isinstance(happening, Noted):
            self._now_s = happening.time_s

    def rest(self, end: str = "") -> Iterator[Life]:
        """Those that have not ended, by name of what ends them now."""
        for _, life in sorted(self._open.items()):
            yield replace(life, ended_s=self._now_s, end=end)
        self._open.clear()

    def _changed(self, transition: Transition) -> Iterator[Life]:
        now_s = self._now_s
        for group, version in transition.versions.items():
            if not group.startswith(ADAPTER_PREFIX):
                continue
            name = group.removeprefix(ADAPTER_PREFIX)
            life = self._open.get(name)
            if life is not None and (version is None or name in transition.loaded):
                yield replace(self._open.pop(name), ended_s=now_s, end="retired")
                life = None
            if version is None:
                continue
            if life is None:
                self._open[name] = Life(self._model, name, now_s, now_s)
            else:
                self._open[name] = replace(life, changes=life.changes + 1)

    def _sent(self, transition: Transition) -> None:
        by_adapter: dict[str, list[str]] = {}
        for engine, groups in transition.sent.items():
            for group in groups:
                if group.startswith(ADAPTER_PREFIX):  # another group may have the name of an adapter
                    by_adapter.setdefault(group.removeprefix(ADAPTER_PREFIX), []).append(engine)
        for name, engines in by_adapter.items():
            life = self._open.get(name)
            if life is not None:
                known = (*life.engines, *(one for one in engines if one not in life.engines))
                self._open[name] = replace(life, pushes=life.pushes + 1, engines=known)
