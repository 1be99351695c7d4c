"""Rollout engines: the protocol and the engine that lives in the trainer's process."""

from __future__ import annotations

from lifecycle.engines.protocol import AdapterPayload, EngineReport, RolloutEngine
from lifecycle.engines.verifying import BASE_ONLY, AnswersChecksums, AnswersGreedily

__all__ = ["BASE_ONLY", "AdapterPayload", "AnswersChecksums", "AnswersGreedily", "EngineReport", "RolloutEngine"]
