"""Sizes, counts and defaults that sentences tell are those of the code."""

from __future__ import annotations

import pytest

from lifecycle import LifecycleConfig
from lifecycle.adapters.batches import BATCHES_KEPT
from lifecycle.adapters.roster import COMPLETED_KEPT
from lifecycle.adapters.settings_yaml import FILE_BYTES_MAX
from lifecycle.distributed import handing
from lifecycle.transport.ports import BUCKET_BYTES
from states import TABLE, TrainerState
from states.agreement import BALLOT_BYTES, WORDS_BYTES_MAX
from states.agreement_told import CHUNK_BYTES, TELLING_BYTES_MAX
from tests.docs.blocks import text_of

MIB = 1 << 20
DEFAULT = LifecycleConfig()
TOLD = [
    ("ranks.md", f"Each rank casts a ballot of {BALLOT_BYTES} bytes"),
    ("scale.md", f"A rank puts {2 * BALLOT_BYTES} bytes into an agreement"),
    ("ranks.md", f"Up to {WORDS_BYTES_MAX} bytes stand in the ballot"),
    ("ranks.md", f"in chunks of {CHUNK_BYTES // MIB} MiB, up to {TELLING_BYTES_MAX // MIB // 1024} GiB"),
    ("ranks.md", f"byte by byte, in chunks of {handing.CHUNK_BYTES // MIB} MiB"),
    ("registry.md", f"The newest {BATCHES_KEPT} batches are remembered"),
    ("registry.md", f"The newest {COMPLETED_KEPT} completed registrations are remembered"),
    ("checkpoints.md", f"It is plain YAML of at most {FILE_BYTES_MAX >> 10} KiB"),
    ("transport.md", f"flat buffers of `bucket_bytes` ({BUCKET_BYTES // MIB} MiB)"),
    ("README.md", f'`strategy="{DEFAULT.strategy}"`, the default'),
    ("README.md", f'`verify="{DEFAULT.verify}"`, the default'),
    ("faq.md", f'`strategy="{DEFAULT.strategy}"`, the default'),
    ("faq.md", f'`verify="{DEFAULT.verify}"`, the default'),
    ("weight-sync.md", '`verify="off"` hashes nothing'),
]


@pytest.mark.parametrize(("page", "sentence"), TOLD, ids=lambda one: one[:40])
def test_a_number_is_that_of_the_code(page: str, sentence: str) -> None:
    """Where a page tells one in a sentence."""
    assert sentence in " ".join(text_of(page).split())


def test_the_states_of_start_here_are_states() -> None:
    """Start here names the states that a trainer can rest in; each is one, and each is left by some event."""
    named = {"awake", "sleeping", "offloaded"}
    states = {str(state).split("-")[0] for state in TrainerState}

    assert named <= states
    assert all(f"**{one}**" in text_of("start.md") for one in named)
    assert {str(row.source).split("-")[0] for row in TABLE} >= named
