"""Pushing adapters to a vLLM server: what it is told, what counts as pushed, and what is left after a failure."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from lifecycle.errors import ConfigError, EngineError, EngineRefused, EngineUnanswered
from lifecycle.weights.digests import digest
from states.engine_memory import BASE_ONLY, EngineState
from tests.engines.vllm_server import BASE, FakeVllm, engine_on, payload, proven, push, tokens

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
BASE_VERSIONS = {"frozen-base": 11, "buffers": 12}


@pytest.fixture
def server() -> FakeVllm:
    return FakeVllm()


def _said(server: FakeVllm, path: str) -> list[int]:
    """What a request under the adapter that lies at this path gets."""
    return tokens(server.base, (Path(path) / "adapter_model.safetensors").read_bytes(), [1], 4)


def test_an_update_pauses_loads_flushes_and_admits_again(server: FakeVllm) -> None:
    """In this order, and only then the version counts (FB-32)."""
    engine = engine_on(server)
    engine.report()
    server.took()
    engine.begin_update()
    engine.load_adapter(payload())
    pending = engine.report().versions
    engine.commit_update()

    assert server.took() == ["/pause?mode=wait", LOAD, "/reset_prefix_cache", "/resume"]
    assert pending == BASE_VERSIONS
    assert engine.report().versions == BASE_VERSIONS | {"adapter/a": 20}
    assert engine.greedy("a", [[1]], 4) == (tuple(_said(server, server.adapters["a"])),)


def test_a_new_version_lies_at_a_new_path_and_takes_the_name_of_the_old_one(server: FakeVllm) -> None:
    """Never in place: a name that was loaded so is read again at every step, and overwritten before it is checked."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    old = server.adapters["a"]
    server.took()
    push(engine, payload(version=21, value=0.25))

    assert server.took() == ["/pause?mode=wait", UNLOAD, LOAD, "/reset_prefix_cache", "/resume"]
    assert Path(server.adapters["a"]).parts[-2:] == ("a", "v21")
    assert Path(old).parts[-2:] == ("a", "v20")


def test_files_are_the_owners_alone_and_go_when_nobody_can_ask_for_them(server: FakeVllm) -> None:
    """VLLM reads an adapter again that it had evicted, so those of the served version stay."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload(), payload("b"))
    first = Path(server.adapters["a"])
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (first.parent.parent, first.parent, first, *first.iterdir())]
    push(engine, payload(version=21), unload=("b",))
    second = Path(server.adapters["a"])
    kept = sorted(one.name for one in first.parent.parent.rglob("v*"))
    engine.close()

    assert modes == [0o700, 0o700, 0o700, 0o600, 0o600]
    assert kept == ["v21"]
    assert server.adapters == {}
    assert not second.exists()


def test_a_corrupt_adapter_is_refused_and_the_old_version_is_served_on(server: FakeVllm) -> None:
    """VLLM answers 500; that nothing is served under the name tells that it refused, and the old files are put back."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload(), payload("b"))
    before = engine.greedy("a", [[1]], 4)
    server.refuses = lambda path: path.name == "v21"
    with pytest.raises(EngineRefused, match=r"incomplete metadata.*the version before it is served on"):
        push(engine, payload(version=21, value=0.1))
    engine.abort_update()

    assert engine.report().versions == BASE_VERSIONS | {"adapter/a": 20, "adapter/b": 20}
    assert engine.greedy("a", [[1]], 4) == before
    assert not server.is_paused


def test_a_corrupt_adapter_that_is_new_leaves_nothing_under_its_name(server: FakeVllm) -> None:
    """And an update of which a call has failed is not committed."""
    engine = engine_on(server)
    engine.report()
    server.refuses = lambda _: True
    engine.begin_update()
    with pytest.raises(EngineRefused, match="nothing is served under this name"):
        engine.load_adapter(payload())
    with pytest.raises(EngineError, match="abort it and begin again"):
        engine.commit_update()
    engine.abort_update()

    assert server.adapters == {}


