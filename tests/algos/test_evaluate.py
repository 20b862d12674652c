"""Evaluation: complete episodes, as many as asked for, short ones not favoured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import with_info
from training import whole_episodes

from hmx.algos.build import make_algorithm
from hmx.algos.evaluate import algorithm_policy, make_chunks, make_evaluation, random_actions, random_policy
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RewardWeights, RunConfig
from hmx.envs.autoreset import Game, batched
from hmx.envs.registry import make_env
from hmx.envs.small.counting import make_counting


def lottery(*lengths):
    """Episodes whose length is one of `lengths`, each as likely; the reward is 1 per step."""
    spec = make_counting(0).spec._replace(id="lottery", max_steps=0, reward_terms=("step",))

    def start(key):
        return jax.random.choice(key, jnp.array(lengths, jnp.int32))

    def move(left, action, key):
        return left - 1, {"step": jnp.float32(1.0)}, left == 1

    game = Game(start, move, lambda left: left.astype(jnp.float32)[None], lambda left: jnp.ones(4, bool))
    return batched(spec, game)


def test_short_episodes_are_not_favoured():
    """The mean length is 5. Taking the first to finish would see nearly only short ones: 1.8 by the step count."""
    episodes = whole_episodes(lottery(1, 9), random_policy(), 200, 1000, None, jax.random.key(0))
    assert bool(episodes.finished.all())
    assert abs(float(episodes.length.mean()) - 5.0) < 5 * 4 / np.sqrt(1000)
    np.testing.assert_array_equal(episodes.length, episodes.total)


@pytest.mark.parametrize(("num_envs", "num_episodes"), [(4, 11), (8, 3)])
def test_evaluation_plays_the_requested_number_of_episodes(num_envs, num_episodes):
    env = make_counting(6, length=4)
    episodes = whole_episodes(env, random_policy(), num_envs, num_episodes, None, jax.random.key(0))
    assert episodes.length.tolist() == [4] * num_episodes
    assert episodes.total.tolist() == [0 + 1 + 2 + 3] * num_episodes


def test_chunks_equal_one_loop_and_count_finished_episodes():
    env, policy = lottery(1, 9), random_policy()
    whole = make_evaluation(env, policy, 6, 16)

    @jax.jit
    def unchunked():
        k_reset, k_steps = jax.random.split(jax.random.key(5))
        start = whole.start(k_reset)
        return jax.lax.while_loop(whole.unfinished, lambda p: whole.step(None, k_steps, p)[0], start).episodes

    chunks = make_chunks(whole)
    play, k_steps = chunks.start(jax.random.key(5))
    ended, steps = [], []
    for i in range(1000):
        play, played = chunks.advance(None, k_steps, play, (3, 1, 8)[i % 3])
        ended.append(int(played.episodes))
        steps.append(float(played.steps))
        if not played.unfinished:
            break
    found = play.episodes
    jax.tree.map(np.testing.assert_array_equal, found, unchunked())
    assert ended == sorted(ended) and ended[-1] == 16
    assert steps == sorted(steps) and steps[-1] == float(found.length.sum())


def test_info_is_gathered_per_episode():
    def info(timestep):
        shown = timestep.final_obs[:, 0, 0]
        return {"depth_max": -shown, "steps_sum": shown, "avg_mean": shown}

    env = with_info(make_counting(5), info)
    episodes = whole_episodes(env, random_policy(), 3, 7, None, jax.random.key(0))
    assert set(episodes.info) == {"depth", "steps"}
    assert episodes.info["depth"].tolist() == [-1.0] * 7
    assert episodes.info["steps"].tolist() == [1 + 2 + 3 + 4 + 5] * 7


def test_random_continuous_actions_cover_their_whole_range():
    found = random_actions(jax.random.key(0), jnp.zeros((500, 1, 0), bool), action_dim=2)
    assert found.shape == (500, 1, 2) and found.dtype == jnp.float32
    assert -1.0 <= float(found.min()) < -0.98 and 0.98 < float(found.max()) <= 1.0


def test_endless_policy_is_stopped_and_reported(monkeypatch):
    monkeypatch.setattr("hmx.algos.evaluate.STEP_LIMIT", 20)
    episodes = whole_episodes(make_counting(0), random_policy(), 2, 2, None, jax.random.key(0))
    assert not bool(episodes.finished.any())
    assert episodes.length.tolist() == [20, 20]


def test_the_policy_of_an_algorithm():
    """Greedy repeats itself whatever the key; sampled does not."""
    cfg = Config(
        run=RunConfig(total_steps=64),
        env=EnvConfig(id="corridor", num_envs=4, max_steps=40),
        net=NetConfig(hidden=(8,)),
        algo=AlgoConfig(num_steps=4),
    )
    env = make_env(EnvConfig(id="corridor", max_steps=40, slip=0.0), RewardWeights())
    algorithm = make_algorithm(cfg, env)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    always_right = state._replace(
        params={**state.params, "policy_head": {"kernel": jnp.zeros((8, 2)), "bias": jnp.array([0.0, 1.0])}}
    )
    greedy = whole_episodes(env, algorithm_policy(algorithm, greedy=True), 4, 4, always_right, jax.random.key(1))
    assert greedy.length.tolist() == [7] * 4
    np.testing.assert_allclose(greedy.total, 0.93, rtol=1e-5)
    sampled = whole_episodes(env, algorithm_policy(algorithm, greedy=False), 4, 16, always_right, jax.random.key(1))
    assert int(sampled.length.max()) > 7


def test_environments_share_a_queue_of_episodes():
    """No environment is idle while an episode has not begun, and each entry is one whole episode."""
    whole = make_evaluation(lottery(1, 2, 3, 20), random_policy(), 4, 24)
    step = jax.jit(lambda play: whole.step(None, jax.random.key(2), play)[0])
    play = jax.jit(whole.start)(jax.random.key(1))
    steps = np.zeros(24, int)
    seen = []
    while bool(whole.unfinished(play)):
        entry = np.asarray(play.entry)
        assert len(set(entry)) == 4
        steps[entry[entry < 24]] += 1
        seen += [int(e) for e in sorted(entry) if e < 24 and e not in seen]
        assert (entry < 24).all() or seen == list(range(24))
        play = step(play)
    assert seen == list(range(24))
    assert play.episodes.finished.all()
    assert steps.tolist() == play.episodes.length.tolist() == play.episodes.total.tolist()
    assert set(steps.tolist()) == {1, 2, 3, 20}
