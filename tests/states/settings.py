"""The kinds of run that are explored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.states.world import Setting

KINDS: Final = (
    Setting(),
    Setting(file=True),
    Setting(target="disk", file=True),
    Setting(target=None),
    Setting(lora=False),
    Setting(lora=False, target="disk"),
    Setting(base_kind="none"),
    Setting(base_kind="disk"),
    Setting(retain=True),
    Setting(retain=True, file=True),
    Setting(retain=True, lora=False),
)
"""Placements of the tensors: by the table, two that a framework may have made before attach, and retained backups."""

_STRATEGIES: Final = ("lean", "reference", "duplicate")


def settings() -> Iterator[Setting]:
    """Every placement with every strategy, in company and alone, with what else may go on."""
    for kind in KINDS:
        for strategy in _STRATEGIES:
            yield replace(kind, strategy=strategy, life=("registry", "readers"))
            if strategy == "reference" and not kind.retain:
                yield replace(kind, strategy=strategy, colocate=False, life=("registry", "readers"))
            if not kind.retain or strategy == "lean":
                yield replace(kind, strategy=strategy, with_ref=True, life=("models",))
        if not kind.retain:
            yield replace(kind, life=("registry", "engine") if kind.lora else ("engine",))
        if kind.lora and not kind.retain:
            yield replace(kind, life=("registry", "loads", "readers"))
    for kind in (Setting(), Setting(file=True)):
        yield replace(kind, with_ref=True, life=("models", "loads"))
        yield replace(kind, with_ref=True, life=("models", "registry"))
        yield replace(kind, with_ref=True, life=("models", "readers"))
        yield replace(kind, strategy="reference", with_ref=True, life=("models", "readers"))
    yield Setting(retain=True, life=("registry", "engine"))
