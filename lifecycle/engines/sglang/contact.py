"""What is known of one SGLang server, and how it is found out: the instance, its tags, and the versions it holds."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from lifecycle.engines.books import EngineBooks
from lifecycle.engines.sglang.calls import SglangCalls
from lifecycle.engines.sglang.mark import Mark, read_mark
from lifecycle.engines.sglang.server import SglangServer
from lifecycle.errors import EngineError
from states.engine_memory import EngineSaid, EngineState, TagState
from states.handover_needs import CUDA_GRAPH, KV_CACHE, WEIGHTS
from states.names import adapter_group

TAGS: Final = (WEIGHTS, KV_CACHE, CUDA_GRAPH)
"""SGLang's tags in the order in which they are resumed."""


class Contact:
    """The books of one server and the mark that is written at it.

    Args:
        engine: its name.
        calls: the requests to it.
        tp_size: tensor-parallel ranks that it must have.
        mirrors: whether it must keep a host mirror of released weights; None takes what it says.
        base_groups: content groups of the base that must be whole.
        at_start: versions that a server holds which was just started.
    """

    def __init__(
        self,
        engine: str,
        calls: SglangCalls,
        *,
        tp_size: int,
        mirrors: bool | None,
        base_groups: tuple[str, ...],
        at_start: Mapping[str, int],
    ) -> None:
        self._engine = engine
        self._calls = calls
        self._tp_size = tp_size
        self._mirrors = mirrors
        self._base_groups = base_groups
        self._at_start = dict(at_start)
        self._mark = Mark(uuid.uuid4().hex)
        self._text: str | None = None
        self.server: SglangServer | None = None
        self.paths: dict[str, str] = {}
        self.books = self._new_books(mirrors=bool(mirrors))

    def is_ours(self, weight_version: str) -> bool:
        """Whether this weight version is the one that stands at the server, as far as is known."""
        mark = read_mark(weight_version)
        return weight_version == self._text or (mark is not None and mark.run == self._mark.run)

    def versions_at(self, weight_version: str) -> Mapping[str, int]:
        """The versions that a server held which answered under this weight version of ours."""
        mark = read_mark(weight_version)
        return self._at_start if mark is None else mark.versions

    def ask(self) -> SglangServer:
        """Ask the server what it is and holds, and bring the books up to it. Changes nothing there.

        Raises:
            EngineError: it does not answer, or is another server than the one that was described.
        """
        server = self._calls.server()
        text = self._calls.weight_version()
        if server.instance_id != self.books.memory.instance_id:
            self._meet(server, text)
        else:
            self._compare(text)
        self.server = server
        self._check_adapters()
        return server

    def is_same_instance(self) -> bool:
        """Whether the server that the books are of still answers."""
        return self._calls.server().instance_id == self.books.memory.instance_id

    def write(self, *, moving: tuple[str, ...] = ()) -> None:
        """Write the books down at the server.

        Args:
            moving: tags that are about to be released or resumed.

        Raises:
            EngineError: it was not acknowledged; what stands there is read at the next question.
        """
        memory = self.books.memory
        tags = {tag: TagState.UNKNOWN if tag in moving else state for tag, state in memory.tags}
        versions = dict(memory.versions) | {group: held for group, held in memory.touched if held is not None}
        self._mark = self._mark.next(tags=tags, versions=versions)
        self._text = None
        self._calls.write(str(self._mark))
        self._text = str(self._mark)

    def _meet(self, server: SglangServer, text: str) -> None:
        """Another instance than before, or the first one. It holds what it was started with, if nobody changed that."""
        self._refuse_another(server)
        mark = read_mark(text)
        tags = dict(mark.tags) if mark else {}
        if (
            mark is not None and mark.run == self._mark.run
        ):  # it was started anew under a call that was meant for another
            tags = {tag: state if state is TagState.RESIDENT else TagState.UNKNOWN for tag, state in tags.items()}
        pristine = mark is None and text == server.started_as
        self.books = self._new_books(mirrors=server.has_mirror)
        self.paths = {}
        self._text = text
        self.books.probed(
            EngineSaid(
                instance_id=server.instance_id,
                is_open=self._calls.is_ready(),
                tags={tag: tags.get(tag, TagState.RESIDENT) for tag in TAGS},
                versions=self._at_start if pristine else {},
            )
        )

    def _compare(self, text: str) -> None:
        """The same instance as before: whether what stands there is still ours, and its tags when they were lost."""
        memory, mark = self.books.memory, read_mark(text)
        ours = self.is_ours(text)
        lost = memory.state is EngineState.LOST
        if ours and not lost:
            return
        versions = {} if ours else dict.fromkeys(dict(memory.versions))
        tags = dict(mark.tags) if mark else dict.fromkeys(TAGS, TagState.RESIDENT) if ours else {}
        self._text = text
        is_open = self._calls.is_ready() if lost else memory.state is EngineState.OPEN
        self.books.probed(
            EngineSaid(
                instance_id=memory.instance_id, is_open=is_open, tags=tags if lost else {}, versions=versions
            )
        )  # fmt: skip

    def _check_adapters(self) -> None:
        """An adapter that is not there any more, or was loaded from elsewhere, has no version."""
        memory = self.books.memory
        held = memory.adapters()
        if not held:
            return
        there = self._calls.adapters()
        gone = [adapter_group(name) for name in held if name not in there or there[name] != self.paths.get(name)]
        if gone:
            is_open = memory.state is EngineState.OPEN
            none: dict[str, int | None] = dict.fromkeys(gone)
            self.books.probed(EngineSaid(instance_id=memory.instance_id, is_open=is_open, tags={}, versions=none))

    def _new_books(self, *, mirrors: bool) -> EngineBooks:
        # Adapters lie beside the tags: a release of the weights leaves them where they are.
        return EngineBooks(
            self._engine,
            tags=TAGS,
            mirrored=(WEIGHTS,) if mirrors else (),
            keeps_adapters=True,
            base_groups=self._base_groups,
        )

    def _refuse_another(self, server: SglangServer) -> None:
        if server.tp_size != self._tp_size:
            raise EngineError(
                self._engine, f"it has {server.tp_size} tensor-parallel rank(s); pass tp_size={server.tp_size}"
            )
        if self._mirrors is not None and self._mirrors is not server.has_mirror:
            what = "keeps" if server.has_mirror else "throws away"
            raise EngineError(
                self._engine,
                f"holds_host_mirror is {self._mirrors}, and it {what} its weights when it releases them; "
                "start it with --enable-weights-cpu-backup, or pass holds_host_mirror=False",
            )
