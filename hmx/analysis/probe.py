"""The probe rollout: several episodes from each of several start states, with keys of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.collector import Actors, Policy, Rollout, collect, start
from hmx.agents.sequences import ROW_LEAVES, Batch, make_rows
from hmx.agents.types import Params
from hmx.analysis.buckets import Floats
from hmx.analysis.stored import Stored, seed_of, start_at
from hmx.config.schema import AlgoConfig
from hmx.env.protocol import Env, EnvState
from hmx.errors import HmxError
from hmx.nets import Net
from hmx.types import Array, Key, Timestep, Transition

NO_LIMIT = 1024  # steps of a probe in an environment that sets no limit
AT_ONCE = 64  # steps played between two looks at who is still playing


class Probe(NamedTuple):
    """`G` groups of `K` episodes, as training rows and as figures."""

    batch: Batch  # rows [H, N] of all episodes; steps after an episode's end have weight 0
    group: np.ndarray[Any, Any]  # [N] int: the group of each row
    member: np.ndarray[Any, Any]  # [N] int: the episode within the group
    returns: Floats  # [G, K]: undiscounted, summed over agents
    lengths: Floats  # [G, K]
    cut: np.ndarray[Any, Any]  # [G, K] bool: the probe ended before the episode did
    one_start: bool  # all groups begin with the same observation
    reference: Array | None  # [H, N, num_actions]: logits of the reference policy, if there is one


class Prober(NamedTuple):
    """The compiled parts of a probe.

    `begin(state, key)` starts it, `go_on(state, actors, key)` plays `num_steps` steps, and
    `look(params, carry, transitions)` is what another network says to them.
    """

    begin: Callable[[Any, Key], Actors]
    go_on: Callable[[Any, Actors, Key], tuple[Actors, Rollout]]
    look: Callable[[Params, Any, Transition], tuple[Array, Any]] | None  # where there may be another network
    num_steps: int
    limit: int  # steps at most
    memory: Any  # empty: what the other network remembers at the start
    num_groups: int
    per_group: int


def grouped(env: Env, per_group: int, common: bool) -> Env:
    """The environment in groups of `per_group` copies that start from one state.

    Args:
        env: the environment.
        per_group: copies next to each other that share the key of their reset.
        common: whether they share the keys of their steps too, so that only their actions tell them apart.
    """

    def shared(keys: Key) -> Key:
        data = jnp.repeat(jax.random.key_data(keys)[::per_group], per_group, axis=0)
        again: Key = jax.random.wrap_key_data(data, impl=jax.random.key_impl(keys))
        return again

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        return env.step(state, action, shared(keys) if common else keys)

    return Env(env.spec, lambda keys: env.reset(shared(keys)), step)


def make_prober(
    env: Env,
    policy: Callable[[Any], Policy],
    net: Net,
    *,
    num_groups: int,
    per_group: int,
    horizon: int,
    limit: int = 0,
    common: bool = False,
    stored: Stored | None = None,
) -> Prober:
    """Compiles nothing yet.

    Args:
        env: the environment.
        policy: the policy of a train state.
        net: its network.
        num_groups: start states.
        per_group: episodes from each.
        horizon: steps of a training row, see `make_rows`.
        limit: steps of an episode at most; 0 takes the environment's own limit.
        common: see `grouped`.
        stored: whose states are started from; None starts afresh.

    Raises:
        HmxError: the network has a memory, which stored states know nothing of.
    """
    together = grouped(env, per_group, common)
    limit = steps_at_most(env, limit)
    num_rows = -(-min(limit, AT_ONCE) // horizon)
    num_steps = num_rows * horizon

    def go_on(state: Any, actors: Actors, key: Key) -> tuple[Actors, Rollout]:
        rows = num_rows if jax.tree.leaves(actors.carry) else 1
        actors, rollout, _ = collect(together, policy(state), actors, key, num_steps, rows)
        return actors, rollout

    def look(params: Params, carry: Any, seen: Transition) -> tuple[Array, Any]:
        reset = jnp.broadcast_to(seen.reset_t[..., None], seen.alive_t.shape)
        output, carry = net.unroll(params, carry, seen.obs_t, reset)
        return output.logits, carry

    empty = net.initial_carry((num_groups * per_group, env.spec.num_agents))
    if stored is not None and jax.tree.leaves(empty):
        what = "episodes cannot begin in stored states: what a network with memory remembered there is lost"
        raise HmxError(what, "leave out --from-buffer")
    begin = make_begin(together, num_groups, per_group, empty, stored)
    return Prober(begin, jax.jit(go_on), jax.jit(look), num_steps, limit, empty, num_groups, per_group)


def steps_at_most(env: Env, limit: int) -> int:
    """Steps that a probe plays at most; a `limit` of 0 takes the environment's own."""
    limit = limit or env.spec.max_steps or NO_LIMIT
    return min(limit, env.spec.max_steps or limit)


