"""`hmx bench` names what was made slow."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
import walk_sim

from hmx.algos.search import act_alone
from hmx.algos.types import Algorithm, Decision
from hmx.envs import registry
from hmx.envs.small import counting
from hmx.envs.small.counting import make_counting
from hmx.errors import HmxError
from hmx.jobs.evaluation import no_progress
from hmx.records.jsonl import MetricsWriter
from hmx.registry import user_code
from hmx.registry.load import load
from hmx.reports.bench import job, measure, metrics_cost
from hmx.reports.bench.document import WHAT, document, suggestion
from hmx.reports.bench.findings import BenchFindings, SizeSpeed
from hmx.reports.bench.request import BenchRequest
from hmx.runs.loop import init_state
from hmx.runs.session import open_session, open_task
from hmx.runs.signals import StopNow
from hmx.stats.estimate import Estimate

TINY = ["env.id=counting", "env.num_envs=8", "algo.num_steps=8", "run.total_steps=64000", "run.updates_per_chunk=4"]
RARE = "run.checkpoint_every=1000"
QUICK = BenchRequest(seconds=1)
PHASES = ["compile", "environment", "acting", "update", "saving", "logging"]


def bench(*sets: str) -> BenchFindings:
    task = load(preset="tiny", sets=[*TINY, *sets], environ={})
    with mock.patch.object(job, "_PATIENCE", math.inf):  # an interval even where other programs are busy
        return job.bench(task, QUICK)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> BenchFindings:
    root = tmp_path_factory.mktemp("bench")
    result = bench("ppo.update_epochs=64", RARE, f"run.root={root / 'runs'}")
    assert list(root.iterdir()) == []  # nothing is left behind
    return result


def slow_environment(max_steps, length):
    """The counting environment, with steps that compute sines for long."""
    env = make_counting(max_steps)

    def step(state, action, keys):
        state, timestep = env.step(state, action, keys)
        burnt = jax.lax.fori_loop(0, 100_000, lambda _, x: jnp.sin(x), timestep.obs.astype(jnp.float32) + 1)
        return state, timestep._replace(obs=timestep.obs + 0 * burnt)

    return env._replace(step=step)


def test_every_phase_is_measured_and_learning_with_many_epochs_is_the_bottleneck(found):
    assert [phase.name for phase in found.phases] == PHASES and found.metrics is None
    rounds = found.by_name["update"].rounds
    assert rounds >= job.LEAST_ROUNDS
    for name in ("environment", "acting", "update"):
        phase = found.by_name[name]
        assert phase.rounds == rounds and phase.seconds.value > 0
        seconds, rate = phase.seconds, phase.steps_per_sec
        assert rate is not None and seconds.low is not None and seconds.high is not None
        assert 64 / seconds.high * 0.999 <= rate.value <= 64 / seconds.low * 1.001
    assert found.checkpoint_bytes > 1000
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    assert found.bottleneck == "learning"
    assert "learning (the rest of an update)" in found.verdict and "ppo.update_epochs is 64" in found.advice
    assert found.speed.num_envs == 8 and found.speed.compilation.seconds > 0


def test_a_slow_environment_is_the_bottleneck(monkeypatch, tmp_path):
    monkeypatch.setattr(counting, "make_counting", slow_environment)
    result = bench("ppo.update_epochs=1", RARE, f"run.root={tmp_path}")
    assert result.bottleneck == "environment"
    assert "of its time in environment steps" in result.verdict and "Make a step of counting cheaper" in result.advice


@pytest.mark.thorough
def test_the_search_that_chooses_actions_is_the_bottleneck(tmp_path):
    result = bench("algo.name=gumbel", "gumbel.num_simulations=32", "ppo.update_epochs=1", RARE, f"run.root={tmp_path}")
    assert result.bottleneck == "network"
    assert "gumbel.num_simulations is 32" in result.advice


@pytest.mark.thorough
def test_the_time_of_a_simulator_is_divided_between_it_and_the_messages(monkeypatch, tmp_path):
    walk = str(Path(walk_sim.__file__))
    user_code.allow(walk, "env.id")
    monkeypatch.setattr(job, "LEAST_ROUNDS", 3)
    settings = ["env.my.fault=slow step", "env.num_workers=2", "ppo.update_epochs=1", RARE, f"run.root={tmp_path}"]
    task = load(preset="tiny", sets=[*TINY, f"env.id={walk}", "env.max_steps=0", *settings], environ={})
    result = job.bench(task, BenchRequest(seconds=1))
    assert [phase.name for phase in result.phases] == ["compile", "simulators", *PHASES[1:]]
    assert {part.name for part in result.parts} == set(WHAT) and result.bottleneck == "environment"
    assert sum(part.share for part in result.parts) == pytest.approx(1.0)
    # 8 steps of 4 environments in each worker
    assert result.by_name["simulators"].seconds.value > 8 * 4 * walk_sim.SLOW_STEP
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("slow", "option"), [("saving", "run.checkpoint_every"), ("logging", "run.updates_per_chunk")])
def test_slow_saving_and_slow_logging_are_the_bottleneck(monkeypatch, tmp_path, slow, option):
    if slow == "saving":
        module, name = measure.checkpoint, "write"
    else:
        module, name = MetricsWriter, "flush"
    function = getattr(module, name)

    def slowly(*args, **kwargs):
        time.sleep(0.5)
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, slowly)
    result = bench("run.checkpoint_every=1", f"run.root={tmp_path}")
    assert result.bottleneck == slow and option in result.advice


def test_signal_leaves_no_files(monkeypatch, tmp_path):
    def stopped(*args, **kwargs):
        assert len(list(tmp_path.iterdir())) == 1
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(measure.checkpoint, "write", stopped)
    with pytest.raises(StopNow):
        bench("ppo.update_epochs=64", f"run.root={tmp_path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_other_environment_counts_are_measured_while_time_remains(monkeypatch, tmp_path):
    task = load(preset="tiny", sets=[*TINY, f"run.root={tmp_path}"], environ={})
    monkeypatch.setattr(job, "_FACTORS", (32.0,))
    updates, base = measure.Updates(open_task(task)), Estimate(1e6)
    speed = job._speed(updates, 600, no_progress, base)
    (size,) = speed.sizes
    assert size.num_envs == 256 and size.memory_bytes is not None
    # which of the two is faster depends on what else the machine does: the next test checks the arithmetic
    assert size.ratio.low <= size.ratio.value <= size.ratio.high
    late = job._speed(updates, 0, no_progress, base)
    assert late.sizes == () and late.not_measured.startswith("No time for 256 environments: about ")


def test_speed_of_another_environment_count_and_its_ratio_come_from_the_same_rounds(monkeypatch):
    seconds = {"base": [2.0, 4.0, 2.0], "other": [5.0, 5.0, 10.0]}
    monkeypatch.setattr(job, "time_in_turn", lambda works, rounds, warm: seconds)
    monkeypatch.setattr(job, "calls_for", lambda work, most: 3)
    base = SimpleNamespace(update=print, steps=10)
    cfg = load(preset="tiny", sets=["env.num_envs=64"], environ={}).config
    other = SimpleNamespace(update=print, length=4, steps=80, memory_bytes=7, session=SimpleNamespace(cfg=cfg))
    size = job._other_size(base, 2, other)
    assert (size.num_envs, size.memory_bytes) == (64, 7)
    assert size.steps_per_sec.value == 48.0  # the median of 48, 48 and 24
    assert size.ratio.value == 4.8  # the median of 48 / 10, 48 / 5 and 24 / 10


@pytest.mark.parametrize(
    ("ratios", "start"),
    [
        ([(1.3, 1.2, 1.4), (1.5, 1.4, 1.6)], "--num-envs 1 is 1.50 [1.40, 1.60] times as fast"),
        ([(1.3, 0.9, 1.7)], "None of the other numbers"),  # too noisy
        ([(1.05, 1.04, 1.06)], "None of the other numbers"),  # not worth it
        ([(1.5, None, None)], "None of the other numbers"),
        ([], ""),
    ],
)
def test_only_clearly_faster_environment_counts_are_suggested(ratios, start):
    sizes = [SizeSpeed(i, Estimate(1.0), Estimate(*ratio), None) for i, ratio in enumerate(ratios)]
    text = suggestion(sizes)
    assert text.startswith(start) and bool(text) == bool(start)


def test_sizes_that_do_not_fit_are_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(job, "make_updates", lambda session: pytest.fail("allocated"))
    with pytest.raises(HmxError, match=r"not enough memory: at least .* bytes needed .*, .* free") as refusal:
        bench("env.num_envs=1000000000000", "run.total_steps=8000000000000")
    assert refusal.value.hint.startswith("--num-envs ")


# Metrics


class Measured:
    """Updates with and without metrics, and what these cost."""

    def __init__(self, root):
        cfg = load(preset="tiny", sets=[*TINY, "env.id=corridor", f"run.root={root}"], environ={}).config
        self.updates = measure.Updates(open_session(cfg))
        with mock.patch.object(metrics_cost, "make_updates", self.make):
            self.cost = metrics_cost.metrics_cost(self.updates, 0)

    def make(self, session):
        self.without = measure.Updates(session)
        return self.without


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return Measured(tmp_path_factory.mktemp("metrics"))


def test_an_update_without_metrics_trains_the_same_agent_and_lacks_only_those(measured):
    updates, without, cost = measured.updates, measured.without, measured.cost
    for each in (updates, without):
        each.state, each._record = init_state(each.session.algorithm, 0, 1), {}
        each.update(1)
    left_out = {"reward/goal", "reward/step_cost", "actions/left_frac", "actions/right_frac"}
    assert updates._record.keys() - without._record.keys() == left_out
    assert without._record == {name: x for name, x in updates._record.items() if name not in left_out}
    assert cost.rounds == metrics_cost._ROUNDS and cost.share.low is not None and cost.share.high is not None


def test_metrics_that_slow_training_down_by_a_twentieth_take_5_percent(monkeypatch, found, measured):
    """The limit of the specification: throughput falls by less than 5 %."""
    seconds = {"with": [2.0, 2.2, 1.8] * 4, "without": [1.9, 2.09, 1.71] * 4}
    monkeypatch.setattr(metrics_cost, "time_in_turn", lambda works, rounds, **limits: seconds)
    monkeypatch.setattr(metrics_cost, "calls_for", lambda work, most: 2)
    monkeypatch.setattr(metrics_cost, "make_updates", lambda session: measured.without)
    cost = metrics_cost.metrics_cost(measured.updates, 0)
    assert cost.share.value == pytest.approx(0.05) and cost.rounds == 12
    assert (cost.seconds.value, cost.without.value) == (1.0, 0.95)
    text = repr(document(dataclasses.replace(found, metrics=cost)))
    assert "The reward, action and event metrics take 5" in text


# Measuring


def test_programs_take_turns_and_rounds_follow_the_time_limit():
    order: list[str] = []
    works = {name: lambda name=name: order.append(name) for name in "ab"}
    found = measure.time_in_turn(works, 2)
    assert order == ["a", "b"] * 3 and {name: len(times) for name, times in found.items()} == {"a": 2, "b": 2}
    assert len(measure.time_in_turn(works, 2, most=5, seconds=600)["a"]) == 5
    assert len(measure.time_in_turn(works, 10, limit=0.0)["a"]) == measure.FEWEST
    order.clear()
    measure.time_in_turn(works, 1, warm=True)
    assert order == ["a", "b"]


def test_a_program_from_the_cache_counts_with_the_time_it_took_to_compile(monkeypatch):
    def build():
        jax.monitoring.record_event_duration_secs("/jax/compilation_cache/compile_time_saved_sec", 100.0)
        return "program"

    program, compilation = measure.compiled(build)
    assert program == "program" and compilation.cached
    assert compilation.seconds == pytest.approx(100.0 + compilation.waited)
    assert not measure.compiled(lambda: None)[1].cached


def test_the_player_acts_with_the_policy_only_when_asked():
    cfg = load(sets=["env.id=corridor"], environ={}, check=False).config
    env = registry.make_env(cfg.env, cfg.reward)

    def act(state, carry, obs, legal, reset, key, greedy=False):
        zero = jnp.zeros(legal.shape[:-1])
        return Decision(jnp.full(legal.shape[:-1], state, jnp.int32), zero, jnp.zeros(legal.shape), zero), carry

    algorithm = Algorithm(init=None, update=None, hypers=None, act=act)
    decide, carry = act_alone(algorithm, greedy=False), algorithm.initial_carry((16, 1))
    player = measure.EnvPlayer(env, 16, 0, decide, jnp.int32(0), carry=carry)
    player.play(1, jnp.int32(0), acting=True)
    assert (player._played[1].decision.action == 0).all()
    player.play(1, jnp.int32(1), acting=True)
    assert (player._played[1].decision.action == 1).all()
    player.play(1, jnp.int32(0))
    assert 0 < player._played[1].decision.action.mean() < 1
