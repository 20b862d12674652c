"""Outputs of a trained network for actions and states, in the form that scoring needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from hmx.algos.dqn.scoring import greedy_value
from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.types import Params, TrainState
from hmx.config.learning import ContinuationKind
from hmx.config.references import imported
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.errors import HmxError
from hmx.nets import make_q_net
from hmx.registry.algorithms import find_algorithm
from hmx.scoring.options import TeamReward
from hmx.types import Array


class PolicyOutputs(NamedTuple):
    """Network outputs as functions of its parameters.

    - `params(state)`: the part of a training state that the other functions need.
    - `outputs(params, obs [B, A, ...]) -> [B, A, num_actions]`: logits, or action values if `are_values`.
    - `value(params, obs, legal [B, A, num_actions]) -> [B]`: the expected return, of team rewards
      aggregated as `team_reward` says.
    - `kind`, `parameter`: the continuation policy that is the agent's own, see `hmx.scoring.make_continuation`.
    """

    params: Callable[[TrainState], Params]
    outputs: Callable[[Params, Array], Array]
    value: Callable[[Params, Array, Array], Array]
    are_values: bool
    team_reward: TeamReward
    kind: ContinuationKind
    parameter: float = 1.0


def make_policy_outputs(cfg: Config, env: Env) -> PolicyOutputs:
    """Build the outputs of the agents that `cfg` trains.

    Raises:
        HmxError: the network is recurrent: its RNN carry is not part of a stored position.
    """
    if cfg.net.rnn != "none":
        raise HmxError(
            f"cannot score with a recurrent network ({cfg.net.rnn}): stored positions do not hold its RNN carry",
            "score a run with net.rnn = none",
        )
    outputs: PolicyOutputs = imported(find_algorithm(cfg.algo.name).policy_outputs)(cfg, env)
    return outputs


def of_dqn(cfg: Config, env: Env) -> PolicyOutputs:
    """Return the action values of Q-learning."""
    net = make_q_net(cfg.net, env.spec, cfg.dqn.dueling)

    def value(params: Params, obs: Array, legal: Array) -> Array:
        return greedy_value(net.values(params, obs), legal).sum(-1)

    def params_of(state: TrainState) -> Params:
        return state.params

    return PolicyOutputs(
        params=params_of, outputs=net.values, value=value, are_values=True, team_reward="sum", kind="greedy"
    )


def of_ppo(cfg: Config, env: Env) -> PolicyOutputs:
    """Return the logits and values of PPO."""
    parts = make_ppo_components(cfg, env)

    def outputs(params: Params, obs: Array) -> tuple[Array, Array]:
        (logits, value_raw), _ = parts.net.apply(params[0], None, obs, jnp.zeros(obs.shape[:2], bool))
        return logits, value_raw

    def value(params: Params, obs: Array, legal: Array) -> Array:
        del legal
        decoded: Array = parts.codec.decode(outputs(params, obs)[1], params[1])
        return decoded.mean(-1)

    def params_of(state: TrainState) -> Params:
        return state.params, state.learner.value_stats

    return PolicyOutputs(
        params=params_of,
        outputs=lambda params, obs: outputs(params, obs)[0],
        value=value,
        are_values=False,
        team_reward="mean",
        kind="softmax",
    )
