"""The demo near a reference: both kinds give the same run, and one of them keeps nothing for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lifecycle.cli.app import app
from lifecycle.demo.options import DemoOptions, Training
from lifecycle.demo.run import run_demo

SMALL = Training(prompts=4, new_tokens=4, kl_weight=1.0)


def told(out: Path, ref: str | None) -> tuple[list[object], bool]:
    """The numbers of each turn, to the last bit, and whether the log tells of a switch of models."""
    options = DemoOptions(out=out, turns=3, training=SMALL, ref=ref)
    report = run_demo(options, lambda _what, _turns: None)
    numbers: list[object] = [(one.rewards, one.logprob_diff) for one in report.turns]
    return numbers, "switch_model" in report.audit.read_text()


def test_both_references_give_the_same_run_where_adapters_begin_as_the_base(tmp_path: Path) -> None:
    """Bit for bit; without a reference it is another run. With adapters off no model is kept or switched to."""
    off, switched_off = told(tmp_path / "off", "adapter_off")
    kept, switched = told(tmp_path / "kept", "snapshot")
    none, _ = told(tmp_path / "none", None)

    assert off == kept
    assert off != none
    assert (switched_off, switched) == (False, True)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--ref", "teacher"), "use 'adapter_off', 'snapshot' or None"),
        (("--ref", "adapter_off", "--with-ref"), "leave one of them out"),
    ],
)
def test_references_that_cannot_be_are_refused_in_one_line(flags: tuple[str, ...], why: str, tmp_path: Path) -> None:
    """Before anything is built."""
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out"), *flags])

    assert result.exit_code == 2
    assert why in result.stderr
    assert not (tmp_path / "out").exists()
