"""A run that starts from the network of another."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from new_runs import plan, train

from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs.resume import resume
from hmx.jobs.train import TrainResult
from hmx.records.frozen import read_config
from hmx.records.layout import find_run
from hmx.runs import weights
from hmx.runs.loop import init_state
from hmx.runs.restoring import Run
from hmx.runs.session import open_session
from hmx.runs.warm_start import read_learned

MakeConfig = Callable[..., Config]
pytestmark = pytest.mark.usefixtures("compiled_once")


def learned(run: Path) -> dict[str, Any]:
    """The network of the latest checkpoint of a run."""
    source = Run.find(run, run.parent)
    return {name: np.asarray(leaf) for name, leaf in weights.named(source.policy(source.open()).state).items()}


@pytest.fixture
def teacher(make_config: MakeConfig) -> TrainResult:
    return train(make_config(3, run__eval_episodes=0, run__name="teacher", ppo__obs_norm="network"))


def test_learning_rate_0_keeps_the_initial_network(make_config: MakeConfig, teacher: TrainResult) -> None:
    cfg = make_config(
        2, run__eval_episodes=0, run__init_from="teacher", run__seed=9, algo__learning_rate=0.0, ppo__obs_norm="network"
    )
    result = train(cfg)
    before, after = learned(teacher.run), learned(result.run)
    assert before.keys() == after.keys()
    for name, leaf in before.items():
        assert np.array_equal(leaf, after[name]) == (not name.startswith("obs_stats"))
    assert after["obs_stats/count"][1] > before["obs_stats/count"][1]  # continues from the other's statistics
    assert result.updates == 2


def test_configuration_records_the_exact_checkpoint(make_config: MakeConfig, teacher: TrainResult) -> None:
    cfg = make_config(4, run__eval_episodes=0, run__init_from="teacher", ppo__obs_norm="network")
    kept = plan(cfg).config.run.init_from
    assert kept == str(teacher.run / "checkpoints" / "3")
    result = train(cfg)
    assert read_config(find_run(result.run)).run.init_from == kept

    again = train(replace(read_config(find_run(result.run)), {"run.name": "again"}))
    assert all(np.array_equal(leaf, learned(again.run)[name]) for name, leaf in learned(result.run).items())

    shutil.rmtree(teacher.run)
    assert resume(result.run, changes={"run.total_steps": 6 * 32}).updates == 6


def test_optimiser_keys_and_environments_start_fresh(make_config: MakeConfig, teacher: TrainResult) -> None:
    session = open_session(make_config(4, run__init_from="teacher", ppo__obs_norm="network"))
    session, network, _ = read_learned(session)
    fresh = init_state(session.algorithm, 0, 1)
    state = weights.replace(fresh, network)
    put_back = weights.replace(state, weights.named(fresh))
    assert jax.tree.structure(put_back) == jax.tree.structure(fresh)
    assert all(
        np.array_equal(jax.random.key_data(a), jax.random.key_data(b))
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key)
        else np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(put_back), jax.tree.leaves(fresh), strict=True)
    )
    assert not np.array_equal(jax.tree.leaves(state.params)[0], jax.tree.leaves(fresh.params)[0])


def test_a_target_network_starts_as_a_copy(make_config: MakeConfig) -> None:
    keys = {
        "algo__name": "dqn",
        "run__eval_episodes": 0,
        "replay__capacity": 1024,
        "dqn__learn_starts": 32,
        "ppo__update_epochs": 4,
        "ppo__num_minibatches": 8,
    }
    train(make_config(3, run__name="teacher", **keys))
    session, network, _ = read_learned(open_session(make_config(3, run__init_from="teacher", **keys)))
    state = weights.replace(init_state(session.algorithm, 0, 1), network)
    same = jax.tree.map(np.array_equal, state.params, state.learner.target_params)
    assert all(jax.tree.leaves(same))
    assert all(np.array_equal(leaf, network[name]) for name, leaf in weights.named(state).items())


def test_every_seed_starts_from_its_counterpart_or_the_only_one(make_config: MakeConfig) -> None:
    train(make_config(2, run__eval_episodes=0, run__name="one"))
    train(make_config(2, run__eval_episodes=0, run__name="two", run__num_seeds=2))
    name = "params/policy_head/bias"

    def start(teacher: str, seeds: int) -> Any:
        session, network, _ = read_learned(open_session(make_config(2, run__init_from=teacher, run__num_seeds=seeds)))
        return weights.named(weights.replace(init_state(session.algorithm, 0, seeds), network))[name]

    root = find_run("one", make_config(2).run.root).folder.parent
    one, two = (learned(root / teacher)[name] for teacher in ("one", "two"))
    assert np.array_equal(start("one", 3), np.stack([one] * 3))
    assert np.array_equal(start("two", 2), two) and not np.array_equal(two[0], two[1])
    with pytest.raises(HmxError, match="it has 2 seeds, this run 1"):
        start("two", 1)


def test_different_network_is_refused_before_anything_is_written(make_config: MakeConfig, teacher: TrainResult) -> None:
    wider = make_config(2, run__init_from="teacher", run__name="new", net__hidden=(9,), ppo__obs_norm="network")
    for act in (train, plan):
        with pytest.raises(
            HmxError, match=r"cannot start from teacher: its params/.* is float32 .* instead of"
        ) as error:
            act(wider)
        assert error.value.exit_code == ExitCode.USAGE
    unscaled = make_config(2, run__init_from="teacher", run__name="new")
    with pytest.raises(HmxError, match="its obs_stats/count is unexpected"):
        train(unscaled)
    with pytest.raises(HmxError, match="there is no run missing") as error:
        train(make_config(2, run__init_from="missing", run__name="new"))
    assert error.value.exit_code == ExitCode.ARTEFACT
    assert not (teacher.run.parent / "new").exists()


@pytest.mark.parametrize(("key", "value"), [("net__activation", "tanh"), ("ppo__value_target", "identity")])
def test_a_network_that_would_compute_other_results_is_refused(
    make_config: MakeConfig, teacher: TrainResult, key: str, value: str
) -> None:
    dotted = key.replace("__", ".")
    with pytest.raises(HmxError, match=rf"cannot start from teacher: {dotted} was .* and is {value}$") as error:
        train(make_config(2, run__init_from="teacher", run__name="new", ppo__obs_norm="network", **{key: value}))
    assert error.value.hint.startswith(f"--set {dotted}=") and not (teacher.run.parent / "new").exists()


def test_values_on_another_scale_are_reported(make_config: MakeConfig, teacher: TrainResult) -> None:
    keys = {"ppo__obs_norm": "network", "algo__gamma": 0.5, "ppo__reward_scale": 2.0}
    cfg = make_config(2, run__init_from="teacher", **keys)
    _, _, warnings = read_learned(open_session(cfg))
    assert plan(cfg).warnings[0] == warnings[0]
    assert warnings == [
        "the values that the network of teacher predicts have another meaning here: "
        "algo.gamma was 0.99 and is 0.5, ppo.reward_scale was 1.0 and is 2.0"
    ]


def test_a_damaged_newer_checkpoint_is_reported(make_config: MakeConfig) -> None:
    teacher = train(make_config(3, run__eval_episodes=0, run__name="teacher", run__checkpoint_every=1)).run
    (teacher / "checkpoints" / "3" / "manifest.json").write_text("{")
    result = train(make_config(1, run__eval_episodes=0, run__init_from="teacher"))
    assert read_config(find_run(result.run)).run.init_from == str(teacher / "checkpoints" / "2")
    assert any("checkpoint 3" in warning and "checkpoint 2 is used" in warning for warning in result.warnings)
