from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from folders import contents
from new_runs import train

from hmx.config import fields
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.errors import ExitCode, HmxError
from hmx.records.paths import RunPaths
from hmx.records.plain import plain_object
from hmx.render.blocks import Paragraph
from hmx.reports.grad_report import job
from hmx.reports.grad_report.findings import GradFindings
from hmx.reports.grad_report.job import grad_report, state_hash
from hmx.reports.grad_report.request import GradReportRequest
from hmx.reports.report.job import other_reports


def request(**changes: Any) -> GradReportRequest:
    return GradReportRequest(**{"groups": 4, "per_group": 4, "buckets": 2, **changes})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cfg = Config(
        run=RunConfig(
            name="learned",
            root=str(tmp_path_factory.mktemp("runs")),
            total_steps=6 * 32,
            updates_per_chunk=2,
            eval_episodes=0,
            checkpoint_every=1,
        ),
        env=EnvConfig(id="corridor", num_envs=4, max_steps=20),
        net=NetConfig(kind="mlp", hidden=(8,)),
        algo=AlgoConfig(num_steps=8),
        ppo=PpoConfig(update_epochs=1, num_minibatches=2, ent_coef=0.02, ent_schedule="linear"),
    )
    return train(cfg).run


@pytest.fixture(scope="module")
def whole(trained: Path) -> GradFindings:
    before = contents(trained)
    found = grad_report(trained, request(all_checkpoints=True))
    after = contents(trained)
    assert after.pop("reports/gradients.json") and after == before, "a report changes nothing else"
    return found


def printed(found: GradFindings, i: int = -1) -> str:
    """Return one report as JSON."""
    return json.dumps(plain_object(found.reports[i]), allow_nan=False)


def test_report_on_every_checkpoint_leaves_states_unchanged(whole: GradFindings) -> None:
    assert [report.update for report in whole.reports] == [2, 4, 6]
    assert [report.env_steps for report in whole.reports] == [64, 128, 192]
    assert all(report.hash_before == report.hash_after for report in whole.reports)
    assert len({report.hash_before for report in whole.reports}) == 3
    assert whole.warnings == ()
    for report in whole.reports:
        assert report.consistency.ratio_error is not None and report.consistency.ratio_error < 1e-5
        assert sum(len(bucket.groups) for bucket in report.buckets) == 4
        assert report.verdict.endswith(".")


