"""`hmx grad-report` on runs of Q-learning, on saved buffers, and in training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from new_runs import train

from hmx.algos.gradients.reporter import make_reporter
from hmx.algos.gradients.results import Consistency
from hmx.config import fields
from hmx.config.schema import Config
from hmx.envs.registry import make_env
from hmx.errors import ExitCode, HmxError
from hmx.jobs.grad_training import metrics
from hmx.records.metrics_table import METRICS
from hmx.registry.load import load
from hmx.reports.grad_report.findings import GradFindings, notes, verdict, warnings
from hmx.reports.grad_report.job import grad_report, open_buffer
from hmx.reports.grad_report.request import GradReportRequest
from hmx.runs import buffers, checkpoint
from hmx.runs.session import open_session

EPISODES = GradReportRequest(groups=4, per_group=4, buckets=2)
STORED = dataclasses.replace(EPISODES, replay=True)
BASE = {
    "run.name": "q", "run.total_steps": 6 * 32, "run.updates_per_chunk": 2, "run.eval_episodes": 0,
    "run.checkpoint_every": 1, "run.keep": 9, "run.grad_report_groups": 4, "run.seed": 3,
    "env.id": "corridor", "env.num_envs": 4, "env.max_steps": 20,
    "net.kind": "mlp", "net.hidden": (8,), "algo.num_steps": 8,
}  # fmt: skip
Q = {
    **BASE, "run.num_seeds": 2, "algo.name": "dqn", "replay.capacity": 128, "replay.save": True, "replay.mixing": "td",
    "dqn.learn_starts": 32, "dqn.batch_size": 8, "dqn.gradient_steps": 2, "dqn.target_every": 3,
}  # fmt: skip

Lines = Callable[[Path], list[dict[str, Any]]]


def trained(root: Path, base: dict[str, Any], **changes: Any) -> Path:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    result = train(fields.replace(Config(), {**base, "run.root": str(root), **keys}))
    assert result.warnings == ()
    return result.run


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("q"), Q)


@pytest.fixture(scope="module")
def saved(plain: Path) -> Path:
    return plain / "reports" / "buffer-3.npz"


@pytest.fixture(scope="module")
def of_buffer(plain: Path) -> GradFindings:
    return grad_report(plain, STORED)


@pytest.mark.thorough
def test_reports_during_training_change_nothing_else(plain: Path, tmp_path: Path, deterministic: Lines) -> None:
    """The last checkpoint with its buffer and all other metrics are the same bits, and the report is the command's."""
    reporting = trained(tmp_path, Q, run__grad_report_every=3)
    one, other = arrays(plain), arrays(reporting)
    assert any("replay" in name for name in one)
    assert one == other
    new = ("grad_norm/", "train/grad_report_seconds")
    records = deterministic(reporting)
    assert [{k: v for k, v in r.items() if not k.startswith(new)} for r in records] == deterministic(plain)
    both = {(r["update"], r["seed"]): {k: v for k, v in r.items() if k.startswith("grad_norm/")} for r in records}
    assert [place for place, found in both.items() if found] == [(3, 3), (3, 4), (6, 3), (6, 4)]
    request = GradReportRequest(groups=4, per_group=4, max_length=256, checkpoint=2, agent=1)
    recorded = both[3, 4]
    assert metrics(grad_report(reporting, request).reports[0]) == recorded != both[3, 3]
    assert recorded["grad_norm/all/td"] == recorded["grad_norm/all/total"] > 0.0
    assert not any("value" in name or "entropy" in name or "kl" in name for name in recorded)
    names = {name.replace("grad_norm/all/", "grad_norm/<bucket>/") for name in recorded if "/all/" in name}
    known = {name.replace("<part>", part) for name in METRICS for part in ("td", "total")}
    assert {name for name in names if "/layer/" not in name} <= known


def arrays(run: Path) -> dict[str, bytes]:
    """Return the arrays of the last checkpoint."""
    session = open_session(load(file=run, environ={}).config)
    state = checkpoint.restore(run / "checkpoints" / "6", session.abstract)
    return {name: np.asarray(leaf).tobytes() for name, leaf in checkpoint.to_host(state).items()}


def test_report_on_every_checkpoint_has_no_episodes(plain: Path) -> None:
    found = grad_report(plain, dataclasses.replace(STORED, all_checkpoints=True))
    assert [report.update for report in found.reports] == [2, 4, 6]
    assert [report.stored for report in found.reports] == [64, 128, 128]
    for report in found.reports:
        assert report.hash_before == report.hash_after
        assert report.episodes is report.whole.reward_std.mean is report.whole.return_mean is None
        assert set(report.whole.components) == {"td", "total"}
        assert sum(bucket.draws or 0.0 for bucket in report.buckets) == pytest.approx(1.0)


