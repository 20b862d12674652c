from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hmx.runs import chunk as chunks
from hmx.runs.chunk import Chunk, MetricSlice
from hmx.types import Max, Mean, Sum


def test_reduction_of_each_kind() -> None:
    metrics = {
        "b": Mean(np.float32(3), np.float32(4)),
        "a": Mean(np.float32(0), np.float32(0)),
        "c": Max(np.float32(-2), np.float32(5)),
        "d": Sum(np.float32(0)),
    }
    rows = chunks.layout(metrics)
    assert chunks.reduce_row(rows, np.asarray(chunks.pack(metrics))) == {"b": 0.75, "c": -2.0, "d": 0.0}


@pytest.mark.parametrize(
    ("places", "names"),
    [
        ({}, []),
        ({0: np.nan}, ["train/entropy"]),
        ({0: np.nan, 2: np.nan, 5: np.nan}, ["reward/goal", "train/mean_reward", "train/entropy"]),
        ({0: np.nan, 2: np.inf, 4: np.nan}, ["train/mean_reward", "programs/push", "train/entropy"]),
        ({1: np.nan}, ["train/entropy"]),
        ({8: np.nan, 9: np.nan}, ["params/b", "params/w"]),
        ({7: np.nan, 2: np.nan}, ["train/mean_reward", "params/a"]),
    ],
)
def test_non_finite_values_are_named_causes_first(places: dict[int, float], names: list[str]) -> None:
    rows = (
        MetricSlice("train/entropy", Mean, 0, 2),
        MetricSlice("train/mean_reward", Mean, 2, 2),
        MetricSlice("programs/push", Sum, 4, 1),
        MetricSlice("reward/goal", Mean, 5, 2),
    )
    parameters = ("params/a", "params/b", "params/w")
    chunk = Chunk(call=_never, rows=rows, parameters=parameters, length=1, num_seeds=1, traces=0)
    values = np.array([1, 1, 1, 1, 1, 1, 1, 0, 0, 0], np.float32)
    values[list(places)] = list(places.values())
    assert chunks.not_finite(chunk, values) == names


def test_maximum_without_data_counts_as_finite() -> None:
    rows = (MetricSlice("stats/highest", Max, 0, 2),)
    chunk = Chunk(call=_never, rows=rows, parameters=(), length=1, num_seeds=1, traces=0)
    assert chunks.not_finite(chunk, np.array([-np.inf, 0], np.float32)) == []
    assert chunks.not_finite(chunk, np.array([-np.inf, 1], np.float32)) == ["stats/highest"]


def _never(*given: Any) -> Any:
    raise NotImplementedError
