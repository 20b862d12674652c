"""Switches of the rollout and of the update, seen in what is really played and learned."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training import hypers_of

from hmx.algos.collector import Policy, RolloutOptions, collect, start
from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.ppo.loss import ppo_loss
from hmx.algos.ppo.update import _init, _rollout, make_batch, make_ppo
from hmx.algos.types import Decision
from hmx.config.fields import replace
from hmx.config.schema import Config, EnvConfig, RewardWeights
from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import EnvSpec
from hmx.envs.registry import make_env
from hmx.envs.small.counting import make_counting
from hmx.rl import normaliser

BASE = {
    "run.total_steps": 10_000,
    "env.id": "pendulum",
    "env.num_envs": 4,
    "env.max_steps": 6,
    "net.hidden": (8,),
    "net.shared_torso": False,
    "algo.num_steps": 8,
    "ppo.bptt_horizon": 4,
    "ppo.num_minibatches": 2,
    "ppo.update_epochs": 1,
    "ppo.value_target": "identity",
    "algo.learning_rate": 1e-3,
}


def config(**values):
    return replace(Config(), BASE | {key.replace("__", "."): value for key, value in values.items()})


class Played:
    """An algorithm, compiled, with the metrics of the updates it has done."""

    def __init__(self, env=None, **values):
        self.cfg = config(**values)
        self.env = env or make_env(self.cfg.env, RewardWeights())
        self.algorithm = make_ppo(self.cfg, self.env)
        self.state = jax.jit(self.algorithm.init)(jax.random.key(0))
        self._update = jax.jit(self.algorithm.update)
        self._experience = jax.jit(self.algorithm.experience)
        self.told = []

    def hypers(self):
        return hypers_of(self.algorithm)

    def update(self, times=1):
        for _ in range(times):
            self.state, metrics = self._update(self.state, self.hypers())
            self.told.append({name: float(metric[0]) for name, metric in metrics.items()})
        return self

    def experience(self):
        return self._experience(self.state, self.hypers())


def keyed_env(max_steps):
    """The observation is a number drawn from the key of the start, and the steps since."""
    spec = EnvSpec(
        id="keyed", obs_shape=(2,), obs_dtype=jnp.float32, num_actions=0, num_agents=1, max_steps=max_steps,
        reward_terms=("none",), action_groups=(), action_names=(), action_dim=1,
    )  # fmt: skip

    def begin(key):
        return jnp.stack([jax.random.uniform(key), jnp.float32(0.0)])

    def move(core, action, key):
        return core + jnp.array([0.0, 1.0]), {"none": jnp.float32(0.0)}, jnp.zeros((), bool)

    return batched(spec, Game(begin, move, lambda core: core, lambda core: jnp.ones(0, bool)))


def starts_seen(max_steps, rollouts, **values):
    """The number of the start of every observation and the steps since, both `[rollouts x 8, 4]`."""
    env = keyed_env(max_steps)
    parts = make_ppo_components(config(ppo__bptt_horizon=1, **values), env)
    state, play = jax.jit(partial(_init, parts))(jax.random.key(0)), jax.jit(partial(_rollout, parts))
    seen = []
    for key in jax.random.split(jax.random.key(1), rollouts):
        actors, rollout, _ = play(state, key)
        seen.append(np.asarray(rollout.transitions.obs_t[:, :, 0]))
        state = state._replace(actors=actors, update=state.update + 1)
    obs = np.concatenate(seen)
    return obs[..., 0], obs[..., 1]


@pytest.mark.parametrize(
    ("values", "distinct"),
    [
        ({}, 6),  # 24 steps in episodes of 4: a fresh start each
        ({"env__reset_on_done": "first"}, 1),
        ({"env__reset_on_done": "first", "env__full_reset_every": 2}, 2),
        ({"env__reset_on_done": "rollout_cache"}, 4),  # the very first, then one per rollout
    ],
    ids=str,
)
def test_1_9_episode_starts(values, distinct):
    which, since = starts_seen(4, 3, **values)
    assert [len(np.unique(which[:, e])) for e in range(4)] == [distinct] * 4
    assert len(np.unique(which)) == 4 * distinct  # environments never share a start
    assert (since == np.arange(24)[:, None] % 4).all()


def test_1_9_later_starts_follow_their_share_and_have_separate_metrics():
    """Episodes of 4 steps in rollouts of 8 steps; later starts show numbers from 1 to 2, others numbers below 1."""
    env = keyed_env(4)

    def later_reset(keys):
        state, timestep = env.reset(keys)
        core, obs = (leaf.at[..., 0].add(1.0) for leaf in (state.core, timestep.obs))
        return state._replace(core=core), timestep._replace(obs=obs)

    env = env._replace(spec=env.spec._replace(later_reset=later_reset))
    cfg = config(env__id="hackmatrix", net__kind="mlp", ppo__bptt_horizon=1, starts__share=0.5)
    parts = make_ppo_components(cfg, env)
    state, play = jax.jit(partial(_init, parts))(jax.random.key(0)), jax.jit(partial(_rollout, parts))
    which = []
    for key, share in zip(jax.random.split(jax.random.key(3), 3), (1.0, 0.0, 0.5), strict=True):
        actors, rollout, metrics = play(state, key, jnp.float32(share))
        assert actors.starts is None
        which.append(np.asarray(rollout.transitions.obs_t[::4, :, 0, 0]))
        begun_later = which[-1] > 1.0
        np.testing.assert_array_equal(actors.episode.later, np.asarray(actors.obs[:, 0, 0]) > 1.0)
        ended = [float(metrics[f"{group}/num_episodes"].total) for group in ("starts", "train")]
        assert ended == [begun_later.sum(), (~begun_later).sum()]
        assert float(metrics["reward/none"].count) == 4 * (~begun_later).sum()
        state = state._replace(actors=actors, update=state.update + 1)
    first, second, third = ((numbers > 1.0).tolist() for numbers in which)
    assert (first, second) == ([[False] * 4, [True] * 4], [[True] * 4, [False] * 4])
    assert third[0] == [False] * 4 and 0 < sum(third[1]) < 4
    np.testing.assert_array_equal(which[1][0], which[0][1])  # one later start per environment and rollout
    assert len(np.unique(which[0][1])) == 4


def test_1_9_a_full_reset_leaves_episodes_unfinished():
    """Episodes of 6 steps in rollouts of 8: without it the second rollout goes on in the midst of an episode."""
    _, since = starts_seen(6, 2, env__full_reset_every=1)
    assert (since[7] == 1.0).all() and (since[8] == 0.0).all()


def count_policy():
    """Values an observation by itself."""

    def act(carry, obs, legal, reset, key):
        action = legal.argmax(-1).astype(jnp.int32)
        return Decision(action, jnp.zeros(obs.shape[:2]), legal * 1.0, obs[..., 0]), carry

    return Policy(act, lambda carry, obs, reset: obs[..., 0])


def test_2_4_statistics_in_the_step():
    """Observations 1, 2, 3, ... after a raw 0: each normalised with the statistics of those before it."""
    env, see = make_counting(4), lambda stats, obs: normaliser.normalise(stats, obs)
    actors = start(env, 1, (), jax.random.key(0))._replace(obs_stats=normaliser.init_stats((1,)))
    actors, rollout, _ = collect(
        env, count_policy(), actors, jax.random.key(1), 6, options=RolloutOptions(normalize_fn=see)
    )
    raw = [1.0, 2.0, 3.0, 4.0, 1.0, 2.0]  # reached by each step; the fourth ends the episode
    shown, counted = [], []
    for number in raw:
        std = np.std(counted) if len(counted) > 1 else 1.0
        shown.append((number - np.mean(counted or [0.0])) / std)
        counted.append(number)
    wanted = [0.0, *shown[:3], 0.0, shown[4]]  # a start is raw: 0
    np.testing.assert_allclose(rollout.transitions.obs_t[:, 0, 0, 0], wanted, rtol=1e-5)
    # the value of the last observation is that of it as shown
    np.testing.assert_allclose(rollout.transitions.value_final_tp1[3, 0, 0], shown[3], rtol=1e-5)
    assert int(actors.obs_stats.count[1]) == 6
    np.testing.assert_allclose(actors.obs_stats.mean, [np.mean(raw)], rtol=1e-6)


def test_2_4_statistics_in_the_step_follow_the_observations_after_many():
    """A step of 8 environments is 8e-9 of 10^9 observations: added alone, it would not change a float32 mean of 1."""
    env, see = make_counting(4), lambda stats, obs: normaliser.normalise(stats, obs)
    count, steps, rollouts = 10**9, 256, 20
    many = normaliser.RunningStats(jnp.array([0, count], jnp.uint32), jnp.ones(1), jnp.ones(1))
    actors = start(env, 8, (), jax.random.key(0))._replace(obs_stats=many)

    def play(actors, key):
        return collect(env, count_policy(), actors, key, steps, options=RolloutOptions(normalize_fn=see))[0], None

    actors, _ = jax.lax.scan(play, actors, jax.random.split(jax.random.key(1), rollouts))
    added = 8 * steps * rollouts
    assert int(actors.obs_stats.count[1]) == count + added
    # the observations are 1, 2, 3, 4 in turn: their mean is 2.5, their variance 1.25
    total, mean = count + added, (count + added * 2.5) / (count + added)
    np.testing.assert_allclose(actors.obs_stats.mean - 1.0, mean - 1.0, rtol=0.05)
    var = (count * (1.0 + 1.0) + added * (1.25 + 2.5**2)) / total - mean**2
    np.testing.assert_allclose(actors.obs_stats.var - 1.0, var - 1.0, rtol=0.05)


def test_2_4_combined_statistics_are_those_of_all_observations():
    rows = np.random.default_rng(0).normal(3.0, 2.0, (50, 2)).astype(np.float32)
    first, second = (
        normaliser.merge(normaliser.init_stats((2,)), part, jnp.ones(len(part))) for part in np.split(rows, [20])
    )
    both = normaliser.combine(first, second)
    np.testing.assert_allclose(both.mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(both.var, rows.var(0), rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, normaliser.combine(first, normaliser.init_stats((2,))), first)
    large = first._replace(count=jnp.array([1, 2**32 - 7], jnp.uint32))
    assert normaliser.combine(large, second).count.tolist() == [2, 23]


def test_2_4_evaluation_normalises_like_training():
    """The first observation of an episode is raw, in the rollout too."""
    cfg = config(ppo__obs_norm="env")
    algorithm = make_ppo(cfg, make_env(cfg.env, RewardWeights()))
    begun = jax.jit(algorithm.init)(jax.random.key(0))
    known = begun.actors.obs_stats._replace(count=jnp.array([0, 9], jnp.uint32), mean=jnp.ones(3), var=jnp.full(3, 4.0))
    state, none = begun._replace(actors=begun.actors._replace(obs_stats=known)), jnp.ones((1, 1, 0), bool)

    @jax.jit
    def value(first, number):
        begins, obs = jnp.array([first]), jnp.full((1, 1, 3), number)
        return algorithm.act(state, (), obs, none, begins, jax.random.key(0), True)[0].value[0, 0]

    np.testing.assert_allclose(value(False, 4.0), value(True, 1.5), rtol=1e-4)
    assert abs(value(False, 4.0) - value(True, 4.0)) > 1e-3


@pytest.fixture(scope="module")
def normalised():
    """Three updates with statistics of the network, and all that was seen in them."""
    played, seen = Played(ppo__obs_norm="network"), []
    for _ in range(3):
        seen.append(np.asarray(played.experience()["obs"]).reshape(-1, 3))
        played.update()
    return played, np.concatenate(seen).astype(np.float64)


def test_2_4_statistics_change_during_learning_only_with_before_sgd(normalised):
    moved = Played(ppo__obs_norm="network", ppo__obs_norm_update="before_sgd").update(2)
    for played, rest in ((normalised[0], True), (moved, False)):
        assert (max(told["train/first_ratio_error"] for told in played.told) < 1e-5) == rest


def test_2_4_statistics_cover_all_observations(normalised):
    played, seen = normalised
    assert played.state.actors.episode.later is None and "start_share" not in played.hypers()  # unless configured
    assert int(played.state.actors.obs_stats.count[1]) == len(seen) == 3 * 8 * 4
    np.testing.assert_allclose(played.state.actors.obs_stats.mean, seen.mean(0), atol=1e-5)
    np.testing.assert_allclose(played.state.actors.obs_stats.var, seen.var(0), rtol=1e-4)


def test_2_4_counts_exceed_float_precision():
    stats = normaliser.init_stats((1,))._replace(count=jnp.array([0, 2**32 - 2], jnp.uint32))
    stats = normaliser.merge(stats, jnp.full((5, 1), 3.0), jnp.array([1, 1, 1, 0, 1]))
    assert stats.count.tolist() == [1, 2]
    assert float(normaliser.number(stats.count)) == 2.0**32  # the nearest float32


def test_2_4_merge_ignores_zero_weights_and_empty_batches():
    stats = normaliser.merge(normaliser.init_stats((2,)), jnp.array([[1.0, 2.0], [3.0, 6.0]]), jnp.ones(2))
    junk = jnp.array([[jnp.nan, 1e30]])
    same = normaliser.merge(stats, junk, jnp.zeros(1))
    jax.tree.map(np.testing.assert_array_equal, same, stats)
    mixed = normaliser.merge(stats, jnp.concatenate([junk, jnp.array([[5.0, 1.0]])]), jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(mixed.mean, [3.0, 3.0], rtol=1e-6)


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_2_4_clipping(clip):
    stats = normaliser.init_stats((1,))
    assert float(normaliser.normalise(stats, jnp.array([3.0]), clip=clip)[0]) == (clip or 3.0)


HYPERS = {"clip_eps": jnp.float32(0.2), "ent_coef": jnp.float32(0.0)}


class Batch:
    """One rollout with all that any variant wants of it, turned into rows and losses without compiling an update."""

    def __init__(self, **values):
        self.values = values
        env = make_env(config().env, RewardWeights())
        parts = self.parts()
        self.params = jax.jit(parts.net.init)(jax.random.key(0))
        apply = jax.jit(parts.net.apply)

        def ask(carry, obs, reset):
            flags = jnp.broadcast_to(reset[:, None], obs.shape[:2])
            (logits, value), carry = apply(self.params, carry, obs, flags)
            return logits, value[..., 0], carry

        def act(carry, obs, legal, reset, key):
            logits, value, carry = ask(carry, obs, reset)
            raw = parts.head.sample(key, logits, legal)
            return Decision(jnp.tanh(raw), parts.head.log_prob(logits, legal, raw), legal * 1.0, value, raw), carry

        policy = Policy(act, lambda carry, obs, reset: ask(carry, obs, reset)[1])
        actors = start(env, 4, parts.net.initial_carry((4, 1)), jax.random.key(1))
        options = RolloutOptions(final_obs=True, final_value=True)
        self.rollout = jax.jit(lambda a, k: collect(env, policy, a, k, 8, 1, options)[1])(actors, jax.random.key(2))

    def parts(self, **values):
        cfg = config(**{"ppo__bptt_horizon": 8, "ppo__norm_adv": False, **self.values, **values})
        return make_ppo_components(cfg, make_env(cfg.env, RewardWeights()))

    def losses(self, **values):
        """The value and policy loss of all rows, before any gradient step."""
        found = self._loss(tuple(values.items()))(self.params, self.rollout)
        return tuple(float(loss) for loss in found)

    @cache  # noqa: B019 - it lives as long as the tests
    def _loss(self, values):
        parts = self.parts(**dict(values))

        @jax.jit
        def loss(params, rollout):
            if parts.cfg.ppo.value_forward == "shift":
                rollout = rollout._replace(transitions=rollout.transitions._replace(final_obs_tp1=None))
            batch = make_batch(rollout, parts.cfg, parts.horizon)
            metrics = ppo_loss(parts, params, (), HYPERS, batch)[1]
            return [metrics[f"train/{name}_loss"].total for name in ("value", "policy")]

        return loss


@pytest.fixture(scope="module")
def batch():
    return Batch()


ANEW = {"ppo__advantage_when": "minibatch", "ppo__value_forward": "both"}


def test_1_1_current_values_equal_rollout_values_before_the_first_step(batch):
    """With rows as long as the rollout, advantages anew must be the rollout's own, however next states are valued."""
    plain = batch.losses()
    np.testing.assert_allclose(batch.losses(**ANEW), plain, rtol=1e-4)
    np.testing.assert_allclose(batch.losses(ppo__value_forward="both"), plain, rtol=1e-4)
    masked = batch.losses(ppo__episode_end="mask")
    shifted = batch.losses(ppo__episode_end="mask", ppo__advantage_when="minibatch")
    np.testing.assert_allclose(shifted, masked, rtol=1e-4)
    assert abs(masked[0] - plain[0]) > 1e-3 * plain[0]
    # shorter rows see less of the future
    assert abs(batch.losses(ppo__bptt_horizon=2, **ANEW)[0] - plain[0]) > 1e-3 * plain[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ppo__advantage", "brax"),
        ("ppo__gae_axis", "batch"),
        ("ppo__episode_end", "terminal"),
        ("ppo__episode_end", "timeout_reward"),
        ("ppo__episode_end", "leak"),
    ],
)
def test_1_2_variants_change_the_loss_and_survive_recomputation(batch, key, value):
    plain, in_rollout, anew = batch.losses(), batch.losses(**{key: value}), batch.losses(**{key: value}, **ANEW)
    np.testing.assert_allclose(in_rollout, anew, rtol=1e-4)
    # Brax's advantage has the targets of GAE
    assert (abs(in_rollout[0] - plain[0]) < 1e-4 * plain[0]) == (value == "brax")
    assert abs(in_rollout[1] - plain[1]) > 1e-3 * abs(plain[1])


