"""Find violations of the protocol in the results of an environment: each function yields the problems of one check."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.protocol import Env, EnvSpec, EnvState
from hmx.types import Array, Key, Timestep

HostArray = np.ndarray[Any, np.dtype[Any]]


class Walk(NamedTuple):
    """Random play: the first timestep, and per step the action `[T, E, A]` and the timestep `[T, E, ...]`, in NumPy."""

    first: Timestep
    action_t: HostArray
    timestep_tp1: Timestep
    state: EnvState

    @property
    def ended(self) -> HostArray:
        """Return whether each step ended an episode, `[T, E]`."""
        ended: HostArray = np.asarray(self.timestep_tp1.terminated) | np.asarray(self.timestep_tp1.truncated)
        return ended


def play(
    env: Env,
    reset: Callable[[Key], tuple[EnvState, Timestep]],
    step: Callable[[EnvState, HostArray, Key], tuple[EnvState, Timestep]],
    seed: int,
    num_envs: int,
    num_steps: int,
    illegal: bool = False,
) -> Walk:
    """Play random actions; with `illegal`, half of them are illegal if any are.

    Keys and random draws are the same for every environment with these sizes and this seed.
    """
    chooser = np.random.default_rng(seed)
    state, timestep = reset(keys_of(seed, 0, num_envs))
    first = timestep = jax.device_get(timestep)
    played = []
    for t in range(num_steps):
        action = any_action(env, timestep, chooser, illegal)
        state, timestep = step(state, action, keys_of(seed, t + 1, num_envs))
        timestep = jax.device_get(timestep)  # NumPy compiles nothing
        played.append((action, timestep))
    action_t, timestep_tp1 = jax.tree.map(lambda *leaves: np.stack(leaves), *played)
    return Walk(first, action_t, timestep_tp1, state)


def any_action(env: Env, timestep: Timestep, chooser: np.random.Generator, illegal: bool = False) -> HostArray:
    """Draw legal actions, continuous ones sometimes beyond their limits; with `illegal` half of them illegal."""
    legal = np.asarray(timestep.legal)
    if env.spec.action_dim:
        return chooser.uniform(-1.5, 1.5, (*legal.shape[:-1], env.spec.action_dim)).astype(np.float32)
    if illegal:
        turn = (chooser.random(legal.shape[:-1]) < 0.5) & ~legal.all(-1)
        legal = legal ^ turn[..., None]
    action: HostArray = np.where(legal, chooser.random(legal.shape), -1.0).argmax(-1).astype(np.int32)
    return action


@partial(jax.jit, static_argnums=2)
def keys_of(seed: Array, stream: Array, num_envs: int) -> Key:
    """Return the keys `[E]` of the reset (stream 0) or of a step (from 1)."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), stream), num_envs)


def with_start(walk: Walk) -> Timestep:
    """Return all timesteps, the reset first, `[1 + T, E, ...]`."""
    joined: Timestep = jax.tree.map(lambda a, b: np.concatenate([a[None], b]), walk.first, walk.timestep_tp1)
    return joined


def place(bad: HostArray | Array, first: int = 0) -> str:
    """Name the first true entry of `[T, E, ...]`, or of `[E, ...]` at step `first`; step 0 is the reset."""
    index = np.argwhere(np.asarray(bad))[0]
    step, env = (first + index[0], index[1]) if bad.ndim > 1 else (first, index[0])
    return f"{f'step {step}' if step else 'the reset'} of environment {env}"


def difference(got: object, wanted: object, tolerance: float = 0.0) -> str | None:
    """Return the path of the first leaf that differs, or None; the path is empty if the structures differ."""
    if not same_structure(got, wanted):
        return ""
    pairs = zip(jax.tree.leaves_with_path(got), jax.tree.leaves(wanted), strict=True)
    return next((jax.tree_util.keystr(path).lstrip(".") for (path, a), b in pairs if not agrees(a, b, tolerance)), None)


def same_structure(a: object, b: object) -> bool:
    """Return whether two pytrees have the same structure."""
    one: object = jax.tree.structure(a)
    return one == jax.tree.structure(b)


def agrees(a: Any, b: Any, tolerance: float) -> bool:
    """Return whether two arrays have the same bits, or differ by no more than the tolerance; NaN equals NaN."""
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    floats = jnp.issubdtype(a.dtype, jnp.floating)
    if tolerance and floats:
        return np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    return np.array_equal(a, b, equal_nan=bool(floats))


def abstract_action(env: Env, num_envs: int) -> jax.ShapeDtypeStruct:
    """Return shape and dtype of the actions of a batch."""
    agents = (num_envs, env.spec.num_agents)
    if env.spec.action_dim:
        return jax.ShapeDtypeStruct((*agents, env.spec.action_dim), jnp.float32)
    return jax.ShapeDtypeStruct(agents, jnp.int32)


