"""The example that extends PPO with an intrinsic reward: it trains, resumes bit for bit and refuses bad settings."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from api_runs import TINY

import hmx
from hmx.records.paths import RunPaths
from hmx.registry import trust
from hmx.registry.load import load
from hmx.runs import checkpoint
from hmx.runs.session import open_session

RND = {
    **TINY, "env.id": "counting", "env.max_steps": 4, "algo.name": "./rnd.py", "algo.my.width": 16,
    "algo.learning_rate": 0.01, "net.rnn": "gru", "net.rnn_hidden": 4, "ppo.bptt_horizon": 4, "ppo.num_minibatches": 4,
    "run.total_steps": 512, "algo.lr_schedule": "constant",  # so that a run may become longer
}  # fmt: skip


@pytest.fixture(scope="session")  # as `lab`, whose folder keeps the run
def whole(lab: Path) -> Path:
    """A run of eight updates of `rnd.py` with a recurrent policy."""
    shutil.copy(Path(hmx.__file__).parents[1] / "examples" / "rnd.py", lab)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(lab)
        patch.setenv("XDG_STATE_HOME", str(lab / "state"))
        return lab / hmx.train({**RND, "run.name": "rnd"}, progress=False).run


def state_at(run: Path, update: int) -> dict[str, np.ndarray]:
    paths = RunPaths(run.parent, run.name)
    session = open_session(load(file=paths.config, environ={}).config)
    return checkpoint.to_host(checkpoint.restore(paths.checkpoint(update), session.abstract))


def test_the_predictor_learns_the_random_network(whole: Path) -> None:
    metrics = hmx.load_metrics(whole)
    error, reward = metrics["rnd/error"], metrics["rnd/reward"]
    assert error[-1] < 0.2 * error[0]
    assert (reward > 0.0).all() and np.isfinite(metrics["rnd/value_loss"]).all()


@pytest.mark.thorough
def test_rnd_resumes_bit_for_bit(whole: Path, place: Path) -> None:
    half = hmx.train({**RND, "run.name": "rnd-half", "run.total_steps": 256}, progress=False).run
    before = state_at(half, 4)
    resumed = hmx.resume("rnd-half", {"run.total_steps": 512}, progress=False)
    assert (resumed.first_update, resumed.updates) == (4, 8)
    wanted, found = state_at(whole, 8), state_at(resumed.run, 8)
    assert wanted.keys() == found.keys()
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)
    for name in found:
        if name.startswith(("params/rnd/", "learner/own/")):
            fixed = name.startswith(("params/rnd/target/", "learner/own/obs/mean"))  # of `counting`, always 2.5
            assert np.array_equal(before[name], found[name]) == fixed, name


@pytest.mark.parametrize(
    "values",
    [{"ppo.advantage": "vtrace"}, {"ppo.advantage_when": "minibatch", "ppo.value_forward": "both", "net.rnn": "none"}],
)
def test_rnd_refuses_advantages_that_a_minibatch_recomputes(
    whole: Path, place: Path, values: dict[str, object]
) -> None:
    with pytest.raises(hmx.HmxError, match="needs the advantages of whole rollouts"):
        hmx.train({**RND, **values, "run.name": "refused"}, progress=False)


def test_the_last_observation_of_an_episode_is_rewarded(
    whole: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of `counting` reach 1, 2, 3 and 4 in turn; the next episode begins with 0, which no step reaches."""
    monkeypatch.setattr(trust.Permissions, "trust", True)
    assert state_at(whole, 8)["learner/own/obs/mean"].tolist() == pytest.approx([2.5])
