"""`hmx check-env` as a user runs it."""

from __future__ import annotations

import json

import jax.numpy as jnp
import pytest

from hmx.envs.small import counting
from hmx.envs.small.counting import make_counting
from hmx.errors import ExitCode
from hmx.reports.check_env import job

WORDS = ("check-env", "counting", "--steps", "24", "--num-envs", "2")


def test_passing_environment_is_measured_and_no_other_is_built(hmx, monkeypatch, tmp_path):
    built = []
    make_env = job.make_env
    monkeypatch.setattr(job, "make_env", lambda env, reward: built.append(env.id) or make_env(env, reward))
    result = hmx(*WORDS, "--json", "--html", "page.html", "--csv", "checks.csv")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["passed"] and {check["status"] for check in found["checks"]} == {"passed"}
    assert found["truncated"] > 0 and (found["max_steps"], found["checked_max_steps"]) == (1000, 6)
    assert set(built) == {"counting"}
    cost = found["cost"]
    assert cost["state_bytes"] == 8 and cost["obs_bytes"] == 4 and cost["steps_per_sec"] > 0
    assert "12 of 12 checks passed" in (tmp_path / "page.html").read_text()
    assert len((tmp_path / "checks.csv").read_text().splitlines()) == 13


def test_broken_environment_exits_with_4(hmx, monkeypatch):
    def broken(max_steps, length):
        env = make_counting(max_steps)

        def step(state, action, keys):
            state, timestep = env.step(state, action, keys)
            return state, timestep._replace(reward=timestep.reward + 1)

        return env._replace(step=step)

    monkeypatch.setattr(counting, "make_counting", broken)
    result = hmx(*WORDS)
    assert result.exit_code == ExitCode.CHECK_FAILED
    text = " ".join(result.stdout.split())
    assert "1 of 12 checks failed." in text
    assert "reward-terms: the terms sum to 0 and the reward is 1 at step 1 of environment 0. Fix: compute" in text
    assert result.stderr.startswith("compiling and checking ...\nerror: counting fails 1 of 12 checks: reward-terms\n")


def test_reward_term_that_is_not_finite_is_named(hmx, monkeypatch):
    def broken(max_steps, length):
        env = make_counting(max_steps)

        def step(state, action, keys):
            state, timestep = env.step(state, action, keys)
            bad = timestep.reward * jnp.nan
            return state, timestep._replace(reward=bad, terms={"count": bad.sum(-1)})

        return env._replace(step=step)

    monkeypatch.setattr(counting, "make_counting", broken)
    result = hmx(*WORDS, "--no-speed")
    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "finite: reward term count is not finite at step 1 of environment 0." in " ".join(result.stdout.split())


@pytest.mark.parametrize("key, named", [("env.slip=3", "env.slip"), ("env.num_agents=2", "env.num_agents")])
def test_invalid_setting_of_the_environment_is_refused(hmx, key, named):
    result = hmx("check-env", "corridor", "--set", key)
    assert result.exit_code == ExitCode.USAGE
    assert named in result.stderr and "hint" in result.stderr


def test_rules_that_only_concern_training_are_ignored(hmx):
    sizes = ("env.num_envs=3", "algo.num_steps=8", "ppo.num_minibatches=5")  # 24 steps do not split into 5 minibatches
    result = hmx(*WORDS, "--no-speed", *(word for size in sizes for word in ("--set", size)))
    assert result.exit_code == 0, result.output
