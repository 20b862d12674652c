"""Runs on the Hugging Face Hub, with its own package and a folder in place of the network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import flat, make_run
from typer.testing import CliRunner

from hmx.cli.app import app
from hmx.errors import ExitCode, HmxError
from hmx.jobs import hub
from hmx.jobs.train import train
from hmx.registry.load import load
from hmx.render.markdown import markdown

hf = pytest.importorskip("huggingface_hub")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands in for the Hub, in the current folder."""
    models = tmp_path / "models"

    def create(api: Any, repo_id: str, **options: Any) -> None:
        (models / repo_id).mkdir(parents=True, exist_ok=True)

    def upload(api: Any, repo_id: str, folder_path: Path, **options: Any) -> None:
        assert options["delete_patterns"] == ["checkpoints/*"]
        shutil.copytree(folder_path, models / repo_id, dirs_exist_ok=True)

    def download(repo_id: str, local_dir: Path, allow_patterns: list[str], revision: str | None) -> None:
        names = [path.relative_to(models / repo_id).as_posix() for path in (models / repo_id).rglob("*")]
        for name in hf.utils.filter_repo_objects(names, allow_patterns=allow_patterns):
            if (models / repo_id / name).is_file():
                (local_dir / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(models / repo_id / name, local_dir / name)

    monkeypatch.setattr(hf.HfApi, "create_repo", create)
    monkeypatch.setattr(hf.HfApi, "upload_folder", upload)
    monkeypatch.setattr(hf, "snapshot_download", download)
    monkeypatch.setattr(hf, "get_token", lambda: "hf_x")
    monkeypatch.chdir(tmp_path)
    return models


@pytest.mark.usefixtures("compiled_once")
def test_a_pushed_run_is_pulled_evaluated_watched_and_resumed(place: Path) -> None:
    values = {"run.total_steps": 512, "run.eval_episodes": 10, "run.name": "r", "run.keep": 3}
    train(load(preset="tiny", environ={}).changed(values))
    done = hub.push("r", "me/r", "card")
    assert done.url == "https://huggingface.co/me/r"
    (place / "me" / "r" / "evil.py").write_text("raise SystemExit")  # not one of the files of a run
    pulled = hub.pull("me/r", Path("runs/pulled"))
    assert pulled.files == done.files and not (Path("runs/pulled") / "evil.py").exists()
    assert sorted(os.listdir("runs")) == ["pulled", "r"]
    for words in (
        ["evaluate", "pulled", "--episodes", "3"],
        ["watch", "pulled", "--save", "episode.svg"],
        ["resume", "pulled", "--steps", "768"],
        ["runs", "verify", "pulled"],
    ):
        result = CliRunner().invoke(app, words, prog_name="hmx")
        assert result.exit_code == 0, (words, result.output)


def fails(kind: str, status: int) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> None:
        import httpx2

        response = httpx2.Response(status, request=httpx2.Request("GET", "https://huggingface.co"))
        error = getattr(hf.errors, kind)
        raise (
            error("no", response=response) if issubclass(error, hf.errors.HfHubHTTPError) else error("no route to host")
        )

    return call


@pytest.mark.parametrize(
    ("kind", "status", "message", "hint", "code"),
    [
        (
            "RepositoryNotFoundError",
            404,
            "there is no such model, or it is private",
            "hf auth login",
            ExitCode.ARTEFACT,
        ),
        ("RevisionNotFoundError", 404, "there is no such revision", "https://huggingface.co/me/r", ExitCode.ARTEFACT),
        ("HfHubHTTPError", 403, "refuses it (403)", "hf auth login", ExitCode.USAGE),
        ("HfHubHTTPError", 503, "cannot be reached", "check the network", ExitCode.UNEXPECTED),
        ("LocalEntryNotFoundError", 0, "cannot be reached: no route to host", "check the network", ExitCode.UNEXPECTED),
    ],
)
@pytest.mark.usefixtures("place")
def test_failures_of_the_hub_are_one_error(
    monkeypatch: pytest.MonkeyPatch, kind: str, status: int, message: str, hint: str, code: ExitCode
) -> None:
    monkeypatch.setattr(hf, "snapshot_download", fails(kind, status))
    with pytest.raises(HmxError) as error:
        hub.pull("me/r")
    assert message in error.value.message and hint in error.value.hint and error.value.exit_code == code
    assert os.listdir("runs") == []


def test_without_a_login_nothing_is_sent(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(Path("runs/r"), flat(0.5))
    monkeypatch.setattr(hf, "get_token", lambda: None)
    with pytest.raises(HmxError, match="not logged in") as error:
        hub.push("r", "me/r", "card")
    assert "hf auth login" in error.value.hint and not place.exists()


def test_a_model_without_a_run_is_refused(place: Path) -> None:
    (place / "me" / "r").mkdir(parents=True)
    (place / "me" / "r" / "README.md").write_text("a model of another library")
    with pytest.raises(HmxError, match=r"it has no run\.toml") as error:
        hub.pull("me/r")
    assert error.value.exit_code == ExitCode.ARTEFACT and os.listdir("runs") == []


def test_the_card_is_read_by_the_hub(place: Path) -> None:
    from hmx.reports.card import model_card

    make_run(Path("runs/r"), flat(0.5), evaluated={0: 0.75}, random=0.1)
    card = hf.ModelCard(model_card("r", "me/r", markdown, "apache-2.0"))
    assert card.data.library_name == "hmx" and card.data.license == "apache-2.0"
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("mean_reward", 0.75, "corridor")
