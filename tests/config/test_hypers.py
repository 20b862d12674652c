"""Schedules are computed without JAX as the trainer computes them."""

import pytest

from hmx.algos.ppo.update import scheduled
from hmx.config import schedules
from hmx.registry.algorithms import hyperparameters
from hmx.registry.load import load

CHANGES = [
    [],
    ["algo.lr_schedule=cosine", "algo.lr_end=0.1", "algo.lr_warmup=0.3"],
    ["ppo.clip_vf_eps=0.2", "ppo.clip_vf_schedule=exponential", "ppo.clip_vf_end=0.5", "algo.schedule_rate=3"],
    ["ppo.prio_alpha=0.5", "ppo.ent_schedule=linear", "ppo.ent_end=0"],
    ["ppo.clip_schedule=logarithmic", "ppo.clip_end=0.25"],
    ["env.id=hackmatrix", "starts.share=0.5", "starts.share_schedule=linear", "starts.share_end=0"],
]


@pytest.mark.parametrize("sets", CHANGES)
@pytest.mark.parametrize("update", [0, 1, 7, 16, 40])
def test_the_trainer_gets_the_same_values(sets, update):
    cfg = load(preset="tiny", sets=sets, environ={}).config
    done = schedules.progress(update * cfg.env.num_envs * cfg.algo.num_steps, cfg.run.total_steps)
    assert hyperparameters(cfg, done) == scheduled(cfg, update)
