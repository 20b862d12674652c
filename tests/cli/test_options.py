"""Options generated from declared fields: spelling, help, completion, and what a command gets."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import typer
from command_tree import leaves
from typer.testing import CliRunner

from hmx.cli.app import app
from hmx.cli.options import flagged, help_of, with_options
from hmx.config.fields import FIELDS
from hmx.config.option import opt
from hmx.errors import HmxError


class Share(NamedTuple):
    """A value of a type of its own."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:.0%}"


def read_share(text: str) -> Share:
    """Read a share such as 10%."""
    if not text.endswith("%"):
        raise HmxError(f"--share {text}: expected a share", "--share 10%")
    return Share(float(text[:-1]) / 100)


@dataclasses.dataclass(frozen=True)
class Request:
    """A request of a command, with an option of every kind."""

    num_rollouts: int = opt(16, "rollouts per action", ge=1)
    horizon: int | None = opt(None, "steps per rollout", words={"auto": None}, metavar="N|auto")
    metric: Literal["w1", "tv"] = opt("w1", "distance of returns")
    force: bool = opt(False, "replace existing results")
    crn: bool = opt(True, "use common random numbers")
    out: Path | None = opt(None, "folder of the results", metavar="FOLDER")
    names: tuple[str, ...] = opt((), "name to show (repeatable)", metavar="NAME", flag="--name")
    share: Share = opt(Share(0.1), "share of the run", metavar="PART", parse=read_share)
    found: int = 0  # not an option


@pytest.fixture
def run() -> Any:
    """Runs a command with these options and returns its exit code, its output and its request."""
    app, requests = typer.Typer(), []

    @app.command()
    @with_options()
    def score(path: str, request: Request, json: bool = False) -> None:
        requests.append(request)

    def invoke(*words: str) -> tuple[int, str, Any]:
        result = CliRunner().invoke(app, list(words), env={"COLUMNS": "100", "TERM": "dumb"})
        return result.exit_code, result.output, requests[-1] if requests else None

    return invoke


def test_a_request_without_options_has_the_defaults_of_its_fields(run):
    assert run("x")[2] == Request()


def test_options_of_every_kind_reach_the_request(run):
    words = ["--num-rollouts", "1e1", "--horizon", "auto", "--metric", "tv", "--force", "--no-crn", "--json"]
    assert run("x", *words)[2] == Request(num_rollouts=10, metric="tv", force=True, crn=False)


def test_files_repeatable_options_and_own_types_reach_the_request(run):
    words = ["--out", "a/b", "--name", "x", "--name", "y,z", "--share", "25%"]
    assert run("x", *words)[2] == Request(out=Path("a/b"), names=("x", "y,z"), share=Share(0.25))


def test_help_shows_flags_values_and_defaults_but_no_types(run):
    code, text, _ = run("--help")
    text = " ".join(text.replace("│", " ").split())
    assert code == 0
    assert "--num-rollouts N Rollouts per action (default: 16)." in text
    assert "--horizon N|auto Steps per rollout." in text
    assert "--metric NAME Distance of returns (w1, tv; default: w1)." in text
    assert "--out FOLDER Folder of the results." in text
    assert "--name NAME Name to show (repeatable)." in text
    assert "--share PART Share of the run (default: 10%)." in text
    assert "--crn --no-crn Use common random numbers." in text


def test_resume_defaults_to_the_values_of_the_run():
    assert help_of(FIELDS["run.devices"], "the run's own").endswith("(default: the run's own).")


def test_every_key_with_a_flag_is_an_option_of_train():
    flags = [field.flag for field in FIELDS.values() if field.flag]
    assert sorted(field.flag for field in flagged()) == sorted(flags)
    assert len(set(flags)) == len(flags)


SHOWS = re.compile(r"(?<![.\w])(?:progress|status|ProgressLog|ConsoleSink|announce|execute|run)\(")


def test_every_command_that_shows_progress_has_quiet_and_no_other_has():
    """Progress is shown by the functions of `hmx.console` and those of `hmx.cli.training`, which train."""
    for name, command in leaves():
        source = inspect.getsource(inspect.unwrap(command.callback))
        shows = SHOWS.search(source.partition('"""')[2]) is not None
        assert ("--quiet" in {option for param in command.params for option in param.opts}) == shows, name


@pytest.mark.parametrize(
    ("command", "first"),
    [("train", ["--preset", "--config", "--set", "--env"]), ("study new", ["--space", "--trials"])],
)
def test_the_help_begins_with_the_options_that_one_needs_first(command, first):
    page = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="hmx").stdout
    listed = re.findall(r"(?m)^[\u2502 ] +(--[a-z-]+) ", page)
    assert [name for name in listed if name != "--help"][: len(first)] == first
