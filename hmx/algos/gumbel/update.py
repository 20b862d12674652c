"""Learning from search: Gumbel MuZero (Danihelka et al. 2022, ICLR) with the environment itself as the model.

A search chooses every action of a rollout (`hmx.algos.search`). The policy learns to imitate the improved policy of the
search, and the value function learns the returns of the actions that the search chose. Everything else is PPO's:
rollouts, value targets, epochs and minibatches.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float

from hmx.algos.ppo.aspects import value_weight
from hmx.algos.ppo.components import PpoComponents, PpoState, make_ppo_components
from hmx.algos.ppo.reference import reference_penalty
from hmx.algos.ppo.update import make_ppo_algorithm
from hmx.algos.search import make_search, searched
from hmx.algos.sequences import Batch
from hmx.algos.types import Algorithm, Hypers, Params
from hmx.config.schema import Config
from hmx.envs.protocol import Env, EnvSpec
from hmx.rl import distributions
from hmx.rl.value_codec import Stats
from hmx.rl.weighted import mean
from hmx.types import Array, Key, Mean, Metrics


def make_gumbel(cfg: Config, env: Env) -> Algorithm[PpoState]:
    """Build learning from search as `cfg` configures it, on `cfg.env.num_envs` copies of `env`.

    Raises:
        HmxError: the environment does not allow a search.
    """
    env = searched(env, cfg.gumbel.sees, cfg.gumbel.num_simulations)
    parts = make_ppo_components(cfg, env)
    network = make_ppo_algorithm(parts)
    plan = make_search(network, env, cfg, cfg.gumbel.num_simulations, training=True)
    random_loss = cfg.gumbel.symmetries and len(env.spec.symmetries) > 0
    return make_ppo_algorithm(parts._replace(plan=plan, loss=imitation_loss, random_loss=random_loss))


def imitation_loss(
    parts: PpoComponents, params: Params, stats: Stats, hypers: Hypers, batch: Batch, key: Key | None = None
) -> tuple[Float[Array, ""], Metrics]:
    """Compute the loss of a minibatch and its metrics.

    Cross-entropy of the policy to that of the search (eq. 12 of Danihelka et al.) + `value_weight` x value loss -
    `ent_coef` x entropy + `ref_kl_coef` x KL(policy || reference) if there is a reference, each a mean over the steps
    that are trained on. With a `key`, each step is transformed by a random symmetry first.

    Raises:
        ValueError: the batch holds no probabilities of a search.
    """
    if key is not None:
        batch = under_symmetries(parts.env.spec, batch, key)
    if batch.probs is None:
        raise ValueError("the batch holds no probabilities of a search")
    weight = batch.weight
    (logits, value_raw), _ = parts.net.unroll(params, batch.carry, batch.obs, batch.reset)
    log_probs = distributions.log_probs(logits, batch.legal)
    cross_entropy = -jnp.where(batch.probs > 0.0, batch.probs * log_probs, 0.0).sum(-1)
    search_entropy = -jnp.where(batch.probs > 0.0, batch.probs * jnp.log(batch.probs), 0.0).sum(-1)
    policy_loss = mean(cross_entropy, weight)
    value_loss = mean(parts.codec.loss(value_raw, batch.target, batch.value_old, 0.0, stats), weight)
    entropy = mean(parts.head.entropy(logits, batch.legal, None), weight)
    total = policy_loss + value_weight(parts.cfg.ppo) * value_loss - hypers["ent_coef"] * entropy
    added, metrics = reference_penalty(parts.head, logits, hypers, batch)
    total += added
    reports = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "total_loss": total,
        "entropy": entropy,
        "search_kl": mean(cross_entropy - search_entropy, weight),
        "search_entropy": mean(search_entropy, weight),
    }
    return total, {f"train/{name}": Mean.of(value) for name, value in reports.items()} | metrics


def under_symmetries(spec: EnvSpec, batch: Batch, key: Key) -> Batch:
    """Transform each step of a batch by a random symmetry of the environment, as AlphaGo Zero does.

    Observations and everything per action change; values and rewards do not (Silver et al. 2017, Nature 550).
    """
    assert spec.turned is not None
    symmetry = jax.random.randint(key, batch.weight.shape, 0, len(spec.symmetries))
    originals = jnp.asarray(spec.symmetries)[symmetry]

    def turned(per_action: Array) -> Array:
        return jnp.take_along_axis(per_action, originals, axis=-1)

    per_action = {"legal": batch.legal, "probs": batch.probs, "reference": batch.reference}
    known = {name: turned(values) for name, values in per_action.items() if values is not None}
    return batch._replace(obs=spec.turned(batch.obs, symmetry), **known)
