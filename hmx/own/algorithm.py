"""Algorithms of the user and of installed packages: loaded, and checked when they are traced."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hmx.algos.policy_outputs import PolicyOutputs
from hmx.algos.sharding import partitions
from hmx.algos.types import Algorithm, Decision, Hypers, TrainState, split_actors
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.errors import HmxError
from hmx.registry import user_code
from hmx.types import Array, Key, Max, Mean, Metrics, Sum


def own_algorithm(cfg: Config, env: Env) -> Algorithm:
    """Build the algorithm that `algo.name` names, by its `make(cfg, env)` or `make(cfg, env, options)`.

    Its metrics may be plain arrays, which become means.

    Raises:
        HmxError: it cannot be loaded, or it does not follow `Algorithm` when it is built or first traced.
    """
    name = cfg.algo.name
    user_code.check_unchanged(name, "algo.name", cfg.algo.sha256)
    made = user_code.build(name, "algo.name", cfg, env, my=cfg.algo.my)
    what = f"cannot use algorithm {name}"
    if not isinstance(made, Algorithm):
        raise HmxError(f"{what}: make returned {type(made).__name__}", "return an hmx.Algorithm")
    path = user_code.file_of(user_code.find(name, "algo.name"))  # `update` may be a partial of a function of hmx

    def init(key: Key) -> TrainState:
        with user_code.explaining(path, f"{what}: init"):
            state = made.init(key)
        if not isinstance(state, TrainState):
            raise HmxError(f"{what}: init returned {type(state).__name__}", "return an hmx.TrainState")
        return state

    def update(state: TrainState, hypers: Hypers) -> tuple[TrainState, Metrics]:
        with user_code.explaining(path, f"{what}: update"):
            after, metrics = made.update(state, hypers)
        before = _shapes(state)
        if changed := [f"{leaf} is {shape}" for leaf, shape in _shapes(after).items() if before.get(leaf) != shape]:
            first = changed[0].partition(" ")[0]
            was = f", but was {before[first]}" if first in before else ""
            raise HmxError(
                f"{what}: update changes its state: {changed[0]}{was}", "return the shapes and types of init"
            )
        given: dict[str, Any] = metrics  # a user may return plain numbers
        return after, {
            key: value if isinstance(value, Mean | Max | Sum) else Mean.of(value) for key, value in given.items()
        }

    split = partial(partitions, env.spec) if made.partitions is split_actors else made.partitions
    return made._replace(init=init, update=update, partitions=split)


def policy_outputs(cfg: Config, env: Env) -> PolicyOutputs:
    """Return the network outputs that scoring needs: as logits, the logarithms of the probabilities."""
    algorithm = own_algorithm(cfg, env)
    num_actions = env.spec.num_actions

    def decide(state: TrainState, obs: Array, legal: Array | None = None) -> Decision:
        batch = obs.shape[0], obs.shape[1]
        allowed = jnp.ones((*batch, num_actions), bool) if legal is None else legal
        decision: Decision = algorithm.act(
            state, algorithm.initial_carry(batch), obs, allowed, jnp.zeros(batch[:1], bool), jax.random.key(0), False
        )[0]
        return decision

    return PolicyOutputs(
        params=lambda state: state,
        outputs=lambda state, obs: jnp.log(jnp.maximum(decide(state, obs).probs, 1e-30)),
        value=lambda state, obs, legal: decide(state, obs, legal).value.mean(-1),
        are_values=False,
        team_reward="mean",
        kind="softmax",
    )


def _shapes(state: TrainState) -> dict[str, str]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }
