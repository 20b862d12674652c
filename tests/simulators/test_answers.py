"""What a simulator returns is converted where its meaning is certain, and named otherwise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import walk_sim

from hmx.simulators.answers import Broken, flag, number, numbers, picture, truths
from hmx.simulators.episode import Simulation

GREY = np.full((4, 6, 3), 128, np.uint8)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "given", [[True, False], [1, 0], np.array([1.0, 0.0], np.float32), np.array([1, 0], np.int8), (np.True_, np.False_)]
)
def test_bools_and_0_and_1_are_truth_values(given):
    assert truths(given, "x").tolist() == [True, False] and truths(given, "x").dtype == bool


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([0.0, -INF], "x has the number -inf; expected bools, or 0 and 1; of a mask that is added to logits"),
        ([0.0, -1e9], "x has the number -1e+09"),
        ([1.0, NAN], "x has the number nan"),
        ([0.5, 1.0], "x has the number 0.5"),
        ([2, 0], "x has the number 2"),
        ([-1, 1], "x has the number -1"),
        (["yes", "no"], "x has the type <U3; expected bool"),
        (None, "x has the type object"),
        ([1j, 0], "x has the type complex128"),
    ],
)
def test_other_truth_values_are_refused(given, words):
    with pytest.raises(Broken) as found:
        truths(given, "x")
    assert words in str(found.value)


@pytest.mark.parametrize("given", [True, np.True_, 1, 1.0, np.array(True), np.array([1])])
def test_a_flag_is_one_truth_value(given):
    assert flag(given, "terminated") is True


@pytest.mark.parametrize("given", [0.5, None, "True", [True, False], NAN, []])
def test_other_flags_are_refused(given):
    with pytest.raises(Broken, match=r"^terminated has the "):
        flag(given, "terminated")


@pytest.mark.parametrize("given", [1.5, np.float32(1.5), np.array(1.5), np.array([[1.5]])])
def test_a_reward_is_one_number(given):
    assert number(given, "the reward") == 1.5


@pytest.mark.parametrize("given", ["1.5", None, [1.0, 2.0], 1j, {"reward": 1.0}, Fraction(3, 2)])
def test_other_rewards_are_refused(given):
    with pytest.raises(Broken, match=r"^the reward is .*; expected one number$"):
        number(given, "the reward")


def test_observations_keep_their_values():
    assert numbers([1, 2], "float32", "x").dtype == np.float32
    assert numbers([0.0, 255.0], "uint8", "x").tolist() == [0, 255]
    assert numbers([True], "float32", "x").tolist() == [1.0]
    for given, dtype in (([0.5], "uint8"), ([256], "uint8"), ([-1], "uint8"), ([NAN], "uint8"), ([2], "bool")):
        with pytest.raises(Broken, match=f"x has the number .*, which its space of {dtype} does not have"):
            numbers(given, dtype, "x")
    for given in (["3"], [None], [1j]):
        with pytest.raises(Broken, match="x has the type "):
            numbers(given, "float32", "x")


@pytest.mark.parametrize(
    "given",
    [
        GREY,
        np.full((4, 6, 3), 0.5, np.float32),
        GREY.astype(np.float64),
        GREY.astype(np.int64),
        GREY[..., 0],
        GREY[..., :1],
        np.concatenate([GREY, GREY[..., :1]], axis=-1),
        np.moveaxis(GREY, -1, 0),
        [np.zeros_like(GREY), GREY],
        GREY.tolist(),
        np.stack([np.zeros_like(GREY), GREY]),
    ],
)
def test_pictures_of_every_form_are_bytes(given):
    np.testing.assert_array_equal(picture(given), GREY)
    assert picture(given).dtype == np.uint8 and picture(given).flags.c_contiguous


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "what render returned is None; expected a picture"),
        ("+--+", "what render returned is a str"),
        ([], "what render returned has the shape (0,)"),
        (np.zeros((7, 6, 5)), "what render returned has the shape (7, 6, 5); expected [height, width, 3]"),
        (np.zeros((0, 6, 3)), "what render returned has the shape (0, 6, 3)"),
        (np.full((4, 6, 3), -0.5), "colours from -0.5 to -0.5"),
        (np.full((4, 6, 3), 300), "colours from 300 to 300"),
        (np.full((4, 6, 3), NAN), "colours from nan to nan"),
    ],
)
def test_other_pictures_are_refused(given, words):
    with pytest.raises(Broken) as found:
        picture(given)
    assert words in str(found.value)


class Answers(walk_sim.Walk):
    """A walk whose steps answer with other values."""

    def __init__(self, **values):
        super().__init__(walk_sim.Options())
        self.values = values

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        answer = {"obs": obs, "reward": reward, "terminated": terminated, "truncated": truncated, "info": info}
        return tuple((answer | self.values).values())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"terminated": 0.5}, "terminated has the number 0.5"),
        ({"truncated": "no"}, "truncated has the type <U2"),
        ({"reward": None}, "the reward is None"),
        ({"obs": np.array(["a", "b"])}, "an observation has the type <U1"),
        ({"info": {"action_mask": [0.0, -INF]}}, "info['action_mask'] has the number -inf"),
        ({"info": {"action_mask": [0.0, 0.0]}}, "info['action_mask'] allows no action"),
        ({"reward": True, "terminated": 1.25}, "terminated has the number 1.25"),  # swapped
    ],
)
def test_a_step_names_the_value_that_is_wrong(values, words):
    simulation = Simulation(Answers(**values))
    simulation.begin(0)
    with pytest.raises(Broken) as found:
        simulation.step(np.array([0]))
    assert words in str(found.value)


def test_wrappers_that_keep_statistics_are_named():
    class Wrapper:
        def __init__(self, env):
            self.env, self.obs_rms = env, walk_sim.RunningMeanStd()
            self.observation_space, self.action_space = env.observation_space, env.action_space

    assert Simulation(Wrapper(Wrapper(walk_sim.make(walk_sim.Options())))).facts.statistics == ("Wrapper", "Wrapper")
    assert Simulation(walk_sim.make(walk_sim.Options())).facts.statistics == ()