def test_the_report_is_kept_for_the_page_of_the_run(whole: GradFindings, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "learned"
    shutil.copytree(trained, run)
    warnings: list[str] = []
    paths = RunPaths(run.parent, run.name)
    (shown,) = other_reports(paths, warnings)
    assert not warnings and shown.title == f"Gradient report: {trained}, checkpoint 6"
    assert shown.blocks[0] == Paragraph(whole.reports[-1].verdict, "strong")

    shutil.rmtree(paths.reports)
    paths.reports.touch()
    found = grad_report(run, request(checkpoint=6))
    assert "the page of the run will not show this report" in found.warnings[-1]


def test_coefficients_belong_to_the_next_update(whole: GradFindings) -> None:
    """The entropy bonus falls over the 6 updates of the run, of which 2, 4 and 6 are done."""
    ent = [report.coefs["entropy"] for report in whole.reports]
    end = PpoConfig().ent_end
    assert ent == pytest.approx([0.02 * (1 + (end - 1) * done / 6) for done in (2, 4, 6)])
    assert all(report.coefs["value"] == PpoConfig().vf_coef for report in whole.reports)


def test_run_folder_of_checkpoints_and_checkpoint_give_one_report(
    whole: GradFindings, trained: Path, tmp_path: Path
) -> None:
    """A checkpoint carries its configuration, so it can be moved away from its run and renamed."""
    shutil.copytree(trained / "checkpoints", tmp_path / "ckpt")
    shutil.copytree(trained / "checkpoints" / "6", tmp_path / "best")
    for path in (trained, trained / "checkpoints" / "6", tmp_path / "ckpt", tmp_path / "best"):
        assert printed(grad_report(path, request())) == printed(whole)
    found = grad_report(tmp_path / "ckpt" / "6", request(checkpoint=4, compare=str(trained)))
    assert printed(found) == printed(whole, 1)
    older, newer = (whole.reports[i].whole.components["value"].norm for i in (1, 2))
    assert found.compare is not None
    assert found.compare.norm_ratio["all"]["value"] == pytest.approx(older / newer)


def test_reference_gives_kl_a_gradient_and_a_saved_report_ratios(
    whole: GradFindings, trained: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(plain_object(whole)))
    found = grad_report(trained, request(reference=2, compare=str(saved)))
    kl = found.reports[0].whole.components["kl"]
    assert (kl.raw or 0.0) > 0.0 and kl.norm == 0.0
    assert "kl" not in whole.reports[-1].whole.components
    assert "no KL term" in whole.reports[-1].notes[0]
    assert found.compare is not None
    for row in found.compare.norm_ratio.values():
        assert row["value"] == pytest.approx(1.0) and row.get("kl") is None


def test_damaged_checkpoint_is_skipped_among_several_and_refused_alone(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "copy")
    arrays = [path for path in (tmp_path / "copy" / "checkpoints" / "4").rglob("*") if path.is_file()]
    large = max(arrays, key=lambda path: path.stat().st_size)
    large.write_bytes(bytes(reversed(large.read_bytes())))
    found = grad_report(tmp_path / "copy", request(all_checkpoints=True))
    assert [report.update for report in found.reports] == [2, 6]
    assert "checkpoint 4 is left out" in found.warnings[0]
    with pytest.raises(HmxError, match="is damaged"):
        grad_report(tmp_path / "copy", request(checkpoint=4))


@pytest.mark.parametrize(
    ("given", "words", "code"),
    [
        ({"checkpoint": 7}, "there is no checkpoint", ExitCode.ARTEFACT),
        ({"reference": 7}, "there is no checkpoint", ExitCode.ARTEFACT),
        ({"checkpoint": 2, "all_checkpoints": True}, "--all-checkpoints", ExitCode.USAGE),
        ({"agent": 1}, "there is no agent 1", ExitCode.USAGE),
        ({"groups": 2, "buckets": 4}, "cannot fill 4 buckets", ExitCode.USAGE),
    ],
)
def test_request_that_does_not_fit_the_run_is_refused(
    given: dict[str, Any], words: str, code: ExitCode, trained: Path
) -> None:
    with pytest.raises(HmxError, match=words) as caught:
        grad_report(trained, request(**given))
    assert caught.value.exit_code == code and caught.value.hint


def test_missing_compare_file_is_refused_before_measuring(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> object:
        raise AssertionError("measured")

    monkeypatch.setattr(job, "interruptible", measure)
    shutil.copytree(trained, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "checkpoints")
    (tmp_path / "report.json").write_text('{"schema": 1}')
    for other, words in (("nope", "nope"), ("bare", "checkpoint"), ("report.json", "not a gradient report")):
        with pytest.raises(HmxError, match=words) as caught:
            grad_report(trained, request(compare=str(tmp_path / other)))
        assert caught.value.exit_code == ExitCode.ARTEFACT
    with pytest.raises(AssertionError, match="measured"):
        grad_report(trained, request(compare=str(trained)))


def test_path_without_checkpoints_is_refused(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign" / "7").mkdir(parents=True)
    (tmp_path / "foreign" / "7" / "model.safetensors").write_bytes(b"weights")
    shutil.copytree(trained, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "checkpoints")
    for path in ("empty", "foreign", "foreign/7", "bare", "missing"):
        with pytest.raises(HmxError) as caught:
            grad_report(tmp_path / path, request())
        assert caught.value.exit_code == ExitCode.ARTEFACT, path


def test_state_hash_differs_between_states() -> None:
    state = {"a": np.arange(3.0), "key": jax.random.key(0)}
    same = state_hash(state)
    assert same == state_hash({"a": np.arange(3.0), "key": jax.random.key(0)})
    assert same != state_hash({**state, "a": np.array([0.0, 1.0, np.nextafter(2.0, 3.0)])})
    assert same != state_hash({**state, "a": np.arange(3)})
    assert same != state_hash({**state, "key": jax.random.key(1)})


@pytest.mark.thorough
def test_agents_have_different_gradients(trained: Path, tmp_path: Path) -> None:
    from hmx.registry.load import load

    cfg = load(file=trained, environ={}).config
    changes = {"run.root": str(tmp_path), "run.num_seeds": 2, "run.total_steps": 2 * 32, "run.checkpoint_every": 9}
    run = train(fields.replace(cfg, changes)).run
    norms = [grad_report(run, request(agent=i)).reports[0].whole.components["task"].norm for i in (0, 1)]
    assert norms[0] != norms[1]
