"""Spaces as plain data, the conversion of actions, and what is refused with its reason."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import walk_sim

from hmx.errors import HmxError
from hmx.simulators.episode import Broken, Simulation, episode_seed, pack_state, unpack_state
from hmx.simulators.spaces import Actions, facts_from, facts_of


def env_with(**changes):
    env = walk_sim.make(walk_sim.Options())
    for name, value in changes.items():
        setattr(env, name, value)
    return env


@pytest.mark.parametrize(
    ("space", "row", "action"),
    [
        (walk_sim.Discrete(3, start=-1), [2], 1),
        (walk_sim.MultiDiscrete([2, 3]), [1, 2], np.array([1, 2])),
        (walk_sim.Box(-2.0, 4.0, (1,)), [-1.0], np.array([-2.0], np.float32)),
        (walk_sim.Box(-2.0, 4.0, (1,)), [5.0], np.array([4.0], np.float32)),
        (walk_sim.Box(-2.0, 4.0, (1,)), [0.0], np.array([1.0], np.float32)),
    ],
)
def test_actions_are_those_of_the_space(space, row, action):
    made = Actions(space)(np.array(row, np.float32 if isinstance(row[0], float) else np.int32))
    assert np.array_equal(made, action) and np.asarray(made).dtype == np.asarray(action).dtype


def test_facts_hold_the_limits_of_actions_and_the_time_of_a_step_and_survive_json():
    facts = facts_of(env_with(action_space=walk_sim.Box(-2.0, 4.0, (2, 1)), dt=0.05))
    assert (facts.action_low, facts.action_high, facts.step_seconds) == ((-2.0, -2.0), (4.0, 4.0), 0.05)
    assert facts_from(json.loads(json.dumps(facts._asdict()))) == facts
    assert facts_of(env_with()).action_low == () and facts_of(env_with(dt="fast")).step_seconds == 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observation_space": SimpleNamespace(spaces={})}, "cannot read observations of the space SimpleNamespace"),
        ({"observation_space": None}, "it has no observation_space"),
        ({"observation_space": walk_sim.Box(0, 1, (0,))}, r"observations of shape \(0,\)"),
        ({"action_space": SimpleNamespace(shape=(2,))}, "cannot take actions of the space SimpleNamespace"),
        ({"action_space": walk_sim.Box(-np.inf, 1.0, (1,))}, "a Box without limits"),
        ({"action_space": walk_sim.Box(0, 5, (1,), np.int64)}, "a Box of int64"),
        ({"render_mode": "human"}, "opens a window"),
        ({"single_action_space": 1}, "a vector of environments"),
    ],
)
def test_a_space_that_cannot_be_used_is_refused_with_the_reason(changes, words):
    with pytest.raises(HmxError, match=words):
        facts_of(env_with(**changes))


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("reset", np.zeros(2), "reset returns a ndarray; expected"),
        (
            "reset",
            (np.full(2, 99.0), {}),
            r"first observation lies outside its space at index 0: 99 is not in \[-20, 20\]",
        ),
        ("step", (0, 0, False, {}), "step returns 4 values; .*Gym before 0.26"),
    ],
)
def test_an_answer_in_another_form_is_named(name, answer, words):
    env = env_with()
    episode = Simulation(env)
    if name == "step":
        episode.begin(0)
    setattr(env, name, lambda *args, **kwargs: answer)
    with pytest.raises(Broken, match=words):
        episode.begin(0) if name == "reset" else episode.step(np.array([0]))


def test_the_step_limit_truncates_unless_the_episode_terminates():
    episode = Simulation(env_with(), max_steps=5)
    episode.begin(0)
    assert [episode.step(np.array([1]))[2:] for _ in range(5)][-1] == (False, True)
    episode = Simulation(env_with(), max_steps=7)
    episode.begin(0)
    assert [episode.step(np.array([1]))[2:] for _ in range(7)][-1] == (True, False)


def test_seeds_differ_by_run_use_environment_and_episode():
    seeds = {episode_seed(*place) for place in np.ndindex(3, 3, 3, 3)}
    assert len(seeds) == 81 and all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize("state", [b"abc", np.arange(6.0).reshape(2, 3), {"a": [1, 2.5, "x", None]}])
def test_a_state_survives_as_bytes(state):
    back = unpack_state(pack_state(state))
    assert np.array_equal(back, state) if isinstance(state, np.ndarray) else back == state


def test_a_state_of_objects_is_refused():
    with pytest.raises(HmxError, match="get_state returns a set, which hmx does not store"):
        pack_state({1, 2})
