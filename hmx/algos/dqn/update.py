"""Deep Q-learning (Mnih et al. 2015, Nature 518) over masked discrete actions, with replay by TD error and consequence.

Several agents learn one value each, with shared parameters, whose sum is the value of the team (value decomposition,
Sunehag et al. 2018, arXiv:1706.05296).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from hmx.algos.collector import hold_first_episodes, play_step, start
from hmx.algos.dqn import scoring as q_scoring
from hmx.algos.dqn.learning import DqnComponents, Learner, learn, without_stored
from hmx.algos.dqn.sizes import q_values
from hmx.algos.metrics import DORMANT_SAMPLE, dormant_units, over_time
from hmx.algos.optim import make_optimiser
from hmx.algos.sharding import partitions
from hmx.algos.types import Algorithm, Carry, Decision, Hypers, Params, RolloutState, TrainState, tree_where
from hmx.config.schema import Config
from hmx.envs.protocol import Env, EnvState
from hmx.nets import make_q_net
from hmx.replay import Experience, Replay, ReplayState, blank, experience
from hmx.rl import distributions
from hmx.types import Array, Key, Metrics

_T = TypeVar("_T")
Stored = tuple[Experience, EnvState]  # items of the buffer and environment states


class DqnLearner(NamedTuple):
    """The part of the training state that only Q-learning has."""

    target_params: Params
    replay: ReplayState
    overwritten: Stored  # items and environment states that the last update replaced in the buffer, by step
    gradient_steps: Array  # int32: since the run began


DqnState = TrainState[DqnLearner]


def make_dqn(cfg: Config, env: Env) -> Algorithm[DqnState]:
    """Build Q-learning as `cfg` configures it, on `cfg.env.num_envs` copies of `env`."""
    parts = make_dqn_components(cfg, env)

    def act(
        state: DqnState, carry: Carry, obs: Array, legal: Array, reset: Array, key: Key, greedy: bool = False
    ) -> tuple[Decision, Carry]:
        """Choose the best action, or if not greedy a random one with probability `dqn.epsilon_end`."""
        epsilon = 0.0 if greedy else cfg.dqn.epsilon_end
        return decide(parts, state.params, epsilon, obs, legal, key), carry

    return Algorithm(
        init=partial(_init, parts),
        update=partial(_update, parts),
        hypers=partial(q_values, cfg),
        act=act,
        initial_carry=lambda shape: None,
        forget=_forget,
        experience=partial(_experience, parts),
        select=partial(_select, parts),
        partitions=partial(partitions, env.spec),
    )


def make_dqn_components(cfg: Config, env: Env) -> DqnComponents:
    """Build network, optimiser, replay buffer and scorer."""
    net = make_q_net(cfg.net, env.spec, cfg.dqn.dueling)
    parts = DqnComponents(
        cfg=cfg,
        env=env,
        net=net,
        optimiser=make_optimiser(cfg.algo),
        replay=Replay(cfg.replay.capacity, cfg.env.num_envs, cfg.replay, env.spec.state_axis),
        score_options=q_scoring.score_options(cfg.score, cfg.algo.gamma),
        continuation=q_scoring.continuation(cfg.score, net),
    )
    q_scoring.check_scoring(parts)
    return parts


def _init(parts: DqnComponents, key: Key) -> DqnState:
    k_params, k_env, k_run = jax.random.split(key, 3)
    params = parts.net.init(k_params)
    spec, num_envs = parts.env.spec, parts.cfg.env.num_envs
    actors = start(parts.env, num_envs, None, k_env)
    items = blank(num_envs, spec.num_agents, spec.obs_shape, spec.obs_dtype, spec.num_actions)
    stored = items, actors.env_state
    return TrainState(
        params=params,
        opt_state=parts.optimiser.init(params),
        actors=actors,
        learner=DqnLearner(
            target_params=jax.tree.map(jnp.copy, params),
            replay=parts.replay.init(*stored),
            overwritten=jax.tree.map(lambda leaf: jnp.stack([leaf] * parts.cfg.algo.num_steps), stored),
            gradient_steps=jnp.int32(0),
        ),
        key=k_run,
        update=jnp.int32(0),
    )


def decide(
    parts: DqnComponents, params: Params, epsilon: float | Array, obs: Array, legal: Array, key: Key
) -> Decision:
    """Choose the best action or, with probability `epsilon`, a random one; arguments as in `Algorithm.act`."""
    values = parts.net.values(params, obs)
    action = distributions.epsilon_greedy(key, values, legal, epsilon)
    probs = distributions.epsilon_probs(values, legal, epsilon)
    taken = jnp.take_along_axis(probs, action[..., None], axis=-1)[..., 0]
    return Decision(action, jnp.log(taken), probs, q_scoring.greedy_value(values, legal))


def _forget(before: DqnState, after: DqnState) -> DqnState:
    old = before.learner
    learner = after.learner._replace(target_params=old.target_params, gradient_steps=old.gradient_steps)
    return after._replace(params=before.params, opt_state=before.opt_state, learner=learner)


def _select(parts: DqnComponents, sound: Array, after: DqnState, before: DqnState) -> DqnState:
    """Return `after` or `before`; the buffer is restored slot by slot, since there is no second copy of it."""
    num_envs, capacity = parts.cfg.env.num_envs, parts.cfg.replay.capacity

    def put_back(replay: ReplayState, step: Array) -> tuple[ReplayState, None]:
        place = (before.learner.replay.position + step * num_envs) % capacity
        old = jax.tree.map(lambda leaf: leaf[step], after.learner.overwritten)
        return parts.replay.put(replay, place, tree_where(sound, parts.replay.at(replay, place), old)), None

    replay, _ = jax.lax.scan(put_back, after.learner.replay, jnp.arange(parts.cfg.algo.num_steps))

    def light(state: DqnState) -> DqnState:
        return _with_replay(state, without_stored(state.learner.replay))

    chosen = tree_where(sound, light(after), light(before))
    return _with_replay(chosen, _with_stored(chosen.learner.replay, replay))


def _with_replay(state: DqnState, replay: ReplayState) -> DqnState:
    return state._replace(learner=state.learner._replace(replay=replay))


def _play(parts: DqnComponents, state: DqnState, hypers: Hypers, key: Key) -> tuple[DqnState, Metrics]:
    """Act in every environment and add the transitions to the buffer."""
    Now = tuple[RolloutState, ReplayState]

    def act(carry: Carry, obs: Array, legal: Array, reset: Array, k_act: Key) -> tuple[Decision, Carry]:
        return decide(parts, state.params, hypers["epsilon"], obs, legal, k_act), carry

    def play(now: Now, step: tuple[Array, Stored]) -> tuple[Now, Metrics]:
        (actors, replay), (number, old) = now, step
        after, result = play_step(parts.env, act, actors, jax.random.fold_in(key, number))
        items = experience(actors.obs, actors.legal, actors.agent_done, result.decision.action, result.timestep)
        new = _after_reading(old, (items, actors.env_state), hypers["epsilon"])
        return (after, parts.replay.add(replay, *new)), result.metrics

    overwritten = _next_slots(parts, state.learner.replay)
    steps = jnp.arange(parts.cfg.algo.num_steps), overwritten
    (actors, replay), metrics = jax.lax.scan(play, (state.actors, state.learner.replay), steps)
    learner = state.learner._replace(replay=replay, overwritten=overwritten)
    actors, played = hold_first_episodes(actors, over_time(metrics))
    return state._replace(actors=actors, learner=learner), played


def _after_reading(old: Stored, new: Stored, probability: Array) -> Stored:
    """Return `new`, such that the compiler writes it into the buffer only after it has read `old` there.

    Otherwise it holds the buffer twice: of a million transitions of FrozenLake, 585 MB of temporary memory instead of
    27 MB. It does so too if every step reads the slots that it writes, or with `jax.lax.optimization_barrier`, which
    XLA drops early. So `new` depends on `old` by a condition that holds for every probability, which XLA cannot know.
    """
    return tree_where(probability >= 0.0, new, old)


def _next_slots(parts: DqnComponents, replay: ReplayState) -> Stored:
    """Return the items and environment states in the slots that the next update writes to, by step."""
    steps = jnp.arange(parts.cfg.algo.num_steps)
    places = (replay.position + steps * parts.cfg.env.num_envs) % parts.cfg.replay.capacity
    stored: Stored = jax.lax.map(lambda place: parts.replay.at(replay, place), places)
    return stored


def _learner_of(state: DqnState) -> Learner:
    own = state.learner
    return Learner(state.params, own.target_params, state.opt_state, without_stored(own.replay), own.gradient_steps)


def _update(parts: DqnComponents, state: DqnState, hypers: Hypers) -> tuple[DqnState, Metrics]:
    """Play, take the gradient steps that are due, and score and survey the buffer if that is due.

    The parts that are not due in every update get the buffer without its transitions, since a condition copies what it
    passes on. They read the transitions in `stored`, which only playing changes.
    """
    k_play, k_learn, k_score = _keys(state)
    state, metrics = _play(parts, state, hypers, k_play)
    stored = state.learner.replay
    steps = partial(_gradient_steps, parts, stored, hypers, k_learn)
    learner, found = _where(hypers["gradient_steps"] > 0, steps, _learner_of(state))
    replay, metrics = learner.replay, metrics | found
    if parts.cfg.score.every:
        replay, found = _where(hypers["score"] > 0, partial(_scored, parts, stored, learner.params, k_score), replay)
        metrics |= found
    replay, found = _where(hypers["survey"] > 0, partial(_surveyed, parts, stored, learner.params), replay)
    own = state.learner._replace(
        target_params=learner.target_params,
        replay=_with_stored(replay, stored),
        gradient_steps=learner.gradient_steps,
    )
    state = state._replace(params=learner.params, opt_state=learner.opt_state, learner=own, update=state.update + 1)
    return state, metrics | found


def _gradient_steps(
    parts: DqnComponents, stored: ReplayState, hypers: Hypers, key: Key, learner: Learner
) -> tuple[Learner, Metrics]:
    learner, metrics, _ = learn(parts, learner, stored, hypers, key)
    return learner, metrics


def _scored(
    parts: DqnComponents, stored: ReplayState, params: Params, key: Key, replay: ReplayState
) -> tuple[ReplayState, Metrics]:
    replay, metrics = q_scoring.score_pass(parts, params, _with_stored(replay, stored), key)
    return without_stored(replay), metrics


def _surveyed(
    parts: DqnComponents, stored: ReplayState, params: Params, replay: ReplayState
) -> tuple[ReplayState, Metrics]:
    replay, metrics = q_scoring.survey(parts, replay)
    if parts.net.hidden:
        slots = jnp.linspace(0, stored.size - 1, DORMANT_SAMPLE).astype(jnp.int32)
        metrics |= dormant_units(parts.net.hidden(params, stored.items.obs_t[slots]))
    return replay, metrics


def _with_stored(replay: ReplayState, stored: ReplayState) -> ReplayState:
    """Invert `without_stored`."""
    return replay._replace(items=stored.items, env_states=stored.env_states)


def _where(condition: Array, function: Callable[[_T], tuple[_T, Metrics]], operand: _T) -> tuple[_T, Metrics]:
    """Return `function(operand)` where the condition holds, else the operand and metrics without data."""
    shapes = jax.eval_shape(function, operand)[1]

    def otherwise(operand: _T) -> tuple[_T, Metrics]:
        return operand, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    result: tuple[_T, Metrics] = jax.lax.cond(condition, function, otherwise, operand)
    return result


def _keys(state: DqnState) -> tuple[Key, Key, Key]:
    k_play, k_learn, k_score = jax.random.split(jax.random.fold_in(state.key, state.update), 3)
    return k_play, k_learn, k_score


def _experience(parts: DqnComponents, state: DqnState, hypers: Hypers) -> dict[str, Array]:
    """Return the transitions, targets and weights of the gradient steps, `[G, B, ...]`."""
    k_play, k_learn, _ = _keys(state)
    state, _ = _play(parts, state, hypers, k_play)
    _, _, (target, batch) = learn(parts, _learner_of(state), state.learner.replay, hypers, k_learn)
    found: dict[str, Array] = batch.items._asdict()
    return found | {"target": target, "index": batch.index, "probs": batch.probs, "weights": batch.weights}
