"""vLLM as a rollout engine: a client over HTTP, and its ``WeightSource`` over a lease."""

from __future__ import annotations

from lifecycle.engines.vllm.contact import WhenBusy
from lifecycle.engines.vllm.engine import VllmEngine
from lifecycle.engines.vllm.held_base import HeldBase, held_base
from lifecycle.engines.vllm.serving import Completions
from lifecycle.engines.vllm.source import weight_source

__all__ = ["Completions", "HeldBase", "VllmEngine", "WhenBusy", "held_base", "weight_source"]
