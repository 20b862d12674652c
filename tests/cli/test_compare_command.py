"""`hmx compare` as it is typed: what is printed, what is written, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_runs import flat, make_run, write_metrics

from hmx.cli.compare_report import figure, interval
from hmx.errors import ExitCode

PARTS = (
    "What is compared", "Where the configurations differ", "corridor", "Over all tasks", "Speed and memory",
    "Diagnostics at matched steps",
)  # fmt: skip


@pytest.fixture
def sides(tmp_path: Path) -> list[str]:
    """Two runs that are told apart."""
    good = make_run(tmp_path / "runs" / "good", flat(0.90, 0.91, 0.92, 0.93, 0.94))
    changes = {"algo.episode_end": "terminal"}
    bad = make_run(tmp_path / "runs" / "bad", flat(0.50, 0.52, 0.54, 0.56, 0.58), changes=changes)
    return [str(good), str(bad)]


class Page(HTMLParser):
    """Sees that every tag that is opened is closed, and collects what would be fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read_page(text: str) -> Page:
    page = Page()
    page.feed(text)
    assert page.open == [] and page.links == [] and "script" not in page.tags
    return page


def test_the_parts_come_in_order(hmx, sides):
    result = hmx("compare", *sides)
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    places = [lines.index(part) for part in PARTS]
    assert places == sorted(places)
    assert "1.2 end of an episode" in result.stdout
    assert "A against B: A is better" in result.stdout


def test_runs_can_be_named_below_runs(hmx, sides):
    result = hmx("compare", "ours=good", "bad")
    assert result.exit_code == 0 and "A ours" in result.stdout and "B bad" in result.stdout


def test_the_json_is_one_object_and_the_same_again(hmx, sides):
    first, again = hmx("compare", *sides, "--json"), hmx("compare", *sides, "--json")
    assert first.stdout == again.stdout and first.stdout.count("\n") == 1
    body = json.loads(first.stdout)
    assert list(body) == [
        "schema", "metric", "direction", "level", "samples", "seed", "sides", "notices", "config", "tasks", "overall",
        "speed", "diagnostics", "findings", "impl", "figures", "failed",
    ]  # fmt: skip
    assert body["tasks"][0]["pairs"][0]["better"] == "A"


def test_files_are_written_beside_what_is_printed(hmx, sides, tmp_path):
    result = hmx("compare", *sides, "--html", "a.html", "--md", "a.md", "--csv", "a.csv", "--json")
    assert json.loads(result.stdout)["schema"] == 1
    text = (tmp_path / "a.md").read_text()
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == list(PARTS)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    iqm = [row for row in rows if row["figure"] == "iqm" and row["task"] == "corridor"]
    assert [(row["side"], float(row["value"])) for row in iqm] == [
        ("A", pytest.approx(0.92)),
        ("B", pytest.approx(0.54)),
    ]
    assert len([row for row in rows if row["figure"] == "final"]) == 10
    page = (tmp_path / "a.html").read_text()
    assert read_page(page).tags.count("svg") == 3
    assert "http" not in page and page.count("<polygon") == 4 and "1.2 end of an episode" in page


def test_a_drawing_is_whole_by_itself(hmx, sides, tmp_path):
    hmx("compare", *sides, "--html", "a.html")
    page = (tmp_path / "a.html").read_text()
    start = page.index("<svg")
    drawing = ElementTree.fromstring(page[start : page.index("</svg>") + 6])
    places = [
        tuple(map(float, point.split(","))) for line in drawing.iter("polyline") for point in line.get("points").split()
    ]
    assert all(0 <= x <= 520 and 0 <= y <= 320 for x, y in places)
    words = [text.text for text in drawing.iter("text")]
    assert "environment steps" in words and "A good" in words and "B bad" in words


@pytest.mark.parametrize(("option", "start"), [("--md", "# Comparison of A good, B bad"), ("--csv", "task,side,other")])
def test_a_dash_prints_the_file_instead(hmx, sides, tmp_path, option, start):
    result = hmx("compare", *sides, option, "-")
    assert result.stdout.startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_markdown_tables_have_as_many_cells_in_every_row(hmx, sides):
    lines = hmx("compare", *sides, "tiny", "--md", "-").stdout.splitlines()
    tables = "\n".join(line if line.startswith("|") else "" for line in lines).split("\n\n")
    for table in filter(None, (table.strip() for table in tables)):
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1


def test_a_condition_that_holds_ends_with_4_after_the_report(hmx, sides):
    result = hmx("compare", *sides, "--fail-if", "P(B>A) < 0.4", "--fail-if", "iqm(A) < 0")
    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "Speed and memory" in result.stdout
    assert result.stderr.startswith("error: P(B>A) < 0.4 holds: P(B>A) is 0\n")
    assert "iqm(A)" not in result.stderr
    body = json.loads(hmx("compare", *sides, "--fail-if", "P(B>A) < 0.4", "--json").stdout)
    assert body["failed"] == ["P(B>A) < 0.4 holds: P(B>A) is 0"]


