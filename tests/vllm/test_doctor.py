"""The doctor at a real vLLM server."""

from __future__ import annotations

from lifecycle.doctor.look_engine import engine
from tests.vllm.server import RunningServer


def test_a_server_that_was_started_right_lacks_nothing(server: RunningServer) -> None:
    """Its version is known, and no endpoint was called to find out."""
    found = engine(server.url, None)

    assert found.kind == "vLLM"
    assert found.version.startswith("0.32")
    assert (found.missing, found.why, found.sleeps) == ((), "", True)
