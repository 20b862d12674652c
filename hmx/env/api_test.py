"""The contract of an environment, executable: one check that every environment passes."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.env.protocol import Env, EnvState, take
from hmx.types import Array, Key, Timestep


class Walk(NamedTuple):
    """Random legal play: the first timestep, and per step the action `[T, E, A]` and the timestep `[T, E, ...]`."""

    first: Timestep
    action_t: Array
    timestep_tp1: Timestep
    state: EnvState


def check_env(env: Env, seed: int = 0, num_envs: int = 5, num_steps: int = 40, tolerance: float = 0.0) -> Walk:
    """Play at random and check everything the protocol promises.

    Shapes and types, legal actions, reward terms, the ends of episodes and what is shown after them, the step
    limit, agents that are done before the others, that the same key gives the same bits, that a batch is its
    members one by one, and that stepping is traced once.

    Args:
        env: the environment.
        seed: of the play.
        num_envs: environments side by side.
        num_steps: steps played; more than `max_steps` lets the step limit be seen.
        tolerance: how far numbers of a batch may be from those of its members, relative and absolute; 0 asks for the
            same bits, which an engine whose linear algebra depends on the size of the batch cannot give.

    Returns:
        What was played, for further checks.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    traces = 0

    def counted_step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        nonlocal traces
        traces += 1
        return env.step(state, action, keys)

    step = jax.jit(counted_step)
    reset = jax.jit(env.reset)
    walk = _walk(env, reset, step, seed, num_envs, num_steps)
    _expect(traces == 1, f"step was traced {traces} times: its outputs differ from its inputs in shape or type")
    _expect_equal(walk, _walk(env, reset, step, seed, num_envs, num_steps), "the same key gave different bits")
    _check_shapes(env, walk.first, num_envs)
    _check_shapes(env, jax.tree.map(lambda leaf: leaf[0], walk.timestep_tp1), num_envs)
    _expect_equal(
        jax.tree.structure(walk.first), jax.tree.structure(walk.timestep_tp1), "reset and step report different things"
    )
    _check_values(env, walk)
    _check_episodes(env, walk)
    _check_agents(walk)
    _check_members(env, walk, seed, num_envs, tolerance)
    return walk


def _walk(env: Env, reset: Any, step: Any, seed: int, num_envs: int, num_steps: int) -> Walk:
    chooser = np.random.default_rng(seed)
    state, timestep = reset(_keys(seed, 0, num_envs))
    first = timestep = jax.device_get(timestep)
    played = []
    for t in range(num_steps):
        action = _any_action(env, timestep, chooser)
        state, timestep = step(state, action, _keys(seed, t + 1, num_envs))
        timestep = jax.device_get(timestep)  # numpy's operations are not compiled, one by one, before they are done
        played.append((action, timestep))
    action_t, timestep_tp1 = jax.tree.map(lambda *leaves: np.stack(leaves), *played)
    return Walk(first, action_t, timestep_tp1, state)


def _any_action(env: Env, timestep: Timestep, chooser: np.random.Generator) -> np.ndarray[Any, np.dtype[Any]]:
    """Draw legal actions; continuous ones sometimes beyond their limits."""
    legal = timestep.legal
    if env.spec.action_dim:
        return chooser.uniform(-1.5, 1.5, (*legal.shape[:-1], env.spec.action_dim)).astype(np.float32)
    draw = np.where(legal, chooser.random(legal.shape), -1.0)
    action: np.ndarray[Any, np.dtype[Any]] = draw.argmax(-1).astype(np.int32)
    return action


@partial(jax.jit, static_argnums=2)
def _keys(seed: Array, stream: Array, num_envs: int) -> Key:
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), stream), num_envs)


def _check_shapes(env: Env, timestep: Timestep, num_envs: int) -> None:
    spec = env.spec
    agents = (num_envs, spec.num_agents)
    wanted = {
        "obs": (agents + spec.obs_shape, spec.obs_dtype),
        "final_obs": (agents + spec.obs_shape, spec.obs_dtype),
        "legal": ((*agents, spec.num_actions), jnp.bool_),
        "final_legal": ((*agents, spec.num_actions), jnp.bool_),
        "reward": (agents, jnp.float32),
        "terminated": ((num_envs,), jnp.bool_),
        "truncated": ((num_envs,), jnp.bool_),
        "agent_done": (agents, jnp.bool_),
    }
    for name, (shape, dtype) in wanted.items():
        leaf = getattr(timestep, name)
        _expect_equal((leaf.shape, leaf.dtype), (shape, jnp.dtype(dtype)), f"{name} has the wrong shape or type")
    _expect_equal(set(timestep.terms), set(spec.reward_terms), "terms are not those the spec names")
    for name, term in timestep.terms.items():
        _expect_equal((term.shape, term.dtype), ((num_envs,), jnp.float32), f"term {name} has the wrong shape or type")
    for name, value in timestep.info.items():
        _expect(value.shape[:1] == (num_envs,), f"info {name} does not lead with the environments")
    _expect(bool(spec.action_dim) != bool(spec.num_actions), "actions are neither discrete nor continuous, or both")
    _expect(len(spec.action_names) == spec.num_actions, "not every action has a name")
    covered = [action for _, first, end in spec.action_groups for action in range(first, end)]
    _expect_equal(sorted(covered), list(range(spec.num_actions)), "action groups do not cover each action once")


