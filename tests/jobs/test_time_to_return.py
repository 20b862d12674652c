"""`benchmarks/time_to_return.py`: when a seed has arrived, what it is charged, and a run with a peer."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import many_seeds
import numpy as np
import pytest
import time_to_return as benchmark
import time_to_return_worker as worker

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_threshold_averages_the_fewest_updates_with_enough_episodes() -> None:
    counts, means = np.array([2, 0, 3, 1, 4]), np.array([9, 0, 1, 6, 8])
    series = counts, counts * means
    assert worker.arrival(series, 8, 2) == 1
    assert worker.arrival(series, 7.5, 5) == 5  # (6 + 4 * 8) / 5, where the last four episodes are too few
    assert worker.arrival(series, 7.6, 5) is None
    assert worker.arrival(series, -1, 11) is None


def training(returns: list[list[float]], total: int = 100) -> worker.Program:
    """A program whose steps return means of ten episodes for each of their updates of ten environment steps."""

    def step(done: int) -> tuple[int, worker.Series]:
        values = np.array(returns[done])
        return done + 1, (np.full(len(values), 10.0), 10 * values)

    return worker.Program(lambda seed: 0, step, 10, total, "")


def task(limit: int = 100, seconds: float = math.inf) -> worker.Task:
    return worker.Task("hmx", "", {}, limit, seconds, target=5, episodes=10)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a second after the last; the wall clock goes twice as fast."""
    cpu, wall = iter(range(1000)), iter(range(0, 2000, 2))
    monkeypatch.setattr(worker.time, "process_time", lambda: next(cpu))
    monkeypatch.setattr(worker.time, "perf_counter", lambda: next(wall))


def test_seed_counts_its_updates_up_to_the_threshold(clocks: None) -> None:
    assert worker.train(training([[0, 0, 0, 0], [0, 9, 9, 9]]), 0, task())[:4] == (True, 1.5, 3.0, 60.0)


def test_seed_trained_to_its_end_keeps_its_arrival_and_returns_the_last_episodes(clocks: None) -> None:
    program = training([[0, 0, 0, 0], [0, 9, 9, 9], [9, 9, 9, 7]], 120)
    at_arrival = worker.train(program, 0, task())
    at_end = worker.train(program, 0, task(limit=120)._replace(to_end=True))
    assert at_end[:4] == (True, 1.5, 3.0, 60.0)
    assert (at_arrival.mean_return, at_end.mean_return) == (9, 7)
    assert at_end[5:] == (3.0, 6.0, 120.0)


def test_mean_return_is_unknown_before_enough_episodes_have_ended() -> None:
    series = np.array([4, 5, 1]), np.array([4, 10, 9])
    np.testing.assert_array_equal(worker.last_means(series, 6), [math.nan, math.nan, 14 / 9, 19 / 6])


@pytest.mark.parametrize(("limit", "seconds", "total"), [(20, 9, 100), (100, 2, 100), (100, 9, 20)])
def test_seed_is_abandoned_at_a_limit_and_at_the_end_of_training(
    clocks: None, limit: int, seconds: float, total: int
) -> None:
    program = training([[0], [0], [9]], total)
    assert worker.train(program, 0, task(limit, seconds))[:4] == (False, 2.0, 4.0, 20.0)


def test_ratio_has_an_interval_and_counts_lost_seeds_as_infinite() -> None:
    assert benchmark.ratio([1, 1, 1], [2, 2, 2]) == "2.00 [2.00, 2.00]"
    assert benchmark.ratio([1, 1, 1], [2, 2, math.inf]) == "2.00 [2.00, inf]"
    assert benchmark.ratio([1, 1, 1], [2, math.inf, math.inf]) == "not known"


def test_ratio_is_a_bound_if_the_first_variant_was_abandoned() -> None:
    lost = [math.inf] * 3
    assert benchmark.ratio(lost, [1, 1, 1], [4, 4, 4]) == "< 0.25, 95 %: < 0.25"
    assert benchmark.ratio(lost, lost, [4, 4, 4]) == "not known"


