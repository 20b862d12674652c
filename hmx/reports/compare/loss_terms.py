"""Compute the losses of several configurations on one batch, term by term.

The batch is played once, with the environment and network of the first configuration. The losses then differ in their
results from the same observations, actions, rewards and episode ends: advantages, targets, standard deviations of
actions, entropies, weights and clipping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.collector import Rollout, RolloutOptions, collect
from hmx.algos.gradients.buckets import Host
from hmx.algos.gradients.per_group import Tree, flat
from hmx.algos.ppo.aspects import value_weight
from hmx.algos.ppo.components import PpoComponents, make_ppo_components
from hmx.algos.ppo.loss import outputs, ppo_terms
from hmx.algos.ppo.update import make_batch, make_ppo, policy_of
from hmx.algos.sequences import Batch
from hmx.algos.types import Hypers, Params, TrainState
from hmx.config.fields import get, replace
from hmx.config.schema import Config
from hmx.envs.registry import make_env, sizes_of
from hmx.registry.algorithms import hyperparameters
from hmx.registry.check import check
from hmx.reports.compare.findings import Loss, Losses
from hmx.rl.divergences import clip_frac
from hmx.rl.value_codec import Stats
from hmx.rl.weighted import mean
from hmx.types import Array, Key

NUM_ENVS, NUM_STEPS, HORIZON, MAX_STEPS = 32, 60, 30, 45
"""Environments, steps, steps of a row, and steps after which episodes are truncated, so that the batch has some."""

LATER = 10  # gradient steps with the first configuration's loss, after which the losses are computed a second time

COMPONENTS = ("policy", "value", "entropy", "total")

_OF_THE_LOSS = ("net.std", "net.std_min")  # options of the network that define the meaning of its output


class _Data(NamedTuple):
    """The inputs of a configuration's loss."""

    hypers: Hypers
    batch: Batch
    stats: Stats


def on_one_scale(configs: Sequence[Config]) -> tuple[Config, ...]:
    """Return the configurations with one environment, one network and one set of sizes.

    Observations are not normalised: that is not part of the loss.
    """
    first = replace(
        configs[0],
        {
            "env.num_envs": NUM_ENVS, "env.max_steps": MAX_STEPS, "env.reset_on_done": "fresh",
            "env.full_reset_every": 0, "run.num_seeds": 1,
        },
    )  # fmt: skip
    sizes = {
        "algo.num_steps": NUM_STEPS, "ppo.bptt_horizon": HORIZON, "ppo.num_minibatches": 1, "ppo.obs_norm": "none",
        "ppo.prio_alpha": 0.0,
    }  # fmt: skip
    return tuple(
        replace(
            Config(run=first.run, env=first.env, reward=first.reward, net=first.net, algo=config.algo, ppo=config.ppo),
            {**sizes, **{key: get(config, key) for key in _OF_THE_LOSS}},
        )
        for config in configs
    )


def compare_losses(sides: Mapping[str, Config], seed: int = 0) -> Losses:
    """Play a batch with the first configuration and compute the losses of all; `sides` has them by letter.

    The value heads must have one width, and the first network must not be recurrent.
    """
    configs = on_one_scale([*sides.values()])
    env = make_env(configs[0].env, configs[0].reward)
    for config in configs:
        check(config, sizes_of(env))
    built = [make_ppo_components(config, env) for config in configs]
    state = make_ppo(configs[0], env).init(jax.random.key(seed))
    rollout = jax.jit(partial(_play, built[0]))(state, jax.random.fold_in(jax.random.key(seed), 1))
    params: Params = state.params
    data = [_data(part, rollout, params) for part in built]
    moved = jax.jit(partial(_descend, built[0]))(params, data[0])
    computes = [jax.jit(partial(_gradients, part)) for part in built]
    first, later = _losses(computes, params, data), _losses(computes, moved, data)
    return Losses(
        env=configs[0].env.id,
        network=next(iter(sides)),
        parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
        num_envs=NUM_ENVS,
        num_steps=NUM_STEPS,
        truncated_after=MAX_STEPS,
        truncated_frac=float(rollout.transitions.truncated_tp1.mean()),
        terminated_frac=float(rollout.transitions.terminated_tp1.mean()),
        gradient_steps=(0, LATER),
        components=COMPONENTS,
        sides=dict(zip(sides, zip(first, later, strict=True), strict=True)),
    )


def _play(parts: PpoComponents, state: TrainState, key: Key) -> Rollout:
    options = RolloutOptions(final_obs=True, final_value=True)
    return collect(parts.env, policy_of(parts, state), state.actors, key, NUM_STEPS, 1, options)[1]


def _data(parts: PpoComponents, rollout: Rollout, params: Params) -> _Data:
    stats = parts.codec.init_stats()
    replayed = jax.jit(partial(_as_seen_by, parts))(params, stats, rollout)
    hypers = {name: jnp.float32(value) for name, value in hyperparameters(parts.cfg, 0.0).items()}
    return _Data(hypers, make_batch(replayed, parts.cfg, parts.horizon), stats)


