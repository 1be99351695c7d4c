"""The reference of events, drawn from the tables, the guards and the docstrings of what sends and does them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.cli.docs_events_others import adapter_sections, engine_sections
from lifecycle.cli.docs_raises import error_lines, first_paragraph, raised_by
from lifecycle.controller import TrainerLifecycle
from lifecycle.transition.effects import EFFECTS
from lifecycle.transition.runner import Runner
from states.adapters import AdapterEvent
from states.decision import Refusal, decide
from states.effects import REVERSAL, Effect
from states.engine_memory import EngineEvent
from states.event_words import ADAPTER_WORDS, EFFECT_RECORDS, TRAINER_WORDS
from states.examples import NOTHING_ASKED, refused_by
from states.names import TrainerEvent, TrainerState
from states.render import GENERATED, Edge, edges, markdown_table
from states.row import RowKind
from states.table import TABLE
from states.verdict import Guard

_INTRO: Final = """# Every event

What can be asked of a trainer, an adapter and an engine: who sends it, when it is taken, what it needs and what to do
where that does not hold, what is done, and what its record says. The same in tables: [states](states.md),
[adapters](adapters.md), [engine memory](engine-memory.md). Each error has its own section in [errors](errors.md).
"""
_HOW: Final = """## How an event of the trainer goes

One event at a time. Selectors choose the edge: those of at most one hold. Then every guard of the edge is asked. If one
does not hold, `EventRefused` names all that failed and what to do, and nothing has changed. What a guard "says" below
is an example. Then effects run in order. What fails is undone in reverse (`TransitionFailed`, the state is as before);
a failed undo or wrong bytes leave the trainer `faulted` (`TrainerFaulted`). What holds already is no error: the call
returns an `Unchanged` instead of a `Moved`.

On the record: `began` before the first effect, then `moved` or `failed`; a refusal is one `refused` record, and what
holds already one `unchanged` record. All have `trigger` (the event), `edge`, `source` and `target`; what was decided
has `verdicts` and `facts`; a `moved` one has `bytes`, `held`, `moved`, `versions`, `duration_s` and `details`
([audit log](audit-log.md)). What an effect adds to `moved` (bytes by kind) and `details` stands beside it.