def test_peer_settings_are_literals_or_texts() -> None:
    assert benchmark.peer_settings(["LR=1e-3", "ANNEAL_LR=False", "ACTIVATION=relu"]) == {
        "LR": 1e-3,
        "ANNEAL_LR": False,
        "ACTIVATION": "relu",
    }


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "time_to_return.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["corridor"], "corridor has no threshold of its own: add --target"),
        (["pendulum", "--limit", "soon"], "--limit: expected a number such as 8M, got soon"),
        (["pendulum", "--peer", "stable"], "--peer: expected rejax or purejaxrl or stoix or sb3, got stable"),
        (
            ["hackmatrix", "--peer", "rejax"],
            "rejax trains on cartpole-discrete, pendulum, gymnax/..., brax/..., navix/..., ",
        ),
        (
            ["brax/ant", "--target", "1", "--peer", "rejax"],
            "rejax publishes no hyperparameters for brax/ant: add settings",
        ),
        (["pendulum", "--peer", "purejaxrl"], "--purejaxrl: expected a folder with purejaxrl/ppo.py, got ''"),
        (
            ["pendulum", "--peer", "stoix"],
            "stoix trains on cartpole-discrete, gymnax/Acrobot-v1, gymnax/Breakout-MinAtar,",
        ),
        (["cartpole-discrete", "--peer", "stoix", "--stoix", "x"], "--stoix: expected a folder with stoix/systems/"),
    ],
)
def test_bad_arguments_are_refused(
    args: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["time_to_return.py", *args])
    with pytest.raises(SystemExit) as stopped:
        benchmark.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--peer", "sb3"], "--peer: expected rejax or purejaxrl or stoix, got sb3"),
        (["--peer", "stoix", "--stoix", "FOLDER"], "Stoix trains one seed in a program: --seeds 1"),
    ],
)
def test_a_peer_that_trains_one_seed_per_program_is_refused_where_many_are_measured(
    args: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / benchmark.CLONES["stoix"]
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.setattr(sys, "argv", ["many_seeds.py", *(word.replace("FOLDER", str(tmp_path)) for word in args)])
    with pytest.raises(SystemExit) as stopped:
        many_seeds.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_returns_at_the_end_have_an_interval_over_the_seeds_that_know_theirs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends = [benchmark.End(True, 1, 2, 10, value, 3, 4, 60) for value in (8.0, math.nan, 10.0, 9.0)]
    benchmark.show_returns({"default": ends}, {"default": {"on_cpu": True}})
    _, row = capsys.readouterr().out.splitlines()
    # Student's t with two degrees of freedom: 4.303 / sqrt(3)
    assert row.split() == ["9.00", "[6.52,", "11.48]", "8.00", "3.0", "60", "3", "default"]


SCRIPT = """
import jax.numpy as jnp
print("a line that is no reply")
def make_train(config):
    config["NUM_UPDATES"] = config["TOTAL_TIMESTEPS"] // config["NUM_STEPS"] // config["NUM_ENVS"]
    assert config["ENV_NAME"] == "CartPole-v1"
    def train(rng):
        shape = int(config["NUM_UPDATES"]), config["NUM_STEPS"], config["NUM_ENVS"]
        returns = jnp.broadcast_to(10.0 * jnp.arange(shape[0])[:, None, None], shape)
        metrics = {"returned_episode": jnp.ones(shape, bool), "returned_episode_returns": returns}
        return {"runner_state": rng, "metrics": metrics}
    return train
if __name__ == "__main__":
    config = {"NUM_ENVS": 4, "NUM_STEPS": 50, "TOTAL_TIMESTEPS": 1e4, "DEBUG": True}
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_hmx_and_peers_run_in_turn(tmp_path: Path) -> None:
    (tmp_path / "purejaxrl").mkdir()
    (tmp_path / "purejaxrl" / "ppo.py").write_text(SCRIPT)
    peer = ["--purejaxrl", str(tmp_path), "--peer", "purejaxrl", "--peer", "purejaxrl NUM_ENVS=8"]
    done = run("cartpole-discrete", "--base", "--preset sound", "--target", "25", "--seeds", "2", *peer)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[3:9]] == [
        f"seed {seed}, {name}" for seed in (0, 1) for name in ("default", "purejaxrl", "purejaxrl NUM_ENVS=8")
    ]
    rows: dict[str, list[Any]] = {line[82:].strip(): line.split() for line in lines[-3:]}
    # the fourth update has a mean of 30: steps per update times four
    assert rows["purejaxrl"][5:7] == ["800", "2"]
    assert rows["purejaxrl NUM_ENVS=8"][5] == "1,600"
    assert 0 < float(rows["default"][0]) < 60
