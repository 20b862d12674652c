"""`hmx grad-report` from the outside: tables, page, table for programs, JSON with stable keys, and bad requests.

`golden/grad-report.json` is what the command printed for two checkpoints of a corridor, rounded; the tables are drawn
from it. `grad-report-td.json` and `grad-report-replay.json` are of Q-learning on FrozenLake: episodes from the states
of a saved buffer, and the transitions of the checkpoints' own.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from typing import Any
from xml.etree import ElementTree

import pytest
from goldens import GOLDEN, as_committed, rendered

from hmx.cli import grad_csv, grad_plot, grad_tables
from hmx.errors import ExitCode


@pytest.fixture
def found() -> dict[str, Any]:
    return json.loads((GOLDEN / "grad-report.json").read_text())


def drawn(found: dict[str, Any], width: int) -> str:
    return rendered(grad_tables.render(found), width)


@pytest.mark.parametrize("width", [64, 80, 120])
@pytest.mark.parametrize("of", ["", "-td", "-replay"])
def test_tables(of, width):
    found = json.loads((GOLDEN / f"grad-report{of}.json").read_text())
    as_committed(drawn(found, width), f"grad-report{of}-{width}.txt", width)


def test_a_divergence_of_no_weight_is_shown_as_it_is(found):
    assert "kl" not in drawn(found, 120)
    found["reports"][-1]["all"]["raw"]["kl"] = 0.5
    assert "kl, raw" in drawn(found, 120)
    found["reports"][-1]["all"]["norm"]["kl"] = 0.25
    text = drawn(found, 120)
    assert "kl, raw" not in text and "0.25" in text


def test_what_ranks_the_groups_is_shown(found):
    report = found["reports"][-1]
    assert "level" not in drawn(found, 120)
    report["spec"]["by"] = "level"
    for group in report["groups"]:
        group["score"] = 7.25 if group["id"] in report["buckets"][0]["group_ids"] else None
    lines = drawn(found, 120).splitlines()
    head = next(i for i, line in enumerate(lines) if " level " in line)
    cells = [line.split() for line in lines[head + 2 :]]
    assert cells[0][3] == "7.25" and cells[1][3] == "-"


def test_numbers():
    numbers = [None, 0.0, 0.12345, 0.0098, 1234.5, 1.5e-7, -0.25, 2.5e6]
    assert [grad_tables.number(x) for x in numbers] == ["-", "0", "0.123", "9.8e-3", "1234", "1.5e-7", "-0.25", "2.5e6"]
    assert [grad_tables.percent(x) for x in (None, -0.002, 0.314, 1.0)] == ["-", "0%", "31%", "100%"]
    assert [grad_tables.bar(x, 4) for x in (None, -0.5, 0.5, 0.53, 1.0, 3.0)] == ["", "", "██", "██▏", "████", "████"]
    assert grad_tables.bar(0.5, 4, ascii_only=True) == "##"


@pytest.mark.parametrize(("of", "over_time", "in_all"), [("", 4, 10), ("-td", 2, 7), ("-replay", 2, 7)])
def test_the_page_is_whole_and_fetches_nothing(of, over_time, in_all):
    found = json.loads((GOLDEN / f"grad-report{of}.json").read_text())
    text = grad_plot.page(found)
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == in_all and len(re.findall("<figcaption>", text)) == in_all
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        numbers = [v for node in root.iter() for k, v in node.attrib.items() if k in ("x", "y", "width", "height")]
        assert all(0 <= float(v) < 2000 for v in numbers), root.attrib["aria-label"]
    assert "nan" not in text and "<script" not in text and "http" not in text
    finding = found["reports"][-1]["finding"]
    assert finding[1:] in text
    assert len(re.findall("<svg", grad_plot.page({**found, "reports": found["reports"][-1:]}))) == in_all - over_time


def test_a_page_about_nothing(found):
    """No gradient, no variance, no angle is known: still a page."""
    for row in [*found["reports"][-1]["buckets"], found["reports"][-1]["all"]]:
        row["norm"] = dict.fromkeys(row["norm"], 0.0)
        row["interval"] = dict.fromkeys(row["interval"])
        row["component_share"] = dict.fromkeys(row["component_share"])
        row["cos"] = {a: dict.fromkeys(others) for a, others in row["cos"].items()}
    found["reports"][-1]["cos"]["task"] = {
        a: dict.fromkeys(others) for a, others in found["reports"][-1]["cos"]["task"].items()
    }
    text = grad_plot.page({**found, "reports": found["reports"][-1:]})
    assert "no bucket has both" in text
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_names_cannot_break_the_page(found):
    assert "<b>" not in grad_plot.page({**found, "path": "<b>bold</b>"})


def test_the_table_for_programs(found):
    rows = list(csv.DictReader(io.StringIO(grad_csv.table(found))))
    buckets = sum(len(report["buckets"]) + 1 for report in found["reports"])
    assert len(rows) == 5 * buckets
    last = found["reports"][-1]
    row = next(r for r in rows if r["update"] == str(last["checkpoint"]["update"]) and r["bucket"] == "all")
    assert row["component"] == "task"
    assert float(row["norm"]) == last["all"]["norm"]["task"]
    assert float(row["low"]) == last["all"]["interval"]["task"][0]
    assert float(row["loss"]) == last["all"]["loss"]["policy"]
    total = next(r for r in rows if r["component"] == "total")
    assert total["raw"] == "" and total["component_share"] == ""


def test_stored_transitions_as_a_table_for_programs():
    found = json.loads((GOLDEN / "grad-report-replay.json").read_text())
    rows = list(csv.DictReader(io.StringIO(grad_csv.table(found))))
    assert {row["component"] for row in rows} == {"td", "total"}
    row, bucket = rows[0], found["reports"][0]["buckets"][0]
    assert float(row["score_mean"]) == bucket["score"]["mean"] and row["reward_std_mean"] == row["return_mean"] == ""
    assert float(row["draws"]) == bucket["replay"]["draws"] and float(row["replay_share"]) == bucket["replay"]["share"]
    assert float(row["replay_norm"]) == bucket["replay"]["norm"]["td"]


def shape(value: Any) -> Any:
    """The keys of an object, with buckets, layers and groups as one each."""
    if isinstance(value, dict):
        names = {re.sub(r"^bucket_\w+$", "bucket", key): item for key, item in value.items()}
        return {key: shape(item) for key, item in sorted(names.items())}
    return shape(value[0]) if isinstance(value, list) and value and isinstance(value[0], dict) else None


def test_the_command(hmx, tmp_path, trained, found):
    shutil.copytree(trained, tmp_path / "runs")
    small = ("--groups", "10", "--per-group", "4", "--buckets", "2")
    result = hmx(
        "grad-report",
        "corridor",
        *small,
        "--keys",
        "both",
        "--crossfit",
        "--json",
        "--html",
        "r.html",
        "--csv",
        "r.csv",
    )
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert shape(printed) == shape(found)
    assert (tmp_path / "r.html").read_text() == grad_plot.page(printed)
    assert (tmp_path / "r.csv").read_text() == grad_csv.table(printed)
    assert result.stderr.startswith("warning: ")
    (tmp_path / "saved.json").write_text(result.stdout)
    result = hmx("grad-report", "runs/corridor/checkpoints", *small, "--compare", "saved.json")
    assert result.exit_code == 0, result.stderr
    assert "norms by those of saved.json" in result.stdout and "× 1" in result.stdout
    said = printed["reports"][-1]["finding"]
    assert " ".join(result.stdout.split()).endswith(said[1:])


def test_the_command_on_stored_transitions(hmx, tmp_path):
    golden = json.loads((GOLDEN / "grad-report-replay.json").read_text())
    words = ["--set", "replay.capacity=512", "--set", "dqn.learn_starts=256", "--num-envs", "4"]
    result = hmx("train", "--preset", "lake", "--name", "q", "--steps", "2048", "--eval-episodes", "0", *words)
    assert result.exit_code == 0, result.stderr
    small = ("--groups", "20", "--per-group", "4", "--buckets", "2", "--seed", "1")
    result = hmx("grad-report", "q", "--replay", *small, "--json", "--html", "r.html", "--csv", "r.csv")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert shape(printed) == shape(golden)
    assert printed["reports"][0]["spec"]["by"] == "td"
    assert (tmp_path / "r.html").read_text() == grad_plot.page(printed)
    assert (tmp_path / "r.csv").read_text() == grad_csv.table(printed)


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["corridor", "--groups", "2"], ExitCode.USAGE, ["2 groups cannot fill 4 buckets", "--groups 64"]),
        (["corridor", "--per-group", "1"], ExitCode.USAGE, ["no variance", "--per-group 8"]),
        (["corridor", "--by", "luck"], ExitCode.USAGE, ["luck", "reward_std, return, length, level, td, consequence"]),
        (["corridor", "--checkpoint", "999"], ExitCode.ARTEFACT, ["there is no checkpoint", "checkpoints of this run"]),
        (["coridor"], ExitCode.ARTEFACT, ["did you mean corridor?"]),
        (["foreign"], ExitCode.ARTEFACT, ["foreign"]),
        (["corridor", "--compare", "notes.txt"], ExitCode.ARTEFACT, ["not a gradient report"]),
    ],
)
def test_bad_requests(hmx, tmp_path, trained, words, code, parts):
    shutil.copytree(trained, tmp_path / "runs")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "pytorch_model.bin").write_bytes(b"weights")
    (tmp_path / "notes.txt").write_text("it went well")
    result = hmx("grad-report", *words)
    assert result.exit_code == code, result.output
    error, _, hint = result.stderr.rpartition("\n\n")
    assert error.startswith("error: ") and hint.startswith("hint: ")
    assert "Traceback" not in result.stderr and result.stdout == ""
    for part in parts:
        assert part in result.stderr
