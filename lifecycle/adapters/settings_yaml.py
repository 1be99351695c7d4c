"""A small, plain YAML file: read by PyYAML's safe loader, and without what a settings file has no use for.

No tags, anchors, aliases or merges (they can make a small file a large one), no key twice, and scalars as
YAML 1.2 has them: ``010`` is no eight, ``1:30`` no ninety, ``yes`` no bool, and ``1e3`` is a number.
"""

from __future__ import annotations

import os
import re
import stat
from functools import partial
from pathlib import Path
from typing import Any, Final

from lifecycle.errors import ConfigError

FILE_BYTES_MAX: Final = 2**16
_DIGITS_MAX: Final = 400
"""The largest float has 309."""

_BOOL: Final = re.compile(r"(?:true|false)\Z")
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+|(?:0|[1-9][0-9]*)\.|(?:0|[1-9][0-9]*)(?=[eE]))"
                           r"(?:[eE][-+]?[0-9]+)?\Z")  # fmt: skip
_NULL: Final = re.compile(r"(?:null|~|)\Z")
_SCALARS: Final = (("bool", _BOOL), ("int", _INT), ("float", _FLOAT), ("null", _NULL))


def read_text(path: Path) -> str:
    """The text of a regular file of at most :data:`FILE_BYTES_MAX` bytes.

    Raises:
        ValueError: it is no regular file, too large, or no UTF-8.
        OSError: it cannot be read.
    """
    # Not waiting for the writer of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - of an open descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes; a settings file has a few lines")
    return content.decode()


def parse(text: str) -> dict[str, object]:
    """The mapping that a YAML text is.

    Raises:
        ConfigError: PyYAML is not installed.
        ValueError: it is no YAML, has what is refused here, or is no mapping with names as keys.
    """
    try:
        import yaml  # noqa: PLC0415 - an extra, needed only where such a file is read
    except ImportError as error:
        raise ConfigError("a settings file needs PyYAML; install adapter-lifecycle[yaml]") from error
    try:
        found = yaml.load(text, _loader(yaml))  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not a mapping of keys to values")  # noqa: TRY004 - of the file's value
    return found


def _integer(yaml: Any, loader: Any, node: Any) -> int:
    if len(node.value) > _DIGITS_MAX:  # Python refuses to read so many, in words of its own
        told = f"line {node.start_mark.line + 1} has an integer of {len(node.value)} digits"
        raise yaml.YAMLError(f"{told}; give a number that a key can have, at most 2**63 - 1 where it counts")
    return int(loader.construct_yaml_int(node))


def _loader(yaml: Any) -> Any:
    """The safe loader, stricter. Made when it is needed, as is the package."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
                raise yaml.YAMLError(f"line {event.start_mark.line + 1} has an anchor or alias; write the value itself")
            if getattr(event, "tag", None) is not None:
                raise yaml.YAMLError(f"line {event.start_mark.line + 1} has the tag {event.tag}; write the plain value")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, object]:  # noqa: ARG002, FBT001, FBT002 - as its parent has it
            seen: set[str] = set()
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.YAMLError(f"line {line} has a key that is no name")
                if key.value in seen:
                    raise yaml.YAMLError(f"line {line}: {key.value} stands twice; keep one of them")
                seen.add(key.value)
            return {key.value: self.construct_object(value, deep=True) for key, value in node.value}

    Loader.add_constructor("tag:yaml.org,2002:int", partial(_integer, yaml))
    for kind, pattern in _SCALARS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", pattern, None)
    return Loader
