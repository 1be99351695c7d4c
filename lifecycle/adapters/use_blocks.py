"""Which adapter forward passes apply, and who takes over when it is retired. Names decide, never slots.

A slot is given to another tenant one day: a block that was opened for one registration never applies the next
one of its slot. It is worked out anew, from what is loaded, whenever that changes, and so an undo needs no books.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.errors import AdapterError


class Unnamed(Enum):
    """Nobody was named."""

    SUCCESSOR = "no successor was named"


NO_SUCCESSOR_NAMED: Final = Unnamed.SUCCESSOR
"""The adapter of the block may not be retired inside it."""

Successor = str | None | Unnamed
"""A loaded adapter, None for the base alone, or nobody was named."""


@dataclass(eq=False, slots=True)
class _Block:
    """One block that is open.

    Attributes:
        adapter: the registration it applies; None applies none.
        successor: who takes over when that is retired.
        holder: what closed the model to adapters, empty when nothing did.
        allowed: the adapters that may be used all the same.
    """

    adapter: DesiredAdapter | None
    successor: Successor = NO_SUCCESSOR_NAMED
    holder: str = ""
    allowed: frozenset[str] = frozenset()


class UseBlocks:
    """The blocks that are open on one model; the innermost counts.

    Args:
        loaded: what is loaded now, by name.
        apply: makes forward passes apply a slot, or none.
    """

    def __init__(self, loaded: Callable[[], Mapping[str, DesiredAdapter]], apply: Callable[[int | None], None]) -> None:
        self._loaded = loaded
        self._apply = apply
        self._blocks: list[_Block] = []

    @contextmanager
    def adapter(self, one: DesiredAdapter, successor: Successor) -> Iterator[None]:
        """Apply one loaded adapter inside.

        Raises:
            AdapterError: the model is closed to it, or *successor* is neither a name nor None.
        """
        if not (successor is None or isinstance(successor, str | Unnamed)):
            given = f"successor is {successor!r}"
            raise AdapterError(
                one.name, f"{given}; give the name of an adapter, None for the base alone, or leave it out"
            )
        closed = next((block for block in reversed(self._blocks) if block.holder), None)
        if closed is not None and one.name not in closed.allowed:
            raise AdapterError(one.name, f"adapters are off inside of {closed.holder}; leave its block first")
        with self._open(_Block(one, successor)):
            yield

    @contextmanager
    def none(self, holder: str = "", allowed: Collection[str] = ()) -> Iterator[None]:
        """Apply no adapter inside.

        Args:
            holder: whoever must be sure of that: using an adapter inside is refused in this name.
            allowed: the adapters that may be used inside all the same.
        """
        with self._open(_Block(None, holder=holder, allowed=frozenset(allowed))):
            yield

    def settle(self) -> None:
        """Apply what the innermost block means now. Called whenever what is loaded has changed."""
        self._apply(self._slot_of(self._blocks[-1]) if self._blocks else None)

    def unsucceeded(self, retired: Collection[str], staying: Collection[str]) -> tuple[str, ...]:
        """Those of the retired that a block applies and that have no successor among those that stay, sorted.

        Args:
            retired: names that are to be retired; one that is registered anew is retired too.
            staying: names that are loaded afterwards.
        """
        found = set()
        for block in self._blocks:
            applied = self._applied(block)
            if applied is None or applied.name not in retired:
                continue
            if block.successor is not None and block.successor not in staying:
                found.add(applied.name)
        return tuple(sorted(found))

    def stranded(self) -> tuple[str, ...]:
        """Those that a block applied, that are gone, and whose named successor is not there either, sorted."""
        named = [block for block in self._blocks if block.adapter is not None and isinstance(block.successor, str)]
        return tuple(sorted({block.adapter.name for block in named if block.adapter and self._applied(block) is None}))

    @contextmanager
    def _open(self, block: _Block) -> Iterator[None]:
        self._blocks.append(block)
        try:
            self.settle()
            yield
        finally:
            self._blocks.remove(block)
            self.settle()

    def _slot_of(self, block: _Block) -> int | None:
        applied = self._applied(block)
        return None if applied is None else applied.slot

    def _applied(self, block: _Block) -> DesiredAdapter | None:
        """Its adapter, or whoever stands in for it; None for the base alone."""
        if block.adapter is None or self._is_loaded(block.adapter):
            return block.adapter
        return self._loaded().get(block.successor) if isinstance(block.successor, str) else None

    def _is_loaded(self, one: DesiredAdapter) -> bool:
        held = self._loaded().get(one.name)
        return held is not None and held.registration_id == one.registration_id


def refuse_unsucceeded(names: Iterable[str]) -> None:
    """Refuse to retire adapters that are in use.

    Raises:
        AdapterError: naming the first.
    """
    for name in names:
        raise AdapterError(
            name,
            "it is in use and nobody who stays was named to take over; leave its use() block first, or open it with "
            "use(name, successor=...): a registered adapter, or None for the base alone",
        )
