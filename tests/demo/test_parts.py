"""The demo's parts: rewards, loss, measurement, options, table."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from lifecycle.demo.measure import HostMeter, process_bytes
from lifecycle.demo.model import adapter_rank, load_directory, tiny_llama
from lifecycle.demo.options import DemoOptions, Training, parse_adapter
from lifecycle.demo.report import DemoReport, Tenancy, TurnReport
from lifecycle.demo.rewards import ResidueReward, advantages
from lifecycle.demo.table import adapter_table, notes, states_passed, turn_table
from lifecycle.demo.train import divergence, policy_loss
from lifecycle.errors import ConfigError
from lifecycle.saver import Backup
from lifecycle.saver.arena import HostArena

MIB = 2**20


def test_a_token_is_worth_one_when_its_residue_is_right() -> None:
    """The reward looks at token ids only."""
    rewards = ResidueReward(residue=1, classes=4).of(torch.tensor([[1, 4], [5, 6]]))

    assert rewards.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_advantages_have_mean_zero() -> None:
    """The batch mean is the baseline."""
    assert abs(float(advantages(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).mean())) < 1e-6


def test_equal_rewards_teach_nothing() -> None:
    """A batch without differences gives no gradient and no division by zero."""
    assert advantages(torch.ones(2, 3)).abs().max() == 0


def test_the_loss_pulls_up_what_was_better_than_average() -> None:
    """The gradient of a good token's log-probability is negative, of a bad one's positive."""
    now = torch.zeros(1, 2, requires_grad=True)
    loss = policy_loss(now, torch.zeros(1, 2), torch.tensor([[1.0, -1.0]]), None, Training())
    loss.backward()

    assert now.grad is not None
    assert now.grad[0, 0] < 0 < now.grad[0, 1]


def test_the_loss_stops_at_the_clip() -> None:
    """A policy that has moved far on this rollout already moves no further."""
    now = torch.full((1, 1), 1.0, requires_grad=True)
    policy_loss(now, torch.zeros(1, 1), torch.ones(1, 1), None, Training()).backward()

    assert now.grad is not None
    assert float(now.grad) == 0


def test_the_divergence_is_zero_at_the_ref_and_positive_elsewhere() -> None:
    """The ref pulls from both sides."""
    found = divergence(torch.tensor([0.0, 1.0, -1.0]), torch.zeros(3))

    assert found[0] == 0
    assert (found[1:] > 0).all()


def test_process_memory_is_anonymous_and_shared_pages() -> None:
    """File pages do not count; units are bytes."""
    text = "0-0 ---p\nRss: 99 kB\nPss_Anon: 10 kB\nPss_File: 50 kB\nPss_Shmem: 4 kB\n"

    assert process_bytes(text) == 14 * 1024


def test_a_paused_region_with_backup_counts_once_on_the_host() -> None:
    """The pages that left with the region must not hide the backup that took their place."""
    arena = HostArena()
    arena.place({"weight": torch.ones(64 * MIB, dtype=torch.uint8)}, "actor/base", Backup.CPU)
    meter = HostMeter(arena)
    arena.pause("actor/base")
    held = meter.host_bytes()
    arena.close()

    assert held == pytest.approx(64 * MIB, abs=8 * MIB)


def test_a_paused_region_without_backup_holds_nothing_on_the_host() -> None:
    """Giving memory back is not a host byte."""
    arena = HostArena()
    arena.place({"scratch": torch.ones(64 * MIB, dtype=torch.uint8)}, "actor/gradients", Backup.NONE)
    meter = HostMeter(arena)
    arena.pause("actor/gradients")
    held = meter.host_bytes()
    arena.close()

    assert held < 8 * MIB


@pytest.mark.parametrize("text", ["a", "=dir", "a=", ""])
def test_an_adapter_is_given_as_name_and_directory(text: str) -> None:
    """Anything else is told how to write it."""
    with pytest.raises(ConfigError, match="write NAME=DIR"):
        parse_adapter(text)


def test_a_directory_may_contain_an_equals_sign() -> None:
    """Only the first one separates."""
    assert parse_adapter("a=x=y") == ("a", Path("x=y"))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"turns": 0}, "--turns"),
        ({"seed": -1}, "--seed"),
        ({"adapters": (("a", Path("x")), ("a", Path("y")))}, "a twice"),
    ],
)
def test_bad_options_are_refused_before_anything_is_built(bad: dict[str, object], why: str) -> None:
    """The message names the option."""
    with pytest.raises(ConfigError, match=why):
        replace(DemoOptions(), **bad)


@pytest.mark.parametrize("content", [None, "{", "[]", '{"r": "x"}', '{"r": -1}'])
def test_a_rank_that_cannot_be_read_is_no_rank(tmp_path: Path, content: str | None) -> None:
    """Reading ahead never fails; whoever loads the adapter says what is wrong."""
    if content is not None:
        (tmp_path / "adapter_config.json").write_text(content)

    assert adapter_rank(tmp_path) == 0


def _make_empty(directory: Path) -> None:
    """Nothing is there."""


def _make_broken(directory: Path) -> None:
    (directory / "config.json").write_text("{")


def _make_unknown(directory: Path) -> None:
    (directory / "config.json").write_text('{"model_type": "no-such-model"}')


def _make_without_weights(directory: Path) -> None:
    tiny_llama(0).engine().config.save_pretrained(directory)  # type: ignore[operator,union-attr]


@pytest.mark.parametrize("make", [_make_empty, _make_broken, _make_unknown, _make_without_weights])
def test_a_directory_that_is_no_model_is_refused_in_one_line(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Whatever is wrong with it, the error is ours and names the option."""
    make(tmp_path)
    with pytest.raises(ConfigError, match="--model") as error:
        load_directory(tmp_path, seed=0)

    assert "\n" not in str(error.value)


