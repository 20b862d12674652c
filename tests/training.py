"""Training for tests that an agent learns: several seeds, since rounding, and so one seed, differs between CPUs."""

import jax
import jax.numpy as jnp

SEEDS = range(3)


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