def test_saved_buffer_gives_the_report_of_the_last_checkpoint(
    plain: Path, saved: Path, of_buffer: GradFindings
) -> None:
    """Where exponents are not fitted, probabilities follow from what is saved."""
    found = grad_report(plain, dataclasses.replace(STORED, from_buffer=str(saved))).reports[0]
    assert found.replay is not None and found.replay == of_buffer.reports[0].replay
    pairs = [*zip(found.buckets, of_buffer.reports[0].buckets, strict=True), (found.whole, of_buffer.reports[0].whole)]
    for one, other in pairs:
        assert one.components == other.components and one.td_error == pytest.approx(other.td_error)
        assert one.draws == pytest.approx(other.draws, rel=1e-5)
        assert one.replayed_share == pytest.approx(other.replayed_share, rel=1e-5)


def test_verdict_names_the_bucket_with_the_largest_share(of_buffer: GradFindings) -> None:
    report = of_buffer.reports[0]
    top = max(report.buckets, key=lambda bucket: bucket.replayed_share or 0.0)
    name = top.name.replace("_", " ")
    assert f"{name} has {top.weight:.0%} of the transitions, {top.draws:.0%} of the draws" in verdict(report).lower()
    assert "rank correlation" in notes(report)[0]
    off = dataclasses.replace(report, consistency=Consistency(ratio_error=1.0, value_error=0.5))
    assert any("recomputed actions differ" in line for line in warnings(off))


def test_ppo_starts_in_states_that_q_learning_stored(plain: Path, saved: Path, tmp_path: Path) -> None:
    run = trained(tmp_path, BASE, ppo__update_epochs=1, ppo__num_minibatches=2)
    from_saved = dataclasses.replace(EPISODES, from_buffer=str(saved))
    found, fresh = (grad_report(run, request).reports[0] for request in (from_saved, EPISODES))
    assert (found.source, found.stored, found.epsilon) == ("buffer", 128, None)
    assert (fresh.source, fresh.stored) == ("starts", None)
    assert found.consistency.ratio_error is not None and found.consistency.ratio_error < 1e-5
    assert found.episodes is not None and fresh.episodes is not None
    assert (found.episodes.lengths != fresh.episodes.lengths).any()
    with pytest.raises(HmxError, match="ppo has no replay buffer"):
        grad_report(run, STORED)
    recurrent = fields.replace(Config(), {**BASE, "net.rnn": "gru", "net.rnn_hidden": 4, "ppo.bptt_horizon": 4})
    env = make_env(recurrent.env, recurrent.reward)
    with pytest.raises(HmxError, match="a buffer does not hold its RNN carry"):
        make_reporter(recurrent, env, EPISODES, open_buffer(saved, recurrent, env, EPISODES))


def changed(saved: Path, place: Path, **items: Any) -> Path:
    """Save the buffer with other items, or without those that are None."""
    buffer = buffers.load(saved)
    kept = {name: leaf for name, leaf in {**buffer.items, **items}.items() if leaf is not None}
    buffers.save(place, dataclasses.replace(buffer, items=kept))
    return place


def test_buffer_that_does_not_fit_is_refused(plain: Path, saved: Path, tmp_path: Path) -> None:
    def refused(file: Path, words: str, code: int = ExitCode.ARTEFACT, **changes: Any) -> None:
        with pytest.raises(HmxError, match=words) as caught:
            grad_report(plain, dataclasses.replace(STORED, from_buffer=str(file), **changes))
        assert caught.value.exit_code == code and caught.value.hint

    refused(tmp_path / "none.npz", "none.npz")
    cut = tmp_path / "cut.npz"
    cut.write_bytes(saved.read_bytes()[:-100])
    refused(cut, "cut.npz")
    reward = np.full(128, np.nan, np.float32)
    refused(changed(saved, tmp_path / "nan.npz", reward_tp1=reward), "rewards that are not finite")
    refused(changed(saved, tmp_path / "no.npz", truncated_tp1=None), "items/truncated_tp1: missing")
    buffer = buffers.load(saved)
    bare = tmp_path / "bare.npz"
    buffers.save(bare, dataclasses.replace(buffer, env_states={}))
    refused(bare, "has no environment states", replay=False)
    assert grad_report(plain, dataclasses.replace(STORED, from_buffer=str(bare))).reports  # which needs no states
    refused(saved, "cannot draw 160 transitions", ExitCode.USAGE, groups=40)
    refused(saved, "none has a score", ExitCode.USAGE, by="consequence")
    other, header = tmp_path / "other.npz", buffer.header
    longer = dataclasses.replace(header, settings={**header.settings, "env.max_steps": 21})
    for head, words in ((longer, r"env\.max_steps = 21 in the buffer, 20 here"),
                        (dataclasses.replace(header, env="lake"), "filled in lake")):  # fmt: skip
        buffers.save(other, dataclasses.replace(buffer, header=head))
        for replay in (True, False):
            refused(other, words, replay=replay)
    with pytest.raises(HmxError, match="it is a saved buffer") as caught:
        grad_report(saved, STORED)
    assert f"--from-buffer {saved}" in caught.value.hint


def test_comparison_with_the_same_run_has_ratios_of_one(plain: Path, saved: Path) -> None:
    found = grad_report(plain, dataclasses.replace(STORED, checkpoint=6, from_buffer=str(saved), compare=str(plain)))
    assert found.compare is not None
    assert found.compare.norm_ratio["all"] == {"td": 1.0, "total": 1.0}