def shapes(env: Env, state: EnvState | None, timestep: Timestep, num_envs: int) -> Iterator[str]:
    """Yield differences from the spec; `state` comes from a reset, or is None after a step."""
    spec = env.spec
    agents = (num_envs, spec.num_agents)
    shown, mask, flag = (agents + spec.obs_shape, spec.obs_dtype), ((*agents, spec.num_actions), jnp.bool_), jnp.bool_
    wanted = {
        "obs": shown, "final_obs": shown, "legal": mask, "final_legal": mask, "reward": (agents, jnp.float32),
        "terminated": ((num_envs,), flag), "truncated": ((num_envs,), flag), "agent_done": (agents, flag),
    }  # fmt: skip
    by = "step" if state is None else "reset"
    terms = {f"reward term {name}": term for name, term in timestep.terms.items()}
    leaves = {**{name: getattr(timestep, name) for name in wanted}, **terms}
    for name, leaf in leaves.items():
        shape, dtype = wanted.get(name, ((num_envs,), jnp.float32))
        if (leaf.shape, leaf.dtype) != (shape, jnp.dtype(dtype)):
            expected = f"{jnp.dtype(dtype)} {list(shape)}"
            yield f"{by} returns {name} as {leaf.dtype} {list(leaf.shape)} instead of {expected}"
    if set(timestep.terms) != set(spec.reward_terms):
        yield f"{by} returns the reward terms {sorted(timestep.terms)}; the spec has {sorted(spec.reward_terms)}"
    for name, value in timestep.info.items():
        if value.shape[:1] != (num_envs,):
            yield f"{by} returns info {name} as {list(value.shape)}, which does not start with the environments"
    for path, leaf in jax.tree.leaves_with_path(state):
        if not leaf.ndim or leaf.shape[spec.state_axis] != num_envs:
            name = jax.tree_util.keystr(path)
            yield f"the state{name} is {list(leaf.shape)}: axis {spec.state_axis} is not that of the environments"
    if spec.decode is not None:
        features = jax.eval_shape(spec.decode, timestep.obs)
        if features.shape[:2] != agents or features.dtype != jnp.float32:
            yield "the decode of the spec does not return float32 with the axes of environments and agents"


def contradictions(spec: EnvSpec) -> Iterator[str]:
    """Yield contradictions in what the spec says about actions and observations."""
    if bool(spec.action_dim) == bool(spec.num_actions):
        yield "the spec must have either num_actions or action_dim"
    if len(spec.action_names) != spec.num_actions:
        yield f"the spec names {len(spec.action_names)} of {spec.num_actions} actions"
    covered = sorted(action for _, first, end in spec.action_groups for action in range(first, end))
    if covered != list(range(spec.num_actions)):
        yield "the action groups of the spec do not contain each action once"
    if spec.action_quantities and len(spec.action_quantities) != spec.action_dim:
        yield f"the spec describes {len(spec.action_quantities)} of {spec.action_dim} numbers of an action"
    unlimited = [number.name for number in spec.action_quantities if number.low is None or number.high is None]
    if unlimited:
        yield f"the spec gives no limits for {', '.join(unlimited)} of an action"
    if spec.obs_quantities and len(spec.obs_quantities) != math.prod(spec.obs_shape):
        yield f"the spec describes {len(spec.obs_quantities)} of {math.prod(spec.obs_shape)} numbers of an observation"


def changed_type(before: object, after: object, what: str = "the state") -> str | None:
    """Name the first leaf whose type a step changes, which compiles every step again."""
    if not same_structure(before, after):
        shown = [str(jax.tree.structure(tree))[:200] for tree in (after, before)]
        return f"step returns {what} of another structure than reset: {shown[0]} instead of {shown[1]}"
    for (path, a), b in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (a.shape, a.dtype, a.weak_type) != (b.shape, b.dtype, b.weak_type):
            kinds = (f"{'weakly typed ' if x.weak_type else ''}{x.dtype} {list(x.shape)}" for x in (a, b))
            return f"{what}{jax.tree_util.keystr(path)} is {next(kinds)} after reset and {next(kinds)} after step"
    return None


def constant_key(program: Any) -> bool:
    """Return whether a traced program uses a key that is a constant, or makes one from a constant."""
    for const in getattr(program, "consts", ()):
        if jnp.issubdtype(getattr(const, "dtype", np.bool_), jax.dtypes.prng_key):
            return True
    for eqn in getattr(program, "jaxpr", program).eqns:
        if eqn.primitive.name == "random_seed" and hasattr(eqn.invars[0], "val"):  # variables have no value
            return True
        inner = (x for param in eqn.params.values() for x in (param if isinstance(param, tuple) else (param,)))
        if any(constant_key(x) for x in inner if hasattr(getattr(x, "jaxpr", x), "eqns")):
            return True
    return False