def test_a_condition_that_does_not_hold_ends_well(hmx, sides):
    assert hmx("compare", *sides, "--fail-if", "difference_high(good, bad) < 0").exit_code == 0


def test_the_options_reach_the_figures(hmx, sides):
    words = ["--threshold", "corridor=0.55,0.91", "--last", "256", "--range", "corridor=0:2", "--samples", "50"]
    body = json.loads(hmx("compare", *sides, *words, "--seed", "3", "--json").stdout)
    assert [row["value"] for row in body["tasks"][0]["sides"][0]["thresholds"]] == [0.55, 0.91]
    assert body["tasks"][0]["window"] == 256 and (body["samples"], body["seed"]) == (50, 3)
    assert body["overall"]["sides"][0]["mean"]["value"] == pytest.approx(0.46)


def test_presets_alone_are_compared(hmx):
    result = hmx("compare", "tiny", "metta")
    assert result.exit_code == 0 and "algo.gamma" in result.stdout and "Speed" not in result.stdout


def test_losses_are_shown_term_by_term(hmx, sides, tmp_path):
    """The runs are of the corridor with eight units: compiled in seconds."""
    result = hmx("compare", *sides, "--impl", "--md", "a.md")
    assert result.exit_code == 0
    part = result.stdout.partition("One batch through every loss")[2]
    rows = [line.split() for line in part.splitlines()]
    assert ["cosine", "of", "the", "gradient", "1", "1"] in rows  # of the entropy, which knows no episodes
    assert "at the first gradient step" in part and "after 10 gradient steps of A" in part
    assert "| at the first gradient step |" in (tmp_path / "a.md").read_text()


def test_text_of_strangers_does_nothing(hmx, tmp_path):
    bad = "<script>alert(1)</script>\x1b[2J|`x`"
    sides = [str(make_run(tmp_path / name, flat(0.1, 0.2), device=bad, state="finished")) for name in ("a", "b")]
    for words in ([], ["--md", "-"], ["--json"]):
        out = hmx("compare", *sides, *words).stdout
        assert "\x1b" not in out
    hmx("compare", *sides, "--html", "a.html")
    page = (tmp_path / "a.html").read_text()
    read_page(page)
    assert "&lt;script&gt;" in page and "\x1b" not in page


@pytest.mark.parametrize("columns", ["40", "80"])
def test_it_fits_the_terminal(shell, sides, columns):
    done = shell("-m", "hmx", "compare", *sides, "tiny", COLUMNS=columns)
    assert done.returncode == 0
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= int(columns)


def test_a_pipe_that_closes_is_no_failure(sides, tmp_path, environ):
    command = f"{sys.executable} -m hmx compare {' '.join(sides)} --csv - | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], env=environ(), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "task,side,other,figure,value,low,high\n" and done.stderr == ""


def test_it_loads_no_jax(loaded, sides):
    names = loaded("compare", *sides, "--html", "a.html")
    assert "numpy" in names and not names & {"jax", "jaxlib", "flax", "optax", "orbax", "wandb"}


def test_a_single_metrics_file_is_no_pair_but_two_are(hmx, tmp_path):
    for name in ("one", "two"):
        write_metrics(tmp_path / f"{name}.jsonl", flat(0.5, 0.6))
    result = hmx("compare", "one.jsonl", "two.jsonl")
    assert result.exit_code == 0 and "the environment of A and B is not known" in result.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (0.914623, 0.914078, 0.915163, "0.91462 [0.91408, 0.91516]"),
        (12345.6, 12000.1, 13000.9, "12,346 [12,000, 13,001]"),
        (0.0, -1.0, 1.0, "0.0 [-1.0, 1.0]"),
        (-0.001, -1.0, 1.0, "0.0 [-1.0, 1.0]"),
        (2.0, 2.0, 2.0, "2 [2, 2]"),
        (2.5, None, None, "2.5"),
    ],
)
def test_intervals_have_the_decimals_that_their_width_supports(value, low, high, shown):
    assert interval({"value": value, "low": low, "high": high}) == shown


def test_figures_have_the_digits_that_count():
    assert [figure(v) for v in (0.0, 1.0, 0.123456, 123456.7, -2e-7, None)] == [
        "0",
        "1",
        "0.1235",
        "123,457",
        "-2e-7",
        "-",
    ]


def test_sides_that_do_not_fit_beside_each_other_follow_each_other(hmx, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    for i in range(6):
        make_run(tmp_path / "runs" / f"run{i}", flat(0.1 * i, 0.1 * i + 0.01))
    result = hmx("compare", *(f"run{i}" for i in range(6)))
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert max(map(len, lines)) <= 72
    shown = [line for line in lines if line.startswith(" final, IQM")]
    assert len(shown) > 1 and sum(line.count("[") for line in shown) == 6
    assert all(line.endswith("]") for line in shown)  # no cell is broken
