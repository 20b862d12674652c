"""Each rule finds its planted curve, and none warns about a healthy one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmx.config import fields
from hmx.config.coerce import show
from hmx.config.schema import Config, RewardWeights
from hmx.records.meta import Resume
from hmx.reports.doctor.history import WINDOW, History
from hmx.reports.doctor.job import HealthSink
from hmx.reports.doctor.monitor import Finding, Monitor, restarts
from hmx.reports.doctor.rules import RULES
from hmx.runs.sinks import RunInfo, Sink, SinkGroup

TOTAL, BATCH = 100, 64 * 16
Record = dict[str, Any]
PPO = {"env.id": "corridor", "env.num_envs": 64, "algo.num_steps": 16, "env.max_steps": 100}
DQN = {**PPO, "algo.name": "dqn"}
MATRIX = {**PPO, "env.id": "hackmatrix"}


def config(values: dict[str, Any]) -> Config:
    return fields.replace(Config(), {**PPO, **values, "run.total_steps": TOTAL * BATCH})


def healthy(update: int) -> Record:
    """The record of an update of a run that learns, until two thirds of the run: every metric moves a little."""
    done, wave = update / TOTAL, math.sin(update)
    reward = 0.1 * done + 0.001 * wave
    return {
        "update": update, "env_steps": update * BATCH, "seed": 0, "elapsed": 2.0 * update,
        "train/mean_reward": reward, "train/mean_episode_return": min(1.5 * done, 1.0) + 0.02 * wave,
        "train/mean_episode_length": 50.0 + wave, "train/num_episodes": 20.0, "train/truncated_frac": 0.001,
        "train/advantage_std": 0.3 + 0.01 * wave, "train/approx_kl": 0.01 + 0.001 * wave, "train/clip_frac": 0.1,
        "train/entropy": 0.6 * (1 - 0.8 * done), "train/max_entropy": 0.65, "train/explained_variance": 0.1 + done,
        "train/value_loss_fall": 0.1 * wave,
        "train/grad_norm": 0.8 + 0.1 * wave, "train/first_ratio_error": 1e-6, "train/steps_per_sec": 1e4 + 100 * wave,
        "reward/goal": reward + 0.01, "reward/step_cost": -0.01, "actions/left_frac": 0.3, "actions/right_frac": 0.7,
    }  # fmt: skip


def check(
    change: Callable[[int], Record],
    values: dict[str, Any] | None = None,
    seed: int = 0,
    restarts: Sequence[int] = (),
) -> Monitor:
    monitor = Monitor(config(values or {}), restarts)
    for update in range(1, TOTAL + 1):
        record = {**healthy(update), "seed": seed, **change(update)}
        list(monitor.add({name: value for name, value in record.items() if value is not None}))
    return monitor


def names(monitor: Monitor) -> list[str]:
    return [finding.rule for finding in monitor.findings()]


def fall(update: int) -> float:
    """Rise for half of the run, then fall back."""
    return min(update, 60) / 60 - (0.95 if update > 60 else 0.0)


PLANTED: dict[str, tuple[dict[str, Any], Callable[[int], Record]]] = {
    "constant-rewards": ({}, lambda u: {"train/mean_reward": 0.0, "train/mean_episode_return": None}),
    "constant-advantages": ({}, lambda u: {"train/advantage_std": 0.0}),
    "first-ratio": ({}, lambda u: {"train/first_ratio_error": 0.1}),
    "entropy-collapsed": ({}, lambda u: {"train/entropy": 0.001, "train/mean_episode_return": 0.2 + u % 2}),
    "entropy-maximal": ({}, lambda u: {"train/entropy": 0.6499}),
    "large-updates": ({}, lambda u: {"train/approx_kl": 0.4}),
    "frozen-policy": ({}, lambda u: {"train/approx_kl": 0.0}),
    "useless-value": ({}, lambda u: {"train/explained_variance": 0.03 * math.sin(u)}),
    "constant-value": ({}, lambda u: {"train/explained_variance": 1e-7 * math.sin(u)}),
    "frozen-value": ({}, lambda u: {"train/value_loss_fall": 1e-7 * math.sin(u)}),
    "exploding-gradients": ({}, lambda u: {"train/grad_norm": 1.5**u if u > 5 else 1.0}),
    "clipped-gradients": ({}, lambda u: {"train/grad_norm": 40.0}),
    "nonfinite": ({}, lambda u: {"train/skipped_updates": float(u % 4 == 0)}),
    "dormant-units": ({}, lambda u: {"train/dormant_units": 0.6 if u > 30 else 0.1}),
    "inactive-mask": ({}, lambda u: {"train/max_entropy": math.log(2), "train/entropy": 0.3}),
    "no-episode-ends": ({}, lambda u: {"train/num_episodes": 0.0}),
    "always-truncated": ({"env.max_steps": 5}, lambda u: {"train/mean_episode_length": 5.0}),
    "zero-reward-term": ({}, lambda u: {"reward/goal": 0.0}),
    "reward-sum": ({}, lambda u: {"reward/goal": healthy(u)["train/mean_reward"]}),
    "action-shares": ({}, lambda u: {"actions/left_frac": 0.5}),
    "step-reward": ({}, lambda u: {"reward/step_cost": -0.01 * (u % 2)}),
    "dominant-reward-term": (MATRIX, lambda u: {"reward/a": 5.0, "reward/b": 0.001}),
    "slower": ({}, lambda u: {"train/steps_per_sec": 1e4 if u < 50 else 3e3}),
    "unused-action": ({}, lambda u: {"actions/left_frac": 0.0}),
    "return-fell": ({}, lambda u: {"train/mean_episode_return": fall(u)}),
    "no-progress": ({}, lambda u: {"train/mean_episode_return": math.sin(u)}),
    "diverging-q": (DQN, lambda u: {"train/q_value": 1.2**u}),
    "no-gradient-steps": (DQN, lambda u: {"train/gradient_steps": 0.0}),
    "few-updates": ({"env.num_envs": 1024, "algo.num_steps": 100}, lambda u: {}),
    "still-rising": ({}, lambda u: {"train/mean_episode_return": u / TOTAL + 0.01 * math.sin(u)}),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_finds_its_planted_curve_and_few_others(rule: Any) -> None:
    values, change = PLANTED[rule.name]
    found = names(check(change, values))
    assert rule.name in found and len(found) <= 2


@pytest.mark.parametrize("values", [PPO, DQN, MATRIX], ids=["ppo", "dqn", "hackmatrix"])
def test_a_healthy_curve_breaks_no_rule(values: dict[str, Any]) -> None:
    solved = {"train/entropy": 0.001, "train/approx_kl": 0.0, "train/explained_variance": -3.0}
    assert names(check(lambda u: {}, values)) == []
    assert names(check(lambda u: solved if u > 70 else {}, values)) == []


GAME = {"reward/goal": None, "reward/step_cost": None, "actions/left_frac": None, "actions/right_frac": None}
ACTIONS = {"actions/move_frac": 0.7, "actions/siphon_frac": 0.1, "actions/program_frac": 0.2}


def breakdown(update: int, terms: dict[str, float], more: float = 0.0) -> Record:
    """HackMatrix's 15 terms, all 0 but `terms`, its action shares, and their sum as the mean reward; `more` is off."""
    paid = {f"reward/{name}": 0.0 for name in vars(RewardWeights())} | {
        f"reward/{name}": x for name, x in terms.items()
    }
    return {**GAME, **paid, **ACTIONS, "train/mean_reward": math.fsum(paid.values()) + more}


