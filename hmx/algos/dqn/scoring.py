"""Scoring of stored transitions during Q-learning, and metrics of the whole buffer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from hmx.algos.dqn.learning import DqnComponents, team_value
from hmx.algos.dqn.sizes import scored_per_pass, scoring_rounds
from hmx.algos.types import Params
from hmx.config.learning import ScoreConfig
from hmx.nets import QNet
from hmx.replay import Experience, ReplayState, replay_metrics
from hmx.replay.stats import spearman
from hmx.rl import distributions
from hmx.scoring import Continuation, Positions, ScoreOptions, make_continuation, score
from hmx.scoring.options import check_options
from hmx.types import Array, Key, Max, Mean, Metrics

_WITHOUT_SCORES = ("ess", "prob_ratio", "alpha_td", "nonfinite")
"""Metrics of a buffer without scores; the others need sorting all of it."""


def score_options(options: ScoreConfig, gamma: float) -> ScoreOptions:
    """Return how consequence is measured: with the discount and the team reward of the learner."""
    return ScoreOptions(**vars(options), gamma=gamma, team_reward="sum")


def continuation(options: ScoreConfig, net: QNet) -> Continuation:
    """Return the policy of scoring rollouts, and the value at their end."""

    def value(params: Params, obs: Array, legal: Array) -> Array:
        values = net.values(params, obs)
        best = jnp.where(legal, values, -jnp.inf).max(-1)
        return team_value(best, jnp.ones_like(best, bool))

    return make_continuation(net.values, options.continuation, options.parameter, value)


def check_scoring(parts: DqnComponents) -> None:
    """Check the options of scoring.

    Raises:
        HmxError: an option needs outputs that the policy lacks, or there are too many joint actions.
    """
    if parts.cfg.score.every:
        check_options(parts.score_options, parts.env.spec, parts.continuation.probs is not None, True)


def score_pass(parts: DqnComponents, params: Params, replay: ReplayState, key: Key) -> tuple[ReplayState, Metrics]:
    """Choose transitions, score them with the current network, and write the scores of those still stored."""
    cfg = parts.cfg
    k_choose, k_score = jax.random.split(key)
    number = scored_per_pass(cfg.score, cfg.env.num_envs * cfg.algo.num_steps)
    chosen = parts.replay.choose(replay, k_choose, number, cfg.score.selection)
    scores, metrics = _consequences(parts, params, replay, chosen.index, chosen.valid, k_score)
    metrics["score/mean"] = Mean.of(scores, where=chosen.valid)
    metrics["score/max"] = Max(jnp.where(chosen.valid, scores, 0.0).max(), chosen.valid.sum().astype(jnp.float32))
    return parts.replay.set_scores(replay, chosen.index, chosen.birth, scores), metrics


def _consequences(
    parts: DqnComponents, params: Params, replay: ReplayState, index: Array, valid: Array, key: Key
) -> tuple[Array, Metrics]:
    cfg = parts.cfg
    rounds, _ = scoring_rounds(cfg.score, cfg.env.num_envs * cfg.algo.num_steps)

    def play(slots: Array) -> Any:
        items: Experience = jax.tree.map(lambda leaf: leaf[slots], replay.items)
        states = parts.replay.env_states(replay, slots)
        positions = Positions(states, items.obs_t, items.legal_t, items.action_t, replay.birth[slots])
        found = score(parts.env, parts.continuation, params, positions, key, parts.score_options)
        return found.score, found.halves, found.ended

    scores, halves, ended = jax.lax.map(play, index.reshape(rounds, -1))
    scores, ended = scores.reshape(-1), ended.reshape(-1)
    metrics: Metrics = {"score/ended": Mean.of(ended, where=valid)}
    if parts.score_options.rollouts > 1:
        by_half = jnp.moveaxis(halves, 1, 0).reshape(2, -1)
        metrics["score/reliability"] = Mean.of(*spearman(by_half[0], by_half[1], valid))
    return scores, metrics


def survey(parts: DqnComponents, replay: ReplayState) -> tuple[ReplayState, Metrics]:
    """Fit exponents if nothing else does, and compute the metrics of the whole buffer."""
    if parts.cfg.replay.target_ess and not parts.cfg.score.every:
        replay = parts.replay.retune(replay)
    found = replay_metrics(replay, parts.cfg.replay)
    known = found if parts.cfg.score.every else {name: found[name] for name in _WITHOUT_SCORES}
    return replay, {f"replay/{name}": metric for name, metric in known.items()}


def greedy_value(values: Float[Array, "*b n"], legal: Bool[Array, "*b n"]) -> Float[Array, "*b"]:
    """Return the value of the best legal action of each agent, `[..., A]`."""
    best = jnp.take_along_axis(values, distributions.mode(values, legal)[..., None], axis=-1)
    return best[..., 0]
