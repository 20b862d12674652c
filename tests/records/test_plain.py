"""Typed records as JSON values."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import pytest

import hmx
from hmx.records.plain import ShortRepr, plain, plain_object, typed


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
    labels: tuple[str, ...] = dataclasses.field(default=("x", "y"), metadata={"json": "+".join})


def test_records_become_objects_with_fields_in_order():
    side = Side("A", Path("runs/a"), Interval(0.5, None), (1, 2), cache=object())
    expected = {"name": "A", "path": "runs/a", "score": {"value": 0.5, "low": None}, "seeds": [1, 2], "labels": "x+y"}
    assert plain_object(side) == expected
    assert list(plain_object(side)) == list(expected)


def test_records_within_mappings_and_lists_are_converted():
    assert plain({"all": [Interval(1.0, 0.5)], 3: {"x"}}) == {"all": [{"value": 1.0, "low": 0.5}], "3": ["x"]}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.array(math.inf)])
def test_non_finite_numbers_become_null(value):
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
def test_plain_object_refuses_values_other_than_records(value):
    with pytest.raises(TypeError, match="is not a record"):
        plain_object(value)


@dataclasses.dataclass(frozen=True)
class Stored:
    name: str
    count: int
    score: Interval | None
    seeds: tuple[int, ...] = ()
    settings: dict[str, bool | int | str] = dataclasses.field(default_factory=dict)


def test_typed_inverts_plain_and_fills_in_defaults():
    stored = Stored("A", 2, Interval(1.0, None), (1, 2), {"on": True, "n": 1, "id": "x"})
    assert typed(Stored, json.loads(json.dumps(plain(stored)))) == stored
    assert typed(Stored, {"name": "A", "count": 0, "score": None}) == Stored("A", 0, None)


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1}, {"name": None}, {"count": -1}, {"count": True}, {"count": 1.0}, {"count": "1"}, {"other": 1},
        {"score": {"value": "1"}}, {"score": {"value": 10**400, "low": 0}}, {"score": [1, 2]}, {"seeds": [1, -1]},
        {"seeds": 1}, {"settings": {"x": [1]}}, {"settings": [1]},
    ],
)  # fmt: skip
def test_typed_refuses_values_of_other_types(change):
    with pytest.raises(TypeError):
        typed(Stored, {"name": "A", "count": 0, "score": None, **change})


def test_typed_refuses_a_record_with_a_missing_field():
    with pytest.raises(TypeError):
        typed(Stored, {"name": "A", "count": 0})


@dataclasses.dataclass(frozen=True, repr=False)
class Result(ShortRepr):
    run: Path
    value: float
    rows: tuple[int, ...]
    one: tuple[int, ...]
    none: tuple[int, ...]
    inner: object


def test_repr_counts_long_values() -> None:
    text = repr(Result(Path("runs/a"), 0.5, tuple(range(100)), (1,), (), {"text": "x" * 100}))
    assert text == "Result(run='runs/a', value=0.5, rows=<100 items>, one=<1 item>, none=(), inner=<1 item>)"


def test_results_of_the_api_have_a_short_repr() -> None:
    shown = inspect.signature(hmx.show, eval_str=True).parameters["result"].annotation
    assert len(get_args(shown)) > 5
    assert [kind for kind in get_args(shown) if kind.__repr__ is not ShortRepr.__repr__] == []
