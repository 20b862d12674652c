"""Typed records as JSON values."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hmx.records.plain import plain, plain_object


class Interval(NamedTuple):
    value: float
    low: float | None


@dataclasses.dataclass(frozen=True)
class Side:
    name: str
    path: Path
    score: Interval
    seeds: tuple[int, ...]
    cache: object = dataclasses.field(default=None, metadata={"json": False})


def test_records_become_objects_with_fields_in_order():
    side = Side("A", Path("runs/a"), Interval(0.5, None), (1, 2), cache=object())
    expected = {"name": "A", "path": "runs/a", "score": {"value": 0.5, "low": None}, "seeds": [1, 2]}
    assert plain_object(side) == expected
    assert list(plain_object(side)) == list(expected)


def test_records_within_mappings_and_lists_are_converted():
    assert plain({"all": [Interval(1.0, 0.5)], 3: {"x"}}) == {"all": [{"value": 1.0, "low": 0.5}], "3": ["x"]}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.array(math.inf)])
def test_numbers_that_are_not_finite_become_null(value):
    assert plain(value) is None
    assert plain([value, 1]) == [None, 1]


def test_arrays_and_scalars_become_plain_numbers():
    found = plain({"a": np.arange(4).reshape(2, 2), "b": np.float64(0.5), "c": np.bool_(True), "d": np.int64(7)})
    assert found == {"a": [[0, 1], [2, 3]], "b": 0.5, "c": True, "d": 7}
    assert type(found["c"]) is bool and type(found["d"]) is int
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_booleans_and_text_stay_as_they_are():
    assert plain((True, None, "nan", 2**60)) == [True, None, "nan", 2**60]


@pytest.mark.parametrize("value", [object(), Side, b"bytes", 1j, {"deep": [object()]}])
def test_values_without_a_json_form_are_refused(value):
    with pytest.raises(TypeError, match="no JSON form"):
        plain(value)


@pytest.mark.parametrize("value", [1, "text", [Interval(1.0, None)], None])
def test_plain_object_refuses_what_is_not_a_record(value):
    with pytest.raises(TypeError, match="is not a record"):
        plain_object(value)
