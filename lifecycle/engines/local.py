"""A rollout engine in the trainer's process: its own copy of the base, its own tagged memory.

It is a second tenant of the saver, so it can really be half awake, stale or empty. Nothing reaches it
but a push, and nothing it holds is served unless a commit said so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor, nn

from lifecycle.engines.instance import Instance
from lifecycle.engines.protocol import KV_CACHE, WEIGHTS, AdapterPayload, EngineReport
from lifecycle.engines.sampling import Rollout
from lifecycle.engines.tags import TAGS, EngineTags
from lifecycle.engines.verifying import BASE_ONLY
from lifecycle.errors import EngineError
from lifecycle.saver import MemorySaver

__all__ = ["BASE_ONLY", "KV_CACHE", "TAGS", "WEIGHTS", "LocalEngine", "Rollout"]


class LocalEngine:
    """A :class:`~lifecycle.engines.protocol.RolloutEngine` on a transformers model. Calls of several threads wait.

    Its memory lies in two tags of the saver: ``NAME/weights`` (base and adapter slots, backup cpu) and
    ``NAME/kv_cache`` (backup none). Both are resident after construction.

    Args:
        name: unique among the engines of a run; prefix of its tags.
        model_factory: makes the causal language model. Its values do not matter: a new instance holds
            no version and serves nothing before it was pushed to.
        saver: shared with the trainer. The engine owns its two tags in it.
        slots: how many adapters it holds at once.
        rank: largest LoRA rank that fits.
        target_modules: suffixes of the linear modules that adapters may apply to.
        kv_cache_bytes: size of the key/value buffer, in bytes.

    Raises:
        EngineError: the model has none of the target modules, or there is no room.

    Attributes:
        fault: for tests: called with the name of each operation, and with ``write`` before tensors are
            written. What it raises is what the operation fails with.
    """

    def __init__(
        self,
        name: str,
        model_factory: Callable[[], nn.Module],
        *,
        saver: MemorySaver,
        slots: int,
        rank: int,
        target_modules: Sequence[str],
        kv_cache_bytes: int = 64 * 2**20,
    ) -> None:
        self.fault: Callable[[str], None] | None = None
        self._name = name
        self._tags = EngineTags(name, saver)
        self._lock = RLock()
        targets = tuple(target_modules)

        def make() -> Instance:
            return Instance(
                name, model_factory(), slots=slots, rank=rank, target_modules=targets, kv_cache_bytes=kv_cache_bytes
            )

        self._make = make
        self._start()

    def _start(self) -> None:
        self._instance = self._make()
        self._tags.place(self._instance.weights(), self._instance.pool.buffer)

    def restart(self) -> None:
        """What a crash and a new process come to: a new instance, other weights, no versions, both tags resident."""
        with self._lock:
            self._tags.forget()
            self._start()

    def close(self) -> None:
        """Give all memory back for good. The engine must not be used any more."""
        with self._lock:
            self._tags.forget()

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def prefix_flushes(self) -> int:
        """How often this instance dropped its cached prefixes."""
        return self._instance.pool.flushes

    @property
    def prefix_hits(self) -> int:
        """How often this instance used cached prefixes again."""
        return self._instance.pool.hits

    def report(self) -> EngineReport:
        """Tags by residency and their bytes, from the saver's books, and the versions that were committed."""
        with self._operation("report", breaks=False):
            released, tags = self._tags.released(), self._tags
            versions = self._instance.content.versions()
            resident = frozenset(TAGS) - released
            return EngineReport(
                self._instance.id, resident, released, versions, tags.device_bytes(), tags.mirror_bytes(), tags.names(),
                self._instance.slots,
            )  # fmt: skip

    # content

    def begin_update(self) -> None:
        """Stop serving and drop cached prefixes. An update that was left open is given up first.

        Raises:
            EngineError: ``weights`` is released.
        """
        with self._operation("begin_update"):
            self._tags.need([WEIGHTS], "begin an update")
            self._instance.give_up()
            self._instance.pool.flush()
            self._instance.content.begin()

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy the tensors of one base group into the engine's own. Several calls with one version add up.

        Raises:
            EngineError: no update is open, ``weights`` is released, or a name or shape does not fit.
        """
        with self._operation("send_base"):
            self._need_update("send_base")
            self._instance.content.touch(group, version)
            for name, tensor in tensors:
                self._fail_on_request("write")
                self._instance.write_base(group, name, tensor)

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Copy one adapter into a slot of its own. It is checked whole before the first byte is written.

        Raises:
            EngineError: no update is open, the base under it is undefined, it does not fit, or every
                slot is taken. The slot is then as it was.
        """
        with self._operation("load_adapter"):
            self._need_update("load_adapter")
            self._instance.need_base(with_pending=True)
            self._instance.load_adapter(payload, lambda: self._fail_on_request("write"))

    def unload_adapter(self, name: str) -> None:
        """Empty the adapter's slot. An adapter that is not there is no error: it is what was asked for.

        Raises:
            EngineError: no update is open.
        """
        with self._operation("unload_adapter"):
            self._need_update("unload_adapter")
            self._instance.drop_adapter(name)

    def commit_update(self) -> None:
        """Serve what was sent.

        Raises:
            EngineError: no update is open, or a call within it failed.
        """
        with self._operation("commit_update"):
            self._need_update("commit_update")
            self._instance.content.commit()

    def abort_update(self) -> None:
        """Give up: groups that were touched hold no version any more, adapters among them lose their slot."""
        with self._operation("abort_update", breaks=False):
            self._instance.give_up()

    # memory

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Give back the memory of these tags; those already released are skipped.

        Args:
            tags: ``weights``, ``kv_cache`` or both. Cached prefixes are dropped.
            discard: also give up the content of ``weights``: it is overwritten and no version is left.

        Raises:
            EngineError: an unknown tag, or the saver could not.
        """
        with self._operation("release"):
            wanted = self._tags.known(tags)
            self._instance.pool.flush()
            self._tags.release(wanted)
            if discard and WEIGHTS in wanted:
                self._instance.discard(self._tags.backup)

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again, ``weights`` first; those that are resident are skipped.

        Raises:
            EngineError: an unknown tag, or the device has no room. What came back before that stays.
        """
        with self._operation("resume"):
            self._tags.resume(tags)

    def generate(
        self,
        prompts: Tensor,
        adapter: str,
        *,
        max_new_tokens: int,
        seed: int | None = None,
        temperature: float = 1.0,
        expected: Mapping[str, int] | None = None,
    ) -> Rollout:
        """Sample continuations under one adapter.

        Args:
            prompts: int64 ``[batch, tokens]``, no padding, on the model's device.
            adapter: a committed adapter, or :data:`BASE_ONLY`.
            max_new_tokens: tokens sampled for each prompt, at least 1.
            seed: of the random numbers; None takes torch's own generator.
            temperature: 0 takes the most probable token.
            expected: content group to the version that must answer.

        Raises:
            EngineError: an update is open, a tag is released, a tensor of the base or the adapter is
                undefined, a version is not the expected one, or the key/value buffer is too small.
        """
        with self._operation("generate", breaks=False):
            self._admit(adapter, expected or {})
            if prompts.dim() != 2 or prompts.dtype != torch.int64 or 0 in prompts.shape:  # noqa: PLR2004 - [batch, tokens]
                raise EngineError(self._name, "prompts must be int64 [batch, tokens], none of them empty")
            if max_new_tokens < 1 or temperature < 0:
                raise EngineError(self._name, "max_new_tokens must be at least 1, temperature not negative")
            generator = None if seed is None else torch.Generator(prompts.device).manual_seed(seed)
            how = {"max_new_tokens": max_new_tokens, "temperature": temperature, "generator": generator}
            return self._instance.answer(prompts, adapter, **how)

    def greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        """The most probable continuations; see :class:`~lifecycle.engines.verifying.AnswersGreedily`.

        Raises:
            EngineError: as :meth:`generate`.
        """
        asked = (torch.tensor([list(one)], device=self._instance.device) for one in prompts)
        answers = [self.generate(one, adapter, max_new_tokens=max_new_tokens, temperature=0) for one in asked]
        return tuple(tuple(one.tokens[0].tolist()) for one in answers)

    def checksums(self, group: str) -> Mapping[str, str] | None:
        """SHA-256 of what it holds; see :class:`~lifecycle.engines.verifying.AnswersChecksums`.

        Raises:
            EngineError: ``weights`` is released.
        """
        with self._operation("checksums", breaks=False):
            self._tags.need([WEIGHTS], "hash weights")
            return self._instance.checksums(group)

    def _admit(self, adapter: str, expected: Mapping[str, int]) -> None:
        if self._instance.content.updating:
            raise EngineError(self._name, "it is fenced: an update is open; commit or abort it first")
        self._tags.need(TAGS, "generate")
        self._instance.need_base()
        self._instance.need_adapter(adapter)
        differing = self._instance.content.differing(expected)
        if differing:
            raise EngineError(self._name, f"stale: {'; '.join(differing)}; push the wanted versions first")

    def _need_update(self, what: str) -> None:
        content = self._instance.content
        if not content.updating:
            raise EngineError(self._name, f"{what} outside of an update; call begin_update first")
        if content.broken:
            raise EngineError(self._name, f"the update failed ({content.broken}); abort it and begin again")
        self._tags.need([WEIGHTS], what)

    def _fail_on_request(self, operation: str) -> None:
        if self.fault is not None:
            self.fault(operation)

    @contextmanager
    def _operation(self, operation: str, *, breaks: bool = True) -> Iterator[None]:
        """One call at a time. A failure while an update is open breaks that update, if *breaks*."""
        with self._lock:
            try:
                self._fail_on_request(operation)
                yield
            except BaseException as error:
                if breaks:
                    self._instance.content.break_off(f"{operation}: {error}")
                raise
