"""Evaluation of a fixed policy over complete episodes, without a bias towards short ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.metrics import info_name
from hmx.algos.search import SearchAct, act_alone
from hmx.algos.types import Algorithm, Carry, TrainState
from hmx.envs.protocol import Env
from hmx.rl import distributions, policies
from hmx.types import Array, Key, Timestep


class EvalPolicy(NamedTuple):
    """How actions are chosen.

    `act(train state, env state, carry, obs [E, A, ...], legal [E, A, num_actions], reset [E], key)` returns the action
    `[E, A]` and the carry; only a search reads the state of the environment. `initial_carry((E, A))` returns an empty
    RNN carry.
    """

    act: Callable[[Any, Any, Any, Array, Array, Array, Key], tuple[Array, Any]]
    initial_carry: Callable[[tuple[int, int]], Carry]
    looks_ahead: bool = False  # whether a decision costs many steps, also in an environment that has finished


TO_THE_END = 2**30  # steps: more than any evaluation takes
STEP_LIMIT = 10_000  # steps of an episode if the environment has no limit


class Episodes(NamedTuple):
    """One entry per episode, in the order in which they begin, `[N]`.

    `info` has the environment's `_max` and `_sum` keys without these endings.
    """

    total: Array  # reward, summed over steps and agents
    terms: dict[str, Array]  # each reward term, summed over steps
    length: Array  # int32
    finished: Array  # bool: False only if an episode was abandoned at a limit of steps
    info: dict[str, Array]


class Play(NamedTuple):
    """An evaluation in progress, in `E` environments."""

    env_state: Any
    obs: Array
    legal: Array
    carry: Any
    reset: Array  # [E] bool
    step: Array  # int32
    entry: Array  # [E] int32: the episode that each environment plays; N or more if no episode is left
    episodes: Episodes  # [N]


def random_policy(
    initial_carry: Callable[[tuple[int, int]], Carry] = lambda shape: None, action_dim: int = 0
) -> EvalPolicy:
    """Return a policy that chooses legal actions uniformly at random.

    Args:
        initial_carry: returns an empty RNN carry, which the policy leaves unchanged.
        action_dim: numbers of a continuous action; 0 if actions are discrete.
    """

    def act(
        state: TrainState, env_state: Any, carry: Carry, obs: Array, legal: Array, reset: Array, key: Key
    ) -> tuple[Array, Carry]:
        return random_actions(key, legal, action_dim), carry

    return EvalPolicy(act, initial_carry)


def random_actions(key: Key, legal: Array, action_dim: int, parts: tuple[int, ...] = ()) -> Array:
    """Draw legal actions uniformly: int32 `[...]` for a mask `[..., actions]`, or float32 `[..., action_dim]`.

    An action of several `parts` is int32 `[..., P]`.
    """
    if parts:
        return policies.multi_categorical(parts).sample(key, jnp.zeros(legal.shape, jnp.float32), legal)
    if action_dim:
        return jax.random.uniform(key, (*legal.shape[:-1], action_dim), jnp.float32, -1.0, 1.0)
    return distributions.sample(key, jnp.zeros(legal.shape, jnp.float32), legal)


def algorithm_policy(algorithm: Algorithm, greedy: bool) -> EvalPolicy:
    """Return the policy of an algorithm, sampled or greedy."""
    return search_policy(algorithm, act_alone(algorithm, greedy), looks_ahead=False)


def search_policy(algorithm: Algorithm, decide: SearchAct, looks_ahead: bool = True) -> EvalPolicy:
    """Return the policy of an algorithm improved by search; `decide` is that of `hmx.algos.search.make_search`."""

    def act(*seen: Any) -> tuple[Array, Carry]:
        decision, carry = decide(*seen)
        return decision.action, carry

    return EvalPolicy(act, algorithm.initial_carry, looks_ahead)


class Evaluation(NamedTuple):
    """An evaluation step by step: an environment that finishes an episode starts the next one in the queue.

    Every started episode counts, because the first N to end would favour short ones.
    """

    start: Callable[[Key], Play]
    step: Callable[[TrainState, Key, Play], tuple[Play, Timestep]]
    unfinished: Callable[[Play], Array]


def make_evaluation(
    env: Env, policy: EvalPolicy, num_envs: int, num_episodes: int, longest: int | None = None
) -> Evaluation:
    """Return an evaluation of `num_episodes` in up to `num_envs` environments.

    `longest` is the maximum number of steps of an episode; None takes the limit of the environment.
    """
    num_envs = min(num_envs, num_episodes)
    rounds = 1 if num_envs == num_episodes else -(-num_episodes // num_envs) + 1
    limit = rounds * (longest or env.spec.max_steps or STEP_LIMIT)

    def start(key: Key) -> Play:
        env_state, timestep = env.reset(jax.random.split(key, num_envs))
        return Play(
            env_state,
            timestep.obs,
            timestep.legal,
            policy.initial_carry((num_envs, env.spec.num_agents)),
            jnp.ones(num_envs, bool),
            step=jnp.int32(0),
            entry=jnp.arange(num_envs),
            episodes=_no_episodes(env.spec.reward_terms, timestep, num_episodes),
        )

    def unfinished(play: Play) -> Array:
        return jnp.any(play.entry < num_episodes) & (play.step < limit)

    return Evaluation(start, partial(_step, env, policy), unfinished)


class Played(NamedTuple):
    """The progress of an evaluation."""

    unfinished: Array  # bool
    episodes: Array  # int32: finished
    steps: Array  # float32, of all episodes


class Chunks(NamedTuple):
    """An evaluation as jitted functions that take some steps at a time; the split does not change results.

    - `start(key)` returns the first `Play`, and the key of all steps.
    - `advance(train state, key, play, num_steps)` takes up to `num_steps` steps, fewer if all episodes end, and returns
      the play and its progress. It consumes `play`: its buffers are donated.
    """

    start: Callable[[Key], tuple[Play, Key]]
    advance: Callable[[TrainState, Key, Play, int | np.int32 | Array], tuple[Play, Played]]


def make_chunks(env: Env, policy: EvalPolicy, num_envs: int, num_episodes: int) -> Chunks:
    """Return an evaluation of `num_episodes` in up to `num_envs` environments; see `Evaluation`."""
    whole = make_evaluation(env, policy, num_envs, num_episodes)

    def start(key: Key) -> tuple[Play, Key]:
        k_reset, k_steps = jax.random.split(key)
        return whole.start(k_reset), k_steps

    def advance(state: TrainState, key: Key, play: Play, num_steps: int | np.int32 | Array) -> tuple[Play, Played]:
        stop = play.step + num_steps
        play = jax.lax.while_loop(
            lambda play: whole.unfinished(play) & (play.step < stop), lambda play: whole.step(state, key, play)[0], play
        )
        found = play.episodes
        return play, Played(whole.unfinished(play), found.finished.sum(), found.length.astype(jnp.float32).sum())

    return Chunks(jax.jit(start), jax.jit(advance, donate_argnums=2))


def make_evaluator(
    env: Env, policy: EvalPolicy, num_envs: int, num_episodes: int
) -> Callable[[TrainState, Key], Episodes]:
    """Return a function `(train state, key) -> Episodes` with `num_episodes` entries; see `make_chunks`."""
    chunks = make_chunks(env, policy, num_envs, num_episodes)

    def evaluate(state: TrainState, key: Key) -> Episodes:
        play, k_steps = chunks.start(key)
        play, _ = chunks.advance(state, k_steps, play, TO_THE_END)
        return play.episodes

    return evaluate


def _no_episodes(terms: Sequence[str], timestep: Timestep, count: int) -> Episodes:
    info = {}
    for key in timestep.info:
        name, kind = info_name(key)
        if kind in ("max", "sum"):
            info[name] = jnp.full(count, -jnp.inf if kind == "max" else 0.0, jnp.float32)
    return Episodes(
        total=jnp.zeros(count, jnp.float32),
        terms={name: jnp.zeros(count, jnp.float32) for name in terms},
        length=jnp.zeros(count, jnp.int32),
        finished=jnp.zeros(count, bool),
        info=info,
    )


def _step(env: Env, policy: EvalPolicy, state: TrainState, key: Key, play: Play) -> tuple[Play, Timestep]:
    k_act, k_env = jax.random.split(jax.random.fold_in(key, play.step))
    action, carry = policy.act(state, play.env_state, play.carry, play.obs, play.legal, play.reset, k_act)
    env_state, timestep = env.step(play.env_state, action, jax.random.split(k_env, play.entry.shape[0]))
    done = timestep.terminated | timestep.truncated
    episodes, entry = play.episodes, play.entry
    info = dict(episodes.info)
    for key_name, value in timestep.info.items():
        name, kind = info_name(key_name)
        if kind == "max":
            info[name] = info[name].at[entry].max(value, mode="drop")
        elif kind == "sum":
            info[name] = info[name].at[entry].add(value, mode="drop")
    episodes = Episodes(
        total=episodes.total.at[entry].add(timestep.reward.sum(-1), mode="drop"),
        terms={name: total.at[entry].add(timestep.terms[name], mode="drop") for name, total in episodes.terms.items()},
        length=episodes.length.at[entry].add(1, mode="drop"),
        finished=episodes.finished.at[entry].set(done, mode="drop"),
        info=info,
    )
    entry = jnp.where(done, entry.max() + jnp.cumsum(done), entry)
    return Play(env_state, timestep.obs, timestep.legal, carry, done, play.step + 1, entry, episodes), timestep
