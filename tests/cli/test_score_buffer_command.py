"""`hmx score-buffer` from the outside: tables, page, JSON with stable keys, files, interruption, and bad requests.

`golden/score-buffer.json` is what the command wrote for a HackMatrix run, rounded, with positions of other games
among the most consequential ones; the tables are drawn from it.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from goldens import GOLDEN, as_committed, rendered

from hmx.cli import score_plot, score_tables
from hmx.cli.score_buffer import CHOICES
from hmx.errors import ExitCode

SMALL = ("--collect", "32", "--select", "uniform:12", "--rollouts", "2")


@pytest.fixture
def found() -> dict[str, Any]:
    return json.loads((GOLDEN / "score-buffer.json").read_text())


def drawn(found: dict[str, Any], width: int) -> str:
    return rendered(score_tables.render(found), width)


@pytest.mark.parametrize("width", [64, 100])
def test_tables(found, width):
    as_committed(drawn(found, width), f"score-buffer-{width}.txt", width)


def test_what_is_not_known_is_said(found):
    found["noise"] |= {"reliability": None, "standard_error": None}
    found["td"] |= {"spearman": None, "interval": None}
    found["top"] = []
    found["coverage"]["staleness"] = None
    found["scores"]["gini"] = None
    text = drawn(found, 100)
    assert "reliability not known" in text and "all are equal, or all scores are" in text and "slot" not in text


def test_the_page_is_whole_and_fetches_nothing(found):
    text = score_plot.page(found)
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 5 and text.count("<figcaption>") == 4
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        numbers = [v for node in root.iter() for k, v in node.attrib.items() if k in ("x", "y", "width", "height")]
        assert all(0 <= float(v) < 2000 for v in numbers), root.attrib["aria-label"]
    assert "nan" not in text and "<script" not in text and "http" not in text
    assert found["finding"][1:] in text and found["warnings"][0] in text
    assert "Gate null not passed" in text  # of that run
    # the board as `hmx watch` draws it, the lake, and the numbers of what has no picture
    assert text.count('<pre class="board">') == 2 and "┌─┬───────┬" in text and "stage" in text
    assert "0.5 1 0" in text and "the lake and the agent on it" in text
    first = found["top"][0]
    assert f"<b>{first['taken']}</b>" in text and all(f">{a['action']}<" in text for a in first["actions"])


def test_a_battle_is_drawn_from_above_with_all_its_units():
    units = [
        {"side": "ally", "number": 0, "kind": "marine", "health": 45.0, "x": 10.0, "y": 10.0},
        {"side": "enemy", "number": 2, "kind": "stalker", "health": 12.5, "x": 20.0, "y": 14.0},
    ]
    root = ElementTree.fromstring(score_plot.battle(units))
    ours, theirs = (dot.attrib for dot in root.iter("circle"))
    size = float(root.attrib["width"])
    assert 0 < float(ours["cx"]) < float(theirs["cx"]) < size and 0 < float(theirs["cy"]) < float(ours["cy"]) < size
    assert float(theirs["cx"]) - float(ours["cx"]) == pytest.approx(10 / 12 * size, abs=0.2)
    assert ours["fill"] != theirs["fill"] and "enemy 2, stalker, health 12.5" in [t.text for t in root.iter("title")]


def test_a_page_about_nothing(found):
    """No score is above 0."""
    found["points"] = [[0.0, 0.0, 0.0]] * 5
    found["scores"]["histogram"] = {"zero": 5, "bins": []}
    found["top"] = []
    text = score_plot.page(found)
    assert "no score is above 0" in text and text.count("all values are equal") == 2
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_names_cannot_break_the_page(found):
    found["path"] = "<b>bold</b>"
    found["top"][0]["taken"] = "<i>"
    text = score_plot.page(found)
    assert "<b>bold" not in text and "<i>" not in text


def shape(value: Any) -> Any:
    """The keys of an object; of a list, those of its first element."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in sorted(value.items())}
    return shape(value[0]) if isinstance(value, list) and value and isinstance(value[0], dict) else None


