import re
from pathlib import Path

from hmx.config.schema import RewardWeights
from hmx.envs.hackmatrix.env import PROGRAM_KEYS
from hmx.records.metrics_table import GROUPS, METRICS

CONTRACT = {
    "reward": (
        "step_penalty stage_completion score_gain kills data_siphon distance_shaping victory "
        "death_penalty resource_gain resource_holding damage_penalty hp_recovery siphon_quality "
        "siphon_death_penalty program_waste"
    ),
    "actions": "move_frac siphon_frac program_frac",
    "stats": "highest_stage stages_completed wins undo_stages overflow deaths",
    "train": (
        "mean_reward mean_episode_return mean_episode_length num_episodes policy_loss value_loss "
        "total_loss approx_kl clip_frac entropy explained_variance grad_norm learning_rate env_steps "
        "steps_per_sec steps_per_cpu_sec"
    ),
    "programs": "push siph_plus d_bom anti_v atk_plus hack",
}


def test_every_documented_metric_is_recorded():
    promised = {f"{group}/{name}" for group, names in CONTRACT.items() for name in names.split()}
    assert promised <= set(METRICS)
    assert len(promised) == 46


def test_every_documented_metric_of_a_gradient_report_is_recorded():
    parts = ("task", "entropy", "kl")
    promised = {"reward_std_mean", *parts, *(f"loss/{name}" for name in ("policy", "entropy", "kl", "total"))}
    promised |= {f"{per}/{part}" for per in ("per_sample", "per_token") for part in parts}
    named = {name.partition("<bucket>/")[2] for name in METRICS if "<bucket>" in name}
    assert promised <= {name.replace("<part>", part) for name in named for part in parts}


def test_every_documented_metric_of_an_ordinary_update_is_recorded():
    """Of the gradient specification: component norms and component losses, with these names."""
    promised = {f"actor/grad_norm/{part}" for part in ("task", "entropy", "kl")} | {
        "actor/loss/entropy",
        "actor/loss/kl",
    }
    assert promised == {name for name in METRICS if name.startswith("actor/")}


def test_reward_terms_are_the_fields_of_the_weights():
    rewards = [name for name in METRICS if name.startswith("reward/")]
    assert rewards == [f"reward/{term}" for term in vars(RewardWeights())]
    assert METRICS["reward/kills"].help.startswith("+0.3 per kill: ")
    assert METRICS["reward/step_penalty"].help.startswith("-0.01 per step: ")


def test_a_missed_unit_costs_half_of_what_a_gained_one_pays():
    """The specification writes -0.5 x missed, in units of the reward; here the weight is per credit and energy."""
    weights = RewardWeights()
    assert weights.siphon_quality == -0.5 * weights.resource_gain == -0.025
    assert "-0.5 x the reward missed, which is 0.05 per unit" in METRICS["reward/siphon_quality"].help


def test_there_are_23_programs():
    assert [name for name in METRICS if name.startswith("programs/")] == [f"programs/{name}" for name in PROGRAM_KEYS]
    assert len(set(PROGRAM_KEYS)) == 23
    assert [PROGRAM_KEYS[i] for i in (0, 3, 9, 14, 22)] == ["push", "warp", "undo", "reset", "hack"]
    assert METRICS["programs/siph_plus"].help == "uses of SIPH+"


def test_rows_are_well_formed():
    for name, row in METRICS.items():
        assert name == row.name
        assert re.fullmatch(r"[a-z_]+(/[a-z][a-z0-9_]*|/<[a-z]+>)+", name)
        assert row.group in ("grad_norm", "actor") or re.fullmatch(r"[a-z]+/[a-z][a-z0-9_]*", name)
        assert row.group in GROUPS
        assert row.direction in ("up", "down", "none")
        assert row.reduce in ("mean", "max", "sum", "last")
        assert row.help
        assert "|" not in row.help + row.unit


def test_maxima_and_counts_are_not_averaged():
    kinds = {
        name: METRICS[name].reduce for name in ("stats/highest_stage", "stats/wins", "train/env_steps", "reward/kills")
    }
    assert kinds == {
        "stats/highest_stage": "max",
        "stats/wins": "sum",
        "train/env_steps": "last",
        "reward/kills": "mean",
    }


def test_the_page_has_every_metric_once_under_its_group():
    page = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
    for group in GROUPS:
        assert page.count(f"## `{group}/`") == 1
    for name in METRICS:
        assert page.count(f"| `{name}` |") == 1
        assert page.index(f"## `{name.partition('/')[0]}/`") < page.index(f"| `{name}` |")
    tables = [line for line in page.partition("## ")[2].splitlines() if line.startswith("|")]
    assert all(line.count("|") == 6 for line in tables)
