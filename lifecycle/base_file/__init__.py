"""The file behind a frozen base: one a node and content, shared by all ranks, mapped for reading, restored from."""

from __future__ import annotations

from lifecycle.base_file.opened import BaseFile
from lifecycle.base_file.store import BaseFileStore
from lifecycle.base_file.sweep import Cleaned
from lifecycle.errors import BaseFileError

__all__ = ["BaseFile", "BaseFileError", "BaseFileStore", "Cleaned"]
