"""A rollout engine in the trainer's process: its own copy of the base, its own tagged memory.

It is a second tenant of the saver, so it can really be half awake, stale or empty. Nothing reaches it
but a push, and nothing it holds is served unless a commit said so. What it may do when is decided by the
machine of :mod:`states.engine_table`, as of every engine; its record is exact, because it is the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from lifecycle.engines.books import EngineBooks
from lifecycle.engines.instance import Instance
from lifecycle.engines.local_requests import LocalRequests
from lifecycle.engines.protocol import KV_CACHE, WEIGHTS, AdapterPayload, EngineReport
from lifecycle.engines.sampling import Rollout
from lifecycle.engines.tags import TAGS, EngineTags
from lifecycle.saver import MemorySaver
from states import BASE_ONLY, EngineEvent, EngineSaid, EngineStep, TagState, adapter_group

__all__ = ["BASE_ONLY", "KV_CACHE", "TAGS", "WEIGHTS", "LocalEngine", "Rollout"]


class LocalEngine(LocalRequests):
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
        books = EngineBooks(name, tags=TAGS, keeps_adapters=True, base_groups=())
        super().__init__(name, books, EngineTags(name, saver))
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
        resident = dict.fromkeys(TAGS, TagState.RESIDENT)
        self._books.probed(EngineSaid(instance_id=self._instance.id, is_open=False, tags=resident, versions={}))

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
    def prefix_flushes(self) -> int:
        """How often this instance dropped its cached prefixes."""
        return self._instance.pool.flushes

    @property
    def prefix_hits(self) -> int:
        """How often this instance used cached prefixes again."""
        return self._instance.pool.hits

    def report(self) -> EngineReport:
        """What it holds, from its record, and sizes from the saver's books."""
        with self._operation("report", breaks=False):
            tags = self._tags
            return self._books.report(
                device_bytes=tags.device_bytes(),
                mirror_bytes=tags.mirror_bytes(),
                adapter_slots=self._instance.slots,
                saver_tags=tags.names(),
            )

    # content

    def begin_update(self) -> None:
        """Stop serving and drop cached prefixes. An update that was left open is given up first.

        Raises:
            EngineError: ``weights`` is released.
        """
        with self._operation("begin_update"):
            self._give_up()
            self._do(EngineEvent.PAUSE)
            self._do(EngineEvent.BEGIN_UPDATE)
            self._instance.pool.flush()

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy the tensors of one base group into the engine's own. Several calls with one version add up.

        Raises:
            EngineError: no update is open, a call of it failed, or a name or shape does not fit.
        """
        with self._operation("send_base"):
            self._do(EngineEvent.SEND_BASE, group=group, version=version)  # before the first byte is written
            self._instance.touch_base(group, version)
            for name, tensor in tensors:
                self._fail_on_request("write")
                self._instance.write_base(group, name, tensor)

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Copy one adapter into a slot of its own. It is checked whole before the first byte is written.

        Raises:
            EngineError: no update is open, a call of it failed, the base under it is undefined, it does not fit, or
                every slot is taken. The slot is then as it was.
        """
        with self._operation("load_adapter"):
            group = adapter_group(payload.name)
            step = self._books.decided(EngineEvent.LOAD_ADAPTER, group=group, version=payload.version)
            self._instance.need_base(with_pending=True)

            def before_write() -> None:
                self._books.acknowledged(step)
                self._fail_on_request("write")

            self._instance.load_adapter(payload, before_write)

    def unload_adapter(self, name: str) -> None:
        """Empty the adapter's slot. An adapter that is not there is no error: it is what was asked for.

        Raises:
            EngineError: no update is open, or a call of it failed.
        """
        with self._operation("unload_adapter"):
            self._do(EngineEvent.UNLOAD_ADAPTER, group=adapter_group(name))
            self._instance.drop_adapter(name)

    def commit_update(self) -> None:
        """Serve what was sent.

        Raises:
            EngineError: no update is open, or a call within it failed.
        """
        with self._operation("commit_update"):
            self._note_flush()
            self._do(EngineEvent.COMMIT_UPDATE)
            self._instance.covered.commit()

    def abort_update(self) -> None:
        """Give up: groups that were touched hold no version any more, adapters among them lose their slot."""
        with self._operation("abort_update", breaks=False):
            self._give_up()

    def _give_up(self) -> None:
        self._instance.give_up(dict(self._books.memory.touched))
        self._do(EngineEvent.ABORT_UPDATE)

    # memory

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Give back the memory of these tags; those already released are skipped.

        While an update is open this is refused: memory does not go from under a push that somebody else is making.

        Args:
            tags: ``weights``, ``kv_cache`` or both. Cached prefixes are dropped.
            discard: also give up the content of ``weights``: it is overwritten and no version is left.

        Raises:
            EngineError: an unknown tag, an update is open (abort it), or the saver could not.
        """
        with self._operation("release", breaks=False):
            wanted = self._tags.known(tags)
            self._do(EngineEvent.PAUSE)
            for tag in reversed(wanted):
                step = self._books.decided(EngineEvent.DISCARD if discard else EngineEvent.RELEASE, tags=(tag,))
                if not step.settled:
                    self._instance.pool.flush()
                    with self._moving(tag, step):
                        self._tags.release([tag])
                if discard and tag == WEIGHTS and not step.settled:
                    self._instance.discard(self._tags.backup)

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again, ``weights`` first; those that are resident are skipped.

        Raises:
            EngineError: an unknown tag, an update is open, or the device has no room. What came back before that stays.
        """
        with self._operation("resume", breaks=False):
            for tag in self._tags.known(tags):
                step = self._books.decided(EngineEvent.RESUME, tags=(tag,))
                if not step.settled:
                    with self._moving(tag, step):
                        self._tags.resume([tag])

    @contextmanager
    def _moving(self, tag: str, step: EngineStep) -> Iterator[None]:
        """Where the memory is by then is acknowledged, also when an interrupt comes after the saver's call."""
        try:
            yield
        finally:
            if (tag in self._tags.released()) is (step.ask.event is not EngineEvent.RESUME):
                self._books.acknowledged(step)
