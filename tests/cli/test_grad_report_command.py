"""`hmx grad-report` from the command line: every output format, and bad requests."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from refusals import refused

from hmx.errors import ExitCode

pytestmark = pytest.mark.usefixtures("compiled_once")
SMALL = ("--groups", "10", "--per-group", "4", "--buckets", "2")


def test_command_writes_every_format(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    files = ("--html", "r.html", "--md", "r.md", "--csv", "r.csv")
    result = hmx("grad-report", "corridor", *SMALL, "--keys", "both", "--crossfit", "--json", *files)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    printed = json.loads(result.stdout)
    assert (printed["schema"], printed["env"], printed["request"]["keys"]) == (2, "corridor", "both")
    (report,) = printed["reports"]
    assert report["whole"]["components"]["task"]["norm"] > 0.0 and report["whole"]["acted_std"] > 0.0
    assert all(f"warning: {warning}\n" in result.stderr for warning in report["warnings"])
    assert "Hollow: ranked by one half" in (tmp_path / "r.html").read_text()
    assert "Acted std" in (tmp_path / "r.md").read_text()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert len(rows) == 4 * (len(report["buckets"]) + 1)  # without a reference there is no KL term
    assert float(rows[-1]["norm"]) == report["whole"]["components"]["total"]["norm"]

    (tmp_path / "saved.json").write_text(result.stdout)
    result = hmx("grad-report", "runs/corridor/checkpoints", *SMALL, "--quiet", "--compare", "saved.json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Gradient report:")
    assert "Norms divided by those of saved.json" in result.stdout.splitlines()
    assert "× 1" in result.stdout
    assert " ".join(result.stdout.split()).partition(report["verdict"])[1]


@pytest.mark.thorough
def test_command_measures_stored_transitions_by_td_error(hmx, tmp_path):
    words = ["--set", "replay.capacity=512", "--set", "dqn.learn_starts=256", "--num-envs", "4"]
    result = hmx("train", "--preset", "lake", "--name", "q", "--steps", "2048", "--eval-episodes", "0", *words)
    assert result.exit_code == 0, result.stderr
    small = ("--groups", "20", "--per-group", "4", "--buckets", "2", "--seed", "1")
    result = hmx("grad-report", "q", "--replay", *small, "--json", "--csv", "r.csv")
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads(result.stdout)["reports"]
    assert (report["rank"], report["source"], report["stored"]) == ("td", "replay", 512)
    assert sum(bucket["draws"] for bucket in report["buckets"]) == pytest.approx(1.0)
    assert "measuring gradients of q ..." in result.stderr
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 1 + 2 * (len(report["buckets"]) + 1)


@pytest.mark.parametrize(
    ("words", "part"), [(["foreign"], "foreign"), (["corridor", "--compare", "notes.txt"], "not a gradient report")]
)
def test_files_of_other_programs_are_refused(hmx, tmp_path, trained, words, part):
    shutil.copytree(trained, tmp_path / "runs")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "pytorch_model.bin").write_bytes(b"weights")
    (tmp_path / "notes.txt").write_text("it went well")
    refused(hmx("grad-report", *words, "--quiet"), ExitCode.ARTEFACT, part)
