"""One server behind a URL for all ranks of a group: rank 0 alone calls it, with a token that nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.engines.vllm import HeldBase
from lifecycle.ray import GroupError, TrainerGroup, UrlEngine
from tests.engines.vllm_server import PROMPTS, FakeVllm, tokens
from tests.ray.vllm_http import vllm_at_a_url
from tests.ray.world import ADAPTERS, build

pytestmark = pytest.mark.timeout(300)  # each rank's process imports torch for itself

TOKEN = "a-token-of-this-test"  # noqa: S105 - of a server that lives for a second
OPTIONS = {"num_cpus": 0, "runtime_env": {"env_vars": {"VLLM_TOKEN": TOKEN}}}


def test_a_server_gets_each_push_once_and_is_left_as_it_was_found(cluster: None, tmp_path: Path) -> None:
    """Its files are those of the newest version; the token is in no message and in no log."""
    server = FakeVllm()
    proof = [tokens(server.base, b"", one, 4) for one in PROMPTS]
    with (
        vllm_at_a_url(server, TOKEN) as url,
        TrainerGroup(build, 2, timeout_s=8.0, options=OPTIONS) as group,
    ):
        group.call("fresh", ADAPTERS)
        group.call("train", *ADAPTERS)
        base = HeldBase({"frozen-base": group.versions()[0]["frozen-base"]}, PROMPTS, proof)
        options = {"held_base": base, "directory": tmp_path}
        engine = UrlEngine("V", url, token_variable="VLLM_TOKEN", options=options)  # noqa: S106 - a variable's name
        group.sleep(offload=True)
        pushed = group.update_weights([engine])
        told = repr([engine, pushed, group.call("records")])
        loads = [one for one in server.took() if one.startswith("/v1/load")]
        failed = _failed(group, UrlEngine("W", url, options=options))

    assert sorted(pushed.engines["V"].sent) == ["adapter/A", "adapter/B"]
    assert len(loads) == 2
    assert "401" in failed
    assert TOKEN not in told + failed
    assert server.adapters == {}


def _failed(group: TrainerGroup, engine: UrlEngine) -> str:
    try:
        group.update_weights([engine])
    except GroupError as error:
        return f"{error} {error.errors!r}"
    return ""
