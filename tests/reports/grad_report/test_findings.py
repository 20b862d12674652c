"""Verdict, warnings, notes, and norms of gradient reports, from made-up gradients."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_findings import PPO, TD, checkpoint, episode_report, episodes_of, findings, replay_report, spread

from hmx.algos.gradients.measures import Sums
from hmx.algos.gradients.results import Consistency, GradReport
from hmx.errors import ExitCode, HmxError
from hmx.records.plain import plain_object
from hmx.reports.grad_report.findings import SCHEMA, norm_ratios, norms, notes, read_norms, verdict, warnings

STD = np.linspace(0.1, 0.8, 8)


def report(task: Any, value: Any, noise: float = 0.0, std: Any = STD, **changes: Any) -> GradReport:
    """Return a report on 8 groups that all have these weighted gradients in the first two dimensions, plus noise."""
    grads = np.zeros((8, 4, 5))
    grads[:, 0, :2], grads[:, 3, :2] = task, np.asarray(value) / 0.5
    grads += noise * np.random.default_rng(0).normal(size=grads.shape)
    sums = Sums(np.ones((8, 4)), grads, np.ones(8), np.full(8, 4.0))
    episodes = episodes_of(spread(np.asarray(std)), **changes.pop("episodes", {}))
    return episode_report(PPO | {"entropy": 0.0}, sums, episodes, **{"groups": 8, "buckets": 1, **changes})


def test_verdict_follows_from_the_gradients() -> None:
    text = verdict(report((1.0, 0.0), (-0.62, 1.9)))
    opposed = "The gradients of task and value oppose each other (cosine -0.31)."
    assert text.startswith(f"The value loss makes up 90% of the update. {opposed} In the gradient of the policy loss, ")
    assert "noise equals signal at 0 groups; this report has 8" in text
    calm = verdict(report((1.0, 0.0), (0.0, 0.5)))
    assert calm.startswith("The policy loss makes up 80% of the update. No two components oppose each other.")
    noisy = verdict(report((0.0, 0.0), (0.0, 5.0), noise=1.0))
    assert "the gradient of the policy loss cannot be told from noise with 8 groups" in noisy.lower()
    assert verdict(report((0.0, 0.0), (0.0, 0.0))) == "The gradient is zero."


def test_verdict_of_q_learning_names_opposed_buckets() -> None:
    grads = np.ones((32, 1, 5))
    grads[:9] *= -0.9
    sums = Sums(np.ones((32, 1)), grads, np.ones(32), np.full(32, 4.0))
    assert "oppose each other (cosine -1.00)." in verdict(episode_report(TD, sums))


def test_calm_report_has_no_warnings() -> None:
    calm = report((1.0, 0.0), (0.0, 0.5))
    assert warnings(calm) == ()
    assert "--crossfit" in notes(calm)[0]


def test_crossfit_note_says_that_levels_cannot_be_compared() -> None:
    (note,) = notes(report((1.0, 0.0), (0.0, 0.5), crossfit=True))
    assert note.startswith("cross-fitted norms use half of the episodes")


def test_warnings_name_every_flaw() -> None:
    std = [0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    flaws = {"truncated": np.ones((8, 4), bool), "one_start": True}
    flawed = report(
        (1.0, 0.0), (0.0, 0.5), std=std, buckets=7, episodes=flaws,
        consistency=Consistency(ratio_error=0.1, approx_kl=0.01, clip_frac=0.0),
    )  # fmt: skip
    text = "\n".join(warnings(flawed))
    for words in (
        "2 of 8 groups have returns without variance", "only 6 groups can be ranked: 6 buckets instead of 7",
        "a bucket has 1 group,", "same observation", "100.0% of the episodes are longer", "ratio error 0.1, KL 0.01",
    ):  # fmt: skip
        assert words in text
    assert "critic" in notes(flawed)[-1]


def test_notes_on_replay_depend_on_priorities() -> None:
    assert notes(replay_report())[0].endswith("rank correlation of +0.25 with the current ones")
    assert notes(replay_report(prioritised=False)) == (
        "replay draws all transitions equally often, so both shares are the same",
    )


def test_findings_are_valid_json_with_every_bucket() -> None:
    for one in (episode_report(keys="both"), episode_report(TD), replay_report()):
        data = json.loads(json.dumps(plain_object(findings(one)), allow_nan=False))
        found = data["reports"][0]
        assert data["schema"] == SCHEMA and data["request"]["groups"] == one.request.groups
        assert [bucket["name"] for bucket in found["buckets"]] == [bucket.name for bucket in one.buckets]
        main = next(iter(one.coefs))
        assert found["whole"]["components"][main]["norm"] == one.whole.components[main].norm
        assert found["whole"]["components"][main]["interval"]["low"] > 0.0
        assert "request" not in found


def test_norms_of_a_report_and_its_json_are_the_same(tmp_path: Path) -> None:
    one = episode_report()
    (tmp_path / "r.json").write_text(json.dumps(plain_object(findings(episode_report(seed=1), one))))
    assert read_norms(tmp_path / "r.json") == norms(one)
    ratios = norm_ratios(norms(one), read_norms(tmp_path / "r.json"), "r.json")
    assert ratios.norm_ratio["all"] == {"task": 1.0, "entropy": 1.0, "kl": None, "value": 1.0, "total": 1.0}


def test_norms_are_read_from_schema_1(tmp_path: Path) -> None:
    row = {"name": "all", "norm": {"task": 0.5, "kl": None}}
    (tmp_path / "r.json").write_text(json.dumps({"schema": 1, "reports": [{"buckets": [], "all": row}]}))
    assert read_norms(tmp_path / "r.json") == {"all": {"task": 0.5}}


def test_ratios_leave_out_buckets_that_only_one_report_has() -> None:
    one, other = norms(episode_report()), norms(episode_report(buckets=2))
    assert set(norm_ratios(one, other, "r").norm_ratio) == {"bucket_zero", "bucket_1", "bucket_2", "all"}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"schema": 1}',
        '{"schema": 1, "reports": []}',
        '{"schema": 1, "reports": [{"buckets": [], "all": {"name": "all", "norm": {}}}]}',
        '{"schema": 1, "reports": [{"buckets": [], "all": {"name": "all", "norm": {"task": "much"}}}]}',
        '{"schema": 1, "reports": [{"buckets": [], "all": {"name": "all", "norm": {"task": NaN}}}]}',
        '{"schema": 1, "reports": [{"buckets": [], "all": {"name": "all", "norm": {"task": 1%s}}}]}' % ("0" * 400),
        '{"schema": 1, "reports": [{"buckets": 7, "all": {}}]}',
        '{"schema": 2, "reports": [{"buckets": [], "whole": {"name": "all", "components": {"task": 1}}}]}',
        '{"schema": 2, "reports": [{"buckets": [], "whole": {"name": "all", "components": {"task": {"norm": -1}}}}]}',
        '{"schema": "1", "reports": [{}]}',
    ],
    ids=["deep", "bare", "empty", "no norms", "words", "nan", "huge", "no buckets", "no parts", "negative", "schema"],
)
def test_file_that_is_not_a_report_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(HmxError, match=r"r\.json is not a gradient report") as caught:
        read_norms(tmp_path / "r.json")
    assert caught.value.exit_code == ExitCode.ARTEFACT


def test_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "r.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(HmxError, match="is not a gradient report"):
        read_norms(tmp_path / "r.json")


def test_report_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"schema": SCHEMA + 1, "reports": []}))
    with pytest.raises(HmxError, match="newer hmx"):
        read_norms(tmp_path / "r.json")


def test_checkpoint_report_has_the_values_of_its_report() -> None:
    one = episode_report()
    assert all(getattr(checkpoint(one), field.name) is getattr(one, field.name) for field in dataclasses.fields(one))
