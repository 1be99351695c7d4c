"""Requests to a vLLM server beside a pause, and answers that are none of its own."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
import torch

from lifecycle.engines.vllm import VllmEngine, admission
from lifecycle.errors import EngineError, EngineRefused, EngineUnanswered
from states.engine_memory import BASE_ONLY, EngineState, TagState
from tests.engines.vllm_server import FakeVllm, engine_on, payload, push, tokens

WEB_PAGE = httpx.Response(200, html="<html>we will be back soon</html>")


@pytest.fixture
def server() -> FakeVllm:
    return FakeVllm()


def _answered(server: FakeVllm, **fields: Any) -> httpx.Response:
    """One whole answer to one prompt, with other fields."""
    choice = {"index": 0, "token_ids": [1, 2, 3, 4], "finish_reason": "length"}
    return httpx.Response(200, json={"choices": [choice | fields]})


def _while_sent(server: FakeVllm, work: Any) -> threading.Thread:
    """A thread that begins *work* when a request was sent and has not arrived, and could end it before that."""
    thread = threading.Thread(target=work)

    def begin(path: str) -> None:
        if path == "/v1/completions":
            server.hook = lambda _: None
            thread.start()
            thread.join(0.3)

    server.hook = begin
    return thread


def test_a_push_waits_for_requests_that_have_not_arrived_yet(server: FakeVllm) -> None:
    """The server knows nothing of them; answered after the push, they would carry versions that did not answer."""
    engine = engine_on(server)
    engine.report()
    push(engine, payload(version=20, value=0.5))
    wanted = engine.greedy("a", [[1, 2]], 4)
    pushing = _while_sent(server, lambda: push(engine, payload(version=21, value=0.25)))
    answer = engine.generate([[1, 2]], "a", max_new_tokens=4, expected={"adapter/a": 20})
    pushing.join()

    assert (answer.tokens, answer.versions["adapter/a"]) == (wanted, 20)
    assert engine.report().versions["adapter/a"] == 21


def test_own_requests_that_do_not_end_refuse_a_pause(server: FakeVllm) -> None:
    """With their count, and without a call: the server serves on."""
    engine = engine_on(server, drain_s=1e-6)
    engine.report()
    refused: list[EngineError] = []

    def pause() -> None:
        with pytest.raises(EngineRefused, match=r"1 request\(s\) still run") as raised:
            engine.pause()
        refused.append(raised.value)

    pausing = _while_sent(server, pause)
    engine.generate([[1]], BASE_ONLY, max_new_tokens=1)
    pausing.join()

    assert len(refused) == 1
    assert not [one for one in server.calls if "/pause" in one]
    assert engine.memory.state is EngineState.OPEN


def test_own_requests_that_arrive_at_a_server_that_aborts_are_ended_too(
    server: FakeVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first hold does not find them; they would wait there for the next version."""
    monkeypatch.setattr(admission, "_ONCE_IDLE_S", 0.01)
    engine = engine_on(server, drain_s=0.01, when_busy="abort")
    engine.report()
    found, seen = threading.Event(), threading.Event()

    def late(_: Any, __: Any) -> httpx.Response:
        assert seen.wait(10)
        server.after = lambda path: found.set() if path == "/pause" else None
        assert found.wait(10)
        return _answered(server, token_ids=[], finish_reason="abort")

    server.v1_completions = late  # type: ignore[method-assign]
    server.after = lambda path: seen.set() if path == "/pause" else None
    pausing = _while_sent(server, engine.pause)
    answer = engine.generate([[1]], BASE_ONLY, max_new_tokens=4)
    pausing.join()

    assert answer.finished == ("abort",)
    assert engine.memory.state is EngineState.PAUSED


def test_a_pause_that_nobody_confirmed_is_waited_for_again(server: FakeVllm) -> None:
    """The server says that it sleeps from its first moment on, also while requests still run."""
    engine = engine_on(server)
    engine.report()
    server.after = lambda path: (_ for _ in ()).throw(httpx.ReadError("dropped")) if path == "/pause" else None
    with pytest.raises(EngineUnanswered):
        engine.begin_update()
    server.after = lambda _: None
    server.took()
    engine.begin_update()
    first = server.took()
    engine.abort_update()

    assert first == ["/pause?mode=wait"]


def test_a_server_that_was_paused_is_not_opened_by_a_pause_that_fails(server: FakeVllm) -> None:
    """What it holds may not be whole; only a pause of an open one gives it back as it was."""
    server.is_paused = True
    engine = engine_on(server, drain_s=1e-6)
    engine.report()
    server.busy = 1
    with pytest.raises(EngineRefused, match="it admits no others"):
        engine.release(["weights", "kv_cache"])

    assert server.is_paused


