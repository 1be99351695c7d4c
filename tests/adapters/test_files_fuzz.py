"""Files that were damaged at random: the outcome is an adapter that fits, or one clear error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lifecycle.adapters import PeftAdapters
from lifecycle.adapters.fit import FittedAdapter
from lifecycle.adapters.sources import AdapterSource
from lifecycle.errors import AdapterError
from tests.adapters.world import host, peft_directory

FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def slots() -> PeftAdapters:
    """Slots that are never filled."""
    return host()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that fits."""
    return peft_directory(tmp_path_factory.mktemp("good") / "a", seed=1, rank=2)


def damaged(content: bytes, cut: int, at: int, junk: bytes) -> bytes:
    """Overwritten somewhere, then cut somewhere."""
    at %= len(content)
    return (content[:at] + junk + content[at + len(junk) :])[: cut % (len(content) + 1)]


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
@FUZZ
@given(cut=st.integers(0, 2**16), at=st.integers(0, 1000), junk=st.binary(max_size=16))
def test_a_damaged_file_is_an_adapter_error_or_fits(
    slots: PeftAdapters, good: Path, tmp_path: Path, name: str, cut: int, at: int, junk: bytes
) -> None:
    """Never a traceback of somebody else."""
    directory = tmp_path / "damaged"
    shutil.copytree(good, directory, dirs_exist_ok=True)
    whole = (good / name).read_bytes()
    (directory / name).write_bytes(damaged(whole, cut if cut % 3 else len(whole), at, junk))
    outcome: object
    try:
        outcome = slots._read("a", AdapterSource(path=directory))
    except AdapterError as error:
        outcome = error

    assert isinstance(outcome, FittedAdapter | AdapterError)
