"""Comparing configurations, and what cannot be read or says little."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from compared import compare, keys, said
from made_runs import RETURN, TINY, flat, make_run, record, write_metrics

from hmx.config import codec
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.jsonl import encode
from hmx.reports.compare.scores import Window
from hmx.reports.compare.tasks import Spec

DATA = Path(__file__).parents[1] / "data"


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
