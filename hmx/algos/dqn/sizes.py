"""Sizes and hyperparameters of Q-learning that follow from its configuration; no JAX."""

from __future__ import annotations

from hmx.config.schedules import progress, scheduled_values, value
from hmx.config.schema import Config
from hmx.registry import derive


def q_values(cfg: Config, update: int) -> dict[str, float | bool]:
    """Compute the hyperparameters of Q-learning in an update (from 0).

    `gradient_steps` is 0 until the buffer holds `dqn.learn_starts`. Two switches, which are no hyperparameters and so
    in no record, are bools: `score` where a scoring pass is due and `survey` where a pass over the whole buffer is.
    The exponent of the importance weights is absent if replay is uniform, `score` if nothing is scored.
    """
    algo, dqn, replay = cfg.algo, cfg.dqn, cfg.replay
    done = progress(update * cfg.env.num_envs * algo.num_steps, cfg.run.total_steps)
    falling = min(done / dqn.epsilon_fraction, 1.0) if dqn.epsilon_fraction else 1.0
    learns = update >= derive.first_learning_update(cfg)
    values: dict[str, float | bool] = {
        "learning_rate": scheduled_values(cfg, done)["learning_rate"],
        "epsilon": value("linear", dqn.epsilon_start, dqn.epsilon_end, falling),
        "gradient_steps": float(dqn.gradient_steps if learns else 0),
        "survey": (update + 1) % replay.survey_every == 0,
    }
    if replay.mixing != "uniform":
        values["is_beta"] = value("linear", replay.is_beta, replay.is_beta_end, done)
    if cfg.score.every:
        values["score"] = learns and (update + 1) % cfg.score.every == 0
    return values
