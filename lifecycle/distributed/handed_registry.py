"""The registry of adapters as a rank that joins gets it: what the rank that hands over knows of every registration."""

from __future__ import annotations

from collections.abc import Callable

from lifecycle.adapters.custody import Custody
from lifecycle.adapters.wire import (
    Heard,
    read_registry_told,
    read_tensors_told,
    records_of,
    render_registry,
    render_tensors_told,
)
from lifecycle.transition.parts import Parts

Tell = Callable[[bytes | None], bytes]
"""Tells what it is given, or hears what another rank tells."""


def registry_of(parts: Parts) -> Custody | None:
    """The registry that the host serves; None where it keeps books of its own, which nobody can hand over."""
    registry = getattr(parts.adapters, "registry", None)
    return registry if isinstance(registry, Custody) else None


def tell_registry(parts: Parts, tell: Tell, *, tells: bool) -> None:
    """Tell the registry, and the tensors that registrations were given; or hear it on a rank that has it already.

    Args:
        parts: the trainer.
        tell: a meeting.
        tells: whether this is the rank that hands over.
    """
    registry = registry_of(parts)
    if registry is None:
        return
    if not tells:
        for _ in read_registry_told(tell(None), {}).awaits:
            tell(None)
        return
    snapshot = registry.snapshot()
    content, follows = render_registry(snapshot, {})
    tell(content)
    records = records_of(snapshot)
    for one in follows:
        source = records[one].source
        assert source is not None  # its tensors follow
        assert source.tensors is not None
        tell(render_tensors_told(source.tensors))


def hear_registry(parts: Parts, tell: Tell) -> None:
    """Take over what :func:`tell_registry` tells.

    Raises:
        ConfigError: it is malformed, or has another number of slots.
    """
    registry = registry_of(parts)
    if registry is None:
        return
    heard: Heard = read_registry_told(tell(None), {})
    registry.adopt(heard.with_tensors({one: read_tensors_told(one, tell(None)) for one in heard.awaits}))
