"""`hmx train`, `resume` and `evaluate` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.usefixtures("compiled_once")
QUICK = ["train", "--preset", "tiny", "--steps", "4096", "--eval-episodes", "20"]
POLICY_KEYS = {
    "policy", "seed", "episodes", "unfinished", "return_mean", "return_interval", "return_median", "length_mean",
    "length_interval", "stage_mean", "stage_median", "stage_max", "stage_counts", "wins", "win_rate_interval",
    "stages_completed", "undo_stages", "wins_without_undo", "info", "reward_terms",
}  # fmt: skip


def test_run_ends_with_random_and_trained_results_and_next_steps(hmx, tmp_path):
    result = hmx(*QUICK, "--name", "first")
    assert result.exit_code == 0 and "warning" not in result.stderr
    assert result.stderr.splitlines()[:2] == [
        "starting: training corridor with ppo: 16 environments, 4.10k steps", "run runs/first on cpu",
    ]  # fmt: skip
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert float(rows["trained"][1]) > float(rows["random"][1])
    next_lines = "next   hmx watch first\n       hmx evaluate first\n       hmx report first\n"  # each can be copied
    assert "page   runs/first/reports/report.html, without episodes\n" + next_lines in result.stdout
    assert (tmp_path / "runs" / "first" / "run.toml").exists()


def test_the_table_fits_40_columns(hmx, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    result = hmx(*QUICK)
    assert result.exit_code == 0
    assert max(len(line.rstrip()) for line in result.stdout.splitlines()) <= 40


def test_json_is_a_stream_that_ends_with_the_result(hmx):
    result = hmx(*QUICK, "--name", "lines", "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["start", *["update"] * (len(lines) - 2), "result"]
    assert len(lines) - 2 == lines[0]["total_updates"]
    assert lines[1]["update"] == 1 and "train/mean_reward" in lines[1]
    end = lines[-1]
    assert end["state"] == "finished" and end["resume_command"] == "hmx resume lines"
    assert [set(row) for row in end["evaluation"]] == [POLICY_KEYS, POLICY_KEYS]
    assert "trained" in result.stderr  # eyes get their table still


def test_dry_run_shows_everything_and_writes_nothing(hmx, tmp_path):
    result = hmx(*QUICK, "--dry-run", "--set", "algo.gamma=0.9")
    assert result.exit_code == 0 and list(tmp_path.iterdir()) == []
    text = " ".join(result.stdout.split())
    assert "algo.gamma 0.9 --set" in text
    assert "run.total_steps 4096 --steps" in text
    assert "env.id corridor preset tiny" in text
    assert "16 updates, 4,096 steps per seed" in text
    assert "metrics.jsonl" in text
    assert "net.gain_policy" not in text
    full = " ".join(hmx(*QUICK, "--dry-run", "--full").stdout.split())
    assert "1.3 value loss 0.25 x mean squared error" in full and "net.gain_policy 0.01" in full


def test_dry_run_is_written_as_json(hmx, tmp_path):
    plan = json.loads(hmx(*QUICK, "--dry-run", "--json").stdout)
    assert plan["schema"] == 1 and plan["sizes"]["num_updates"] == 16 and list(tmp_path.iterdir()) == []
    assert plan["origins"]["run.total_steps"] == "--steps" and plan["config"]["env"]["id"] == "corridor"
    assert [row["id"] for row in plan["meaning"]][::12] == ["1.1", "2.4"] and len(plan["meaning"]) == 13
    (row,) = [row for row in plan["meaning"] if row["id"] == "1.6"]
    assert row["values"]["net.gain_policy"] == 0.01 and "orthogonal" in row["meaning"] and row["bug"] is False


def test_quiet_training_writes_nothing_on_stderr(hmx):
    result = hmx(*QUICK, "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "trained" in result.stdout


def test_run_that_a_finding_ends_fails_and_continues_as_the_hint_says(hmx):
    options = ["--lr", "0", "--set", "run.updates_per_chunk=4", "--on-finding", "stop", "--name", "dead", "--json"]
    stopped = hmx(*QUICK, *options)
    assert stopped.exit_code == 4
    end = json.loads(stopped.stdout.splitlines()[-1])
    assert (end["event"], end["state"], end["updates"]) == ("result", "interrupted", 12)
    assert end["finding"]["rule"] == "frozen-policy"
    error = json.loads(stopped.stderr.splitlines()[-1])
    assert error["error"].startswith("dead was stopped after update 12: The policy does not change")
    assert "hmx resume dead --on-finding warn continues it" in error["hint"]
    assert hmx("resume", "dead", "--on-finding", "warn", "--quiet").exit_code == 0


def test_a_known_bug_is_marked(hmx):
    result = hmx(*QUICK, "--dry-run", "--full", "--set", "ppo.gae_axis=batch")
    assert result.exit_code == 0
    assert "known bug" in " ".join(result.stdout.split())
    assert "ppo.gae_axis: reproduces a known bug" in " ".join(result.stderr.split())


def test_dry_run_over_an_existing_run_explains_the_effect(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    result = hmx(*QUICK, "--dry-run", "--name", "corridor")
    assert result.exit_code == 0
    assert "train would refuse" in result.stderr and "hmx resume corridor" in result.stderr


def test_run_toml_of_a_run_trains_it_again(hmx, trained, tmp_path):
    result = hmx("train", "--config", str(trained / "corridor"), "--name", "again", "--json")
    assert result.exit_code == 0
    old, new = (
        [json.loads(line)["train/total_loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (trained / "corridor", tmp_path / "runs" / "again")
    )
    assert old == new


def test_force_replaces_a_run(hmx, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    result = hmx(*QUICK, "--steps", "1024", "--name", "corridor", "--force")
    assert result.exit_code == 0
    assert len((tmp_path / "runs" / "corridor" / "metrics.jsonl").read_text().splitlines()) == 4


def test_finished_run_is_extended_and_its_end_is_written_as_markdown(hmx, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    result = hmx("resume", "corridor", "--steps", "8192", "--json", "--md", "end.md")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    start, *updates, end = (line for line in lines if line["event"] != "warning")
    assert start["first_update"] == 16 and end["updates"] == 32
    assert [line["update"] for line in updates] == [*range(17, 33)]
    assert "| **trained** |" in (tmp_path / "end.md").read_text() and "wrote: end.md" in result.stderr
    assert "trained" not in result.stderr


def test_evaluate_writes_text_and_json(hmx, trained):
    run = str(trained / "corridor")
    eyes = hmx("evaluate", run, "--episodes", "30")
    assert eyes.exit_code == 0
    assert re.fullmatch(r"compiling (\(.*\) )?\.{3}\nplaying sampled \.{3}\nplaying greedy \.{3}\n", eyes.stderr)
    assert re.search(r"^ ?sampled +[+-]\d", eyes.stdout, re.MULTILINE) and "greedy" in eyes.stdout
    data = json.loads(hmx("evaluate", run, "-n", "30", "--policy", "random", "--json").stdout)
    assert list(data) == [
        "schema", "run", "env", "checkpoint", "env_steps", "episodes", "seed", "policies", "search", "sees",
        "changes", "trained_with", "warnings",
    ]  # fmt: skip
    assert [set(row) for row in data["policies"]] == [POLICY_KEYS]
    assert (data["schema"], data["seed"], data["episodes"]) == (1, 0, 30) and data["policies"][0]["policy"] == "random"


ENDLESS = [
    "-m", "hmx", "train", "--preset", "tiny", "--steps", "100000000", "--name", "long", "--set",
    "run.updates_per_chunk=4",
]  # fmt: skip


def wait_for_records(process, run, more_than=0, meanwhile=lambda: None):
    """Wait for a larger file of metrics, and return its size."""
    metrics = run / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > more_than):
        time.sleep(0.02)
        meanwhile()
    return metrics.stat().st_size


def check_saved(run):
    """The last update that has a record also has a checkpoint."""
    assert (run / "checkpoints" / str(len((run / "metrics.jsonl").read_text().splitlines()))).is_dir()


def check_stopped(process, run, code):
    """The process ended with a checkpoint and the command that resumes the run."""
    _, stderr = process.communicate()
    assert process.returncode == code
    assert "hmx resume long" in stderr and "Traceback" not in stderr
    check_saved(run)


def test_a_closed_terminal_ends_with_a_checkpoint(environ, tmp_path):
    """Closing a window, or losing an SSH connection, sends SIGHUP and makes every write to the terminal fail."""
    ours, theirs = os.openpty()
    # the leader of a new session takes the first terminal that it opens
    script = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(theirs), sys.executable, *ENDLESS]
    process = subprocess.Popen(script, cwd=tmp_path, env=environ(), start_new_session=True)

    def read():
        if select.select([ours], [], [], 0)[0]:
            os.read(ours, 65536)

    wait_for_records(process, tmp_path / "runs" / "long", meanwhile=read)
    os.close(theirs)
    os.close(ours)
    assert process.wait() == 129
    check_saved(tmp_path / "runs" / "long")


def test_a_background_job_ignores_ctrl_c_and_saves_on_sigterm(environ, tmp_path):
    script, run = ["sh", "-c", '"$@" & echo $!; wait $!', "sh", sys.executable, *ENDLESS], tmp_path / "runs" / "long"
    process = subprocess.Popen(
        script, cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pid = int(process.stdout.readline())
    seen = wait_for_records(process, run)
    os.kill(pid, signal.SIGINT)
    for _ in range(3):  # the chunk that runs, and more than the first after it
        seen = wait_for_records(process, run, seen)
    os.kill(pid, signal.SIGTERM)
    check_stopped(process, run, 143)


LAKE = [
    "train", "--preset", "lake", "--steps", "8192", "--eval-episodes", "20", "--name", "lake", "--set", "net.hidden=8",
    "--set", "dqn.learn_starts=256", "--set", "dqn.gradient_steps=1", "--set", "run.updates_per_chunk=16",
]  # fmt: skip


def test_q_learning_from_the_command_line(hmx, tmp_path):
    """Trained, evaluated greedily, saved, extended, scored."""
    result = hmx(*LAKE, "--save-buffer")
    assert result.exit_code == 0
    assert "trained" in result.stdout and "random" in result.stdout
    run = tmp_path / "runs" / "lake"
    assert (run / "reports" / "buffer.npz").stat().st_size > 8192 * 500
    again = hmx("resume", "lake", "--steps", "9216", "--json")
    lines = [json.loads(line) for line in again.stdout.splitlines()]
    assert lines[-1]["state"] == "finished" and lines[-1]["updates"] == 144
    assert "the linear epsilon schedule now spans 9,216 steps" in again.stderr
    measured = json.loads(hmx("evaluate", "lake", "-n", "10", "--json").stdout)
    assert [row["policy"] for row in measured["policies"]] == ["sampled", "greedy"]
    refused = hmx("grad-report", "lake", "--advantage", "group")
    assert refused.exit_code == 2 and "Q-learning learns from TD errors" in refused.stderr
    refused = hmx("compute-config", "--preset", "lake")
    assert refused.exit_code == 2 and "--dry-run" in refused.stderr


def test_dry_run_of_q_learning_shows_replay_ratio_and_memory(hmx, tmp_path):
    text = " ".join(hmx(*LAKE, "--dry-run", "--save-buffer").stdout.split())
    assert "each transition is trained on 1 times on average" in text
    assert re.search(r"memory about [\d.]+ MiB during an update \(.*\) .* replay: 17.5 MiB", text)
    assert "buffer.npz" in text
    plan = json.loads(hmx(*LAKE, "--dry-run", "--json").stdout)
    parts = {part["key"]: part["bytes"] for part in plan["memory"]["parts"]}
    assert plan["replay_ratio"] == 1.0 and parts["replay_bytes"] > 32768 * 531
    assert list(tmp_path.iterdir()) == []