@pytest.mark.parametrize(
    ("change", "values", "found"),
    [
        (lambda u: breakdown(u, {"step_penalty": -0.01, "kills": 0.3 * (u % 3)}), {}, None),
        (lambda u: breakdown(u, {"step_penalty": -0.01, "victory": 5e4 * (u % 3)}, 0.01), {}, None),  # float32
        (lambda u: breakdown(u, {"step_penalty": -0.01, "kills": 0.3 * (u % 3)}, 0.01), {}, "reward-sum"),
        (lambda u: breakdown(u, {"step_penalty": -0.01}) | {"reward/kills": math.nan}, {}, None),
        (lambda u: breakdown(u, {"step_penalty": -0.01}) | {"actions/program_frac": 0.1}, {}, "action-shares"),
        (lambda u: breakdown(u, {"step_penalty": -0.01 + 1e-4 * (u % 2)}), {}, "step-reward"),
        (lambda u: breakdown(u, {"step_penalty": -0.02}), {}, "step-reward"),
        (lambda u: breakdown(u, {"step_penalty": -0.02}), {"reward.step_penalty": -0.02}, None),
        (lambda u: breakdown(u, {"step_penalty": 0.0}), {"reward.step_penalty": 0.0}, None),
        (lambda u: breakdown(u, {"step_penalty": -0.03 + 0.01 * (u % 2)}), {"env.action_repeat": 4}, None),
    ],
)
def test_the_breakdown_of_hackmatrix_keeps_its_three_invariants(
    change: Callable[[int], Record], values: dict[str, Any], found: str | None
) -> None:
    """15 terms sum to the mean reward, three shares of actions to 1, and every step pays -0.01 or its weight."""
    assert len(vars(RewardWeights())) == 15
    invariants = {"reward-sum", "action-shares", "step-reward"}
    assert invariants & set(names(check(change, {**MATRIX, **values}))) == ({found} if found else set())


