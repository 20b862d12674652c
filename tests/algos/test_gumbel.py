"""Learning from search: the loss, what it learns from, and that chance stays unknown to it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner import learner

from hmx.algos.build import make_algorithm
from hmx.algos.gumbel.update import imitation_loss
from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.sequences import Batch
from hmx.config.schema import Config, EnvConfig, GumbelConfig, NetConfig, RewardWeights, RunConfig
from hmx.envs.registry import make_env
from hmx.errors import HmxError
from hmx.registry.check import check
from hmx.registry.environments import known_sizes


def configure(env_id="frozenlake", num_simulations=4, **options):
    options = {"num_steps": 16, "num_minibatches": 4, "update_epochs": 2, "ent_coef": 0.0} | options
    return Config(
        run=RunConfig(total_steps=8 * options["num_steps"]),
        env=EnvConfig(id=env_id, num_envs=8, max_steps=20),
        net=NetConfig(hidden=(16,)),
        gumbel=GumbelConfig(num_simulations=num_simulations),
        **learner(name="gumbel", **options),
    )


def build(cfg):
    return make_algorithm(cfg, make_env(cfg.env, RewardWeights()))


def hypers(algorithm):
    return {name: jnp.float32(value) for name, value in algorithm.hypers(0).items()}


def batch_of(cfg):
    """A training state, and what its next update learns from."""
    algorithm = build(cfg)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    return algorithm, state, jax.jit(algorithm.experience)(state, hypers(algorithm))


def test_only_used_hyperparameters_are_computed():
    assert sorted(build(configure()).hypers(0)) == ["ent_coef", "learning_rate"]


def test_stores_the_probabilities_of_the_search():
    algorithm, state, batch = batch_of(configure(num_simulations=16))
    probs, legal = np.asarray(batch["probs"]), np.asarray(batch["legal"])
    np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)
    assert (probs[~legal] == 0.0).all()
    begins = jnp.ones(8, bool)
    own, _ = algorithm.act(state, None, state.actors.obs, state.actors.legal, begins, jax.random.key(0), False)
    assert np.abs(probs.reshape(16, 8, -1)[0] - np.asarray(own.probs[:, 0])).max() > 0.05


def test_stores_values_of_the_network():
    """The value of a search is too high: it takes the best of several outcomes that it drew once each."""
    algorithm, state, batch = batch_of(configure())
    own, _ = algorithm.act(
        state, None, state.actors.obs, state.actors.legal, jnp.ones(8, bool), jax.random.key(0), False
    )
    np.testing.assert_allclose(batch["value_old"].reshape(16, 8)[0], own.value[:, 0], rtol=1e-4, atol=1e-6)


def test_loss_is_the_cross_entropy_to_the_search():
    cfg = configure()
    parts = make_ppo_components(cfg, make_env(cfg.env, RewardWeights()))
    params = parts.net.init(jax.random.key(1))
    algorithm, _, found = batch_of(cfg)
    batch = make_batch(found)
    loss, metrics = imitation_loss(parts, params, parts.codec.init_stats(), hypers(algorithm), batch)
    (logits, _), _ = parts.net.unroll(params, None, batch.obs, batch.reset)
    log_probs = np.asarray(jax.nn.log_softmax(logits), np.float64)
    probs = np.asarray(batch.probs, np.float64)
    cross_entropy = -(probs * log_probs).sum(-1).mean()
    entropy = -(probs * np.log(np.where(probs > 0, probs, 1.0))).sum(-1).mean()
    mean = {name: float(metric.total / metric.count) for name, metric in metrics.items()}
    np.testing.assert_allclose(mean["train/policy_loss"], cross_entropy, rtol=1e-5)
    np.testing.assert_allclose(mean["train/search_entropy"], entropy, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mean["train/search_kl"], cross_entropy - entropy, rtol=1e-4)
    np.testing.assert_allclose(loss, cross_entropy + 0.5 * mean["train/value_loss"], rtol=1e-5)


def make_batch(found):
    return Batch(**{name: found.get(name) for name in Batch._fields})


def test_needs_the_probabilities_of_a_search():
    cfg = configure()
    parts = make_ppo_components(cfg, make_env(cfg.env, RewardWeights()))
    _, _, found = batch_of(cfg)
    batch = make_batch(found)._replace(probs=None)
    with pytest.raises(ValueError, match="no probabilities"):
        imitation_loss(parts, parts.net.init(jax.random.key(1)), None, {}, batch)


@pytest.mark.parametrize(("env_id", "message"), [("pendulum", "continuous"), ("rendezvous", "one agent")])
def test_refuses_environments_without_search(env_id, message):
    cfg = configure()
    cfg = dataclasses.replace(cfg, env=EnvConfig(id=env_id, num_envs=8, num_agents=1 + (env_id == "rendezvous")))
    with pytest.raises(HmxError, match=message):
        check(cfg, known_sizes(cfg.env))
