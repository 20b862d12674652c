"""Comparisons of runs made up for the purpose: what is read, what is said, and when nothing may be said."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import RETURN, STEPS, TINY, flat, make_run, record, write_metrics

from hmx.analysis.aggregates import Estimate
from hmx.config import codec
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs.compare import compare as job
from hmx.jobs.compare_scores import Window
from hmx.jobs.compare_sides import choose
from hmx.jobs.compare_tasks import EVALUATION, Spec, judge
from hmx.records.artefact import REPORT_SCHEMA, write_sealed
from hmx.records.jsonl import encode
from hmx.records.meta import Resume

DATA = Path(__file__).parents[1] / "data"


def compare(*sides, **more):
    """The job, away from any folder of runs."""
    return job([str(side) for side in sides], root="no-such-folder", **more)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Five seeds about 0.9."""
    return make_run(tmp_path / "good", flat(0.90, 0.91, 0.92, 0.93, 0.94), evaluated=dict.fromkeys(range(5), 0.9))


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Five seeds about 0.5, with another step size."""
    return make_run(
        tmp_path / "bad",
        flat(0.50, 0.52, 0.54, 0.56, 0.58),
        changes={"algo.learning_rate": 1e-3},
        evaluated=dict.fromkeys(range(5), 0.5),
    )


def said(result, level=None):
    """All notices of a level as one text."""
    return "\n".join(n.words for n in result.notices if level in (None, n.level))


# --- what sides are


def test_a_side_is_a_run_a_folder_a_file_a_configuration_or_a_preset(tmp_path, good, bad):
    folder = tmp_path / "many"
    make_run(folder / "seed10", flat(1.0))
    make_run(folder / "seed2", flat(2.0))
    (tmp_path / "mine.toml").write_text(codec.to_toml(replace(Config(), TINY)))
    sides = choose(
        [str(good), str(bad / "metrics.jsonl"), str(folder), f"ours={good},{bad}", str(tmp_path / "mine.toml"), "tiny"],
        root=tmp_path,
    )
    assert [side.name for side in sides] == ["good", "bad", "many", "ours", "mine", "tiny"]
    assert [[m.kind for m in side.members] for side in sides] == [
        ["run"], ["run"], ["run", "run"], ["run", "run"], ["config"], ["preset"],
    ]  # fmt: skip
    assert [m.path.name for m in sides[2].members] == ["seed2", "seed10"]


def test_runs_are_found_by_name_before_presets(tmp_path):
    make_run(tmp_path / "tiny", flat(1.0))
    run, preset = choose(["tiny", "preset:tiny"], root=tmp_path)
    assert run.members[0].kind == "run" and preset.members[0].kind == "preset"
    assert run.name != preset.name


def test_a_path_with_commas_and_equals_signs_is_taken_as_it_is(tmp_path):
    odd = tmp_path / "lr=1,2"
    write_metrics(odd / "metrics.jsonl", flat(1.0))
    first, second = choose([str(odd), f"named={odd}"], root=tmp_path)
    assert len(first.members) == len(second.members) == 1 and second.name == "named"


@pytest.mark.parametrize(
    ("sides", "code", "words"),
    [
        ([], ExitCode.USAGE, "at least two"),
        (["tiny"], ExitCode.USAGE, "at least two"),
        (["tiny", ""], ExitCode.USAGE, "empty path"),
        (["tiny", "tiny,,metta"], ExitCode.USAGE, "empty path"),
        (["tiny", "=tiny"], ExitCode.USAGE, "no name"),
        (["x=tiny", "x=metta"], ExitCode.USAGE, "two sides are called x"),
        (["B=tiny", "metta"], ExitCode.USAGE, "B stands for side 2"),
        (["a b=tiny", "metta"], ExitCode.USAGE, "cannot be the name of a side"),
        (["tiny"] * 27, ExitCode.USAGE, "at most 26"),
        (["tiny", "tinny"], ExitCode.ARTEFACT, "no run, file or preset tinny"),
        (["tiny", "preset:tinny"], ExitCode.USAGE, "no preset tinny"),
        (["tiny", "a\0b"], ExitCode.ARTEFACT, "a\\x00b"),
        (["tiny", "/dev/null"], ExitCode.ARTEFACT, "neither a file nor a folder"),
    ],
)
def test_sides_that_are_none(tmp_path, sides, code, words):
    with pytest.raises(HmxError) as caught:
        choose(sides, root=tmp_path)
    assert caught.value.exit_code == code
    assert words in caught.value.message and caught.value.hint


def test_a_folder_without_runs_and_a_file_of_another_kind(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    for name in ("empty", "notes.txt"):
        with pytest.raises(HmxError) as caught:
            choose(["tiny", str(tmp_path / name)], root=tmp_path)
        assert caught.value.exit_code == ExitCode.ARTEFACT


# --- verdicts


def test_sides_far_apart_are_told_apart(good, bad):
    result = compare(good, bad)
    (task,) = result.tasks
    (pair,) = task.pairs
    assert pair.better == "A" and pair.words == "A is better"
    assert pair.difference.value == pytest.approx(0.92 - 0.54)
    assert pair.difference.low > 0
    assert pair.improvement == (1.0, 1.0, 1.0)
    assert pair.shared == 5 and pair.paired.value == pytest.approx(0.38)
    assert result.overall.pairs[0].better == "A"
    assert not said(result)


def test_the_order_of_sides_turns_the_verdict(good, bad):
    (pair,) = compare(bad, good).tasks[0].pairs
    assert pair.better == "B" and pair.difference.value == pytest.approx(-0.38)


def test_one_seed_is_never_enough(tmp_path, good):
    single = make_run(tmp_path / "single", flat(0.1))
    result = compare(good, single)
    (pair,) = result.tasks[0].pairs
    assert (pair.better, pair.words) == ("", "not distinguishable with 5 and 1 seed")
    assert pair.difference.low is None
    assert result.overall.pairs[0].better == ""
    assert "single seed" in said(result, "caution")


def test_few_seeds_are_told_how_often_chance_does_as_well(tmp_path):
    one = make_run(tmp_path / "one", flat(0.90, 0.91, 0.92))
    other = make_run(tmp_path / "other", flat(0.50, 0.51, 0.52))
    (pair,) = compare(one, other).tasks[0].pairs
    assert pair.better == "A"
    assert pair.chance == pytest.approx(0.1)
    assert pair.words.endswith("with 3 and 3 seeds, 10% of all ways to deal them out to two sides differ as clearly")


def test_overlapping_sides_are_not_distinguishable(tmp_path, good):
    like = make_run(tmp_path / "like", flat(0.89, 0.91, 0.92, 0.93, 0.95))
    (pair,) = compare(good, like).tasks[0].pairs
    assert (pair.better, pair.words) == ("", "not distinguishable with 5 and 5 seeds")


def test_less_is_better_where_the_metric_says_so(tmp_path):
    name = "train/value_loss"
    high = make_run(tmp_path / "high", flat(0.5, 0.5, 0.5, 0.5), **{name: 2.0})
    low = make_run(tmp_path / "low", flat(0.5, 0.5, 0.5, 0.5), **{name: 1.0})
    (pair,) = compare(high, low, spec=Spec(metric=name)).tasks[0].pairs
    assert pair.better == "B" and pair.improvement.value == 0.0 and pair.difference.value == 1.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env.max_steps": 200}, "env.max_steps is A 100, B 200"),
        ({"env.slip": 0.3}, "env.slip is A 0.1, B 0.3"),
    ],
)
def test_another_task_forbids_a_verdict(tmp_path, good, changes, words):
    other = make_run(tmp_path / "other", flat(0.1, 0.2, 0.3, 0.4, 0.5), changes=changes)
    result = compare(good, other)
    assert words in said(result, "block")
    (pair,) = result.tasks[0].pairs
    assert pair.better == "" and pair.words.startswith("no verdict: the tasks differ")
    assert result.overall.pairs[0].better == ""


def test_reward_weights_forbid_a_verdict_only_where_they_count(tmp_path, good):
    weights = {"reward.kills": 3.0}
    other = make_run(tmp_path / "other", flat(0.1, 0.2, 0.3), changes=weights)
    assert not said(compare(good, other), "block")
    sides = [
        make_run(tmp_path / name, flat(1.0, 2.0), changes={"env.id": "hackmatrix", **more})
        for name, more in (("plain", {}), ("heavy", weights))
    ]
    assert "the rewards differ: reward.kills is A 0.3, B 3.0" in said(compare(*sides), "block")


def test_a_seed_that_ended_in_nan_is_not_dropped_in_silence(tmp_path, good):
    curves = {0: [0.1] * 10, 1: [0.1] * 9 + [math.nan], 2: [0.1] * 10}
    broken = make_run(tmp_path / "broken", curves)
    result = compare(good, broken)
    assert [f.value for f in result.tasks[0].sides[1].finals] == pytest.approx([0.1, None, 0.1])
    assert result.tasks[0].pairs[0].better == ""
    assert "B has 1 of 3 seeds whose value is not finite" in result.tasks[0].pairs[0].words
    assert any("not finite" in line for line in result.findings)


# --- figures of one side


def test_the_end_is_the_last_tenth_each_value_weighed_by_its_episodes(tmp_path, good):
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    lines = [record(i, 0, 0.0) for i in range(1, 19)]
    lines += [{**record(19, 0, 1.0), "train/num_episodes": 3.0}, {**record(20, 0, 5.0), "train/num_episodes": 1.0}]
    path.write_text("\n".join(map(encode, lines)) + "\n")
    result = compare(path, path)
    assert result.tasks[0].sides[0].finals[0].value == pytest.approx(2.0)
    wide = compare(path, path, spec=Spec(last=Window(steps=STEPS)))
    assert wide.tasks[0].sides[0].finals[0].value == 5.0


def test_without_an_episode_at_the_end_the_newest_value_counts(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.1, 0.7, *[None] * 18]})
    assert compare(path, path).tasks[0].sides[0].finals[0].value == 0.7


def test_the_area_is_that_of_straight_lines_held_level_at_the_ends(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [None, 0.0, 1.0, None]})
    # level at 0 for two updates, a ramp for one, level at 1 for one
    assert compare(path, path).tasks[0].sides[0].area.value == pytest.approx((0.5 + 1.0) / 4)


def test_thresholds_count_who_reached_them_and_when(tmp_path):
    rise = {0: [0.0, 1.0, 1.0, 1.0], 1: [1.0, 1.0, 1.0, 0.0], 2: [0.0] * 4}
    path = write_metrics(tmp_path / "metrics.jsonl", rise, rate=STEPS * 3.0)
    (row,) = compare(path, path, spec=Spec(thresholds=(("", 0.9),))).tasks[0].sides[0].thresholds
    assert (row.reached, row.of, row.steps, row.seconds) == (2, 3, 4 * STEPS, 4.0)
    (never,) = compare(path, path, spec=Spec(thresholds=(("", 2.0),))).tasks[0].sides[0].thresholds
    assert (never.reached, never.steps, never.seconds) == (0, None, None)


def test_thresholds_are_chosen_half_way_and_nine_tenths_up(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.0] * 5 + [1.0] * 15})
    assert [row.value for row in compare(path, path).tasks[0].sides[0].thresholds] == [0.5, 0.9]


def test_time_is_that_of_chunks_whatever_lies_between(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [record(i, seed, 1.0, rate=512.0) for i in range(1, 5) for seed in (0, 1)]
    for line in lines[4:]:
        line["wall_time"] += 86_400  # interrupted, and resumed a day later
    path.write_text("\n".join(map(encode, lines)) + "\n")
    (speed,) = [row for row in compare(path, path).speed if row.letter == "A"]
    assert (speed.seconds, speed.steps_per_sec, speed.updates_per_sec) == (4.0, 512.0, 1.0)


def test_the_start_is_what_lies_before_the_first_chunk(good, bad):
    (speed, _) = compare(good, bad).speed
    # created, 11 s later the first chunk ended, which had taken 5 x 256 steps at 1,024 a second
    assert speed.startup == pytest.approx(11.0 - 1.25)
    assert speed.memory > 0


def test_runs_of_different_length_are_compared_where_the_shorter_ends(tmp_path):
    long = make_run(tmp_path / "long", {i: [0.1] * 10 + [0.9] * 10 for i in range(3)})
    short = make_run(tmp_path / "short", flat(0.1, 0.1, 0.1, updates=10), state="interrupted")
    result = compare(long, short)
    (task,) = result.tasks
    assert task.end == 10 * STEPS and task.limited_by == str(short)
    assert task.sides[0].mean == pytest.approx(0.1)
    assert "steps taken on corridor differ: A 5,120, B 2,560" in said(result, "caution")
    assert "was interrupted: 2,560 of 2,560 steps" in said(result)
    own = compare(long, short, spec=Spec(own_end=True)).tasks[0]
    assert own.end == 20 * STEPS and own.sides[0].mean == pytest.approx(0.9)
    assert own.sides[1].mean == pytest.approx(0.1)


def test_evaluations_can_be_what_is_compared(good, bad):
    result = compare(good, bad, spec=Spec(metric=EVALUATION))
    assert result.tasks[0].sides[0].mean == pytest.approx(0.9)
    assert result.tasks[0].pairs[0].better == "A"


def test_an_evaluation_of_greedy_play_counts_and_is_told(good, bad):
    path = bad / "reports" / "evaluation.json"
    policies = [dict(row, policy="greedy") for row in json.loads(path.read_text())["policies"]]
    write_sealed(path, {"schema": REPORT_SCHEMA, "policies": policies})
    result = compare(good, bad, spec=Spec(metric=EVALUATION))
    assert result.tasks[0].sides[1].mean == pytest.approx(0.5)
    assert "in evaluations the agents play in different ways: A sampled, B greedy" in said(result, "caution")
    assert [side["members"][0]["evaluated_policy"] for side in result.to_json()["sides"]] == ["sampled", "greedy"]


def test_a_run_without_evaluation_has_no_value_then(tmp_path, good):
    other = make_run(tmp_path / "other", flat(0.1, 0.2))
    result = compare(good, other, spec=Spec(metric=EVALUATION))
    assert "was not evaluated" in result.tasks[0].pairs[0].words
    assert "B was not evaluated" in said(result, "note")


def test_curves_end_where_the_shortest_seed_does(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.0] * 10, 1: [1.0] * 20})
    curve = compare(path, path).tasks[0].curves["A"]["steps"]
    assert curve["x"][-1] == 10 * STEPS and set(curve["centre"]) == {0.5}
    assert min(curve["low"]) >= 0.0 and max(curve["high"]) <= 1.0


def test_diagnostics_are_at_matched_steps(good, bad):
    rows = compare(good, bad).diagnostics["corridor"]
    assert rows["train/entropy"]["A"] == pytest.approx([1.0, 0.2, 0.1])
    assert "train/approx_kl" not in rows


def test_a_ratio_that_is_not_1_is_pointed_out(tmp_path, good):
    other = make_run(tmp_path / "other", flat(0.9, 0.9), **{"train/first_ratio_error": 0.4})
    (line,) = compare(good, other).findings
    assert line.startswith("B on corridor: an importance ratio was 0.4 away from 1")


# --- several tasks


def test_tasks_are_put_on_one_scale(tmp_path):
    sides = []
    for name, (first, second) in {"a": (0.9, 10.0), "b": (0.5, 4.0)}.items():
        one = make_run(
            tmp_path / name / "one", flat(first, first - 0.1, updates=5), evaluated={0: 1.0, 1: 1.0}, random=-0.1
        )
        two = make_run(tmp_path / name / "two", flat(second, second - 2), changes={"env.id": "recall"})
        sides.append(f"{name}={one},{two}")
    result = compare(*sides)
    assert result.overall.tasks == ("corridor", "recall")
    scale = result.overall.ranges
    assert (scale["corridor"].low, scale["corridor"].high) == pytest.approx((-0.1, 0.9))
    assert (scale["recall"].low, scale["recall"].high) == (2.0, 10.0)
    a, b = result.overall.sides
    assert a.mean.value == pytest.approx((1.0 + 0.9 + 1.0 + 0.75) / 4)
    assert b.gap.value == pytest.approx(1 - (0.6 + 0.5 + 0.25 + 0.0) / 4)
    asked = compare(*sides, spec=Spec(ranges=(("recall", 0.0, 20.0),)))
    assert asked.overall.sides[0].mean.value == pytest.approx((1.0 + 0.9 + 0.5 + 0.4) / 4)


def test_sides_without_a_common_task(tmp_path, good):
    other = make_run(tmp_path / "other", flat(1.0, 1.0), changes={"env.id": "recall"})
    result = compare(good, other)
    assert [task.name for task in result.tasks] == ["corridor", "recall"]
    assert all(not task.pairs for task in result.tasks)
    assert result.overall.words and not result.overall.sides
    assert "A did not train on recall" in said(result, "caution")


# --- configurations


def keys(result):
    """Key -> values of all differences."""
    return {row.key: row.values for group in result.config for row in group.differences}


def test_only_differences_are_listed(good, bad):
    assert keys(compare(good, bad)) == {"algo.learning_rate": ("0.003", "0.001")}


def test_presets_can_be_compared_without_any_run():
    result = compare("tiny", "metta", "default")
    assert keys(result)["algo.gamma"] == ("0.99", "0.977", "0.99")
    assert keys(result)["batch_size"] == ("256", "32,768", "32,768")
    assert not result.tasks and not result.speed


def test_documented_rows_come_first_with_what_each_side_comes_to(tmp_path, good):
    changes = {"algo.episode_end": "terminal", "algo.learning_rate": 1e-3, "net.std": "exp", "algo.gae_axis": "batch"}
    other = make_run(tmp_path / "other", flat(0.1, 0.2), changes={**changes, "env.num_envs": 32})
    groups = compare(good, other).config
    assert [group.row for group in groups] == ["1.1", "1.2", "1.4", "", "", ""]
    assert [group.title for group in groups[3:]] == ["learning", "environment", "what follows"]
    axis, end, std = groups[:3]
    assert axis.bug and not end.bug
    assert end.differences[0].values == ("bootstrap", "terminal")
    assert "bootstraps from its true last observation" in end.effects[0] and "a termination" in end.effects[1]
    assert std.effects[0] == std.effects[1] == "none: actions are discrete"


def test_a_row_of_a_configuration_that_cannot_run_has_no_effect(tmp_path, good):
    broken = replace(Config(), {**TINY, "algo.gamma": 0.5, "algo.num_minibatches": 7})
    (tmp_path / "broken.toml").write_text(codec.to_toml(broken))
    group = compare(good, tmp_path / "broken.toml").config[0]
    assert group.row == "1.1" and group.effects[0] and group.effects[1] == ""


def test_runs_of_one_side_that_differ_show_both_values(good, bad):
    assert keys(compare(f"{good},{bad}", good))["algo.learning_rate"] == ("0.003 or 0.001", "0.003")


def test_what_differs_between_tasks_of_a_side_is_no_difference(tmp_path):
    sides = []
    for name in ("a", "b"):
        one = make_run(tmp_path / name / "one", flat(0.1))
        two = make_run(tmp_path / name / "two", flat(0.2), changes={"env.id": "recall", "algo.gamma": 0.9})
        sides.append(f"{name}={one},{two}")
    assert compare(*sides).config == ()


# --- what cannot be read, or says little


def test_what_ran_it_is_compared_too(tmp_path, good):
    other = make_run(tmp_path / "other", flat(0.1, 0.2), device="NVIDIA H200", git="fedcba9876543210")
    result = compare(good, other)
    assert "devices differ: A cpu, B NVIDIA H200; speeds cannot be compared" in said(result, "caution")
    assert "revisions differ: A 0123456789, B fedcba9876" in said(result, "note")


def test_a_side_against_itself_is_noticed(good):
    assert "the same to the last digit on corridor" in said(compare(good, good), "caution")


def test_a_torn_line_is_passed_over_and_a_damaged_one_is_told(tmp_path, good):
    torn = write_metrics(tmp_path / "torn" / "metrics.jsonl", flat(0.5, 0.6))
    torn.write_text(torn.read_text() + '{"update": 11, "env_st')
    assert not [n for n in compare(good, torn).notices if "damaged" in n.words]
    lines = torn.read_text().splitlines()
    lines[3] = lines[3][:40]
    lines[7] = "[1, 2]"
    lines[8] = '{"update": 5}'
    torn.write_text("\n".join(lines) + "\n")
    assert "4 damaged lines of its metrics are left out: 4, 8, 9, 21" in said(compare(good, torn), "caution")


def test_records_that_came_twice_count_once(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.1] * 4})
    path.write_text(path.read_text() + encode(record(4, 0, 0.9)) + "\n")
    result = compare(path, path, spec=Spec(last=Window(steps=1)))
    assert result.tasks[0].sides[0].finals[0].value == 0.9
    assert len(result.sides[0].seeds[0].steps) == 4


def test_empty_runs_are_told(tmp_path, good):
    empty = make_run(tmp_path / "empty", {})
    result = compare(good, empty)
    assert "it has no records yet" in said(result) and "B has no records to compare" in said(result)
    assert [side.letter for side in result.tasks[0].sides] == ["A"]
    (empty / "metrics.jsonl").unlink()
    assert "it has no metrics.jsonl" in said(compare(good, empty))


def test_a_damaged_configuration_does_not_hide_the_curves(tmp_path, good, bad):
    config = bad / "run.toml"
    config.write_text(config.read_text().replace("gamma = 0.99", "gamma = 0.5"))
    (bad / "meta.json").write_text("{")
    result = compare(good, bad)
    assert "its meta.json cannot be read" in said(result)
    # without meta.json nothing says that the configuration has changed
    assert set(keys(result)) == {"algo.learning_rate", "algo.gamma"}
    config.write_text("gamma = ")
    result = compare(good, bad)
    assert "its configuration is not known" in said(result)
    assert "the environment of B is not known and taken to be corridor" in said(result)
    assert result.tasks[0].sides[1].mean == pytest.approx(0.54)


def test_a_damaged_evaluation_is_told(good, bad):
    (bad / "reports" / "evaluation.json").write_text('{"schema": 1, "policies": [3]}')
    assert "its evaluation cannot be read" in said(compare(good, bad))


def test_values_that_are_no_numbers_are_not_finite(tmp_path, good):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.1] * 4})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1][RETURN] = "a word"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    assert compare(good, path).tasks[0].sides[1].finals[0].value is None


def test_metrics_of_a_later_schema_are_refused(tmp_path, good):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"schema": 99, "update": 1, "env_steps": 1}\n')
    with pytest.raises(HmxError, match="newer hmx") as caught:
        compare(good, path)
    assert caught.value.exit_code == ExitCode.ARTEFACT


@pytest.mark.parametrize("name", ["run-schema-1", "run-schema-2"])
def test_old_run_folders_are_compared(tmp_path, good, name):
    with tarfile.open(DATA / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path / "old", filter="data")
    result = compare(good, tmp_path / "old")
    (task,) = result.tasks
    assert task.name == "corridor" and len(task.sides) == 2
    assert task.sides[1].mean is not None
    assert said(result, "block") == "the tasks differ: env.max_steps is A 100, B 6"


def test_a_metric_that_nobody_reports(good, bad):
    with pytest.raises(HmxError, match="no run reports the metric") as caught:
        compare(good, bad, spec=Spec(metric="train/mean_episode_retrun"))
    assert "train/mean_episode_return" in caught.value.hint
    with pytest.raises(HmxError, match="no run reports train/approx_kl"):
        compare(good, bad, spec=Spec(metric="train/approx_kl"))


# --- the answer as a whole


def test_the_same_seed_gives_the_same_numbers(tmp_path):
    sides = [make_run(tmp_path / name, flat(*levels)) for name, levels in (("a", range(9)), ("b", range(1, 8)))]
    first, again, other = (compare(*sides, spec=Spec(samples=200, seed=seed)).to_json() for seed in (0, 0, 1))
    assert first == again and first["tasks"] != other["tasks"]


def test_the_json_is_plain_and_finite(tmp_path, good):
    curves = {0: [math.nan] * 4, 1: [1.0] * 4}
    other = make_run(tmp_path / "other", curves, changes={"env.id": "recall"})
    text = json.dumps(compare(good, other, "tiny").to_json(), allow_nan=False)
    body = json.loads(text)
    assert body["schema"] == 1 and [side["letter"] for side in body["sides"]] == ["A", "B", "C"]
    assert body["figures"]["iqm(A, corridor)"] == pytest.approx(0.92)


def test_figures_have_names_with_and_without_the_task(good, bad):
    found = compare(good, bad).figures
    assert found["P(A>B)"] == found["P(A>B, corridor)"] == 1.0 and found["P(B>A)"] == 0.0
    assert found["difference(A, B)"] == pytest.approx(0.38) and found["difference(B, A)"] == pytest.approx(-0.38)
    assert found["difference_low(A, B)"] == pytest.approx(-found["difference_high(B, A)"])
    assert found["better(A, B)"] == 1.0 and found["better(B, A)"] == 0.0
    assert found["seeds(A)"] == 5.0 and found["steps(B)"] == 2560.0 and found["entropy(A)"] == pytest.approx(0.1)
    assert found["speed(A)"] == pytest.approx(1024.0)


def test_conditions_that_hold_are_named(good, bad):
    result = compare(good, bad, fail_if=["P(A>B) < 0.4", "P(bad>good) < 0.4", "evaluated(A) > 2 or iqm(B) < 0.6"])
    assert result.failed == (
        "P(bad>good) < 0.4 holds: P(bad>good) is 0",
        "evaluated(A) > 2 or iqm(B) < 0.6 holds: evaluated(A) is 0.9, iqm(B) is 0.54",
    )


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (["tiny", "{file}"], "side B has no configuration"),
        (["metta", "tiny"], "side A has a network with a memory"),
        (["tiny", "{two_hot}"], "some sides have two_hot values"),
    ],
)
def test_losses_that_cannot_be_compared(tmp_path, sides, words):
    two_hot = replace(Config(), {**TINY, "algo.value_target": "two_hot"})
    (tmp_path / "two_hot.toml").write_text(codec.to_toml(two_hot))
    file = write_metrics(tmp_path / "metrics.jsonl", flat(1.0))
    sides = [side.format(file=file, two_hot=tmp_path / "two_hot.toml") for side in sides]
    with pytest.raises(HmxError, match=words) as caught:
        compare(*sides, impl=True)
    assert caught.value.exit_code == ExitCode.USAGE and caught.value.hint


def test_it_needs_no_jax(good, bad):
    code = (
        "import sys; from hmx.jobs.compare import compare; "
        "compare(sys.argv[1:]); sys.exit(bool({'jax', 'flax', 'optax', 'wandb'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(good), str(bad)]).returncode == 0


_lines = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.fixed_dictionaries(
            {},
            optional={
                "update": st.integers(-1, 5),
                "env_steps": st.one_of(st.integers(-5, 2000), st.floats(), st.text(max_size=3), st.just(10**400)),
                "seed": st.one_of(st.integers(-2, 2), st.none(), st.text(max_size=2)),
                RETURN: st.one_of(st.floats(), st.none(), st.booleans(), st.just(10**400), st.just([1])),
                "train/num_episodes": st.one_of(st.floats(), st.integers(-3, 3), st.none()),
                "train/steps_per_sec": st.one_of(st.floats(), st.integers(-3, 3), st.none()),
                "wall_time": st.one_of(st.floats(), st.none(), st.text(max_size=2)),
            },
        ).map(lambda record: json.dumps(record).encode()),
    ),
    max_size=8,
)


@given(_lines)
@settings(max_examples=60)
def test_any_metrics_file_is_compared_or_refused_with_words(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("any")
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines))
    other = write_metrics(folder / "other.jsonl", flat(0.5, 0.6, updates=3))
    try:
        result = compare(folder / "metrics.jsonl", other, spec=Spec(samples=20))
        json.dumps(result.to_json(), allow_nan=False)
    except HmxError as problem:
        assert problem.message


def test_numbers_without_measure_are_no_numbers(tmp_path, good):
    huge = write_metrics(tmp_path / "huge.jsonl", {0: [1e308] * 4, 1: [1.0] * 4}, rate=1e-313)
    result = compare(good, huge)
    assert [f.value for f in result.tasks[0].sides[1].finals] == [None, 1.0]
    assert result.speed[1].steps_per_sec is None and result.speed[1].seconds is None


def test_an_evaluation_with_anything_in_it_is_read_or_told(good, bad):
    rows = [{"policy": "sampled", "seed": [1], "episodes": "many", "return_mean": 1.0}, 3]
    write_sealed(bad / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": rows})
    assert "its evaluation cannot be read" in said(compare(good, bad))
    write_sealed(bad / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": rows[:1]})
    assert compare(good, bad).tasks[0].sides[1].evaluated is None


def test_values_that_are_swapped_between_tasks_differ(tmp_path):
    sides = []
    for name, (first, second) in {"a": (0.99, 0.9), "b": (0.9, 0.99)}.items():
        one = make_run(tmp_path / name / "one", flat(0.1), changes={"algo.gamma": first})
        two = make_run(tmp_path / name / "two", flat(0.2), changes={"env.id": "recall", "algo.gamma": second})
        sides.append(f"{name}={one},{two}")
    (group,) = compare(*sides).config
    assert group.differences[0].values == ("0.99 (corridor), 0.9 (recall)", "0.9 (corridor), 0.99 (recall)")


def test_a_seed_that_comes_twice_is_not_paired(tmp_path, good):
    again = make_run(tmp_path / "again", {0: [0.3] * 10, 1: [0.4] * 10})
    once = make_run(tmp_path / "once", {0: [0.5] * 10, 2: [0.6] * 10})
    result = compare(good, f"{again},{once}")
    (pair,) = result.tasks[0].pairs
    assert len(result.tasks[0].sides[1].finals) == 4
    assert pair.shared == 2 and pair.paired.value == pytest.approx((0.91 - 0.4 + 0.92 - 0.6) / 2)
    assert "has seed 0 of corridor more than once" in said(result, "caution")


def test_no_interval_however_narrow_makes_one_seed_enough(tmp_path, good):
    single = make_run(tmp_path / "single", flat(0.1))
    first, second = compare(good, single).tasks[0].sides
    sure = Estimate(0.8, 0.7, 0.9)
    assert judge(first, second, sure, 0.0, (), Spec()) == ("", "not distinguishable with 5 and 1 seed")
    assert judge(first, first, sure, 0.0, (), Spec()) == ("A", "A is better")


def test_a_metric_without_a_better_end_is_higher_or_lower(tmp_path):
    name = "train/learning_rate"
    high = make_run(tmp_path / "high", flat(*[0.5] * 4), **{name: 2.0})
    low = make_run(tmp_path / "low", flat(*[0.5] * 4), **{name: 1.0})
    result = compare(low, high, spec=Spec(metric=name))
    assert result.tasks[0].pairs[0].words == result.overall.pairs[0].words == "B is higher"
    assert result.to_json()["direction"] == "none"


def test_less_is_better_over_all_tasks_too(tmp_path):
    name = "train/value_loss"
    high = make_run(tmp_path / "high", flat(*[0.5] * 4), **{name: 2.0})
    low = make_run(tmp_path / "low", flat(*[0.5] * 4), **{name: 1.0})
    overall = compare(high, low, spec=Spec(metric=name)).overall
    assert [side.mean.value for side in overall.sides] == [0.0, 1.0]
    assert overall.pairs[0].better == "B" and overall.pairs[0].difference.value == -1.0


def test_presets_and_changes_on_the_way_are_told(tmp_path, good):
    resume = Resume(at="2026-01-02", update=5, command=(), changes={"algo.gamma": [0.9, 0.99]})
    other = make_run(tmp_path / "other", flat(0.1, 0.2), command=("hmx", "train", "--preset", "tiny"), resumes=[resume])
    result = compare(good, other)
    assert "went on with changes at update 5: algo.gamma" in said(result, "caution")
    assert [side["members"][0]["preset"] for side in result.to_json()["sides"]] == ["", "tiny"]