def test_a_reward_that_a_fork_changed_is_constant_before_and_after() -> None:
    def changed(update: int) -> Record:
        return breakdown(update, {"step_penalty": -0.02 if update > 60 else -0.01})

    values = {**MATRIX, "reward.step_penalty": -0.02}
    assert "step-reward" in names(check(changed, values))
    assert "step-reward" not in names(check(changed, values, restarts=[60]))


def test_a_finding_says_since_when_until_when_and_for_which_seeds() -> None:
    monitor = Monitor(config({}))
    for update in range(1, TOTAL + 1):
        for seed in (0, 1):
            large = seed == 1 and 20 < update <= 40
            list(monitor.add({**healthy(update), "seed": seed, "train/first_ratio_error": 0.1 * large}))
    (finding,) = monitor.findings()
    assert (finding.since, finding.found, finding.until) == (20 * BATCH, 22 * BATCH, 40 * BATCH)
    assert finding.seeds == (1,) and "0.1" in finding.evidence


def test_warm_starts_and_filling_buffers_are_not_reported() -> None:
    flat = PLANTED["no-progress"][1]
    assert names(check(flat)) == ["no-progress"] and names(check(flat, {"run.init_from": "runs/other"})) == []
    filling = {**DQN, "dqn.learn_starts": TOTAL * BATCH}
    assert names(check(PLANTED["no-gradient-steps"][1], filling)) == []


def test_an_agent_that_begins_with_the_highest_return_gets_no_finding_without_a_signal() -> None:
    def best(update: int) -> Record:
        return {"train/mean_reward": 1.0, "train/mean_episode_return": 500.0, "reward/goal": 1.01}

    assert "constant-rewards" in names(check(best))
    assert "constant-rewards" not in names(check(best, {"run.init_from": "runs/other"}))


def test_short_evidence_is_not_a_finding() -> None:
    assert names(check(lambda u: {"train/first_ratio_error": 0.1 * (u % 2)})) == []


@pytest.mark.parametrize(("episodes", "found"), [(4.0, []), (20.0, ["constant-rewards"])])
def test_no_reward_yet_is_a_finding_once_400_episodes_have_ended(episodes: float, found: list[str]) -> None:
    silent = {"train/mean_reward": 0.0, "train/mean_episode_return": 0.0, "train/num_episodes": episodes}
    silent |= {"reward/goal": 0.01, "reward/step_cost": -0.01}
    assert names(check(lambda u: silent)) == found


