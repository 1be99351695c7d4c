"""A real vLLM server that is killed, refuses an adapter, or has something before it that fails within a push."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lifecycle.adapters.folder import WEIGHTS_NAME
from lifecycle.engines.adapter_files import AdapterFiles
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import TransitionFailed
from states import TrainerState
from states.adapters import AdapterState
from tests.vllm.proxy import FAULTS, FaultyProxy
from tests.vllm.server import RunningServer
from tests.vllm.world import SHORT, World, world

HANG_S = 6.0
LOAD = "/v1/load_lora_adapter"


@pytest.fixture(scope="module")
def proxy(server: RunningServer) -> Iterator[FaultyProxy]:
    one = FaultyProxy(server.url)
    yield one
    one.close()


@pytest.fixture(scope="module")
def made(server: RunningServer, proxy: FaultyProxy) -> Iterator[World]:
    with world(server.model, proxy.url, timeout_s=HANG_S) as one:
        one.trainer.update_weights([one.engine])
        yield one


@pytest.fixture
def corrupting(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every adapter that is written is cut short."""
    write = AdapterFiles.write

    def cut(self: AdapterFiles, payload: AdapterPayload) -> Path:
        place = write(self, payload)
        weights = place / WEIGHTS_NAME
        weights.write_bytes(weights.read_bytes()[:-100])
        return place

    monkeypatch.setattr(AdapterFiles, "write", cut)
    return monkeypatch


def _train(made: World) -> dict[str, tuple[tuple[int, ...], ...]]:
    for name in made.names:
        made.train(name)
    return made.all_own(SHORT)


def _pending(made: World) -> set[str]:
    return set(made.host.registry.in_state(AdapterState.PENDING))


@pytest.mark.parametrize(
    ("path", "fault"),
    [*((LOAD, one) for one in FAULTS), ("/pause", "hang"), ("/pause", "drop-after"), ("/reset_prefix_cache", "hang")],
)
def test_a_push_that_fails_in_the_middle_leaves_all_consistent(
    made: World, proxy: FaultyProxy, path: str, fault: str
) -> None:
    """The trainer stays as it was, what is not confirmed is not counted as pushed, and the next pass repairs it."""
    own = _train(made)
    versions, before = made.versions(), made.engine.report().versions
    proxy.fail(path, fault, at=1 if path == LOAD else 0)
    try:
        made.trainer.update_weights([made.engine])
    except TransitionFailed:
        known = made.engine.memory.versions
        assert {group: one for group, one in known if before.get(group) != one and group.startswith("adapter/")} == {}
    else:
        assert path != LOAD  # what may be repeated was repeated

    assert (made.trainer.state, made.versions()) == (TrainerState.AWAKE, versions)

    made.trainer.update_weights([made.engine])

    assert made.all_served(SHORT) == own
    assert made.engine.report().versions == versions


def test_an_adapter_that_is_new_waits_until_its_push_is_confirmed(made: World, proxy: FaultyProxy) -> None:
    """The registry counts it as pending after a push that nobody confirmed, and as active after the next one."""
    made.change(retire=["c"], register=["fresh"])
    proxy.fail(LOAD, "drop-after")
    with pytest.raises(TransitionFailed):
        made.trainer.update_weights([made.engine])
    waiting = _pending(made)
    made.trainer.update_weights([made.engine])

    assert waiting == {"fresh"}
    assert _pending(made) == set()
    assert made.all_served(SHORT) == made.all_own(SHORT)


@pytest.mark.usefixtures("corrupting")
def test_a_corrupt_adapter_is_refused_and_the_old_version_keeps_serving(
    made: World, corrupting: pytest.MonkeyPatch
) -> None:
    """The server tells; what it held it holds, under the same name and version, and answers with it."""
    held, old = made.engine.report().versions, made.all_served(SHORT)
    own = _train(made)
    with pytest.raises(TransitionFailed, match="the version before it is served on"):
        made.trainer.update_weights([made.engine])
    after = made.engine.report().versions
    served = made.all_served(SHORT)
    corrupting.undo()
    made.trainer.update_weights([made.engine])

    assert {group: one for group, one in after.items() if group.startswith("adapter/")} == {
        group: one for group, one in held.items() if group.startswith("adapter/")
    }
    assert served == old
    assert own != old
    assert made.all_served(SHORT) == own


def test_a_server_that_is_restarted_during_a_push_gets_everything_again(
    made: World, server: RunningServer, proxy: FaultyProxy
) -> None:
    """It is killed before it loads the second adapter; what comes up in its place holds nothing, and is told so."""
    own, before = _train(made), made.engine.report().instance_id

    def kill(path: str) -> None:
        if path == LOAD and proxy.heard.count(LOAD) == loads + 2:
            server.kill()

    loads, proxy.before = proxy.heard.count(LOAD), kill
    with pytest.raises(TransitionFailed):
        made.trainer.update_weights([made.engine])
    server.start()
    made.trainer.update_weights([made.engine])

    assert made.engine.report().instance_id != before
    assert made.all_served(SHORT) == own
