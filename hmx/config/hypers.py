"""The hyperparameters that change over a run, and how far the learner looks ahead."""

from __future__ import annotations

from typing import Any

from hmx.config import q_rules, schedules
from hmx.config.schema import AlgoConfig, Config

SCHEDULED: dict[str, tuple[str, str]] = {
    "learning_rate": ("lr_schedule", "lr_end"),
    "clip_eps": ("clip_schedule", "clip_end"),
    "ent_coef": ("ent_schedule", "ent_end"),
    "clip_vf_eps": ("clip_vf_schedule", "clip_vf_end"),
}
"""Scheduled option -> the options that hold its schedule and its end as a share of the start."""


def scheduled_values(algo: AlgoConfig, done: float) -> dict[str, float]:
    """Every scheduled hyperparameter where the share `done` of the run is over.

    The value clip is left out where it is off, the exponent of the importance weights where there are none.
    """
    values: dict[str, float] = {}
    for name, (schedule, end) in SCHEDULED.items():
        start = getattr(algo, name)
        if name == "clip_vf_eps" and not start:
            continue
        warmup = algo.lr_warmup if name == "learning_rate" else 0.0
        rate = algo.schedule_rate
        values[name] = schedules.value(getattr(algo, schedule), start, start * getattr(algo, end), done, rate, warmup)
    if algo.prio_alpha:
        values["prio_beta"] = schedules.prio_beta(algo.prio_beta0, algo.prio_alpha, done)
    return values


def q_values(cfg: Config, update: int) -> dict[str, float]:
    """What Q-learning does in the update of that number (from 0), and with which hyperparameters.

    `gradient_steps` is 0 until the buffer holds `dqn.learn_starts`. `_score` and `_survey` are 1 in updates that score,
    and that look at the whole buffer: switches, which no record shows. The exponent of the importance weights is left
    out where replay is uniform.
    """
    algo, dqn, replay = cfg.algo, cfg.dqn, cfg.replay
    done = schedules.progress(update * cfg.env.num_envs * algo.num_steps, cfg.run.total_steps)
    falling = min(done / dqn.epsilon_fraction, 1.0) if dqn.epsilon_fraction else 1.0
    learns = update >= q_rules.first_learning_update(cfg)
    values = {
        "learning_rate": scheduled_values(algo, done)["learning_rate"],
        "epsilon": schedules.value("linear", dqn.epsilon_start, dqn.epsilon_end, falling),
        "gradient_steps": float(dqn.gradient_steps if learns else 0),
        "_survey": float((update + 1) % replay.survey_every == 0),
    }
    if replay.mixing != "uniform":
        values["is_beta"] = schedules.value("linear", replay.is_beta, replay.is_beta_end, done)
    if cfg.score.every:
        values["_score"] = float(learns and (update + 1) % cfg.score.every == 0)
    return values


def schedule_table(algo: AlgoConfig) -> dict[str, dict[str, Any]]:
    """Per scheduled hyperparameter its schedule and its values at the start, in the middle and at the end."""
    start, middle, end = (scheduled_values(algo, done) for done in (0.0, 0.5, 1.0))
    return {
        name: {
            "schedule": getattr(algo, SCHEDULED[name][0]) if name in SCHEDULED else "linear",
            "start": start[name],
            "middle": middle[name],
            "end": end[name],
        }
        for name in start
    }


def horizons(algo: AlgoConfig, row: int | None) -> dict[str, float | int | None]:
    """How many steps ahead rewards and advantages reach, beside the length of a row.

    1 / (1 - gamma) is the mean lifetime of the discount, 1 / (1 - gamma lambda) that of the advantage trace; None where
    nothing fades.

    Args:
        algo: discount and lambda, in [0, 1].
        row: steps of a training row, if known.
    """
    fading = algo.gamma * algo.gae_lambda
    return {
        "gamma": algo.gamma,
        "gae_lambda": algo.gae_lambda,
        "reward_steps": 1.0 / (1.0 - algo.gamma) if algo.gamma < 1.0 else None,
        "advantage_steps": 1.0 / (1.0 - fading) if fading < 1.0 else None,
        "bptt_horizon": row,
    }
