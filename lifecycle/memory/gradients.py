"""Gradients: kept in one scratch region, saved when an accumulation is under way.

Autograd adds in place into a gradient that exists. So each parameter's gradient has a home in the
region; a gradient that a loop has set to None or replaced is led home when a step opens or ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


class Gradients:
    """The gradients of all trainable parameters.

    Args:
        parameters: by name: trainable base and all slots.

    Attributes:
        without_values: their region was resumed, which brings no values back, and nobody wrote them since.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = parameters
        self._homes: dict[str, Tensor] = {}
        self._kept: dict[str, Tensor] = {}
        self.without_values = False

    def materialise(self) -> dict[str, Tensor]:
        """Make sure that every parameter has a gradient, zero where it had none.

        Returns:
            The gradients by ``NAME.grad``, to be placed.
        """
        for name, parameter in self._parameters.items():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            self._homes[name] = parameter.grad
        return {f"{name}.grad": home for name, home in self._homes.items()}

    def lead_home(self, names: Iterable[str], *, keep: bool) -> None:
        """Put gradients back into their region.

        Args:
            names: parameters of the step.
            keep: keep the values of replaced gradients (an accumulation goes on), else zero them.
        """
        for name in names:
            home, parameter = self._homes.get(name), self._parameters.get(name)
            if home is None or parameter is None or parameter.grad is home:
                continue
            with torch.no_grad():
                if parameter.grad is not None and keep:
                    home.copy_(parameter.grad)
                else:
                    home.zero_()
            parameter.grad = home

    def strays(self) -> dict[str, Tensor]:
        """Gradients that are not in their region, by ``NAME.grad``."""
        found = {}
        for name, parameter in self._parameters.items():
            if parameter.grad is not None and parameter.grad is not self._homes.get(name):
                found[f"{name}.grad"] = parameter.grad
        return found

    def homes(self, names: Iterable[str]) -> list[Tensor]:
        """The gradients of these parameters in their region, which must be mapped to be used."""
        return [self._homes[name] for name in names if name in self._homes]

    def keep(self, names: Iterable[str]) -> int:
        """Copy gradients to the host, before their region is paused.

        Returns:
            The bytes copied: exactly those gradients.
        """
        self._kept = {name: self._homes[name].detach().cpu().clone() for name in names if name in self._homes}
        return self.kept_bytes()

    def give_back(self) -> int:
        """After a resume: write kept gradients back, zero all others, whose bytes did not come back."""
        with torch.no_grad():
            for name, home in self._homes.items():
                if name in self._kept:
                    home.copy_(self._kept[name])
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
        gone = set(before if names is None else names)
        self._kept = {name: one for name, one in before.items() if name not in gone}
        return before

    def set_kept(self, kept: dict[str, Tensor]) -> None:
        """Undo of :meth:`drop_kept`."""
        self._kept = dict(kept)

    def kept_bytes(self) -> int:
        """Host bytes of kept gradients, 0 when nothing is accumulated."""
        return sum(one.numel() * one.element_size() for one in self._kept.values())