def test_a_return_that_only_fluctuates_has_not_fallen() -> None:
    noise = [0.0, 0.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0]
    few = {"train/mean_episode_return": 0.0}
    assert names(check(lambda u: few if u < 30 or u > 60 else {"train/mean_episode_return": noise[u % 17]})) == []
    assert names(check(lambda u: {"train/mean_episode_return": fall(u)})) == ["return-fell"]


def correlated(draw: np.random.Generator, correlation: float, std: float) -> list[float]:
    """Noise whose values depend on the one before (an AR(1) process)."""
    values = [std * draw.normal()]
    for _ in range(TOTAL - 1):
        values.append(correlation * values[-1] + math.sqrt(1 - correlation**2) * std * draw.normal())
    return values


def reported(rule: str, curve: Callable[[np.random.Generator], Sequence[float]], runs: int = 60) -> float:
    """Return the share of runs in which a rule is broken."""
    found = []
    for seed in range(runs):
        returns = [float(value) for value in curve(np.random.default_rng(seed))]
        found.append(rule in names(check(lambda u: {"train/mean_episode_return": returns[u - 1]})))  # noqa: B023
    return sum(found) / runs


def test_correlated_noise_is_not_a_fall_and_hides_none() -> None:
    rise = 1 - np.exp(-np.arange(TOTAL) / 30)
    falls = np.array([fall(update) for update in range(1, TOTAL + 1)])
    assert reported("return-fell", lambda draw: correlated(draw, 0.9, 1.0)) <= 0.1
    assert reported("return-fell", lambda draw: rise + correlated(draw, 0.95, 0.15)) <= 0.02
    assert reported("return-fell", lambda draw: falls + correlated(draw, 0.5, 0.1)) >= 0.8


def test_few_returns_do_not_show_that_there_is_no_progress() -> None:
    def found(updates: int) -> list[str]:
        monitor = Monitor(fields.replace(config({}), {"run.total_steps": updates * BATCH}))
        return [
            finding.rule
            for update in range(1, updates + 1)
            for finding in monitor.add({**healthy(update), "train/mean_episode_return": math.sin(update)})
        ]

    assert "no-progress" not in found(44) and "no-progress" in found(60)


def test_rare_large_returns_do_not_hide_progress() -> None:
    rise = np.arange(TOTAL) / TOTAL
    assert reported("no-progress", lambda draw: 10 * rise + 30 * (draw.random(TOTAL) < 0.02)) <= 0.05


def test_own_environment_whose_file_limits_episodes_is_found_by_their_length() -> None:
    own = {"env.id": "./game.py", "env.max_steps": 1000}

    def truncated(update: int) -> Record:
        return {"train/mean_episode_length": 50.0, "train/truncated_frac": 0.02}

    monitor = check(truncated, own)
    (finding,) = (finding for finding in monitor.findings() if finding.rule == "always-truncated")
    assert finding.evidence == "every episode so far was truncated after 50 steps"
    assert finding.severity == "note" and "env.max_steps" not in finding.remedy  # the limit is that of the file
    assert "always-truncated" not in names(check(lambda u: {**truncated(u), "train/truncated_frac": 0.0}, own))
    assert "always-truncated" not in names(check(lambda u: {"train/mean_episode_length": 50.0 + u % 2}, own))


def test_fork_with_other_rewards_begins_a_new_history() -> None:
    def changed(update: int) -> Record:
        later = update > 60
        returns = min(update, 60) / 60 + 0.01 * math.sin(update) if not later else 0.1 + (update - 60) / 400
        kl = 0.5 if 40 < update <= 60 else 0.01
        return {"train/mean_episode_return": returns, "train/approx_kl": kl}

    assert "return-fell" in names(check(changed))
    entry = Resume(at="", update=60, command=(), changes={"reward.kill": [1, 0.1]}, parent={"name": "a"})
    assert restarts([entry]) == (60,) and restarts([replace(entry, changes={"algo.gamma": [0.9, 0.99]})]) == ()
    monitor = check(changed, restarts=restarts([entry]))
    assert "return-fell" not in names(monitor)
    (large,) = (finding for finding in monitor.findings() if finding.rule == "large-updates")
    assert large.until == 60 * BATCH


