"""The adapters that a server serves for us: under which name, from which files, and how one takes another's place.

``load_inplace`` is not used. A name that was loaded so stays marked: vLLM then reads its files again at every step of
every request (and ends when they are gone), and it writes over the memory of the old version before it knows that the
new one fits. Here a name is given up and taken anew instead, which gives the new version memory of its own; if it is
refused, the old version is put back from its files. Nobody sees the gap: the server is paused.

vLLM reads files again after it has evicted an adapter, so those of a served version stay until it is served no longer.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from lifecycle.engines.adapter_files import AdapterFiles
from lifecycle.engines.vllm.server import Models, VllmServer
from lifecycle.errors import EngineError, EngineRefused, EngineUnanswered
from states import ADAPTER_PREFIX

_SAID_NO: Final = 500
"""The status that vLLM refuses a bad adapter with. Others of its kind are of somebody in between."""


class ServedAdapters:
    """What the server serves from our files.

    Args:
        engine: its name, for messages.
        server: the server.
        files: where adapters lie.
    """

    def __init__(self, engine: str, server: VllmServer, files: AdapterFiles) -> None:
        self._engine = engine
        self._server = server
        self._files = files
        self._paths: dict[str, str] = {}

    def seen(self, models: Models) -> None:
        """The server has listed what it serves. What others loaded is theirs, unless they have ended since."""
        self._paths = {name: path for name, path in models.adapters.items() if self._files.is_ours(Path(path))}

    def names(self) -> frozenset[str]:
        """The adapters that it serves from our files."""
        return frozenset(self._paths)

    def serves(self, group: str, version: int) -> bool:
        """Whether it serves this very version of ``adapter/NAME``: the path says which one it is."""
        name = group.removeprefix(ADAPTER_PREFIX)
        return self._paths.get(name) == str(self._files.place(name, version))

    def put(self, name: str, path: Path) -> None:
        """Serve *name* from *path*, in place of what it was served from.

        Raises:
            EngineRefused: the server takes no such adapter; what was served before is served again.
            EngineUnanswered: what is served under this name is unknown.
        """
        before = self._paths.get(name)
        if before is not None:
            self.drop(name)
        try:
            self._server.load(name, str(path))
        except EngineRefused as error:
            self._put_back(name, before, error)
            raise
        except EngineUnanswered as error:
            if error.status != _SAID_NO or name in self._server.models().adapters:
                raise
            self._put_back(name, before, error)
            why = f"it does not take {name}: {error.why.partition('; what it did')[0]}"
            left = "the version before it is served on" if before is not None else "nothing is served under this name"
            raise EngineRefused(self._engine, f"{why}; {left}", status=_SAID_NO) from error
        self._paths[name] = str(path)

    def _put_back(self, name: str, before: str | None, cause: EngineError) -> None:
        if before is None:
            return
        try:
            self._server.load(name, before)
        except EngineError as error:
            why = f"it refused a version of {name} ({cause.why}) and then its old one too: {error.why}"
            raise EngineUnanswered(self._engine, why) from error
        self._paths[name] = before

    def drop(self, name: str) -> None:
        """Serve *name* no longer."""
        self._server.unload(name)
        self._paths.pop(name, None)

    def drop_all_but(self, names: Collection[str]) -> None:
        """Serve no name of ours that is none of these: a push that was cut short may have left some."""
        for name in sorted(self.names() - set(names)):
            self.drop(name)

    def tidy(self) -> None:
        """Remove the files that the server cannot ask for any more."""
        self._files.keep([Path(path) for path in self._paths.values()])
