"""Runs of several processes, as they are on several hosts: here all on one, connected over loopback."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hmx.errors import ExitCode

CLOCK = {"run", "elapsed", "wall_time", "train/steps_per_sec", "train/steps_per_cpu_sec"}
DOCS = Path(__file__).parents[2] / "docs" / "hosts"
STEPS = 96  # of an update
SMALL = [
    *("--env", "corridor", "--num-envs", "12", "--eval-episodes", "0", "--seed", "3"),
    *("--set", "algo.num_steps=8", "--set", "ppo.num_minibatches=2", "--set", "ppo.update_epochs=2"),
    *("--set", "net.hidden=[8]", "--set", "run.updates_per_chunk=2", "--set", "algo.lr_schedule=constant"),
    *("--set", "run.checkpoint_every=1", "--set", "run.keep=3"),
]


class Processes:
    """All processes of a run; what they print lies in files of `folder`."""

    def __init__(self, folder: Path, count: int, *words: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        place = ["--distributed", "--coordinator", f"127.0.0.1:{port}", "--num-processes", str(count)]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": "cpu"}
        self.files = [(folder / f"out{index}", folder / f"err{index}") for index in range(count)]
        self.all = []
        for index, (out, err) in enumerate(self.files):
            command = [sys.executable, "-m", "hmx", *words, *place, "--process-id", str(index)]
            with out.open("w") as stdout, err.open("w") as stderr:
                self.all.append(subprocess.Popen(command, cwd=folder, env=env, stdout=stdout, stderr=stderr))

    def wait(self) -> list[int]:
        return [process.wait() for process in self.all]

    def out(self, index: int) -> str:
        return self.files[index][0].read_text()

    def err(self, index: int) -> str:
        lines = self.files[index][1].read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith("[Gloo]"))


@contextlib.contextmanager
def started(folder: Path, count: int, *words: str) -> Iterator[Processes]:
    processes = Processes(folder, count, *words)
    try:
        yield processes
    finally:
        for process in processes.all:
            process.kill()
            process.wait()


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [{k: v for k, v in one.items() if k not in CLOCK and not k.startswith("eval/")} for one in found]


def assert_same(run: Path, reference: Path) -> None:
    ours, theirs = records(run), records(reference)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        assert one == pytest.approx(other, rel=1e-5, abs=1e-5)


def newest(run: Path) -> int:
    """The update of the newest checkpoint; 0 without any."""
    return max((int(path.name) for path in (run / "checkpoints").glob("[1-9]*")), default=0)


def until_saved(run: Path, after: int = 0) -> None:
    while newest(run) <= after:
        time.sleep(0.1)


@pytest.mark.slow
def test_processes_train_as_one_until_a_signal_then_three_until_one_is_lost_and_then_one_alone(hmx, tmp_path):
    run = tmp_path / "runs" / "hurt"
    evaluating = ["--eval-episodes", "8", "--set", "run.evaluations=1000", "--json"]
    endless = [*SMALL, *evaluating, "--steps", str(1000 * STEPS)]
    with started(tmp_path, 2, "train", "--name", "hurt", *endless) as processes:
        until_saved(run, after=1)
        processes.all[1].send_signal(signal.SIGTERM)  # to one of them
        assert processes.wait() == [ExitCode.SIGTERM] * 2, processes.err(0) + processes.err(1)
    assert "stopped: after update" in processes.err(0)
    lines = [json.loads(line) for line in processes.out(0).splitlines()]  # nothing else on stdout
    meta = json.loads((run / "meta.json").read_text())
    assert [line["event"] for line in lines] == ["start", *["update"] * meta["update"], "result"]
    assert all("eval/return" in line for line in lines[1:-1])
    assert lines[-1]["state"] == meta["state"] == "interrupted"
    assert lines[-1]["device"] == "cpu (2 of 2, 2 processes)"
    assert len(records(run)) == meta["update"] == newest(run)
    assert processes.out(1) == processes.err(1) == "", "one process writes"
    with started(tmp_path, 3, "resume", "hurt", "--set", "run.eval_episodes=0") as processes:
        until_saved(run, after=newest(run))
        processes.all[1].kill()
        assert processes.wait() == [ExitCode.UNEXPECTED, -signal.SIGKILL, ExitCode.UNEXPECTED]
    said = processes.err(0)
    assert "error: lost process 1 on " in said and "Traceback" not in said
    assert "hmx resume hurt --distributed" in said
    assert json.loads((run / "meta.json").read_text())["state"] == "failed"
    # a single process can resume the run
    steps = str((newest(run) + 2) * STEPS)
    assert hmx("resume", "hurt", "--steps", steps).exit_code == 0
    assert hmx("train", "--name", "whole", *SMALL, "--steps", steps).exit_code == 0
    assert_same(run, tmp_path / "runs" / "whole")


@pytest.mark.thorough
@pytest.mark.slow
def test_loss_of_process_0_is_reported_and_ends_the_others(tmp_path):
    run = tmp_path / "runs" / "headless"
    with started(tmp_path, 2, "train", "--name", "headless", *SMALL, "--steps", str(1000 * STEPS)) as processes:
        until_saved(run)
        processes.all[0].kill()
        assert processes.wait() == [-signal.SIGKILL, ExitCode.UNEXPECTED]
    assert "error: lost process 0 on " in processes.err(1)
    assert "hmx resume headless --distributed" in processes.err(1)


@pytest.mark.slow
def test_processes_with_different_options_report_the_differences(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": "cpu"}
    place = ["--distributed", "--coordinator", f"127.0.0.1:{port}", "--num-processes", "2"]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "hmx", "train", "--seed", str(index), *place, "--process-id", str(index)],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for index in range(2)
    ]  # fmt: skip
    for process in both:
        said = process.communicate()[1]
        assert process.returncode == ExitCode.USAGE, said
        assert "was started with other options than process 0:" in said
        assert "run.seed: 1 instead of 0" in said
    assert not (tmp_path / "runs").exists()


def test_distributed_run_of_one_process_equals_a_plain_run(hmx, tmp_path):
    words = [*SMALL, "--steps", str(2 * STEPS)]
    assert hmx("train", "--name", "plain", *words).exit_code == 0
    assert hmx("train", "--name", "one", *words, "--distributed", "--num-processes", "1").exit_code == 0
    assert records(tmp_path / "runs" / "plain") == records(tmp_path / "runs" / "one")


def test_parts_of_the_kubernetes_job_match():
    yaml = pytest.importorskip("yaml")
    service, job, claim = yaml.safe_load_all((DOCS / "kubernetes.yaml").read_text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    name = job["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    script = pod["containers"][0]["command"][-1]
    assert f"--coordinator {name}-0.{pod['subdomain']}:29400 --num-processes {spec['completions']} " in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize(("saved", "said"), [(False, "train --name walk --force"), (True, "resume walk --distributed")])
def test_slurm_script_trains_or_resumes(tmp_path, saved, said):
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    if saved:
        (tmp_path / "runs" / "walk" / "checkpoints" / "40").mkdir(parents=True)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", DOCS / "slurm.sh"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"hmx {said}") and "--distributed" in done.stdout


def test_dry_run_does_not_connect(hmx):
    place = ["--distributed", "--coordinator", "nowhere:1", "--process-id", "1"]
    result = hmx("train", "--dry-run", "--json", *SMALL, *place)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["config"]["run"]["devices"] == 0
