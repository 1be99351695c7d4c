"""What can be asked of the bench. Bad values are refused before a process is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lifecycle.errors import ConfigError
from states import FrozenBase, Strategy, Verify

MIB: Final = 1 << 20
KEPT_MODELS: Final = ("ref", "old_actor", "rollout_actor")
"""The models that can be kept besides the actor, in the order in which ``--kept-models`` counts them."""
DEFAULT_STRATEGIES: Final = ("duplicate", "reference", "lean", "lean+file")
_FILE: Final = f"+{FrozenBase.FILE}"
_TARGETS: Final = ("cpu", "disk")
_MOST: Final = {"base_mib": 1 << 20, "tensors": 100_000, "adapters": 64, "rank": 4096, "ranks": 64}
_MOST_REPEATED: Final = {"cycles": 1000, "repetitions": 1000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration that is measured.

    Attributes:
        strategy: when a second host copy is made (:class:`states.Strategy`).
        frozen_base: what brings the frozen base back (:class:`states.FrozenBase`).
        offload_target: ``"cpu"`` or ``"disk"``.
        base_bytes: about so many bytes of frozen weights; the model rounds down to whole rows.
        tensors: how many frozen tensors they are split into.
        adapters: how many adapters are loaded.
        rank: their LoRA rank.
        ranks: processes that hold the same shard.
        kept_models: how many of :data:`KEPT_MODELS` are kept besides the actor.
        verify: how closely bytes are compared (:class:`states.Verify`).
    """

    strategy: str = Strategy.LEAN.value
    frozen_base: str = FrozenBase.SAVER.value
    offload_target: str = "cpu"
    base_bytes: int = 1024 * MIB
    tensors: int = 64
    adapters: int = 4
    rank: int = 8
    ranks: int = 1
    kept_models: int = 0
    verify: str = Verify.SAMPLED.value

    @property
    def name(self) -> str:
        """As ``--strategy`` takes it."""
        return self.strategy + (_FILE if self.frozen_base == FrozenBase.FILE else "")

    def peak_bytes(self) -> int:
        """About how much host memory all its ranks take at most: on the device, in backups and copies, in passing."""
        copies = {Strategy.DUPLICATE: 1 + self.kept_models, Strategy.REFERENCE: int(self.kept_models > 0)}
        beside = copies.get(Strategy(self.strategy), 0)
        return self.base_bytes * (self.ranks * (1 + beside) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """One run of the bench.

    Attributes:
        base_mib: bytes of the frozen base, in MiB.
        tensors: frozen tensors it is split into.
        adapters: how many adapters are loaded.
        rank: their LoRA rank.
        ranks: processes that hold the same shard.
        kept_models: how many of :data:`KEPT_MODELS` are kept.
        cycles: turns from awake to offloaded and back in each process.
        repetitions: fresh processes of each strategy; their turns are interleaved.
        strategies: ``NAME`` or ``NAME+file``, measured side by side.
        offload_target: ``"cpu"`` or ``"disk"``.
        verify: how closely bytes are compared (:class:`states.Verify`).
        work_dir: folder of base files and logs, on a disk; a temporary one is made inside and removed.

    Raises:
        ConfigError: a value that cannot work.
    """

    base_mib: int = 1024
    tensors: int = 64
    adapters: int = 4
    rank: int = 8
    ranks: int = 1
    kept_models: int = 0
    cycles: int = 2
    repetitions: int = 3
    strategies: tuple[str, ...] = DEFAULT_STRATEGIES
    offload_target: str = "cpu"
    verify: str = Verify.SAMPLED.value
    work_dir: Path | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without starting anything."""
        for name, most in (_MOST | _MOST_REPEATED).items():
            if not 1 <= getattr(self, name) <= most:
                raise ConfigError(f"{_option(name)} is {getattr(self, name)}; use 1 to {most}")
        if not 0 <= self.kept_models <= len(KEPT_MODELS):
            kept = ", ".join(KEPT_MODELS)
            raise ConfigError(f"--kept-models is {self.kept_models}; use 0 to {len(KEPT_MODELS)} (of {kept})")
        if self.offload_target not in _TARGETS:
            raise ConfigError(f"--offload-target is {self.offload_target!r}; use one of {', '.join(_TARGETS)}")
        if self.verify not in tuple(Verify):
            raise ConfigError(f"--verify is {self.verify!r}; use one of {', '.join(Verify)}")
        if self.base_mib * MIB < 4096 * self.tensors:
            raise ConfigError(f"--tensors is {self.tensors}; a base of {self.base_mib} MiB has no page for each")
        if not self.strategies or len(set(self.strategies)) < len(self.strategies):
            raise ConfigError(f"--strategy names {', '.join(self.strategies)}; name each strategy once")
        for name in self.strategies:
            parse_strategy(name)
        if self.work_dir is not None and not self.work_dir.is_dir():
            raise ConfigError(f"--work-dir is {self.work_dir}, which is no directory; make it, or name another")

    def case(self, name: str, **changes: int) -> Case:
        """One strategy under these options.

        Args:
            name: as ``--strategy`` takes it.
            **changes: fields of :class:`Case` that differ.
        """
        strategy, frozen_base = parse_strategy(name)
        sizes: dict[str, int] = {
            "base_bytes": self.base_mib * MIB,
            "tensors": self.tensors,
            "adapters": self.adapters,
            "rank": self.rank,
            "ranks": self.ranks,
            "kept_models": self.kept_models,
        }
        return Case(
            strategy=strategy,
            frozen_base=frozen_base,
            offload_target=self.offload_target,
            verify=self.verify,
            **(sizes | changes),
        )

    def cases(self) -> tuple[Case, ...]:
        """Every strategy that was asked for."""
        return tuple(self.case(name) for name in self.strategies)


def parse_strategy(text: str) -> tuple[str, str]:
    """Read ``NAME`` or ``NAME+file``: the strategy, and what backs the frozen base.

    Raises:
        ConfigError: it is something else.
    """
    name = text.removesuffix(_FILE)
    if name not in tuple(Strategy):
        known = ", ".join(Strategy)
        raise ConfigError(f"--strategy is {text!r}; use one of {known}, alone or with {_FILE!r} behind it")
    return name, (FrozenBase.FILE if text.endswith(_FILE) else FrozenBase.SAVER).value


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