def test_an_old_version_that_cannot_be_put_back_leaves_the_engine_in_doubt(server: FakeVllm) -> None:
    """What is served under the name is then unknown."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    server.refuses = lambda _: True
    with pytest.raises(EngineUnanswered, match="and then its old one too"):
        push(engine, payload(version=21))

    assert engine.memory.state is EngineState.LOST


@pytest.mark.parametrize("at", ["hook", "after"])
@pytest.mark.parametrize("path", [LOAD, UNLOAD, "/reset_prefix_cache", "/pause", "/resume"])
def test_after_a_call_that_nobody_answered_the_next_push_repairs_it(server: FakeVllm, path: str, at: str) -> None:
    """Whether it was done or not: what is in doubt has no version, and is sent again."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload(), payload("b"))

    def fail(called: str) -> None:
        if called == path:
            raise httpx.ReadError("dropped")

    setattr(server, at, fail)
    with pytest.raises(EngineUnanswered):
        push(engine, payload(version=21, value=0.25))
    engine.abort_update()
    lost = engine.memory.state
    setattr(server, at, lambda _: None)
    doubted = engine.report().versions
    push(engine, payload(version=21, value=0.25))

    assert lost is EngineState.LOST
    assert doubted.get("adapter/a") in ((20, 21, None) if path == "/resume" else (20, None))
    assert doubted.items() >= {**BASE_VERSIONS, "adapter/b": 20}.items()
    assert engine.report().versions == BASE_VERSIONS | {"adapter/a": 21, "adapter/b": 20}
    assert engine.greedy("a", [[1]], 4) == (tuple(_said(server, server.adapters["a"])),)
    assert not server.is_paused


def test_an_answer_of_a_gateway_is_not_taken_for_a_refusal(server: FakeVllm) -> None:
    """500, and the adapter is there: somebody in between has failed, and nothing is known."""
    engine = engine_on(server)
    engine.report()
    load = server.v1_load_lora_adapter

    def answered(body: Any, params: Any) -> httpx.Response:
        load(body, params)
        return httpx.Response(500, text="bad gateway")

    server.v1_load_lora_adapter = answered  # type: ignore[method-assign]
    with pytest.raises(EngineUnanswered, match="bad gateway"):
        push(engine, payload())

    assert engine.memory.state is EngineState.LOST


def test_a_cache_that_was_not_reset_fails_the_update(server: FakeVllm) -> None:
    """FB-32: no reset, no commit; what was sent is not served, and a later push succeeds."""
    engine = engine_on(server)
    engine.report()
    server.resets = False
    with pytest.raises(EngineError, match="its prefix cache was not reset"):
        push(engine, payload())
    engine.abort_update()
    aborted, held_back = dict(server.adapters), server.is_paused
    server.resets = True
    push(engine, payload())

    assert (aborted, held_back) == ({}, True)
    assert engine.report().versions["adapter/a"] == 20


def test_a_restart_during_the_update_does_not_count_as_pushed(server: FakeVllm) -> None:
    """FB-51: the new instance holds nothing; the next push is to it."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    engine.begin_update()
    engine.load_adapter(payload("b"))
    server.restart()
    with pytest.raises(EngineError, match="restarted during the update"):
        engine.commit_update()
    engine.abort_update()

    assert engine.report().versions == BASE_VERSIONS
    assert engine.report().instance_id == "instance-2"


def test_a_restarted_server_holds_its_base_only_if_it_proves_it_again(server: FakeVllm) -> None:
    """FB-51: each instance for itself."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    server.restart()
    server.base = "weights-2"
    with pytest.raises(EngineError, match="start it on the model that the trainer began with"):
        engine.report()
    server.base = "weights-1"

    assert engine.report().versions == BASE_VERSIONS