def test_fork_of_an_agent_that_has_learned_gets_no_finding_without_progress() -> None:
    def solved(update: int) -> Record:
        noise = 0.01 * math.sin(update)
        return {"train/mean_episode_return": 1.0 + noise, "train/entropy": 0.005}

    assert {"no-progress", "entropy-collapsed"} <= set(names(check(solved)))
    assert {"no-progress", "entropy-collapsed"}.isdisjoint(names(check(solved, restarts=[1])))


AGENTS = [PPO, {**PPO, "algo.name": "gumbel"}, DQN, MATRIX, {**PPO, "algo.name": "./mine.py"}, {"env.id": "./game.py"}]
CHOSEN = {"algo.max_grad_norm": 0.0, "ppo.ent_coef": 0.0, "ppo.update_epochs": 1, "net.shared_torso": False,
          "net.activation": "tanh", "net.layer_norm": True, "env.max_steps": 0}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, CHOSEN], ids=["defaults", "chosen"])
@pytest.mark.parametrize("values", AGENTS, ids=["ppo", "gumbel", "dqn", "hackmatrix", "own algorithm", "own game"])
def test_advice_names_options_that_the_run_has_and_can_change(values: dict[str, Any], changes: dict[str, Any]) -> None:
    cfg = config({**values, **changes})
    now = fields.values_of(cfg)
    for rule in RULES:
        advice = rule.remedy(History(cfg, TOTAL))
        assert advice[0].isupper() and advice.endswith("."), rule.name
        for key, wanted in re.findall(r"\b([a-z]+\.[a-z_]+)(?:=(\w+))?", advice):
            assert fields.FIELDS[key].applies_to(cfg.algo.name, cfg.env.id), (rule.name, key)
            assert not wanted or show(now[key]) != wanted, (rule.name, "it has that value")
            lowest = changes and key in ("ppo.ent_coef", "ppo.update_epochs")
            assert not (lowest and f"lower {key}" in advice.lower()), (rule.name, key)
        assert "grad-report" not in advice or cfg.algo.name != "./mine.py"


@pytest.mark.parametrize(
    ("values", "length", "raises"),
    [
        ({"env.max_steps": 50}, 50.0, True),
        ({"env.id": "./game.py", "env.max_steps": 50}, 50.0, True),
        ({"env.id": "./game.py", "env.max_steps": 1000}, 50.0, False),
        ({"env.id": "./game.py", "env.max_steps": 0}, 50.0, False),
    ],
)
def test_a_step_limit_is_to_be_raised_only_where_episodes_reach_it(
    values: dict[str, Any], length: float, raises: bool
) -> None:
    monitor = check(lambda u: {"train/mean_episode_length": length}, values)
    (finding,) = (finding for finding in monitor.findings() if finding.rule == "always-truncated")
    assert ("env.max_steps" in finding.remedy) == raises and "terminations" in finding.remedy


@pytest.mark.parametrize(
    ("values", "rule", "change", "severity"),
    [
        ({"env.id": "./game.py", "env.max_steps": 5}, "always-truncated", PLANTED["always-truncated"][1], "note"),
        ({"env.id": "./game.py", "env.max_steps": 0}, "no-episode-ends", PLANTED["no-episode-ends"][1], "note"),
        ({"env.max_steps": 5}, "always-truncated", PLANTED["always-truncated"][1], "warning"),
        ({"env.max_steps": 100}, "no-episode-ends", PLANTED["no-episode-ends"][1], "warning"),
        ({}, "slower", PLANTED["slower"][1], "note"),
    ],
)
def test_what_may_be_healthy_is_a_note(
    values: dict[str, Any], rule: str, change: Callable[[int], Record], severity: str
) -> None:
    assert {one.rule: one.severity for one in check(change, values).findings()}[rule] == severity


