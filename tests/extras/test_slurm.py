"""A study and a run of two tasks on a real SLURM: `make test-slurm`, on a machine that is a node of its cluster.

The temporary folder of the tests must be visible to the node, so a cluster of this machine alone is the simplest.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
OF_THE_COURSE = {
    "run",
    "elapsed",
    "wall_time",
    "train/steps_per_sec",
    "train/steps_per_cpu_sec",
}  # of a record: not of the results


@pytest.fixture(autouse=True, scope="module")
def cluster_of_this_machine(pytestconfig: pytest.Config) -> None:
    """Skip unless the tests were asked for and SLURM runs."""
    if not pytestconfig.getoption("--slurm"):
        pytest.skip("needs --slurm (`make test-slurm`)")
    if shutil.which("sinfo") is None or subprocess.run(["sinfo"], capture_output=True).returncode:
        pytest.skip("needs a running SLURM")


@pytest.fixture
def submitted() -> Iterator[list[str]]:
    """A list for the ids of submitted jobs, which are cancelled at the end."""
    jobs: list[str] = []
    yield jobs
    for job in jobs:
        subprocess.run(["scancel", job], check=False)


def call(*command: str, folder: Path | None = None) -> str:
    """Run a command that must succeed, and return its output."""
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def hmx(folder: Path, *words: str) -> str:
    """Run hmx."""
    return call(sys.executable, "-P", "-m", "hmx", *words, folder=folder)


def tasks_of(job: str) -> list[tuple[str, str, str]]:
    """Return id, state and reason of the unfinished tasks of a job."""
    lines = subprocess.run(["squeue", "-h", "-r", "-j", job, "-o", "%i %T %r"], capture_output=True, text=True).stdout
    return [(task, state, reason) for task, state, reason in (line.split(" ", 2) for line in lines.splitlines())]


def start_delayed(job: str) -> int:
    """Start requeued tasks, which SLURM delays by minutes; return their number."""
    delayed = [task for task, state, reason in tasks_of(job) if state == "PENDING" and reason == "BeginTime"]
    for task in delayed:
        subprocess.run(["scontrol", "update", f"JobId={task}", "StartTime=now"], check=False, capture_output=True)
    return len(delayed)


def wait_for(job: str, *, reached: Callable[[], bool] = lambda: False) -> int:
    """Wait until no task of a job is left, or until `reached`; return how often a task was requeued."""
    requeues = 0
    while tasks_of(job) and not reached():
        requeues += start_delayed(job)
        time.sleep(1)
    return requeues


# A study: four trials, two of which continue to the end


def new_study(folder: Path) -> Path:
    """Make a study whose files depend on its settings alone."""
    space = ["--space", "algo.learning_rate=1e-3..1e-2:log"]
    size = ["--preset", "tiny", "--steps", "240k", "--set", "run.checkpoint_every=1", "--set", "run.eval_episodes=0"]
    hmx(folder, "study", "new", "lr", *space, *size, "--trials", "4", "--rungs", "2", "--confirm", "0", "--synchronous")
    return folder / "studies" / "lr"


def decisions(study: Path) -> dict[str, bytes]:
    """Return every proposal, result and promotion of a study, by path."""
    files = [path for path in study.glob("trials/*/*.json") if path.name != "meta.json"]
    return {str(path.relative_to(study)): path.read_bytes() for path in files}


def curve(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run, without times."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key not in OF_THE_COURSE} for record in records]


def assert_same_studies(shaken: Path, calm: Path) -> None:
    """No trial is lost or doubled, and each has the same decisions, results and records."""
    assert decisions(shaken) == decisions(calm)
    names = sorted(path.name for path in (calm / "trials").iterdir())
    assert sorted(path.name for path in (shaken / "trials").iterdir()) == names
    for name in names:
        assert curve(shaken / "trials" / name) == curve(calm / "trials" / name)
        assert not (shaken / "trials" / name / "lock").exists()


@pytest.fixture(scope="module")
def calm_study(cluster_of_this_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study, by one worker that nothing disturbs."""
    folder = tmp_path_factory.mktemp("calm")
    study = new_study(folder)
    hmx(folder, "study", "work", "lr", "--quiet")
    assert len(list(study.glob("trials/*/trial.json"))) == 4
    return study


