"""`hmx check-env` on simulators finds each fault, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import walk_sim
from simulators.conftest import recipe

from hmx.config.schema import EnvConfig
from hmx.own.simulator import simulated
from hmx.render.markdown import markdown
from hmx.reports.check_env.document import document
from hmx.reports.check_env.request import CheckEnvRequest
from hmx.reports.check_env.simulator import check_simulator
from hmx.simulators import checks
from hmx.simulators.checks import CHECKS, run_checks
from hmx.simulators.episode import Simulation


def checked(steps=60, **options):
    made = walk_sim.Options(**options)
    return run_checks([Simulation(walk_sim.make(made)) for _ in range(2)], seed=1, steps=steps)


def test_a_good_simulator_passes():
    answer = checked(state=True)
    assert (
        answer.problems == {}
        and list(answer.skipped) == ["masks", "copies"]
        and "no np_random" in answer.skipped["copies"]
    )
    assert answer.play.terminated == 8 and answer.play.truncated == 0


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("random", "determinism", "step 1 differs when it is repeated"),
        ("shared", "instances", "differs while another instance plays beside it"),
        ("continues", "ends", "continues with a new one"),
        ("slow reset", "reset", "a reset takes "),
        ("nan reward", "finite", "the reward is nan at step 1 of episode 0"),
        ("outside", "observations", "an observation lies outside its space at step 1 of episode 0"),
        ("shape", "observations", "an observation has shape"),
        ("no mask", "masks", "allows no action"),
        ("added mask", "masks", "info['action_mask'] has the number -inf; expected bools, or 0 and 1"),
        ("outlives", "resets", "step 1 differs when it is repeated after other episodes: its wrappers Walk keep"),
        ("lossy", "state", "after set_state at step 3, step 4 differs from before"),
        ("drift", "copies", "a step from the first state differs after set_state in another episode"),
    ],
)
def test_each_fault_is_found_alone(fault, check, words):
    answer = checked(fault=fault, state=fault in ("lossy", "drift"))
    assert list(answer.problems) == [check] and words in answer.problems[check]
    assert check in CHECKS


def test_a_simulator_may_refuse_a_step_after_the_end():
    assert checked(fault="no step after the end").problems == {}


@pytest.mark.parametrize(("step_seconds", "found"), [(0.001, ["reset"]), (0.004, [])])
def test_a_reset_may_take_as_long_as_the_steps_of_an_episode(step_seconds, found, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checks, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    class Slow(walk_sim.Walk):
        def reset(self, **given):
            now[0] += 0.02
            return super().reset(**given)

        def step(self, action):
            now[0] += step_seconds
            return super().step(action)

    slow = [Simulation(Slow(walk_sim.Options())) for _ in range(2)]
    assert list(run_checks(slow, seed=1, steps=60).problems) == found


def test_play_takes_legal_actions_only():
    assert checked(fault="masks", at=10**9).problems == {}


def test_a_play_without_an_end_skips_what_needs_one():
    assert "no episode ended in 5 steps" in checked(steps=5).skipped["ends"]


def test_observations_that_do_not_fit_name_the_space():
    spec = simulated(recipe(fault="shape"), EnvConfig(id="walk")).spec
    found = check_simulator(EnvConfig(id="walk"), spec, CheckEnvRequest(steps=20))
    assert [check.check for check in found.failed] == ["observations"]
    assert "observation_space" in found.failed[0].hint and "info" not in found.failed[0].hint
    text = markdown(document(found))
    assert "1 of 13 checks failed, 12 skipped." in text and text.count("the simulator cannot be played") == 1


def test_a_simulator_that_ends_its_worker_is_not_told_about_the_interface():
    spec = simulated(recipe(fault="die"), EnvConfig(id="walk")).spec
    (failed,) = check_simulator(EnvConfig(id="walk"), spec, CheckEnvRequest(steps=20)).failed
    assert failed.check == "interface" and failed.detail.endswith("was killed by signal 9")
    assert failed.hint == "correct the simulator, which ends with this error"