def test_processor_time_tells_other_load_from_slow_training() -> None:
    slow = PLANTED["slower"][1]
    (waits,) = check(lambda u: {**slow(u), "train/steps_per_cpu_sec": 5e3 + u % 3}).findings()
    (itself,) = check(lambda u: {**slow(u), "train/steps_per_cpu_sec": slow(u)["train/steps_per_sec"] / 2}).findings()
    assert "so the run waits" in waits.evidence and "steps per processor second" in itself.evidence


def test_a_claim_of_never_is_withdrawn_once_it_is_disproved() -> None:
    late = check(
        lambda u: {"actions/left_frac": 0.0 if u <= 40 else 0.3, "actions/right_frac": 1.0 if u <= 40 else 0.7}
    )
    assert names(late) == [] and {one.rule: one.status for one in late.statuses()}["unused-action"] == "ok"
    large = check(lambda u: {"train/approx_kl": 0.4 if u <= 40 else 0.01})
    assert names(large) == ["large-updates"], "what went wrong for a while stays a finding"


@pytest.mark.parametrize(("end", "found"), [(0.0, ["useless-value"]), (0.03, [])])
def test_a_value_function_that_begins_slowly_is_not_useless(end: float, found: list[str]) -> None:
    """Windows of healthy runs reached 0.02 after 8 to 44 updates; on the pole they reached 0.05 after up to 61."""
    assert names(check(lambda u: {"train/explained_variance": end * min(u / 35, 1.0) + 0.01 * math.sin(u)})) == found


def test_a_policy_that_stops_changing_is_found_unless_it_is_certain_or_its_schedule_ended() -> None:
    def stops(update: int, **more: float) -> Record:
        return {"train/approx_kl": 0.01 if update <= 50 else 0.0, "train/learning_rate": 1e-3} | more

    assert names(check(stops)) == ["frozen-policy"]
    assert names(check(lambda u: stops(u) | {"train/learning_rate": 0.0 if u > 50 else 1e-3})) == ["frozen-policy"]
    assert names(check(lambda u: stops(u) | {"train/learning_rate": 1e-6 if u > 50 else 1e-3})) == []
    assert names(check(lambda u: stops(u) | ({"train/entropy": 0.001} if u > 50 else {}))) == []


def test_missing_and_damaged_values_are_skipped() -> None:
    monitor = check(
        lambda u: {
            "train/grad_norm": None if u % 3 else math.nan,
            "train/std": 10**400,
            "train/approx_kl": "large",
            "env_steps": u,
        }
    )
    statuses = {status.rule: status.status for status in monitor.statuses()}
    assert statuses["clipped-gradients"] == statuses["large-updates"] == "not measured"
    assert statuses["first-ratio"] == "ok"
    assert list(monitor.add({"update": "1"})) == list(monitor.add({})) == []


