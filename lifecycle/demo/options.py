"""What can be asked of the demo. Bad values are refused before anything is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lifecycle.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The policy-gradient loop, sized so that the default run ends within a minute on two cores.

    Attributes:
        prompts: prompts of each adapter in each turn.
        prompt_tokens: tokens of each prompt.
        new_tokens: tokens sampled for each prompt.
        inner_steps: optimizer steps on each rollout.
        learning_rate: of AdamW.
        clip: how far the probability ratio may leave 1 in an inner step.
        kl_weight: weight of the divergence from the ref model, where one is kept.
        rank: LoRA rank of adapters that the demo makes itself.
        alpha: their LoRA alpha.
    """

    prompts: int = 32
    prompt_tokens: int = 8
    new_tokens: int = 16
    inner_steps: int = 2
    learning_rate: float = 2e-2
    clip: float = 0.2
    kl_weight: float = 0.02
    rank: int = 8
    alpha: float = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """One run of the demo.

    Attributes:
        model: directory of a Hugging Face causal language model; None builds a small Llama.
        adapters: name and PEFT directory of each adapter to begin with; empty makes two.
        turns: trainer to engine and back, at least 1.
        offload_target: ``"cpu"``, ``"disk"`` or None.
        with_ref: keep a reference model and pull the policy towards it; the same as ``ref="snapshot"``.
        ref: the reference that the policy is pulled towards: ``"adapter_off"``, ``"snapshot"`` or None.
        strategy: when a second host copy of the actor is made.
        out: folder of the audit log and of disk backups; made if it is not there.
        seed: of weights, prompts and samples.
        training: sizes and rates.

    Raises:
        ConfigError: a value that cannot work.
    """

    model: Path | None = None
    adapters: tuple[tuple[str, Path], ...] = ()
    turns: int = 12
    offload_target: str | None = "cpu"
    with_ref: bool = False
    ref: str | None = None
    strategy: str = "lean"
    out: Path = Path("demo-out")
    seed: int = 0
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        """Check what can be checked without reading a file."""
        if self.turns < 1:
            raise ConfigError(f"--turns is {self.turns}; use 1 or more")
        if self.seed < 0:
            raise ConfigError(f"--seed is {self.seed}; use 0 or more")
        names = [name for name, _ in self.adapters]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"--adapter names {', '.join(twice)} twice; give each adapter a name of its own")


def parse_adapter(text: str) -> tuple[str, Path]:
    """Read ``NAME=DIR``.

    Raises:
        ConfigError: it is something else.
    """
    name, separator, directory = text.partition("=")
    if not (name and separator and directory):
        raise ConfigError(f"--adapter is {text!r}; write NAME=DIR")
    return name, Path(directory)