def test_a_saved_model_comes_back_with_its_weights(tmp_path: Path) -> None:
    """A directory gives the trainer its bytes and the engine others."""
    saved = tiny_llama(3).trainer()
    saved.save_pretrained(tmp_path)  # type: ignore[operator]
    loaded = load_directory(tmp_path, seed=0)
    wanted = saved.state_dict()["lm_head.weight"]

    assert torch.equal(loaded.trainer().state_dict()["lm_head.weight"], wanted)
    assert not torch.equal(loaded.engine().state_dict()["lm_head.weight"], wanted)


def test_making_a_model_leaves_the_random_numbers_alone() -> None:
    """A demo that is embedded somewhere does not change what is random there."""
    before = torch.get_rng_state()
    tiny_llama(7).engine()

    assert torch.equal(torch.get_rng_state(), before)


def _tenancy(name: str, slot: int, turns: tuple[int, int] = (0, 0), weights: str = "0" * 64) -> Tenancy:
    return Tenancy(name, slot + 1, slot, *turns, 2, 0.25, 0.5, weights)


def _report(*turns: TurnReport, adapters: tuple[Tenancy, ...]) -> DemoReport:
    return DemoReport(3.0, turns, adapters, "awake", Path("audit.jsonl"), "awake")


def _printed(report: DemoReport, width: int) -> list[str]:
    """As a terminal without colours, or a pipe, shows it."""
    stream = io.StringIO()
    Console(file=stream, width=width).print(turn_table(report), adapter_table(report), sep="\n")
    return stream.getvalue().splitlines()


def test_the_tables_have_a_row_a_turn_and_a_row_an_adapter() -> None:
    """States, rewards by slot, MiB and differences are there; a slot without an adapter has a dash."""
    turns = (
        TurnReport(0, ("awake", "sleeping", "offloaded-cpu", "awake"), {"a": 0.25}, 12 * MIB, MIB, 1e-6),
        TurnReport(1, ("awake", "adapter-reconciling", "awake"), {"b": 0.5}, 24 * MIB, 2 * MIB, 0.5),
    )
    report = _report(*turns, adapters=(_tenancy("a", 0), _tenancy("b", 1, (1, 1), "f" * 64)))
    rows = [" ".join(line.split()) for line in _printed(report, 80)]

    assert "0 awake>sleep>cpu>awake a:0.25 - 12.0 1.0 1e-06" in rows
    assert "1 awake* - b:0.50 24.0 2.0 5e-01!" in rows
    assert "a 1 0 0-0 2 0.25 to 0.50 0000000000000000" in rows
    assert "b 2 1 1-1 2 0.25 to 0.50 ffffffffffffffff" in rows


