"""HackMatrix as an environment: observation, reward, step limit and auto-reset around the rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix.hidden import redrawn
from hmx.envs.hackmatrix.observation import FLAT_SIZE, WORDS, cells_view, decode, packed
from hmx.envs.hackmatrix.rewards import VICTORY_BASE, VICTORY_PER_SCORE, reward_terms
from hmx.envs.hackmatrix.rules import ACTION_NAMES, NUM_ACTIONS, PROGRAMS, Events, Rules, State
from hmx.envs.hackmatrix.rules.enemies import Occupied
from hmx.envs.hackmatrix.rules.generate import later_game, populate
from hmx.envs.hackmatrix.rules.mask import legal_actions, legal_word
from hmx.envs.hackmatrix.rules.play import TurnResult, advance, fresh, random_words
from hmx.envs.hackmatrix.rules.scenario import to_dict
from hmx.envs.hackmatrix.rules.state import where
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, SIPHON
from hmx.envs.protocol import Env, EnvSpec, SearchStep
from hmx.types import Array, Key, Timestep

ACTION_GROUPS = (("move", 0, SIPHON), ("siphon", SIPHON, FIRST_PROGRAM), ("program", FIRST_PROGRAM, NUM_ACTIONS))
PROGRAM_KEYS = tuple(p.name.replace("+", "_plus").replace("-", "_") for p in PROGRAMS)


# Traced once, although two kinds of steps use them.
_advance = jax.jit(advance, static_argnames="rules")
_populate = jax.jit(populate, static_argnames="rules")


class HackMatrixState(NamedTuple):
    """A batch of games along the trailing axis, with the steps of the episode and the valid actions as bits."""

    game: State
    steps: Array  # int32 [E]
    legal: Array  # uint32 [E]


class _Stage(NamedTuple):
    """Games in which every stage is generated, without their snapshots."""

    game: State
    occupied: Occupied
    lost: Array  # int32 [E], transmissions that found no slot


class _View(NamedTuple):
    """The visible part of games."""

    obs: Array  # [E, 1, ...]
    legal: Array  # uint32 [E]


def _describe(state: HackMatrixState) -> dict[str, Any]:
    """Return the position of the only game in the batch, in the form of a scenario file."""
    return {"position": to_dict(jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], state.game))}


def _redrawn(
    state: HackMatrixState, keys: Key, expected: HackMatrixState | None = None, known: Array | None = None
) -> HackMatrixState:
    """Draw again what the player cannot see; without an expectation, UNDO keeps its snapshots as they are."""
    game, (words, _) = state.game, random_words(keys)
    if expected is not None and known is not None:
        enemies = jnp.where(known, expected.game.enemies, jnp.uint32(0))
        return state._replace(game=redrawn(game, words, expected.game._replace(enemies=enemies)))
    return state._replace(game=redrawn(game, words)._replace(history=game.history, history_count=game.history_count))


def _score_at_a_win(weights: RewardWeights, state: HackMatrixState, value: Array) -> Array:
    """Return the part of a return that the score so far adds, float32 [E]; the observation does not contain the score.

    The value over the worth of a win without score estimates the probability of a win.
    """
    win = vars(weights)["victory"]
    won = jnp.clip(value / max(win * VICTORY_BASE, 1.0), 0.0, 1.0)
    worth: Array = won * win * VICTORY_PER_SCORE * state.game.score
    return worth


def make_hackmatrix(cfg: EnvConfig, weights: RewardWeights) -> Env:
    """Build HackMatrix with the rules and the observation of `cfg` and the reward of `weights`."""
    rules = Rules(undo_depth=cfg.undo_depth, name=cfg.rules)
    is_packed = cfg.obs == "packed"

    def observe(game: State) -> Array:
        words = packed(game).T[:, None]
        return words if is_packed else decode(words)

    reset = partial(_reset, rules=rules, weights=weights, observe=observe)
    spec = EnvSpec(
        id="hackmatrix",
        obs_shape=(WORDS,) if is_packed else (FLAT_SIZE,),
        obs_dtype=jnp.uint32 if is_packed else jnp.float32,
        num_actions=NUM_ACTIONS,
        max_steps=cfg.max_steps,
        reward_terms=tuple(vars(weights)),
        action_groups=ACTION_GROUPS,
        action_names=ACTION_NAMES,
        state_axis=-1,
        decode=decode if is_packed else None,
        cells=cells_view if is_packed else None,
        describe=_describe,
        later_reset=partial(reset, later=True),
        redrawn=_redrawn,
        unseen_value=partial(_score_at_a_win, weights),
    )
    step = partial(_step, rules=rules, weights=weights, observe=observe, spec=spec)
    play = partial(_play, rules=rules, weights=weights, observe=observe, spec=spec)
    # A program that steps in several places, as a search does, then contains the thousands of operations once.
    return Env(spec, jax.jit(reset), jax.jit(step), jax.jit(play))


def _reset(
    keys: Key, rules: Rules, weights: RewardWeights, observe: Callable[[State], Array], later: bool = False
) -> tuple[HackMatrixState, Timestep]:
    words, _ = random_words(keys)
    state, occ = fresh(words, rules)
    if later:
        state = later_game(state, words)
    everywhere = jnp.ones(keys.shape, bool)
    state, occ, _ = populate(state, everywhere, occ, words, rules)
    legal = legal_word(state, occ)
    obs = observe(state)
    nothing = Events(*(jnp.zeros_like(state.hp) for _ in Events._fields))
    terms = reward_terms(nothing, state, weights)
    no = ~everywhere
    info = _info(nothing._replace(program=nothing.program - 1), state)
    mask = _mask(legal)
    timestep = Timestep(obs, mask, obs, mask, _total(terms), no, no, no[:, None], terms, info)
    return HackMatrixState(state, jnp.zeros_like(state.hp), legal), timestep


def _step(
    state: HackMatrixState,
    action: Array,
    keys: Key,
    rules: Rules,
    weights: RewardWeights,
    observe: Callable[[State], Array],
    spec: EnvSpec,
) -> tuple[HackMatrixState, Timestep]:
    words, fresh_words = random_words(keys)
    played, steps, truncated = _turn(state, action, words, rules, spec)
    done = played.done | truncated
    terms = reward_terms(played.events, played.state, weights)

    history = played.state.history  # a new game does not need these, since it has no snapshot
    ended = played.state._replace(history=history[:0])
    new, nothing = fresh(fresh_words, rules)
    new = new._replace(history=history[:0])

    def generate(last: Array, stages: tuple[_Stage, _Stage]) -> tuple[_Stage, _Stage]:
        restarted = done & (last != 0)
        occ = jax.tree.map(lambda a, b: jnp.where(restarted, a, b), nothing, played.occupied)
        needed = jnp.where(last != 0, done | played.entered, cut)
        drawn = jnp.where(restarted[None], fresh_words, words)
        return _Stage(*_populate(where(restarted, new, ended), needed, occ, drawn, rules)), stages[0]

    def look(last: Array, views: tuple[_View, _View]) -> tuple[_View, _View]:
        seen = jax.tree.map(lambda a, b: jnp.where(last != 0, a, b), now, final)
        return _View(observe(seen.game), legal_word(seen.game, seen.occupied)), views[0]

    # Loops of one or two rounds instead of two calls, so that the largest parts of the program are compiled once:
    # first for the games as episodes ended, then as all continue. An episode truncated at the step that completed a
    # stage ends on the new stage, whose board is generated here.
    cut = truncated & played.entered
    stage = _Stage(ended, played.occupied, jnp.zeros_like(steps))
    now, final = lax.fori_loop(jnp.where(jnp.any(cut), 0, 1), 2, generate, (stage, stage))
    blank = _View(jnp.zeros((*keys.shape, 1, *spec.obs_shape), spec.obs_dtype), state.legal)
    (obs, legal), before = lax.fori_loop(jnp.where(jnp.any(done), 0, 1), 2, look, (blank, blank))
    game = now.game._replace(history=history)
    overflow = played.events.overflow + jnp.where(done, final.lost, now.lost)
    info = _info(played.events._replace(overflow=overflow), played.state)
    timestep = Timestep(
        obs,
        _mask(legal),
        jnp.where(done.reshape(-1, *(1,) * (obs.ndim - 1)), before.obs, obs),
        _mask(jnp.where(truncated, before.legal, legal)),
        _total(terms),
        played.done,
        truncated,
        played.done[:, None],
        terms,
        info,
    )
    return HackMatrixState(game, jnp.where(done, 0, steps), legal), timestep


def _play(
    state: HackMatrixState,
    action: Array,
    keys: Key,
    rules: Rules,
    weights: RewardWeights,
    observe: Callable[[State], Array],
    spec: EnvSpec,
) -> tuple[HackMatrixState, SearchStep]:
    words, _ = random_words(keys)
    played, steps, truncated = _turn(state, action, words, rules, spec)
    reward = _total(reward_terms(played.events, played.state, weights))
    history = played.state.history
    ended = played.state._replace(history=history[:0])
    game, occ, _ = _populate(ended, played.entered, played.occupied, words, rules)
    legal = legal_word(game, occ)
    after = HackMatrixState(game._replace(history=history), steps, legal)
    return after, SearchStep(observe(game), _mask(legal), reward, played.done, truncated)


def _turn(
    state: HackMatrixState, action: Array, words: Array, rules: Rules, spec: EnvSpec
) -> tuple[TurnResult, Array, Array]:
    """Play a turn; return it, the steps of the episode so far, and whether the step limit ends it."""
    played = _advance(state.game, action[:, 0], words, rules, state.legal)
    steps = state.steps + 1
    truncated = (steps >= spec.max_steps) & ~played.done if spec.max_steps else jnp.zeros_like(played.done)
    return played, steps, truncated


def _mask(legal: Array) -> Array:
    return legal_actions(legal).T[:, None]


def _total(terms: dict[str, Array]) -> Array:
    total = sum(terms.values(), start=jnp.zeros_like(next(iter(terms.values()))))
    return total[:, None]


def _info(events: Events, state: State) -> dict[str, Array]:
    info = {
        "highest_stage_max": state.stage,
        "wins_sum": events.victory,
        "stages_completed_sum": (events.stage_completed > 0).astype(jnp.int32),
        "undo_stages_sum": events.undo_stage,
        "deaths_sum": events.died,
        "overflow_sum": events.overflow,
    }
    used = {f"programs/{name}_sum": (events.program == k).astype(jnp.int32) for k, name in enumerate(PROGRAM_KEYS)}
    return info | used