def test_1_1_recomputed_advantages_follow_the_network(batch):
    """Another value head later: frozen targets stay where they were, those of the moment move with it."""
    head = dict(batch.params["value_head"])
    moved = {**batch.params, "value_head": {**head, "bias": head["bias"] + 1.0}}
    plain = batch.losses()[0]
    now, batch.params = batch.params, moved
    frozen, anew = batch.losses()[0], batch.losses(**ANEW)[0]
    batch.params = now
    assert abs(anew - frozen) > 0.1 * abs(frozen - plain) > 0.0


def test_advantages_are_recomputed_for_recurrent_networks():
    """The value after the row is said with the memory that the row leaves behind."""
    remembering = Batch(net__rnn="gru", net__rnn_hidden=4, ppo__episode_end="mask")
    np.testing.assert_allclose(remembering.losses(ppo__advantage_when="minibatch"), remembering.losses(), rtol=1e-4)


def test_1_3_rewards_are_scaled_for_the_learner(batch):
    parts = batch.parts(ppo__reward_scale=10.0)
    rows = make_batch(batch.rollout, parts.cfg, 8)
    np.testing.assert_allclose(rows.reward, 10.0 * batch.rollout.transitions.reward_tp1.reshape(8, 4), rtol=1e-6)
    assert not np.allclose(rows.target, make_batch(batch.rollout, batch.parts().cfg, 8).target)


