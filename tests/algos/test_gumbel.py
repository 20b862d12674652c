"""Learning from search: the loss, what it learns from, and that chance stays unknown to it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner import learner
from training import build, hypers_of

from hmx.algos.gumbel.update import imitation_loss, make_gumbel, under_symmetries
from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.sequences import Batch
from hmx.config.fields import replace
from hmx.config.learning import GumbelConfig
from hmx.config.schema import Config, EnvConfig, NetConfig, RewardWeights, RunConfig
from hmx.envs.registry import make_env
from hmx.errors import HmxError
from hmx.registry.check import check
from hmx.registry.environments import known_sizes


def configure():
    options = {"num_steps": 16, "num_minibatches": 4, "update_epochs": 2, "ent_coef": 0.0}
    return Config(
        run=RunConfig(total_steps=128),
        env=EnvConfig(id="frozenlake", num_envs=8, max_steps=20),
        net=NetConfig(hidden=(16,)),
        gumbel=GumbelConfig(num_simulations=16),
        **learner(name="gumbel", **options),
    )


@pytest.fixture(scope="module")
def learning():
    """A training state, and what its next update learns from."""
    algorithm = build(configure())
    state = jax.jit(algorithm.init)(jax.random.key(0))
    return algorithm, state, jax.jit(algorithm.experience)(state, hypers_of(algorithm))


@pytest.fixture(scope="module")
def parts():
    cfg = configure()
    return make_ppo_components(cfg, make_env(cfg.env, RewardWeights()))


def make_batch(found):
    return Batch(**{name: found.get(name) for name in Batch._fields})


def test_only_used_hyperparameters_are_computed():
    assert sorted(build(configure()).hypers(0)) == ["ent_coef", "learning_rate"]


def test_stores_probabilities_of_the_search_and_values_of_the_network(learning):
    """The value of a search is too high: it takes the best of several outcomes that it drew once each."""
    algorithm, state, batch = learning
    probs, legal = np.asarray(batch["probs"]), np.asarray(batch["legal"])
    np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)
    assert (probs[~legal] == 0.0).all()
    begins = jnp.ones(8, bool)
    own, _ = algorithm.act(state, None, state.actors.obs, state.actors.legal, begins, jax.random.key(0), False)
    assert np.abs(probs.reshape(16, 8, -1)[0] - np.asarray(own.probs[:, 0])).max() > 0.05
    np.testing.assert_allclose(batch["value_old"].reshape(16, 8)[0], own.value[:, 0], rtol=1e-4, atol=1e-6)


def test_loss_is_the_cross_entropy_to_the_search(learning, parts):
    algorithm, _, found = learning
    params, batch = parts.net.init(jax.random.key(1)), make_batch(found)
    loss, metrics = imitation_loss(parts, params, parts.codec.init_stats(), hypers_of(algorithm), batch)
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
    with pytest.raises(ValueError, match="no probabilities"):
        imitation_loss(parts, params, None, {}, batch._replace(probs=None))


def with_symmetries(env, turned):
    """An environment with a symmetry that reverses its four actions, and no other."""
    return env._replace(spec=env.spec._replace(symmetries=((3, 2, 1, 0),) * 2, turned=turned))


def test_a_symmetry_changes_what_is_seen_and_the_actions_it_teaches(learning, parts):
    batch = make_batch(learning[2])
    batch = batch._replace(reference=batch.probs)
    spec = with_symmetries(parts.env, lambda obs, symmetry: obs[..., ::-1] * (symmetry < 2)[..., None]).spec
    found = under_symmetries(spec, batch, jax.random.key(0))
    for name in ("obs", "probs", "legal", "reference"):
        np.testing.assert_array_equal(getattr(found, name), getattr(batch, name)[..., ::-1])
    for name in ("target", "value_old", "weight", "reset"):
        assert getattr(found, name) is getattr(batch, name)


def test_updates_learn_from_what_is_seen_under_symmetries():
    """The first layer learns nothing from observations that a symmetry blanks."""
    cfg = replace(configure(), {"gumbel.symmetries": True})
    env = with_symmetries(make_env(cfg.env, RewardWeights()), lambda obs, symmetry: jnp.zeros_like(obs))
    algorithm = make_gumbel(cfg, env)
    before = jax.jit(algorithm.init)(jax.random.key(0))
    after = jax.jit(algorithm.update)(before, hypers_of(algorithm))[0].params
    first, learned = (params["torso"]["dense_0"]["kernel"] for params in (before.params, after))
    assert np.array_equal(learned, first)
    assert not np.array_equal(after["policy_head"]["bias"], before.params["policy_head"]["bias"])


@pytest.mark.parametrize(("env_id", "message"), [("pendulum", "continuous"), ("rendezvous", "one agent")])
def test_refuses_environments_without_search(env_id, message):
    cfg = configure()
    cfg = dataclasses.replace(cfg, env=EnvConfig(id=env_id, num_envs=8, num_agents=1 + (env_id == "rendezvous")))
    with pytest.raises(HmxError, match=message):
        check(cfg, known_sizes(cfg.env))
