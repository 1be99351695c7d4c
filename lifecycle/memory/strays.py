"""Tensors that a model refers to outside of its parameters and buffers. They lie in no region and stay resident."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from torch import Tensor, nn

from lifecycle.saver.placement import Obstacle, obstacle

_DEPTH_MAX: Final = 3
_VISITED_MAX: Final = 100_000
_PLAIN: Final = (str, bytes, int, float, complex, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_OWN_ATTRIBUTES: Final = frozenset(vars(nn.Module()))
"""What every module has: its parameters, buffers, children and hooks."""


def strays(model: nn.Module, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in plain attributes: of modules, of parameters, and in containers, objects and modules held there.

    Args:
        model: every module of it is looked at, wrappers included.
        known: the tensors that are attached; they are no strays.

    Returns:
        By the path of attributes, each tensor once; at most three levels below a module or parameter.
    """
    modules = dict(model.named_modules())
    seen = {id(one) for one in (*modules.values(), *map(vars, modules.values()), *known.values())}
    found: dict[str, Tensor] = {}
    for path, module in modules.items():
        for name, value in vars(module).items():
            if name not in _OWN_ATTRIBUTES:
                found.update(_tensors_in(f"{path}.{name}".lstrip("."), value, seen, _DEPTH_MAX))
    for name, parameter in known.items():
        for attribute, value in vars(parameter).items():
            found.update(_tensors_in(f"{name}.{attribute}", value, seen, _DEPTH_MAX))
    return found


def stray_bytes(tensor: Tensor) -> int:
    """What a stray takes: its whole storage, or what its elements take where it has none of its own."""
    kind = obstacle(tensor)
    if kind in {Obstacle.LAZY, Obstacle.META}:
        return 0
    if kind in {Obstacle.LAYOUT, Obstacle.WRAPPER, Obstacle.DTENSOR}:
        return tensor.numel() * tensor.element_size()
    return tensor.untyped_storage().nbytes()


def _tensors_in(path: str, value: object, seen: set[int], depth: int) -> Iterator[tuple[str, Tensor]]:
    if value is None or isinstance(value, _PLAIN) or id(value) in seen or len(seen) > _VISITED_MAX:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield path, value
    elif depth > 0:
        for name, inner in _inside(value):
            yield from _tensors_in(f"{path}.{name}", inner, seen, depth - 1)


def _inside(value: Any) -> Iterator[tuple[object, object]]:
    """What a value holds: of a module its tensors, else its items or attributes."""
    if isinstance(value, nn.Module):
        yield from value.named_parameters()
        yield from value.named_buffers()
    elif isinstance(value, Mapping):
        yield from tuple(value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from enumerate(tuple(value))
    else:
        yield from tuple(getattr(value, "__dict__", {}).items())
