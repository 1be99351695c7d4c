"""Putting the demo's parts together on one arena, and taking them apart again whatever happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from torch.optim import AdamW, Optimizer

from lifecycle.adapters import PeftAdapters
from lifecycle.audit.log import AuditLog
from lifecycle.config import LifecycleConfig, Reference
from lifecycle.controller import TrainerLifecycle
from lifecycle.demo.measure import HostMeter
from lifecycle.demo.model import DemoModel, adapter_rank, load_directory, tiny_llama
from lifecycle.demo.options import DemoOptions
from lifecycle.demo.rewards import ResidueReward
from lifecycle.engines.local import TAGS, LocalEngine
from lifecycle.errors import AdapterError, AuditError, ConfigError
from lifecycle.reference import REF
from lifecycle.saver import HostArena
from states import TrainerState

_DEFAULT_NAMES: Final = ("a", "b")
_NEWCOMER: Final = "c"
_CLASSES_MIN: Final = 4
_SPARE_BYTES: Final = 2**20


@dataclass
class Colocated:
    """A trainer and an engine on one arena.

    Attributes:
        options: what was asked for.
        trainer: the controller.
        host: the adapter slots; ``host.model`` is the model that trains.
        optimizers: one a slot.
        engine: the engine, released.
        meter: host memory against the moment when everything was attached.
        vocabulary: number of token ids.
        names: the adapters that the run begins with.
        newcomer: the adapter that joins halfway.
        rewards: what each adapter is rewarded for.
        audit_path: the log.
    """

    options: DemoOptions
    trainer: TrainerLifecycle
    host: PeftAdapters
    optimizers: dict[int, Optimizer]
    engine: LocalEngine
    meter: HostMeter
    vocabulary: int
    names: tuple[str, ...]
    newcomer: str
    rewards: dict[str, ResidueReward]
    audit_path: Path


@contextmanager
def colocated(options: DemoOptions) -> Iterator[Colocated]:
    """Build everything; close everything on exit. Only the log stays behind.

    What can be wrong with the options is found before the first file is written.

    Raises:
        ConfigError: an option that cannot work, a directory that cannot be read or written.
    """
    config = LifecycleConfig(
        offload_target=options.offload_target, with_ref=options.with_ref, ref=options.ref, strategy=options.strategy
    )
    base = tiny_llama(options.seed) if options.model is None else load_directory(options.model, options.seed)
    host = _host(options, base)
    with ExitStack() as stack:
        audit = stack.enter_context(_open_log(options.out))
        arena = HostArena(disk_dir=_disk_dir(options, stack))
        stack.callback(arena.close)
        yield _attach(options, config, base, host, arena, audit)


def _host(options: DemoOptions, base: DemoModel) -> PeftAdapters:
    """The slots, with the first adapters registered."""
    names, paths = first_names(options), dict(options.adapters)
    host = PeftAdapters(base.trainer(), slots=len(names), rank=_slot_rank(options), target_modules=base.target_modules)
    for index, name in enumerate(names):
        try:
            if name in paths:
                host.registry.register(name, paths[name])
            else:
                register_fresh(host, options, name, index)
        except AdapterError as error:
            raise ConfigError(f"--adapter cannot be used: {error}") from error
    return host


def _slot_rank(options: DemoOptions) -> int:
    return max(options.training.rank, *(adapter_rank(path) for _, path in options.adapters), 1)


def first_names(options: DemoOptions) -> tuple[str, ...]:
    """The adapters that the run begins with."""
    return tuple(name for name, _ in options.adapters) or _DEFAULT_NAMES


def _open_log(out: Path) -> AuditLog:
    try:
        return AuditLog(out / "audit.jsonl")
    except AuditError as error:
        raise ConfigError(f"--out {out} cannot be used: {error}") from error


def _disk_dir(options: DemoOptions, stack: ExitStack) -> str | None:
    """A folder of this run alone, gone afterwards. Beside the log, as a temporary folder may lie in memory."""
    if options.offload_target != "disk":
        return None
    try:
        return stack.enter_context(TemporaryDirectory(prefix="backup-", dir=options.out))
    except OSError as error:
        raise ConfigError(f"--out {options.out} cannot take disk backups: {error}") from error


def _attach(
    options: DemoOptions,
    config: LifecycleConfig,
    base: DemoModel,
    host: PeftAdapters,
    arena: HostArena,
    audit: AuditLog,
) -> Colocated:
    """Lay the memory out, take the baseline, load the first adapters. The trainer is awake, the engine released."""
    names = first_names(options)
    engine = _engine(options, base, host, arena)
    optimizers = host.optimizers(lambda owned: AdamW(owned, lr=options.training.learning_rate, weight_decay=0.0))
    trainer = TrainerLifecycle(
        config,
        saver=arena,
        model=host.model,
        optimizer=optimizers,
        adapters=host,
        audit=audit,
        initial_state=TrainerState.AWAKE,
    )
    meter = HostMeter(arena)
    engine.release(TAGS)
    trainer.reconcile_adapters()
    if config.reference is Reference.SNAPSHOT:
        trainer.keep_model(REF)
    newcomer = _NEWCOMER if _NEWCOMER not in names else f"{_NEWCOMER}-{len(names)}-new"
    return Colocated(
        options, trainer, host, optimizers, engine, meter, base.vocabulary, names, newcomer,
        _rewards((*names, newcomer)), audit.path,
    )  # fmt: skip


def _engine(options: DemoOptions, base: DemoModel, host: PeftAdapters, arena: HostArena) -> LocalEngine:
    training = options.training
    tokens = training.prompts * (training.prompt_tokens + training.new_tokens)
    return LocalEngine(
        "engine",
        base.engine,
        saver=arena,
        slots=host.slots,
        rank=_slot_rank(options),
        target_modules=base.target_modules,
        kv_cache_bytes=tokens * base.kv_bytes + _SPARE_BYTES,
    )


def register_fresh(host: PeftAdapters, options: DemoOptions, name: str, index: int) -> None:
    """Register an adapter that starts as the base: random A, zero B."""
    training = options.training
    host.registry.register(name, rank=training.rank, alpha=training.alpha, seed=options.seed + index)


def _rewards(names: tuple[str, ...]) -> dict[str, ResidueReward]:
    classes = max(_CLASSES_MIN, len(names) + 1)
    return {name: ResidueReward(index, classes) for index, name in enumerate(names)}
