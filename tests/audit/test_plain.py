"""Whatever a record is told, it becomes JSON; tensors are described, secrets are not told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum
from pathlib import Path

import numpy as np
import pytest
import torch

from lifecycle.audit.plain import compact_json, plain
from states import Facts, Source, TrainerState


class _Colour(Enum):
    RED = ("r", 1)


class _Level(IntEnum):
    LOW = 1


@dataclass
class _Pair:
    left: object
    right: object


class _Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (1.5, 1.5),
        ("text", "text"),
        (TrainerState.AWAKE, "awake"),
        (_Colour.RED, ["r", 1]),
        (_Level.LOW, 1),
        ((1, [2, (3,)]), [1, [2, [3]]]),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({2, "1"}), ["1", 2]),
        ({1: 2, Source.LIVE: None}, {"1": 2, "live": None}),
        (_Pair(1, {Path("a")}), {"left": 1, "right": ["a"]}),
        (Path("/data/x"), "/data/x"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (b"12345", "5 bytes"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (ValueError("why"), "ValueError: why"),
        (torch.zeros(2, 3, dtype=torch.bfloat16), "tensor bfloat16[2, 3] on cpu"),
        (torch.nn.Parameter(torch.zeros(4)), "tensor float32[4] on cpu"),
        (int, "<class 'int'>"),
        (_Broken(), "_Broken without a text (RuntimeError)"),
    ],
)
def test_a_value_becomes_plain(value: object, expected: object) -> None:
    """Every kind of value has one plain form, which JSON gives back unchanged."""
    told = plain(value)

    assert told == expected
    assert json.loads(compact_json(told)) == told


def test_facts_become_plain() -> None:
    """The record that guards look at, nested as it is."""
    told = plain(Facts())

    assert isinstance(told, dict)
    assert told["contents"][0]["group"] == "frozen-base"


def test_a_cycle_is_cut() -> None:
    """A value that contains itself ends in dots."""
    loop: list[object] = []
    loop.append(loop)

    assert compact_json(plain(loop)).count("...") == 1


def test_text_that_is_no_unicode_is_written_in_ascii() -> None:
    """A file name with a stray byte does not stop the log."""
    assert compact_json(plain("\udcff\u20ac")).isascii()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:pw@host/x", "https://[redacted]@host/x"),
        ("redis://:p@ss@host", "redis://[redacted]@host"),
        ("https://host/x?access_token=abc&n=1", "https://host/x?access_token=[redacted]&n=1"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
        ("https://host/a@b", "https://host/a@b"),
        ("me@host", "me@host"),
        ("{'Authorization': 'Basic dXNlcg=='}", "{'Authorization': 'Basic [redacted]'}"),
        ("authorization: abc", "authorization: [redacted]"),
        ("X-API-Key: abc, Accept: x", "X-API-Key: [redacted], Accept: x"),
        ('{"hf_token": "a b", "n": 1}', '{"hf_token": [redacted], "n": 1}'),
        (r'"{\"token\": \"abc\"}"', r'"{\"token\": [redacted]}"'),
        ("Engine(password='a b', rank=1)", "Engine(password=[redacted], rank=1)"),
        ("api_key=sk-12 was refused", "api_key=[redacted] was refused"),
        ("AWS_SECRET_ACCESS_KEY=abc", "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ('{"secret_key": "abc"}', '{"secret_key": [redacted]}'),
        ("access-key: abc", "access-key: [redacted]"),
        ("privateKey: abc", "privateKey: [redacted]"),
        ("passphrase: abc", "passphrase: [redacted]"),
        ('{"accessToken": "abc"}', '{"accessToken": [redacted]}'),
        ("Authorization: NTLM abc", "Authorization: [redacted]"),
        (
            "{'authorization': 'AWS4-HMAC-SHA256 Credential=a, Signature=b', 'n': 1}",
            "{'authorization': '[redacted]', 'n': 1}",
        ),
        ("max_tokens: 7, a key: 1, adapter_key=2, maxTokens=3", "max_tokens: 7, a key: 1, adapter_key=2, maxTokens=3"),
        ("tokens: 7, a token is missing, secret-adapter: gone", "tokens: 7, a token is missing, secret-adapter: gone"),
    ],
)
def test_credentials_in_text_are_redacted(text: str, expected: str) -> None:
    """Also inside errors and nested values."""
    assert plain(text) == expected
    assert plain([RuntimeError(text)]) == [f"RuntimeError: {expected}"]


@pytest.mark.parametrize("part", ["?a", "&token", "://", "authorization:", "token ", "aToken", "token='", "\\"])
def test_a_long_text_is_looked_through_once(part: str) -> None:
    """An answer or an error may hold anything, as often as it likes, in front of what is secret."""
    told = plain(part * 50_000 + "=?key=abc")

    assert isinstance(told, str)
    assert "abc" not in told


def test_values_under_the_name_of_a_secret_are_redacted() -> None:
    """By key, whatever the value is; keys that only look alike stay."""
    secrets = {
        "api_key": "x",
        "hf_token": 1,
        "authToken": "x",
        "aws_secret_access_key": "x",
        "Proxy-Authorization": "x",
    }

    told = plain({**secrets, "password": "", "tokens": 7, "adapter_key": "a"})

    assert told == {**dict.fromkeys(secrets, "[redacted]"), "password": "", "tokens": 7, "adapter_key": "a"}
