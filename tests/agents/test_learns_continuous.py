"""The preset for continuous control learns what it says it learns."""

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
