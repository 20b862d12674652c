"""From the rules of one small game to a batched environment with a step limit, auto-reset and repeated actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.envs.protocol import Env, EnvSpec, EnvState, both_halves, folded, select
from hmx.types import Array, Key, Timestep

Core = Any


class Game(NamedTuple):
    """One single-agent game, unbatched: pure functions over its state `core`.

    `move(core, action, key) -> (core, terms, terminated)`; `action` is an int32 scalar, or `[D]`.
    """

    start: Callable[[Key], Core]
    move: Callable[[Core, Array, Key], tuple[Core, dict[str, Array], Array]]
    observe: Callable[[Core], Array]
    legal: Callable[[Core], Array] | None = None  # None: every action


class TeamGame(NamedTuple):
    """One game of several agents, unbatched: all arrays except `core` lead with the agents, `[A, ...]`.

    `move(core, action, key) -> (core, terms, agent_done)`. The episode terminates when all agents are done; an agent
    that is done stays done, gets no reward, and its actions have no effect. `info(core)` contains further values to
    report about the state after a step, without the axis of agents; see `hmx.algos.metrics` for its keys.
    """

    start: Callable[[Key], Core]
    move: Callable[[Core, Array, Key], tuple[Core, dict[str, Array], Array]]
    observe: Callable[[Core], Array]
    legal: Callable[[Core], Array]
    info: Callable[[Core], dict[str, Array]] = lambda core: {}


class BatchState(NamedTuple):
    """States of `E` games and the steps of their current episodes; the batch axis leads."""

    core: Core
    steps: Array  # [E] int32


def batched(spec: EnvSpec, game: Game | TeamGame) -> Env:
    """Build the environment that plays `game` in a batch.

    An episode is truncated after `spec.max_steps` steps (0: never) unless it terminates with that very step. With
    `spec.costly_reset` new games start only in steps in which an episode of the batch ends, by a branch. Without it
    they start in every step, which is faster if a reset is cheap. Without `spec.action_groups` each named action is a
    group.
    """
    groups = spec.action_groups or tuple((name, i, i + 1) for i, name in enumerate(spec.action_names))
    spec = spec._replace(action_groups=groups)
    team = game if isinstance(game, TeamGame) else _team_of_one(game, spec.num_actions)

    def reset(keys: Key) -> tuple[BatchState, Timestep]:
        core = jax.vmap(team.start)(keys)
        nothing = jnp.zeros((*keys.shape, spec.num_agents), jnp.float32)
        ended = jnp.zeros(keys.shape, bool)
        obs = jax.vmap(team.observe)(core)
        reward, terms = _paid(dict.fromkeys(spec.reward_terms, nothing))
        legal = jax.vmap(team.legal)(core)
        info = jax.vmap(team.info)(core)
        timestep = Timestep(obs, legal, obs, legal, reward, ended, ended, nothing > 0, terms, info)
        return BatchState(core, jnp.zeros(keys.shape, jnp.int32)), timestep

    def play(state: BatchState, action: Array, keys: Key) -> tuple[BatchState, Timestep]:
        k_move, _ = jax.vmap(_two_keys)(keys)
        core, terms, agent_done = jax.vmap(team.move)(state.core, action, k_move)
        steps = state.steps + 1
        terminated = agent_done.all(-1)
        truncated = (steps >= spec.max_steps) & ~terminated if spec.max_steps else jnp.zeros_like(terminated)
        obs, legal, info = jax.vmap(team.observe)(core), jax.vmap(team.legal)(core), jax.vmap(team.info)(core)
        reward, terms = _paid(terms)
        timestep = Timestep(obs, legal, obs, legal, reward, terminated, truncated, agent_done, terms, info)
        return BatchState(core, steps), timestep

    def renew(state: BatchState, timestep: Timestep, keys: Key) -> tuple[BatchState, Timestep]:
        _, k_start = jax.vmap(_two_keys)(keys)
        done = timestep.terminated | timestep.truncated
        core = start_where(done, state.core, k_start)
        obs, legal = jax.vmap(team.observe)(core), jax.vmap(team.legal)(core)
        final_legal = select(timestep.truncated, timestep.legal, legal)
        timestep = timestep._replace(obs=obs, legal=legal, final_legal=final_legal)
        return BatchState(core, jnp.where(done, 0, state.steps)), timestep

    def start_where(done: Array, moved: Core, keys: Key) -> Core:
        if not spec.costly_reset:
            return select(done, jax.vmap(team.start)(keys), moved)
        fresh = jax.lax.cond(done.any(), lambda: jax.vmap(team.start)(keys), lambda: moved)
        return select(done, fresh, moved)

    return Env(spec, reset, both_halves(play, renew), play, renew)


def _team_of_one(game: Game, num_actions: int) -> TeamGame:
    legal = game.legal or (lambda core: jnp.ones(num_actions, bool))

    def move(core: Core, action: Array, key: Key) -> tuple[Core, dict[str, Array], Array]:
        core, terms, terminated = game.move(core, action[0], key)
        return core, {name: value[None] for name, value in terms.items()}, terminated[None]

    return TeamGame(game.start, move, lambda core: game.observe(core)[None], lambda core: legal(core)[None])


def _two_keys(key: Key) -> tuple[Key, Key]:
    k_move, k_start = jax.random.split(key)
    return k_move, k_start


def _paid(terms: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """Return the reward of each agent, and each term summed over agents."""
    terms = {name: value.astype(jnp.float32) for name, value in terms.items()}
    return jnp.stack(list(terms.values())).sum(0), {name: value.sum(-1) for name, value in terms.items()}


def repeated(env: Env, times: int) -> Env:
    """Build the environment in which an action lasts `times` steps, or until its episode ends.

    Rewards, terms and infos of the kind `_sum` are added up, infos of the kind `_max` are maxima, and all other values
    are those of the last step. Limits of the environment count its steps, limits of the result count actions.
    """
    if times == 1:
        return env
    spec = env.spec._replace(max_steps=-(-env.spec.max_steps // times))
    spec = spec._replace(step_seconds=times * spec.step_seconds)

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        def again(carry: tuple[EnvState, Timestep], i: Array) -> tuple[tuple[EnvState, Timestep], None]:
            state, so_far = carry
            over = so_far.terminated | so_far.truncated
            after, timestep = env.step(state, action, folded(keys, i))
            state = select(over, state, after, spec.state_axis)
            return (state, select(over, so_far, _joined(so_far, timestep))), None

        first = env.step(state, action, folded(keys, 0))
        (state, timestep), _ = jax.lax.scan(again, first, jnp.arange(1, times))
        return state, timestep

    return Env(spec, env.reset, step)


def _joined(before: Timestep, now: Timestep) -> Timestep:
    info = {}
    for name, value in now.info.items():
        if name.endswith("_sum"):
            value = before.info[name] + value
        elif name.endswith("_max"):
            value = jnp.maximum(before.info[name], value)
        info[name] = value
    terms = {name: before.terms[name] + value for name, value in now.terms.items()}
    return now._replace(reward=before.reward + now.reward, terms=terms, info=info)
