"""A policy without a checkpoint: it plays as the run it was exported from, and says why it does not fit."""

import json
import os
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluate import evaluate
from hmx.jobs.evaluation import read_evaluation
from hmx.jobs.export_policy import export_policy
from hmx.jobs.requests import PolicyRequest
from hmx.jobs.resume import resume
from hmx.records.layout import find_policy, find_run
from hmx.records.paths import WEIGHTS
from hmx.runs.restoring import Run

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def run(unpack, tmp_path):
    return unpack(2, tmp_path).folder


@pytest.fixture
def policy(run, tmp_path):
    """A folder with nothing but the configuration of the run and its exported policy."""
    folder = tmp_path / "policy"
    folder.mkdir()
    shutil.copy(run / "run.toml", folder)
    export_policy(run, PolicyRequest(output=folder / WEIGHTS))
    return folder


def test_exported_policy_plays_like_the_run(run, policy):
    of_run, of_policy = (evaluate(folder, episodes=8) for folder in (run, policy))
    assert of_policy.policies == of_run.policies
    assert (of_policy.checkpoint, of_policy.env_steps) == (of_run.checkpoint, of_run.env_steps)


def test_evaluation_takes_the_path_of_a_checkpoint(run, tmp_path):
    whole, inside = evaluate(run, episodes=8, checkpoint=2), evaluate(run / "checkpoints" / "2", episodes=8)
    assert (inside.run, inside.checkpoint, inside.policies) == (run, 2, whole.policies)
    shutil.copytree(run / "checkpoints" / "2", tmp_path / "copy")
    copied = evaluate(tmp_path / "copy", episodes=8)
    assert (copied.run, copied.checkpoint, copied.policies) == (tmp_path / "copy", 2, whole.policies)


def test_file_contains_the_configuration_without_the_runs_folder(run, tmp_path, monkeypatch):
    elsewhere = Run.find(run, run.parent).changed({"run.root": "/home/ada/runs"})
    monkeypatch.setattr(Run, "find", lambda *_: elsewhere)
    export_policy(run, PolicyRequest(output=tmp_path / WEIGHTS))
    with safe_open(tmp_path / WEIGHTS, "numpy") as file:
        config = json.loads(file.metadata()["config"])
    assert config["env"]["id"] == "corridor" and "root" not in config["run"]
    assert b"/home/ada" not in (tmp_path / WEIGHTS).read_bytes()


def test_exported_policy_cannot_be_resumed(policy):
    with pytest.raises(HmxError, match="no checkpoint"):
        resume(policy)


def test_numbered_checkpoint_is_never_the_exported_policy(policy):
    with pytest.raises(HmxError, match="checkpoint"):
        evaluate(policy, episodes=8, checkpoint=4)


def test_refuses_a_damaged_file(policy):
    data = (policy / WEIGHTS).read_bytes()
    (policy / WEIGHTS).write_bytes(data[: len(data) // 2])
    check_refused(policy, "cannot read the policy")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.symlink_to("run.toml"), "a link instead of a file"),
        (lambda path: (path.touch(), os.truncate(path, 3 << 30)), "3,221,225,472 bytes, more than the maximum of"),
    ],
)
def test_refuses_a_link_and_a_file_that_is_too_large(policy, make, words):
    (policy / WEIGHTS).unlink()
    make(policy / WEIGHTS)
    check_refused(policy, f"cannot read the policy .*{words}")


def test_refuses_a_file_without_the_number_of_its_update(policy):
    save_file(load_file(policy / WEIGHTS), policy / WEIGHTS)
    check_refused(policy, "name its update")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"params/more": np.zeros(3)}, "params/more is unexpected"),
        ({"params/policy_head/bias": np.zeros(77, np.float32)}, r"bias is float32 \[77\] instead of float32 \[2\]"),
    ],
)
def test_refuses_other_weights(policy, change, words):
    save_file({**load_file(policy / WEIGHTS), **change}, policy / WEIGHTS, {"update": "4"})
    check_refused(policy, f"does not fit its run.toml: .*{words}")


def test_refuses_another_network(policy):
    toml = (policy / "run.toml").read_text()
    assert 'activation = "relu"' in toml
    (policy / "run.toml").write_text(toml.replace('activation = "relu"', 'activation = "tanh"'))
    check_refused(policy, "have changed since it was exported")


def check_refused(policy, words):
    with pytest.raises(HmxError, match=words) as error:
        evaluate(policy, episodes=8)
    assert error.value.exit_code == ExitCode.ARTEFACT and "hmx export" in error.value.hint


def test_a_run_called_champion_comes_first(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    with pytest.raises(HmxError, match="there is no run champion"):
        find_run("champion", run.parent)
    assert find_policy("champion", run.parent).folder.parts[-3:] == ("hmx", "agents", "champion")
    run.rename(run.parent / "champion")
    assert find_policy("champion", run.parent).folder == run.parent / "champion"


def test_the_installed_agent_fits_the_installed_rules_and_has_its_evaluation():
    paths = find_policy("champion", "no-such-folder")
    session = Run.of(paths).open()
    restored = Run.of(paths).policy(session)
    rows, faults = read_evaluation(paths)
    assert not faults and [row.policy for row in rows] == ["random", "search"] and rows[1].episodes == 1000
    assert restored.update == session.sizes.num_updates and session.cfg.env.rules == "designed"
    assert paths.weights.stat().st_size < 5e6
    with safe_open(paths.weights, "numpy") as file:
        trained = json.loads(file.metadata()["config"])["run"]
    folders = {trained.get("root", "runs"), trained.get("init_from", "")}
    assert folders == {"runs", ""}  # none of the machine that trained it
