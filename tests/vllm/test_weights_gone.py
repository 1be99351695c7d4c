"""A real vLLM server that has thrown its weights away. The last module: nothing brings them back but a restart."""

from __future__ import annotations

import httpx
import pytest

from lifecycle.engines.verifying import BASE_ONLY
from lifecycle.errors import EngineError, TransitionFailed
from tests.vllm.server import RunningServer
from tests.vllm.world import world


def test_a_server_without_its_weights_serves_nothing(server: RunningServer) -> None:
    """On the CPU sleep level 2 gives nothing up; zeroed weights stand for it, and every way to serve them is shut."""
    with world(server.model, server.url) as made:
        made.trainer.update_weights([made.engine])
        made.engine.release(["weights", "kv_cache"], discard=True)
        httpx.post(f"{server.url}/weight_checker", json={"action": "reset"}).raise_for_status()
        made.engine.resume(["weights", "kv_cache"])

        assert made.engine.report().versions == {}
        assert httpx.get(f"{server.url}/is_paused").json() == {"is_paused": True}
        for name in (*made.names, BASE_ONLY):
            with pytest.raises(EngineError, match="while it is paused"):
                made.engine.generate([[1, 2]], name, max_new_tokens=1)
        with pytest.raises(TransitionFailed, match="its base is not the trainer's"):
            made.trainer.update_weights([made.engine])
        assert made.engine._held is not None
        with pytest.raises(EngineError, match="its base is not the trainer's"):
            made.engine.hold_base(made.engine._held)
        assert made.engine.report().versions == {}
