"""Evaluation of a fixed policy over complete episodes, without a bias towards short ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx import episodes as playing
from hmx.algos.metrics import info_name
from hmx.algos.search import SearchAct, act_alone
from hmx.algos.types import Algorithm, Carry, Decision, TrainState
from hmx.envs.protocol import Env, EnvSpec, take
from hmx.episodes import Now, Step
from hmx.rl import distributions, policies
from hmx.types import Array, Key


class EvalPolicy(NamedTuple):
    """How actions are chosen.

    `act(train state, env state, carry, obs [E, A, ...], legal [E, A, num_actions], reset [E], key)` returns the
    decision and the carry; only a search reads the state of the environment. `initial_carry((E, A))` returns an empty
    RNN carry.
    """

    act: Callable[..., tuple[Decision, Carry]]
    initial_carry: Callable[[tuple[int, int]], Carry] = lambda shape: None
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

    now: Now
    entry: Array  # [E] int32: the episode that each environment plays; N or more if no episode is left
    episodes: Episodes  # [N]


def random_policy(
    initial_carry: Callable[[tuple[int, int]], Carry] = lambda shape: None,
    action_dim: int = 0,
    parts: tuple[int, ...] = (),
) -> EvalPolicy:
    """Return a policy that chooses legal actions uniformly at random; its values are not numbers.

    Args:
        initial_carry: returns an empty RNN carry, which the policy leaves unchanged.
        action_dim: numbers of a continuous action; 0 if actions are discrete.
        parts: choices of each part of an action that has several.
    """

    def act(
        state: TrainState, env_state: Any, carry: Carry, obs: Array, legal: Array, reset: Array, key: Key
    ) -> tuple[Decision, Carry]:
        unknown, probs = jnp.full(legal.shape[:-1], jnp.nan), legal / legal.sum(-1, keepdims=True)
        return Decision(random_actions(key, legal, action_dim, parts), unknown, probs, unknown), carry

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
    return EvalPolicy(act_alone(algorithm, greedy), algorithm.initial_carry)


def search_policy(algorithm: Algorithm, decide: SearchAct) -> EvalPolicy:
    """Return the policy of an algorithm improved by search; `decide` is that of `hmx.algos.search.make_search`."""
    return EvalPolicy(decide, algorithm.initial_carry, looks_ahead=True)


def taking(action: Array) -> Decision:
    """Return a decision that consists of its action."""
    return Decision(action, *[None] * 3)  # type: ignore[arg-type]  # the rest is not read


def one_of(choices: Sequence[EvalPolicy]) -> EvalPolicy:
    """Return the policy that is chosen at run time: its state is `(index, train state)`, its decision an action."""

    def acting(policy: EvalPolicy, *seen: Any) -> tuple[Decision, Carry]:
        decision, carry = policy.act(*seen)
        return taking(decision.action), carry

    def act(agent: Any, *seen: Any) -> tuple[Decision, Carry]:
        branches = [partial(acting, choice) for choice in choices]
        chosen: tuple[Decision, Carry] = jax.lax.switch(agent[0], branches, agent[1], *seen)
        return chosen

    return EvalPolicy(act, choices[0].initial_carry, any(choice.looks_ahead for choice in choices))


class Evaluation(NamedTuple):
    """An evaluation step by step: an environment that finishes an episode starts the next one in the queue.

    Every started episode counts, because the first N to end would favour short ones. With an environment in JAX these
    functions are for compiled programs. With a simulator they are for the host; `on(env)` returns the same evaluation
    in its workers.
    """

    env: Env
    start: Callable[[Key], Play]
    step: Callable[[TrainState, Key, Play], tuple[Play, Step]]
    unfinished: Callable[[Play], Array]
    on: Callable[[Env], Evaluation]


def make_evaluation(
    env: Env, policy: EvalPolicy, num_envs: int, num_episodes: int, longest: int | None = None
) -> Evaluation:
    """Return an evaluation of `num_episodes` in up to `num_envs` environments like `env`.

    The seeds of a simulator belong to its environments, so each of these plays a fixed number of episodes. `longest` is
    the maximum number of steps of an episode; None takes the limit of the environment.
    """
    spec, num_envs = env.spec, min(num_envs, num_episodes)
    compiled, numbered = env.stepper.part, env.stepper.numbered
    rounds = -(-num_episodes // num_envs)
    limit = (rounds if numbered or rounds == 1 else rounds + 1) * (longest or spec.max_steps or STEP_LIMIT)
    decide = compiled(policy.act)

    @compiled
    def counted(entry: Array, episodes: Episodes, done: Array, *outcome: Any) -> tuple[Array, Episodes]:
        following = entry + num_envs if numbered else entry.max() + jnp.cumsum(done)
        return jnp.where(done, following, entry), _added(episodes, entry, done, *outcome)

    @compiled
    def is_unfinished(entry: Array, step: Array) -> Array:
        return jnp.any(entry < num_episodes) & (step < limit)

    def start(env: Env, key: Key) -> Play:
        now, first = playing.start(env, num_envs, policy.initial_carry((num_envs, spec.num_agents)), key)
        return Play(now, jnp.arange(num_envs), _no_episodes(spec.reward_terms, first.info, num_episodes))

    def step(env: Env, state: TrainState, key: Key, play: Play) -> tuple[Play, Step]:
        def act(now: Now, k_act: Key) -> tuple[Decision, Carry]:
            decided: tuple[Decision, Carry] = decide(
                state, now.env_state, now.carry, now.obs, now.legal, now.reset, k_act
            )
            return decided

        now, step = playing.step(env, act, play.now, key)
        seen = step.timestep
        return Play(now, *counted(*play[1:], step.ended, seen.reward, seen.terms, seen.info)), step

    def unfinished(play: Play) -> Array:
        more: Array = is_unfinished(play.entry, play.now.step)
        return more

    def on(env: Env) -> Evaluation:
        return Evaluation(env, partial(start, env), partial(step, env), unfinished, on)

    return on(env)


class Played(NamedTuple):
    """The progress of an evaluation."""

    unfinished: Array  # bool
    episodes: Array  # int32: finished
    steps: Array  # float32, of all episodes


class Chunks(NamedTuple):
    """An evaluation in parts: compiled programs, or for a simulator functions of the host.

    - `start(key)` returns the first `Play`, and the key of all steps.
    - `advance(train state, key, play, ...)` takes one step or more, and returns the play and what it reports.
    """

    start: Callable[[Key], tuple[Play, Key]]
    advance: Callable[..., tuple[Play, Any]]


OpenChunks = Callable[[int], AbstractContextManager[Chunks]]
"""Open an evaluation with a seed; the workers of a simulator end with the block."""


def _chunks(whole: Evaluation, advance: Callable[..., tuple[Play, Any]], donate: tuple[int, ...] = ()) -> Chunks:
    stepper = whole.env.stepper

    def start(key: Key) -> tuple[Play, Key]:
        k_reset, k_steps = stepper.split(key)
        return whole.start(k_reset), k_steps

    return Chunks(stepper.program(start), stepper.program(advance, donate_argnums=donate))


def make_chunks(whole: Evaluation) -> Chunks:
    """Return an evaluation in chunks of several steps; the split does not change results.

    `advance(train state, key, play, num_steps)` takes up to `num_steps` steps, fewer if all episodes end, and reports
    `Played`. It consumes `play`: its buffers are donated.
    """

    def advance(state: TrainState, key: Key, play: Play, num_steps: int | np.int32 | Array) -> tuple[Play, Played]:
        stop = play.now.step + num_steps
        play = whole.env.stepper.while_loop(
            lambda play: whole.unfinished(play) & (play.now.step < stop),
            lambda play: whole.step(state, key, play)[0],
            play,
        )
        found = play.episodes
        return play, Played(whole.unfinished(play), found.finished.sum(), found.length.astype(jnp.float32).sum())

    return _chunks(whole, advance, donate=(2,))


class KeptStep(NamedTuple):
    """One step of `K` environments, without what follows it."""

    env_state: Any  # before the action
    obs: Any  # before the action
    legal: Any
    decision: Decision
    reward: Any
    terms: Any
    info: Any
    terminated: Any
    truncated: Any


def keep_step(spec: EnvSpec, step: Step, envs: Any) -> KeptStep:
    """Return a step of the environments in `envs [K]`."""
    now, seen = step.before, step.timestep
    rest = (now.obs, now.legal, step.decision, seen.reward, seen.terms, seen.info, seen.terminated, seen.truncated)
    return KeptStep(take(spec, now.env_state, envs), *jax.tree.map(lambda leaf: leaf[envs], rest))


class Recorded(NamedTuple):
    """One step of the `K` episodes that are recorded."""

    playing: Array  # [K] bool: the episode is being played
    kept: Any  # [K, ...]
    unfinished: Array  # bool: another step of the evaluation follows


def make_recorder(whole: Evaluation, keep: Callable[[Step, Array], Any]) -> Chunks:
    """Return an evaluation that keeps `keep(step, envs [K])` of every step, of the environments in `envs`.

    `advance(train state, key, play, entries [K])` takes a step, and reports `Recorded` of the episodes in `entries`.
    """

    def chosen(step: Step, entry: Array, entries: Array) -> tuple[Array, Any]:
        here = entry[None] == entries[:, None]
        return here.any(1), keep(step, here.argmax(1))

    select: Callable[..., tuple[Array, Any]] = whole.env.stepper.part(chosen)

    def advance(state: TrainState, key: Key, play: Play, entries: Array) -> tuple[Play, Recorded]:
        after, step = whole.step(state, key, play)
        return after, Recorded(*select(step, play.entry, entries), whole.unfinished(after))

    return _chunks(whole, advance)


def record(
    recorder: Chunks, state: TrainState, key: Key, entries: Sequence[int]
) -> Iterator[tuple[Episodes, Recorded]]:
    """Play an evaluation and yield, after every step, the episodes so far and what is kept of those in `entries`."""
    (play, k_steps), unfinished = recorder.start(key), True
    while unfinished:
        play, recorded = recorder.advance(state, k_steps, play, np.asarray(entries, np.int32))
        unfinished = bool(recorded.unfinished)
        yield play.episodes, recorded


def _no_episodes(terms: Sequence[str], first: dict[str, Array], count: int) -> Episodes:
    info = {}
    for key in first:
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


def _added(
    episodes: Episodes, entry: Array, done: Array, reward: Array, terms: dict[str, Array], seen: dict[str, Array]
) -> Episodes:
    """Add a step to the episodes that are played; entries beyond the last one are dropped."""
    info = dict(episodes.info)
    for key, value in seen.items():
        name, kind = info_name(key)
        if kind == "max":
            info[name] = info[name].at[entry].max(value, mode="drop")
        elif kind == "sum":
            info[name] = info[name].at[entry].add(value, mode="drop")
    return Episodes(
        total=episodes.total.at[entry].add(reward.sum(-1), mode="drop"),
        terms={name: total.at[entry].add(terms[name], mode="drop") for name, total in episodes.terms.items()},
        length=episodes.length.at[entry].add(1, mode="drop"),
        finished=episodes.finished.at[entry].set(done, mode="drop"),
        info=info,
    )
