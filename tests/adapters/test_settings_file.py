"""``adapter.yaml``: each key, what is refused of it by name, and YAML without its surprises."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lifecycle.adapters import AdapterRegistry
from lifecycle.adapters.settings import AdapterSettings
from lifecycle.adapters.settings_file import _File, read_config
from lifecycle.adapters.settings_yaml import FILE_BYTES_MAX
from lifecycle.errors import AdapterError
from tests.adapters.world import SLOT_RANK, host, peft_directory

WHOLE = """\
rank: 4
alpha: 12.5
target_modules: [q_proj, down_proj]
seed: 3
save: runs/math
num_step: 200
rollout_batch_size: 32
n_samples_per_prompt: 8
trainable: true
"""


def written(tmp_path: Path, text: str | bytes) -> Path:
    """The file with this text."""
    file = tmp_path / "adapter.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def refused(tmp_path: Path, text: str | bytes) -> str:
    """Why the file is refused."""
    with pytest.raises(AdapterError) as caught:
        read_config("math", written(tmp_path, text))
    assert caught.value.adapter == "math"
    return caught.value.why


def test_every_key_is_read(tmp_path: Path) -> None:
    """Types as a registration takes them, and paths relative to the file."""
    found = read_config("math", written(tmp_path, WHOLE))

    assert (found.path, found.rank, found.alpha, found.seed) == (None, 4, 12.5, 3)
    assert found.target_modules == ("q_proj", "down_proj")
    assert found.settings == AdapterSettings(
        save=tmp_path / "runs/math", num_step=200, rollout_batch_size=32, n_samples_per_prompt=8, trainable=True
    )


def test_an_adapter_is_registered_with_what_its_file_says(tmp_path: Path) -> None:
    """Rank and settings reach the record."""
    registry = AdapterRegistry(2)
    config = read_config("math", written(tmp_path, WHOLE))
    registry.register("math", **config.arguments())
    record = registry.find("math")

    assert record is not None
    assert record.source is not None
    assert (record.source.rank, record.source.alpha, record.num_step) == (4, 12.5, 200)
    assert record.settings == config.settings


def test_a_file_may_name_a_directory_to_start_from(tmp_path: Path) -> None:
    """Relative to the file, not to where the process happens to run."""
    peft_directory(tmp_path / "start", seed=1, rank=4)
    made = host()
    config = read_config("math", written(tmp_path, "path: start\nnum_epoch: 2\ntrainable: false\n"))
    wanted = made.registry.register("math", **config.arguments())

    assert made.prepare(wanted).rank == 4
    assert (config.settings.num_epoch, config.settings.trainable) == (2, False)


def test_what_is_left_out_is_not_given(tmp_path: Path) -> None:
    """An empty mapping is an adapter like any fresh one; so is a key without a value."""
    for text in ("{}", "rank:\nalpha: ~\n"):
        found = read_config("math", written(tmp_path, text))
        assert (found.rank, found.alpha, found.target_modules, found.seed) == (None, None, None, 0)
        assert found.settings == AdapterSettings()


def test_the_example_of_the_guide_is_read(tmp_path: Path) -> None:
    """docs/checkpoints.md shows a file that works, and every key is in it or named beside it."""
    guide = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    example = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    found = read_config("math", written(tmp_path, example[0]))

    assert (found.rank, found.alpha, found.settings.num_step) == (16, 32.0, 200)
    assert [key for key in _File.__struct_fields__ if f"{key}:" not in guide and f"`{key}`" not in guide] == []


COUNTS = ("rank", "num_step", "num_epoch", "rollout_batch_size", "n_samples_per_prompt")
NO_COUNT = ("0", "-1", "1.0", "1.5", "'4'", "true", "[4]", "{a: 4}", "010", "1:30", "4_000", "0x10", str(2**63), "1e3")


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("value", NO_COUNT)
def test_a_count_that_is_none_is_refused_by_its_key_and_what_is_allowed(tmp_path: Path, key: str, value: str) -> None:
    """No text, no fraction, no bool, nothing below one."""
    why = refused(tmp_path, f"{key}: {value}\n")

    assert why.startswith(f"adapter.yaml: {key} is ")
    assert "; it is an integer from 1 to 2**63 - 1" in why


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("alpha", "0", "a finite number above 0"),
        ("alpha", "-2", "a finite number above 0"),
        ("alpha", "true", "a finite number above 0"),
        ("alpha", "'8'", "a finite number above 0"),
        ("alpha", ".inf", "a finite number above 0"),
        ("alpha", ".nan", "a finite number above 0"),
        ("alpha", "1e999", "a finite number above 0"),
        ("target_modules", "q_proj", "a list of at least one module name suffix"),
        ("target_modules", "[]", "a list of at least one module name suffix"),
        ("target_modules", "[q_proj, 4]", "a list of at least one module name suffix"),
        ("target_modules", "['']", "a list of at least one module name suffix"),
        ("target_modules", "{q_proj: 1}", "a list of at least one module name suffix"),
        ("seed", "-1", "an integer from 0 to"),
        ("seed", str(2**63), "an integer from 0 to"),
        ("seed", "0.5", "an integer from 0 to"),
        ("trainable", "yes", "true or false"),
        ("trainable", "1", "true or false"),
        ("trainable", "~", "true or false"),
        ("path", "4", "the name of a PEFT directory"),
        ("path", "''", "the name of a PEFT directory"),
        ("path", "[a]", "the name of a PEFT directory"),
        ("save", "true", "the name of a directory"),
        ("save", "''", "the name of a directory"),
        ("save", "a" * 5000, "the name of a directory"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key_and_what_is_allowed(
    tmp_path: Path, key: str, value: str, allowed: str
) -> None:
    """Each key, each kind of wrong."""
    why = refused(tmp_path, f"{key}: {value}\n")

    assert why.startswith(f"adapter.yaml: {key} is ")
    assert f"; it is {allowed}" in why
    assert len(why) < 200


@pytest.mark.parametrize("key", ["rnk", "Rank", "lora_alpha", "<<", "1", "r" * 1000])
def test_an_unknown_key_is_refused_by_name_and_the_known_ones_are_listed(tmp_path: Path, key: str) -> None:
    """A typing error is no silent default."""
    why = refused(tmp_path, f"rank: 4\n{key}: 4\n")

    assert why.startswith(f"adapter.yaml has the unknown key {key[:40]!r}; the keys are: path, rank, alpha")


def test_steps_and_epochs_together_are_refused(tmp_path: Path) -> None:
    """One of them says how long it runs."""
    assert "num_step and num_epoch are both given" in refused(tmp_path, "num_step: 4\nnum_epoch: 1\n")


@pytest.mark.parametrize("beside", ["rank: 4", "alpha: 8", "target_modules: [q_proj]", "seed: 0"])
def test_what_a_directory_says_itself_is_refused_beside_path(tmp_path: Path, beside: str) -> None:
    """By the key."""
    why = refused(tmp_path, f"path: start\n{beside}\n")

    assert f"adapter.yaml: {beside.partition(':')[0]} beside path" in why


def test_a_shape_that_the_slots_cannot_have_is_refused_at_registration(tmp_path: Path) -> None:
    """The file alone cannot know them."""
    made = host()
    wide = read_config("math", written(tmp_path, f"rank: {SLOT_RANK + 1}\n"))
    elsewhere = read_config("math", written(tmp_path, "target_modules: [k_proj]\n"))

    with pytest.raises(AdapterError, match=f"its rank is {SLOT_RANK + 1}, the slots have rank {SLOT_RANK}"):
        made.registry.register("math", **wide.arguments())
    with pytest.raises(AdapterError, match="k_proj has no slots"):
        made.registry.register("math", **elsewhere.arguments())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rank: 4\nrank: 5\n", "line 2: rank stands twice"),
        ("rank: &r 4\nseed: *r\n", "line 1 has an anchor or alias"),
        ("rank: *r\n", "line 1 has an anchor or alias"),
        ("rank: !!int 4\n", "line 1 has the tag tag:yaml.org,2002:int"),
        ("rank: !!python/object/apply:os.getpid []\n", "line 1 has the tag"),
        ("- rank\n", "it holds list"),
        ("", "it holds NoneType"),
        ("4", "it holds int"),
        ("? [a]\n: 4\n", "a key that is no name"),
        ("rank: 4\n---\nrank: 4\n", "a single document"),
        ("rank: b: c\n", "mapping values are not allowed"),
        ("rank: " + "[" * 20_000, "recursion"),
        ("rank: " + "9" * 5000, "line 1 has an integer of 5000 digits; give a number that a key can have"),
        ("#" * (FILE_BYTES_MAX + 1), f"more than {FILE_BYTES_MAX} bytes"),
        (b"rank: \xff\n", "utf-8"),
        ("rank: \x00", "special characters"),
    ],
)
def test_what_is_no_plain_yaml_is_refused(tmp_path: Path, text: str | bytes, why: str) -> None:
    """Anchors, tags, duplicates, depth and size are bounded; nothing is executed."""
    told = refused(tmp_path, text)

    assert told.startswith(f"{tmp_path / 'adapter.yaml'} cannot be used: ")
    assert why in told


def test_many_aliases_do_not_make_a_small_file_a_large_one(tmp_path: Path) -> None:
    """Nine levels of nine would be some hundred million entries."""
    lines = ["a: &a [x]"] + [
        f"{n}: &{n} [{','.join(['*' + p] * 9)}]" for p, n in zip("abcdefgh", "bcdefghi", strict=True)
    ]

    assert "anchor or alias" in refused(tmp_path, "\n".join(lines))


@pytest.mark.parametrize("kind", ["nothing", "a directory", "a pipe"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A pipe without a writer does not block."""
    file = tmp_path / "adapter.yaml"
    {"nothing": lambda: None, "a directory": file.mkdir, "a pipe": lambda: os.mkfifo(file)}[kind]()

    with pytest.raises(AdapterError, match="cannot be used"):
        read_config("math", file)


def test_a_bad_name_is_refused_with_the_file(tmp_path: Path) -> None:
    """The name is checked before the content."""
    with pytest.raises(AdapterError, match="the name has"):
        read_config("../math", written(tmp_path, "rnk: 4\n"))