@pytest.mark.parametrize("paused_by", ["a hand-over back", "a trainer that ended"])
def test_a_server_that_was_paused_before_it_was_asked_proves_its_base_in_the_push(
    server: FakeVllm, paused_by: str
) -> None:
    """It restarted and was put to sleep, or was left paused: the push needs the base, and the base the push (FB-51)."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    server.restart()
    if paused_by == "a trainer that ended":
        server.is_paused = True
    else:
        engine.release(("weights", "kv_cache"))
    engine.report()
    engine.resume(("weights",))
    lacking = engine.report().versions
    engine.begin_update()
    for group, version in BASE_VERSIONS.items():
        engine.send_base(group, version, [])
    engine.load_adapter(payload())
    engine.commit_update()

    assert lacking == {}
    assert engine.report().versions == BASE_VERSIONS | {"adapter/a": 20}
    assert not server.is_paused
    assert engine.greedy("a", [[1]], 4) == (tuple(_said(server, server.adapters["a"])),)


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize(("tags", "discard"), [(("weights", "kv_cache"), False), (("kv_cache",), True)])
def test_a_server_that_sleeps_before_its_first_push_proves_its_base_before_it_does(
    server: FakeVllm, tags: tuple[str, ...], *, is_paused: bool, discard: bool
) -> None:
    """In a hand-over the cache comes back after the push; a server without one answers no proof (FB-51)."""
    engine = engine_on(server)
    if is_paused:
        engine.pause()
    engine.release(tags, discard=discard)
    asleep = set(server.asleep)
    engine.resume(("weights",))

    assert asleep == set(tags)
    assert engine.report().versions == BASE_VERSIONS
    push(engine, payload())
    engine.resume(("kv_cache",))
    engine.unpause()
    assert engine.greedy("a", [[1]], 4) == (tuple(_said(server, server.adapters["a"])),)


def test_a_server_whose_base_is_another_one_can_be_released_and_holds_none(server: FakeVllm) -> None:
    """Its memory is wanted all the same; what it holds is refused when it is asked."""
    server.base = "weights-2"
    engine = engine_on(server)
    engine.release(("weights", "kv_cache"))
    engine.resume(("weights",))

    assert engine.report().versions == {}


def test_a_server_that_cannot_be_asked_for_its_proof_is_not_put_to_sleep_without_it(server: FakeVllm) -> None:
    """The next release asks again, and the next push has what it needs."""
    engine = engine_on(server)

    def fail(path: str) -> None:
        if path == "/v1/completions":
            raise httpx.ReadError("gone")

    server.hook = fail
    with pytest.raises(EngineUnanswered):
        engine.release(("weights", "kv_cache"))
    asleep = set(server.asleep)
    server.hook = lambda _: None
    engine.release(("weights", "kv_cache"))
    engine.resume(("weights",))

    assert asleep == set()
    assert engine.report().versions == BASE_VERSIONS


def test_a_paused_server_with_another_base_is_refused_and_stays_paused(server: FakeVllm) -> None:
    """The proof within the push counts as any other; whoever may not serve admits nobody."""
    server.base, server.is_paused = "weights-2", True
    engine = engine_on(server)
    engine.report()
    engine.resume(("weights",))
    engine.begin_update()
    with pytest.raises(EngineError, match="its base is not the trainer's"):
        engine.send_base("frozen-base", 11, [])
    engine.abort_update()

    assert server.is_paused
    assert engine.report().versions == {}


def test_an_adapter_that_a_push_left_behind_is_dropped_by_the_next(server: FakeVllm) -> None:
    """It was loaded, and nobody heard of it; the adapters of others are theirs."""
    engine = engine_on(server)
    engine.report()
    server.adapters["other"] = "/somewhere/else"

    def fail(called: str) -> None:
        if called == LOAD:
            raise httpx.ReadError("dropped")

    server.after = fail
    with pytest.raises(EngineUnanswered):
        push(engine, payload("stray"))
    server.after = lambda _: None
    left = set(server.adapters)
    push(engine, payload())

    assert left == {"other", "stray"}
    assert set(server.adapters) == {"other", "a"}


def test_adapters_of_a_trainer_that_is_gone_make_room_for_those_of_the_next(server: FakeVllm) -> None:
    """It was killed, or forgot close(); one that lives keeps its own."""
    gone, lives = engine_on(server), engine_on(server)
    for engine, name in ((gone, "a"), (lives, "b")):
        engine.report()
        push(engine, payload(name))
    del gone, engine
    engine = engine_on(server)
    engine.report()
    push(engine, payload(version=3))

    assert Path(server.adapters["a"]).parts[-2:] == ("a", "v3")
    assert sorted(server.adapters) == ["a", "b"]
    with pytest.raises(EngineRefused, match="already been loaded"):
        push(engine, payload("b"))


def test_what_the_server_lists_must_be_what_it_was_sent(server: FakeVllm) -> None:
    """Somebody else loads under the same name meanwhile: that is no commit (FB-56)."""
    engine = engine_on(server)
    engine.report()
    engine.begin_update()
    engine.load_adapter(payload())
    server.adapters["a"] = "/somewhere/else"
    with pytest.raises(EngineError, match="does not list what it was sent"):
        engine.commit_update()

    assert engine.memory.state is EngineState.LOST


def test_unloading_what_is_not_there_is_no_error(server: FakeVllm) -> None:
    """It is what was asked for."""
    engine = engine_on(server)
    engine.report()
    push(engine, unload=("nobody",))

    assert engine.report().versions == BASE_VERSIONS


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"q.lora_A.weight": torch.ones(3, 8)}, "its rank is 2"),
        ({"q.lora_B.weight": torch.ones(8, 3)}, "its rank is 2"),
        ({"q.lora_A.weight": torch.full((2, 8), float("nan"))}, "not finite"),
    ],
)
def test_what_vllm_would_take_without_a_word_is_refused_here(
    server: FakeVllm, tensors: dict[str, torch.Tensor], why: str
) -> None:
    """It copies a narrower factor into a wider slot; nothing is sent."""
    engine = engine_on(server)
    engine.report()
    engine.begin_update()
    server.took()
    with pytest.raises(EngineError, match=why):
        engine.load_adapter(payload(tensors=tensors))

    assert server.took() == []


def test_a_name_that_is_no_file_name_is_refused(server: FakeVllm) -> None:
    """It becomes a path."""
    engine = engine_on(server)
    engine.report()
    engine.begin_update()
    with pytest.raises(EngineError, match="the name has"):
        engine.load_adapter(payload("../a"))


def test_an_adapter_on_a_base_that_is_not_proven_is_refused(server: FakeVllm) -> None:
    """FB-28."""
    engine = engine_on(server, held_base=None)
    engine.report()
    engine.begin_update()
    with pytest.raises(EngineError, match="the base under it is undefined"):
        engine.load_adapter(payload())


def test_a_base_of_the_same_bytes_is_acknowledged_and_another_one_refused(server: FakeVllm) -> None:
    """Buffers get a version at every step and seldom other bytes; other bytes cannot be sent."""
    buffers = {"inv_freq": torch.arange(4.0)}
    engine = engine_on(server, held_base=proven(digests={"buffers": digest(buffers)}))
    engine.report()
    push(engine, payload())
    engine.begin_update()
    engine.send_base("buffers", 30, iter(buffers.items()))
    engine.commit_update()
    engine.begin_update()
    with pytest.raises(EngineError, match="base weights are not sent over HTTP"):
        engine.send_base("buffers", 31, iter({"inv_freq": torch.arange(5.0)}.items()))
    engine.abort_update()

    assert engine.report().versions == {"frozen-base": 11, "buffers": 30, "adapter/a": 20}


def test_an_update_that_was_left_open_is_given_up_by_the_next(server: FakeVllm) -> None:
    """What it had sent is not served."""
    engine = engine_on(server)
    engine.report()
    engine.begin_update()
    engine.load_adapter(payload("left"))
    push(engine, payload())

    assert set(server.adapters) == {"a"}
    assert engine.report().versions == BASE_VERSIONS | {"adapter/a": 20}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"lora_config": None}, "--enable-lora"),
        ({"parallel_config": {"_api_process_count": 2}}, "--api-server-count 1"),
        ({"device_config": {}}, "is not supported"),
    ],
)
def test_a_server_that_cannot_do_it_is_refused_at_the_first_question(config: dict[str, Any], why: str) -> None:
    """With what to start it with."""
    with pytest.raises(EngineError, match=why):
        engine_on(FakeVllm(**config)).report()


def test_an_endpoint_that_is_missing_says_how_to_have_it(server: FakeVllm) -> None:
    """The server was started without it."""
    server.server_info = lambda body, params: httpx.Response(404)  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="VLLM_SERVER_DEV_MODE=1"):
        engine_on(server).report()


def test_secrets_of_the_servers_configuration_are_not_kept(server: FakeVllm) -> None:
    """``/server_info`` tells all of it."""
    engine = engine_on(server)
    engine.report()

    assert "hf_secret" not in f"{engine!r} {vars(engine)} {engine._info}"


def test_requests_name_whom_they_want_and_what_they_expect(server: FakeVllm) -> None:
    """FB-30: an adapter that has a version, or the base on purpose; a stale one is refused before it is asked."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    server.took()
    for adapter, expected, why in (
        ("", {}, "nobody"),
        ("b", {}, "adapter 'b' has no valid version"),
        ("a", {"adapter/a": 19}, "stale"),
    ):
        with pytest.raises(EngineError, match=why):
            engine.generate([[1]], adapter, max_new_tokens=2, expected=expected)
    refused = server.took()
    answer = engine.generate([[1], [2]], "a", max_new_tokens=4, expected={"adapter/a": 20})

    assert refused == []
    assert answer.tokens == tuple(engine.greedy("a", [[one]], 4)[0] for one in (1, 2))
    assert answer.versions == BASE_VERSIONS | {"adapter/a": 20}
    assert engine.generate([[1]], BASE_ONLY, max_new_tokens=4).tokens == (tuple(tokens("weights-1", b"", [1], 4)),)