def _as_seen_by(parts: PpoComponents, params: Params, stats: Stats, rollout: Rollout) -> Rollout:
    """Return the rollout with the probabilities and values of these parts instead of those that played it."""
    seen = rollout.transitions

    def forward(obs: Array) -> tuple[Array, Array]:
        (logits, raw), _ = parts.net.apply(params, None, obs, jnp.zeros(obs.shape[:2], bool))
        return logits, parts.codec.decode(raw, stats)

    logits, value = jax.lax.map(forward, seen.obs_t)
    assert seen.final_obs_tp1 is not None and rollout.obs_last is not None  # as `_play` asks for
    _, value_final = jax.lax.map(forward, seen.final_obs_tp1)
    asked = seen.truncated_tp1 | (parts.cfg.ppo.value_forward == "both")
    seen = seen._replace(
        log_prob_t=parts.head.log_prob(logits, seen.legal_t, seen.action_t),
        value_t=value,
        value_final_tp1=jnp.where(asked, value_final, 0.0),
    )
    return rollout._replace(transitions=seen, value_last=forward(rollout.obs_last)[1])


def _components(parts: PpoComponents, params: Params, data: _Data) -> tuple[Array, dict[str, Array]]:
    """Return the weighted losses, by COMPONENTS, and the raw ones."""
    batch, hypers = data.batch, data.hypers
    terms = ppo_terms(parts, params, data.stats, hypers, batch)
    raw = {
        name: mean(term, batch.weight)
        for name, term in (("policy", terms.policy), ("value", terms.value), ("entropy", terms.entropy))
    }
    weighted = [raw["policy"], value_weight(parts.cfg.ppo) * raw["value"], -hypers["ent_coef"] * raw["entropy"]]
    raw["clip_frac"] = clip_frac(terms.log_prob, batch.log_prob_old, hypers["clip_eps"], batch.weight)
    raw["ratio_error"] = (jnp.abs(jnp.expm1(terms.log_prob - batch.log_prob_old)) * batch.weight).max()
    return jnp.stack([*weighted, sum(weighted[1:], weighted[0])]), raw


def _descend(parts: PpoComponents, params: Params, data: _Data) -> Params:
    """Take `LATER` gradient steps on the batch."""

    def step(carry: tuple[Params, Tree], _: None) -> tuple[tuple[Params, Tree], None]:
        params, opt_state = carry
        grads = jax.grad(lambda p: _components(parts, p, data)[0][-1])(params)
        return parts.optimiser.step(params, opt_state, grads, data.hypers["learning_rate"]), None

    (moved, _), _ = jax.lax.scan(step, (params, parts.optimiser.init(params)), None, length=LATER)
    return moved


class _Gradients(NamedTuple):
    weighted: Array
    raw: Mapping[str, Array]
    grads: Array  # [components, P]
    advantage: Array
    target: Array


def _gradients(parts: PpoComponents, params: Params, data: _Data) -> _Gradients:
    losses, pull, raw = jax.vjp(lambda p: _components(parts, p, data), params, has_aux=True)
    grads = jnp.stack([flat(pull(unit)[0]) for unit in jnp.eye(len(COMPONENTS), dtype=losses.dtype)])
    _, _, batch = outputs(parts, params, data.stats, data.batch)
    return _Gradients(losses, raw, grads, batch.advantage, batch.target)


def _losses(computes: Sequence[Callable[..., _Gradients]], params: Params, data: Sequence[_Data]) -> tuple[Loss, ...]:
    computed = [jax.device_get(compute(params, one)) for compute, one in zip(computes, data, strict=True)]
    return tuple(_loss(one, computed[0]) for one in computed)


def _loss(one: _Gradients, first: _Gradients) -> Loss:
    raw = {name: float(value) for name, value in one.raw.items()}
    return Loss(
        weighted={name: float(value) for name, value in zip(COMPONENTS, one.weighted, strict=True)},
        raw={name: raw[name] for name in ("policy", "value", "entropy")},
        norm={name: float(np.linalg.norm(row)) for name, row in zip(COMPONENTS, one.grads, strict=True)},
        cosine={name: _cosine(row, other) for name, row, other in zip(COMPONENTS, one.grads, first.grads, strict=True)},
        advantage=(float(one.advantage.mean()), float(one.advantage.std())),
        target=(float(one.target.mean()), float(one.target.std())),
        correlation=_cosine(one.advantage - one.advantage.mean(), first.advantage - first.advantage.mean()),
        ratio_error=raw["ratio_error"],
        clip_frac=raw["clip_frac"],
    )


def _cosine(a: Array | Host, b: Array | Host) -> float | None:
    """Return the cosine between two arrays; None if one of them is 0."""
    x, y = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.clip(x @ y / size, -1.0, 1.0)) if size > 0 else None
