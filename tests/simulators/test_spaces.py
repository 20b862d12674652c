"""Spaces as plain data, the conversion of actions, and what is refused with its reason."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import walk_sim

from hmx.errors import HmxError
from hmx.simulators.answers import Broken
from hmx.simulators.episode import Simulation, episode_seed, pack_state, unpack_state
from hmx.simulators.observations import observations_of
from hmx.simulators.spaces import Actions, facts_from, facts_of, random_rows


def parts_from(start):
    space = walk_sim.MultiDiscrete([2, 3])
    space.start = np.array(start)
    return space


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
        (parts_from([5, -1]), [1, 2], np.array([6, 1])),
        (walk_sim.Box(-2.0, 4.0, (1,)), [-1.0], np.array([-2.0], np.float32)),
        (walk_sim.Box(-2.0, 4.0, (1,)), [5.0], np.array([4.0], np.float32)),
        (walk_sim.Box(-2.0, 4.0, (1,)), [0.0], np.array([1.0], np.float32)),
        (walk_sim.Box(-1.5, 1.2, (1,), np.float64), [1.0], np.array([1.2])),  # unrounded, 1.2000000000000002
    ],
)
def test_actions_are_those_of_the_space(space, row, action):
    made = Actions(space)(np.array(row, np.float32 if isinstance(row[0], float) else np.int32))
    assert np.array_equal(made, action) and np.asarray(made).dtype == np.asarray(action).dtype


def test_named_parts_are_joined_with_those_of_one_reader_at_the_ends():
    episode = Simulation(walk_sim.make(walk_sim.Options(obs="parts")))
    assert episode.facts.obs_parts == (("policy", 1), ("time", 1), ("critic", 2))
    assert facts_from(json.loads(json.dumps(episode.facts._asdict()))) == episode.facts
    obs, place = episode.begin(3), episode.env.position
    np.testing.assert_allclose(obs, [place / 4, 0.0, place, place], rtol=1e-6)
    assert episode.observations.low.tolist() == [-9, 0, -20, -20] and obs.dtype == np.float32


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"goal": np.zeros(1)},
            r"the parts .*'goal'.*; its space has the parts \['critic', 'policy', 'time'",
        ),
        ({"time": np.zeros(2)}, r"the part time of an observation has shape \(2,\); its space has \(1,\)"),
    ],
)
def test_parts_that_are_not_those_of_the_space_are_named(change, words):
    env = walk_sim.make(walk_sim.Options(obs="parts"))
    episode, shown = Simulation(env), env._obs
    env._obs = lambda: shown() | change
    env.reset(seed=0)
    with pytest.raises(Broken, match=words):
        episode.begin(0)


@pytest.mark.parametrize(("shape", "seen"), [((6, 5, 3), (6, 5, 3)), ((4, 6, 5), (6, 5, 4)), ((2, 2, 2), (2, 2, 2))])
def test_images_keep_their_bytes_and_have_their_channels_last(shape, seen):
    observations = observations_of(walk_sim.Box(0, 255, shape, np.uint8))
    image = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    read = observations.read(image)
    assert read.shape == observations.shape == observations.low.shape == seen and read.dtype == np.uint8
    assert np.array_equal(read, image if shape == seen else image.transpose(1, 2, 0))


def test_random_actions_are_legal_in_every_part_and_uniform():
    facts = facts_of(env_with(action_space=walk_sim.MultiDiscrete([2, 3])))
    legal = np.array([[True, True, False, True, True], [False, True, True, True, True]])
    noise = np.random.default_rng(0).random((999, 2, 5))
    rows = np.stack([random_rows(each, facts, legal) for each in noise])
    counts = [np.bincount(rows[:, env, part], minlength=3).tolist() for env, part in np.ndindex(2, 2)]
    assert [[count > 250 for count in each] for each in counts] == [
        [True, True, False], [False, True, True], [False, True, False], [True, True, True],
    ]  # fmt: skip
    box = facts_of(env_with(action_space=walk_sim.Box(-2.0, 4.0, (1,))))
    assert random_rows(np.array([[0.0], [0.75]]), box, np.ones((2, 0), bool)).tolist() == [[-1.0], [0.5]]


def test_facts_hold_the_limits_of_actions_and_the_time_of_a_step_and_survive_json():
    facts = facts_of(env_with(action_space=walk_sim.Box(-2.0, 4.0, (2, 1)), dt=0.05))
    assert (facts.action_low, facts.action_high, facts.step_seconds) == ((-2.0, -2.0), (4.0, 4.0), 0.05)
    assert facts_from(json.loads(json.dumps(facts._asdict()))) == facts
    assert facts_of(env_with(unwrapped=SimpleNamespace(dt=0.02))).step_seconds == 0.02
    assert facts_of(env_with()).action_low == () and facts_of(env_with(dt="fast")).step_seconds == 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observation_space": SimpleNamespace(spaces=[])}, "cannot read observations of the space SimpleNamespace"),
        ({"observation_space": walk_sim.Dict()}, "the policy reads none of them"),
        ({"observation_space": walk_sim.Dict(critic=walk_sim.Box(0, 1, (2,)))}, "the policy reads none of them"),
        ({"observation_space": walk_sim.Dict(a=walk_sim.Discrete(2))}, "the part a of observations, of the space Disc"),
        ({"observation_space": walk_sim.Dict(eye=walk_sim.Box(0, 255, (8, 8, 3), np.uint8))}, "an image cannot be joi"),
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
    if isinstance(back, np.ndarray):
        back += 1.0  # as a simulator may that steps in place


def test_a_replay_stops_where_the_episode_ends():
    episode = Simulation(env_with(), max_steps=5)
    obs = episode.replay(0, [np.array([1])] * 5)
    assert episode.steps == 5
    np.testing.assert_array_equal(episode.replay(0, [np.array([1])] * 9), obs)
    assert episode.steps == 5


def test_a_state_of_objects_is_refused():
    with pytest.raises(HmxError, match="get_state returns a set, which hmx does not store"):
        pack_state({1, 2})
