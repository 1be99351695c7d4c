"""Whether an engine holds what it was sent: its instance, its versions, and as far as it can be asked its bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from torch import Tensor

from lifecycle.engines.protocol import EngineReport, RolloutEngine
from lifecycle.engines.verifying import BASE_ONLY, AnswersChecksums, AnswersGreedily
from lifecycle.errors import EngineUnconfirmed
from lifecycle.probes import GreedyProbe, Recorded, Tokens, as_tokens, base_group
from lifecycle.transition.fences import EVERYTHING
from lifecycle.transition.parts import Parts
from lifecycle.transition.payloads import Checksums
from lifecycle.transition.probing import known_base
from states import ADAPTER_PREFIX, Verify

CHECKSUM, PROBE, UNVERIFIED = "checksum", "probe", "unverified: "
_NAMED = 3


def check_report(engine: str, report: EngineReport, instance_id: str, desired: Mapping[str, int]) -> None:
    """Compare what an engine says after its commit with what it was sent.

    Args:
        engine: its name.
        report: its answer.
        instance_id: who took part in the push.
        desired: content group to the version that it should hold.

    Raises:
        EngineUnconfirmed: another instance answers, it does not know what it holds, or it holds something else.
    """
    if report.instance_id != instance_id:
        why = f"it restarted during the push: {instance_id} took part, {report.instance_id} answers and holds nothing"
        raise EngineUnconfirmed(engine, f"{why}; send update_weights again")
    if report.unknown:
        raise EngineUnconfirmed(engine, f"after the commit it does not know what it holds: {report.unknown}")
    strange = {group for group in report.versions if group.startswith(ADAPTER_PREFIX)} - desired.keys()
    wrong = sorted({group for group, one in desired.items() if report.versions.get(group) != one} | strange)
    if wrong:
        told = [f"{one} is {report.versions.get(one, 'none')}, sent was {desired.get(one, 'none')}" for one in wrong]
        why = f"after the commit it holds other versions than it was sent: {'; '.join(told[:_NAMED])}"
        raise EngineUnconfirmed(engine, f"{why}; is somebody else writing its weights?", suspect=wrong)


def in_doubt(error: BaseException, groups: Collection[str], compared: Collection[str]) -> frozenset[str] | None:
    """The groups that have to be sent again, :data:`EVERYTHING` or some.

    Args:
        error: why an engine is not confirmed.
        groups: what was to be compared.
        compared: which of them were, and were equal.
    """
    unseen = frozenset(groups) - frozenset(compared)
    if not isinstance(error, EngineUnconfirmed):
        return unseen
    return EVERYTHING if error.suspect is None else error.suspect | unseen


class Verifier:
    """Compares the content of one engine with the trainer's: by checksums, else by a greedy probe.

    Args:
        parts: the trainer.
        engine: who is asked. It has committed.
        report: what it said then.
        sums: of the trainer's own tensors.

    Attributes:
        compared: the groups that were compared so far and found equal.
    """

    def __init__(self, parts: Parts, engine: RolloutEngine, report: EngineReport, sums: Checksums) -> None:
        self._parts = parts
        self._engine = engine
        self._report = report
        self._sums = sums
        self._base_answer: Tokens | None = None
        self.compared: set[str] = set()

    def verify(self, groups: tuple[str, ...], tensors: Callable[[str], Mapping[str, Tensor]]) -> dict[str, str]:
        """How each group was verified: ``checksum``, ``probe``, or ``unverified: `` and why.

        Args:
            groups: what was sent.
            tensors: gives the trainer's own tensors of a group under the names they were sent with.

        Raises:
            EngineUnconfirmed: it holds or answers something else. It names the tensor, or the prompt and the token.
            Exception: whatever the engine raises when it is asked.
        """
        found, wrong = {}, list[EngineUnconfirmed]()
        for group in groups:
            try:
                found[group] = self._by_checksum(group, tensors)
            except EngineUnconfirmed as error:  # go on: who is compared is not sent again
                wrong.append(error)
            else:
                self.compared |= {group} if found[group] == CHECKSUM else set()
        if wrong:
            for other in wrong[1:]:
                wrong[0].add_note(f"and: {other}")
            raise wrong[0]
        for group in (one for one in groups if one not in self.compared):
            found[group] = self._by_probe(group, found[group])
            if found[group] == PROBE:
                self.compared.add(group)
        return found

    def _by_checksum(self, group: str, tensors: Callable[[str], Mapping[str, Tensor]]) -> str:
        if self._parts.config.verify == Verify.OFF:
            return "checksums are off (verify='off')"
        if not isinstance(self._engine, AnswersChecksums):
            return "it answers no checksums"
        given = self._engine.checksums(group)
        if given is None:
            return f"it has no checksums of {group}"
        own = self._sums.of(group, tensors(group))
        wrong = sorted(name for name in own.keys() | given.keys() if own.get(name) != given.get(name))
        if wrong:
            more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            why = f"{group}: these tensors are not the trainer's: {', '.join(wrong[:_NAMED])}{more}"
            raise EngineUnconfirmed(self._engine.name, why, suspect=(group,), tensors=wrong)
        return CHECKSUM

    def _by_probe(self, group: str, because: str) -> str:
        probe = self._parts.runtime.probes.probe
        why = self._why_not(probe)
        if probe is None or why:
            return f"{UNVERIFIED}{because}, and {why}"
        is_adapter = group.startswith(ADAPTER_PREFIX)
        recorded, why = self._recorded(group if is_adapter else base_group(self._parts.versions.wanted))
        if recorded is None:
            return f"{UNVERIFIED}{because}, and {why}"
        if not is_adapter:
            self._compare(probe, group, BASE_ONLY, recorded, self._base(probe))
            return PROBE
        name = group.removeprefix(ADAPTER_PREFIX)
        answer = self._ask(probe, name)
        self._compare(probe, group, name, recorded, answer)
        self._check_that_it_applies(probe, group, name, recorded, answer)
        return PROBE

    def _why_not(self, probe: GreedyProbe | None) -> str:
        if probe is None:
            return "no probe is configured"
        if not isinstance(self._engine, AnswersGreedily):
            return "it answers no probes"
        missing = sorted(self._report.released)
        return f"a probe needs its {', '.join(missing)}, which is released" if missing else ""

    def _recorded(self, group: str) -> tuple[Recorded | None, str]:
        book, version = self._parts.runtime.probes, self._parts.versions.wanted[group]
        found = book.held.get((group, version))
        if found is None:
            failed = book.failed.get((group, version), "")
            why = f"recording its tokens failed: {failed}" if failed else "no tokens were recorded of it"
            return None, f"{why} (version {version})"
        if found.base != known_base(self._parts):
            return None, "its tokens were recorded on another base"
        return found, ""

    def _base(self, probe: GreedyProbe) -> Tokens:
        if self._base_answer is None:
            self._base_answer = self._ask(probe, BASE_ONLY)
        return self._base_answer

    def _ask(self, probe: GreedyProbe, adapter: str) -> Tokens:
        assert isinstance(self._engine, AnswersGreedily)  # asked for before
        given = self._engine.greedy(adapter, probe.prompts, probe.max_new_tokens)
        try:
            return as_tokens(given, len(probe.prompts))
        except (TypeError, ValueError) as error:
            raise EngineUnconfirmed(self._engine.name, f"its answer to a probe is none: {error}") from error

    def _compare(self, probe: GreedyProbe, group: str, name: str, recorded: Recorded, answer: Tokens) -> None:
        differs = probe.difference(recorded.tokens, answer)
        if differs is None:
            return
        prompt, token = differs
        given = answer[prompt][token : token + 1] or ("nothing",)
        why = f"{group}: asked as {name!r} it answers prompt {prompt} with {given[0]} as token {token}, the trainer's "
        why += f"is {recorded.tokens[prompt][token]}: it does not serve what it was sent"
        # Which bytes are wrong cannot be told from tokens: an adapter answers wrongly on a wrong base too.
        raise EngineUnconfirmed(self._engine.name, why, prompt=prompt, token=token)

    def _check_that_it_applies(
        self, probe: GreedyProbe, group: str, name: str, recorded: Recorded, answer: Tokens
    ) -> None:
        base, _ = self._recorded(base_group(self._parts.versions.wanted))
        if base is not None and base.tokens != recorded.tokens and answer == self._base(probe):
            why = f"{group}: asked as {name!r} it answers what the base alone answers: it does not apply the adapter"
            raise EngineUnconfirmed(self._engine.name, why, suspect=(group,))
