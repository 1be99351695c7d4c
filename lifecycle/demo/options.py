"""What can be asked of the demo. Bad values are refused before anything is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from lifecycle.errors import ConfigError

_SLOTS: Final = 4
_TURNS: Final = 12
_TURNS_EACH: Final = 4


class ReconcileIn(StrEnum):
    """The state in which the demo changes its adapters."""

    AWAKE = "awake"
    OFFLOADED = "offloaded"


class EngineKind(StrEnum):
    """Where the demo's rollouts come from."""

    LOCAL = "local"
    VLLM = "vllm"


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
        count: how many adapters the demo makes in all, more than fit at a time; None is the run of two adapters
            (or *adapters*) that a newcomer joins halfway.
        slots: how many of *count* fit at a time, 4 at most unless given; None without *count*.
        reconcile: the state in which adapters are changed, of :class:`ReconcileIn`.
        turns: trainer to engine and back, at least 1; see :func:`default_turns`.
        offload_target: ``"cpu"``, ``"disk"`` or None.
        with_ref: keep a reference model and pull the policy towards it; the same as ``ref="snapshot"``.
        ref: the reference that the policy is pulled towards: ``"adapter_off"``, ``"snapshot"`` or None.
        strategy: when a second host copy of the actor is made.
        engine: who generates, of :class:`EngineKind`: an engine in this process, or a vLLM server on the same model.
        engine_url: the server's address. Not shown: it may have credentials in it.
        out: folder of the audit log and of disk backups; made if it is not there.
        ranks: how many processes share each batch, at most one a prompt.
        seed: of weights, prompts and samples.
        training: sizes and rates.

    Raises:
        ConfigError: a value that cannot work.
    """

    model: Path | None = None
    adapters: tuple[tuple[str, Path], ...] = ()
    count: int | None = None
    slots: int | None = None
    reconcile: str = ReconcileIn.AWAKE.value
    turns: int = _TURNS
    offload_target: str | None = "cpu"
    with_ref: bool = False
    ref: str | None = None
    strategy: str = "lean"
    engine: str = EngineKind.LOCAL.value
    engine_url: str | None = field(default=None, repr=False)
    out: Path = Path("demo-out")
    seed: int = 0
    ranks: int = 1
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
        self._check_ranks()
        self._check_engine()
        self._check_reconcile()
        self._check_count()

    def _check_ranks(self) -> None:
        most = self.training.prompts
        if not 1 <= self.ranks <= most:
            raise ConfigError(
                f"--ranks is {self.ranks}; use 1 to {most}, as each turn has {most} prompts of an adapter to share out"
            )
        if self.ranks > 1 and self.engine == EngineKind.VLLM:
            raise ConfigError(
                "--ranks and --engine vllm are both given: each rank has an engine of its own, and this is one server "
                "for all; use --engine local, or leave --ranks out"
            )

    def _check_engine(self) -> None:
        if self.engine not in tuple(EngineKind):
            raise ConfigError(f"--engine is {self.engine!r}; use {' or '.join(EngineKind)}")
        if (self.engine_url is not None) != (self.engine == EngineKind.VLLM):
            raise ConfigError("--engine vllm and --engine-url http://HOST:PORT belong together; give both or none")

    def _check_reconcile(self) -> None:
        if self.reconcile not in tuple(ReconcileIn):
            raise ConfigError(f"--reconcile is {self.reconcile!r}; use {' or '.join(ReconcileIn)}")
        if self.reconcile == ReconcileIn.OFFLOADED and self.offload_target is None:
            raise ConfigError("--reconcile offloaded needs an --offload-target of cpu or disk")

    def _check_count(self) -> None:
        if self.count is None:
            if self.slots is not None:
                raise ConfigError(
                    "--slots needs --adapters; without it there are as many slots as adapters to begin with"
                )
            return
        if self.adapters:
            raise ConfigError(
                "--adapters and --adapter are both given; --adapters makes its own, so leave one of them out"
            )
        if self.count < 1:
            raise ConfigError(f"--adapters is {self.count}; use 1 or more")
        slots = shared_slots(self.count, self.slots)
        if not 1 <= slots <= self.count:
            raise ConfigError(f"--slots is {slots}; use 1 to {self.count}, as there are {self.count} adapters")
        least = waves(self.count, slots)
        if self.turns < least:
            raise ConfigError(f"--turns is {self.turns}; {self.count} adapters in {slots} slots need at least {least}")


def shared_slots(count: int, slots: int | None) -> int:
    """How many of *count* adapters fit at a time: what is asked for, else 4, or *count* if that is fewer."""
    return min(count, _SLOTS) if slots is None else slots


def waves(count: int, slots: int) -> int:
    """How many adapters have to follow each other in the fullest slot."""
    return -(-count // slots)


def default_turns(count: int | None, slots: int | None) -> int:
    """12; with *count* adapters 4 for each of those that follow each other in a slot."""
    if count is None:
        return _TURNS
    return _TURNS_EACH * waves(max(count, 1), max(shared_slots(count, slots), 1))


def parse_adapter(text: str) -> tuple[str, Path]:
    """Read ``NAME=DIR``.

    Raises:
        ConfigError: it is something else.
    """
    name, separator, directory = text.partition("=")
    if not (name and separator and directory):
        raise ConfigError(f"--adapter is {text!r}; write NAME=DIR")
    return name, Path(directory)
