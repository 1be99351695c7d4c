"""A training step as a block: it is in flight inside, and committed or aborted when the block ends."""

from __future__ import annotations

from lifecycle.errors import LifecycleError


class TrainingStep:
    """What ``with lifecycle.step(adapters) as step`` gives.

    Say :meth:`stepped` after ``optimizer.step()`` or :meth:`accumulated` after a backward pass that
    only adds to gradients. A block that says neither counts as stepped: that takes new version ids,
    which at worst sends unchanged bytes once more.
    """

    def __init__(self, adapters: tuple[str, ...]) -> None:
        self.adapters = adapters
        self.kind = ""

    def stepped(self) -> None:
        """The optimizer has changed the weights."""
        self._say("stepped")

    def accumulated(self) -> None:
        """Gradients were added to; no weight has changed."""
        self._say("accumulated")

    def _say(self, kind: str) -> None:
        if self.kind not in ("", kind):
            raise LifecycleError(f"this step was said to be {self.kind} already and cannot be {kind} too; open another")
        self.kind = kind