def start_array(study: Path, *options: str) -> str:
    """Submit two workers; return the id of the job."""
    words = ["study", "work", "lr", "--slurm", "2", "--memory", "1", "--submit", "--json", *options]
    return str(json.loads(hmx(study.parents[1], *words))["answer"].split()[-1])


def trains(study: Path) -> bool:
    """Whether two trials are in the middle of their training."""
    return len(list(study.glob("trials/*/lock"))) == 2 and len(list(study.glob("trials/*/checkpoints/[1-9]*"))) > 1


def requeue(job: str) -> None:
    """Requeue a task: SLURM stops and restarts it."""
    call("scontrol", "requeue", f"{job}_1")


def cancel(job: str) -> None:
    """Cancel a task; the other one remains."""
    call("scancel", f"{job}_1")


def kill_node(job: str) -> None:
    """Kill SLURM's daemon of this node and all that it runs, as a crash does, then start it again."""
    for name in ("slurmd", "slurmstepd"):
        for pid in subprocess.run(["pidof", name], capture_output=True, text=True).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"SLURM_ARRAY_JOB_ID={job}".encode() in environment:
            os.kill(int(place.parent.name), signal.SIGKILL)
    # SLURM itself notices a lost node, but only after minutes.
    node = call("hostname", "-s")
    call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    call("slurmd")
    # Refused if the node has returned by itself, which SLURM's option ReturnToService allows.
    subprocess.run(("scontrol", "update", f"NodeName={node}", "State=RESUME"), capture_output=True)


@pytest.mark.parametrize("disturb", [requeue, cancel, kill_node])
def test_disturbed_study_equals_the_undisturbed_one(
    disturb: Callable[[str], None], calm_study: Path, submitted: list[str], tmp_path: Path
) -> None:
    if disturb is kill_node and os.geteuid() != 0:
        pytest.skip("needs root, to start slurmd")
    study = new_study(tmp_path)
    job = start_array(study)
    submitted.append(job)
    wait_for(job, reached=lambda: trains(study))
    assert trains(study)
    disturb(job)
    wait_for(job)
    assert_same_studies(study, calm_study)


def test_time_limit_in_the_middle_of_trials_requeues_the_workers(
    calm_study: Path, submitted: list[str], tmp_path: Path
) -> None:
    study = new_study(tmp_path)
    job = start_array(study, "--time", "1m")
    submitted.append(job)
    assert wait_for(job) >= 1
    assert_same_studies(study, calm_study)


# A run of two tasks


def parameters(run: Path) -> list[np.ndarray[Any, Any]]:
    """Return all arrays of the last checkpoint."""
    import orbax.checkpoint  # slow, and not needed where the tests are skipped

    newest = max((run / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    return list(jax.tree.leaves(orbax.checkpoint.PyTreeCheckpointer().restore(str(newest / "arrays"))))


def start_run(folder: Path, name: str) -> str:
    """Submit the script of the documentation for two tasks of this machine; return the id of the job."""
    script = (DOCS / "hosts" / "slurm.sh").read_text().replace("name=walk", f"name={name}")
    script = script.replace("--num-envs 2048", "--preset tiny --steps 40k --set run.checkpoint_every=1")
    script = script.replace("srun hmx", f"srun {sys.executable} -P -m hmx")
    (folder / f"{name}.sh").write_text(script)
    size = ["--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=0", "--cpus-per-task=1", "--mem=2G"]
    return call("sbatch", "--parsable", *size, f"{name}.sh", folder=folder)


def test_requeued_run_of_two_tasks_equals_the_undisturbed_one(submitted: list[str], tmp_path: Path) -> None:
    calm, shaken = tmp_path / "runs" / "calm", tmp_path / "runs" / "shaken"
    submitted.append(start_run(tmp_path, "calm"))
    wait_for(submitted[0])
    submitted.append(start_run(tmp_path, "shaken"))
    wait_for(submitted[1], reached=lambda: len(list(shaken.glob("checkpoints/[1-9]*"))) > 1)
    assert tasks_of(submitted[1])
    call("scontrol", "requeue", submitted[1])
    wait_for(submitted[1])
    assert curve(shaken) == curve(calm)
    for mine, other in zip(parameters(shaken), parameters(calm), strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()
    assert len(json.loads((shaken / "meta.json").read_text())["resumes"]) == 1
