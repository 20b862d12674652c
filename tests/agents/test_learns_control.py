"""Presets learn what they say they learn."""

import pytest

from hmx.config.load import load
from hmx.jobs.train import train


@pytest.mark.slow
@pytest.mark.optimised
def test_the_pendulum_is_swung_up(tmp_path):
    """Gym calls -200 a good return; random play scores about -1250, and hanging still the same."""
    sets = [f"run.root={tmp_path}", "run.total_steps=131072", "run.seed=3"]
    result = train(load("sound", sets=sets, environ={}).config)
    random, trained = (row.return_mean for row in result.evaluation)
    assert random < -1000.0
    assert trained > -250.0


@pytest.mark.slow
@pytest.mark.optimised
def test_the_pole_is_balanced_in_seconds(tmp_path):
    """Half of the preset's steps are enough for most of the 500 steps of an episode."""
    sets = [f"run.root={tmp_path}", "run.total_steps=131072", "run.seed=3"]
    result = train(load("control", sets=sets, environ={}).config)
    random, trained = (row.return_mean for row in result.evaluation)
    assert random < 40.0
    assert trained > 400.0


@pytest.mark.slow
def test_the_pole_is_balanced_by_pushes_to_either_side(tmp_path):
    """Random pushes keep it up for about 22 steps; the whole preset, longer than this, reaches 500."""
    sets = [f"run.root={tmp_path}", "run.total_steps=240000", "run.seed=3"]
    result = train(load("pole", sets=sets, environ={}).config)
    random, trained = (row.return_mean for row in result.evaluation)
    assert random < 40.0
    assert trained > 150.0
