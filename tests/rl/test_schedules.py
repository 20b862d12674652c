"""Schedules at their ends, in the middle and outside."""

import numpy as np
import pytest

from hmx.rl.schedules import make_schedule


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("constant", [4.0, 4.0, 4.0, 4.0, 4.0]),
        ("linear", [4.0, 4.0, 3.0, 2.0, 2.0]),
        ("cosine", [4.0, 4.0, 3.0, 2.0, 2.0]),
    ],
)
def test_values(name, values):
    got = [float(make_schedule(name, 4.0, 2.0)(p)) for p in (-1.0, 0.0, 0.5, 1.0, 2.0)]
    np.testing.assert_allclose(got, values, rtol=1e-6)


def test_cosine_is_flat_at_both_ends():
    schedule = make_schedule("cosine", 1.0, 0.0)
    np.testing.assert_allclose(float(schedule(0.25)), (1 + np.cos(np.pi / 4)) / 2, rtol=1e-6)


def test_unknown_name():
    with pytest.raises(KeyError):
        make_schedule("exponential", 1.0, 0.0)
