"""The loss and the importance weights of `--preset metta`, against the formulas of the Metta training equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.algos.ppo.aspects import value_weight
from hmx.algos.sequences import Batch, plan_minibatches
from hmx.config.fields import replace
from hmx.registry.load import load
from hmx.rl.value_codec import make_codec

PPO = load(preset="metta", environ={}).config.ppo


@pytest.mark.parametrize("clip_eps", [0.0, PPO.clip_vf_eps])
def test_value_loss_is_0_44_times_the_mean_squared_error(clip_eps):
    """`total_loss = policy_loss + vf_coef * v_loss`, with v_loss the mean of all of the squared error, not of half."""
    rng = np.random.default_rng(0)
    value, target, old = (rng.normal(size=50).astype(np.float32) for _ in range(3))
    near = old + np.clip(value - old, -clip_eps, clip_eps)
    v_loss = (
        np.maximum((value - target) ** 2, (near - target) ** 2).mean() if clip_eps else ((value - target) ** 2).mean()
    )
    codec = make_codec(PPO.value_target)
    loss = codec.loss(jnp.asarray(value)[:, None], jnp.asarray(target), jnp.asarray(old), clip_eps, ())
    assert value_weight(PPO) * loss.mean() == pytest.approx(0.44 * v_loss, rel=1e-5)


def test_half_of_the_squared_error_is_one_option_away():
    """The source of Metta has the half that its document leaves out."""
    assert value_weight(replace(load(preset="metta", environ={}).config, {"ppo.vf_half": True}).ppo) == 0.44


def test_importance_weights_are_not_divided_by_their_maximum():
    """`IS_weights = (segments * prio_probs[sampled]) ^ (-beta)`, with the probabilities of priorities `|adv|^alpha`."""
    sequences, steps, alpha, beta = 16, 4, 0.5, 0.7
    advantage = np.random.default_rng(1).lognormal(size=(steps, sequences)).astype(np.float32)
    ppo = replace(load(preset="metta", environ={}).config, {"ppo.prio_alpha": alpha, "ppo.num_minibatches": 4}).ppo
    batch = Batch(**{name: jnp.zeros(()) for name in Batch._fields})._replace(
        advantage=jnp.asarray(advantage), weight=jnp.ones_like(advantage), sequence_weight=jnp.ones(sequences)
    )
    plan, _ = plan_minibatches(batch, ppo, jnp.float32(beta), jax.random.key(0))
    priority = np.abs(advantage).sum(0) ** alpha
    probs = (priority + 1e-6) / (priority.sum() + 1e-6)
    np.testing.assert_allclose(plan.sequence_weight, (sequences * probs[plan.numbers]) ** -beta, rtol=1e-4)
    assert plan.sequence_weight.max() > 1.0