def make_begin(
    together: Env, num_groups: int, per_group: int, carry: Any, stored: Stored | None
) -> Callable[[Any, Key], Actors]:
    """How a probe starts: with resets of an environment of `grouped`, or in stored states, which its key chooses."""
    if stored is None:
        return jax.jit(lambda state, key: start(together, num_groups * per_group, carry, key))
    return lambda state, key: start_at(stored, num_groups, per_group, carry, seed_of(key))


def play(
    prober: Prober, state: Any, key: Key, algo: AlgoConfig, horizon: int, reference: Params | None = None
) -> Probe:
    """Plays until every environment has ended its first episode, or the limit of the probe is reached.

    Args:
        prober: of `make_prober`.
        state: the train state whose policy plays; only read.
        key: of this probe alone.
        algo: how advantages are made.
        horizon: steps of a training row.
        reference: parameters of another policy whose logits are wanted.
    """
    said: list[Array] = []
    memory = prober.memory

    def look(rollout: Rollout) -> None:
        nonlocal memory
        assert prober.look is not None
        logits, memory = prober.look(reference, memory, rollout.transitions)
        said.append(logits)

    seen, ended = rollouts(prober, state, key, look if reference is not None else None)
    said += said[-1:] * (len(seen) - len(said))
    probe = _probe(prober, _joined(seen), ended, algo, horizon)
    return probe._replace(reference=_as_rows(jnp.concatenate(said), horizon)) if said else probe


