"""The memory of a vLLM server: what it can release, how it takes it again, and whom it admits afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from lifecycle.engines.protocol import KV_CACHE, WEIGHTS
from lifecycle.engines.vllm.contact import TAGS
from lifecycle.engines.vllm.proof import OtherBaseError
from lifecycle.engines.vllm.requests import VllmRequests
from lifecycle.errors import EngineError
from states.engine_memory import EngineEvent, EngineSaid, TagState

_AWAY: Final = (TagState.RELEASED, TagState.DISCARDED, TagState.UNKNOWN)


class VllmMemory(VllmRequests):
    """Release and resume, by tag."""

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Drain, and give back the memory of these tags; those already released are skipped.

        vLLM releases ``weights`` only together with ``kv_cache``, and ``kv_cache`` alone only on a device.

        Args:
            tags: ``weights``, ``kv_cache`` or both.
            discard: keep no copy of the weights (sleep level 2).

        Raises:
            EngineError: a set of tags that it cannot release, requests do not end, or it did not answer, also not to
                the proof of its base where that is due.
        """
        with self._lock:
            self._probe_if_lost()
            wanted = tuple(tags)
            self._need_releasable(wanted, discard=discard)
            if not (discard and WEIGHTS in wanted):
                self._prove_while_it_can()
            self._pause()
            event = EngineEvent.DISCARD if discard else EngineEvent.RELEASE
            with self._asking(event, tags=wanted) as step:
                if WEIGHTS in step.tags:
                    self._server.sleep(2 if discard else 1)
                elif step.tags:
                    self._server.release_kv_cache()

    def _prove_while_it_can(self) -> None:
        """Have the base proven before memory goes: the push, which needs it, may come before the cache is back.

        Another base stops no release: the push says so. No answer does, since nobody would ask again before the push.
        """
        if self._lacks_base() and not self.memory.in_state(*_AWAY):
            with suppress(OtherBaseError), self._while_it_serves():
                self._prove_base()

    def _need_releasable(self, wanted: tuple[str, ...], *, discard: bool) -> None:
        states = dict(self.memory.tags)
        going = [tag for tag in TAGS if tag in wanted and states[tag] is TagState.RESIDENT]
        if going and not self._info.sleeps:
            raise EngineError(self._name, "its memory cannot be released; start it with --enable-sleep-mode")
        if going == [WEIGHTS] and states[KV_CACHE] is TagState.RESIDENT:
            raise EngineError(self._name, f"it releases {WEIGHTS} only together with {KV_CACHE}; name both")
        if going == [KV_CACHE] and (self._info.device == "cpu" or states[WEIGHTS] is not TagState.RESIDENT):
            why = "on the CPU" if self._info.device == "cpu" else f"while {WEIGHTS} is released"
            raise EngineError(self._name, f"it does not release {KV_CACHE} alone {why}; release both from resident")
        if discard and WEIGHTS in wanted and states[WEIGHTS] is TagState.RELEASED:
            raise EngineError(self._name, f"it cannot discard {WEIGHTS} while they are released; resume them first")

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again; those that are resident are skipped.

        Where a call that failed has left it unknown what is released, all of it is taken: no other call is certain.

        Raises:
            EngineError: an unknown tag, or it did not do it, or did not answer.
        """
        with self._lock:
            self._probe_if_lost()
            woke = TagState.UNKNOWN in dict(self.memory.tags).values()
            if woke:
                self._resume_whatever_sleeps()
            with self._asking(EngineEvent.RESUME, tags=tuple(tags)) as step:
                if not step.settled:
                    self._wake(step.tags)
            if (woke or step.tags) and not self.memory.in_state(*_AWAY):
                self._settle_admission()

    def _wake(self, tags: tuple[str, ...]) -> None:
        awake = self._server.wake_up(tags)
        left = set(self.memory.in_state(*_AWAY)) - set(tags)
        if awake == bool(left):
            what = "is wholly awake" if awake else "sleeps on"
            raise EngineError(self._name, f"it {what} after resume({', '.join(tags)}); report() says what it holds")

    def _resume_whatever_sleeps(self) -> None:
        self._or_lost(lambda: self._server.wake_up(()), "waking all of it")
        tags = dict.fromkeys(TAGS, TagState.RESIDENT)
        self._books.probed(EngineSaid(instance_id=self.memory.instance_id, is_open=False, tags=tags, versions={}))

    def _settle_admission(self) -> None:
        """Undo what vLLM does by itself: it admits requests as soon as its last tag is resident, valid or not."""
        if self._may_open():
            self._unpause()
        else:
            self._or_lost(self._server.hold, "holding requests after a wake")
