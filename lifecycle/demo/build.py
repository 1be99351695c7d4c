"""Putting the demo's parts together on one arena, and taking them apart again whatever happened."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
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
from lifecycle.demo.options import DemoOptions, EngineKind, ReconcileIn
from lifecycle.demo.report import log_name
from lifecycle.demo.seat import Peers, Seat, among, backup_folder
from lifecycle.demo.share import Share
from lifecycle.demo.tenants import Tenants, plan_tenants
from lifecycle.engines.local import TAGS, LocalEngine, Rollout
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import AuditError, ConfigError
from lifecycle.reference import REF
from lifecycle.saver import HostArena
from states import TrainerState

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
        sample: takes rollouts from it, as :meth:`~lifecycle.engines.local.LocalEngine.generate` does.
        meter: host memory against the moment when everything was attached.
        vocabulary: number of token ids.
        tenants: the adapters: who waits, who has a slot, who has left.
        began: the adapters that were loaded at the beginning, and that a ref model therefore has.
        audit_path: the log.
        share: what of each batch is this process's.
    """

    options: DemoOptions
    trainer: TrainerLifecycle
    host: PeftAdapters
    optimizers: dict[int, Optimizer]
    engine: RolloutEngine
    sample: Callable[..., Rollout]
    meter: HostMeter
    vocabulary: int
    tenants: Tenants
    began: tuple[str, ...]
    audit_path: Path
    share: Share


@contextmanager
def colocated(options: DemoOptions, seat: Seat | None = None) -> Iterator[Colocated]:
    """Build everything; close everything on exit. Only the log stays behind.

    What can be wrong with the options is found before the first file is written.

    Args:
        options: what was asked for.
        seat: where the other ranks are found; None when there are none.

    Raises:
        ConfigError: an option that cannot work, a directory that cannot be read or written.
        LifecycleError: the other ranks do not come, or do not agree.
    """
    config = LifecycleConfig(
        offload_target=options.offload_target, with_ref=options.with_ref, ref=options.ref, strategy=options.strategy
    )
    base = tiny_llama(options.seed) if options.model is None else load_directory(options.model, options.seed)
    planned, slots = plan_tenants(options)
    host = PeftAdapters(base.trainer(), slots=slots, rank=_slot_rank(options), target_modules=base.target_modules)
    tenants = Tenants(host, options, planned)
    tenants.admit()
    with ExitStack() as stack:
        audit = stack.enter_context(_open_log(options.out, seat))
        arena = HostArena(disk_dir=_disk_dir(options, seat, stack))
        stack.callback(arena.close)
        peers = stack.enter_context(among(seat))
        yield _attach(options, config, base, host, tenants, arena, audit, peers, stack)


def _slot_rank(options: DemoOptions) -> int:
    return max(options.training.rank, *(adapter_rank(path) for _, path in options.adapters), 1)


def _open_log(out: Path, seat: Seat | None) -> AuditLog:
    try:
        if seat is None:
            return AuditLog(out / log_name())
        return AuditLog(out / log_name(seat.rank), run=seat.run, rank=seat.rank)
    except AuditError as error:
        raise ConfigError(f"--out {out} cannot be used: {error}") from error


def _disk_dir(options: DemoOptions, seat: Seat | None, stack: ExitStack) -> str | None:
    """A folder of this run alone, gone afterwards. Beside the log, as a temporary folder may lie in memory."""
    if options.offload_target != "disk":
        return None
    try:
        if seat is not None:
            folder = backup_folder(options.out, seat)
            folder.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            return str(folder)
        return stack.enter_context(TemporaryDirectory(prefix="backup-", dir=options.out))
    except OSError as error:
        raise ConfigError(f"--out {options.out} cannot take disk backups: {error}") from error


def _attach(
    options: DemoOptions,
    config: LifecycleConfig,
    base: DemoModel,
    host: PeftAdapters,
    tenants: Tenants,
    arena: HostArena,
    audit: AuditLog,
    peers: Peers,
    stack: ExitStack,
) -> Colocated:
    """Lay the memory out, take the baseline, load the first adapters. The trainer is awake, the engine released."""
    local = _engine(options, base, host, arena) if options.engine == EngineKind.LOCAL else None
    optimizers = host.optimizers(lambda owned: AdamW(owned, lr=options.training.learning_rate, weight_decay=0.0))
    trainer = TrainerLifecycle(
        config,
        saver=arena,
        model=host.model,
        optimizer=optimizers,
        adapters=host,
        audit=audit,
        groups=peers.groups,
        ranks=peers.ranks,
        initial_state=TrainerState.AWAKE,
    )
    meter = HostMeter(arena)
    engine, sample = (local, local.generate) if local is not None else _served(options, trainer, host, base, stack)
    engine.release(TAGS)
    to_reconcile(trainer, options)
    trainer.reconcile_adapters()
    if trainer.state is not TrainerState.AWAKE:
        trainer.wake_up()
    if config.reference is Reference.SNAPSHOT:
        trainer.keep_model(REF)
    words, began = base.vocabulary, tenants.names
    return Colocated(
        options, trainer, host, optimizers, engine, sample, meter, words, tenants, began, audit.path, peers.share
    )


def to_reconcile(trainer: TrainerLifecycle, options: DemoOptions) -> None:
    """Go to the state in which adapters are to be changed."""
    if options.reconcile == ReconcileIn.OFFLOADED:
        trainer.sleep(offload=True)


def _engine(options: DemoOptions, base: DemoModel, host: PeftAdapters, arena: HostArena) -> LocalEngine:
    training = options.training
    rows = -(-training.prompts // options.ranks)
    tokens = rows * (training.prompt_tokens + training.new_tokens)
    return LocalEngine(
        "engine",
        base.engine,
        saver=arena,
        slots=host.slots,
        rank=_slot_rank(options),
        target_modules=base.target_modules,
        kv_cache_bytes=tokens * base.kv_bytes + _SPARE_BYTES,
    )


def _served(
    options: DemoOptions, trainer: TrainerLifecycle, host: PeftAdapters, base: DemoModel, stack: ExitStack
) -> tuple[RolloutEngine, Callable[..., Rollout]]:
    """A server of its own that has the trainer's base already."""
    from lifecycle.demo.served import Sampling, leave, prove_base, vllm_engine  # noqa: PLC0415 - needs httpx, and only this

    engine = vllm_engine(options)
    stack.callback(leave, engine)
    prove_base(engine, trainer, host.model, base.vocabulary)
    return engine, Sampling(engine).generate