def rollouts(
    prober: Prober, state: Any, key: Key, watch: Callable[[Any], None] | None = None
) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """Rollouts one after another until each environment has ended an episode, and which have, bool `[E]`.

    The last is repeated, with no steps that count, so that few lengths are ever compiled for.

    Args:
        prober: whose `go_on` returns something with `transitions`, which have `reset_t [T, E]`.
        state: the train state whose policy plays; only read.
        key: of this probe alone.
        watch: sees every rollout that is played.
    """
    k_start, k_play = jax.random.split(key)
    actors = prober.begin(state, k_start)
    ended = np.zeros(prober.num_groups * prober.per_group, bool)
    seen: list[Any] = []
    while not ended.all() and len(seen) * prober.num_steps < prober.limit:
        actors, rollout = prober.go_on(state, actors, jax.random.fold_in(k_play, len(seen)))
        seen.append(rollout)
        if watch is not None:
            watch(rollout)
        resets = np.array(rollout.transitions.reset_t)
        resets[0] &= len(seen) > 1  # the very first observation ends nothing
        ended |= resets.any(0) | np.asarray(actors.reset)
    most = -(-prober.limit // prober.num_steps)
    missing = min(_round_up(len(seen), 0), most) - len(seen)
    return seen + [_after_the_end(seen[-1])] * missing, ended


def _as_rows(leaf: Array, horizon: int) -> Array:
    """`[T, E, A, ...]` -> `[H, N, ...]`, in the order of `make_rows`."""
    parts = leaf.reshape(leaf.shape[0] // horizon, horizon, *leaf.shape[1:])
    return jnp.moveaxis(parts, 1, 0).reshape(horizon, -1, *leaf.shape[3:])


@jax.jit
def _joined(seen: list[Rollout]) -> Rollout:
    """One rollout after another, of which only the first episodes count."""
    transitions, carry = (
        jax.tree.map(lambda *parts: jnp.concatenate(parts), *parts)
        for parts in zip(*((rollout.transitions, rollout.carry) for rollout in seen), strict=True)
    )
    return Rollout(_first_episode(transitions), carry, seen[-1].value_last)


def _after_the_end(rollout: Any) -> Any:
    """Steps that fill up a probe in which every episode has ended, so that few lengths are ever compiled for."""
    seen = rollout.transitions
    return rollout._replace(transitions=seen._replace(reset_t=jnp.ones_like(seen.reset_t)))


def _first_episode(seen: Transition) -> Transition:
    first = jnp.cumsum(seen.reset_t, axis=0) <= 1
    return seen._replace(alive_t=seen.alive_t & first[..., None])


_rows = partial(jax.jit, static_argnums=(1, 2))(make_rows)


def _probe(prober: Prober, rollout: Rollout, ended: np.ndarray[Any, Any], algo: AlgoConfig, horizon: int) -> Probe:
    seen = rollout.transitions
    shape = (prober.num_groups, prober.per_group)
    reset = np.asarray(seen.reset_t)
    first = np.cumsum(reset, axis=0) <= 1
    # float64, in which sums of float32 rewards do not depend on their order
    reward = np.where(first[..., None], np.asarray(seen.reward_tp1, np.float64), 0.0)
    batch = _rows(rollout, algo, horizon)
    num_agents = reward.shape[-1]
    env = np.arange(batch.row_weight.shape[0]) // num_agents % (shape[0] * shape[1])
    begins = np.asarray(seen.obs_t[0]).reshape(*shape, -1)[:, 0]
    return Probe(
        batch=batch,
        group=env // prober.per_group,
        member=env % prober.per_group,
        returns=reward.sum((0, 2)).reshape(shape),
        lengths=first.sum(0).astype(np.float64).reshape(shape),
        cut=~ended.reshape(shape),
        one_start=shape[0] > 1 and bool((begins == begins[:1]).all()),
        reference=None,
    )


def group_index(batch: Batch, group: np.ndarray[Any, Any], num_groups: int) -> tuple[Any, Any]:
    """Which rows each group trains on: `index [G, R]` and whether each place holds one of them, `real [G, R]`.

    Groups with fewer rows than others are filled up. `R` is rounded up, by a quarter at most, so that few lengths are
    ever compiled for.

    Args:
        batch: rows `[H, N]`.
        group: `[N]` the group of each row.
        num_groups: groups.
    """
    counts = np.asarray(batch.weight).max(0) > 0
    return padded([np.flatnonzero(counts & (group == g)) for g in range(num_groups)])


def padded(rows: Sequence[np.ndarray[Any, Any]]) -> tuple[Any, Any]:
    """The rows of each group, filled up: `index [G, R]` and `real [G, R]`, see `group_index`."""
    width = _round_up(max(len(ids) for ids in rows))
    index = np.stack([np.concatenate([ids, np.zeros(width - len(ids), int)]) for ids in rows])
    return index, np.arange(width)[None] < np.array([len(ids) for ids in rows])[:, None]


def part_width(batch: Batch, num_groups: int) -> int:
    """A size for the parts of `in_parts`: the power of two from a third of the mean size of a group on."""
    return third(int((np.asarray(batch.weight).max(0) > 0).sum()), num_groups)


def third(rows: int, num_groups: int) -> int:
    """The power of two from a third of the mean size of `num_groups` groups of so many rows on."""
    return _round_up(max(-(-rows // (3 * num_groups)), 1), 0)


def in_parts(index: np.ndarray[Any, Any], real: np.ndarray[Any, Any], width: int) -> tuple[Any, Any, Any]:
    """Groups cut into parts of one size, since the longest group would otherwise set the size of all.

    Args:
        index: `[G, R]` of `group_index`.
        real: `[G, R]` likewise.
        width: rows of a part.

    Returns:
        The same for the parts, `[parts, width]`, and the group that each part belongs to; every group has at least one.
    """
    num_groups, rows = index.shape
    cut = [np.pad(leaf, ((0, 0), (0, -rows % width))).reshape(-1, width) for leaf in (index, real)]
    per_group = len(cut[0]) // num_groups
    owner = np.repeat(np.arange(num_groups), per_group)
    kept = cut[1].any(1) | (np.arange(len(owner)) % per_group == 0)
    return cut[0][kept], cut[1][kept], owner[kept]


def by_group(batch: Batch, index: Any, real: Any) -> Batch:
    """One batch per group: leaves `[G, H, R, ...]`, those of a whole row `[G, R, ...]`; weight 0 where not `real`."""
    taken = {
        name: jax.tree.map(lambda leaf, name=name: leaf[index] if name in ROW_LEAVES else take(leaf, index), leaves)
        for name, leaves in batch._asdict().items()
    }
    return Batch(**taken)._replace(weight=taken["weight"] * real[:, None])


def one_group(batch: Batch, index: Array, real: Array) -> Batch:
    """The batch of one group, whose rows are `index [R]`; see `by_group`."""
    alone: Batch = jax.tree.map(lambda leaf: leaf[0], by_group(batch, index[None], real[None]))
    return alone


def take(leaf: Array, index: Any) -> Array:
    """`[H, N, ...]` -> `[G, H, R, ...]`."""
    return jnp.moveaxis(leaf[:, index], 0, 1)


def _round_up(count: int, bits: int = 3) -> int:
    """To a multiple of the next power of two divided by `2^bits`."""
    unit = 1 << max((count - 1).bit_length() - bits, 0)
    return -(-count // unit) * unit
