"""Our environments with Gymnasium's vector interface."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="1.1")

from gymnasium.vector import AutoresetMode  # noqa: E402
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics  # noqa: E402

from hmx.envs.to_gymnasium import GymnasiumVectorEnv  # noqa: E402


def check(envs, steps):
    """Plays legal actions at random and holds every promise of Gymnasium's vector interface."""
    envs.action_space.seed(0)
    obs, infos = envs.reset(seed=1)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert obs in envs.observation_space and infos["_action_masks"].all()
    ends = 0
    for _ in range(steps):
        masks = infos["action_masks"]
        if masks.shape[1]:
            actions = envs.action_space.sample(mask=tuple(masks.astype(np.int8)))
            assert masks[np.arange(envs.num_envs), actions].all()
        else:
            actions = envs.action_space.sample()
        obs, rewards, terminations, truncations, infos = envs.step(actions)
        np.testing.assert_array_equal(infos["action_masks"], envs.action_masks())
        assert obs in envs.observation_space and obs.dtype == np.float32
        for leaf, dtype in ((rewards, np.float64), (terminations, np.bool_), (truncations, np.bool_)):
            assert (leaf.shape, leaf.dtype) == ((envs.num_envs,), dtype)
        done = terminations | truncations
        ends += int(done.sum())
        assert ("final_obs" in infos) == done.any()
        names = envs.env.spec.reward_terms
        np.testing.assert_allclose(sum(infos[name] for name in names), rewards, rtol=1e-5)
        assert all(infos[f"_{name}"].all() for name in (*names, "reward_terms"))
        if done.any():
            np.testing.assert_array_equal(infos["_final_obs"], done)
            for i, last in enumerate(infos["final_obs"]):
                assert last in envs.single_observation_space if done[i] else last is None
    return ends


@pytest.mark.parametrize("env_id", ["counting", "pendulum"])
def test_environment_passes_the_gymnasium_checks(env_id):
    assert check(GymnasiumVectorEnv(env_id, 3, max_steps=4), 9) == 6


@pytest.mark.slow
def test_hackmatrix_passes_the_gymnasium_checks():
    envs = GymnasiumVectorEnv("hackmatrix", 2, max_steps=6)
    assert envs.single_observation_space.shape == (1545,)
    assert envs.single_action_space.n == 28
    assert check(envs, 20) >= 6


def test_last_observation_and_its_mask_are_kept():
    envs = GymnasiumVectorEnv("counting", 2, max_steps=3)
    envs.reset(seed=0)
    for action in (0, 1, 2):
        obs, rewards, _, truncations, infos = envs.step(np.full(2, action))
    assert truncations.all() and obs.tolist() == [[0.0], [0.0]] and rewards.tolist() == [2.0, 2.0]
    assert [last.tolist() for last in infos["final_obs"]] == [[3.0], [3.0]]
    assert infos["final_info"]["action_masks"].tolist() == [[True, False, False, True]] * 2
    assert infos["action_masks"].tolist() == [[True, True, False, False]] * 2


def test_the_same_seed_gives_the_same_play():
    envs = GymnasiumVectorEnv("corridor", 4, max_steps=20, slip=0.5)

    def play(seed):
        first, _ = envs.reset(seed=seed)
        return np.stack([first, *(envs.step(np.ones(4, int))[0] for _ in range(15))])

    np.testing.assert_array_equal(play(5), play(5))
    assert (play(5) != play(6)).any()
    assert (play(None) != play(None)).any()
    moves = np.diff(play(5).argmax(-1), axis=0)
    assert ((moves == 1).any(0) & (moves == -1).any(0)).any()  # not the same luck in every step


def test_each_environment_has_its_reward_terms_also_where_an_episode_ends():
    """In step n of counting action n is paid n; the third step is the last."""
    envs = DictInfoToList(GymnasiumVectorEnv("counting", 2, max_steps=3))
    _, infos = envs.reset(seed=0)
    assert all("count" not in info for info in infos)
    for action in (0, 1, 2):
        *_, infos = envs.step(np.full(2, action))
        assert [(info["count"], info["reward_terms"]) for info in infos] == [(action, {"count": action})] * 2


def test_gymnasium_wrappers_accept_the_environment():
    envs = RecordEpisodeStatistics(GymnasiumVectorEnv("counting", 2, max_steps=3))
    envs.reset(seed=0)
    for action in (0, 1, 2):
        *_, infos = envs.step(np.full(2, action))
    assert infos["episode"]["r"].tolist() == [3.0, 3.0]
    assert infos["episode"]["l"].tolist() == [3, 3]
