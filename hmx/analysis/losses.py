"""One batch through the losses of several configurations, term by term.

The batch is played once, with the first configuration; environment and network are that one's for all. What differs
is what the loss makes of the same observations, actions, rewards and ends: advantages, targets, deviations, entropies,
weights and clips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.collector import Rollout, Wanted, actors_of, collect
from hmx.agents.ppo import make_ppo, policy_of
from hmx.agents.ppo_loss import Parts, advantages_anew, make_parts, ppo_terms
from hmx.agents.sequences import Batch, make_rows
from hmx.agents.types import Hypers, Params
from hmx.analysis.gradients import flat
from hmx.config.fields import get, replace
from hmx.config.hypers import scheduled_values
from hmx.config.schema import Config
from hmx.config.switches import value_weight
from hmx.env.protocol import Env
from hmx.rl.divergences import clip_frac
from hmx.rl.value_codec import Stats
from hmx.rl.weighted import mean
from hmx.types import Array, Key

NUM_ENVS, NUM_STEPS, HORIZON, CUT = 32, 60, 30, 45
"""Environments, steps, steps of a row, and steps after which episodes are cut, so that the batch has cuts."""

LATER = 10
"""Gradient steps with the first configuration's loss, after which the losses are taken once more."""

COMPONENTS = ("policy", "value", "entropy", "total")

_OF_THE_LOSS = ("net.std", "net.std_min")  # of the network's options: what its output means


class Loss(NamedTuple):
    """One configuration's loss of the batch; weighted terms add up to the total."""

    weighted: dict[str, float]  # by COMPONENTS
    raw: dict[str, float]  # policy, value and entropy without their weights
    norm: dict[str, float]  # of each component's gradient
    cosine: dict[str, float | None]  # of each component's gradient with that of the first configuration
    advantage: tuple[float, float]  # mean and standard deviation, before they are normalised
    target: tuple[float, float]
    correlation: float | None  # of advantages with those of the first configuration
    ratio_error: float  # largest |ratio - 1|
    clip_frac: float


class Compared(NamedTuple):
    """The losses of every configuration, at the first gradient step and `LATER` steps on."""

    first: tuple[Loss, ...]
    later: tuple[Loss, ...]
    steps: int  # environment steps of the batch
    cut_frac: float  # share of steps at which an episode was cut
    ended_frac: float  # share at which one terminated
    parameters: int


class _Data(NamedTuple):
    """What a configuration's loss is taken of."""

    hypers: Hypers
    batch: Batch
    stats: Stats


def on_one_scale(configs: Sequence[Config]) -> tuple[Config, ...]:
    """The configurations with the environment, network and sizes that all are compared with.

    Observations are read as they are: normalising them is no part of the loss.
    """
    first = replace(
        configs[0],
        {
            "env.num_envs": NUM_ENVS, "env.max_steps": CUT, "env.reset_on_done": "fresh", "env.full_reset_every": 0,
            "run.num_seeds": 1,
        },
    )  # fmt: skip
    sizes = {
        "algo.num_steps": NUM_STEPS, "algo.bptt_horizon": HORIZON, "algo.num_minibatches": 1, "algo.obs_norm": "none",
        "algo.prio_alpha": 0.0, "algo.auto_scale": False,
    }  # fmt: skip
    return tuple(
        replace(
            Config(run=first.run, env=first.env, reward=first.reward, net=first.net, algo=config.algo),
            {**sizes, **{key: get(config, key) for key in _OF_THE_LOSS}},
        )
        for config in configs
    )


def compare_losses(configs: Sequence[Config], env: Env, seed: int = 0) -> Compared:
    """Plays a batch with the first configuration and puts it through the losses of all.

    Args:
        configs: of `on_one_scale`, whose value heads must have one width and whose network no memory.
        env: the environment of the first.
        seed: of network and play.

    Raises:
        HmxError: a configuration has problems.
    """
    parts = [make_parts(config, env) for config in configs]
    state = make_ppo(configs[0], env).init(jax.random.key(seed))
    rollout = jax.jit(partial(_play, parts[0]))(state, jax.random.fold_in(jax.random.key(seed), 1))
    params: Params = state.params
    data = [_data(config, part, rollout, params) for config, part in zip(configs, parts, strict=True)]
    moved = jax.jit(partial(_descend, parts[0]))(params, data[0])
    computes = [jax.jit(partial(_gradients, part)) for part in parts]
    seen = rollout.transitions
    return Compared(
        first=_losses(computes, params, data),
        later=_losses(computes, moved, data),
        steps=NUM_STEPS * NUM_ENVS,
        cut_frac=float(seen.truncated_tp1.mean()),
        ended_frac=float(seen.terminated_tp1.mean()),
        parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
    )


