"""The events of adapters and engines, for the reference of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.cli.docs_raises import error_lines
from lifecycle.engines.protocol import RolloutEngine
from states.adapters import ADAPTER_TABLE, AdapterEvent, AdapterRefusal, AdapterState, decide_adapter
from states.engine_guards import EngineGuard
from states.engine_memory import EngineEvent, EngineState
from states.engine_table import ENGINE_TABLE, REMEDIES, TAG_TABLE
from states.event_words import ADAPTER_WORDS, ENGINE_WORDS, EventWords
from states.examples import refused_by_engine
from states.render import markdown_table

_ADAPTERS: Final = """## Events of an adapter

They move one registration in the registry, and no bytes. What is refused is an `AdapterRefused`, whose `refusal` has
the reason and the remedy; nothing has changed. They leave no record of their own: `reconcile_adapters` and
`update_weights` of the trainer name the adapters.
"""
_ENGINES: Final = """## Events of an engine

They move what is known of one engine, once it has acknowledged what was asked of it. What is refused is an
`EngineError` with every guard that failed, and nothing was sent. They leave no record of their own: `update_weights`
of the trainer tells what became of each engine.
"""


def adapter_sections() -> Iterator[str]:
    """Every event of a registration."""
    yield _ADAPTERS
    for event in AdapterEvent:
        yield from _beginning(event, ADAPTER_WORDS[event], AdapterRegistry)
        rows = [row for row in ADAPTER_TABLE if row.event is event]
        needs = ("a trainable registration" if row.needs_trainable else "" for row in rows)
        told = ((row.source or "unregistered", row.target, need) for row, need in zip(rows, needs, strict=True))
        yield markdown_table(("from", "to", "needs"), told)
        yield markdown_table(("refused where it is", "because", "what to do"), _refusals(event))
        yield from _errors(ADAPTER_WORDS[event], AdapterRegistry)


def _refusals(event: AdapterEvent) -> Iterator[tuple[str, str, str]]:
    for state in (None, *AdapterState):
        answer = decide_adapter(state, event)
        if isinstance(answer, AdapterRefusal):
            yield state or "unregistered", answer.because, answer.remedy
    frozen = [decide_adapter(row.source, event, trainable=False) for row in ADAPTER_TABLE if row.needs_trainable]
    for one in frozen[:1]:
        if isinstance(one, AdapterRefusal) and any(row.event is event and row.needs_trainable for row in ADAPTER_TABLE):
            yield "frozen", one.because, one.remedy


def engine_sections() -> Iterator[str]:
    """Every event of an engine."""
    yield _ENGINES
    for event in EngineEvent:
        rows = [row for row in ENGINE_TABLE if row.event is event]
        yield from _beginning(event, ENGINE_WORDS[event], RolloutEngine)
        moves = (
            (
                row.source,
                "(same)" if row.source is row.target else row.target,
                ", ".join(f"`{g.name}`" for g in row.when),
            )
            for row in rows
            if not row.settled
        )
        yield markdown_table(("from", "to", "taken when"), moves)
        tags = [row for row in TAG_TABLE if row.event is event]
        kinds = {True: "with a mirror", False: "without a mirror", None: "any"}
        if tags:
            told = ((kinds[row.mirrored], row.source, row.target) for row in tags)
            yield markdown_table(("tag", "from", "to"), told)
        guards = dict.fromkeys(guard for row in rows for guard in row.guards)
        if guards:
            yield markdown_table(("guard", "rule", "says", "what to do"), map(_guard_line, guards))
        settled = [f"`{row.source}`" for row in rows if row.settled]
        if settled:
            yield f"Already so in {', '.join(settled)}: nothing is sent.\n"
        elsewhere = [state for state in EngineState if state not in {row.source for row in rows}]
        if elsewhere:
            yield markdown_table(("refused where it is", "what to do"), ((one, REMEDIES[one]) for one in elsewhere))


def _guard_line(guard: EngineGuard) -> tuple[str, ...]:
    failed = refused_by_engine(guard)
    return f"`{guard.name}`", guard.rule, failed.because, failed.remedy


def _beginning(event: str, words: EventWords, sender: type) -> Iterator[str]:
    yield f"### `{event}`\n"
    yield f"{words.what}\n"
    calls = ", ".join(f"`{name}()`" for name in words.calls)
    yield f"Sent by {calls} of `{sender.__name__}`.\n" if calls else "Sent by the engine's own client.\n"


def _errors(words: EventWords, sender: type) -> Iterator[str]:
    rows = [*error_lines((f"{name}()", getattr(sender, name)) for name in words.calls)]
    if rows:
        yield markdown_table(("error", "of", "when"), rows)
