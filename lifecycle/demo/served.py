"""The demo's engine where it is a server of its own, which has loaded the demo's model from a directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import torch
from torch import Tensor

from lifecycle.controller import TrainerLifecycle
from lifecycle.demo.options import DemoOptions
from lifecycle.engines.sampling import Rollout
from lifecycle.engines.vllm import VllmEngine, held_base
from lifecycle.engines.vllm.contact import TAGS
from lifecycle.errors import ConfigError, EngineError
from lifecycle.probes import greedy

TOKEN_VARIABLE: Final = "ADAPTER_LIFECYCLE_ENGINE_TOKEN"  # noqa: S105 - the name of a variable
"""Holds the server's bearer token. A token on a command line can be read by everybody on the machine."""
_PROMPT_TOKENS: Final = 8
_NEW_TOKENS: Final = 8


def vllm_engine(options: DemoOptions) -> VllmEngine:
    """A client of the server that the options name. It is not asked yet.

    Raises:
        ConfigError: there is no such URL.
    """
    if options.engine_url is None:
        raise ConfigError("--engine vllm needs --engine-url http://HOST:PORT")
    return VllmEngine("engine", options.engine_url, token=os.environ.get(TOKEN_VARIABLE))


def prove_base(engine: VllmEngine, trainer: TrainerLifecycle, model: torch.nn.Module, vocabulary: int) -> None:
    """Wake the server, whoever left it asleep, and see that it has loaded the model that trains.

    Raises:
        EngineError: it has another one, or does not answer.
    """
    prompts = [[(7 * at + 3 * first) % vocabulary for at in range(_PROMPT_TOKENS)] for first in range(2)]
    with trainer.live("greedy tokens of the base"), torch.no_grad():
        own = greedy(model, prompts, _NEW_TOKENS)
    engine.report()
    engine.resume(TAGS)
    engine.hold_base(held_base(trainer, prompts, own))


def leave(engine: VllmEngine) -> None:
    """Leave the server awake and open, without our adapters. What it does not answer to is left as it is."""
    with suppress(EngineError):
        engine.resume(TAGS)
    engine.close()


class Sampling:
    """Rollouts of a vLLM server as the demo takes them.

    Args:
        engine: the client.
    """

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine

    def generate(
        self, prompts: Tensor, adapter: str, *, max_new_tokens: int, seed: int | None, expected: Mapping[str, int]
    ) -> Rollout:
        """Sample as :meth:`~lifecycle.engines.local.LocalEngine.generate` does.

        The seed is not passed on: vLLM would draw the same random numbers for every prompt of the request.
        """
        del seed
        answer = self._engine.generate(
            prompts.tolist(),
            adapter,
            max_new_tokens=max_new_tokens,
            expected=expected,
            logprobs=True,
            stops_at_end=False,
        )
        return Rollout(
            torch.tensor(answer.tokens, dtype=torch.int64),
            torch.tensor(answer.logprobs, dtype=torch.float32),
            answer.adapter,
            answer.versions,
            answer.instance_id,
        )
