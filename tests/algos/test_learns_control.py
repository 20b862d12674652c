"""Presets learn what they say they learn."""

import pytest

from hmx.jobs.train import train
from hmx.registry.load import load


def returns(preset, steps, tmp_path):
    """The mean returns of random play and of an agent trained with a preset."""
    sets = [f"run.root={tmp_path}", f"run.total_steps={steps}", "run.seed=3"]
    return (row.return_mean for row in train(load(preset, sets=sets, environ={}).config).evaluation)


@pytest.mark.slow
@pytest.mark.optimised
def test_the_pendulum_is_swung_up(tmp_path):
    """Gym calls -200 a good return; random play scores about -1250, and hanging still the same."""
    random, trained = returns("sound", 131072, tmp_path)
    assert random < -1000.0
    assert trained > -250.0


@pytest.mark.slow
@pytest.mark.optimised
def test_the_pole_is_balanced_in_seconds(tmp_path):
    """Half of the preset's steps are enough for most of the 500 steps of an episode."""
    random, trained = returns("control", 131072, tmp_path)
    assert random < 40.0
    assert trained > 400.0


@pytest.mark.slow
@pytest.mark.optimised
def test_the_pole_is_balanced_by_pushes_to_either_side(tmp_path):
    """Random pushes keep it up for about 22 steps; the whole preset, longer than this, reaches 500."""
    random, trained = returns("pole", 240000, tmp_path)
    assert random < 40.0
    assert trained > 150.0