def test_truncation_and_maximum_entropy_are_reported(normalised):
    told = normalised[0].told[0]
    assert told["train/truncated_frac"] == 4.0  # the sum over 32 steps: one cut in each of 4 environments
    assert told["train/max_entropy"] == pytest.approx(32 * np.log(2.0), rel=1e-5)
    assert told["train/std"] == pytest.approx(2 * 0.694, rel=0.02)  # two minibatches


def parameters(**values):
    parts = make_ppo_components(config(**values), make_env(config().env, RewardWeights()))
    return jax.eval_shape(parts.net.init, jax.random.key(0))


def test_value_torso_can_have_another_width():
    params = parameters(net__value_hidden=(5, 3))
    assert [params["value_torso"][f"dense_{i}"]["kernel"].shape for i in (0, 1)] == [(3, 5), (5, 3)]
    assert params["torso"]["dense_0"]["kernel"].shape == (3, 8)


def test_std_can_be_independent_of_the_observation():
    params = parameters(net__std="param")
    assert params["std_raw"].shape == (1,) and "std_head" not in params


def test_sequences_include_the_next_step():
    cfg = config(ppo__advantage_when="minibatch", ppo__episode_end="mask")
    env = make_counting(6)
    parts = make_ppo_components(dataclasses.replace(cfg, env=EnvConfig(id="counting", num_envs=2, max_steps=6)), env)
    actors = start(env, 2, (), jax.random.key(0))
    _, rollout, _ = collect(env, count_policy(), actors, jax.random.key(1), 8)
    batch = make_batch(rollout, parts.cfg, 4)
    assert batch.obs[:, 0, 0].tolist() == [0, 1, 2, 3] and batch.obs[:, 2, 0].tolist() == [4, 5, 0, 1]
    assert batch.obs_last[:, 0].tolist() == [4, 4, 2, 2]
    assert batch.truncated[:, 2].tolist() == [False, True, False, False]
    assert not batch.reset_last.any() and batch.obs_next is None