def _play(parts: Parts, state: Any, key: Key) -> Rollout:
    actors = actors_of(state)
    wanted = Wanted(final_obs=True, final_value=True)
    return collect(parts.env, policy_of(parts, state), actors, key, NUM_STEPS, 1, wanted)[1]


def _data(config: Config, parts: Parts, rollout: Rollout, params: Params) -> _Data:
    stats = parts.codec.init_stats()
    found = jax.jit(partial(_as_seen_by, parts))(params, stats, rollout)
    hypers = {name: jnp.float32(value) for name, value in scheduled_values(config.algo, 0.0).items()}
    return _Data(hypers, make_rows(found, config.algo, parts.horizon), stats)


def _as_seen_by(parts: Parts, params: Params, stats: Stats, rollout: Rollout) -> Rollout:
    """The rollout with the probabilities and values of these parts, whatever those were that played it."""
    seen = rollout.transitions

    def say(obs: Array) -> tuple[Array, Array]:
        (logits, raw), _ = parts.net.apply(params, (), obs, jnp.zeros(obs.shape[:2], bool))
        return logits, parts.codec.decode(raw, stats)

    logits, value = jax.lax.map(say, seen.obs_t)
    _, value_final = jax.lax.map(say, seen.final_obs_tp1)
    asked = seen.truncated_tp1 | (parts.algo.value_forward == "both")
    seen = seen._replace(
        log_prob_t=parts.head.log_prob(logits, seen.legal_t, seen.action_t),
        value_t=value,
        value_final_tp1=jnp.where(asked, value_final, 0.0),
    )
    return rollout._replace(transitions=seen, value_last=say(rollout.obs_last)[1])


def _components(parts: Parts, params: Params, data: _Data) -> tuple[Array, dict[str, Array]]:
    """The weighted losses, by COMPONENTS, and the raw ones."""
    batch, hypers = data.batch, data.hypers
    terms = ppo_terms(parts, params, data.stats, hypers, batch)
    raw = {
        name: mean(term, batch.weight)
        for name, term in (("policy", terms.policy), ("value", terms.value), ("entropy", terms.entropy))
    }
    weighted = [raw["policy"], value_weight(parts.algo) * raw["value"], -hypers["ent_coef"] * raw["entropy"]]
    raw["clip_frac"] = clip_frac(terms.log_prob, batch.log_prob_old, hypers["clip_eps"], batch.weight)
    raw["ratio_error"] = (jnp.abs(jnp.expm1(terms.log_prob - batch.log_prob_old)) * batch.weight).max()
    return jnp.stack([*weighted, sum(weighted[1:], weighted[0])]), raw


def _descend(parts: Parts, params: Params, data: _Data) -> Params:
    """Some gradient steps on the batch."""

    def step(carry: tuple[Params, Any], _: None) -> tuple[tuple[Params, Any], None]:
        params, opt_state = carry
        grads = jax.grad(lambda p: _components(parts, p, data)[0][-1])(params)
        return parts.optimiser.step(params, opt_state, grads, data.hypers["learning_rate"]), None

    (moved, _), _ = jax.lax.scan(step, (params, parts.optimiser.init(params)), None, length=LATER)
    return moved


class _Gradients(NamedTuple):
    weighted: Any
    raw: Mapping[str, Any]
    grads: Any  # [components, P]
    advantage: Any
    target: Any


def _gradients(parts: Parts, params: Params, data: _Data) -> _Gradients:
    losses, pull, raw = jax.vjp(lambda p: _components(parts, p, data), params, has_aux=True)
    grads = jnp.stack([flat(pull(unit)[0]) for unit in jnp.eye(len(COMPONENTS), dtype=losses.dtype)])
    batch = data.batch
    advantage, target = batch.advantage, batch.target
    if parts.algo.advantage_when == "minibatch":
        (_, raw_value), carry = parts.net.unroll(params, batch.carry, batch.obs, batch.reset)
        advantage, target = advantages_anew(parts, params, data.stats, batch, raw_value, carry)
    return _Gradients(losses, raw, grads, advantage, target)


def _losses(computes: Sequence[Callable[..., _Gradients]], params: Params, data: Sequence[_Data]) -> tuple[Loss, ...]:
    found = [jax.device_get(compute(params, one)) for compute, one in zip(computes, data, strict=True)]
    return tuple(_loss(one, found[0]) for one in found)


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


def _cosine(a: Any, b: Any) -> float | None:
    """None where one of the two is nothing."""
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(a @ b / size, -1.0, 1.0)) if size > 0 else None
