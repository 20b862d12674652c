"""Deep Q-learning (Mnih et al. 2015, Nature 518) over masked discrete actions, with replay by TD error and consequence.

Several agents learn one value each, with shared parameters, whose sum is the value of the team (value decomposition,
Sunehag et al. 2018, arXiv:1706.05296).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from hmx.agents.choosing import choose
from hmx.agents.collector import Actors, actors_of, partitions, play_step, start
from hmx.agents.metrics import Episode, over_time
from hmx.agents.optim import make_optimiser
from hmx.agents.q_learning import Learner, Parts, learn, without_stored
from hmx.agents.q_scoring import (
    check_scoring,
    continuation,
    greedy_value,
    replay_options,
    score_options,
    score_pass,
    survey,
)
from hmx.agents.types import Algorithm, Decision, Hypers, Params
from hmx.config import derive
from hmx.config.hypers import q_values
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.nets import make_q_net
from hmx.replay import ReplayState, blank, experience, make_replay
from hmx.rl import distributions
from hmx.types import Array, Key, Metrics

_T = TypeVar("_T")


class TrainState(NamedTuple):
    """Everything a run needs to go on: a pytree of arrays and one typed key."""

    params: Params
    target_params: Params
    opt_state: optax.OptState
    replay: ReplayState
    overwritten: tuple[Any, Any]  # what the last update's transitions replaced in the buffer, a step after the other
    env_state: Any
    obs: Array  # [E, A, *obs_shape]: what the next action is taken from
    legal: Array  # [E, A, num_actions]
    episode: Episode  # [E]: episodes under way
    carry: Any  # (): these networks have no memory
    reset: Array  # [E] bool: `obs` is the first of an episode
    agent_done: Array  # [E, A] bool: the agent's part of the episode is over already
    obs_stats: Any  # (): observations are read as they are
    starts: Any  # (): every episode is followed by a fresh start
    gradient_steps: Array  # int32: done since the run began
    key: Key  # never advanced: every update folds its number in
    update: Array  # int32: updates done


def make_dqn(cfg: Config, env: Env) -> Algorithm:
    """Q-learning as `cfg` describes it, on `cfg.env.num_envs` copies of `env`.

    Raises:
        HmxError: the configuration has problems.
    """
    parts = make_parts(cfg, env)
    return Algorithm(
        init=partial(_init, parts),
        update=partial(_update, parts),
        hypers=partial(q_values, cfg),
        act=partial(_act, parts),
        initial_carry=lambda shape: (),
        forget=_forget,
        experience=partial(_experience, parts),
        choose=partial(_choose, parts),
        partitions=partial(partitions, env.spec),
    )


def make_parts(cfg: Config, env: Env) -> Parts:
    """What Q-learning is made of, for who wants more of it than an `Algorithm`.

    Raises:
        HmxError: the configuration has problems.
    """
    derive.check(cfg)
    net = make_q_net(cfg.net, env.spec, cfg.dqn.dueling)
    options = replay_options(cfg, env.spec)
    parts = Parts(
        cfg=cfg,
        env=env,
        net=net,
        optimiser=make_optimiser(cfg.algo),
        replay=make_replay(cfg.replay.capacity, cfg.env.num_envs, options),
        replay_options=options,
        score_options=score_options(cfg),
        continuation=continuation(cfg, net),
    )
    check_scoring(parts)
    return parts


def _init(parts: Parts, key: Key) -> TrainState:
    k_params, k_env, k_run = jax.random.split(key, 3)
    params = parts.net.init(k_params)
    spec, num_envs = parts.env.spec, parts.cfg.env.num_envs
    actors = start(parts.env, num_envs, (), k_env)
    items = blank(num_envs, spec.num_agents, spec.obs_shape, spec.obs_dtype, spec.num_actions)
    stored = items, actors.env_state
    return TrainState(
        params=params,
        target_params=jax.tree.map(jnp.copy, params),
        opt_state=parts.optimiser.init(params),
        replay=parts.replay.init(*stored),
        overwritten=jax.tree.map(lambda leaf: jnp.stack([leaf] * parts.cfg.algo.num_steps), stored),
        **actors._asdict(),
        gradient_steps=jnp.int32(0),
        key=k_run,
        update=jnp.int32(0),
    )


def _act(
    parts: Parts,
    state: TrainState,
    carry: Any,
    obs: Array,
    legal: Array,
    reset: Array,
    key: Key,
    greedy: bool = False,
) -> tuple[Decision, Any]:
    """The best action, or the policy that the run ends with: a random one with probability `dqn.epsilon_end`."""
    del reset
    epsilon = 0.0 if greedy else parts.cfg.dqn.epsilon_end
    return _decide(parts, state.params, epsilon, carry, obs, legal, key), carry


def _decide(
    parts: Parts, params: Params, epsilon: float | Array, carry: Any, obs: Array, legal: Array, key: Key
) -> Decision:
    del carry
    values = parts.net.values(params, obs)
    action = distributions.epsilon_greedy(key, values, legal, epsilon)
    probs = distributions.epsilon_probs(values, legal, epsilon)
    taken = jnp.take_along_axis(probs, action[..., None], axis=-1)[..., 0]
    return Decision(action, jnp.log(taken), probs, greedy_value(values, legal))


def _forget(before: TrainState, after: TrainState) -> TrainState:
    return after._replace(
        params=before.params,
        target_params=before.target_params,
        opt_state=before.opt_state,
        gradient_steps=before.gradient_steps,
    )


def _choose(parts: Parts, sound: Array, after: TrainState, before: TrainState) -> TrainState:
    """`after`, or `before`: what the buffer stores is put back slot by slot, since there is no second copy of it."""
    num_envs, capacity = parts.cfg.env.num_envs, parts.cfg.replay.capacity

    def put_back(replay: ReplayState, step: Array) -> tuple[ReplayState, None]:
        place = (before.replay.position + step * num_envs) % capacity
        old = jax.tree.map(lambda leaf: leaf[step], after.overwritten)
        return parts.replay.put(replay, place, choose(sound, parts.replay.at(replay, place), old)), None

    replay, _ = jax.lax.scan(put_back, after.replay, jnp.arange(parts.cfg.algo.num_steps))

    def light(state: TrainState) -> TrainState:
        return state._replace(replay=without_stored(state.replay))

    chosen: TrainState = choose(sound, light(after), light(before))
    return chosen._replace(
        replay=chosen.replay._replace(items=replay.items, env_states=replay.env_states),
    )


def _play(parts: Parts, state: TrainState, hypers: Hypers, key: Key) -> tuple[TrainState, Metrics]:
    """Act in every environment, and add what happens to the buffer."""

    def act(carry: Any, obs: Array, legal: Array, reset: Array, k_act: Key) -> tuple[Decision, Any]:
        return _decide(parts, state.params, hypers["epsilon"], carry, obs, legal, k_act), carry

    def play(now: tuple[Actors, ReplayState], step: tuple[Array, Any]) -> tuple[tuple[Actors, ReplayState], Metrics]:
        (actors, replay), (number, old) = now, step
        after, played = play_step(parts.env, act, actors, jax.random.fold_in(key, number))
        items = experience(actors.obs, actors.legal, actors.agent_done, played.decision.action, played.timestep)
        # always the new: that they depend on the old is what lets the compiler write the buffer in place
        new = choose(hypers["epsilon"] >= 0.0, (items, actors.env_state), old)
        return (after, parts.replay.add(replay, *new)), played.metrics

    actors = actors_of(state)
    overwritten = _next_slots(parts, state.replay)
    steps = jnp.arange(parts.cfg.algo.num_steps), overwritten
    (actors, replay), metrics = jax.lax.scan(play, (actors, state.replay), steps)
    state = state._replace(**actors._asdict(), replay=replay, overwritten=overwritten)
    return state, over_time(metrics)


def _next_slots(parts: Parts, replay: ReplayState) -> tuple[Any, Any]:
    """What the slots hold that the next update writes to, a step after the other."""
    steps = jnp.arange(parts.cfg.algo.num_steps)
    places = (replay.position + steps * parts.cfg.env.num_envs) % parts.cfg.replay.capacity
    stored: tuple[Any, Any] = jax.lax.map(lambda place: parts.replay.at(replay, place), places)
    return stored


def _learner_of(state: TrainState) -> Learner:
    light = without_stored(state.replay)
    return Learner(state.params, state.target_params, state.opt_state, light, state.gradient_steps)


def _update(parts: Parts, state: TrainState, hypers: Hypers) -> tuple[TrainState, Metrics]:
    k_play, k_learn, k_score = _keys(state)
    state, metrics = _play(parts, state, hypers, k_play)
    stored = state.replay

    def with_light(light: ReplayState) -> ReplayState:
        return light._replace(items=stored.items, env_states=stored.env_states)

    def gradient_steps(learner: Learner) -> tuple[Learner, Metrics]:
        return learn(parts, learner, stored, hypers, k_learn)[:2]

    def scores(light: ReplayState) -> tuple[ReplayState, Metrics]:
        replay, found = score_pass(parts, learner.params, with_light(light), k_score)
        return without_stored(replay), found

    def look(light: ReplayState) -> tuple[ReplayState, Metrics]:
        return survey(parts, light)

    learner, found = _where(hypers["gradient_steps"] > 0, gradient_steps, _learner_of(state))
    light, metrics = learner.replay, metrics | found
    if parts.cfg.score.every:
        light, found = _where(hypers["_score"] > 0, scores, light)
        metrics |= found
    light, found = _where(hypers["_survey"] > 0, look, light)
    state = state._replace(
        **learner._replace(replay=with_light(light))._asdict(),
        update=state.update + 1,
    )
    return state, metrics | found


def _where(condition: Array, function: Callable[[_T], tuple[_T, Metrics]], operand: _T) -> tuple[_T, Metrics]:
    """`function(operand)` where the condition holds, else the operand and metrics without data."""
    shapes = jax.eval_shape(function, operand)[1]

    def otherwise(operand: _T) -> tuple[_T, Metrics]:
        return operand, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    result: tuple[_T, Metrics] = jax.lax.cond(condition, function, otherwise, operand)
    return result


def _keys(state: TrainState) -> tuple[Key, Key, Key]:
    k_play, k_learn, k_score = jax.random.split(jax.random.fold_in(state.key, state.update), 3)
    return k_play, k_learn, k_score


def _experience(parts: Parts, state: TrainState, hypers: Hypers) -> dict[str, Array]:
    """What the gradient steps learn from: `[G, B, ...]` transitions, targets and weights."""
    k_play, k_learn, _ = _keys(state)
    state, _ = _play(parts, state, hypers, k_play)
    _, _, drawn = learn(parts, _learner_of(state), state.replay, hypers, k_learn)
    batch = drawn.batch
    found: dict[str, Array] = batch.items._asdict()
    return found | {"target": drawn.target, "index": batch.index, "probs": batch.probs, "weights": batch.weights}
