"""The two questions of the reference change, asked of a trainer object of miles and answered by ``states.rule``."""

from __future__ import annotations

from typing import Any

from lifecycle.config import LifecycleConfig
from lifecycle.errors import ConfigError
from states import Facts, Strategy
from states.rule import enable_weight_backup as _enable_weight_backup
from states.rule import weight_sync_reads_saver_backup as _weight_sync_reads_saver_backup


def facts_of(trainer: Any) -> Facts:
    """What the guards of :mod:`states.rule` may know of a trainer: its configuration, the same on every rank.

    Args:
        trainer: has ``args`` (see :meth:`LifecycleConfig.from_args`), ``with_ref`` and ``with_opd_teacher``.

    Raises:
        ConfigError: one of them is missing or cannot be what it is.
    """
    missing = [name for name in ("args", "with_ref", "with_opd_teacher") if not hasattr(trainer, name)]
    if missing:
        raise ConfigError(f"{type(trainer).__name__} has no {', '.join(missing)}; ask once its init() has set them")
    config = LifecycleConfig.from_args(
        trainer.args,
        with_ref=trainer.with_ref,
        with_teacher=trainer.with_opd_teacher,
        strategy=Strategy.REFERENCE.value,
    )
    return Facts(**config.facts_settings())


def weight_sync_reads_tms_backup(trainer: Any) -> bool:
    """Whether weight sync reads the saver's own backup, so that no second copy of the base is kept.

    To know why, ask :func:`states.rule.weight_sync_reads_saver_backup` about ``facts_of(trainer)``.

    Raises:
        ConfigError: see :func:`facts_of`.
    """
    return _weight_sync_reads_saver_backup(facts_of(trainer)).holds


def enable_weight_backup(trainer: Any) -> bool:
    """Whether the trainer keeps named copies of its weights.

    To know why, ask :func:`states.rule.enable_weight_backup` about ``facts_of(trainer)``.

    Raises:
        ConfigError: see :func:`facts_of`.
    """
    return _enable_weight_backup(facts_of(trainer)).holds
