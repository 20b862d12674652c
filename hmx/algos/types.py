"""Records of a learning algorithm: its training state, its decisions, and the functions it consists of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import optax
from typing_extensions import TypeVar

from hmx.config.learning import PpoConfig
from hmx.envs.protocol import EnvState
from hmx.rl.normaliser import RunningStats
from hmx.types import Array, Key, Metrics

Params = Any
Carry = Any  # RNN carry, a pytree [E, A, ...]; None for a feed-forward network
Hypers = dict[str, Array]  # scheduled hyperparameter -> float32 scalar, for one update


class Episode(NamedTuple):
    """Running totals of the current episodes: reward (summed over agents) and steps, `[E]`."""

    total: Array
    length: Array
    later: Array | None = None  # bool: began in a later stage; None if no episode does (`starts.share` is 0)

    @classmethod
    def start(cls, num_envs: int) -> Episode:
        """Return totals of 0."""
        return cls(jnp.zeros(num_envs, jnp.float32), jnp.zeros(num_envs, jnp.int32))


class FirstEpisodes(NamedTuple):
    """The first episodes of the environments, whose metrics are held back until all of them have ended.

    All environments start together, so the episodes that end first are the short ones; a mean over them is biased.
    """

    running: Array  # [E] bool: the environment is in its first episode
    holding: Array  # bool: some environment was in its first episode when the rollout began
    held: Metrics  # metrics of the first episodes that have ended; without data unless `holding`


class Starts(NamedTuple):
    """One start state of every environment."""

    env_state: EnvState
    obs: Array  # [E, A, *obs_shape]
    legal: Array  # [E, A, num_actions]
    later: Array | None = None  # [E] bool: in a later stage; where false, the state is not used. None: all are used


class RolloutState(NamedTuple):
    """Where the next rollout continues: environments, observations, RNN carry and current episodes."""

    env_state: EnvState
    obs: Array  # [E, A, *obs_shape]: the observation the next action is chosen from
    legal: Array  # [E, A, num_actions]
    episode: Episode  # [E]
    carry: Carry  # [E, A, ...]: before the network reads `obs`
    reset: Array  # [E] bool: `obs` is the first of an episode, so the carry is reset before it is used
    agent_done: Array  # [E, A] bool: the episode has ended for this agent, but not for all
    obs_stats: RunningStats | None = None  # None if observations are not normalised
    starts: Starts | None = None  # start states that episodes restart from; None draws new ones
    first: FirstEpisodes | None = None  # None counts every episode when it ends
    reference_carry: Carry = None  # [E, A, ...]: of the reference policy of `ppo.ref`, before it reads `obs`


LearnerT = TypeVar("LearnerT", default=Any)
StateT = TypeVar("StateT", default=Any)


class TrainState(NamedTuple, Generic[LearnerT]):
    """The complete state of training, for resuming: a pytree of arrays and one typed key."""

    params: Params
    opt_state: optax.OptState
    actors: RolloutState
    learner: LearnerT  # the part that only this algorithm has
    key: Key  # constant: every update folds its number in
    update: Array  # int32: finished updates


def keep_learned(before: Any, after: Any) -> Any:
    """Return the `TrainState` `after` with the learned parts of `before`."""
    return after._replace(params=before.params, opt_state=before.opt_state, learner=before.learner)


def split_actors(state: Any) -> Any:
    """Stand for `hmx.algos.sharding.partitions` of the environment, which `hmx.own.algorithm` fills in."""
    raise NotImplementedError


class Decision(NamedTuple):
    """Actions for one batch of observations, with their probabilities and values."""

    action: Array  # [E, A] int32, or [E, A, D] float32 in [-1, 1], for the environment
    log_prob: Array  # [E, A]
    probs: Array  # [E, A, num_actions], 0 where illegal; [E, A, 0] for continuous actions
    value: Array  # [E, A], in reward units as the learner scales them
    raw: Array | None = None  # the action before squashing, which is stored; None if that is the action itself


class HostedUpdate(NamedTuple):
    """An update in parts, for environments that the host steps between them (`hmx.algos.hosted`).

    - `acting(state)` returns the part of a state that the next two need, as a state without the rest.
    - `decide(acting, carry, obs, legal, reset, step)` returns the decision of a batch of environments, its RNN carry
      and its values; `step` is the number of the decision within the update.
    - `value(acting, carry, obs)` returns the values `[E, A]` of last observations, for truncated episodes.
    - `learn(state, experience, hypers)` returns the state after the update, and its metrics.
    - `horizon`: steps of a training sequence; the RNN carry is stored before each.
    """

    acting: Callable[[Any], Any]
    decide: Callable[[Any, Carry, Array, Array, Array, Array], tuple[Decision, Carry]]
    value: Callable[[Any, Carry, Array], Array]
    learn: Callable[[Any, Any, Hypers], tuple[Any, Metrics]]
    horizon: int


class Algorithm(NamedTuple, Generic[StateT]):
    """A learning algorithm as pure functions of its training state.

    - `init(key)` returns a new state.
    - `update(state, hypers)` does one rollout and its gradient steps.
    - `hypers(update)` returns the scheduled hyperparameters of an update (numbered from 0). It runs on the host and
      depends on nothing else, so a resumed run needs no schedule state.
    - `act(state, carry, obs, legal, reset, key, greedy)` returns the decision and the new RNN carry `[E, A, ...]`,
      which is reset where `reset [E]` holds before it is used; `greedy` is static.
    - `initial_carry((E, A))` returns an empty RNN carry.
    - `forget(before, after)` returns `after` with the parameters, optimiser and statistics of `before`.
    - `partitions(state)` returns for every leaf how it is split over several devices; see `hmx.algos.sharding`.
    - `experience(state, hypers)` returns the training data of `update` as arrays by name, for diagnosis.
    - `select(sound, after, before)` returns `after` where the flag holds, else `before`, for states that are too large
      to be held twice; None selects leaf by leaf.
    - `hosted` is the update in parts, for simulators; None for an algorithm that needs environments in JAX.
    - `reward_scale` is the factor of the rewards that its values predict.
    - A value of `hypers` that is a bool is a switch: it enters the update, but not the records.

    Everything after `act` has a default: no RNN carry, and a `TrainState` in which only `actors` has an axis of
    environments.
    """

    init: Callable[[Key], StateT]
    update: Callable[[StateT, Hypers], tuple[StateT, Metrics]]
    hypers: Callable[[int], dict[str, float]]
    act: Callable[..., tuple[Decision, Carry]]
    initial_carry: Callable[[tuple[int, int]], Carry] = lambda shape: None
    forget: Callable[[StateT, StateT], StateT] = keep_learned
    partitions: Callable[[StateT], Any] = split_actors
    experience: Callable[[StateT, Hypers], dict[str, Array]] = lambda state, hypers: {}
    select: Callable[[Array, StateT, StateT], StateT] | None = None
    hosted: HostedUpdate | None = None
    reward_scale: float = PpoConfig.reward_scale


Tree = TypeVar("Tree")


def tree_where(where: Array, new: Tree, old: Tree) -> Tree:
    """Return `new` where the flag holds, else `old`; `where` is one flag, or one per seed."""

    def leaf(a: Array, b: Array) -> Array:
        # The old key has been used to make the new state, which is then discarded: no reuse, but the checker cannot
        # know that.
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            data = leaf(jax.random.key_data(a), jax.random.key_data(b))
            key: Array = jax.random.wrap_key_data(data, impl=jax.random.key_impl(a))
            return key
        chosen: Array = jnp.where(where.reshape(where.shape + (1,) * (a.ndim - where.ndim)), a, b)
        return chosen

    chosen: Tree = jax.tree.map(leaf, new, old)
    return chosen