def test_an_answer_of_another_instance_does_not_count(server: FakeVllm) -> None:
    """FB-51: the server was restarted while it generated."""
    engine = engine_on(server)
    engine.report()
    server.after = lambda path: server.restart() if path == "/v1/completions" else None
    with pytest.raises(EngineError, match="restarted while it generated"):
        engine.generate([[1]], BASE_ONLY, max_new_tokens=2)

    server.after = lambda _: None
    assert engine.report().instance_id == "instance-2"


def test_greedy_tokens_are_answered_while_paused_and_the_pause_stays(server: FakeVllm) -> None:
    """A probe after a commit does not open an engine that is held."""
    engine = engine_on(server)
    engine.report()
    engine.pause()
    push(engine, payload())
    engine.greedy("a", [[1]], 2)

    assert server.is_paused
    assert engine.memory.state is EngineState.PAUSED
    with pytest.raises(EngineError, match="no valid version"):
        engine.greedy("b", [[1]], 2)


def test_a_server_that_is_left_serves_on_without_our_adapters(server: FakeVllm) -> None:
    """Also one that never proved its base: it is not ours to shut."""
    engine, stranger = engine_on(server), engine_on(server, held_base=None)
    engine.report()
    stranger.report()
    push(engine, payload())
    engine.close()
    left = (dict(server.adapters), server.is_paused)
    stranger.close()

    assert left == ({}, False)
    assert not server.is_paused


