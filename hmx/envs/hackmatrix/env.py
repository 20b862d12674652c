"""HackMatrix as an environment: observation, reward, step limit and auto-reset around the rules."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix.entry import ObsKind
from hmx.envs.hackmatrix.hidden import redrawn
from hmx.envs.hackmatrix.observation import COUNTED_WORDS, FLAT_SIZE, WORDS, cells_view, decode, observed, packed
from hmx.envs.hackmatrix.rewards import reward_terms
from hmx.envs.hackmatrix.rules import ACTION_NAMES, NUM_ACTIONS, PROGRAMS, Events, Rules, State
from hmx.envs.hackmatrix.rules.generate import populate
from hmx.envs.hackmatrix.rules.mask import legal_actions, legal_word
from hmx.envs.hackmatrix.rules.play import advance, first_stage, random_words
from hmx.envs.hackmatrix.rules.roster import for_few, lanes_of
from hmx.envs.hackmatrix.rules.scenario import to_dict
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, SIPHON
from hmx.envs.hackmatrix.symmetries import SYMMETRIES, turned
from hmx.envs.protocol import Env, EnvSpec, both_halves
from hmx.types import Array, Key, Timestep

ACTION_GROUPS = (("move", 0, SIPHON), ("siphon", SIPHON, FIRST_PROGRAM), ("program", FIRST_PROGRAM, NUM_ACTIONS))
PROGRAM_KEYS = tuple(p.name.replace("+", "_plus").replace("-", "_") for p in PROGRAMS)


class HackMatrixState(NamedTuple):
    """A batch of games along the trailing axis, with the steps of the episode and the valid actions as bits."""

    game: State
    steps: Array  # int32 [E]
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


def make_hackmatrix(cfg: EnvConfig, weights: RewardWeights) -> Env:
    """Build HackMatrix with the rules and the observation of `cfg` and the reward of `weights`."""
    rules = Rules(undo_depth=cfg.undo_depth, name=cfg.rules)
    is_packed = cfg.obs != "flat"
    reset = partial(_reset, rules=rules, weights=weights, obs=cfg.obs)
    spec = EnvSpec(
        id="hackmatrix",
        obs_shape=(_words(cfg.obs) if is_packed else FLAT_SIZE,),
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
        symmetries=SYMMETRIES if is_packed else (),
        turned=turned if is_packed else None,
    )
    # A program that steps in several places, as a search does, is then traced once.
    play = jax.jit(partial(_play, rules=rules, weights=weights, obs=cfg.obs, max_steps=cfg.max_steps))
    renew = jax.jit(partial(_renew, rules=rules, obs=cfg.obs))
    return Env(spec, jax.jit(reset), jax.jit(both_halves(play, renew)), play, renew)


def _words(obs: ObsKind) -> int:
    return COUNTED_WORDS if obs == "counted" else WORDS


def _reset(
    keys: Key, rules: Rules, weights: RewardWeights, obs: ObsKind, later: bool = False
) -> tuple[HackMatrixState, Timestep]:
    words, _ = random_words(keys)
    game, seen, legal = _new_games(words, rules, obs, later)
    nothing = Events(*(jnp.zeros_like(game.hp) for _ in Events._fields))
    terms = reward_terms(nothing, game, weights)
    no = jnp.zeros(keys.shape, bool)
    info = _info(nothing._replace(program=nothing.program - 1), game)
    first, mask = observed(seen, obs), _mask(legal)
    timestep = Timestep(first, mask, first, mask, _total(terms), no, no, no[:, None], terms, info)
    return HackMatrixState(game, jnp.zeros_like(game.hp), legal), timestep


def _new_games(words: Array, rules: Rules, obs: ObsKind, later: bool = False) -> tuple[State, Array, Array]:
    """Return new games, their packed observations [words, E] and their legal actions as bits [E]."""
    game, occ = first_stage(words, rules, later)
    return game, packed(game, obs), legal_word(game, occ)


def _play(
    state: HackMatrixState,
    action: Array,
    keys: Key,
    rules: Rules,
    weights: RewardWeights,
    obs: ObsKind,
    max_steps: int,
) -> tuple[HackMatrixState, Timestep]:
    words, _ = random_words(keys)
    played = advance(state.game, action[:, 0], words, rules, state.legal)
    steps = state.steps + 1
    truncated = (steps >= max_steps) & ~played.done if max_steps else jnp.zeros_like(played.done)
    terms = reward_terms(played.events, played.state, weights)
    history = played.state.history  # not read in a new stage
    thin = played.state._replace(history=history[:0])
    game, occ, lost = populate(thin, played.entered, played.occupied, words, rules)
    seen, legal = observed(packed(game, obs), obs), legal_word(game, occ)
    info = _info(played.events._replace(overflow=played.events.overflow + lost), played.state)
    ends = played.done, truncated, played.done[:, None]
    mask = _mask(legal)
    timestep = Timestep(seen, mask, seen, mask, _total(terms), *ends, terms, info)
    return HackMatrixState(game._replace(history=history), steps, legal), timestep


def _renew(
    state: HackMatrixState, timestep: Timestep, keys: Key, rules: Rules, obs: ObsKind
) -> tuple[HackMatrixState, Timestep]:
    _, fresh_words = random_words(keys)
    done = timestep.terminated | timestep.truncated
    history = state.game.history  # a new game does not read it, since it has no snapshot

    def new_games(words: Array) -> tuple[State, Array, Array]:
        game, seen, legal = _new_games(words, rules, obs)
        return game._replace(history=game.history[:0]), seen, legal

    lanes = lanes_of(len(keys))
    blank = jnp.zeros((_words(obs), *keys.shape), jnp.uint32)
    old = (state.game._replace(history=history[:0]), blank, state.legal)
    game, seen, legal = for_few(done, lanes, new_games, fresh_words, old)
    fresh = jnp.where(done.reshape(-1, *(1,) * (timestep.obs.ndim - 1)), observed(seen, obs), timestep.obs)
    mask = _mask(legal)
    final_legal = jnp.where(timestep.truncated[:, None, None], timestep.legal, mask)
    renewed = HackMatrixState(game._replace(history=history), jnp.where(done, 0, state.steps), legal)
    return renewed, timestep._replace(obs=fresh, legal=mask, final_legal=final_legal)


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
