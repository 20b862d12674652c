"""The hyperparameters that change during a run."""

from __future__ import annotations

from typing import NamedTuple

from hmx.config import derive, schedules
from hmx.config.fields import FIELDS, get
from hmx.config.schema import ALGORITHMS, Config


class Scheduled(NamedTuple):
    """The dotted keys of a scheduled hyperparameter: start, schedule, and end as a share of the start."""

    start: str
    schedule: str
    end: str


SCHEDULED: dict[str, Scheduled] = {
    "learning_rate": Scheduled("algo.learning_rate", "algo.lr_schedule", "algo.lr_end"),
    "clip_eps": Scheduled("ppo.clip_eps", "ppo.clip_schedule", "ppo.clip_end"),
    "ent_coef": Scheduled("ppo.ent_coef", "ppo.ent_schedule", "ppo.ent_end"),
    "clip_vf_eps": Scheduled("ppo.clip_vf_eps", "ppo.clip_vf_schedule", "ppo.clip_vf_end"),
    "start_share": Scheduled("starts.share", "starts.share_schedule", "starts.share_end"),
}
_ABSENT_AT_0 = ("clip_vf_eps", "start_share")


def scheduled_values(cfg: Config, progress: float) -> dict[str, float]:
    """Return every scheduled hyperparameter at `progress`, the finished share of the run.

    What the algorithm does not read is absent. So are the value clip, later starts and the exponent of the importance
    weights where they are off.
    """
    values: dict[str, float] = {}
    for name, keys in SCHEDULED.items():
        start, end = get(cfg, keys.start), get(cfg, keys.end)
        unread = cfg.algo.name in ALGORITHMS and not FIELDS[keys.start].read_by(cfg.algo.name)
        if unread or (name in _ABSENT_AT_0 and not start):
            continue
        warmup = cfg.algo.lr_warmup if name == "learning_rate" else 0.0
        rate = cfg.algo.schedule_rate
        values[name] = schedules.value(get(cfg, keys.schedule), start, start * end, progress, rate, warmup)
    if cfg.ppo.prio_alpha:
        values["prio_beta"] = schedules.prio_beta(cfg.ppo.prio_beta0, cfg.ppo.prio_alpha, progress)
    return values


def q_values(cfg: Config, update: int) -> dict[str, float | bool]:
    """Compute the hyperparameters of Q-learning in an update (from 0).

    `gradient_steps` is 0 until the buffer holds `dqn.learn_starts`. Two switches, which are no hyperparameters and so
    in no record, are bools: `score` where a scoring pass is due and `survey` where a pass over the whole buffer is.
    The exponent of the importance weights is absent if replay is uniform, `score` if nothing is scored.
    """
    algo, dqn, replay = cfg.algo, cfg.dqn, cfg.replay
    done = schedules.progress(update * cfg.env.num_envs * algo.num_steps, cfg.run.total_steps)
    falling = min(done / dqn.epsilon_fraction, 1.0) if dqn.epsilon_fraction else 1.0
    learns = update >= derive.first_learning_update(cfg)
    values: dict[str, float | bool] = {
        "learning_rate": scheduled_values(cfg, done)["learning_rate"],
        "epsilon": schedules.value("linear", dqn.epsilon_start, dqn.epsilon_end, falling),
        "gradient_steps": float(dqn.gradient_steps if learns else 0),
        "survey": (update + 1) % replay.survey_every == 0,
    }
    if replay.mixing != "uniform":
        values["is_beta"] = schedules.value("linear", replay.is_beta, replay.is_beta_end, done)
    if cfg.score.every:
        values["score"] = learns and (update + 1) % cfg.score.every == 0
    return values
