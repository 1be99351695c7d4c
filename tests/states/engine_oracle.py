"""What may be asked of an engine, said a second time: by what could go wrong there, not by guards and rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from states.engine_decision import EngineRefusal, EngineStep, decide_engine
from states.engine_memory import EngineAsk, EngineMemory
from states.engine_table import ENGINE_TABLE, TAG_TABLE, EngineRow, TagRow
from states.errors import TableError

MOVES = {
    ("open", "pause"): "paused",
    ("paused", "unpause"): "open",
    ("paused", "begin-update"): "updating",
    ("updating", "commit-update"): "paused",
    ("updating", "abort-update"): "paused",
}
"""Everything that takes an engine from one state to another, besides losing it and asking it."""

STAYS = {
    "open": "resume generate unpause abort-update",
    "paused": "release discard resume flush pause abort-update",
    "updating": "send-base load-adapter unload-adapter flush pause",
    "lost": "abort-update",
}
"""What may be asked in a state and leaves it, if nothing speaks against it."""

NOTHING_TO_DO = {"open": "unpause abort-update", "paused": "pause abort-update", "updating": "pause",
                 "lost": "abort-update"}  # fmt: skip
"""What holds already, whatever the engine holds."""

WRITES = "send-base load-adapter unload-adapter commit-update"


@dataclass(frozen=True)
class Ruling:
    """What could go wrong; if nothing: where it ends, which tags move whereto, and whether nothing is sent."""

    dangers: tuple[str, ...]
    target: str = ""
    reached: tuple[tuple[str, str], ...] = ()
    silent: bool = False


def rule_on(memory: EngineMemory, ask: EngineAsk) -> Ruling:
    """What may happen, and what comes of it."""
    target = _target(memory, ask)
    if not target:
        return Ruling(("it is not the time for it",))
    silent = str(ask.event) in NOTHING_TO_DO[memory.state].split()
    dangers = () if silent else tuple(_dangers(memory, ask))
    if dangers:
        return Ruling(dangers)
    reached = tuple(_reached(memory, ask))
    if ask.event in ("release", "discard", "resume"):
        silent = not reached
    if ask.event == "flush":
        silent = dict(memory.tags).get("kv_cache") in ("released", "discarded")
    return Ruling((), target, reached, silent)


def _target(memory: EngineMemory, ask: EngineAsk) -> str:
    if ask.event in ("lose", "restart"):
        return "lost"
    if ask.event == "probe":
        shut = "updating" if memory.state == "updating" else "paused"
        return "" if ask.said is None else "open" if ask.said.is_open else shut
    stays = str(ask.event) in STAYS[memory.state].split()
    return MOVES.get((str(memory.state), str(ask.event)), str(memory.state) if stays else "")


def _dangers(memory: EngineMemory, ask: EngineAsk) -> Iterator[str]:
    where = {tag: str(state) for tag, state in memory.tags}
    held = dict(memory.versions)
    match str(ask.event):
        case "release" | "discard" | "resume":
            if any(where.get(tag, "unknown") == "unknown" for tag in ask.tags):
                yield "nobody knows where this memory is"
        case "unpause" | "generate":
            yield from _serving(memory, ask, where, held)
        case "begin-update" if where["weights"] != "resident":
            yield "it would be written into memory that is not there"
        case "probe" if ask.said is not None and ask.said.instance_id != memory.instance_id:
            yield "another one answers for it"
        case event if event in WRITES.split():
            yield from _writing(memory, ask, where, held)


def _serving(memory: EngineMemory, ask: EngineAsk, where: dict[str, str], held: dict[str, int]) -> Iterator[str]:
    if set(where.values()) != {"resident"}:
        yield "it would compute with memory that is not there"
    if "frozen-base" not in held:
        yield "it would compute with bytes that mean nothing"
    if not memory.flushed:
        yield "it would answer from what other weights have computed"
    if ask.event == "generate":
        if ask.adapter not in ("@base", "a") or (ask.adapter == "a" and "adapter/a" not in held):
            yield "nobody is there to answer"
        if any(held.get(group) != version for group, version in ask.expected):
            yield "another version would answer"


def _writing(memory: EngineMemory, ask: EngineAsk, where: dict[str, str], held: dict[str, int]) -> Iterator[str]:
    sent = {group for group, version in memory.touched if version is not None}
    if where["weights"] != "resident":
        yield "it would be written into memory that is not there"
    if memory.broken:
        yield "half of it is missing already"
    if ask.event == "commit-update" and not memory.flushed:
        yield "it would answer from what other weights have computed"
    of_base = ask.group in ("frozen-base", "buffers")
    of_adapter = ask.group in ("adapter/a", "adapter/b")
    if (ask.event == "send-base" and not of_base) or ("adapter" in ask.event and not of_adapter):
        yield "nobody could say what was written"
    if ask.event in ("send-base", "load-adapter") and ask.version is None:
        yield "nobody could say which version was written"
    if ask.event == "load-adapter" and "frozen-base" not in held.keys() | sent:
        yield "it would lie on top of nothing"
    if ask.event == "send-base" and "adapter/a" in sent and not memory.keeps_adapters:
        yield "the adapter would lie on a base that is gone"


def _reached(memory: EngineMemory, ask: EngineAsk) -> Iterator[tuple[str, str]]:
    """The bytes of a tag are on the device, on the host, or nowhere; what is asked moves them between these."""
    on_device, on_host, nowhere = "resident", "released", "discarded"
    for tag, state in memory.tags:
        goes = {
            "release": (on_host if tag in memory.mirrored else nowhere) if state == on_device else state,
            "discard": nowhere,
            "resume": on_device,
        }.get(str(ask.event), state)
        if tag in ask.tags and goes != state:
            yield tag, str(goes)


def objection(
    memory: EngineMemory,
    ask: EngineAsk,
    table: tuple[EngineRow, ...] = ENGINE_TABLE,
    tag_table: tuple[TagRow, ...] = TAG_TABLE,
) -> str:
    """What is wrong with what the table decides: a word, a colon, and why. Empty when the oracle agrees."""
    ruling = rule_on(memory, ask)
    asked = f"{ask} of {memory}"
    try:
        answer = decide_engine(memory, ask, table=table, tag_table=tag_table)
    except TableError as error:
        return f"ambiguous: {error}"
    match answer:
        case EngineStep() if ruling.dangers:
            return f"unsafe: {ruling.dangers}: {asked}"
        case EngineRefusal() if not ruling.dangers:
            return f"needlessly refused: {answer}: {asked}"
        case EngineStep() if answer.target != ruling.target:
            return f"wrong target: {answer.target}, not {ruling.target}: {asked}"
        case EngineStep() if tuple((tag, str(state)) for tag, state in answer.moves) != ruling.reached:
            return f"wrong tags: {answer.moves}, not {ruling.reached}: {asked}"
        case EngineStep() if answer.settled is not ruling.silent:
            return f"{'not sent' if answer.settled else 'sent in vain'}: {asked}"
    return ""
