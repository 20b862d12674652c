"""Presets learn what they say they learn: the median of three seeds, since rounding differs between CPUs."""

import statistics

import pytest
from new_runs import train

from hmx.registry.load import load


def returns(preset, steps, tmp_path):
    """The mean return of random play, and the median over seeds of agents trained with a preset."""
    sets = [f"run.root={tmp_path}", f"run.total_steps={steps}", "run.seed=3", "run.num_seeds=3"]
    random, *trained = train(load(preset, sets=sets, environ={}).config).evaluation
    return random.return_mean, statistics.median(row.return_mean for row in trained)


@pytest.mark.thorough
def test_pendulum_is_swung_up(tmp_path):
    """Gym calls -200 a good return; random play scores about -1250, and hanging still the same."""
    random, trained = returns("sound", 131072, tmp_path)
    assert random < -1000.0
    assert trained > -250.0


@pytest.mark.slow
@pytest.mark.long_run
def test_the_pole_is_balanced_in_seconds(tmp_path):
    """Less than half of the preset's steps are enough for most of the 500 steps of an episode."""
    random, trained = returns("control", 98304, tmp_path)
    assert random < 40.0
    assert trained > 400.0


@pytest.mark.thorough
def test_the_pole_is_balanced_by_pushes_to_either_side(tmp_path):
    """Random pushes keep it up for about 22 steps; the whole preset, four times as long as this, reaches 500."""
    random, trained = returns("pole", 100000, tmp_path)
    assert random < 40.0
    assert trained > 150.0
