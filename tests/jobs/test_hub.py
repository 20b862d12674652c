"""`hmx runs push --to`: exactly the files that would be published, without those of this machine."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from made_runs import flat, make_run

from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluate import evaluate
from hmx.jobs.hub import pull, push
from hmx.jobs.resume import resume
from hmx.jobs.runs import verify
from hmx.jobs.train import train
from hmx.registry.load import load
from hmx.render.markdown import markdown
from hmx.reports.card import model_card

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two seeds below a folder whose path must not be published."""
    root = tmp_path_factory.mktemp("home") / "secret"
    values = {"run.total_steps": 2048, "run.eval_episodes": 20, "run.name": "r", "run.num_seeds": 2, "run.keep": 3}
    task = load(preset="tiny", environ={}).changed({**values, "run.root": str(root)})
    train(task, command_line=["hmx", "train", "--config", "/home/me/token.toml"])
    return root / "r"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "secret" / "r"))


def test_published_files_are_those_of_the_run_without_paths_and_command_lines(run: Path, tmp_path: Path) -> None:
    (run / "notes.txt").write_text("private")
    (run / "reports" / "report.html").write_text("page")
    done = push(run, "me/r", "card", to=tmp_path / "out")
    shown = {name for name in done.files if not name.startswith("checkpoints/")}
    assert shown == {"README.md", "run.toml", "meta.json", "metrics.jsonl", "reports/evaluation.json"}
    (checkpoint,) = (tmp_path / "out" / "checkpoints").iterdir()
    assert checkpoint.name == "8" and done.size == sum((tmp_path / "out" / name).stat().st_size for name in done.files)
    for name in done.files:
        data = (tmp_path / "out" / name).read_bytes()
        assert not [word for word in (b"secret", b"token", b"/home", bytes(run.parent)) if word in data], name
    for name in ("meta.json", "checkpoints/8/meta.json"):
        kept = json.loads((tmp_path / "out" / name).read_text())
        assert kept["command"] == [] and kept["platform"] == "" and kept["run_id"]
    assert tomllib.loads((tmp_path / "out" / "run.toml").read_text())["run"]["root"] == "runs"
    assert not verify(tmp_path / "out").damage


def test_a_published_run_evaluates_and_resumes_like_the_run(run: Path, tmp_path: Path) -> None:
    push(run, "me/r", "card", to=tmp_path / "out")
    assert evaluate(tmp_path / "out", episodes=5).policies == evaluate(run, episodes=5).policies
    for folder in (run, tmp_path / "out"):
        resume(folder, changes={"run.total_steps": 3072})
    first, second = (
        [json.loads(line)["train/entropy"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (run, tmp_path / "out")
    )
    assert first == second and len(first) == 24


def test_card_states_the_evaluation_and_the_licence(run: Path) -> None:
    _, front, body = model_card(run, "me/r", markdown, "mit").split("---\n", 2)
    policies = json.loads((run / "reports" / "evaluation.json").read_text())["policies"]
    trained = [row["return_mean"] for row in policies if row["policy"] != "random"]
    assert (
        'library_name: hmx\ntags: ["reinforcement-learning", "deep-reinforcement-learning", "hmx", "corridor"' in front
    )
    assert 'license: "mit"' in front and 'dataset: {name: "corridor", type: "corridor"}' in front
    value = front.partition("mean_reward, value: ")[2].partition(",")[0]
    assert float(value) == pytest.approx(sum(trained) / 2) and len(trained) == 2
    low, high = next(row["return_interval"] for row in policies if row["seed"] == 1).values()
    assert f"{low:+.2f} to {high:+.2f}" in body and "Mean return of 20 episodes" in body and "each of 2 seeds" in body
    assert "hmx runs pull me/r runs/r\n" in body and "secret" not in body + front
    assert "license" not in model_card(run, "me/r", markdown).split("---\n", 2)[1] and "None is given." in model_card(
        run, "me/r", markdown
    )


def test_a_path_of_this_machine_in_the_configuration_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", flat(0.5), changes={"run.init_from": "/home/me/other"})
    with pytest.raises(HmxError, match=r"its run\.init_from is a path of this machine, /home/me/other") as error:
        push(run, "me/r", "card", to=tmp_path / "out")
    assert error.value.exit_code == ExitCode.USAGE and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("repo", "to", "message", "hint"),
    [
        ("r", "out", "r is not the name of a model", "OWNER/NAME"),
        ("me/../x", "out", "is not the name of a model", "OWNER/NAME"),
        ("me/r", "secret", "it already exists", "--to"),
        ("me/r", None, "needs a package that is not installed: huggingface_hub", "[hub]"),
    ],
)
def test_wrong_names_and_a_missing_package_are_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: str, to: str | None, message: str, hint: str
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HmxError) as error:
        push(run, repo, "card", to=to and tmp_path / to)  # type: ignore[arg-type]
    assert message in error.value.message and hint in error.value.hint and not (tmp_path / "out").exists()


def test_pull_refuses_a_folder_that_exists_and_names_that_lead_out(tmp_path: Path) -> None:
    for repo, folder in (("me/r", tmp_path), ("me/r", tmp_path / "-x"), ("me/..", None)):
        with pytest.raises(HmxError, match=r"cannot write|not the name of a model"):
            pull(repo, folder)
