"""docs/transport.md is true: its code runs."""

from __future__ import annotations

import torch

from lifecycle.transport.receiving import Receiver
from tests.docs.blocks import code_of


def test_the_code_on_the_page_runs_as_it_stands() -> None:
    """Both sides in one process; how messages get across is given to it."""
    weights = {"a": torch.zeros(5, 3)}
    tensors = [("a", torch.randn(3, 5).t())]
    receiver = Receiver()

    def ask(what: str, message: dict[str, object]) -> dict[str, str] | None:
        if what == "probe":
            return receiver.digests(message)
        receiver.receive(message, lambda piece: piece.write_into(weights[piece.name]))
        return None

    (code,) = code_of("transport.md")
    sender, engine_process = code.split("# in the engine's process\n")
    given = {"ask": ask, "tensors": tensors, "instance_id": "one"}
    exec(sender, given)  # noqa: S102 - the page's own
    arrived, chosen = weights["a"].clone(), given["transport"].chosen  # type: ignore[attr-defined]
    (way,) = (one for one in given["ways"] if one.transport is chosen)  # type: ignore[attr-defined]
    message = next(way.parcels(tensors))
    weights["a"].zero_()
    exec(engine_process, {"Receiver": Receiver, "message": message, "weights": weights})  # noqa: S102 - the page's own
    way.settle()

    assert torch.equal(arrived, tensors[0][1])
    assert torch.equal(weights["a"], tensors[0][1])
