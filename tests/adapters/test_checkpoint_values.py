"""Values as JSON and back: the same types and bits, or a refusal that names the place. Never a pickle."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lifecycle.adapters.checkpoint_values import pack, unpack

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, st.integers(), max_size=4).map(Counter)
    ),
    max_leaves=12,
)


def through_json(value: object) -> tuple[object, dict[str, Tensor]]:
    """Packed, written, read, unpacked."""
    tensors: dict[str, Tensor] = {}
    return unpack(json.loads(json.dumps(pack("x", value, tensors))), tensors), tensors


def typed(value: Any) -> object:
    """With types spelled out: True is not 1, 1.0 is not 1, a tuple is no list, -0.0 is not 0.0."""
    if isinstance(value, dict):
        return type(value), [(typed(key), typed(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [typed(one) for one in value]
    return type(value), repr(value)


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    """Nested lists, tuples, dicts of any plain keys, counters, and every finite or infinite float."""
    assert typed(through_json(value)[0]) == typed(value)


@pytest.mark.parametrize("value", [{"!": "tuple"}, {"!": "tensor", "name": "x"}, {"!": 1, "a": {"!": []}}])
def test_a_dict_that_looks_like_a_tag_is_none(value: dict[str, object]) -> None:
    """The mark is escaped."""
    assert typed(through_json(value)[0]) == typed(value)


def test_not_a_number_comes_back_as_such() -> None:
    """A plateau scheduler may hold one."""
    found = through_json([math.nan, -math.inf])[0]

    assert isinstance(found, list)
    assert math.isnan(found[0])
    assert found[1] == -math.inf


def test_a_tensor_is_named_and_handed_out_by_its_place() -> None:
    """It is written elsewhere."""
    tensor = torch.tensor(0.25)
    found, tensors = through_json({"lr": tensor, "list": [tensor]})

    assert sorted(tensors) == ["x.list[0]", "x.lr"]
    assert found == {"lr": tensor, "list": [tensor]}


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [len]}, r"x\.a\[0\] is builtin_function_or_method"),
        ({"a": {1, 2}}, r"x\.a is set"),
        (OrderedDict(a=1), "x is OrderedDict"),
        ({"a": b"bytes"}, r"x\.a is bytes"),
        (type("Number", (int,), {})(3), "x is Number"),
        ({torch.device("cpu"): 1}, "x key is device"),
    ],
)
def test_what_would_need_a_pickle_is_refused_by_its_place(value: object, where: str) -> None:
    """Also subclasses, which would come back as something else."""
    with pytest.raises(ValueError, match=f"{where}, which can be written with pickle only"):
        pack("x", value, {})


def test_a_value_in_itself_is_refused() -> None:
    """No endless descent."""
    value: list[object] = []
    value.append(value)

    with pytest.raises(ValueError, match="is nested more than 32 deep"):
        pack("x", value, {})


@pytest.mark.parametrize(
    "packed",
    [
        {"!": "nothing", "items": []},
        {"!": "tuple"},
        {"!": "tuple", "items": 3},
        {"!": "dict", "items": [[1, 2, 3]]},
        {"!": "dict", "items": [[[], 1]]},
        {"!": "counter", "items": {"a": 1}},
        {"!": "tensor", "name": "y"},
        {"!": ["tuple"], "items": []},
    ],
)
def test_what_nobody_packed_is_refused(packed: object) -> None:
    """A file may say anything."""
    with pytest.raises(ValueError, match=r"packed value|unpack"):
        unpack(packed, {})
