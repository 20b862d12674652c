"""Training rows: who is where, what each step is worth, and which rows a minibatch gets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner import learner

from hmx.algos.collector import Rollout
from hmx.algos.ppo import update, variants
from hmx.algos.sequences import MinibatchPlan
from hmx.algos.sequences import plan_minibatches as plan_sequences
from hmx.algos.sequences import take_sequences as take
from hmx.config.schema import Config
from hmx.rl import advantages
from hmx.types import Transition

STEPS, ENVS, AGENTS, HORIZON = 6, 2, 3, 3
CFG = Config(**learner(gamma=0.9, gae_lambda=0.8, update_epochs=2, num_minibatches=4))

# Compiled: one program each, instead of one per operation.
make_batch = jax.jit(update.make_batch, static_argnums=(1, 2))
vtrace_advantages = jax.jit(variants.vtrace_advantages, static_argnums=(2, 3))
plan_minibatches = jax.jit(plan_sequences, static_argnums=1)
take_sequences = jax.jit(take)
gae = jax.jit(advantages.gae, static_argnums=(6, 7))


@pytest.fixture(scope="module")
def rollout():
    """Random numbers, with episodes that end both ways, and an observation that says where it comes from."""
    random = np.random.default_rng(0)
    shape = (STEPS, ENVS, AGENTS)
    where = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    terminated = np.zeros(shape, bool)
    terminated[1, 0] = True
    terminated[4, 1, 2] = True  # one agent's own end
    truncated = np.zeros(shape, bool)
    truncated[2, 1] = True
    alive = np.ones(shape, bool)
    alive[5, 1, 2] = False
    return Rollout(
        Transition(
            obs_t=jnp.asarray(where),
            legal_t=jnp.ones((*shape, 2), bool),
            reset_t=jnp.zeros(shape[:2], bool).at[2, 0].set(True),
            alive_t=jnp.asarray(alive),
            action_t=jnp.zeros(shape, jnp.int32),
            log_prob_t=jnp.zeros(shape),
            value_t=jnp.asarray(random.normal(size=shape), jnp.float32),
            reward_tp1=jnp.asarray(random.normal(size=shape), jnp.float32),
            terminated_tp1=jnp.asarray(terminated),
            truncated_tp1=jnp.asarray(truncated),
            value_final_tp1=jnp.asarray(np.where(truncated, random.normal(size=shape), 0.0), jnp.float32),
        ),
        carry={"memory": jnp.asarray(where[::HORIZON], jnp.float32)},
        value_last=jnp.asarray(random.normal(size=shape[1:]), jnp.float32),
    )


def whole(rollout):
    seen = rollout.transitions
    return gae(
        seen.reward_tp1,
        seen.value_t,
        rollout.value_last,
        seen.value_final_tp1,
        seen.terminated_tp1,
        seen.truncated_tp1,
        CFG.algo.gamma,
        CFG.ppo.gae_lambda,
    )


def test_sequence_has_consecutive_steps_of_one_agent_and_its_carry(rollout):
    batch = make_batch(rollout, CFG, HORIZON)
    assert batch.obs.shape == (HORIZON, STEPS // HORIZON * ENVS * AGENTS, 3)
    steps, owners = batch.obs[..., 0], batch.obs[..., 1:]
    np.testing.assert_array_equal(steps, steps[:1] + np.arange(HORIZON)[:, None])
    np.testing.assert_array_equal(owners, np.broadcast_to(owners[:1], owners.shape))
    np.testing.assert_array_equal(batch.carry["memory"], batch.obs[0])
    assert len({tuple(row) for row in np.asarray(batch.obs[0])}) == batch.obs.shape[1]
    t, e, a = np.asarray(batch.obs).transpose(2, 0, 1)
    for name, source in (("value_old", "value_t"), ("reward", "reward_tp1"), ("weight", "alive_t")):
        np.testing.assert_array_equal(getattr(batch, name), getattr(rollout.transitions, source)[t, e, a])
    np.testing.assert_array_equal(batch.reset, rollout.transitions.reset_t[t, e])


@pytest.mark.parametrize("horizon", [1, HORIZON, STEPS])
def test_sequence_length_does_not_change_advantages(rollout, horizon):
    """At ratio 1, advantages computed within a row equal those of the rollout: what follows the row is known."""
    batch = make_batch(rollout._replace(carry=()), CFG, horizon)
    expected = whole(rollout)
    t, e, a = np.asarray(batch.obs).transpose(2, 0, 1)
    np.testing.assert_array_equal(batch.advantage, expected.advantage_t[t, e, a])
    np.testing.assert_array_equal(batch.target, expected.target_t[t, e, a])
    recomputed = vtrace_advantages(batch, jnp.ones_like(batch.advantage), CFG.ppo, CFG.algo.gamma)
    np.testing.assert_allclose(recomputed.advantage_t, batch.advantage, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(recomputed.target_t, batch.target, rtol=1e-5, atol=1e-6)


def test_advantages_on_the_scale_of_symlog_are_changes_of_the_coded_value(rollout):
    """A gain of 3 on an expected 1 is symlog(4) - symlog(1) = log(5 / 2), whatever the sign."""
    seen = rollout.transitions
    seen = seen._replace(reward_tp1=seen.reward_tp1.at[1, 0].set(4.0), value_t=seen.value_t.at[1, 0].set(1.0))
    given = rollout._replace(transitions=seen)
    plain = make_batch(given, CFG, HORIZON)
    batch = make_batch(given, Config(**learner(gamma=0.9, gae_lambda=0.8, advantage_scale="symlog")), HORIZON)
    target, value = np.asarray(plain.target, np.float64), np.asarray(plain.value_old, np.float64)
    code = [np.sign(x) * np.log(1.0 + np.abs(x)) for x in (target, value)]
    np.testing.assert_allclose(batch.advantage, code[0] - code[1], rtol=1e-5, atol=1e-6)
    at_end = (np.asarray(batch.obs)[..., :2] == [1, 0]).all(-1)
    np.testing.assert_allclose(batch.advantage[at_end], [np.log(5.0 / 2.0)] * AGENTS, rtol=1e-6)
    np.testing.assert_array_equal(batch.target, plain.target)  # the value function still learns returns


@pytest.mark.parametrize("row_end", ["mask", "zero"])
def test_last_step_of_a_sequence_can_be_masked(rollout, row_end):
    cfg = Config(**learner(gamma=0.9, gae_lambda=0.8, row_end=row_end))
    batch = make_batch(rollout, cfg, HORIZON)
    np.testing.assert_array_equal(batch.advantage[-1], 0.0)
    np.testing.assert_array_equal(batch.target[-1], batch.value_old[-1])
    # the step before sees one reward and one bootstrap, and no trace
    delta = batch.reward[-2] + 0.9 * batch.bootstrap[-2] - batch.value_old[-2]
    np.testing.assert_allclose(batch.advantage[-2], delta, rtol=1e-6)
    assert bool(batch.weight[-1].any()) == (row_end == "zero")
    assert batch.weight[0].all()


def test_every_epoch_uses_each_sequence_once_without_priorities(rollout):
    batch = make_batch(rollout, CFG, HORIZON)
    plan, metrics = plan_minibatches(batch, CFG.ppo, None, jax.random.key(0))
    assert plan.numbers.shape == (8, 3)
    for epoch in np.asarray(plan.numbers).reshape(2, -1):
        assert sorted(epoch) == list(range(12))
    assert plan.numbers[:4].tolist() != plan.numbers[4:].tolist()
    np.testing.assert_array_equal(plan.sequence_weight, 1.0)
    assert metrics == {}


def test_large_advantages_are_sampled_more_and_weighted_less(rollout):
    cfg = Config(**learner(update_epochs=100, num_minibatches=4, prio_alpha=1.0, prio_weights="raw"))
    batch = make_batch(rollout, cfg, HORIZON)
    weight = jnp.array([100.0, 1.0, 10.0] * 4)
    batch = batch._replace(advantage=jnp.broadcast_to(weight, batch.advantage.shape), weight=jnp.ones((HORIZON, 12)))
    plan, metrics = plan_minibatches(batch, cfg.ppo, jnp.float32(1.0), jax.random.key(0))
    rows = np.asarray(plan.numbers)
    assert all(len(set(drawn)) == 3 for drawn in rows)
    counts = np.bincount(rows.ravel(), minlength=12).reshape(4, 3).sum(0)
    assert counts[0] > 3 * counts[2] > 9 * counts[1] > 0
    share = np.asarray(weight) / weight.sum()
    np.testing.assert_allclose(plan.sequence_weight, 1.0 / (12 * share[rows]), rtol=1e-4)
    coverage = metrics["train/sequence_coverage"]
    assert float(coverage.total / coverage.count) == len(set(rows.ravel())) / 12
    assert float(metrics["train/nonfinite_sequences"].total) == 0.0


@pytest.mark.parametrize(("prio_probs", "unbiased"), [("draw", False), ("inclusion", True)])
def test_inclusion_probabilities_make_minibatches_unbiased(rollout, prio_probs, unbiased):
    options = {"update_epochs": 1000, "num_minibatches": 4, "prio_alpha": 1.0, "prio_weights": "raw"}
    cfg = Config(**learner(**options, prio_probs=prio_probs))
    batch = make_batch(rollout, cfg, HORIZON)
    size = jnp.array([100.0, 1.0, 10.0] * 4)
    batch = batch._replace(advantage=jnp.broadcast_to(size, batch.advantage.shape), weight=jnp.ones((HORIZON, 12)))
    plan, _ = plan_minibatches(batch, cfg.ppo, jnp.float32(1.0), jax.random.key(0))
    share_of_largest = np.asarray((plan.sequence_weight * (size == 100.0)[plan.numbers]).mean(1), np.float64)
    error = share_of_largest.std() / np.sqrt(len(share_of_largest))
    assert (abs(share_of_largest.mean() - 1 / 3) < 4 * error) == unbiased


def test_gathered_sequences_keep_all_fields(rollout):
    batch = make_batch(rollout, CFG, HORIZON)
    plan = MinibatchPlan(jnp.array([7, 2]), jnp.array([0.5, 2.0]))
    taken = take_sequences(batch, *plan)
    np.testing.assert_array_equal(taken.sequence_weight, plan.sequence_weight)
    np.testing.assert_array_equal(taken.obs, batch.obs[:, plan.numbers])
    np.testing.assert_array_equal(taken.carry["memory"], batch.carry["memory"][plan.numbers])
    np.testing.assert_array_equal(taken.advantage_next, batch.advantage_next[plan.numbers])
    assert all(leaf.shape[:2] in ((HORIZON, 2), (2,), (2, 3)) for leaf in jax.tree.leaves(taken))