def masks(walk: Walk) -> Iterator[str]:
    """Yield masks without an action."""
    seen = with_start(walk)
    for name, mask in (("legal", seen.legal), ("final_legal", seen.final_legal)):
        if mask.shape[-1] and not mask.any(-1).all():
            yield f"{name} allows no action at {place(~mask.any(-1))}"


def finite(walk: Walk) -> Iterator[str]:
    """Yield observations and rewards that are not finite."""
    seen = with_start(walk)
    terms = {f"reward term {name}": value for name, value in seen.terms.items()}  # before the reward, their sum
    for name, value in {"obs": seen.obs, "final_obs": seen.final_obs, **terms, "reward": seen.reward}.items():
        if not np.isfinite(value).all():
            yield f"{name} is not finite at {place(~np.isfinite(value))}"


def reward_terms(walk: Walk) -> Iterator[str]:
    """Yield places where reward terms do not sum to the reward, summed over agents."""
    seen = with_start(walk)
    total = sum((np.asarray(term, np.float64) for term in seen.terms.values()), np.zeros(seen.terminated.shape))
    reward = np.asarray(seen.reward, np.float64).sum(-1)
    bad = ~np.isclose(total, reward, rtol=1e-5, atol=1e-5, equal_nan=True)
    if bad.any():
        yield f"the terms sum to {total[bad][0]:.6g} and the reward is {reward[bad][0]:.6g} at {place(bad)}"


def ends(env: Env, walk: Walk, alone: bool = False) -> Iterator[str]:
    """Yield ends that contradict each other or the spec; `alone`: no environment has a higher limit."""
    steps, limit = walk.timestep_tp1, env.spec.max_steps
    if (walk.first.terminated | walk.first.truncated).any():
        yield "an episode is over at its reset"
    if walk.first.reward.any():
        yield "a reset pays a reward"
    both = steps.terminated & steps.truncated
    if both.any():
        yield f"an episode is terminated and truncated at once at {place(both, 1)}"
    if not limit and steps.truncated.any():
        yield f"an episode is truncated at {place(steps.truncated, 1)} although the spec has no step limit"
    length, lengths = np.zeros(walk.ended.shape[1], int), []
    for t, ended in enumerate(walk.ended):
        length += 1
        lengths += [*length[ended]]
        if limit and (length > limit).any():
            yield f"an episode is longer than max_steps = {limit} at {place(length > limit, t + 1)}"
        early = steps.truncated[t] & (length < limit)
        if early.any():
            yield f"an episode is truncated before max_steps = {limit} at {place(early, t + 1)}"
        length[ended] = 0
    if alone and limit and len(lengths) > 1 and set(lengths) == {limit} and steps.terminated.sum() == len(lengths):
        yield f"every episode terminates at max_steps = {limit}, and none is truncated"


def last_observations(walk: Walk) -> Iterator[str]:
    """Yield final observations and masks that cannot be those before the reset."""
    steps, ended = walk.timestep_tp1, walk.ended
    same = (steps.obs == steps.final_obs).reshape(*ended.shape, -1).all(-1)
    if not same[~ended].all():
        yield f"final_obs differs from obs although the episode continues at {place(~same & ~ended, 1)}"
    allowed = (steps.legal == steps.final_legal).reshape(*ended.shape, -1).all(-1)
    if not allowed[~steps.truncated].all():
        yield f"final_legal differs from legal without a truncation at {place(~allowed & ~steps.truncated, 1)}"
    moves = (steps.obs[1:] != steps.obs[:-1]).reshape(*ended[1:].shape, -1).any(-1) & ~ended[1:]
    if ended.sum() > 1 and same[ended].all() and moves.any():
        yield f"at all {ended.sum()} ends of episodes final_obs is the first observation of the next episode"


def done_agents(walk: Walk) -> Iterator[str]:
    """Yield agents that are done but still take part."""
    steps = walk.timestep_tp1
    if walk.first.agent_done.any():
        yield "an agent is done at its reset"
    before = np.zeros(steps.agent_done.shape[1:], bool)
    for t, (done, terminated) in enumerate(zip(steps.agent_done, steps.terminated, strict=True)):
        kinds = {
            "the episode terminates and an agent is not done": ~done.all(-1) & terminated,
            "all agents are done and the episode does not terminate": done.all(-1) & ~terminated,
            "an agent that was done takes part again": before & ~done,
            "an agent that was done is paid": before & (steps.reward[t] != 0),
        }
        yield from (f"{text} at {place(bad, t + 1)}" for text, bad in kinds.items() if bad.any())
        before = done & ~walk.ended[t][:, None]
