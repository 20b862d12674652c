"""Logs of other programs: which rules they allow, what these find, and what the report says about the others."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hmx.records.curves import AgentCurves
from hmx.reports.doctor.document import document
from hmx.reports.doctor.job import HealthFindings, doctor
from hmx.reports.doctor.logs import points
from hmx.reports.doctor.rules import RULES

UPDATES, BATCH = 120, 2048
CONFIGURED = {rule.name for rule in RULES if rule.configured}


def healthy(update: int) -> dict[str, float]:
    """An update of PPO as Stable-Baselines3 logs it, in a run that learns."""
    done, wave = min(3 * update / UPDATES, 1.0), math.sin(update)
    return {
        "global_step": update * BATCH, "rollout/ep_rew_mean": 100 * done + wave, "rollout/ep_len_mean": 100 + wave,
        "train/approx_kl": 0.01 + 0.001 * wave, "train/clip_fraction": 0.1, "train/explained_variance": done,
        "train/std": 1.0 - 0.5 * done, "time/fps": 900.0,
    }  # fmt: skip


def history(path: Path, change: Callable[[int], dict[str, Any]] = lambda update: {}) -> Path:
    """Write a run's history as Weights & Biases exports it."""
    rows = [{**healthy(update), **change(update)} for update in range(1, UPDATES + 1)]
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def rules(found: HealthFindings) -> list[str]:
    return [finding.rule for finding in found.findings]


def test_healthy_log_passes_the_rules_whose_metrics_it_has(tmp_path: Path) -> None:
    found = doctor(history(tmp_path / "log.csv"))
    assert rules(found) == [] and found.is_log and found.num_seeds == 1
    checked = {rule.rule for rule in found.rules if rule.status == "ok"}
    assert checked == {
        "constant-rewards", "entropy-collapsed", "large-updates", "frozen-policy", "constant-value", "useless-value",
        "return-fell", "no-progress", "still-rising",
    }  # fmt: skip
    assert found.verdict == f"No problem found by 9 of {len(RULES)} rules in 120 points of the log."
    missing = {rule.rule: rule.missing for rule in found.rules if rule.status == "not measured"}
    assert {name for name, lacks in missing.items() if lacks == "the configuration"} == CONFIGURED
    assert missing["entropy-maximal"] == "train/entropy and train/max_entropy"
    assert missing["zero-reward-term"] == "reward/" and missing["slower"] == "train/steps_per_sec"


@pytest.mark.parametrize(
    ("change", "rule", "since"),
    [
        (lambda update: {"train/clip_fraction": 0.9} if update > 30 else {}, "large-updates", 30),
        (lambda update: {"train/approx_kl": 0.0}, "frozen-policy", 0),
        (lambda update: {"rollout/ep_rew_mean": 5.0, "rollout/ep_len_mean": 10.0}, "constant-rewards", 0),
        (lambda update: {"train/std": 0.001, "rollout/ep_rew_mean": (-1.0) ** update}, "entropy-collapsed", 0),
        (lambda update: {"rollout/ep_rew_mean": 1.0} if update > 72 else {}, "return-fell", 72),
    ],
)
def test_planted_problem_is_found_where_it_begins(
    tmp_path: Path, change: Callable[[int], dict[str, Any]], rule: str, since: int
) -> None:
    found = doctor(history(tmp_path / "log.csv", change), fail_on=["any"])
    (finding,) = (finding for finding in found.findings if finding.rule == rule)
    assert abs(finding.since - since * BATCH) <= 16 * BATCH and finding.until is None
    assert rule in found.failed


def test_runs_of_a_panel_are_named(tmp_path: Path) -> None:
    lines = ["Step,good - rollout/ep_rew_mean,bad - rollout/ep_rew_mean"]
    lines += [f"{u},{u / 40 + math.sin(u) / 50},{math.sin(u)}" for u in range(1, 61)]
    (tmp_path / "panel.csv").write_text("\n".join(lines))
    found = doctor(tmp_path / "panel.csv")
    assert found.runs == ("good", "bad")
    (stuck,) = (finding for finding in found.findings if finding.rule == "no-progress")
    assert stuck.seeds == (1,)
    texts = [getattr(block, "text", "") for block in document(found).blocks]
    assert any(text.startswith("Since step 31 in bad: ") or " in bad: " in text for text in texts)
    assert any("rules not checked" in text for text in texts)


def test_episodes_of_a_monitor_are_averaged_over_at_most_200_points(tmp_path: Path) -> None:
    rows = [f"{0.0},{20 + i % 3},{i}" for i in range(900)]
    (tmp_path / "monitor.csv").write_text("\n".join([f"#{json.dumps({'t_start': 0.0})}", "r,l,t", *rows]) + "\n")
    found = doctor(tmp_path / "monitor.csv")
    assert found.updates == 200 and rules(found) == ["constant-rewards"]
    (finding,) = found.findings
    assert 400 * 19 < finding.found < 500 * 22  # only after 400 episodes without a reward


def test_metrics_at_other_steps_share_points() -> None:
    agent = AgentCurves(None, None)
    for i in range(10):
        agent.add(100 * i, {"train/approx_kl": float(i)})
        agent.add(100 * i + 30, {"train/mean_episode_return": 2.0})
        agent.add(100 * i + 60, {"train/mean_episode_return": 4.0})
    found = points(agent)
    assert len(found) == 10 and [round(values["train/approx_kl"]) for _, values in found] == list(range(10))
    assert {values["train/mean_episode_return"] for _, values in found} == {3.0}
    assert {values["train/num_episodes"] for _, values in found} == {2.0}


def test_rule_of_fail_on_that_cannot_be_checked_is_reported(tmp_path: Path) -> None:
    found = doctor(history(tmp_path / "log.csv"), fail_on=["slower"])
    assert found.warnings == ("cannot check slower, which --fail-on names",) and found.failed == ()


@pytest.mark.parametrize("rows", [[], [1], list(range(1, 8))])
def test_short_log_is_reported_as_empty(tmp_path: Path, rows: list[int]) -> None:
    lines = ["Step,rollout/ep_rew_mean", *(f"{row},1.0" for row in rows)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    assert "no metrics yet" in doctor(tmp_path / "log.csv").verdict
