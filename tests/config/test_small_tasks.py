"""Environments other than HackMatrix and large suites get sizes with which they learn."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hmx.config.schema import Config
from hmx.registry.derive import derive
from hmx.registry.load import DEFAULT, SMALL_TASK, Loaded, load
from hmx.registry.small_tasks import MIN_UPDATES


def loaded(values: Mapping[str, object], preset: str | None = None) -> Loaded:
    return load(preset, environ={}, values=values)


@pytest.mark.parametrize("total_steps", [6_400, 20_000, 102_400, 200_000, 4_194_304])
def test_small_task_makes_many_updates_of_at_most_a_few_thousand_steps(total_steps: int) -> None:
    sizes = derive(loaded({"env.id": "corridor", "run.total_steps": total_steps}).config)
    assert sizes.num_updates >= MIN_UPDATES
    assert sizes.batch_size <= 4096


def test_small_task_sizes_have_their_own_origin() -> None:
    result = loaded({"env.id": "./game.py"})
    assert (result.config.env.num_envs, result.origins["env.num_envs"]) == (16, SMALL_TASK)
    assert result.origins["algo.learning_rate"] == DEFAULT


def test_given_sizes_win() -> None:
    result = loaded({"env.id": "corridor", "env.num_envs": 512, "algo.num_steps": 128})
    assert (result.config.env.num_envs, result.config.algo.num_steps) == (512, 128)
    assert result.origins["env.num_envs"] != SMALL_TASK


def test_presets_and_hackmatrix_keep_the_defaults_of_the_schema() -> None:
    schema = Config()
    for result in (loaded({}), loaded({"env.id": "corridor"}, preset="default")):
        assert result.config.env.num_envs == schema.env.num_envs
        assert result.config.algo.num_steps == schema.algo.num_steps


def test_replay_learns_after_a_few_steps() -> None:
    assert loaded({"env.id": "corridor", "algo.name": "dqn"}).config.algo.num_steps == 4
