"""The one reader of metrics: curves by agent, damaged lines, large files, and files that are no files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from made_runs import RETURN, STEPS, make_run, write_metrics
from typer.testing import CliRunner

from hmx.cli.app import app
from hmx.errors import ExitCode
from hmx.records import curves
from hmx.records.curves import ABSENT, EPISODES, Records, evaluations, part_means, read_curves, small_curve
from hmx.records.jsonl import MetricsWriter


def test_curves_are_by_agent_and_tell_absent_from_not_finite(tmp_path: Path) -> None:
    found = read_curves(write_metrics(tmp_path / "m.jsonl", {1: [1.0, None, 3.0], 0: [math.nan, 5.0]}))
    first, second = found.agents
    assert (first.seed, second.seed) == (0, 1) and found.records == 5 and found.whole and not found.warnings
    assert list(first.steps) == [STEPS, 2 * STEPS]
    assert math.isnan(first.column(RETURN)[0]) and list(second.column(RETURN)) == [1.0, ABSENT, 3.0]
    assert list(second.column("train/unknown")) == [ABSENT] * 3


def test_only_the_named_columns_are_kept(tmp_path: Path) -> None:
    path = write_metrics(tmp_path / "m.jsonl", {0: [1.0, 2.0]})
    assert read_curves(path, {RETURN, "update", "other"}).agents[0].columns.keys() == {RETURN, "update"}


def test_a_repeated_record_replaces_the_earlier_one(tmp_path: Path) -> None:
    lines = [{"env_steps": 1, "a": 1, "b": 2}, {"env_steps": 2, "a": 3}, {"env_steps": 1, "a": 4}]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (agent,) = read_curves(tmp_path / "m.jsonl").agents
    assert list(agent.steps) == [1, 2] and list(agent.column("a")) == [4, 3]
    assert list(agent.column("b")) == [ABSENT, ABSENT]


def test_damaged_lines_are_numbered_and_a_torn_one_is_not_damage(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"env_steps": 1}\noops\n{"update": 1}\n{"train/env_steps": 2.0}\n{"torn')
    found = read_curves(path)
    assert found.warnings == ("skipped 2 damaged lines of its metrics: 2, 3",)
    assert [list(agent.steps) for agent in found.agents] == [[1, 2]]
    path.write_text("x\n" * 6)
    assert read_curves(path).warnings == (
        "skipped 6 damaged lines of its metrics: 1, 2, 3, 4, 5 and more", "it has no records yet",
    )  # fmt: skip


def test_a_large_file_is_read_in_parts_from_its_start_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_metrics(tmp_path / "m.jsonl", {0: [float(i % 10) for i in range(8000)]})
    monkeypatch.setattr(curves, "LIMIT", 1 << 18)
    records = Records(path)
    steps = [steps for steps, _ in records]
    line = path.stat().st_size / 8000
    assert not records.whole and len(steps) == pytest.approx((1 << 18) / line, rel=0.05)
    assert steps == sorted(steps) and steps[0] == STEPS and steps[-1] == 8000 * STEPS
    assert records.warnings == ["read 0 MiB of its 1 MiB of metrics, in evenly spaced parts"]


def test_a_sparse_file_takes_no_longer_than_its_parts(tmp_path: Path) -> None:
    path = write_metrics(tmp_path / "m.jsonl", {0: [1.0, 2.0]})
    os.truncate(path, 1 << 40)
    found = read_curves(path)
    assert found.records == 2 and not found.whole and "1,048,576 MiB" in found.warnings[0]


@pytest.mark.parametrize(
    "command", ["report", "doctor", "compare", "runs show", "runs list", "runs tail", "runs export"]
)
def test_no_command_waits_for_a_pipe_or_follows_a_link(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, other = (make_run(tmp_path / "runs" / name, {0: [1.0, 2.0]}) for name in ("run", "other"))
    (run / "metrics.jsonl").rename(tmp_path / "elsewhere.jsonl")
    words = command.split()
    words += [] if words[-1] == "list" else [str(run)]
    words += {"compare": [str(other)], "report": ["--episodes", "0", "--json"]}.get(command, [])
    for make in (os.mkfifo, lambda path: os.symlink(tmp_path / "elsewhere.jsonl", path)):
        make(run / "metrics.jsonl")
        done = CliRunner().invoke(app, words)
        assert done.exit_code in (0, ExitCode.ARTEFACT) and (done.exception is None or done.exit_code)
        assert "2.0" not in done.stdout or command in ("compare", "runs list")
        assert [small_curve(file / "metrics.jsonl") for file in (run, other)].count(()) == 1
        (run / "metrics.jsonl").unlink()


def test_a_small_curve_has_the_means_of_equal_parts_weighted_by_episodes(tmp_path: Path) -> None:
    """A rise from -31 to -8, in which every eighth record, where the first of a part stands, is an outlier."""
    returns = [-31.0 + i / 8 - 10.0 * (i % 8 == 0) for i in range(192)]
    path = write_metrics(tmp_path / "m.jsonl", {0: returns})
    means = part_means(path, RETURN, 24)
    expected = [sum(returns[i : i + 8]) / 8 for i in range(0, 192, 8)]
    assert list(means) == pytest.approx(expected, abs=2.0)  # bytes, not records, are divided evenly
    lines = [json.loads(line) for line in path.read_text().splitlines()[:2]]
    lines = [line | {RETURN: value, EPISODES: n} for line, value, n in zip(lines, (0.0, 1.0), (3, 1), strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert part_means(path, RETURN, 1) == (0.25,)


def test_evaluations_are_found_among_other_records(tmp_path: Path) -> None:
    """Random play first, then the mean over agents of each evaluation."""
    path = write_metrics(tmp_path / "m.jsonl", {0: [0.5] * 40, 1: [0.5] * 40})
    assert evaluations(path) == evaluations(tmp_path / "none") == ()
    with MetricsWriter(path) as writer:
        for update, values in [(41, (-4.0, -3.0)), (51, (1.0, 2.0)), (61, (math.nan, math.nan))]:
            for seed, value in enumerate(values):
                measured = {"eval/return": value, "eval/random_return": -3.5}
                writer.write({"update": update, "env_steps": update, "seed": seed, **measured})
    assert evaluations(path) == (-3.5, -3.5, 1.5)