def _check_values(env: Env, walk: Walk) -> None:
    first, steps = walk.first, walk.timestep_tp1
    for timestep in (first, steps):
        continuous = bool(env.spec.action_dim)
        _expect(continuous or bool(timestep.legal.any(-1).all()), "somewhere no action is legal")
        _expect(
            continuous or bool(timestep.final_legal.any(-1).all()),
            "no legal action in a truncated state",
        )
        _expect(not bool((timestep.terminated & timestep.truncated).any()), "terminated and truncated at once")
        total = sum(np.asarray(term, np.float64) for term in timestep.terms.values())
        reward = np.asarray(timestep.reward, np.float64).sum(-1)
        _expect(np.allclose(total, reward, rtol=1e-5, atol=1e-5), "the terms do not sum to the reward")
        finite = all(bool(np.isfinite(np.asarray(x, np.float64)).all()) for x in (timestep.reward, timestep.obs))
        _expect(finite, "an observation or a reward is not finite")
    _expect(not bool((first.terminated | first.truncated).any()), "an episode is over at its reset")
    _expect(not bool(first.reward.any()), "a reset pays a reward")
    if env.spec.decode is not None:
        features = jax.jit(env.spec.decode)(first.obs)
        _expect(features.shape[:-1] == first.obs.shape[:2], "decode does not keep the batch axes")
        _expect(features.dtype == jnp.float32, "decode does not give float32")


def _check_episodes(env: Env, walk: Walk) -> None:
    steps = walk.timestep_tp1
    done = np.asarray(steps.terminated | steps.truncated)
    same = np.asarray((steps.obs == steps.final_obs).reshape(*done.shape, -1).all(-1))
    _expect(bool(same[~done].all()), "final_obs differs from obs although the episode continues")
    allowed = np.asarray((steps.legal == steps.final_legal).reshape(*done.shape, -1).all(-1))
    _expect(bool(allowed[~np.asarray(steps.truncated)].all()), "final_legal differs from legal without a truncation")
    length = np.zeros(done.shape[1], int)
    for t, truncated in enumerate(np.asarray(steps.truncated)):
        length += 1
        if env.spec.max_steps:
            _expect(bool((length <= env.spec.max_steps).all()), "an episode is longer than max_steps")
            _expect(bool((length[truncated] == env.spec.max_steps).all()), "truncated before max_steps")
        else:
            _expect(not truncated.any(), "truncated although there is no step limit")
        length[done[t]] = 0


def _check_agents(walk: Walk) -> None:
    steps = walk.timestep_tp1
    terminated = np.asarray(steps.terminated)
    ended = terminated | np.asarray(steps.truncated)
    _expect(not bool(walk.first.agent_done.any()), "an agent is done at its reset")
    before = np.zeros(steps.agent_done.shape[1:], bool)
    for t, agent_done in enumerate(np.asarray(steps.agent_done)):
        _expect(bool(agent_done[terminated[t]].all()), "an episode terminated and an agent is not done")
        _expect(not agent_done[~terminated[t]].all(-1).any(), "all agents are done and the episode did not terminate")
        _expect(bool(agent_done[before].all()), "an agent that was done takes part again")
        _expect(not np.asarray(steps.reward[t])[before].any(), "an agent that was done is paid")
        before = agent_done & ~ended[t][:, None]


def _check_members(env: Env, walk: Walk, seed: int, num_envs: int, tolerance: float) -> None:
    """Replay each environment alone, with its own keys and actions."""
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    only = jax.jit(lambda keys, i: jax.lax.dynamic_slice_in_dim(keys, i, 1))
    for i in range(min(num_envs, 3)):
        state, timestep = reset(only(_keys(seed, 0, num_envs), i))
        first = _member(walk.first, i)
        _expect_equal(timestep, first, f"environment {i} resets otherwise alone than in a batch", tolerance)
        for t in range(walk.action_t.shape[0]):
            state, timestep = step(state, walk.action_t[t, i : i + 1], only(_keys(seed, t + 1, num_envs), i))
            expected = _member(jax.tree.map(lambda leaf, t=t: leaf[t], walk.timestep_tp1), i)
            _expect_equal(timestep, expected, f"environment {i}, step {t}: alone otherwise than in a batch", tolerance)
        kept = take(env.spec, walk.state, jnp.array([i]))
        _expect_equal(state, kept, f"environment {i} ends in another state alone", tolerance)


def _member(timestep: Timestep, i: int) -> Timestep:
    one: Timestep = jax.tree.map(lambda leaf: leaf[i : i + 1], timestep)
    return one


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _expect_equal(got: Any, wanted: Any, message: str, tolerance: float = 0.0) -> None:
    structure: Any = jax.tree.structure(got)
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=False)
    equal = structure == jax.tree.structure(wanted) and all(_same(a, b, tolerance) for a, b in pairs)
    if not equal:
        raise AssertionError(f"{message}: {got} is not {wanted}" if len(str(got)) < 200 else message)


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if tolerance and jnp.issubdtype(jnp.result_type(a), jnp.floating):
        return np.allclose(a, b, rtol=tolerance, atol=tolerance)
    return np.array_equal(a, b)
