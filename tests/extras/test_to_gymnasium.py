"""Our environments with Gymnasium's vector interface."""

import subprocess
import sys

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="1.1")

from gymnasium.utils.env_checker import check_env  # noqa: E402
from gymnasium.vector import AutoresetMode  # noqa: E402
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics  # noqa: E402

from hmx.config.schema import ENV_IDS  # noqa: E402
from hmx.envs.to_gymnasium import GymnasiumEnv, GymnasiumVectorEnv  # noqa: E402
from hmx.errors import HmxError  # noqa: E402
from hmx.gymnasium import IDS  # noqa: E402
from hmx.registry.environments import find_environment  # noqa: E402

unbounded = pytest.mark.filterwarnings("ignore:.*A Box observation space m..imum value is -?infinity")


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


def test_environments_are_registered_without_jax():
    code = "import hmx.gymnasium, gymnasium, sys; print(gymnasium.spec('hmx/HackMatrix-v0').id, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hmx/HackMatrix-v0", "False"]


def test_every_built_in_environment_of_one_agent_is_registered():
    assert sorted(IDS.values()) == sorted(name for name in ENV_IDS if find_environment(name).num_agents == 1)


@unbounded
@pytest.mark.parametrize("name", [pytest.param("HackMatrix", marks=pytest.mark.slow), "Corridor", "CartPole"])
def test_made_environments_pass_gymnasiums_own_checks(name):
    env = gymnasium.make(f"hmx.gymnasium:hmx/{name}-v0", render_mode="ansi")
    check_env(env.unwrapped)  # renders in every mode
    envs = gymnasium.make_vec(f"hmx/{name}-v0", num_envs=4)
    assert isinstance(envs, GymnasiumVectorEnv) and envs.single_action_space == env.action_space
    assert envs.reset(seed=0)[0].shape == (4, *env.observation_space.shape)


def test_one_environment_plays_as_a_vector_of_one_until_it_must_be_reset():
    env = GymnasiumEnv("corridor", max_steps=12, slip=0.5)
    envs = GymnasiumVectorEnv("corridor", 1, max_steps=12, slip=0.5)
    env.action_space.seed(0)
    for seed in (3, 4):
        (obs, info), (same, infos) = env.reset(seed=seed), envs.reset(seed=seed)
        np.testing.assert_array_equal(obs, same[0])
        ended = False
        while not ended:
            np.testing.assert_array_equal(info["action_mask"], infos["action_masks"][0])
            assert info["action_mask"].dtype == np.int8 and (env.action_masks() == info["action_mask"]).all()
            action = env.action_space.sample(info["action_mask"])
            obs, reward, terminated, truncated, info = env.step(action)
            same, rewards, ends, cuts, infos = envs.step(np.array([action]))
            assert (reward, terminated, truncated) == (rewards[0], ends[0], cuts[0])
            assert info["reward_terms"] == {name: infos[name][0] for name in ("goal", "step_cost")}
            assert info["step_cost"] == infos["step_cost"][0]
            ended = terminated or truncated
            np.testing.assert_array_equal(obs, infos["final_obs"][0] if ended else same[0])
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(0)


def test_observation_mask_and_picture_at_the_end_are_those_of_the_last_state():
    env = GymnasiumEnv("corridor", max_steps=3, slip=0.0, render_mode="ansi")
    env.reset(seed=0)
    shown = [env.render()]
    for _ in range(3):
        obs, _, _, truncated, info = env.step(1)
        shown.append(env.render())
    assert truncated and obs.argmax() == 3 and info["action_mask"].tolist() == [1, 1]
    assert [line.index("@") for line in shown] == [0, 1, 2, 3]
    obs, info = env.reset()
    assert obs.argmax() == 0 and info["action_mask"].tolist() == [0, 1] and env.render() == shown[0]


def test_pixels_are_those_of_the_drawing():
    pytest.importorskip("PIL")
    envs = GymnasiumVectorEnv("frozenlake", 2, render_mode="rgb_array")
    envs.reset(seed=0)
    for image in envs.render():
        assert image.dtype == np.uint8 and image.shape == (192, 192, 3)
        assert image[4, 30].tolist() == [238, 245, 250] and image[172, 172].tolist() == [27, 158, 119]  # ice, the goal
        assert image[12, 6].tolist() == [217, 95, 2]  # the agent at the start
    assert GymnasiumEnv("frozenlake").render() is None


def test_an_unknown_render_mode_is_refused():
    with pytest.raises(HmxError, match="'human'") as refused:
        GymnasiumEnv("corridor", render_mode="human")
    assert refused.value.hint == "one of ansi, rgb_array"


def test_gymnasium_wrappers_record_episodes_and_frames_of_one_environment():
    pytest.importorskip("PIL")
    env = gymnasium.make("hmx/Counting-v0", render_mode="rgb_array_list", max_steps=3)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env.reset(seed=0)
    for action in (0, 1, 2):
        *_, info = env.step(action)
    assert (info["episode"]["r"], info["episode"]["l"]) == (3.0, 3) and len(env.render()) == 4