def test_a_server_that_is_left_asleep_or_dead_loses_the_files_all_the_same(server: FakeVllm) -> None:
    """What it can unload it unloads; nothing is raised."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    root = engine._files.root
    engine.release(["weights", "kv_cache"])
    engine.close()
    asleep = dict(server.adapters), list(root.iterdir())
    other = engine_on(server)
    server.hook = _nobody
    other.close()

    assert asleep == ({}, [])


def _nobody(_: str) -> None:
    raise httpx.ConnectError("nobody")


@pytest.mark.parametrize(
    ("prompts", "count", "heat"), [([], 1, 1.0), ([[]], 1, 1.0), ([[1]], 0, 1.0), ([[1]], 1, -1.0)]
)
def test_what_is_no_request_is_refused(server: FakeVllm, prompts: list[list[int]], count: int, heat: float) -> None:
    """Before anything is sent."""
    engine = engine_on(server)
    with pytest.raises(EngineError):
        engine.generate(prompts, BASE_ONLY, max_new_tokens=count, temperature=heat)

    assert server.calls == []


def test_checksums_are_told_where_the_server_can_tell_all_of_them() -> None:
    """Stacked tensors are none of the trainer's, what is packed away is hashed as nothing, adapters are not covered."""
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    place = "dp0:pp0:pcp0:tp0:"
    whole = {f"{place}model.embed_tokens.base_layer.weight": "aa", f"{place}model.norm.weight": "bb"}
    asked = [whole, whole | {f"{place}x.qkv_proj.weight": "cc"}, whole | {f"{place}x.weight": empty}, {}]
    told = [engine_on(FakeVllm(checksums=one)).checksums("frozen-base") for one in asked]

    assert told == [{"model.embed_tokens.weight": "aa", "model.norm.weight": "bb"}, None, None, None]
    assert engine_on(FakeVllm(checksums=whole)).checksums("adapter/a") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"versions": {}},
        {"versions": {"adapter/a": 1}},
        {"prompts": []},
        {"tokens": [[1], [1, 2]]},
        {"tokens": [[], []]},
    ],
)
def test_a_proof_that_proves_nothing_is_refused(wrong: dict[str, Any]) -> None:
    """When it is made."""
    with pytest.raises(ConfigError, match="held base"):
        proven(**wrong)


@pytest.mark.parametrize("wrong", [{"when_busy": "hope"}, {"drain_s": 0}, {"load_timeout_s": -1}, {"drain_s": "1"}])
def test_values_that_cannot_work_are_refused(server: FakeVllm, wrong: dict[str, Any]) -> None:
    """When it is built; the server is not asked."""
    with pytest.raises(ConfigError):
        engine_on(server, **wrong)

    assert server.calls == []


def test_the_base_is_asked_under_the_name_that_the_server_gives_it(server: FakeVllm) -> None:
    """Not under the trainer's."""
    engine = engine_on(server)
    engine.report()

    assert engine._model(BASE_ONLY) == BASE
