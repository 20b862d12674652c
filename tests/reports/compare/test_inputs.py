"""Configurations, and files that are damaged, empty or old."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
from compared import compare, keys, noticed
from made_runs import RETURN, STEPS, TINY, flat, make_run, record, write_metrics

from hmx.config import codec
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.jsonl import encode
from hmx.reports.compare.request import Window


def test_config_lists_only_differences(good, bad):
    assert keys(compare(good, bad)) == {"algo.learning_rate": ("0.003", "0.001")}


def test_presets_are_compared_without_runs():
    result = compare("tiny", "metta", "default")
    assert keys(result)["algo.gamma"] == ("0.99", "0.977", "0.99")
    assert keys(result)["batch_size"] == ("256", "32,768", "32,768")
    assert not result.tasks and not result.speed


def test_documented_rows_come_first_with_their_effects(tmp_path, good):
    changes = {"ppo.episode_end": "terminal", "algo.learning_rate": 1e-3, "net.std": "exp", "ppo.gae_axis": "batch"}
    other = make_run(tmp_path / "other", flat(0.1, 0.2), changes={**changes, "env.num_envs": 32})
    groups = compare(good, other).config
    assert [group.row for group in groups] == ["1.1", "1.2", "1.4", "", "", ""]
    assert [group.title for group in groups[3:]] == ["learning", "environment", "resulting sizes"]
    axis, end, std = groups[:3]
    assert axis.bug and not end.bug
    assert end.differences[0].values == ("bootstrap", "terminal")
    assert "bootstraps from its last observation" in end.effects[0] and "counts as termination" in end.effects[1]
    assert std.effects[0] == std.effects[1] == "none: actions are discrete"


def test_an_invalid_configuration_has_no_effects(tmp_path, good):
    broken = replace(Config(), {**TINY, "algo.gamma": 0.5, "ppo.num_minibatches": 7})
    (tmp_path / "broken.toml").write_text(codec.to_toml(broken))
    group = compare(good, tmp_path / "broken.toml").config[0]
    assert group.row == "1.1" and group.effects[0] and group.effects[1] == ""


def test_runs_of_one_side_that_disagree_show_both_values(good, bad):
    assert keys(compare(f"{good},{bad}", good))["algo.learning_rate"] == ("0.003 or 0.001", "0.003")


CHANGED = {
    "run.total_steps": 32768, "env.max_steps": 500, "reward.kills": 0.5, "starts.share": 0.25, "net.hidden": (32,),
    "algo.gamma": 0.9, "ppo.gae_lambda": 0.9, "gumbel.num_simulations": 4, "dqn.batch_size": 128,
    "replay.capacity": 2048, "score.rollouts": 2,
}  # fmt: skip


def test_a_difference_in_any_section_is_shown(tmp_path):
    assert {key.partition(".")[0] for key in CHANGED} == {field.name for field in dataclasses.fields(Config)}
    base, changed = tmp_path / "base.toml", tmp_path / "changed.toml"
    shown = set()
    for algorithm in ("ppo", "gumbel", "dqn"):  # only what an algorithm reads is compared
        config = replace(Config(), {"algo.name": algorithm, "ppo.num_minibatches": 7})  # aspects need one that can run
        base.write_text(codec.to_toml(config))
        changed.write_text(codec.to_toml(replace(config, CHANGED)))
        shown.update(keys(compare(base, changed)))
    assert set(CHANGED) <= shown


def test_differences_between_tasks_of_a_side_are_not_listed(tmp_path):
    sides = []
    for name in ("a", "b"):
        one = make_run(tmp_path / name / "one", flat(0.1))
        two = make_run(tmp_path / name / "two", flat(0.2), changes={"env.id": "recall", "algo.gamma": 0.9})
        sides.append(f"{name}={one},{two}")
    assert compare(*sides).config == ()


def test_different_devices_and_revisions_are_reported(tmp_path, good):
    other = make_run(tmp_path / "other", flat(0.1, 0.2), device="NVIDIA H200", git="fedcba9876543210")
    result = compare(good, other)
    assert "devices differ: A cpu, B NVIDIA H200; speeds cannot be compared" in noticed(result, "caution")
    assert "git revisions differ: A 0123456789, B fedcba9876" in noticed(result, "note")


def test_identical_metrics_are_reported(good, tmp_path):
    copy = shutil.copytree(good, tmp_path / "copy")
    assert "identical metrics on corridor" in noticed(compare(good, copy), "caution")
    assert "A and B are the same run" in noticed(compare(good, good), "caution")


def test_a_torn_last_line_is_ignored_and_damaged_lines_are_reported(tmp_path, good):
    torn = write_metrics(tmp_path / "torn" / "metrics.jsonl", flat(0.5, 0.6))
    torn.write_text(torn.read_text() + '{"update": 11, "env_st')
    assert not [n for n in compare(good, torn).notices if "damaged" in n.text]
    lines = torn.read_text().splitlines()
    lines[3] = lines[3][:40]
    lines[7] = "[1, 2]"
    lines[8] = '{"update": 5}'
    torn.write_text("\n".join(lines) + "\n")
    assert "skipped 4 damaged lines of its metrics: 4, 8, 9, 21" in noticed(compare(good, torn), "caution")


def test_repeated_records_count_once(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.1] * 4})
    path.write_text(path.read_text() + encode(record(4, 0, 0.9)) + "\n")
    result = compare(path, path, last=Window(steps=1))
    assert result.tasks[0].sides[0].seeds[0].value == 0.9
    assert result.speed[0].updates_per_sec == pytest.approx(4.0) and result.sides[0].members[0].steps == 4 * STEPS


def test_empty_runs_are_reported(tmp_path, good):
    empty = make_run(tmp_path / "empty", {})
    result = compare(good, empty)
    assert "it has no records yet" in noticed(result) and "B has no records to compare" in noticed(result)
    assert [side.letter for side in result.tasks[0].sides] == ["A"]
    (empty / "metrics.jsonl").unlink()
    assert "it has no metrics.jsonl" in noticed(compare(good, empty))


def test_a_damaged_configuration_does_not_hide_the_curves(tmp_path, good, bad):
    config = bad / "run.toml"
    config.write_text(config.read_text().replace("gamma = 0.99", "gamma = 0.5"))
    (bad / "meta.json").write_text("{")
    result = compare(good, bad)
    assert "cannot read its meta.json" in noticed(result)
    # without meta.json nothing says that the configuration has changed
    assert set(keys(result)) == {"algo.learning_rate", "algo.gamma"}
    config.write_text("gamma = ")
    result = compare(good, bad)
    assert "cannot read its configuration" in noticed(result)
    assert "the environment of B is unknown, assumed to be corridor" in noticed(result)
    assert result.tasks[0].sides[1].mean == pytest.approx(0.54)


def test_a_damaged_evaluation_is_reported(good, bad):
    (bad / "reports" / "evaluation.json").write_text('{"schema": 1, "policies": [3]}')
    assert "cannot read its evaluation" in noticed(compare(good, bad))


def test_values_that_are_not_numbers_count_as_not_finite(tmp_path, good):
    path = write_metrics(tmp_path / "metrics.jsonl", {0: [0.1] * 4})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1][RETURN] = "a word"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    assert compare(good, path).tasks[0].sides[1].seeds[0].value is None


def test_metrics_of_a_later_schema_are_refused(tmp_path, good):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"schema": 99, "update": 1, "env_steps": 1}\n')
    with pytest.raises(HmxError, match="newer hmx") as caught:
        compare(good, path)
    assert caught.value.exit_code == ExitCode.ARTEFACT


@pytest.mark.parametrize("schema", [1, 2])
def test_old_run_folders_are_compared(unpack, tmp_path, good, schema):
    result = compare(good, unpack(schema, tmp_path / "old").root)
    (task,) = result.tasks
    assert task.name == "corridor" and len(task.sides) == 2
    assert task.sides[1].mean is not None
    assert noticed(result, "block") == "the tasks differ: env.max_steps A 100, B 6"


def test_a_metric_that_no_run_reports_is_refused(good, bad):
    with pytest.raises(HmxError, match="no run reports the metric") as caught:
        compare(good, bad, metric="train/mean_episode_retrun")
    assert "train/mean_episode_return" in caught.value.hint
    with pytest.raises(HmxError, match="no run reports train/approx_kl"):
        compare(good, bad, metric="train/approx_kl")


def test_options_of_another_algorithm_are_not_compared(tmp_path, good):
    dqn = {"algo.name": "dqn", "ppo.num_minibatches": Config().ppo.num_minibatches}
    sides = [make_run(tmp_path / str(n), flat(0.1), changes={**dqn, "dqn.batch_size": n}) for n in (32, 64)]
    assert keys(compare(*sides))["dqn.batch_size"] == ("32", "64")
    found = keys(compare(good, sides[0]))
    assert found["algo.name"] == ("ppo", "dqn")
    assert not [key for key in found if key.startswith(("ppo.", "dqn.", "replay.", "score."))]
