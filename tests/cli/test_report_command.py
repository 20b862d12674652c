"""`hmx report`: pages of made-up runs, whole and damaged."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from made_runs import STEPS, flat, make_run, record, write_metrics
from reports.grad_report import made_findings
from reports.score_buffer import scored_findings

from hmx.cli import report
from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluate import evaluate
from hmx.records.artefact import REPORT_SCHEMA, write_sealed
from hmx.records.curves import read_curves
from hmx.records.jsonl import encode
from hmx.records.lock import RunLock
from hmx.records.meta import Resume
from hmx.records.paths import RunPaths
from hmx.records.plain import plain, plain_object
from hmx.render.html import page
from hmx.reports import curves
from hmx.reports.grad_report.document import document as gradient_document
from hmx.reports.report.figures import learning_curve
from hmx.reports.report.job import run_report
from hmx.reports.report.request import ReportRequest
from hmx.reports.score_buffer.document import document as score_document

RETURN = "train/mean_episode_return"
pytestmark = pytest.mark.usefixtures("compiled_once")
ROW = {"policy": "sampled", "seed": 0, "episodes": 100, "return_mean": 0.9, "return_interval": [0.8, 1.0],
       "length_mean": 12.0, "wins": None}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three seeds with a resumption and reward terms."""
    resume = Resume(at="2026-01-01T01:00:00+00:00", update=5, command=("hmx", "resume"), changes={"run.keep": [3, 4]})
    more = {"reward/goal": 0.5, "reward/step_cost": -0.1, "train/learning_rate": 3e-3}
    folder = make_run(tmp_path / "runs" / "one", flat(0.1, 0.2, 0.3), resumes=[resume], **more)
    write_sealed(folder / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": [ROW]})
    return folder


def page_of(folder: Path) -> str:
    return (folder / "reports" / "report.html").read_text().partition("<main>")[2].partition("</main>")[0]


def test_page_shows_curves_configuration_evaluation_and_resumptions(hmx, run):
    (run / "checkpoints" / "10").mkdir(parents=True)
    result = hmx("report", "one", "--episodes", "0")
    assert result.exit_code == 0 and "one: finished after 2,560 steps for each of 3 seeds" in result.stdout
    assert "return of the trained agent 0.9 [0.8, 1]" in " ".join(result.stdout.replace("\n", " ").split()).lower()
    text = page_of(run)
    order = ["Did it learn?", "What next?", "<h3>Return</h3>", "What the return is made of", "Optimisation: 1 plot"]
    places = [text.index(part) for part in (*order, "Different from the defaults")]
    assert places == sorted(places) and '<figure class="plot wide">' in text
    assert "env.id" in text and "jax 0.10.2" in text and "run.keep: 3 -&gt; 4" in text and "Terms on this page" in text
    assert "which predicts the mean of the logarithm" in text
    charts = [json.loads(found) for found in re.findall(r'<script type="application/json">(.*?)</script>', text)]
    returns = charts[0]
    assert [series["thin"] for series in returns["series"]] == [True, True, True, False, False]
    *_, mean, trained = returns["series"]
    assert (trained["name"], trained["kind"], trained["y"]) == ("trained agent", "dots", [0.9])
    assert mean["y"] == [0.2] * 10 and mean["low"][0] == pytest.approx(0.2 - 4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert returns["grids"][0]["x"] == [STEPS * (i + 1) for i in range(10)]
    assert {"axis": "x", "at": 5.0 * STEPS, "label": "resumed"} in returns["references"]
    assert any({s["kind"] for s in chart["series"]} == {"area"} for chart in charts)


def test_runs_of_one_configuration_form_a_group(hmx, run, tmp_path):
    make_run(tmp_path / "runs" / "two", flat(0.4), changes={"run.seed": 7}, **{"reward/goal": 0.5})
    make_run(tmp_path / "runs" / "other", flat(0.6, updates=6), changes={"ppo.clip_eps": 0.3})
    result = hmx("report", "one", "two", "other", "--episodes", "0", "--json", "--csv", "curves.csv")
    found = json.loads(result.stdout)
    assert [(group["runs"], group["seeds"]) for group in found["groups"]] == [(["one", "two"], 4), (["other"], 1)]
    assert found["differences"] == {"run.total_steps": ["2560", "1536"], "ppo.clip_eps": ["0.2", "0.3"]}
    assert found["groups"][0]["curves"][RETURN]["mean"][-1] == pytest.approx(0.25)
    assert (run / "reports" / "report-of-3-runs.html").exists()
    assert (tmp_path / "curves.csv").read_text().startswith("group,metric,env_steps,minutes,mean,low,high\n")


def test_a_copied_run_counts_once_in_means(hmx, run, tmp_path):
    shutil.copytree(run, tmp_path / "runs" / "copy")
    found = json.loads(hmx("report", "one", "copy", "--episodes", "0", "--json").stdout)
    (group,), (alone,) = found["groups"], json.loads(hmx("report", "one", "--episodes", "0", "--json").stdout)["groups"]
    assert (group["runs"], group["seeds"]) == (["one", "copy"], 3) and group["curves"] == alone["curves"]
    assert found["runs"][1]["warnings"][0] == "its seed 0 is the same agent as in one: means over runs count it once"


def test_damaged_lines_and_values_are_skipped_and_reported(hmx, run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write("{broken\n" + encode({"schema": 2, **record(11, 0, float("nan"))}) + "\n")
        file.write(json.dumps({"schema": 2, **record(12, 0, float("nan"))}) + "\n")  # as other programs write it
    result = hmx("report", "one", "--episodes", "0")
    words = " ".join(result.stdout.split())
    assert "skipped 1 damaged line of its metrics" in words and "2 values left out of the curves" in words
    assert "NaN" not in page_of(run)


@pytest.mark.parametrize(("lines", "why"), [(None, "no metrics.jsonl"), ("", "no records yet")])
def test_a_run_without_metrics_gets_a_page_with_a_warning(hmx, run, lines, why):
    (run / "metrics.jsonl").unlink()
    if lines is not None:
        (run / "metrics.jsonl").write_text(lines)
    result = hmx("report", "one", "--episodes", "0")
    assert result.exit_code == 0 and why in " ".join(result.stdout.split())
    assert why in page_of(run) and "Different from the defaults" in page_of(run)


@pytest.mark.parametrize("lines", [None, ""])
def test_a_run_before_its_first_record_has_a_grey_note_and_no_warning(hmx, tmp_path, lines):
    run = make_run(tmp_path / "runs" / "young", {}, state="running")
    (run / "metrics.jsonl").unlink()
    if lines is not None:
        (run / "metrics.jsonl").write_text(lines)
    with RunLock(RunPaths(run.parent, "young")):
        result = hmx("report", "young", "--episodes", "0")
    assert result.exit_code == 0 and "warning" not in result.stderr.lower() and "Warning" not in result.stdout
    assert '<td class="faint">It has no records yet.</td>' in page_of(run)


def test_meta_data_of_a_newer_version_are_named_as_such(hmx, run):
    meta = run / "meta.json"
    meta.write_text(re.sub(r'"schema": *[0-9]+', '"schema": 99', meta.read_text(), count=1))
    words = " ".join(hmx("runs", "show", "one").stdout.split())
    assert "written by a newer hmx" in words and "so versions and device are unknown" in words


@pytest.mark.parametrize("rows", [[{**ROW, "return_mean": "high"}], None, [{"policy": "random"}]])
def test_damaged_evaluation_is_reported_and_skipped(hmx, run, rows):
    write_sealed(run / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": rows})
    result = hmx("report", "one", "--episodes", "0")
    assert result.exit_code == 0 and "cannot read its evaluation: not a report" in " ".join(result.stdout.split())
    assert "<h2>Evaluation" not in page_of(run)


@pytest.mark.parametrize(
    ("file", "findings", "verdict"),
    [
        ("gradients.json", made_findings.findings(made_findings.episode_report(), made_findings.episode_report()),
         "of the update"),
        ("gradients.json", made_findings.findings(made_findings.replay_report()), "of the update"),
        ("scores/report.json", scored_findings.made(), "The ranking of the positions can be trusted"),
    ],
)  # fmt: skip
def test_other_reports_are_on_the_page_with_their_verdict_first(hmx, run, file, findings, verdict):
    path = run / "reports" / file
    path.parent.mkdir(exist_ok=True)
    write_sealed(path, plain_object(findings))
    result = hmx("report", "one", "--episodes", "0")
    build = gradient_document if file == "gradients.json" else score_document
    title, text = build(findings).title, page_of(run)
    assert "Warning" not in result.stdout and "Did it learn?" in result.stdout and len(result.stdout.splitlines()) < 40
    assert result.stderr.endswith("wrote: runs/one/reports/report.html\n")
    section = text[text.index(f"<h2>{title}</h2>") :]
    assert section.index(verdict) < section.index("<summary>The whole report</summary>")
    whole = section.partition("<summary>The whole report</summary>")[2].partition("</details>")[0]
    assert all(part in whole for part in re.findall("<table>.*?</table>", page(build(findings)), re.DOTALL))

    path.write_text(path.read_text().replace('"schema": 2', '"schema": 1').replace('"seed": 0', '"seed": "none"'))
    result = hmx("report", "one", "--episodes", "0")
    assert result.exit_code == 0 and f"cannot read {file}" in " ".join(result.stdout.split())
    assert title not in page_of(run)


@pytest.mark.parametrize("content", [[], {"schema": 2}, {"schema": 2, "reports": [], "request": 3}, {"schema": 99}])
def test_other_reports_of_another_form_are_named_in_a_warning(hmx, run, content):
    for file in ("gradients.json", "scores/report.json"):
        (run / "reports" / file).parent.mkdir(exist_ok=True)
        (run / "reports" / file).write_text(json.dumps(content))
    result = hmx("report", "one", "--episodes", "0")
    words = " ".join(result.stdout.split())
    assert result.exit_code == 0 and "cannot read gradients.json" in words and "cannot read scores/report.json" in words


def test_an_existing_page_is_replaced_only_with_force(hmx, run, tmp_path):
    (tmp_path / "page.html").write_text("mine")
    result = hmx("report", "one", "--html", "page.html")
    assert result.exit_code == ExitCode.USAGE and "page.html already exists" in result.stderr
    assert (tmp_path / "page.html").read_text() == "mine" and not (run / "reports" / "report.html").exists()
    assert hmx("report", "one", "--html", "page.html", "--force", "--episodes", "0").exit_code == 0


def test_a_long_run_is_averaged_over_parts(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [float(i % 10) for i in range(3000)]})
    (agent,) = curves.drawn_agents(curves.agents_of(read_curves(path)))
    assert 2 * len(agent.steps) > curves.POINTS >= len(agent.steps) and agent.steps[-1] == 3000 * STEPS
    assert agent.columns[RETURN].mean() == pytest.approx(4.5, abs=0.1)


def test_agents_with_different_steps_are_averaged_where_they_overlap(tmp_path):
    write_metrics(tmp_path / "runs" / "m" / "metrics.jsonl", {0: [0.0] * 10, 1: [None, 1.0, None, 1.0, 1.0]})
    agents = curves.agents_of(read_curves(tmp_path / "runs" / "m" / "metrics.jsonl"))
    curve = curves.mean_curve(curves.drawn_agents(agents), RETURN)
    assert curve is not None and curve.steps[0] == 2 * STEPS and curve.steps[-1] == 5 * STEPS
    assert set(curve.values) == {0.5} and not len(curve.low)


def test_a_page_that_cannot_be_written_after_training_is_a_warning(run, capsys):
    (run / "reports" / "evaluation.json").unlink()
    (run / "reports").rmdir()
    (run / "reports").write_text("a file")
    assert report.write_page(run) is None
    assert "warning: the page of the run was not written" in capsys.readouterr().err
    with pytest.raises(HmxError):
        report.default_page(run_report(ReportRequest(runs=(str(run),), num_episodes=0)))


def test_the_episodes_of_the_evaluation_are_played_again(hmx, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    run = tmp_path / "runs" / "corridor"
    rows = plain(evaluate(run, episodes=300, policies=["sampled"]).policies)
    write_sealed(run / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": rows})
    result = hmx("report", "corridor", "--json")
    assert result.exit_code == 0, result.stderr
    played = json.loads(result.stdout)["runs"][0]["episodes"]
    assert played["played"] == 300 and played["evaluated"] == rows[0]["return_mean"] == pytest.approx(
        sum(played["returns"]) / 300, abs=1e-6
    )
    assert [episode["total"] for episode in played["shown"]] == pytest.approx(
        [played["returns"][i] for i in (-1, 149, 0)]
    )
    assert "The 300 episodes of the evaluation, played again" in page_of(run)

    rows[0]["return_mean"] += 0.01
    write_sealed(run / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": rows})
    assert hmx("report", "corridor").exit_code == 0
    assert "300 episodes with the random numbers of the evaluation" in page_of(run)
    assert hmx("report", "corridor", "--seed", "1").exit_code == 0
    assert "16 new episodes, not those of the evaluation" in page_of(run)


def test_episodes_of_a_trained_run_play_on_its_page(hmx, trained, tmp_path):
    assert "Did it learn?" in page_of(trained / "corridor")  # written when the run ended
    shutil.copytree(trained, tmp_path / "runs")
    result = hmx("report", "corridor", "--episodes", "4", "--seed", "3", "--json")
    assert result.exit_code == 0, result.stderr
    (run,) = json.loads(result.stdout)["runs"]
    played = run["episodes"]
    assert played["played"] == 4 and len(played["returns"]) == 4 and played["returns"] == sorted(played["returns"])
    assert [episode["place"] for episode in played["shown"]] == ["best", "median", "worst"]
    best, _, worst = played["shown"]
    assert best["total"] == pytest.approx(played["returns"][-1]) and worst["total"] == pytest.approx(
        played["returns"][0]
    )
    for episode in played["shown"]:
        assert episode["length"] == len(episode["steps"]) and episode["ending"] in ("ended", "step limit")
        assert episode["total"] == pytest.approx(sum(step["reward"] for step in episode["steps"]))
        assert all(sum(step["probabilities"].values()) == pytest.approx(1, abs=1e-4) for step in episode["steps"])
        assert all(step["reward"] == pytest.approx(sum(step["terms"].values())) for step in episode["steps"])
    text = page_of(tmp_path / "runs" / "corridor")
    assert "@" in text.partition('<figure class="player">')[2]  # the corridor as its environment renders it
    assert text.count('<figure class="player">') == 3 and '"facts":[["action","right"]' in text


@pytest.mark.parametrize("file", ["meta.json", "run.toml"])
def test_damaged_run_gets_a_page_and_the_exit_code_of_damage(hmx, run, file):
    (run / file).write_text("{")
    result = hmx("report", "one", "--episodes", "0")
    assert result.exit_code == ExitCode.ARTEFACT and "hmx runs verify one lists the damage" in result.stderr
    assert "cannot read its" in page_of(run)


def test_figure_is_drawn_without_a_page(hmx, run, tmp_path):
    random = {**ROW, "policy": "random", "return_mean": -0.5, "return_interval": [-0.6, -0.4]}
    write_sealed(run / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": [random, ROW]})
    result = hmx("report", "one", "--figure", "return.svg")
    assert result.exit_code == 0 and not result.stdout and "wrote: return.svg" in result.stderr
    assert "<svg" in (tmp_path / "return.svg").read_text() and not (run / "reports" / "report.html").exists()
    plot = learning_curve(run_report(ReportRequest(runs=("one",), num_episodes=0)))
    assert [(line.name, line.y[-1]) for line in plot.series if not line.thin] == [
        ("mean of 3 seeds", pytest.approx(0.2)), ("random play", -0.5), ("trained agent", 0.9)
    ]  # fmt: skip
    assert plot.title == "" and plot.references == () and plot.y.label == "return per episode"
    again = hmx("report", "one", "--figure", "return.svg")
    assert again.exit_code == ExitCode.USAGE and "already exists" in again.stderr
    assert hmx("report", "one", "--figure", "return.svg", "--force", "--html", "page.html").exit_code == 0
    assert (tmp_path / "page.html").exists()


def test_figure_without_a_return_is_refused(hmx, tmp_path):
    folder = make_run(tmp_path / "runs" / "new", {})
    write_metrics(folder / "metrics.jsonl", {0: [None] * 10})
    result = hmx("report", "new", "--figure", "return.pdf")
    assert result.exit_code == ExitCode.ARTEFACT and "cannot draw the return of new: none is known yet" in result.stderr
    assert "hmx resume new --steps N" in result.stderr and not (tmp_path / "return.pdf").exists()
