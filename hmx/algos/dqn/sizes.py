"""Sizes and hyperparameters of Q-learning that follow from its configuration; no JAX."""

from __future__ import annotations

import math

from hmx.config.learning import ScoreConfig
from hmx.config.schedules import progress, value
from hmx.config.schema import Config
from hmx.registry.algorithms import hyperparameters


def replay_ratio(cfg: Config) -> float:
    """Compute how many times a transition is trained on, on average, once learning has started."""
    return cfg.dqn.gradient_steps * cfg.dqn.batch_size / (cfg.env.num_envs * cfg.algo.num_steps)


def scoring_rounds(score: ScoreConfig, batch: int) -> tuple[int, int]:
    """Compute the rounds of a scoring pass, and the positions scored in parallel in each, at most `score.chunk`.

    `batch` is the number of transitions that an update adds to the buffer, here and below.
    """
    wanted = score.transitions
    if score.coverage:
        wanted = math.ceil(score.coverage * score.every * batch)
    rounds = -(-wanted // score.chunk)
    return rounds, -(-wanted // rounds)


def scored_per_pass(score: ScoreConfig, batch: int) -> int:
    """Compute the transitions scored per pass: those asked for, rounded up to equal rounds."""
    return math.prod(scoring_rounds(score, batch))


def expected_coverage(score: ScoreConfig, batch: int) -> float:
    """Compute the scores per transition over its life; the capacity cancels out."""
    return scored_per_pass(score, batch) / (score.every * batch)


def first_learning_update(learn_starts: int, batch: int) -> int:
    """Compute the first update (from 0) with gradient steps: the buffer then holds `learn_starts` transitions."""
    return -(-learn_starts // batch) - 1


def q_values(cfg: Config, update: int) -> dict[str, float | bool]:
    """Compute the hyperparameters of Q-learning in an update (from 0).

    `gradient_steps` is 0 until the buffer holds `dqn.learn_starts`. Two switches, which are not hyperparameters and so
    in no record, are bools: `score` where a scoring pass is due and `survey` where a pass over the whole buffer is.
    The exponent of the importance weights is absent if replay is uniform, `score` if nothing is scored.
    """
    algo, dqn, replay = cfg.algo, cfg.dqn, cfg.replay
    batch = cfg.env.num_envs * algo.num_steps
    done = progress(update * batch, cfg.run.total_steps)
    falling = min(done / dqn.epsilon_fraction, 1.0) if dqn.epsilon_fraction else 1.0
    learns = update >= first_learning_update(dqn.learn_starts, batch)
    values: dict[str, float | bool] = {
        **hyperparameters(cfg, done),
        "epsilon": value("linear", dqn.epsilon_start, dqn.epsilon_end, falling),
        "gradient_steps": float(dqn.gradient_steps if learns else 0),
        "survey": (update + 1) % replay.survey_every == 0,
    }
    if replay.mixing != "uniform":
        values["is_beta"] = value("linear", replay.is_beta, replay.is_beta_end, done)
    if cfg.score.every:
        values["score"] = learns and (update + 1) % cfg.score.every == 0
    return values