@pytest.mark.parametrize(("slots", "lines"), [(4, 1), (16, 4)])
def test_many_adapters_fit_a_terminal_of_80_columns(slots: int, lines: int) -> None:
    """A turn of four slots is one line. More are below each other, each whole and in its column."""
    states = ("awake", "sleeping", "offloaded-cpu", "adapter-reconciling", "offloaded-cpu", "adapter-reconciling",
              "offloaded-cpu", "awake")  # fmt: skip
    names = list("abcdefghijklmnop"[:slots])
    turn = TurnReport(15, states, dict.fromkeys(names, 1.0), 22 * MIB, 48 * MIB, 4e-6)
    printed = _printed(_report(turn, adapters=tuple(_tenancy(name, slot) for slot, name in enumerate(names))), 80)
    shown = [line for line in printed if ":1.00" in line]

    assert max(map(len, printed)) <= 80
    assert len(shown) == lines
    assert [word for line in shown for word in line.split() if ":" in word] == [f"{name}:1.00" for name in names]
    assert len({line.index(f"{name}:") for name, line in zip(names[::4], shown, strict=True)}) == 1


@pytest.mark.parametrize("width", [80, 60, 40])
def test_a_terminal_that_knows_no_more_than_ascii_shows_the_tables(width: int) -> None:
    """However narrow it is. What does not fit is folded; the digests stay whole."""
    turn = TurnReport(0, ("awake", "sleeping", "offloaded-cpu", "awake"), {"a": 0.5, "b": 0.5}, MIB, MIB, 1e-6)
    report = _report(turn, adapters=(_tenancy("a", 0, weights="7" * 64), _tenancy("b", 1)))
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=stream, width=width).print(turn_table(report), adapter_table(report), sep="\n")
    stream.seek(0)

    assert stream.read().count("7") == 16


@pytest.mark.parametrize(("difference", "is_marked"), [(1e-3, False), (2e-3, True), (float("nan"), True)])
def test_the_table_marks_a_difference_above_the_tolerance(*, difference: float, is_marked: bool) -> None:
    """Red, and a mark that shows without colours, is what must not happen; no number is no agreement."""
    stream = io.StringIO()
    report = _report(TurnReport(0, ("awake",), {"a": 0.5}, 0, 0, difference), adapters=(_tenancy("a", 0),))
    Console(file=stream, width=140, force_terminal=True).print(turn_table(report))

    assert ("\x1b[1;31m" in stream.getvalue()) is is_marked
    assert (f"{difference:.0e}!" in stream.getvalue()) is is_marked
    assert bool(report.disagreeing) is is_marked


def test_the_notes_say_where_the_log_is_and_which_weights_came_out() -> None:
    """The digest over all adapters depends on each of them, and not on the order in which they came."""
    one, other = _tenancy("a", 0), _tenancy("b", 1, weights="f" * 64)
    found = _report(adapters=(one, other))

    assert found.weights == _report(adapters=(other, one)).weights
    assert found.weights != _report(adapters=(one, replace(other, weights="e" * 64))).weights
    assert found.weights != _report(adapters=(one, replace(other, adapter="c"))).weights
    assert found.weights[:16] in notes(found)
    assert "audit.jsonl" in notes(found)
    assert max(len(line) for line in notes(found).splitlines()) <= 80


def test_two_reconciles_in_a_row_are_two_excursions() -> None:
    """The state between them is not repeated; each is a star."""
    states = ("awake", "adapter-reconciling", "awake", "adapter-reconciling", "awake", "sleeping", "awake")

    assert states_passed(states) == "awake**>sleep>awake"


def test_the_report_is_plain_values() -> None:
    """What --json prints has exactly the documented keys."""
    turn = TurnReport(0, ("awake", "awake"), {"a": 0.25}, 1, 2, 1e-6)
    report = _report(turn, adapters=(_tenancy("a", 0),))
    found = report.as_json()

    assert set(found) == {"seconds", "turns", "adapters", "reconcile", "weights", "audit", "final_state"}
    assert found["weights"] == report.weights
    assert found["adapters"] == [
        {
            "adapter": "a",
            "registration_id": 1,
            "slot": 0,
            "first_turn": 0,
            "last_turn": 0,
            "steps": 2,
            "first_reward": 0.25,
            "last_reward": 0.5,
            "weights": "0" * 64,
        }
    ]
    assert found["turns"] == [
        {
            "turn": 0,
            "states": ["awake", "awake"],
            "rewards": {"a": 0.25},
            "host_bytes": 1,
            "moved_bytes": 2,
            "logprob_diff": 1e-6,
        }
    ]
