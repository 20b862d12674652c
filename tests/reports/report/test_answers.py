"""The answers on the first screen of a run page, and the plots below them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from made_runs import RETURN, STEPS, make_run

from hmx.errors import HmxError
from hmx.jobs.evaluation import PolicyStats
from hmx.records.artefact import REPORT_SCHEMA, write_sealed
from hmx.records.jsonl import MetricsWriter
from hmx.records.meta import Resume
from hmx.records.plain import plain
from hmx.render.blocks import Plot
from hmx.reports.report import figures
from hmx.reports.report.answers import answers
from hmx.reports.report.findings import RunFindings
from hmx.reports.report.job import run_report
from hmx.reports.report.request import ReportRequest
from hmx.stats.intervals import Interval

RISING = [-1.0 + 2.0 * min(i, 50) / 50 for i in range(100)]  # a gain of 2 by update 51


def report(folder: Path) -> RunFindings:
    return run_report(ReportRequest(runs=(str(folder),), num_episodes=0))


def told(folder: Path) -> dict[str, tuple[str, str]]:
    (run,) = report(folder).runs
    return {answer.question: (answer.text, answer.tone) for answer in answers(run)}


def evaluate(folder: Path, *rows: PolicyStats) -> None:
    write_sealed(
        folder / "reports" / "evaluation.json",
        {"schema": REPORT_SCHEMA, "policies": plain(rows)},
    )


def stats(policy: str, mean: float, half: float = 0.1, **more: Any) -> PolicyStats:
    interval = Interval(mean - half, mean + half)
    return PolicyStats(policy=policy, episodes=100, return_mean=mean, return_interval=interval, **more)


@pytest.mark.parametrize(
    ("trained", "start", "tone"),
    [
        (0.9, "Yes: return of the trained agent 0.9 [0.8, 1], random play -0.5 [-0.6, -0.4].", "good"),
        (-0.9, "No, it is worse than random play", "bad"),
        (-0.4, "Not shown: return of the trained agent", "warning"),
    ],
)
def test_an_agent_has_learned_if_its_interval_is_above_that_of_random_play(
    tmp_path: Path, trained: float, start: str, tone: str
) -> None:
    run = make_run(tmp_path / "one", {0: RISING})
    evaluate(run, stats("random", -0.5), stats("sampled", trained, seed=0))
    text, shown = told(run)["Did it learn?"]
    assert text.startswith(start) and shown == tone


@pytest.mark.parametrize(
    ("curve", "start"),
    [
        (RISING, "Yes: the mean return of the training episodes went from -1 to 1"),
        ([-value for value in RISING], "No: "),
        ([math.sin(37 * i) for i in range(100)], "Not shown: "),
        (RISING[:3], "Unknown: "),
    ],
)
def test_without_an_evaluation_the_curve_answers(tmp_path: Path, curve: Sequence[float], start: str) -> None:
    assert told(make_run(tmp_path / "one", {0: curve}))["Did it learn?"][0].startswith(start)


def test_certainty_is_one_of_seeds(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", {0: RISING})
    assert "One seed" in told(one)["How sure is that?"][0] and "--seeds 3" in told(one)["What next?"][0]
    simulated = make_run(tmp_path / "walk", {4: RISING})
    (simulated / "checkpoints" / "8").mkdir(parents=True)
    (simulated / "checkpoints" / "8" / "episodes.npz").touch()
    assert "--seed 5, a run per seed" in told(simulated)["What next?"][0]
    three = make_run(tmp_path / "three", dict.fromkeys(range(3), RISING), evaluated={0: 1.0, 1: 0.9, 2: -2.0})
    (three / "checkpoints" / "8").mkdir(parents=True)
    text, tone = told(three)["How sure is that?"]
    assert text == "3 seeds; intervals are Student's t over seeds; 2 of 3 agents are better than random play."
    assert tone == "plain" and "--seeds" not in told(three)["What next?"][0]


def test_the_return_is_split_by_reward_term(tmp_path: Path) -> None:
    more = {"reward/goal": 0.05, "reward/step_cost": -0.01, "train/mean_episode_length": 20.0}
    run = make_run(tmp_path / "one", {0: RISING}, **more)
    question = "What is the return made of?"
    assert told(run)[question][0] == "At the end of the training about goal +1.00, step_cost -0.20 per episode."
    rows = [stats("random", 0.1, reward_terms={"goal": 0.5, "step_cost": -0.4})]
    rows += [stats("sampled", 0.8, seed=0, reward_terms={"goal": 0.97, "step_cost": -0.17})]
    evaluate(run, *rows)
    shown = (
        "Trained agent: goal +0.97, step_cost -0.17 per episode; random play: goal +0.50, step_cost -0.40 per episode."
    )
    assert told(run)[question][0] == shown


def test_changes_have_their_steps(tmp_path: Path) -> None:
    resume = Resume(at="2026-01-01T01:00:00+00:00", update=60, command=(), changes={"algo.gamma": [0.9, 0.99]})
    run = make_run(tmp_path / "one", {0: RISING}, resumes=[resume])
    text, _ = told(run)["What changed, and when?"]
    half, resumed = text.split("; ")
    steps = float(half.split("step ")[1].split("k")[0]) * 1000
    assert half.startswith("Half of the gain by step") and abs(steps - 26 * STEPS) <= STEPS
    assert resumed == "resumed at step 15.4k with algo.gamma 0.9 -> 0.99"
    fallen = RISING[:80] + [0.0] * 20
    assert "the best was 1 at step" in told(make_run(tmp_path / "two", {0: fallen}))["What changed, and when?"][0]


def test_problems_and_remedies_of_doctor_are_answers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", {0: RISING}, state="failed", **{"train/approx_kl": 0.5, "train/clip_frac": 0.9})
    (run / "checkpoints" / "3").mkdir(parents=True)
    text, tone = told(run)["Is anything wrong?"]
    assert "each update changes the policy too much (large-updates)" in text and tone == "bad"
    actions = told(run)["What next?"][0]
    assert actions.startswith("Continue it: hmx resume ") and "lower algo.learning_rate" in actions


def test_only_a_run_with_a_checkpoint_is_continued_and_watched(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", {0: RISING}, state="failed")
    (run / "checkpoints" / "3").mkdir(parents=True)
    assert "Continue it: hmx resume " in told(run)["What next?"][0] and "watch it: " in told(run)["What next?"][0]
    (run / "checkpoints" / "3").rmdir()
    actions = told(run)["What next?"][0]
    assert actions.startswith(f"Start over: hmx train --config {run / 'run.toml'} --name ")
    assert "resume" not in actions and "watch" not in actions


def plots(folder: Path) -> Mapping[str, Plot]:
    findings = report(folder)
    every = [*figures.best_known(findings), *figures.plots(findings, figures.OPTIMISATION), *figures.others(findings)]
    return {plot.title: plot for plot in every}


def test_the_return_is_drawn_between_random_play_and_the_trained_agent(tmp_path: Path) -> None:
    drawn = plots(make_run(tmp_path / "one", {0: RISING}, evaluated={0: 0.75}, random=-3.5))["Return"]
    (line,), (dot,) = ([one for one in drawn.series if one.name == name] for name in ("random play", "trained agent"))
    end = float(len(RISING) * STEPS)
    assert (line.x, line.y, line.dashed) == ((0.0, end), (-3.5, -3.5), True)
    assert (dot.kind, dot.x, dot.y) == ("dots", (end,), (0.75,))
    other = make_run(
        tmp_path / "two", {0: RISING}, evaluated={0: 0.75}, changes={"env.id": "hackmatrix", "reward.kills": 9.0}
    )
    assert {one.name for one in plots(other)["Return"].series} == {""}  # evaluated with the default weights


def evaluating(folder: Path, final: bool) -> Mapping[str, Plot]:
    """Plots of a run of ten updates with evaluations before updates 1 and 6, and no training game that has ended."""
    more = {"evaluated": {0: 0.75}, "random": -3.25} if final else {}
    run = make_run(folder, {}, changes={"run.total_steps": 10 * STEPS}, **more)
    with MetricsWriter(run / "metrics.jsonl") as writer:
        for update in range(1, 11):
            known = {1: (-3.0, -4.0, -2.0), 6: (1.0, 0.5, 1.5)}.get(update)
            names = ("eval/return", "eval/return_low", "eval/return_high")
            measured = {**dict(zip(names, known, strict=True)), "eval/random_return": -3.5} if known else {}
            writer.write({"update": update, "env_steps": update * STEPS, "seed": 0, **measured})
    return plots(run)


@pytest.mark.parametrize(("low", "start"), [(0.5, "Yes, so far: 1 in the"), (-4.0, "Not shown yet: 1 in the")])
def test_the_newest_evaluation_answers_while_the_run_trains(tmp_path: Path, low: float, start: str) -> None:
    more = {"eval/return": 1.0, "eval/return_low": low, "eval/random_return": -3.5}
    run = make_run(tmp_path / "one", {0: RISING[:3]}, state="running", **more)
    text, _ = told(run)["Did it learn?"]
    assert text.startswith(f"{start} evaluation at step ") and text.endswith(", random play -3.5.")


@pytest.mark.parametrize("final", [False, True])
def test_evaluations_are_drawn_where_the_agent_was_before_their_updates(tmp_path: Path, final: bool) -> None:
    """Beside random play: that of the run while it trains, that of the evaluation at its end afterwards."""
    every = evaluating(tmp_path / "one", final)
    drawn = {one.name: one for one in every["Return"].series}
    assert drawn["evaluated"].x == (0.0, 5.0 * STEPS)
    assert (drawn["evaluated"].y, drawn["evaluated"].low, drawn["evaluated"].high) == (
        (-3.0, 1.0), (-4.0, 0.5), (-2.0, 1.5),
    )  # fmt: skip
    assert drawn["random play"].y == ((-3.25,) * 2 if final else (-3.5,) * 2)
    assert ("trained agent" in drawn) == final
    caption = every["Return"].caption
    assert "No return yet: not every game has ended once." in caption and "whole games that all count" in caption
    assert not any(title.startswith("eval/") for title in every)


def test_training_games_are_grey_beside_evaluations(tmp_path: Path) -> None:
    more = {"eval/return": 0.5, "eval/random_return": -3.5}
    drawn = plots(make_run(tmp_path / "one", {0: RISING}, **more))["Return"].series
    assert {one.colour for one in drawn if one.name == "training games"} == {-1}
    assert {one.name for one in drawn} == {"training games", "evaluated", "random play"}


def test_a_return_plot_says_why_it_is_empty(tmp_path: Path) -> None:
    drawn = plots(make_run(tmp_path / "one", {0: [None] * 5}))["Return"]
    assert not drawn.series and drawn.caption == "No return yet: not every game has ended once."


def test_events_are_counted_per_episode(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", {}, changes={"run.total_steps": 10 * STEPS})
    with MetricsWriter(run / "metrics.jsonl") as writer:
        for update in range(1, 11):
            ended = 0.0 if update % 2 else 4.0
            events = {"stats/stages_completed": 3.0, "stats/wins": float(update), "train/num_episodes": ended}
            writer.write({"update": update, "env_steps": update * STEPS, "seed": 0, RETURN: 0.0, **events})
    drawn = plots(run)
    (line,) = [line for line in drawn["Stages completed per episode"].series if not line.thin]
    assert line.y == pytest.approx([1.5] * 4)  # 6 stages in two updates, in the second of which 4 episodes end
    assert drawn["Share of games won"].y.label == "games per episode"


def test_one_outlier_neither_widens_an_axis_nor_bends_the_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", {0: RISING})
    with MetricsWriter(run / "metrics.jsonl") as writer:
        for update in range(1, 101):
            value = -24.0 if update == 3 else 0.5 + 0.1 * math.sin(update)
            writer.write({"update": update, "env_steps": update * STEPS, "seed": 0, "train/explained_variance": value})
    drawn = plots(run)["Explained variance"]
    thin, line = drawn.series
    assert drawn.y.low is not None and drawn.y.low > 0.3 and drawn.y.high is None
    assert (
        -24.0 in thin.y and min(value or 0.0 for value in line.y) > 0.3 and "1 outlier beyond the axis" in drawn.caption
    )


def test_metrics_of_own_algorithms_are_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", {0: RISING})
    with MetricsWriter(run / "metrics.jsonl") as writer:
        for update in range(1, 21):
            writer.write({"update": update, "env_steps": update * STEPS, "seed": 0, "es/best": 1.0 / update})
    assert plots(run)["es/best"].y.label == "es/best"


def test_a_health_that_cannot_be_checked_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(folder: Path) -> None:
        raise HmxError("metrics.jsonl has changed")

    monkeypatch.setattr("hmx.reports.report.job.doctor", unreadable)
    (run,) = report(make_run(tmp_path / "a", {0: [0.1, 0.2]})).runs
    assert run.health is None
    assert "its health was not checked: metrics.jsonl has changed" in run.warnings
