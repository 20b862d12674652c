"""The commands of the owner's design card, and the page that says where each requirement of the specifications is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from small_hackmatrix import SMALL_HACKMATRIX

from hmx.cli.app import app
from hmx.config import presets
from hmx.config.coerce import show
from hmx.config.fields import FIELDS
from hmx.records.metrics_table import METRICS

ROOT = Path(__file__).parents[2]


def test_commands_of_the_card_run_as_they_are_written(hmx, tmp_path, trained, monkeypatch):
    """`hmx train` is shortened by environment variables, so that the command itself stays as the card has it.

    The gradient report is of a smaller game.
    """
    for key, value in SMALL_HACKMATRIX.items():
        monkeypatch.setenv(FIELDS[key].env_var, show(value))
    result = hmx("train")
    assert result.exit_code == 0, result.stderr
    sizes = hmx("compute-config", "--num-agents", "24")
    assert sizes.exit_code == 0 and re.search(r"environments +320 ", sizes.stdout)
    shutil.copytree(trained / "corridor" / "checkpoints" / "16", tmp_path / "ckpt")
    report = hmx("grad-report", "ckpt/")
    assert report.exit_code == 0, report.stderr
    assert re.search(r"^Gradient norms by bucket$", report.stdout, re.MULTILINE)
    assert re.findall(r"^([1-4]) +[\d.]", report.stdout, re.MULTILINE)[:4] == list("1234")


class Row(NamedTuple):
    """A requirement: its text, the names of where it is, those of its tests, and a difference if there is one."""

    says: str
    places: tuple[str, ...]
    tests: tuple[str, ...]
    difference: str


def rows() -> Iterator[Row]:
    for line in (ROOT / "docs" / "specifications.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if cells and cells[1] != "in hmx":
            says, places, tests, difference = cells
            yield Row(says, *(tuple(re.findall(r"`([^`]+)`", text)) for text in (places, tests)), difference)


ROWS = list(rows())
PLACES = sorted({place for row in ROWS for place in row.places})
TESTS = sorted({test for row in ROWS for test in row.tests})


def options(words: list[str]) -> set[str]:
    """The options of a command, which must exist."""
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def exists(place: str) -> bool:
    """Whether the repository has a command with its options, a preset, a key, a metric, or a file and a name in it."""
    words = place.split()
    if words[0] == "hmx":
        given = [word for word in words[1:] if word.startswith("--")]
        return set(given) <= options([word for word in words[1:] if not word.startswith("--")])
    if words[0] == "--preset":
        return words[1] in presets.names()
    file, _, name = place.partition("::")
    if (ROOT / file).is_file():
        return not name or re.search(rf"^(def|class) {name}\b", (ROOT / file).read_text(), re.MULTILINE) is not None
    return place in FIELDS or any(matches(metric.name, place) for metric in METRICS.values())


def matches(pattern: str, name: str) -> bool:
    """Whether a metric stands for a name; `<part>` stands for the name of a part."""
    return re.fullmatch(re.sub(r"<(?!bucket)\w+>", r"\\w+", pattern), name) is not None


@pytest.mark.parametrize("place", PLACES)
def test_place_of_a_requirement_exists(place):
    assert exists(place), f"docs/specifications.md names {place}, which does not exist"


@pytest.mark.parametrize("test", TESTS)
def test_test_of_a_requirement_exists(test):
    assert exists(test) and test.startswith("tests/"), f"docs/specifications.md names {test}, which does not exist"


def test_every_requirement_has_a_place_and_a_test_or_a_reason():
    assert len(ROWS) > 55
    for row in ROWS:
        assert (row.places and row.tests) or row.difference, row.says


@pytest.mark.parametrize(
    "place",
    ["hmx trian", "hmx train --lerning-rate", "--preset mettta", "ppo.clip_epsilon", "reward/victories",
     "hmx/nowhere.py", "hmx/types.py::TimeStep"],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_found(place):
    try:
        found = exists(place)
    except KeyError:
        found = False
    assert not found
