from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hmx.analysis.buckets import split
from hmx.analysis.gradients import Layer
from hmx.analysis.measures import Sums, measure
from hmx.analysis.spec import GradReport, Spec
from hmx.config import fields
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.errors import ExitCode, HmxError
from hmx.jobs.train import train
from hmx.reports.gradients.findings import finding, notes, warnings
from hmx.reports.gradients.job import grad_report, state_hash
from hmx.reports.gradients.to_json import compare, interval, to_json

SPEC = Spec(groups=4, per_group=4, buckets=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cfg = Config(
        run=RunConfig(
            name="learned", root=str(tmp_path_factory.mktemp("runs")), total_steps=6 * 32, updates_per_chunk=2,
            eval_episodes=0, checkpoint_every=1,
        ),
        env=EnvConfig(id="corridor", num_envs=4, max_steps=20),
        net=NetConfig(kind="mlp", hidden=(8,)),
        algo=AlgoConfig(num_steps=8, update_epochs=1, num_minibatches=2, ent_coef=0.02, ent_schedule="linear"),
    )  # fmt: skip
    return train(cfg).run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def whole(trained: Path) -> dict[str, Any]:
    before = contents(trained)
    result = grad_report(trained, spec=SPEC, all_checkpoints=True)
    assert contents(trained) == before, "a report changes nothing"
    data = result.to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == json.loads(json.dumps(data))
    return data


def test_every_checkpoint_and_the_state_it_leaves_alone(whole: dict[str, Any]) -> None:
    points = [report["checkpoint"] for report in whole["reports"]]
    assert [point["update"] for point in points] == [2, 4, 6]
    assert [point["env_steps"] for point in points] == [64, 128, 192]
    assert all(point["hash_before"] == point["hash_after"] for point in points)
    assert len({point["hash_before"] for point in points}) == 3
    assert whole["warnings"] == []
    for report in whole["reports"]:
        assert report["consistency"]["ratio_error"] < 1e-5
        assert sum(bucket["n_groups"] for bucket in report["buckets"]) == 4
        assert report["finding"].endswith(".")


def test_coefficients_are_those_of_the_update_to_come(whole: dict[str, Any]) -> None:
    """The entropy bonus falls over the run to its end, of 6 updates 2, 4 and 6 are done."""
    ent = [report["coefs"]["entropy"] for report in whole["reports"]]
    end = AlgoConfig().ent_end
    assert ent == pytest.approx([0.02 * (1 + (end - 1) * done / 6) for done in (2, 4, 6)])
    assert all(report["coefs"]["value"] == AlgoConfig().vf_coef for report in whole["reports"])


def test_a_run_its_checkpoints_and_a_checkpoint_are_one(whole: dict[str, Any], trained: Path, tmp_path: Path) -> None:
    """Also where a checkpoint has left its run: it carries its configuration; and to the last byte, each time."""
    shutil.copytree(trained / "checkpoints", tmp_path / "ckpt")
    text = json.dumps(whole["reports"][-1])
    for path in (trained, trained / "checkpoints" / "6", tmp_path / "ckpt"):
        assert json.dumps(grad_report(path, spec=SPEC).to_json()["reports"][-1]) == text
    found = grad_report(tmp_path / "ckpt" / "6", spec=SPEC, checkpoint=4, compare=trained)
    assert json.dumps(found.to_json()["reports"][0]) == json.dumps(whole["reports"][1])
    newest = whole["reports"][2]["all"]["norm"]["value"]
    assert found.ratios is not None
    assert found.ratios["all"]["value"] == pytest.approx(whole["reports"][1]["all"]["norm"]["value"] / newest)


def test_a_reference_and_a_saved_report(whole: dict[str, Any], trained: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(whole))
    found = grad_report(trained, spec=SPEC, reference=2, compare=saved).to_json()
    report = found["reports"][0]
    assert report["all"]["raw"]["kl"] > 0.0 and report["all"]["norm"]["kl"] == 0.0
    assert whole["reports"][-1]["all"]["raw"]["kl"] == 0.0
    for row in found["compare"]["norm_ratio"].values():
        assert row["value"] == pytest.approx(1.0) and row["kl"] is None


def test_a_damaged_checkpoint_is_left_out_of_many(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "copy")
    arrays = [path for path in (tmp_path / "copy" / "checkpoints" / "4").rglob("*") if path.is_file()]
    large = max(arrays, key=lambda path: path.stat().st_size)
    large.write_bytes(bytes(reversed(large.read_bytes())))
    found = grad_report(tmp_path / "copy", spec=SPEC, all_checkpoints=True)
    assert [point.update for point in found.points] == [2, 6]
    assert "checkpoint 4 is left out" in found.warnings[0]
    with pytest.raises(HmxError, match="is damaged"):
        grad_report(tmp_path / "copy", spec=SPEC, checkpoint=4)


@pytest.mark.parametrize(
    ("given", "words", "code"),
    [
        ({"checkpoint": 7}, "there is no checkpoint", ExitCode.ARTEFACT),
        ({"reference": 7}, "there is no checkpoint", ExitCode.ARTEFACT),
        ({"checkpoint": 2, "all_checkpoints": True}, "--all-checkpoints", ExitCode.USAGE),
        ({"agent": 1}, "there is no agent 1", ExitCode.USAGE),
        ({"spec": Spec(groups=2)}, "cannot fill 4 buckets", ExitCode.USAGE),
        ({"compare": "nowhere"}, "there is no run nowhere", ExitCode.ARTEFACT),
    ],
)
def test_bad_requests(given: dict[str, Any], words: str, code: ExitCode, trained: Path) -> None:
    with pytest.raises(HmxError, match=words) as caught:
        grad_report(trained, **{"spec": SPEC, **given})
    assert caught.value.exit_code == code and caught.value.hint


def test_paths_that_lead_nowhere(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign" / "7").mkdir(parents=True)
    (tmp_path / "foreign" / "7" / "model.safetensors").write_bytes(b"weights")
    shutil.copytree(trained, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "checkpoints")
    (tmp_path / "report.json").write_text('{"schema": 1}')
    for path in ("empty", "foreign", "foreign/7", "bare", "missing"):
        with pytest.raises(HmxError) as caught:
            grad_report(tmp_path / path, spec=SPEC)
        assert caught.value.exit_code == ExitCode.ARTEFACT, path
    with pytest.raises(HmxError, match="not a gradient report"):
        grad_report(trained, spec=SPEC, compare=tmp_path / "report.json")


def test_the_hash_tells_states_apart() -> None:
    state = {"a": np.arange(3.0), "key": jax.random.key(0)}
    same = state_hash(state)
    assert same == state_hash({"a": np.arange(3.0), "key": jax.random.key(0)})
    assert same != state_hash({**state, "a": np.array([0.0, 1.0, np.nextafter(2.0, 3.0)])})
    assert same != state_hash({**state, "a": np.arange(3)})
    assert same != state_hash({**state, "key": jax.random.key(1)})


def synthetic(task: Any, value: Any, groups: int = 8, spread: float = 0.0, **changes: Any) -> GradReport:
    """A report whose groups all have these gradients (in two dimensions), up to a deviation."""
    random = np.random.default_rng(0)
    grads = np.zeros((groups, 4, 2))
    grads[:, 0], grads[:, 3] = task, np.asarray(value) / 0.5
    grads += spread * random.normal(size=grads.shape)
    sums = Sums(np.ones((groups, 4)), grads, np.ones(groups), np.full(groups, 2.0))
    coefs = {"task": 1.0, "entropy": 0.0, "kl": 0.0, "value": 0.5}
    std = changes.pop("std", np.linspace(0.1, 0.8, groups))
    spec = changes.pop("spec", Spec(groups=groups, per_group=2, buckets=1))
    given: dict[str, Any] = {
        "spec": spec,
        "coefs": coefs,
        "measures": measure(sums, split(std, spec.buckets), coefs, (Layer("torso", ((0, 2),)),)),
        "clip_scale": 1.0,
        "returns": np.ones((groups, 2)),
        "lengths": np.ones((groups, 2)),
        "cut": np.zeros((groups, 2), bool),
        "reward_std": std,
        "rv_action": None,
        "score": std,
        "one_start": False,
        "ratio_error": 0.0,
        "approx_kl": 0.0,
        "clip_frac": 0.0,
        "crossfit": None,
    }
    return GradReport(**{**given, **changes})


def test_findings_follow_from_the_numbers() -> None:
    said = finding(synthetic((1.0, 0.0), (-0.62, 1.9)))
    assert said.startswith("the value loss is 90% of the update; task and value oppose, cosine -0.31;")
    assert "noise equals signal in the task gradient of 0 groups, and there are 8" in said
    said = finding(synthetic((1.0, 0.0), (0.0, 0.5)))
    assert said.startswith("the policy loss is 80% of the update; no two components oppose;")
    noisy = finding(synthetic((0.0, 0.0), (0.0, 5.0), spread=1.0))
    assert "the task gradient cannot be told from noise by 8 groups" in noisy
    assert finding(synthetic((0.0, 0.0), (0.0, 0.0))) == "the gradient is zero."


def test_warnings_and_notes() -> None:
    calm = synthetic((1.0, 0.0), (0.0, 0.5))
    assert warnings(calm) == []
    assert "--crossfit" in notes(calm)[0]
    assert notes(synthetic((1.0, 0.0), (0.0, 0.5), crossfit={})) == []
    zeros = np.array([0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, np.nan])
    flawed = synthetic(
        (1.0, 0.0), (0.0, 0.5), std=zeros, spec=Spec(groups=8, per_group=2, buckets=6), one_start=True,
        cut=np.ones((8, 2), bool), ratio_error=0.1,
    )  # fmt: skip
    said = "\n".join(warnings(flawed))
    for words in (
        "2 of 8 groups have zero return variance", "1 of 8 groups have no variance that could be computed",
        "5 groups can be ranked: 5 buckets instead of 6", "a bucket has 1 groups", "same observation",
        "100.0% of the episodes are longer", "ratio error 0.1",
    ):  # fmt: skip
        assert words in said
    assert "critic" in notes(flawed)[-1]


def test_plain_values() -> None:
    report = synthetic((1.0, 0.0), (0.0, 0.5), spread=0.1, std=np.array([np.nan] + [0.5] * 7))
    data = to_json(report)
    assert json.loads(json.dumps(data, allow_nan=False)) == json.loads(json.dumps(data))
    assert data["groups"][0]["reward_std"] is None
    undefined = data["buckets"][-1]
    assert undefined["name"] == "bucket_undefined"
    assert undefined["reward_std"] == {"mean": None, "min": None, "max": None}
    assert undefined["interval"]["task"] is None
    part = report.measures.whole.parts["task"]
    low, high = interval(part) or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(part.norm)
    assert (high - low) / 2 == pytest.approx(2.3646 * (part.error or 0.0), rel=1e-4)  # t of 7 degrees of freedom
    assert compare(data, data)["all"] == {"task": 1.0, "entropy": None, "kl": None, "value": 1.0, "total": 1.0}


def test_several_agents(trained: Path, tmp_path: Path) -> None:
    from hmx.config.load import load

    cfg = load(file=trained, environ={}).config
    changes = {"run.root": str(tmp_path), "run.num_seeds": 2, "run.total_steps": 2 * 32, "run.checkpoint_every": 9}
    run = train(fields.replace(cfg, changes)).run
    norms = [grad_report(run, spec=SPEC, agent=i).points[0].report.measures.whole.parts["task"].norm for i in (0, 1)]
    assert norms[0] != norms[1]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"schema": 1, "reports": []}',
        '{"schema": 1, "reports": [{"buckets": [], "all": {"name": "all", "norm": {}}}]}',
        '{"schema": 1, "reports": [{"buckets": [], "all": {"name": "all", "norm": {"task": "much"}}}]}',
        '{"schema": 1, "reports": [{"buckets": [], "all": {"name": "all", "norm": {"task": NaN}}}]}',
        '{"schema": 1, "reports": [{"buckets": [], "all": {"name": "all", "norm": {"task": 1%s}}}]}' % ("0" * 400),
        '{"schema": 1, "reports": [{"buckets": 7, "all": {}}]}',
        '{"schema": "1", "reports": [{}]}',
    ],
    ids=["deep", "empty", "no norms", "words", "nan", "huge", "no buckets", "schema"],
)
def test_a_report_that_somebody_else_wrote(text: str, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(HmxError, match=r"r\.json is not a gradient report") as caught:
        grad_report(trained, spec=SPEC, compare=tmp_path / "r.json")
    assert caught.value.exit_code == ExitCode.ARTEFACT


def test_a_report_that_is_too_long(trained: Path, tmp_path: Path) -> None:
    with (tmp_path / "r.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(HmxError, match="is not a gradient report"):
        grad_report(trained, spec=SPEC, compare=tmp_path / "r.json")
