"""Gradients: kept in one scratch region, saved when an accumulation is under way.

Autograd adds in place into a gradient that exists. So each gradient has a home in the region; one that a loop has
set to None or replaced is led home when a step opens or ends. A parameter may have up to three: its ``grad``, a
``main_grad`` that a framework adds to, and the ``grad`` of its main copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from lifecycle.memory.attachable import HELD_FLAT, refused
from lifecycle.memory.main_copies import MAIN
from lifecycle.saver.views import span_bytes

_GRAD: Final = "grad"
_MAIN_GRAD: Final = "main_grad"


@dataclass(frozen=True, slots=True)
class _Carrier:
    """Where a gradient hangs.

    Attributes:
        label: the parameter's name for its own ``grad``, else a name derived from it.
        holder: the parameter, or its main copy.
        attribute: of the holder.
    """

    label: str
    holder: Tensor
    attribute: str

    @property
    def name(self) -> str:
        """How the gradient is called in messages and in its region."""
        return f"{self.label}.{_GRAD}" if self.attribute == _GRAD else self.label

    @property
    def is_own(self) -> bool:
        """Whether it is what autograd writes."""
        return self.attribute == _GRAD and not self.label.endswith(f"#{MAIN}")

    def get(self) -> Tensor | None:
        """What hangs there now."""
        found: Tensor | None = getattr(self.holder, self.attribute, None)
        return found

    def set(self, gradient: Tensor | None) -> None:
        """Hang something else there."""
        setattr(self.holder, self.attribute, gradient)


class Gradients:
    """The gradients of all trainable parameters.

    Args:
        parameters: by name: trainable base and all slots.
        mains: main copies by the name of their parameter.

    Attributes:
        without_values: their region was resumed, which brings no values back, and nobody wrote them since.
    """

    def __init__(self, parameters: Mapping[str, Tensor], mains: Mapping[str, Tensor] | None = None) -> None:
        self._carriers = {name: [_Carrier(name, one, _GRAD)] for name, one in parameters.items()}
        for name, one in (mains or {}).items():
            self._carriers[name].append(_Carrier(f"{name}#{MAIN}", one, _GRAD))
        self._homes: dict[str, Tensor] = {}
        self._kept: dict[str, Tensor] = {}
        self.without_values = False

    def materialise(self) -> dict[str, Tensor]:
        """Make sure that every parameter has a gradient, zero where it had none.

        Returns:
            The gradients by ``NAME.grad`` and ``NAME.main_grad``, to be placed.
        """
        self._find_main_grads()
        for one in self._of():
            gradient = one.get()
            if gradient is None:
                gradient = torch.zeros_like(one.holder, memory_format=torch.preserve_format, requires_grad=False)
                one.set(gradient)
            self._homes[one.label] = gradient
        return {one.name: self._homes[one.label] for one in self._of()}

    def refuse_flat_main_grads(self, is_placed: Callable[[Tensor], bool]) -> None:
        """Refuse a ``main_grad`` that would be moved away from the flat buffer that it is a part of.

        Raises:
            ConfigError: naming them.
        """
        self._find_main_grads()
        held = [(one.name, one.get()) for one in self._of() if one.attribute == _MAIN_GRAD]
        flat = [name for name, one in held if one is not None and _is_part(one) and not is_placed(one)]
        if flat:
            raise refused(HELD_FLAT, flat)

    def _find_main_grads(self) -> None:
        for name, carriers in self._carriers.items():
            main_grad = _Carrier(f"{name}.{_MAIN_GRAD}", carriers[0].holder, _MAIN_GRAD)
            if all(one.label != main_grad.label for one in carriers) and isinstance(main_grad.get(), Tensor):
                carriers.append(main_grad)

    def lead_home(self, names: Iterable[str], *, keep: bool) -> None:
        """Put gradients back into their region.

        Args:
            names: parameters of the step.
            keep: keep the values of replaced gradients (an accumulation goes on), else zero them.
        """
        for one in self._of(names):
            home, gradient = self._homes.get(one.label), one.get()
            if home is None or gradient is home:
                continue
            with torch.no_grad():
                if gradient is not None and keep:
                    home.copy_(gradient)
                else:
                    home.zero_()
            one.set(home)

    def take_home(self, names: Iterable[str], remember: Callable[[Callable[[], None]], None]) -> None:
        """Let go of gradients that are not in their region, without a look at any bytes.

        Args:
            names: parameters.
            remember: is given each undo before what it undoes is done.
        """
        for one in self._of(names):
            home, gradient = self._homes.get(one.label), one.get()
            if home is not None and gradient is not home:
                remember(_hanger(one, gradient))
                one.set(home)

    def strays(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """Gradients that are not in their region, by ``NAME.grad``: of all parameters, or of those named."""
        found = {one.name: one.get() for one in self._of(names) if one.get() is not self._homes.get(one.label)}
        return {name: one for name, one in found.items() if one is not None}

    def homes(self, names: Iterable[str]) -> list[Tensor]:
        """The gradients of these parameters in their region, which must be mapped to be used."""
        return [self._homes[one.label] for one in self._of(names) if one.label in self._homes]

    def keep(self, names: Iterable[str]) -> int:
        """Copy gradients to the host, before their region is paused.

        Returns:
            The bytes copied: exactly those gradients. Further ones than ``grad`` are copied if they hold anything.
        """
        held = [(one, self._homes[one.label]) for one in self._of(names) if one.label in self._homes]
        wanted = {one.label: home for one, home in held if one.is_own or _holds_anything(home)}
        self._kept = {label: home.detach().cpu().clone() for label, home in wanted.items()}
        return self.kept_bytes()

    def give_back(self) -> int:
        """After a resume: write kept gradients back, zero all others, whose bytes did not come back."""
        with torch.no_grad():
            for label, home in self._homes.items():
                if label in self._kept:
                    home.copy_(self._kept[label])
                else:
                    home.zero_()
        self.without_values = False
        return self.kept_bytes()

    def drop_kept(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """Forget kept gradients: of all parameters, or of those named.

        Returns:
            What was kept before, for :meth:`set_kept`.
        """
        before = dict(self._kept)
        gone = {one.label for one in self._of(names)}
        self._kept = {label: one for label, one in before.items() if label not in gone}
        return before

    def set_kept(self, kept: dict[str, Tensor]) -> None:
        """Undo of :meth:`drop_kept`."""
        self._kept = dict(kept)

    def kept_bytes(self) -> int:
        """Host bytes of kept gradients, 0 when nothing is accumulated."""
        return sum(one.numel() * one.element_size() for one in self._kept.values())

    def _of(self, names: Iterable[str] | None = None) -> Iterator[_Carrier]:
        for name in self._carriers if names is None else names:
            yield from self._carriers.get(name, ())


def _hanger(carrier: _Carrier, gradient: Tensor | None) -> Callable[[], None]:
    return lambda: carrier.set(gradient)


def _holds_anything(gradient: Tensor) -> bool:
    """Whether a bit is set: what comes back as zeros needs no copy."""
    return bool(gradient.reshape(-1).view(torch.uint8).any())


def _is_part(tensor: Tensor) -> bool:
    return 0 < span_bytes(tensor) < tensor.untyped_storage().nbytes()