What may be raised by any of them:
"""

_COMMON: Final[tuple[tuple[str, Callable[..., Any]], ...]] = (("any event", Runner.send),)


def events_page() -> str:
    """The page ``docs/events.md``."""
    common = markdown_table(("error", "when"), ((error, when) for error, _, when in error_lines(_COMMON)))
    parts = [f"{GENERATED}\n{_INTRO}", _contents(), _HOW, common, "## Events of the trainer\n"]
    for event in TrainerEvent:
        parts += trainer_section(event)
    return "\n".join((*parts, *adapter_sections(), *engine_sections()))


def _contents() -> str:
    every = (("trainer", TrainerEvent), ("adapter", AdapterEvent), ("engine", EngineEvent))
    rows = ((of, ", ".join(f"[`{one}`](#{one})" for one in events)) for of, events in every)
    return markdown_table(("of", "events"), rows)


def trainer_section(event: TrainerEvent) -> Iterator[str]:
    """One event of the trainer."""
    words, moves = TRAINER_WORDS[event], [one for one in edges(RowKind.MOVE) if one.event is event]
    calls = [(f"{name}()", getattr(TrainerLifecycle, name)) for name in words.calls]
    yield f"### `{event}`\n"
    yield f"{words.what}\n"
    yield f"Sent by {', '.join(f'`{name}`' for name, _ in calls) or 'the trainer itself'}.\n"
    yield markdown_table(("edge", "from", "to", "taken when"), map(_edge_line, moves))
    yield from _guards(moves)
    yield from _effects(moves)
    yield from _stays(event)
    done = dict.fromkeys(effect for one in moves for effect in one.effects)
    errors = [*error_lines((*calls, *((str(effect), EFFECTS[effect]) for effect in done)))]
    if errors:
        yield "Errors of its own; one of an effect is the `cause` of a `TransitionFailed` or `TrainerFaulted`:\n"
        yield markdown_table(("error", "of", "when"), errors)


def events_raising() -> dict[str, list[str]]:
    """Error to the events of which it may come, by docstrings. What any event may raise is left out."""
    found: dict[str, dict[str, None]] = {}
    for event, functions in _behind_events():
        for error in (name for one in functions for name in raised_by(one)):
            found.setdefault(error, {})[event] = None
    common = raised_by(Runner.send)
    return {error: list(events) for error, events in found.items() if error not in common}


def _behind_events() -> Iterator[tuple[str, list[Callable[..., Any]]]]:
    """Each event, what sends it and what does it. Engines raise what their clients say."""
    for event, words in TRAINER_WORDS.items():
        moves = (one for one in edges(RowKind.MOVE) if one.event is event)
        effects = dict.fromkeys(effect for one in moves for effect in one.effects)
        yield event, [*(getattr(TrainerLifecycle, name) for name in words.calls), *(EFFECTS[one] for one in effects)]
    for adapter_event, words in ADAPTER_WORDS.items():
        yield adapter_event, [getattr(AdapterRegistry, name) for name in words.calls]


def _edge_line(edge: Edge) -> tuple[str, ...]:
    rules = (f"`{name}`: {_rule(name)}" for name in edge.when)
    target = "(same)" if edge.stays else ", ".join(edge.targets)
    return f"`{edge.name}`", ", ".join(edge.sources), target, "<br>".join(rules)


_GUARDS: Final[dict[str, Guard]] = {guard.name: guard for row in TABLE for guard in (*row.when, *row.guards)}


def _rule(name: str) -> str:
    """What a selector says; one of several states names all of them."""
    if name in _GUARDS:
        return plain(_GUARDS[name].rule)
    first = next(one for one in _GUARDS if one.startswith(name.removesuffix("(to)")))
    state = first.removeprefix(name.removesuffix("(to)"))
    return plain(_GUARDS[first].rule.replace(state, "the state in the column before"))


def plain(rule: str) -> str:
    """A rule as Markdown."""
    return rule.replace("``", "`")


def _guards(moves: Iterable[Edge]) -> Iterator[str]:
    """Every guard of its edges: the rule, what it says where it does not hold, and what to do."""
    asked: dict[str, list[str]] = {}
    every = [*moves]
    for edge in every:
        for name in edge.guards:
            asked.setdefault(name, []).append(edge.name)
    rows = []
    for name, on in asked.items():
        failed = refused_by(_GUARDS[name])
        names = dict.fromkeys(on)
        only = "" if len(on) == len(every) else f" (on {', '.join(f'`{one}`' for one in names)})"
        rows.append((f"`{name}`{only}", plain(_GUARDS[name].rule), failed.because, failed.remedy))
    if rows:
        yield markdown_table(("guard", "rule", "says", "what to do"), rows)


def _effects(moves: Iterable[Edge]) -> Iterator[str]:
    """Every effect of its edges, in the order in which they run."""
    every = [*moves]
    if not any(edge.effects for edge in every):
        yield "It has no effects.\n"
        return
    rows = []
    for number, effect in enumerate(in_order(every), start=1):
        on = dict.fromkeys(f"`{edge.name}`" for edge in every if effect in edge.effects)
        only = "" if all(effect in edge.effects for edge in every) else f" (on {', '.join(on)})"
        record = "<br>".join(f"`{key}`: {meaning}" for key, meaning in EFFECT_RECORDS[effect].items())
        reversal = REVERSAL[effect].name.lower()
        rows.append((str(number), f"`{effect}`{only}", first_paragraph(EFFECTS[effect]), reversal, record))
    yield markdown_table(("", "effect", "what it does", "if what follows fails", "in its record"), rows)


def in_order(moves: Iterable[Edge]) -> tuple[Effect, ...]:
    """The effects of all edges of an event, each once: those of the longest, in whose order the others have theirs."""
    return max((edge.effects for edge in moves), key=len)


def _stays(event: TrainerEvent) -> Iterator[str]:
    """Where it finds what it asks for, and where it is refused whatever the facts are."""
    settled = [one for one in edges(RowKind.SETTLED) if one.event is event]
    for one in settled:
        when = f", if {' and '.join(f'`{name}`' for name in one.when)}" if one.when else ""
        yield f"Already so in {_listed(one.sources)}{when}: an `Unchanged`, and one `unchanged` record.\n"
    refused: dict[str, list[TrainerState]] = {}
    taken = {row.source for row in TABLE if row.event is event and row.kind is not RowKind.REFUSING}
    for state in TrainerState:
        answer = decide(state, event, NOTHING_ASKED)
        if state not in taken and isinstance(answer, Refusal):
            refused.setdefault(answer.remedy, []).append(state)
    for remedy, states in refused.items():
        yield f"Always refused in {_listed(states)}: {remedy}.\n"


def _listed(states: Iterable[TrainerState]) -> str:
    return ", ".join(f"`{state}`" for state in states)
