"""Comparisons of made-up runs: sides, verdicts, scores and several tasks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from compared import as_json, compare, noticed
from made_runs import STEPS, TINY, flat, make_run, record, write_metrics
from scipy.stats import trim_mean

from hmx.config import codec
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import REPORT_SCHEMA, write_sealed
from hmx.records.jsonl import encode
from hmx.reports.compare.request import EVALUATION, Window
from hmx.reports.compare.sides import choose

DATA = Path(__file__).parents[2] / "data"


# --- what sides are


def test_choose_accepts_runs_folders_files_configurations_and_presets(tmp_path, good, bad):
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


def test_choose_prefers_a_run_to_a_preset_of_the_same_name(tmp_path):
    make_run(tmp_path / "tiny", flat(1.0))
    run, preset = choose(["tiny", "preset:tiny"], root=tmp_path)
    assert run.members[0].kind == "run" and preset.members[0].kind == "preset"
    assert run.name != preset.name


def test_choose_does_not_split_a_path_that_exists(tmp_path):
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
        (["tiny", "=tiny"], ExitCode.USAGE, "expected a name"),
        (["x=tiny", "x=metta"], ExitCode.USAGE, "two sides have the name x"),
        (["B=tiny", "metta"], ExitCode.USAGE, "B is the letter of side 2"),
        (["a b=tiny", "metta"], ExitCode.USAGE, "is not a valid name"),
        (["tiny"] * 27, ExitCode.USAGE, "at most 26"),
        (["tiny", "tinny"], ExitCode.ARTEFACT, "no run, file or preset tinny"),
        (["tiny", "preset:tinny"], ExitCode.USAGE, "no preset tinny"),
        (["tiny", "a\0b"], ExitCode.ARTEFACT, "a\\x00b"),
        (["tiny", "/dev/null"], ExitCode.ARTEFACT, "neither a file nor a folder"),
    ],
)
def test_choose_refuses_invalid_sides(tmp_path, sides, code, words):
    with pytest.raises(HmxError) as caught:
        choose(sides, root=tmp_path)
    assert caught.value.exit_code == code
    assert words in caught.value.message and caught.value.hint


def test_choose_refuses_a_folder_without_runs_and_a_file_of_another_kind(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    for name in ("empty", "notes.txt"):
        with pytest.raises(HmxError) as caught:
            choose(["tiny", str(tmp_path / name)], root=tmp_path)
        assert caught.value.exit_code == ExitCode.ARTEFACT


# --- verdicts


def test_a_clear_difference_gives_a_verdict(good, bad):
    result = compare(good, bad)
    (task,) = result.tasks
    (pair,) = task.pairs
    assert (pair.verdict.outcome, pair.verdict.text, pair.verdict.better) == ("better", "A is better", "A")
    assert pair.difference.value == pytest.approx(0.92 - 0.54)
    assert pair.difference.low > 0
    assert pair.improvement == (1.0, 1.0, 1.0)
    assert pair.shared == 5 and pair.paired.value == pytest.approx(0.38)
    assert result.overall.pairs[0].verdict.better == "A"
    assert not noticed(result)


def test_swapping_the_sides_swaps_the_verdict(good, bad):
    (pair,) = compare(bad, good).tasks[0].pairs
    assert pair.verdict.better == "B" and pair.difference.value == pytest.approx(-0.38)


def test_three_seeds_give_weak_evidence_and_no_better_side(tmp_path):
    one = make_run(tmp_path / "one", flat(0.90, 0.91, 0.92))
    other = make_run(tmp_path / "other", flat(0.50, 0.51, 0.52))
    findings = compare(one, other, fail_if=("better(A, B) == 1", "better(A, B) == 0"))
    (pair,) = findings.tasks[0].pairs
    assert pair.difference.excludes_zero and pair.p_value == pytest.approx(0.1)
    assert pair.verdict.outcome == "weak evidence" and pair.verdict.better == ""
    assert pair.verdict.text == "weak evidence that A is better: permutation test p = 0.1 (3 vs 3 seeds)"
    assert findings.overall.pairs[0].verdict == pair.verdict
    assert findings.failed == ("better(A, B) == 0 holds: better(A, B) is 0",)


def test_overlapping_sides_are_not_distinguishable(tmp_path, good):
    like = make_run(tmp_path / "like", flat(0.89, 0.91, 0.92, 0.93, 0.95))
    (pair,) = compare(good, like).tasks[0].pairs
    assert (pair.verdict.better, pair.verdict.text) == ("", "not distinguishable (5 vs 5 seeds)")


def test_less_is_better_for_a_metric_of_that_direction(tmp_path):
    name = "train/value_loss"
    high = make_run(tmp_path / "high", flat(0.5, 0.5, 0.5, 0.5), **{name: 2.0})
    low = make_run(tmp_path / "low", flat(0.5, 0.5, 0.5, 0.5), **{name: 1.0})
    (pair,) = compare(high, low, metric=name).tasks[0].pairs
    assert pair.verdict.better == "B" and pair.improvement.value == 0.0 and pair.difference.value == 1.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env.max_steps": 200}, "env.max_steps A 100, B 200"),
        ({"env.slip": 0.3}, "env.slip A 0.1, B 0.3"),
    ],
)
def test_a_different_task_blocks_the_verdict(tmp_path, good, changes, words):
    other = make_run(tmp_path / "other", flat(0.1, 0.2, 0.3, 0.4, 0.5), changes=changes)
    result = compare(good, other)
    assert words in noticed(result, "block")
    (pair,) = result.tasks[0].pairs
    assert pair.verdict.better == "" and pair.verdict.text.startswith("no verdict: the tasks differ")
    assert result.overall.pairs[0].verdict.better == ""


def test_reward_weights_block_the_verdict_only_where_they_count(tmp_path, good):
    weights = {"reward.kills": 3.0}
    other = make_run(tmp_path / "other", flat(0.1, 0.2, 0.3), changes=weights)
    assert not noticed(compare(good, other), "block")
    sides = [
        make_run(tmp_path / name, flat(1.0, 2.0), changes={"env.id": "hackmatrix", **more})
        for name, more in (("plain", {}), ("heavy", weights))
    ]
    assert "the rewards differ: reward.kills A 0.3, B 3.0" in noticed(compare(*sides), "block")


def test_a_seed_that_ends_in_nan_blocks_the_verdict(tmp_path, good):
    curves = {0: [0.1] * 10, 1: [0.1] * 9 + [math.nan], 2: [0.1] * 10}
    broken = make_run(tmp_path / "broken", curves)
    result = compare(good, broken)
    assert [f.value for f in result.tasks[0].sides[1].seeds] == pytest.approx([0.1, None, 0.1])
    assert result.tasks[0].pairs[0].verdict.better == ""
    assert "B has 1 of 3 seeds whose value is not finite" in result.tasks[0].pairs[0].verdict.text
    assert any("not finite" in line for line in result.warnings)


# --- figures of one side


def test_final_is_the_mean_of_the_last_tenth_weighted_by_episodes(tmp_path, good):
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    lines = [record(i, 0, 0.0) for i in range(1, 19)]
    lines += [{**record(19, 0, 1.0), "train/num_episodes": 3.0}, {**record(20, 0, 5.0), "train/num_episodes": 1.0}]
    path.write_text("\n".join(map(encode, lines)) + "\n")
    result = compare(path, path)
    assert result.tasks[0].sides[0].seeds[0].value == pytest.approx(2.0)
    wide = compare(path, path, last=Window(steps=STEPS))
    assert wide.tasks[0].sides[0].seeds[0].value == 5.0


def test_final_is_the_latest_value_if_no_episode_ended_at_the_end(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.1, 0.7, *[None] * 18]})
    assert compare(path, path).tasks[0].sides[0].seeds[0].value == 0.7


def test_area_interpolates_and_is_constant_at_the_ends(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [None, 0.0, 1.0, None]})
    # level at 0 for two updates, a ramp for one, level at 1 for one
    assert compare(path, path).tasks[0].sides[0].area.value == pytest.approx((0.5 + 1.0) / 4)


def test_thresholds_report_how_many_seeds_reached_them_and_when(tmp_path):
    rise = {0: [0.0, 1.0, 1.0, 1.0], 1: [1.0, 1.0, 1.0, 0.0], 2: [0.0] * 4}
    path = write_metrics(tmp_path / "metrics.jsonl", rise, rate=STEPS * 3.0)
    (row,) = compare(path, path, thresholds=(("", 0.9),)).tasks[0].sides[0].thresholds
    assert (row.reached, row.of, row.steps, row.seconds) == (2, 3, 4 * STEPS, 4.0)
    (never,) = compare(path, path, thresholds=(("", 2.0),)).tasks[0].sides[0].thresholds
    assert (never.reached, never.steps, never.seconds) == (0, None, None)


def test_default_thresholds_are_half_and_nine_tenths_of_the_way(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.0] * 5 + [1.0] * 15})
    assert [row.value for row in compare(path, path).tasks[0].sides[0].thresholds] == [0.5, 0.9]


def test_training_time_excludes_interruptions(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [record(i, seed, 1.0, rate=512.0) for i in range(1, 5) for seed in (0, 1)]
    for line in lines[4:]:
        line["wall_time"] += 86_400  # interrupted, and resumed a day later
    path.write_text("\n".join(map(encode, lines)) + "\n")
    (speed,) = [row for row in compare(path, path).speed if row.letter == "A"]
    assert (speed.seconds, speed.steps_per_sec, speed.updates_per_sec) == (4.0, 512.0, 1.0)


def test_startup_is_the_time_before_the_first_chunk(good, bad):
    (speed, _) = compare(good, bad).speed
    # created, 11 s later the first chunk ended, which had taken 5 x 256 steps at 1,024 a second
    assert speed.startup == pytest.approx(11.0 - 1.25)
    assert speed.memory == 1_000_000  # as the runs recorded it


def test_runs_of_different_length_are_compared_up_to_the_shorter_end(tmp_path):
    long = make_run(tmp_path / "long", {i: [0.1] * 10 + [0.9] * 10 for i in range(3)})
    short = make_run(tmp_path / "short", flat(0.1, 0.1, 0.1, updates=10), state="interrupted")
    result = compare(long, short)
    (task,) = result.tasks
    assert task.end == 10 * STEPS and task.limited_by == str(short)
    assert task.sides[0].mean == pytest.approx(0.1)
    assert "numbers of steps on corridor differ: A 5,120, B 2,560" in noticed(result, "caution")
    assert "was interrupted (2,560 of 2,560 steps)" in noticed(result)
    own = compare(long, short, own_end=True).tasks[0]
    assert own.end == 20 * STEPS and own.sides[0].mean == pytest.approx(0.9)
    assert own.sides[1].mean == pytest.approx(0.1)


def test_evaluations_can_be_compared(good, bad):
    result = compare(good, bad, metric=EVALUATION)
    assert result.tasks[0].sides[0].mean == pytest.approx(0.9)
    assert result.tasks[0].pairs[0].verdict.better == "A"


def test_a_greedy_evaluation_counts_and_is_reported(good, bad):
    path = bad / "reports" / "evaluation.json"
    policies = [dict(row, policy="greedy") for row in json.loads(path.read_text())["policies"]]
    write_sealed(path, {"schema": REPORT_SCHEMA, "policies": policies})
    result = compare(good, bad, metric=EVALUATION)
    assert result.tasks[0].sides[1].mean == pytest.approx(0.5)
    assert "evaluation policies differ: A sampled, B greedy" in noticed(result, "caution")
    assert [side.members[0].evaluated_policy for side in result.sides] == ["sampled", "greedy"]


def test_a_run_without_evaluation_has_no_value(tmp_path, good):
    other = make_run(tmp_path / "other", flat(0.1, 0.2))
    result = compare(good, other, metric=EVALUATION)
    assert "was not evaluated" in result.tasks[0].pairs[0].verdict.text
    assert "B was not evaluated" in noticed(result, "note")


def test_curves_end_where_the_shortest_seed_does(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.0] * 10, 1: [1.0] * 20})
    curve = compare(path, path).tasks[0].sides[0].curves["steps"]
    assert curve.steps[-1] == 10 * STEPS and set(curve.values) == {0.5}
    assert min(curve.low) >= 0.0 and max(curve.high) <= 1.0


def test_diagnostics_are_taken_at_matched_steps(good, bad):
    rows = {row.metric: row for row in compare(good, bad).diagnostics}
    assert rows["train/entropy"].task == "corridor"
    assert rows["train/entropy"].values["A"] == pytest.approx([1.0, 0.2, 0.1])
    assert "train/approx_kl" not in rows


def test_a_first_ratio_other_than_1_is_reported(tmp_path, good):
    other = make_run(tmp_path / "other", flat(0.9, 0.9), **{"train/first_ratio_error": 0.4})
    (line,) = compare(good, other).warnings
    assert line.startswith("B on corridor: ratios differed from 1 by up to 0.4")


# --- several tasks


def test_returns_of_several_tasks_are_put_on_one_scale(tmp_path):
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
    asked = compare(*sides, ranges=(("recall", 0.0, 20.0),))
    assert asked.overall.sides[0].mean.value == pytest.approx((1.0 + 0.9 + 0.5 + 0.4) / 4)


def _of_two_tasks(tmp_path, name, one, two):
    """Return a side with a run of each of two tasks, whose seeds end at the given levels."""
    runs = [make_run(tmp_path / name / "one", flat(*one), changes={"env.id": "corridor"})]
    runs.append(make_run(tmp_path / name / "two", flat(*two), changes={"env.id": "recall"}))
    return f"{name}={runs[0]},{runs[1]}"


def test_score_arrays_have_a_row_per_run_and_a_column_per_task(tmp_path):
    sides = [_of_two_tasks(tmp_path, "ours", (0.9, 0.8, 0.7), (10, 8, 6))]
    sides.append(_of_two_tasks(tmp_path, "theirs", (0.5, 0.4), (4, 2)))
    result = compare(*sides, ranges=(("corridor", 0.0, 1.0), ("recall", 0.0, 10.0)))
    arrays = result.score_arrays()
    assert result.overall.tasks == ("corridor", "recall") and list(arrays) == ["ours", "theirs"]
    np.testing.assert_allclose(arrays["ours"], [[0.9, 1.0], [0.8, 0.8], [0.7, 0.6]], rtol=1e-6)
    np.testing.assert_allclose(arrays["theirs"], [[0.5, 0.4], [0.4, 0.2]], rtol=1e-6)
    for side, scores in zip(result.overall.sides, arrays.values(), strict=True):
        # the interquartile mean as rliable computes it
        assert trim_mean(scores, proportiontocut=0.25, axis=None) == pytest.approx(side.iqm.value)
    written = json.loads(json.dumps(as_json(result)))["overall"]["sides"]
    assert np.array(written[0]["scores"]).T.tolist() == arrays["ours"].tolist()


def test_score_arrays_are_refused_without_a_scale_or_with_missing_runs(tmp_path, good):
    other = make_run(tmp_path / "other", flat(1.0, 1.0), changes={"env.id": "recall"})
    with pytest.raises(HmxError, match="cannot make score arrays: no task on which all sides"):
        compare(good, other).score_arrays()
    sides = [_of_two_tasks(tmp_path, "a", (0.9, 0.8), (10, 8, 6)), _of_two_tasks(tmp_path, "b", (0.5,), (4,))]
    with pytest.raises(HmxError, match="A a has different numbers of runs: 2 of corridor, 3 of recall"):
        compare(*sides).score_arrays()


def test_sides_without_a_common_task_have_no_overall_result(tmp_path, good):
    other = make_run(tmp_path / "other", flat(1.0, 1.0), changes={"env.id": "recall"})
    result = compare(good, other)
    assert [task.name for task in result.tasks] == ["corridor", "recall"]
    assert all(not task.pairs for task in result.tasks)
    assert result.overall.why and not result.overall.sides
    assert "A did not train on recall" in noticed(result, "caution")


def _two_tasks(tmp_path, level, **metrics):
    """Return a side with a run on each of two tasks, whose evaluations know the return of random play."""
    runs = []
    for i, task in enumerate(("corridor", "recall")):
        more = {name: value[i] for name, value in metrics.items()}
        folder = tmp_path / f"{level}-{task}"
        runs.append(make_run(folder, flat(*[level] * 4), changes={"env.id": task}, evaluated={0: level}, **more))
    return f"{runs[0]},{runs[1]}"


def test_only_returns_are_scaled_by_random_play(tmp_path):
    name = "train/steps_per_sec"
    sides = [_two_tasks(tmp_path, 0.9, rate=(1000.0, 4000.0)), _two_tasks(tmp_path, 0.5, rate=(900.0, 3000.0))]
    findings = compare(*sides, metric=name)
    assert not findings.overall.sides and not findings.overall.ranges
    assert "--range corridor=LOW:HIGH --range recall=LOW:HIGH" in findings.overall.why
    ranges = (("corridor", 0.0, 2000.0), ("recall", 0.0, 8000.0))
    scaled = compare(*sides, metric=name, ranges=ranges).overall
    assert [side.mean.value for side in scaled.sides] == pytest.approx([0.5, (0.45 + 0.375) / 2])
    assert compare(*sides).overall.ranges["recall"].low == -1.0


def test_overall_scores_of_a_metric_where_less_is_better(tmp_path):
    name = "train/value_loss"
    sides = [_two_tasks(tmp_path, 0.9, **{name: (2.0, 2.0)}), _two_tasks(tmp_path, 0.5, **{name: (1.0, 1.0)})]
    overall = compare(*sides, metric=name, ranges=(("corridor", 2.0, 1.0), ("recall", 2.0, 1.0))).overall
    assert [side.mean.value for side in overall.sides] == [0.0, 1.0]
    assert overall.pairs[0].verdict.better == "B" and overall.pairs[0].difference.value == -1.0
    with pytest.raises(HmxError, match="expected the better value last"):
        compare(*sides, metric=name, ranges=(("corridor", 1.0, 2.0),))
