"""Effects: the controller that a training loop embeds, and everything that touches memory, files and engines.

The public names are those of :mod:`lifecycle.public`. They are imported when one of them is first used, as modules of
this package are: ``adapter-lifecycle doctor`` has to begin where torch cannot be imported, and to say so.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lifecycle.public import *  # noqa: F403 - its list is the one list
    from lifecycle.public import __all__ as __all__
else:  # where types are checked a name that is none is an error

    def __getattr__(name: str) -> Any:
        """A public name or a module, imported now."""
        is_public = name == "__all__" or not name.startswith("_")
        if is_public and find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        public = import_module(f"{__name__}.public") if is_public else None
        if public is None or name not in (*public.__all__, "__all__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(public, name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *import_module(f"{__name__}.public").__all__})
