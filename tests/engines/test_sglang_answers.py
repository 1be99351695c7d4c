"""What an SGLang server answers is believed as far as it goes, and no further."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lifecycle.engines import BASE_ONLY
from lifecycle.engines.sglang.mark import Mark, read_mark
from lifecycle.engines.sglang.server import answers, server_of
from lifecycle.errors import EngineError, EngineRefused, EngineUnanswered
from states import FROZEN_BASE
from states.engine_memory import TagState
from tests.engines.sglang_host import Fault, SglangHost, sglang
from tests.engines.sglang_world import PROMPT, adapter, answer, base, engine_at, push, right, started


@pytest.fixture
def host() -> Iterator[SglangHost]:
    """A server with a host mirror of its weights."""
    with sglang(started()) as made:
        yield made


def test_a_mark_is_read_back_as_it_was_written() -> None:
    """With every state of a tag, and names that have dots and dashes in them."""
    tags = dict(zip(("weights", "kv_cache", "cuda_graph", "more"), TagState, strict=True))
    mark = Mark("run", 7, tags, {"frozen-base": 1, "adapter/a.b-c_d": 12})

    assert read_mark(str(mark)) == mark
    assert read_mark(str(mark.next())) == Mark("run", 8, tags, mark.versions)


@pytest.mark.parametrize(
    "text",
    ["default", "", "adapter-lifecycle", "adapter-lifecycle run", "adapter-lifecycle run x", "other run 1",
     "adapter-lifecycle run 1 weights=somewhere", "adapter-lifecycle run 1 weights", "adapter-lifecycle run 1 A@x"],
)  # fmt: skip
def test_what_is_no_mark_is_not_taken_for_one(text: str) -> None:
    """Somebody else has written it; half a mark is none."""
    assert read_mark(text) is None


def test_a_server_that_cannot_be_told_from_another_is_refused() -> None:
    """Neither a start's durations nor a seed: versions could not be held against an instance."""
    with pytest.raises(EngineError, match="startup_time"):
        server_of("E0", {"version": "0.4"})


def test_what_a_server_does_not_say_is_not_made_up() -> None:
    """No sizes, no limits, no saver, no mirror, no adapters."""
    found = server_of("E0", {"random_seed": 1, "internal_states": [{}], "max_loaded_loras": True})

    assert (found.device_bytes, found.adapter_slots, found.rank_max) == ({}, None, None)
    assert [found.has_saver, found.has_mirror, found.takes_adapters] == [False] * 3


@pytest.mark.parametrize(
    "said", [b"no json", b"{}", b"[]", b"[1]", b'[{"output_ids": [1]}]', b'[{"output_ids": "a", "meta_info": {}}]']
)
def test_an_answer_that_is_none_is_an_error(said: bytes) -> None:
    """Never an empty continuation."""
    with pytest.raises(EngineUnanswered):
        answers("E0", httpx.Response(200, content=said), 1)


def test_a_refused_move_changes_nothing_here_and_there(host: SglangHost) -> None:
    """What was written down before it is taken back."""
    engine = engine_at(host)
    host.faults["/release_memory_occupation"] = [Fault(403)]
    with pytest.raises(EngineRefused):
        engine.release(["kv_cache"])

    assert engine_at(host).report().unknown == ""
    assert engine.report().resident == {"weights", "kv_cache", "cuda_graph"}


def test_a_refusal_that_nobody_expects_is_passed_on(host: SglangHost) -> None:
    """Only a weight update that was left open is closed and opened again."""
    engine = engine_at(host)
    engine.begin_update()
    host.faults["/begin_weight_update"] = [Fault(403)]
    with pytest.raises(EngineRefused, match="403"):
        engine.send_base(FROZEN_BASE, 2, base(5).items())

    assert "/end_weight_update" not in host.asked()


def test_an_adapter_that_cannot_be_written_is_refused_before_anything_is_unloaded(host: SglangHost) -> None:
    """Its name leads elsewhere; what is served stays."""
    engine = engine_at(host)
    push(engine, adapter("A", 3))
    engine.begin_update()
    with pytest.raises(EngineError, match="name"):
        engine.load_adapter(adapter("../A", 4))
    engine.abort_update()
    push(engine)

    assert answer(engine, "A") == right(0, adapter("A", 3))


def test_a_probe_that_ends_early_is_no_probe(host: SglangHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer tokens would compare equal to the beginning of another answer."""
    engine = engine_at(host)
    engine.report()
    whole = host.process._continue

    def cut(*given: Any) -> dict[str, Any]:
        found = whole(*given)
        return found | {"output_ids": found["output_ids"][:-1]}

    monkeypatch.setattr(host.process, "_continue", cut)
    with pytest.raises(EngineError, match="3 token"):
        answer(engine, BASE_ONLY)


def test_a_success_that_denies_itself_is_a_refusal(host: SglangHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older servers answer 200 also where they did nothing."""
    engine = engine_at(host)
    engine.begin_update()
    said = {"success": False, "error_message": "no such rank"}
    monkeypatch.setattr(host.process, "_load", lambda *_, **__: said)
    with pytest.raises(EngineRefused, match="no such rank"):
        engine.load_adapter(adapter("A", 1))


def test_an_engine_is_closed_at_the_end_of_its_block(host: SglangHost) -> None:
    """Its connections are; the server goes on, and its name is in no message beside its address."""
    with engine_at(host, client=None) as engine:
        engine.report()
    with pytest.raises(RuntimeError, match="closed"):
        engine.report()

    assert repr(engine) == f"SglangEngine('E0', '{host.url}')"
    assert host.process.dead == ""


def test_an_answer_of_a_version_that_was_pushed_meanwhile_is_refused(host: SglangHost) -> None:
    """The request came late, waited at the paused server, and was answered by what it was not meant for."""
    engine = engine_at(host)
    engine.report()
    push(engine, adapter("A", 5))
    send = engine._calls.generate

    def late(*how: Any) -> Any:
        push(engine, adapter("A", 6))
        return send(*how)

    engine._calls.generate = late  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="adapter/A was 6, asked was 5"):
        engine.generate([PROMPT], "A", max_new_tokens=4, expected={"adapter/A": 5})
    engine._calls.generate = send  # type: ignore[method-assign]

    assert answer(engine, "A") == right(0, adapter("A", 6))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"prompts": one} for one in (5, [[]], [["x"]], [[1.5]])),
        {"temperature": float("nan")},
        {"max_new_tokens": 2.5},
    ],
    ids=repr,
)
def test_what_is_no_request_is_refused_in_words(host: SglangHost, wrong: dict[str, Any]) -> None:
    """Before anything is sent, whatever its type."""
    asked: dict[str, Any] = {"prompts": [PROMPT], "max_new_tokens": 1} | wrong
    with pytest.raises(EngineError, match=r"give at least one|must be at least 1"):
        engine_at(host).generate(asked.pop("prompts"), BASE_ONLY, **asked)
