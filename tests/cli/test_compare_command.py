"""`hmx compare` on the command line: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_runs import flat, make_run, write_metrics

from hmx.errors import ExitCode
from hmx.render.blocks import Aside
from hmx.reports.compare.document import document, learning_curves
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest

PARTS = (
    "Verdict", "Sides", "Configuration differences", "corridor", "Speed and memory", "Diagnostics at matched steps",
)  # fmt: skip


@pytest.fixture
def sides(tmp_path: Path) -> list[str]:
    """Two runs that are told apart."""
    good = make_run(tmp_path / "runs" / "good", flat(0.90, 0.91, 0.92, 0.93, 0.94))
    changes = {"ppo.episode_end": "terminal"}
    bad = make_run(tmp_path / "runs" / "bad", flat(0.50, 0.52, 0.54, 0.56, 0.58), changes=changes)
    return [str(good), str(bad)]


class Page(HTMLParser):
    """Checks that every opened tag is closed, and collects what would be fetched or executed."""

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
    assert page.open == [] and page.links == []
    plots = text.count('<figure class="plot">')
    assert text.count("<script") == (plots + 1 if plots else 0)  # the data of each plot, and the script of the page
    return page


def test_the_report_starts_with_its_verdict(hmx, sides):
    result = hmx("compare", *sides)
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    places = [lines.index(part) for part in PARTS]
    assert places == sorted(places)
    assert "1.2 end of an episode" in result.stdout
    verdict = "A good vs B bad: A ends at 0.92 and B at 0.54. A is better. P(A better) = 1 (in every pair), "
    assert " ".join(lines[3:5]).startswith(verdict + "difference of IQMs +0.380 [")


def test_runs_can_be_named_below_runs(hmx, sides):
    result = hmx("compare", "ours=good", "bad")
    assert result.exit_code == 0 and "A ours" in result.stdout and "B bad" in result.stdout


def test_json_is_one_object_and_reproducible(hmx, sides):
    first, again = hmx("compare", *sides, "--json"), hmx("compare", *sides, "--json")
    assert first.stdout == again.stdout and first.stdout.count("\n") == 1
    body = json.loads(first.stdout)
    assert body["schema"] == 2 and body["tasks"][0]["pairs"][0]["verdict"]["better"] == "A"


def test_files_are_written_in_addition_to_the_json(hmx, sides, tmp_path):
    result = hmx("compare", *sides, "--html", "a.html", "--md", "a.md", "--csv", "a.csv", "--json")
    assert json.loads(result.stdout)["schema"] == 2
    text = (tmp_path / "a.md").read_text()
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == list(PARTS)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    iqm = [row for row in rows if row["figure"] == "iqm" and row["task"] == "corridor"]
    assert [(row["side"], float(row["value"])) for row in iqm] == [
        ("A", pytest.approx(0.92)),
        ("B", pytest.approx(0.54)),
    ]
    assert len([row for row in rows if row["figure"] == "seed"]) == 10
    rated = [(row["at"], row["figure"], row["text"]) for row in rows if row["text"]]
    assert rated == [("1.2", "impact", "high"), ("1.2", "confidence", "high")]
    group = json.loads(result.stdout)["config"][0]
    assert (group["row"], group["impact"], group["confidence"]) == ("1.2", "high", "high")
    page = (tmp_path / "a.html").read_text()
    read_page(page)
    body = page.partition("<main>")[2].partition("</main>")[0]
    assert body.count("<figure") == 3 and body.count('"low":[') == 4
    assert "http" not in body and "1.2 end of an episode" in page and page.index("A is better") < page.index("Sides")


@pytest.mark.parametrize(
    ("option", "start"),
    [("--md", "# Comparison of A good, B bad"), ("--csv", "task,side,other"), ("--html", "<!doctype html>")],
)
def test_a_dash_prints_the_file(hmx, sides, tmp_path, option, start):
    result = hmx("compare", *sides, option, "-")
    assert result.stdout.startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_markdown_tables_have_as_many_cells_in_every_row(hmx, sides):
    lines = hmx("compare", *sides, "tiny", "--md", "-").stdout.splitlines()
    tables = "\n".join(line if line.startswith("|") else "" for line in lines).split("\n\n")
    for table in filter(None, (table.strip() for table in tables)):
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1


def test_true_condition_exits_with_4_after_the_report(hmx, sides):
    result = hmx("compare", *sides, "--fail-if", "P(B>A) < 0.4", "--fail-if", "iqm(A) < 0")
    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "Speed and memory" in result.stdout
    assert result.stderr.startswith("error: P(B>A) < 0.4 holds: P(B>A) is 0\n")
    assert "iqm(A)" not in result.stderr
    body = json.loads(hmx("compare", *sides, "--fail-if", "P(B>A) < 0.4", "--json").stdout)
    assert body["failed"] == ["P(B>A) < 0.4 holds: P(B>A) is 0"]


def test_false_condition_exits_with_0(hmx, sides):
    assert hmx("compare", *sides, "--fail-if", "difference_high(good, bad) < 0").exit_code == 0


def test_options_reach_the_findings(hmx, sides):
    words = ["--threshold", "corridor=0.55,0.91", "--last", "256", "--range", "corridor=0:2", "--samples", "50"]
    body = json.loads(hmx("compare", *sides, *words, "--seed", "3", "--json").stdout)
    assert [row["value"] for row in body["tasks"][0]["sides"][0]["thresholds"]] == [0.55, 0.91]
    assert body["tasks"][0]["window"] == 256 and (body["samples"], body["seed"]) == (50, 3)
    assert body["overall"]["sides"][0]["mean"]["value"] == pytest.approx(0.46)


def test_presets_alone_are_compared(hmx):
    result = hmx("compare", "tiny", "metta")
    assert result.exit_code == 0 and "algo.gamma" in result.stdout and "Speed" not in result.stdout


def test_losses_are_shown_term_by_term(hmx, sides):
    """The runs are of the corridor with eight units: compiled in seconds."""
    result = hmx("compare", *sides, "--impl")
    assert result.exit_code == 0
    assert "1.2 end of an episode  high    high" in result.stdout
    part = result.stdout.partition("One batch through every loss")[2]
    rows = [line.split() for line in part.splitlines()]
    assert ["gradient", "cosine", "1", "1"] in rows  # of the entropy, which does not depend on the end of episodes
    assert "At the first gradient step" in part and "After 10 gradient steps of A" in part


def test_text_from_run_folders_is_escaped(hmx, tmp_path):
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
def test_the_report_fits_the_terminal(shell, sides, columns):
    done = shell("-m", "hmx", "compare", *sides, "tiny", COLUMNS=columns)
    assert done.returncode == 0
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= int(columns)


def test_a_closed_pipe_is_not_a_failure(sides, tmp_path, environ):
    command = f"{sys.executable} -m hmx compare {' '.join(sides)} --csv - | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], env=environ(), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "task,side,other,figure,at,value,low,high,text\n" and done.stderr == ""


def test_page_is_written_without_jax(loaded, sides):
    names = loaded("compare", *sides, "--html", "a.html")
    assert "numpy" in names and not names & {"jax", "jaxlib", "flax", "optax", "orbax", "wandb"}


def test_two_metrics_files_are_compared(hmx, tmp_path):
    for name in ("one", "two"):
        write_metrics(tmp_path / f"{name}.jsonl", flat(0.5, 0.6))
    result = hmx("compare", "one.jsonl", "two.jsonl")
    assert result.exit_code == 0 and "the environment of A and B is unknown" in result.stdout.replace("\n", " ")


def test_several_sides_are_table_rows(hmx, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    for i in range(6):
        make_run(tmp_path / "runs" / f"run{i}", flat(0.1 * i, 0.1 * i + 0.01))
    lines = [line.rstrip() for line in hmx("compare", *(f"run{i}" for i in range(6))).stdout.splitlines()]
    assert max(map(len, lines)) <= 72
    rows = [line for line in lines if line.startswith(("A run0 ", "F run5 ")) and "[" in line and " vs " not in line]
    assert len(rows) == 2 and len(rows[0]) == len(rows[1]) and all(row.count("[") == 2 for row in rows)


def test_the_profile_is_drawn_as_steps(sides):
    findings = compare(CompareRequest(sides=tuple(sides)))
    plots = [plot for block in document(findings).blocks if isinstance(block, Aside) for plot in block.blocks]
    (profile,) = [plot for plot in plots if plot.title == "Performance profile"]
    assert {series.kind for series in profile.series} == {"steps"}


def test_tasks_without_a_common_scale_are_reported(hmx, tmp_path):
    for side in ("one", "two"):
        for task in ("corridor", "recall"):
            make_run(tmp_path / "runs" / side / task, flat(0.5, 0.6), changes={"env.id": task})
    out = " ".join(hmx("compare", "one", "two", "--metric", "train/steps_per_sec").stdout.split())
    wanted = "no common scale for train/steps_per_sec; set one with --range corridor=LOW:HIGH --range recall=LOW:HIGH"
    assert f"Over all tasks: {wanted}." in out and f"Not aggregated: {wanted}." in out


def test_reason_of_no_verdict_is_given_once_and_certainty_has_no_interval(hmx, tmp_path):
    one = str(make_run(tmp_path / "one", flat(0.9, 0.91, 0.92)))
    two = str(make_run(tmp_path / "two", flat(0.1, 0.11, 0.12), changes={"env.slip": 0.3}))
    text = " ".join(hmx("compare", one, two).stdout.split())
    assert text.count("the tasks differ") == 1
    assert "1 (in every pair)" in text and "[1, 1]" not in text


def test_figure_has_the_bands_of_the_sides_and_random_play(hmx, tmp_path):
    good = make_run(tmp_path / "runs" / "good", flat(0.90, 0.91, 0.92, 0.94), evaluated={0: 0.9}, random=0.1)
    sides = [str(good), str(make_run(tmp_path / "runs" / "bad", flat(0.50, 0.52, 0.54, 0.56)))]
    result = hmx("compare", *sides, "--figure", "curves.pdf")
    assert result.exit_code == 0 and not result.stdout and "wrote: curves.pdf" in result.stderr
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")
    findings = compare(CompareRequest(sides=tuple(sides)))
    (plot,) = learning_curves(findings)
    assert [line.name for line in plot.series] == ["A good", "B bad", "random play"] and not plot.title
    for line, side in zip(plot.series, findings.tasks[0].sides, strict=False):
        stated = (side.iqm.low, side.iqm.value, side.iqm.high)
        assert (line.low[-1], line.y[-1], line.high[-1]) == pytest.approx(stated, abs=0.003)  # fewer resamples
    assert plot.series[-1].y == (0.1, 0.1) and not plot.references


def test_figure_of_presets_or_of_another_kind_is_refused(hmx, sides):
    result = hmx("compare", "brax", "scs", "--figure", "curves.pdf")
    assert result.exit_code == ExitCode.ARTEFACT and "no side has values" in result.stderr
    result = hmx("compare", *sides, "--figure", "curves.gif")
    assert result.exit_code == ExitCode.USAGE and "hint: curves.pdf" in result.stderr
