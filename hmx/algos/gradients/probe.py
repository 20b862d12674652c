"""Play several episodes from each of several start states, and turn them into the rows that PPO trains on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Num, Shaped

from hmx.algos.collector import Rollout, collect, start
from hmx.algos.gradients.buckets import Bools, Floats, Ints, reward_std
from hmx.algos.gradients.per_group import Tree
from hmx.algos.gradients.request import ProbeRequest
from hmx.algos.gradients.stored import Stored, seed_of, start_at
from hmx.algos.ppo import reference as references
from hmx.algos.ppo.components import PpoComponents
from hmx.algos.ppo.reference import ReferencePolicy
from hmx.algos.ppo.update import make_batch, policy_of
from hmx.algos.sequences import Batch, as_sequences
from hmx.algos.types import Carry, RolloutState, TrainState
from hmx.envs.protocol import Env, EnvState
from hmx.errors import HmxError
from hmx.types import Array, Key, Timestep, Transition

NO_LIMIT = 1024  # longest episode in an environment without a limit
AT_ONCE = 64  # steps between two checks whether all episodes have ended


class ProbeEpisodes(NamedTuple):
    """Results of `G` groups of `K` episodes."""

    returns: Floats  # [G, K]: undiscounted, summed over agents
    lengths: Floats  # [G, K]
    truncated: Bools  # [G, K]: longer than the probe
    reward_std: Floats  # [G]
    one_start: bool  # whether all groups start from the same observation
    acted_std: Floats | None = None  # [G]: standard deviation under common keys, which actions alone cause


class Probe(NamedTuple):
    """`G` groups of `K` episodes, as training rows and as results."""

    batch: Batch  # rows [H, N] of all episodes; steps after the end of an episode have weight 0
    group: Ints  # [N]: the group of each row
    member: Ints  # [N]: the episode within the group
    episodes: ProbeEpisodes
    reference: Array | None  # [H, N, width]: outputs of the reference policy, if there is one


class Prober(NamedTuple):
    """The compiled parts of a probe.

    `begin(state, key)` starts it, `play(state, actors, key)` plays `num_steps` steps, and
    `outputs(reference, carry, transitions)` are the outputs of a reference policy for them.
    """

    begin: Callable[[Tree, Key], RolloutState]
    play: Callable[[Tree, RolloutState, Key], tuple[RolloutState, Tree]]
    outputs: Callable[[ReferencePolicy, Carry, Transition], tuple[Array, Carry]] | None  # for PPO
    num_steps: int
    limit: int  # longest episode
    carry: Carry  # the initial RNN carry
    num_groups: int
    per_group: int


def grouped(env: Env, per_group: int, common: bool) -> Env:
    """Return the environment in groups of `per_group` neighbouring copies that start from one state.

    `common` copies also share the keys of their steps, so that they differ only by their actions.
    """

    def shared(keys: Key) -> Key:
        data = jnp.repeat(jax.random.key_data(keys)[::per_group], per_group, axis=0)
        repeated: Key = jax.random.wrap_key_data(data, impl=jax.random.key_impl(keys))
        return repeated

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        return env.step(state, action, shared(keys) if common else keys)

    return Env(env.spec, lambda keys: env.reset(shared(keys)), step)


def make_prober(
    parts: PpoComponents, request: ProbeRequest, common: bool = False, stored: Stored | None = None
) -> Prober:
    """Build the parts of a probe, which are compiled when they are first used.

    With `common` keys of steps, copies differ only by their actions; `stored` states replace those of resets.
    """
    env, net = parts.env, parts.net
    together = grouped(env, request.per_group, common)
    limit = steps_at_most(env, request.max_length)
    num_rows = -(-min(limit, AT_ONCE) // parts.horizon)
    num_steps = num_rows * parts.horizon

    def play(state: TrainState, actors: RolloutState, key: Key) -> tuple[RolloutState, Rollout]:
        rows = num_rows if jax.tree.leaves(actors.carry) else 1
        actors, rollout, _ = collect(together, policy_of(parts, state), actors, key, num_steps, rows)
        return actors, rollout

    empty = net.initial_carry((request.groups * request.per_group, env.spec.num_agents))
    if stored is not None and jax.tree.leaves(empty):
        what = "cannot start episodes of a recurrent network in stored states: a buffer does not hold its RNN carry"
        raise HmxError(what, "drop --from-buffer")
    begin = make_begin(together, request, empty, stored)
    outputs = jax.jit(partial(references.outputs, parts.cfg.ppo, net))
    return Prober(begin, jax.jit(play), outputs, num_steps, limit, empty, request.groups, request.per_group)


def steps_at_most(env: Env, limit: int) -> int:
    """Return the longest episode of a probe; a `limit` of 0 takes that of the environment."""
    limit = limit or env.spec.max_steps or NO_LIMIT
    return min(limit, env.spec.max_steps or limit)


def make_begin(
    together: Env, request: ProbeRequest, carry: Carry, stored: Stored | None
) -> Callable[[TrainState, Key], RolloutState]:
    """Return a function that starts a probe: with resets of an environment of `grouped`, or in random stored states."""
    if stored is None:
        return jax.jit(lambda state, key: start(together, request.groups * request.per_group, carry, key))
    return lambda state, key: start_at(stored, request.groups, request.per_group, carry, seed_of(key))


def play(
    prober: Prober, parts: PpoComponents, state: TrainState, key: Key, reference: ReferencePolicy | None = None
) -> Probe:
    """Play until every environment has ended its first episode, or the limit of the probe is reached.

    The train state is only read. With `reference`, the outputs of that policy are returned too.
    """
    rollouts, ended = play_rollouts(prober, state, key)
    outputs, carry = [], prober.carry
    if reference is not None and prober.outputs is not None:
        for part in rollouts:
            found, carry = prober.outputs(reference, carry, part.transitions)
            outputs.append(found)
    rollout = _joined(rollouts)
    seen, batch = rollout.transitions, _rows(rollout, parts.cfg, parts.horizon)
    num_envs, num_agents = seen.reward_tp1.shape[1:]
    env = np.arange(batch.sequence_weight.shape[0]) // num_agents % num_envs
    return Probe(
        batch=batch,
        group=env // prober.per_group,
        member=env % prober.per_group,
        episodes=episodes_of(prober, seen.reset_t, seen.reward_tp1, seen.obs_t[0], ended),
        reference=as_sequences(jnp.concatenate(outputs), parts.horizon) if outputs else None,
    )


def play_rollouts(prober: Prober, state: Tree, key: Key) -> tuple[list[Tree], Bools]:
    """Play rollouts until each environment has ended an episode; return them, and the environments that have, `[E]`.

    The last rollout is repeated, with steps that do not count, so that few lengths are ever compiled. `prober.play`
    returns something with `transitions`, which have `reset_t [T, E]`.
    """
    k_start, k_play = jax.random.split(key)
    actors = prober.begin(state, k_start)
    ended = np.zeros(prober.num_groups * prober.per_group, bool)
    found: list[Tree] = []
    while not ended.all() and len(found) * prober.num_steps < prober.limit:
        actors, rollout = prober.play(state, actors, jax.random.fold_in(k_play, len(found)))
        found.append(rollout)
        resets = np.array(rollout.transitions.reset_t)
        resets[0] &= len(found) > 1  # the first observation does not end an episode
        ended |= resets.any(0) | np.asarray(actors.reset)
    most = -(-prober.limit // prober.num_steps)
    missing = min(_round_up(len(found), 0), most) - len(found)
    seen = found[-1].transitions
    after_the_end = found[-1]._replace(transitions=seen._replace(reset_t=jnp.ones_like(seen.reset_t)))
    return found + [after_the_end] * missing, ended


def episodes_of(
    prober: Prober,
    reset: Bool[Array, "T E"],
    reward: Num[Array, "T E ..."],
    obs: Shaped[Array, "E ..."],
    ended: Bool[Bools, " E"],
) -> ProbeEpisodes:
    """Return the results of the first episode of each environment; `obs` is its first observation.

    `reset` marks steps that begin an episode, `ended` the episodes that ended before the probe did.
    """
    shape = (prober.num_groups, prober.per_group)
    first = np.cumsum(np.asarray(reset), axis=0) <= 1
    # float64, in which sums of float32 rewards do not depend on their order
    rewards = np.asarray(reward, np.float64).reshape(*first.shape, -1).sum(-1)
    returns = np.where(first, rewards, 0.0).sum(0).reshape(shape)
    starts = np.asarray(obs).reshape(*shape, -1)[:, 0]
    return ProbeEpisodes(
        returns=returns,
        lengths=first.sum(0).astype(np.float64).reshape(shape),
        truncated=~ended.reshape(shape),
        reward_std=reward_std(returns),
        one_start=shape[0] > 1 and bool((starts == starts[:1]).all()),
    )


@jax.jit
def _joined(seen: list[Rollout]) -> Rollout:
    """Join rollouts in time; only the first episode of each environment counts."""
    transitions, carry = (
        jax.tree.map(lambda *parts: jnp.concatenate(parts), *parts)
        for parts in zip(*((rollout.transitions, rollout.carry) for rollout in seen), strict=True)
    )
    first = jnp.cumsum(transitions.reset_t, axis=0) <= 1
    transitions = transitions._replace(alive_t=transitions.alive_t & first[..., None])
    return Rollout(transitions, carry, seen[-1].value_last)


_rows = partial(jax.jit, static_argnums=(1, 2))(make_batch)


def group_index(batch: Batch, group: Int[Ints, " N"], num_groups: int) -> tuple[Int[Ints, "G R"], Bool[Bools, "G R"]]:
    """Return the rows of each group, `index [G, R]`, and a mask of those that are not padding, `real [G, R]`.

    `R` is rounded up, by a quarter at most, so that few lengths are ever compiled.
    """
    counts = np.asarray(batch.weight).max(0) > 0
    return padded([np.flatnonzero(counts & (group == g)) for g in range(num_groups)])


def padded(rows: Sequence[Int[Ints, " _"]]) -> tuple[Int[Ints, "G R"], Bool[Bools, "G R"]]:
    """Pad the rows of each group to one length: `index [G, R]` and `real [G, R]`, see `group_index`."""
    width = _round_up(max(len(ids) for ids in rows))
    index = np.stack([np.concatenate([ids, np.zeros(width - len(ids), int)]) for ids in rows])
    return index, np.arange(width)[None] < np.array([len(ids) for ids in rows])[:, None]


def part_width(batch: Batch, num_groups: int) -> int:
    """Return a size for the parts of `in_parts`: a third of the mean size of a group, as a power of two."""
    return third(int((np.asarray(batch.weight).max(0) > 0).sum()), num_groups)


def third(rows: int, num_groups: int) -> int:
    """Return a third of the mean size of `num_groups` groups, rounded up to a power of two."""
    return _round_up(max(-(-rows // (3 * num_groups)), 1), 0)


def in_parts(
    index: Int[Ints, "G R"], real: Bool[Bools, "G R"], width: int
) -> tuple[Int[Ints, "parts {width}"], Bool[Bools, "parts {width}"], Int[Ints, " parts"]]:
    """Split groups into parts of `width` rows, since the longest group would otherwise set the size of all.

    Returns index and mask of the parts, and the group that each belongs to; every group has at least one.
    """
    num_groups, rows = index.shape
    cut = [np.pad(leaf, ((0, 0), (0, -rows % width))).reshape(-1, width) for leaf in (index, real)]
    per_group = len(cut[0]) // num_groups
    owner = np.repeat(np.arange(num_groups), per_group)
    kept = cut[1].any(1) | (np.arange(len(owner)) % per_group == 0)
    return cut[0][kept], cut[1][kept], owner[kept]


def _round_up(count: int, bits: int = 3) -> int:
    """Round up to a multiple of the next power of two divided by `2^bits`."""
    unit = 1 << max((count - 1).bit_length() - bits, 0)
    return -(-count // unit) * unit