def test_fewer_greedy_tokens_than_asked_for_are_no_answer(server: FakeVllm) -> None:
    """VLLM ends an answer at --max-model-len, whatever was asked for: that is no other base, and no other adapter."""
    unproven = engine_on(server)
    engine = engine_on(server)
    engine.report()
    server.v1_completions = lambda _, __: _answered(server, token_ids=[1, 2])  # type: ignore[method-assign]
    with pytest.raises(EngineError, match=r"2 token\(s\), 4 were asked for.*--max-model-len"):
        engine.greedy(BASE_ONLY, [[1]], 4)
    server.v1_completions = lambda body, _: httpx.Response(  # type: ignore[method-assign]
        200, json={"choices": [{"index": at, "token_ids": [7]} for at in range(len(body["prompt"]))]}
    )
    with pytest.raises(EngineError, match="--max-model-len"):
        unproven.report()


@pytest.mark.parametrize("found", [None, {}, {"token_logprobs": None}, {"token_logprobs": [0.0]}, ["x"]])
def test_log_probabilities_that_were_asked_for_are_one_for_each_token(server: FakeVllm, found: Any) -> None:
    """Fewer would be taken for those of other tokens."""
    engine = engine_on(server)
    engine.report()
    server.v1_completions = lambda _, __: _answered(server, logprobs=found)  # type: ignore[method-assign]
    with pytest.raises(EngineUnanswered, match="log-probabilities"):
        engine.generate([[1]], BASE_ONLY, max_new_tokens=4, logprobs=True)

    assert engine.generate([[1]], BASE_ONLY, max_new_tokens=4).logprobs == ((),)


@pytest.mark.parametrize(
    ("endpoint", "answer"),
    [
        *(("v1_models", one) for one in ({}, {"data": None}, {"data": ["x"]}, {"data": [{"parent": None}]})),
        *(("v1_completions", {"choices": one}) for one in (None, ["x"], [{"token_ids": [1]}], [{"index": 0}])),
        ("v1_completions", {"choices": [{"index": 0, "token_ids": [1]}] * 2}),
        ("v1_completions", {"choices": [{"index": 1, "token_ids": [1]}]}),
    ],
)
def test_an_answer_of_another_shape_is_an_error_of_the_engine(server: FakeVllm, endpoint: str, answer: Any) -> None:
    """Another server, or another version of it; in words, not from deep inside."""
    engine = engine_on(server)
    engine.report()
    setattr(server, endpoint, lambda _, __: httpx.Response(200, json=answer))
    with pytest.raises(EngineUnanswered, match=r"0\.32"):
        _ = engine.report() if endpoint == "v1_models" else engine.generate([[1]], BASE_ONLY, max_new_tokens=1)


@pytest.mark.parametrize("answer", [WEB_PAGE, httpx.Response(200, json={"error": "try later"})], ids=["page", "json"])
@pytest.mark.parametrize("endpoint", ["pause", "resume", "sleep", "release_kv_cache_memory", "wake_up"])
def test_a_yes_of_somebody_in_between_is_not_the_servers(
    server: FakeVllm, endpoint: str, answer: httpx.Response
) -> None:
    """A gateway answers 200 while the server has heard nothing: nothing is taken for done, and all is unknown."""
    engine = engine_on(server)
    engine.report()
    steps = {
        "pause": engine.pause,
        "resume": lambda: push(engine, payload()),
        "sleep": lambda: engine.release(["weights", "kv_cache"]),
        "release_kv_cache_memory": lambda: engine.release(["kv_cache"]),
        "wake_up": lambda: _away_and_back(engine),
    }
    setattr(server, endpoint, lambda _, __: answer)
    with pytest.raises(EngineError):
        steps[endpoint]()

    assert engine.memory.state is EngineState.LOST
    assert set(dict(engine.memory.tags).values()) == {TagState.UNKNOWN}


def _away_and_back(engine: VllmEngine) -> None:
    engine.release(["weights", "kv_cache"])
    engine.resume(["weights", "kv_cache"])


@pytest.mark.parametrize(
    "wrong",
    [
        *({"prompts": one} for one in (5, [5], "abc", ["abc"], [[1.5]], [[-1]], [[None]], torch.ones(1, 2))),
        *({"temperature": one} for one in (float("nan"), float("inf"), "hot", None)),
        *({"max_new_tokens": one} for one in (2.5, "2", None)),
    ],
    ids=repr,
)
def test_what_is_no_request_is_refused_in_words(server: FakeVllm, wrong: dict[str, Any]) -> None:
    """Before anything is sent, whatever its type."""
    asked: dict[str, Any] = {"prompts": [[1]], "max_new_tokens": 1, "temperature": 1.0} | wrong
    with pytest.raises(EngineError, match=r"give at least one|must be at least 1"):
        engine_on(server).generate(asked.pop("prompts"), BASE_ONLY, **asked)

    assert server.calls == []


def test_prompts_may_be_integer_tensors(server: FakeVllm) -> None:
    """As a tokenizer gives them."""
    engine = engine_on(server)
    engine.report()

    assert engine.greedy(BASE_ONLY, torch.tensor([[1, 2]]), 4) == (tuple(tokens("weights-1", b"", [1, 2], 4)),)  # type: ignore[arg-type]
