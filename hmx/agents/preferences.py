"""What a trained agent thinks of actions and states, in the form that scoring asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from hmx.agents.ppo import make_parts
from hmx.agents.q_scoring import greedy_value
from hmx.agents.types import Params, TrainState
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.nets import make_q_net
from hmx.types import Array


class Preferences(NamedTuple):
    """An agent's network without the rest of its state.

    - `params(state)`: what the other functions need of a train state.
    - `of(params, obs [B, A, ...]) -> [B, A, num_actions]`: logits, or action values if `are_values`.
    - `value(params, obs, legal [B, A, num_actions]) -> [B]`: what the agents expect from there, with team rewards
      taken as `team_reward` says.
    - `kind`, `parameter`: the continuation that is the agent's own, see `hmx.scoring.make_policy`.
    """

    params: Callable[[TrainState], Params]
    of: Callable[[Params, Array], Array]
    value: Callable[[Params, Array, Array], Array]
    are_values: bool
    team_reward: str
    kind: str
    parameter: float = 1.0


def make_preferences(cfg: Config, env: Env) -> Preferences:
    """The preferences of the agents that `cfg` trains.

    Raises:
        HmxError: the network has a memory: what it remembered is not part of a stored position.
    """
    if cfg.net.rnn != "none":
        raise HmxError(
            f"a network with a memory ({cfg.net.rnn}) cannot go on from a stored position: what it remembered is lost",
            "score a run with net.rnn = none",
        )
    return _of_dqn(cfg, env) if cfg.algo.name == "dqn" else _of_ppo(cfg, env)


def _of_dqn(cfg: Config, env: Env) -> Preferences:
    net = make_q_net(cfg.net, env.spec, cfg.dqn.dueling)

    def value(params: Params, obs: Array, legal: Array) -> Array:
        return greedy_value(net.values(params, obs), legal).sum(-1)

    def params_of(state: Any) -> Params:
        return state.params

    return Preferences(params=params_of, of=net.values, value=value, are_values=True, team_reward="sum", kind="greedy")


def _of_ppo(cfg: Config, env: Env) -> Preferences:
    parts = make_parts(cfg, env)

    def outputs(params: Params, obs: Array) -> tuple[Array, Array]:
        (logits, value_raw), _ = parts.net.apply(params[0], (), obs, jnp.zeros(obs.shape[:2], bool))
        return logits, value_raw

    def value(params: Params, obs: Array, legal: Array) -> Array:
        del legal
        decoded: Array = parts.codec.decode(outputs(params, obs)[1], params[1])
        return decoded.mean(-1)

    def params_of(state: Any) -> Params:
        return state.params, state.value_stats

    return Preferences(
        params=params_of,
        of=lambda params, obs: outputs(params, obs)[0],
        value=value,
        are_values=False,
        team_reward="mean",
        kind="softmax",
    )
