"""Whether ranks may admit a new process in a lost one's place, and whether it is like them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from states.decision import Refusal
from states.facts import Facts
from states.guards import active_model_is_the_actor, no_reference_block_is_open, no_step_in_flight
from states.names import RESTING, TrainerState
from states.verdict import Answer, Guard, Verdict, guard

ADMIT: Final = "admit"
"""How refusals and the log call it; it is no event of the machine."""

_NAMED: Final = 3
_ABSENT: Final = "(nothing)"


@guard()
def no_gradient_is_accumulated(facts: Facts) -> Answer:
    """No accumulation is under way: a newcomer begins with gradients of zero."""
    held = ", ".join(facts.accumulated)
    because = f"gradients are accumulated for {held}" if held else "no gradients are accumulated"
    remedy = "take the optimizer step first; none opens while a rank is missing: resume all ranks from checkpoints then"
    return not facts.accumulated, because, remedy


@guard()
def no_backup_is_retained(facts: Facts) -> Answer:
    """Nothing hangs on what the saver retained of an earlier pause, which a newcomer never had."""
    groups = [one.group for one in facts.contents if one.retained]
    because = f"the saver retains the backup of the last pause of {', '.join(groups[:_NAMED])}" if groups else "none is"
    return not groups, because, "sleep() and offload() first, and admit then"


GUARDS: Final[tuple[Guard, ...]] = (
    no_step_in_flight,
    no_reference_block_is_open,
    active_model_is_the_actor,
    no_gradient_is_accumulated,
    no_backup_is_retained,
)
"""What is asked of each rank that admits. Docs and tests are derived from it."""


def decide_admission(
    state: TrainerState, facts: Facts, *, split: bool = False, unreadable: tuple[str, ...] = ()
) -> Refusal | None:
    """Why this rank cannot admit anybody now, None when it can. Equal arguments, equal answer.

    Args:
        state: the state it is in.
        facts: the record of this moment.
        split: its tensors are parts of larger ones, of which other ranks have the rest.
        unreadable: what would have to be handed over and cannot be read now, each with its name and why.
    """
    told = f"{'; '.join(unreadable[:_NAMED])}{f' and {len(unreadable) - _NAMED} more' if unreadable[_NAMED:] else ''}"
    verdicts = (
        _verdict("the-trainer-is-at-rest", state in RESTING, f"it is {state}", "recover() first, then admit"),
        *(one(facts) for one in GUARDS),
        _verdict(
            "each-rank-holds-the-same",
            not split,
            "each rank holds a part of every factor (tensor parallel), and nobody is left who has the lost rank's"
            if split
            else "no tensor is split over ranks",
            "build every rank anew and resume from checkpoints (register(name, resume=...))",
        ),
        _verdict(
            "what-is-handed-over-can-be-read",
            not unreadable,
            f"it cannot be read in {state}: {told}" if unreadable else "all of it can be read",
            "wake_up() first, and admit then",
        ),
    )
    return None if all(verdicts) else Refusal(state, ADMIT, "", verdicts)


def _verdict(name: str, holds: bool, because: str, remedy: str) -> Verdict:  # noqa: FBT001 - as Verdict itself
    return Verdict(name, holds, because, "" if holds else remedy)


def unlike(here: Mapping[str, object], there: Mapping[str, object]) -> tuple[str, ...]:
    """In what two ranks differ that must be alike, in words, sorted by name.

    Args:
        here: of this rank, by name.
        there: of the rank that hands over.
    """
    return tuple(_differences(here, there))


def _differences(here: Mapping[str, object], there: Mapping[str, object]) -> Iterator[str]:
    for name in sorted({*here, *there}):
        ours, theirs = here.get(name, _ABSENT), there.get(name, _ABSENT)
        if ours != theirs:
            yield f"{name} is {ours} here and {theirs} there"


def in_words(differences: tuple[str, ...]) -> str:
    """The first few differences, and how many more there are."""
    more = f"; and {len(differences) - _NAMED} more" if differences[_NAMED:] else ""
    return "; ".join(differences[:_NAMED]) + more
