"""`hmx grad-report` on runs of Q-learning, on saved buffers, and in training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmx.analysis.report import make_reporter
from hmx.analysis.spec import Spec
from hmx.config import fields
from hmx.config.load import load
from hmx.config.schema import Config
from hmx.env.registry import make_env
from hmx.errors import ExitCode, HmxError
from hmx.jobs.grad_training import metrics
from hmx.jobs.train import train
from hmx.records.metrics_table import METRICS
from hmx.reports.gradients.buffer import open_buffer
from hmx.reports.gradients.findings import finding, notes, warnings
from hmx.reports.gradients.job import GradReportResult, grad_report
from hmx.runs import buffers, checkpoint
from hmx.runs.session import open_session

SPEC = Spec(groups=4, per_group=4, buckets=2)
STORED = dataclasses.replace(SPEC, replay=True, by="td")
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
def of_buffer(plain: Path) -> GradReportResult:
    return grad_report(plain, spec=STORED)


def test_a_run_that_reports_is_the_run_that_does_not(plain: Path, tmp_path: Path, deterministic: Lines) -> None:
    """All of the last checkpoint, buffers and keys with it, and every other number to the last bit; and what was
    measured is what the command says of the checkpoint before."""
    reporting = trained(tmp_path, Q, run__grad_report_every=3)
    one, other = arrays(plain), arrays(reporting)
    assert any("replay" in name for name in one)
    assert one == other
    new = ("grad_norm/", "train/grad_report_seconds")
    records = deterministic(reporting)
    assert [{k: v for k, v in r.items() if not k.startswith(new)} for r in records] == deterministic(plain)
    both = {(r["update"], r["seed"]): {k: v for k, v in r.items() if k.startswith("grad_norm/")} for r in records}
    assert [place for place, found in both.items() if found] == [(3, 3), (3, 4), (6, 3), (6, 4)]
    spec = Spec(groups=4, per_group=4, max_length=256)
    report = grad_report(reporting, spec=spec, checkpoint=2, agent=1).points[0].report
    assert metrics(report) == both[3, 4] != both[3, 3]
    said = both[3, 4]
    assert said["grad_norm/all/td"] == said["grad_norm/all/total"] > 0.0
    assert not any("value" in name or "entropy" in name or "kl" in name for name in said)
    names = {name.replace("grad_norm/all/", "grad_norm/<bucket>/") for name in said if "/all/" in name}
    known = {name.replace("<part>", part) for name in METRICS for part in ("td", "total")}
    assert {name for name in names if "/layer/" not in name} <= known


def arrays(run: Path) -> dict[str, bytes]:
    """What the last checkpoint holds."""
    session = open_session(load(file=run, environ={}).config)
    state = checkpoint.restore(run / "checkpoints" / "6", session.abstract)
    return {name: np.asarray(leaf).tobytes() for name, leaf in checkpoint.to_host(state).items()}


def test_every_checkpoint(plain: Path) -> None:
    found = grad_report(plain, spec=STORED, all_checkpoints=True).to_json()
    assert [report["checkpoint"]["update"] for report in found["reports"]] == [2, 4, 6]
    assert [report["source"]["transitions"] for report in found["reports"]] == [64, 128, 128]
    for report in found["reports"]:
        assert report["checkpoint"]["hash_before"] == report["checkpoint"]["hash_after"]
        assert report["all"]["reward_std"]["mean"] is report["all"]["return_mean"] is None
        assert set(report["all"]["norm"]) == set(report["all"]["loss"]) == {"td", "total"}
        assert sum(bucket["replay"]["draws"] for bucket in report["buckets"]) == pytest.approx(1.0)


def test_the_saved_buffer_is_that_of_the_last_checkpoint(plain: Path, saved: Path, of_buffer: GradReportResult) -> None:
    """Where exponents are not fitted, probabilities follow from what is saved."""
    one, other = of_buffer.to_json(), grad_report(plain, spec=STORED, from_buffer=saved).to_json()
    assert (one.pop("buffer"), other.pop("buffer")) == (None, str(saved))
    for found in (one, other):
        for bucket in [*found["reports"][0]["buckets"], found["reports"][0]["all"]]:
            bucket["replay"] = {key: pytest.approx(value, rel=1e-5) for key, value in bucket["replay"].items()}
    assert str(one) == str(other)


def test_what_it_comes_to(of_buffer: GradReportResult) -> None:
    report = of_buffer.points[0].report
    assert report.replay is not None
    top = max(report.replay.measures.buckets, key=lambda bucket: bucket.share or 0.0)
    assert f"{top.name} has {top.weight:.0%} of the transitions, {report.replay.draws[top.name]:.0%} of the draws" in (
        finding(report)
    )
    assert "rank correlation" in notes(report)[0]
    even = dataclasses.replace(report, replay=dataclasses.replace(report.replay, prioritised=False))
    assert "draws all transitions alike" in notes(even)[0]
    off = dataclasses.replace(report, replay=None, ratio_error=1.0, value_error=0.5)
    assert any("recomputed choices are not those" in line for line in warnings(off))


def test_ppo_from_stored_states(plain: Path, saved: Path, tmp_path: Path) -> None:
    """The buffer of one algorithm gives the other its starts."""
    run = trained(tmp_path, BASE, algo__update_epochs=1, algo__num_minibatches=2)
    found = grad_report(run, spec=SPEC, from_buffer=saved).to_json()["reports"][0]
    assert found["source"] == {"kind": "buffer", "transitions": 128, "epsilon": None}
    assert found["consistency"]["ratio_error"] < 1e-5
    fresh = grad_report(run, spec=SPEC).to_json()["reports"][0]
    assert fresh["source"]["kind"] == "starts"
    assert [g["lengths"] for g in found["groups"]] != [g["lengths"] for g in fresh["groups"]]
    with pytest.raises(HmxError, match="replays nothing"):
        grad_report(run, spec=STORED)
    memory = fields.replace(Config(), {**BASE, "net.rnn": "gru", "net.rnn_hidden": 4, "algo.bptt_horizon": 4})
    env = make_env(memory.env, memory.reward)
    with pytest.raises(HmxError, match="what a network with memory remembered there is lost"):
        make_reporter(memory, env, SPEC, open_buffer(saved, memory, env, SPEC))


def changed(saved: Path, place: Path, **items: Any) -> Path:
    """The saved buffer with other items, or without them where they are None."""
    buffer = buffers.load(saved)
    kept = {name: leaf for name, leaf in {**buffer.items, **items}.items() if leaf is not None}
    buffers.save(place, dataclasses.replace(buffer, items=kept))
    return place


def test_buffers_that_do_not_fit(plain: Path, saved: Path, tmp_path: Path) -> None:
    def refused(file: Path, words: str, code: int = ExitCode.ARTEFACT, spec: Spec = STORED) -> None:
        with pytest.raises(HmxError, match=words) as caught:
            grad_report(plain, spec=spec, from_buffer=file)
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
    refused(bare, "holds no environment states", spec=SPEC)
    # to be learned from, it takes no states
    assert grad_report(plain, spec=STORED, from_buffer=bare).points
    refused(saved, "holds 128 transitions, and 160 are asked for", ExitCode.USAGE,
            dataclasses.replace(STORED, groups=40))  # fmt: skip
    refused(saved, "none has a score", ExitCode.USAGE, dataclasses.replace(STORED, by="consequence"))
    other, header = tmp_path / "other.npz", buffer.header
    longer = dataclasses.replace(header, settings={**header.settings, "env.max_steps": 21})
    for head, words in ((longer, r"env\.max_steps = 21 in the buffer, 20 here"),
                        (dataclasses.replace(header, env="lake"), "filled in lake")):  # fmt: skip
        buffers.save(other, dataclasses.replace(buffer, header=head))
        for spec in (SPEC, STORED):
            refused(other, words, spec=spec)
    with pytest.raises(HmxError, match="is a saved buffer") as caught:
        grad_report(saved, spec=STORED)
    assert f"--from-buffer {saved}" in caught.value.hint


def test_with_another_run_beside_it(plain: Path, saved: Path) -> None:
    found = grad_report(plain, spec=STORED, checkpoint=6, from_buffer=saved, compare=plain)
    assert found.ratios is not None
    assert found.ratios["all"] == {"td": 1.0, "total": 1.0}