def test_the_command(hmx, tmp_path, trained, found):
    shutil.copytree(trained, tmp_path / "runs")
    result = hmx("score-buffer", "corridor", *SMALL, "--json", "--html", "s.html", "--write-back")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1 and printed["schema"] == 1
    for one in (printed, found):
        one.pop("top")
        one.pop("td_fresh")
    assert shape(printed) == shape(found)
    out = tmp_path / "runs" / "corridor" / "reports" / "scores"
    assert sorted(p.name for p in out.iterdir()) == ["buffer.npz", "report.json", "scores.npz"]
    assert "<svg" in (tmp_path / "s.html").read_text()
    with np.load(out / "scores.npz") as columns, np.load(out / "buffer.npz") as buffer:
        assert columns["score"].shape == (12,) and (columns["score"] >= 0).all()
        np.testing.assert_array_equal(buffer["consequence_scores"][columns["index"]], columns["score"])
        assert buffer["scored"].sum() == 12
    assert hmx("runs", "verify", "corridor").exit_code == 0
    # what was collected can be scored by itself, and more of it
    again = ("score-buffer", str(out / "buffer.npz"), "--checkpoint", "corridor", "--rollouts", "2", "--out", "o")
    result = hmx(*again, "--select", "stale:20")
    assert result.exit_code == 0, result.stderr
    assert "20 positions of 32" in result.stdout and "37.5% of the buffer before" in result.stdout
    result = hmx(*again, "--select", "all")
    assert result.exit_code == ExitCode.USAGE and "o holds the scores of another request" in result.stderr
    result = hmx(*again, "--select", "all", "--force", "--strict", "--metric", "tv", "--no-crn")
    assert result.exit_code == ExitCode.CHECK_FAILED and "the scores do not pass" in result.stderr
    assert "null" in result.stderr and "32 positions of 32" in result.stdout


def test_a_dry_run_plays_and_writes_nothing(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    result = hmx("score-buffer", "corridor", *SMALL, "--horizon", "9", "--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert plan["env_steps"] == 12 * 3 * 2 * 9 and plan["positions"] == 12 and plan["size"] == 32
    result = hmx("score-buffer", "corridor", *SMALL, "--dry-run")
    assert "12 of 32" in result.stdout and "steps at most" in result.stdout
    assert sorted(p.name for p in (tmp_path / "runs" / "corridor" / "reports").iterdir()) == ["evaluation.json"]


def test_what_tab_offers_is_what_the_job_takes():
    from hmx.replay import MIXINGS
    from hmx.reports.consequence import options as score_options
    from hmx.scoring import AGGREGATES, METRICS

    names = {option: tuple(name.rstrip(":") for name in names) for option, names in CHOICES.items()}
    assert names == {
        "--select": score_options.SELECTS,
        "--actions": tuple(score_options.ACTIONS),
        "--policy": tuple(score_options.POLICIES),
        "--metric": METRICS,
        "--aggregate": AGGREGATES,
        "--mixing": MIXINGS,
        "--unscored": score_options.UNSCORED,
    }


def test_ctrl_c_keeps_what_is_done(trained, tmp_path, environ):
    shutil.copytree(trained, tmp_path / "runs")
    words = ["score-buffer", "corridor", "--collect", "2000", "--select", "all", "--rollouts", "256", "--chunk", "8"]
    command = [sys.executable, "-m", "hmx", *words]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    kept = tmp_path / "runs" / "corridor" / "reports" / "scores" / "unfinished.npz"
    while process.poll() is None and not kept.exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    if process.returncode == 0:
        pytest.skip("it was done before it could be interrupted")
    assert process.returncode == 130 and out == "", err
    assert "positions are kept; the same command goes on with the rest" in err and "Traceback" not in err
