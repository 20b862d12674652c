"""Algorithms in tests: their hyperparameters, states compared bit by bit, and training until an agent has learned.

Learning is tested with several seeds, since rounding, and so one seed, differs between CPUs.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.build import make_algorithm
from hmx.algos.evaluate import TO_THE_END, make_chunks, make_evaluation
from hmx.config.schema import RewardWeights
from hmx.envs.registry import make_env

SEEDS = range(3)


@cache
def build(cfg):
    """The algorithm of a configuration in its environment; the same functions each time, whose traces JAX keeps."""
    return make_algorithm(cfg, make_env(cfg.env, RewardWeights()))


def hypers_of(algorithm, update=0, **changes):
    """The scheduled values of an update as its program takes them."""
    return {name: jnp.float32(value) for name, value in {**algorithm.hypers(update), **changes}.items()}


def whole_episodes(env, policy, num_envs, number, state, key):
    """Episodes of a policy as an evaluation plays them."""
    chunks = make_chunks(make_evaluation(env, policy, num_envs, number))
    play, k_steps = chunks.start(key)
    return chunks.advance(state, k_steps, play, TO_THE_END)[0].episodes


def leaves(tree):
    """The numbers of a state, keys included."""
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(tree)
    ]


def assert_same(a, b):
    """Assert that two states are equal bit for bit."""
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def train_seeds(algorithm, updates, seeds=SEEDS):
    """Train seeds one after the other with one program: `(last state, metrics of all updates)` of each."""
    rows = [algorithm.hypers(update) for update in range(updates)]
    hypers = {name: jnp.array([row[name] for row in rows]) for name in rows[0]}
    train = jax.jit(lambda key: jax.lax.scan(algorithm.update, algorithm.init(key), hypers))
    return [train(jax.random.key(seed)) for seed in seeds]


def last_mean(metrics, name, updates=1):
    """The mean of a metric over the last updates."""
    metric = metrics[name]
    return float(metric.total[-updates:].sum() / metric.count[-updates:].sum())
