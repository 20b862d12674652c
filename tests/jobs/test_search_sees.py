"""A search that sees what the player sees, in a whole run of HackMatrix: training, resume, evaluation, watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from new_runs import train

from hmx.config import fields
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluate import evaluate
from hmx.jobs.evaluation import no_progress
from hmx.jobs.resume import resume
from hmx.play.request import WatchRequest
from hmx.play.watch import watch
from hmx.records.paths import RunPaths
from hmx.reports.report.episodes import play_episodes
from hmx.reports.report.request import ReportRequest
from hmx.runs import checkpoint
from hmx.runs.restoring import Run
from hmx.runs.session import open_session

pytestmark = pytest.mark.thorough


def configure(root: Path, **changes: Any) -> Config:
    return fields.replace(
        Config(),
        {
            "run.root": str(root), "run.total_steps": 8 * 64, "run.eval_episodes": 4, "run.evaluations": 0,
            "run.updates_per_chunk": 1, "run.checkpoint_every": 4, "env.num_envs": 8, "env.max_steps": 40,
            "net.kind": "mlp", "net.hidden": (8,), "algo.name": "gumbel", "algo.num_steps": 8,
            "ppo.num_minibatches": 2, "ppo.update_epochs": 1, "gumbel.num_simulations": 2, "starts.share": 0.5,
            "algo.lr_schedule": "constant",
            "gumbel.sees": "player", **{name.replace("__", "."): value for name, value in changes.items()},
        },
    )  # fmt: skip


def last_state(run: Path) -> dict[str, bytes]:
    found = Run.find(run)
    state = checkpoint.restore(run / "checkpoints" / "8", open_session(found.cfg).abstract)
    return {name: np.asarray(leaf).tobytes() for name, leaf in checkpoint.to_host(state).items()}


def test_run_resumes_bit_for_bit_and_every_command_plays_as_it_trained(tmp_path: Path) -> None:
    whole = train(configure(tmp_path, run__name="whole"))
    train(configure(tmp_path, run__name="half", run__total_steps=4 * 64))
    resumed = resume(tmp_path / "half", changes={"run.total_steps": 8 * 64})
    assert last_state(whole.run) == last_state(tmp_path / "half") and resumed.evaluation == whole.evaluation
    again = evaluate(whole.run, episodes=4)
    assert again.sees == "player" and again.policies[1] == whole.evaluation[1]
    honest, other = (
        evaluate(whole.run, episodes=8, search=12, changes={"gumbel.sees": sees}) for sees in ("player", "everything")
    )
    assert other.sees == "everything" and other.policies[0] == honest.policies[0]
    assert other.policies[1] != honest.policies[1]
    shown = play_episodes(RunPaths(tmp_path, "whole"), ReportRequest(), whole.evaluation, no_progress)
    assert np.mean(shown.returns) == pytest.approx(whole.evaluation[1].return_mean, abs=1e-4)
    frames = list(watch(whole.run, WatchRequest(seed=3)))
    assert frames[-1].outcome and all(frame.probs for frame in frames[:-1])
    with pytest.raises(HmxError, match=r"gumbel\.sees: player cannot become everything") as refused:
        resume(whole.run, changes={"gumbel.sees": "everything"})
    assert refused.value.exit_code == ExitCode.USAGE
