"""Rollout engines: the protocol and the engine that lives in the trainer's process."""

from __future__ import annotations

from lifecycle.engines.protocol import AdapterPayload, EngineReport, RolloutEngine

__all__ = ["AdapterPayload", "EngineReport", "RolloutEngine"]
