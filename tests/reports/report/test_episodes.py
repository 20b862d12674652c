"""Steps of the episodes on a run page."""

from __future__ import annotations

import numpy as np

from hmx.algos.evaluate import keep_step
from hmx.algos.types import Decision
from hmx.envs.protocol import EnvSpec
from hmx.episodes import Now, Step
from hmx.reports.report.episodes import _step
from hmx.types import Timestep


def test_a_step_shows_every_part_of_its_action() -> None:
    spec = EnvSpec("walk", (2,), num_actions=5, action_parts=(2, 3))
    numbers = np.ones(1, np.float32)
    decision = Decision(np.array([[[1, 2]]]), numbers[None], np.full((1, 1, 5), 0.4), numbers[None])
    ends = np.zeros(1, bool)
    obs, legal = np.array([[[0.5, -0.5]]]), np.ones((1, 1, 5), bool)
    timestep = Timestep(obs, legal, obs, legal, numbers[None], ends, ends, ends[None], {"reward": numbers}, {})
    step = _step(
        spec,
        keep_step(spec, Step(Now((), obs, legal, None, ends, np.int32(0)), decision, timestep), np.zeros(1, int)),
        0,
    )
    assert (step.action, step.probabilities, step.value, step.reward) == ("1, 2", {}, 1.0, 1.0)
    assert step.state == {"observation": [[0.5, -0.5]]}