class Shown(Sink):
    """Keep warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def test_training_warns_once_per_rule_and_at_most_three_times(tmp_path: Path) -> None:
    shown = Shown()
    group = SinkGroup([HealthSink(), shown])
    group.start(RunInfo("r", tmp_path, config({}), "", 0, TOTAL, BATCH, 1))
    broken = {"train/approx_kl": 0.0, "train/first_ratio_error": 1.0, "train/grad_norm": 40.0, "actions/left_frac": 0.0,
              "reward/goal": 0.0}  # fmt: skip
    for update in range(1, 60):
        group.records([{**healthy(update), **broken}])
    assert len(shown.warnings) == 3
    assert shown.warnings[0].startswith("The policy that acts differs from the policy that learns since the start")
    assert "hmx doctor r" in shown.warnings[0]


def test_the_page_lists_the_rules_and_their_numbers() -> None:
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \|", page.partition("## Rules")[2], re.MULTILINE)
    assert rows == [rule.name for rule in RULES] and f"There are {len(RULES)} rules." in page
    checked = [status for status in check(lambda u: {"train/dormant_units": 0.1}).statuses() if status.status == "ok"]
    assert f"found by {len(checked)} rules in" in page


def test_rules_have_names_and_texts() -> None:
    assert set(PLANTED) == {rule.name for rule in RULES}
    for rule in RULES:
        assert rule.title[0].isupper() and not rule.title.endswith(".")
        assert rule.lasting(128) <= 13 or rule.name == "useless-value", "a tenth of a run with the defaults"
    assert isinstance(check(lambda u: {}).findings(), tuple) and WINDOW < TOTAL
    assert all(isinstance(finding, Finding) for finding in check(lambda u: {"train/approx_kl": 1.0}).findings())


def ended(change: Callable[[int, int], Record], seeds: int = 1, updates: int = TOTAL) -> tuple[str, int] | None:
    """Return the rule that ends a run of several agents, and the steps since when, after some updates."""
    monitor = Monitor(config({}))
    for update in range(1, updates + 1):
        for seed in range(seeds):
            list(monitor.add({**healthy(update), "seed": seed, **change(update, seed)}))
    found = monitor.ending()
    return None if found is None else (found[0].name, found[1].since)


def frozen(update: int) -> Record:
    """Stop changing the policy after update 40."""
    return {"train/approx_kl": 0.0} if update > 40 else {}


def test_rule_ends_a_run_after_twice_its_patience() -> None:
    # The 8 recent values are 0 from update 48 on; a warning needs 6 such updates.
    assert ended(lambda update, seed: frozen(update), updates=58) is None
    assert ended(lambda update, seed: frozen(update), updates=59) == ("frozen-policy", 47 * BATCH)


def test_rule_ends_a_run_only_while_its_evidence_lasts() -> None:
    assert ended(lambda update, seed: frozen(update) if update < 80 else {}) is None


def test_rule_ends_a_run_only_if_all_agents_break_one() -> None:
    assert ended(lambda update, seed: frozen(update) if seed else {}, seeds=2) is None
    assert ended(lambda update, seed: frozen(update) if seed else {"train/approx_kl": 0.4}, seeds=2) is not None


def test_only_rules_of_dead_or_diverging_agents_end_a_run() -> None:
    assert [rule.name for rule in RULES if rule.rollback] == [
        "entropy-collapsed", "large-updates", "frozen-policy", "exploding-gradients", "nonfinite", "return-fell",
        "diverging-q",
    ]  # fmt: skip
    assert ended(lambda update, seed: {"train/advantage_std": 0.0, "train/explained_variance": 0.0}) is None


@pytest.mark.parametrize(
    ("rule", "values", "changes"),
    [
        ("return-fell", {"algo.learning_rate": 1e-3}, {"algo.learning_rate": 5e-4}),
        ("entropy-collapsed", {"ppo.ent_coef": 0.01}, {"ppo.ent_coef": 0.02}),
        ("entropy-collapsed", {"ppo.ent_coef": 0.0, "algo.learning_rate": 1e-3}, {"algo.learning_rate": 5e-4}),
        ("exploding-gradients", {"algo.max_grad_norm": 0.5}, {"algo.max_grad_norm": 0.25}),
        ("exploding-gradients", {"algo.max_grad_norm": 0.0, "algo.learning_rate": 1e-3}, {"algo.learning_rate": 5e-4}),
        ("return-fell", {"algo.learning_rate": 0.0}, {}),
        ("return-fell", {"algo.name": "./mine.py:make"}, {}),
    ],
)
def test_rollback_changes_the_first_option_that_the_run_has(
    rule: str, values: dict[str, Any], changes: dict[str, float]
) -> None:
    known = {rule.name: rule for rule in RULES}
    assert known[rule].changes(fields.values_of(config(values))) == changes
