"""The two questions of the reference change, asked of a trainer object as miles has it: one rule, in ``states``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lifecycle.compat import enable_weight_backup, facts_of, weight_sync_reads_tms_backup
from lifecycle.errors import ConfigError
from states.rule import enable_weight_backup as rule_of_backup
from tests.states.test_rule_truth_table import IDS, ROWS, Row


class Trainer:
    """The drop-in: the two properties of miles, one line each."""

    _weight_sync_reads_tms_backup = property(weight_sync_reads_tms_backup)
    _enable_weight_backup = property(enable_weight_backup)

    def __init__(self, with_ref: Any = False, with_opd_teacher: Any = False, **args: Any) -> None:  # noqa: FBT002
        self.args = SimpleNamespace(**args)
        self.with_ref = with_ref
        self.with_opd_teacher = with_opd_teacher


def trainer_of(row: Row) -> Trainer:
    """A trainer of the kind of run that a row of the table is about."""
    return Trainer(
        with_ref=row.ref == "yes",
        with_opd_teacher=row.teacher == "yes",
        colocate=row.colocate == "yes",
        lora_rank=8 if row.lora == "yes" else 0,
        lora_adapter_path=None,
        keep_old_actor=row.old_actor == "yes",
        offload_train=row.target != "none",
        offload_train_target="cpu" if row.target == "none" else row.target,
    )


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_the_answers_are_those_of_the_table_written_by_hand(row: Row) -> None:
    """All 192 rows; plain booleans, as there."""
    trainer = trainer_of(row)

    assert trainer._weight_sync_reads_tms_backup is (row.reads == "yes")
    assert trainer._enable_weight_backup is (row.backup == "yes")


def test_an_adapter_that_is_only_loaded_is_lora_too() -> None:
    """As ``is_lora_enabled`` has it there."""
    assert weight_sync_reads_tms_backup(Trainer(colocate=True, lora_rank=0, lora_adapter_path="adapters/math"))


def test_offload_that_is_not_said_follows_colocate() -> None:
    """As it is resolved there; left out altogether in the arguments of older versions."""
    assert weight_sync_reads_tms_backup(Trainer(colocate=True, lora_rank=8))
    assert not weight_sync_reads_tms_backup(Trainer(colocate=True, lora_rank=8, offload_train=False))


def test_the_answer_can_be_explained() -> None:
    """By the guard that gave it, over the same facts."""
    verdict = rule_of_backup(facts_of(Trainer(colocate=True, lora_rank=8, with_ref=True)))

    assert verdict
    assert "ref" in verdict.because


def test_the_answer_is_the_same_on_every_rank() -> None:
    """FB-49: it looks at configuration alone, which is shared; residency, which is not, decides at the read."""
    ranks = [Trainer(colocate=True, lora_rank=8) for _ in range(2)]
    ranks[1]._asleep = True  # type: ignore[attr-defined]
    ranks[1]._active_model_tag = "ref"  # type: ignore[attr-defined]

    assert facts_of(ranks[0]) == facts_of(ranks[1])


@pytest.mark.parametrize("missing", ["args", "with_ref", "with_opd_teacher"])
def test_a_trainer_that_lacks_something_is_refused(missing: str) -> None:
    """A default would be an answer for another run."""
    trainer = Trainer(colocate=True)
    delattr(trainer, missing)
    with pytest.raises(ConfigError, match=missing):
        enable_weight_backup(trainer)


@pytest.mark.parametrize("wrong", [{"with_ref": 1}, {"with_opd_teacher": None}, {"colocate": "yes"}])
def test_a_flag_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    """A word such as no would count as yes."""
    with pytest.raises(ConfigError):
        weight_sync_reads_tms_backup(Trainer(**wrong))
