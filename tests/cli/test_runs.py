from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import contents
from made_runs import flat, make_run

from hmx.errors import ExitCode
from hmx.jobs import sync as syncs
from hmx.jobs.sync import SyncResult, WandbRun
from hmx.records import artefact
from hmx.records import meta as metas
from hmx.records.verify import RunReplay, Stretch
from hmx.render.terminal import print_document
from hmx.reports.summaries import RUN_COLUMNS, synchronisation

pytestmark = pytest.mark.usefixtures("compiled_once")

HOLD = """
import sys
from hmx.records.paths import RunPaths
from hmx.records.lock import RunLock
with RunLock(RunPaths(sys.argv[1], "corridor")):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def run(unpack: Any, tmp_path: Path) -> Any:
    """An interrupted run, `corridor`, below `runs/`."""
    return unpack(2, tmp_path / "runs").folder


@pytest.fixture
def holder(run: Path, environ: Callable[..., dict[str, str]]) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes to the run."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.parent)],
        env=environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.communicate("\n")


def test_list_shows_every_run(hmx: Any, run: Path) -> None:
    result = hmx("runs", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    head, row = (line.split() for line in result.stdout.splitlines() if line.strip() and "─" not in line)
    assert head == [column.name for column, _ in RUN_COLUMNS]
    assert row[:5] == ["corridor", "corridor", "ppo", "interrupted", "64"]
    missing = hmx("runs", "list", "--root", "elsewhere")
    assert missing.exit_code == ExitCode.ARTEFACT and "there is no folder elsewhere" in missing.stderr
    data = json.loads(hmx("runs", "list", "--json").stdout)
    assert [(row["name"], row["state"], row["update"]) for row in data["runs"]] == [("corridor", "interrupted", 4)]


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (160, ""),
        (80, "algorithm steps/s remaining size"),
        (48, "environment algorithm steps/s remaining size age"),
        (32, "environment algorithm state steps steps/s remaining size age"),
    ],
)
def test_a_narrow_list_leaves_out_columns_by_rank(
    hmx: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, left_out: str
) -> None:
    make_run(tmp_path / "runs" / "hackmatrix-ppo-s0-001", flat(0.5), changes={"env.id": "hackmatrix"})
    monkeypatch.setenv("COLUMNS", str(width))
    head, *lines = hmx("runs", "list").stdout.splitlines()
    assert head.split() == [column.name for column, _ in RUN_COLUMNS if column.name not in left_out.split()]
    assert max(map(len, (head, *lines))) <= width


def test_verify_passes_an_intact_run_and_fails_a_damaged_one(hmx: Any, run: Path) -> None:
    result = hmx("runs", "verify", "corridor")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "runs/corridor: intact; intact checkpoints: 2, 4\n"
    (run / "checkpoints" / "4" / "manifest.json").unlink()
    (run / "metrics.jsonl").write_text("")
    result = hmx("runs", "verify", "corridor")
    assert result.exit_code == 3
    assert "checkpoints/4" in result.stdout
    assert "metrics.jsonl" in result.stdout
    assert "records up to update 2 have changed" in result.stdout
    assert "runs/corridor: damaged; intact checkpoints: 2" in result.stdout
    assert "error: runs/corridor: 2 files damaged or missing" in result.stderr
    assert "hmx resume corridor continues from checkpoint 2" in result.stderr
    result = hmx("runs", "verify", "corridor", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["damage"][0]["path"] == "checkpoints/4"


def test_verify_without_a_checkpoint_ends_with_exit_code_3(hmx: Any, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    result = hmx("runs", "verify", "corridor")
    assert result.exit_code == 3
    assert "hint: no checkpoint is intact" in result.stderr


def test_file_contents_are_escaped_in_the_terminal(hmx: Any, run: Path) -> None:
    (run / "reports" / "\x1b[31m.json").write_text("{")
    result = hmx("runs", "verify", "corridor")
    assert result.exit_code == 3
    assert "\x1b" not in result.stdout
    assert "reports/\\x1b[31m.json" in result.stdout


def test_foreign_meta_data_are_escaped_in_the_terminal(hmx: Any, run: Path) -> None:
    evil = "\x1b[2J\x1b]0;pwned\x07[red]finished"
    data = {**json.loads((run / "meta.json").read_text()), "state": evil}
    data.pop("sha256")
    (run / "meta.json").write_text(artefact.sealed(data))
    for words, code in ((("list",), 0), (("verify", "corridor"), 3)):
        result = hmx("runs", *words)
        assert result.exit_code == code
        assert (result.stdout + result.stderr).replace("\n", "").isprintable()
    assert "\\x1b[2J" in result.stdout


def test_row_is_printed_as_text_not_markup() -> None:
    from rich.console import Console

    shown = io.StringIO()
    opened = (WandbRun(0, "", "\x07[u]"),)
    row = SyncResult(run=Path("[red]r"), project="\x1b[2J[bold]p", sent=1, there=0, wandb_runs=opened)
    print_document(synchronisation(row), Console(file=shown, width=100))
    assert "[red]r" in shown.getvalue()
    assert "\\x1b[2J[bold]p" in shown.getvalue()
    assert "\\x07[u]" in shown.getvalue()


def test_dry_run_of_resume_changes_nothing(hmx: Any, run: Path) -> None:
    before = contents(run)
    shutil.copytree(run / "checkpoints" / "4", run / "checkpoints" / "6")
    result = hmx("resume", "corridor", "--dry-run", "--steps", "256", "--set", "algo.gamma=0.9", "--set", "run.keep=9")
    assert result.exit_code == 0, result.stderr
    assert "update 4, 64 steps per seed" in result.stdout
    assert "update 16, 256 steps per seed" in result.stdout
    for line in ("run.total_steps: 128 -> 256", "algo.gamma: 0.99 -> 0.9", "run.keep: 3 -> 9"):
        assert line in result.stdout
    assert "warning: checkpoint 6 is damaged (the manifest is of update 4)" in result.stderr
    shutil.rmtree(run / "checkpoints" / "6")
    assert contents(run) == before
    data = json.loads(hmx("resume", "corridor", "--dry-run", "--steps", "256", "--json").stdout)
    assert (data["update"], data["changes"]) == (4, {"run.total_steps": [128, 256]})


def test_a_second_process_is_refused(hmx: Any, run: Path, holder: subprocess.Popen[str]) -> None:
    before = contents(run)
    for words in (("resume", "corridor"), ("train", "--preset", "tiny", "--name", "corridor", "--force")):
        result = hmx(*words)
        assert result.exit_code == 2
        assert f"error: runs/corridor is in use by process {holder.pid} since" in result.stderr
        assert f"kill {holder.pid}" in result.stderr
    assert "runs/corridor is in use: resume would refuse" in hmx("resume", "corridor", "--dry-run").stderr
    assert f"held by process {holder.pid}" in hmx("runs", "verify", "corridor").stdout
    assert contents(run) == before


def test_a_run_whose_process_died_has_crashed(hmx: Any, run: Path, holder: subprocess.Popen[str]) -> None:
    metas.write(run / "meta.json", metas.changed(metas.read(run / "meta.json"), state="running"))
    assert "running" in hmx("runs", "list").stdout
    holder.kill()
    holder.wait()
    assert "crashed" in hmx("runs", "list").stdout
    assert (run / "lock").exists()


def test_sync_sends_a_run(hmx: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def sync(name: Path, **options: Any) -> syncs.SyncResult:
        asked.append({"name": name, **options})
        rows = (WandbRun(0, "abc", "https://wandb.example/abc"),)
        return syncs.SyncResult(run=run, project="mine", sent=1200, there=3, wandb_runs=rows)

    monkeypatch.setattr(syncs, "sync", sync)
    result = hmx("runs", "sync", "corridor", "--project", "mine", "--offline")
    assert result.exit_code == 0, result.stderr
    assert asked == [{"name": Path("corridor"), "project": "mine", "mode": "offline"}]
    assert "1,200 records to the project mine; 3 already there" in result.stdout
    assert "https://wandb.example/abc" in result.stdout
    assert json.loads(hmx("runs", "sync", "corridor", "--json").stdout)["sent"] == 1200
    assert asked[1]["mode"] == "online"


def test_show_reports_progress_and_differences(hmx: Any, run: Path) -> None:
    shown = hmx("runs", "show", "corridor")
    assert shown.exit_code == 0, shown.stderr
    for text in ("corridor: interrupted after 64 steps of 128", "env.id", "mean_episode_return"):
        assert text in shown.stdout
    data = json.loads(hmx("runs", "show", "corridor", "--json").stdout)
    assert (data["state"], data["env_steps"], data["total_steps"]) == ("interrupted", 64, 128)


def test_the_end_of_the_metrics_is_shown_as_columns_or_json(hmx: Any, run: Path) -> None:
    head, *rows = hmx("runs", "tail", "corridor", "--lines", "2", "--metric", "train/entropy").stdout.splitlines()
    assert head.split() == ["steps", "seed", "entropy"] and [row.split()[:2] for row in rows] == [
        ["48", "0"],
        ["64", "0"],
    ]
    (line,) = hmx("runs", "tail", "corridor", "--lines", "1", "--json").stdout.splitlines()
    assert json.loads(line)["update"] == 4


def test_remove_asks_and_rename_is_reported(hmx: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "renamed: corridor to runs/other" in hmx("runs", "rename", "corridor", "other").stderr
    assert "--yes removes without asking" in hmx("runs", "rm", "other").stderr
    assert (run.parent / "other").is_dir()
    result = hmx("runs", "rm", "other", "--yes")
    assert result.exit_code == 0 and "removed: runs/other (interrupted, 64 steps" in result.stderr
    assert not (run.parent / "other").exists()


def test_an_empty_list_says_whether_a_filter_emptied_it(hmx, tmp_path):
    (tmp_path / "runs").mkdir()
    assert hmx("runs", "list").stdout == "no runs in runs: hmx train --preset gumbel creates one\n"
    assert hmx("runs", "list", "--match", "zz*").stdout == "no runs in runs: no run matches\n"


def test_tail_refuses_a_metric_that_the_run_does_not_report(hmx, tmp_path):
    make_run(tmp_path / "runs" / "one", flat(0.5), **{"reward/goal": 1.0, "es/best": 2.0})
    refused = hmx("runs", "tail", "one", "--metric", "reward/gaol")
    assert refused.exit_code == ExitCode.USAGE and "did you mean --metric reward/goal?" in refused.stderr
    assert "2" in hmx("runs", "tail", "one", "--metric", "es/best").stdout
    assert hmx("runs", "tail", "one", "--metric", "train/td_error").exit_code == ExitCode.OK


def replayed(monkeypatch: pytest.MonkeyPatch, *stretches: Stretch) -> None:
    """Let every replay have this result."""
    from hmx.jobs import replay

    monkeypatch.setattr(replay, "replay", lambda *given: RunReplay(seed=7, of=3, stretches=stretches))


EQUAL = Stretch(1, 2, "equal")
CHANGED = Stretch(3, 4, "different", update=4, quantity="train/entropy")
ELSEWHERE = Stretch(5, 6, "not replayed", reason="made on jax 0.0.1; here: jax 9")


def test_a_replay_ends_with_the_code_of_its_worst_stretch(hmx: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed(monkeypatch, EQUAL)
    fine = hmx("runs", "verify", "corridor", "--replay", "1")
    assert fine.exit_code == 0, fine.stderr
    assert "updates 1 to 2  equal" in fine.stdout
    assert "replayed 1 of 3 stretches (--seed 7)" in " ".join(fine.stdout.split())
    replayed(monkeypatch, EQUAL, ELSEWHERE)
    unknown = hmx("runs", "verify", "corridor", "--replay", "all")
    assert unknown.exit_code == 5
    assert "cannot replay 1 of 2 stretches of runs/corridor: made on jax 0.0.1; here: jax 9" in unknown.stderr
    replayed(monkeypatch, EQUAL, CHANGED, ELSEWHERE)
    changed = hmx("runs", "verify", "corridor", "--replay", "3", "--json")
    assert changed.exit_code == 4
    assert "1 of 3 replayed stretches differ, first in train/entropy of update 4" in changed.stderr
    rows = json.loads(changed.stdout)["replay"]["stretches"]
    assert rows[1] == {
        "first": 3, "last": 4, "outcome": "different", "update": 4, "quantity": "train/entropy", "reason": "",
    }  # fmt: skip
    replayed(monkeypatch)
    assert hmx("runs", "verify", "corridor", "--replay", "3").exit_code == 5  # nothing was compared


def test_damaged_files_are_not_replayed(hmx: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed(monkeypatch, CHANGED)
    (run / "checkpoints" / "4" / "manifest.json").unlink()
    result = hmx("runs", "verify", "corridor", "--replay", "1", "--json")
    assert result.exit_code == 3
    assert "replay" not in json.loads(result.stdout)


def test_the_seed_of_a_replay_needs_one(hmx: Any, run: Path) -> None:
    result = hmx("runs", "verify", "corridor", "--seed", "3")
    assert result.exit_code == 2
    assert "error: cannot use --seed without --replay" in result.stderr
