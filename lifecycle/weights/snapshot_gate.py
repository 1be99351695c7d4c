"""What a user may do with the snapshots of a trainer, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lifecycle.errors import EventRefused
from lifecycle.transition.gather import gather
from lifecycle.transition.parts import Parts, Request
from lifecycle.transition.runner import Runner
from states import ACTOR, ContentFacts, Facts, Refusal, Source, Verdict


class SnapshotGate:
    """Guards the snapshots like an event: one at a time, refused with a reason, on the record.

    - No call while a step is open: half-trained bytes are of no version.
    - The ``actor`` copy is spared while another model is in live memory, it may be the only one.
    - A copy that somebody leases is neither replaced nor dropped.
    - The last fresh readable copy of a group is neither replaced nor dropped.
    - A restore does not change which model is active (``switch_model`` does), and does not overwrite
      bytes that no copy holds or that somebody reads.

    Effects of the controller come here inside their own event and pass.

    Args:
        parts: the trainer.
        runner: whose turn it is.
    """

    def __init__(self, parts: Parts, runner: Runner) -> None:
        self._parts = parts
        self._runner = runner

    @contextmanager
    def passing(self, call: str, tag: str) -> Iterator[None]:
        """Hold the turn while the call is made.

        Raises:
            EventRefused: it may not be made now; nothing changed.
        """
        if self._runner.turn.is_mine():
            yield
            return
        with self._runner.turn.of(f"snapshots.{call}"):
            facts = gather(self._parts, Request())
            because, remedy = _against(call, tag, facts)
            if because:
                verdict = Verdict("snapshots-are-safe", holds=False, because=because, remedy=remedy)
                refusal = Refusal(self._runner.machine.state, f"snapshots.{call}", "", (verdict,))
                self._runner.recorder.refused(refusal, facts)
                raise EventRefused(refusal)
            yield
            self._runner.recorder.noted(f"snapshots.{call}", tag=tag)


def _against(call: str, tag: str, facts: Facts) -> tuple[str, str]:
    """Why the call may not be made, and what to do; both empty when it may."""
    if facts.step_open:
        return "a step is open", "leave the step() block first"
    if call == "restore":
        return _against_restore(tag, facts)
    if tag == ACTOR and facts.active_model != ACTOR:
        return f'"{facts.active_model}" is in live memory, the "actor" copy is spared', 'switch_model("actor") first'
    readers = [one.describe() for one in facts.leases if one.source == f"snapshot:{tag}"]
    if readers:
        return f"it is read by: {', '.join(readers)}", "close the lease first"
    last = [one.group for one in facts.contents if call != "backup" and _is_last_copy(one, tag)]
    if last:
        return f"it is the last readable copy of: {', '.join(last)}", "wake_up() first"
    return "", ""


def _against_restore(tag: str, facts: Facts) -> tuple[str, str]:
    if tag != facts.active_model:
        return f'"{facts.active_model}" is the active model', f'switch_model("{tag}") instead'
    replaced = [one for one in facts.contents if one.copy_version(tag) not in (None, one.live)]
    lost = [one.group for one in replaced if one.live is not None and one.live not in one.kept_versions()]
    if lost:
        return f"would be overwritten without a copy: {', '.join(lost)}", f'backup("{tag}") first'
    readers = [one.describe() for one in facts.leases if one.source == Source.LIVE]
    if replaced and readers:
        return f"live weights are read by: {', '.join(readers)}", "close the lease first"
    return "", ""


def _is_last_copy(content: ContentFacts, tag: str) -> bool:
    if tag not in content.fresh_copies():
        return False
    others = [one for one in content.fresh_copies() if one != tag]
    return not others and content.version not in (content.live, content.saver, content.file)
