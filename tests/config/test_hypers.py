"""What the report says of schedules and horizons is what the trainer does."""

import dataclasses

import pytest

from hmx.agents.ppo import scheduled
from hmx.config import schedules
from hmx.config.hypers import horizons, schedule_table, scheduled_values
from hmx.config.load import load
from hmx.config.schema import AlgoConfig

CHANGES = [
    [],
    ["algo.lr_schedule=cosine", "algo.lr_end=0.1", "algo.lr_warmup=0.3"],
    ["algo.clip_vf_eps=0.2", "algo.clip_vf_schedule=exponential", "algo.clip_vf_end=0.5", "algo.schedule_rate=3"],
    ["algo.prio_alpha=0.5", "algo.ent_schedule=linear", "algo.ent_end=0"],
    ["algo.clip_schedule=logarithmic", "algo.clip_end=0.25"],
]


@pytest.mark.parametrize("sets", CHANGES)
@pytest.mark.parametrize("update", [0, 1, 7, 16, 40])
def test_the_trainer_gets_the_same_values(sets, update):
    cfg = load(preset="tiny", sets=sets, environ={}).config
    done = schedules.progress(update * cfg.env.num_envs * cfg.algo.num_steps, cfg.run.total_steps)
    assert scheduled_values(cfg.algo, done) == scheduled(cfg, update)


def test_the_published_schedules():
    table = schedule_table(load(preset="metta", environ={}).config.algo)
    expected = {
        "learning_rate": ("cosine", 4.57e-4, 2.435e-4, 3e-5),
        "clip_eps": ("logarithmic", 0.1, 0.0744045, 0.05),
        "ent_coef": ("linear", 0.0021, 0.00105, 0.0),
        "clip_vf_eps": ("linear", 0.1, 0.075, 0.05),
    }
    assert list(table) == list(expected)
    for name, (schedule, *values) in expected.items():
        assert table[name]["schedule"] == schedule
        assert [table[name][at] for at in ("start", "middle", "end")] == pytest.approx(values, rel=1e-6, abs=1e-12)


def test_a_schedule_that_is_off_is_not_shown():
    assert "clip_vf_eps" not in schedule_table(AlgoConfig()) and "prio_beta" not in schedule_table(AlgoConfig())
    beta = schedule_table(AlgoConfig(prio_alpha=0.5, prio_beta0=0.6))["prio_beta"]
    assert beta["end"] == pytest.approx(0.8) and beta["start"] == 0.6


def test_horizons():
    metta = load(preset="metta", environ={}).config.algo
    ahead = horizons(metta, 64)
    assert round(ahead["reward_steps"], 1) == 43.5 and round(ahead["advantage_steps"], 2) == 9.52
    assert ahead["bptt_horizon"] == 64
    forever = horizons(dataclasses.replace(metta, gamma=1.0, gae_lambda=1.0), 1)
    assert forever["reward_steps"] is None and forever["advantage_steps"] is None
