"""SGLang as the other tenant of the device, over HTTP."""

from __future__ import annotations

from lifecycle.engines.sglang.engine import SglangEngine
from lifecycle.engines.sglang.server import Answer

__all__ = ["Answer", "SglangEngine"]
