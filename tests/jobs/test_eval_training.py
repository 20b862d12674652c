"""Evaluations while a run trains: they change nothing else, and favour neither short nor long episodes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from new_runs import train

from hmx.config.schema import Config
from hmx.jobs import eval_training
from hmx.jobs.evaluate import make_player
from hmx.jobs.resume import resume
from hmx.records.curves import EVALUATED, EVALUATED_HIGH, EVALUATED_LOW, RETURN, UNTRAINED
from hmx.records.metrics_table import METRICS
from hmx.registry import trust, user_code
from hmx.registry.load import load
from hmx.runs import checkpoint, training
from hmx.runs.chunk import compile_chunk
from hmx.runs.programs import Programs, SharedPrograms
from hmx.runs.session import open_session

MakeConfig = Callable[..., Config]
Lines = Callable[[Path], list[dict[str, Any]]]
pytestmark = pytest.mark.usefixtures("compiled_once")

GAME = """
from typing import NamedTuple

import jax
import jax.numpy as jnp

ACTIONS, MAX_STEPS = 2, 50


class State(NamedTuple):
    left: jax.Array
    long: jax.Array


def reset(key):
    long = jax.random.bernoulli(key)
    return State(jnp.where(long, {long}, 2), long), jnp.zeros(1)


def step(state, action, key):
    left = state.left - 1
    won = state.long == {long_wins}
    return State(left, state.long), jnp.zeros(1), jnp.where((left == 0) & won, 1.0, 0.0), left == 0
"""


def points(records: list[dict[str, Any]], name: str = EVALUATED) -> dict[int, float]:
    return {record["update"]: record[name] for record in records if name in record}


def state_of(run: Path, update: int) -> dict[str, bytes]:
    session = open_session(load(file=run, environ={}).config)
    state = checkpoint.restore(run / "checkpoints" / str(update), session.abstract)
    return {name: np.asarray(leaf).tobytes() for name, leaf in checkpoint.to_host(state).items()}


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a game whose outcome is drawn at its start, and return its name."""

    def write(long: int, long_wins: bool) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr(trust, "_allowed", [])
        (tmp_path / "game.py").write_text(GAME.format(long=long, long_wins=long_wins))
        user_code.allow("./game.py", "env.id")
        return "./game.py"

    return write


def test_evaluations_change_nothing_else_and_a_resumed_run_has_the_same(
    make_config: MakeConfig, watcher: Any, deterministic: Lines
) -> None:
    more = {"run__eval_episodes": 8, "run__checkpoint_every": 1, "run__num_seeds": 2}
    whole = train(make_config(9, run__evaluations=3, run__name="whole", **more))
    plain = train(make_config(9, run__evaluations=0, run__name="plain", **more))
    cut = train(make_config(9, run__evaluations=3, run__name="cut", **more), sinks=[watcher(stop_at=5)])
    assert (whole.warnings, cut.state) == ((), "interrupted")
    resume(cut.run)
    records = deterministic(whole.run)
    assert [r["update"] for r in records if EVALUATED in r] == [1, 1, 4, 4, 7, 7], "before the run, at 1/3 and at 2/3"
    assert deterministic(cut.run) == records
    assert {name for r in records for name in r if name.startswith("eval/")} <= METRICS.keys()
    without = [{k: v for k, v in record.items() if not k.startswith("eval/")} for record in records]
    assert without == deterministic(plain.run)
    assert state_of(whole.run, 9) == state_of(plain.run, 9) == state_of(cut.run, 9)
    assert whole.evaluation == plain.evaluation


@pytest.mark.parametrize("long_wins", [True, False])
def test_points_are_unbiased_where_length_decides_the_return(
    long_wins: bool, play: Callable[..., str], make_config: MakeConfig, lines: Lines
) -> None:
    """A policy that never changes: the mean return is 0.5 at all times, and means of training games swing."""
    game = play(long=20, long_wins=long_wins)
    cfg = make_config(20, env__id=game, env__max_steps=50, algo__learning_rate=0.0, run__eval_episodes=64)
    result = train(cfg)
    assert result.warnings == ()
    records = lines(result.run)
    found = points(records)
    assert list(found) == list(range(1, 21, 2))
    assert len(set(found.values())) == 1, "the same policy from the same positions: no swing"
    ends = zip(points(records, EVALUATED_LOW).values(), points(records, EVALUATED_HIGH).values(), strict=True)
    assert all(low <= 0.5 <= high for low, high in ends)
    assert set(points(records, UNTRAINED).values()) == {found[1]}
    trained = points(records, RETURN)
    assert min(trained) > 2 and max(trained.values()) - min(trained.values()) > 0.5


def test_an_episode_that_does_not_end_leaves_no_value(
    play: Callable[..., str], make_config: MakeConfig, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mean over those that ended would favour short ones."""
    monkeypatch.setattr("hmx.jobs.eval_training._LENGTH", 10)
    cfg = make_config(4, env__id=play(long=20, long_wins=True), env__max_steps=50, run__eval_episodes=64)
    result = train(cfg)
    assert result.warnings == ("evaluations have no value: an episode did not end within 10 steps",)
    assert not {EVALUATED, EVALUATED_LOW, UNTRAINED} & {name for record in lines(result.run) for name in record}


@pytest.mark.parametrize("setting", ["run__evaluations", "run__eval_episodes"])
def test_zero_plays_none(setting: str, make_config: MakeConfig, lines: Lines) -> None:
    run = train(make_config(2, **{"run__eval_episodes": 4, setting: 0})).run
    assert not any(name.startswith("eval/") for record in lines(run) for name in record)


def test_a_signal_ends_an_evaluation_without_a_value(make_config: MakeConfig, watcher: Any, lines: Lines) -> None:
    cfg = make_config(4, run__eval_episodes=4)
    result = train(cfg, sinks=[watcher(stop_in="evaluating")])
    assert (result.state, result.updates, result.warnings) == ("interrupted", 0, ())
    assert list(points(lines(resume(result.run).run))) == [1, 2, 3, 4]


@pytest.mark.parametrize("failing", [False, True])
def test_evaluations_are_compiled_while_updates_are_compiled(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    played: list[str] = []
    begun = threading.Event()

    def player(*args: Any) -> Any:
        play = make_player(*args)

        def noted(state: Any, name: str, *more: Any) -> Any:
            played.append(name)
            begun.set()
            if failing and len(played) == 1:
                raise OSError("out of disk")
            return play(state, name, *more)

        return noted

    def compiled(*args: Any) -> Any:
        assert begun.wait(60)
        played.append("updates")
        return compile_chunk(*args)

    monkeypatch.setattr(Programs, "of", lambda self, key: SharedPrograms())
    monkeypatch.setattr(eval_training, "make_player", player)
    monkeypatch.setattr(training, "compile_chunk", compiled)
    run = train(make_config(run__eval_episodes=4, run__evaluations=1))
    assert played == ["random", "updates", *(["random"] if failing else []), "sampled"]
    assert run.warnings == ()
    played.clear()
    resume(run.run, changes={"run.total_steps": 2 * run.env_steps})
    assert played == ["updates"]
