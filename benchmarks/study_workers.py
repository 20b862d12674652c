"""Studies under many workers: whether kills change anything, and what sharing programs saves.

    python benchmarks/study_workers.py kills --workers 40 --trials 200 --every 2
    python benchmarks/study_workers.py speed --preset control --trials 8

`kills` starts workers on a study of tiny trials, kills one with SIGKILL at regular times and starts another in its
place. In the end the study must equal one that a single worker did undisturbed: the same decisions and results, byte
for byte, and the same final parameters. `speed` compares the processor time of one worker with that of one process of
`hmx train` per trial; both find their programs in the compilation cache.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from hmx.records.frozen import read_config
from hmx.study.folder import read_study
from hmx.study.verify import verify_study
from hmx.study.worker import work

HMX = [sys.executable, "-m", "hmx"]
TINY = [
    "--env", "corridor", "--num-envs", "4", "--steps", "288", "--set", "env.max_steps=20", "--set", "net.hidden=8",
    "--set", "net.kind=mlp", "--set", "algo.num_steps=8", "--set", "ppo.update_epochs=1", "--set",
    "ppo.num_minibatches=2", "--set", "run.updates_per_chunk=2", "--set", "run.checkpoint_every=1",
]  # fmt: skip


def new(folder: Path, trials: int, *options: str) -> None:
    """Make a study that varies the learning rate."""
    space = ["--space", "algo.learning_rate=1e-4..1e-1:log", "--trials", str(trials), "--sampler", "random"]
    subprocess.run([*HMX, "study", "new", str(folder), *space, *options], check=True)


def cpu() -> float:
    """Return the processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start(folder: Path) -> int:
    """Start a worker and return the id of its process.

    It is a copy of this process, which has imported everything and has not started JAX's backend. So a start costs
    tracing and reading the compiled program, and no imports.
    """
    process = os.fork()
    if process:
        return process
    try:
        work(folder)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ended(process: int, *, wait: bool = False) -> int | None:
    """Return the exit code of a worker, negative if a signal ended it; None while it runs."""
    there, status = os.waitpid(process, 0 if wait else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if there else None


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of every decision and result by path, and of the last state of every run by its name."""
    from hmx.runs.checkpoint import to_host
    from hmx.runs.programs import Programs
    from hmx.runs.restoring import restore
    from hmx.runs.session import open_session

    decided = [path for path in folder.rglob("*.json") if path.name.startswith(("trial", "rung", "promote", "confirm"))]
    paths = [*decided, *folder.glob("study.*.toml")]
    found = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    programs, study = Programs(), read_study(folder)
    for run in (*(trial.paths for trial in study.trials), *(one.paths for one in study.confirmations)):
        state = restore(open_session(read_config(run), run, programs=programs), run).state
        data = b"".join(leaf.tobytes() for leaf in to_host(state).values())
        found[f"{run.root.name}/{run.name}"] = hashlib.sha256(data).hexdigest()
    return found


def disturb(folder: Path, workers: int, every: float) -> int:
    """Work on a study until its end; kill a worker at regular times and start another. Return the number of kills."""
    running = [start(folder) for _ in range(workers)]
    try:
        killed = kill_until_one_ends(folder, running, every)
        while running:
            remove_ended(running)
            time.sleep(0.1)
    finally:
        for process in running:
            os.kill(process, signal.SIGKILL)
            ended(process, wait=True)
    return killed


def kill_until_one_ends(folder: Path, running: list[int], every: float) -> int:
    """Kill and replace workers at random until one has found nothing left to do; return the number of kills."""
    generator, killed, begun = random.Random(0), 0, time.monotonic()
    while True:
        time.sleep(max(0.0, begun + (killed + 1) * every - time.monotonic()))
        if remove_ended(running):
            return killed
        victim = generator.choice(running)
        os.kill(victim, signal.SIGKILL)
        ended(victim, wait=True)
        running[running.index(victim)] = start(folder)
        killed += 1
        if killed % 20 == 0:
            study = read_study(folder)
            results = sum(len(trial.rungs) for trial in study.trials)
            print(f"{time.monotonic() - begun:.0f} s: {killed} killed, {results} results of {len(study.trials)} trials")


def remove_ended(running: list[int]) -> bool:
    """Remove the workers that have ended from the list; return whether there were any, and stop if one has failed."""
    codes = {process: ended(process) for process in running}
    running[:] = [process for process in running if codes[process] is None]
    if any(codes.values()):
        raise SystemExit("a worker failed")
    return any(code is not None for code in codes.values())


def kills(workers: int, trials: int, every: float) -> None:
    """Compare a study under kills with an undisturbed one."""
    metric = ["--metric", "train/entropy", "--minimize", "--confirm", "2", "--synchronous", "--rungs", "2"]
    metric += ["--max-kills", "0"]  # a kill every few seconds may hit the same trial often
    with tempfile.TemporaryDirectory(prefix="hmx-kills-") as scratch:
        calm, torn = Path(scratch, "calm", "s"), Path(scratch, "torn", "s")
        for folder in (calm, torn):
            new(folder, trials, *metric, *TINY)
        before = cpu()
        if ended(start(calm), wait=True):
            raise SystemExit("the undisturbed worker failed")
        undisturbed, begun = cpu() - before, time.monotonic()
        killed = disturb(torn, workers, every)
        seconds, disturbed = time.monotonic() - begun, cpu() - before - undisturbed
        study, differences = read_study(torn), verify_study(torn).differences
        numbers = [trial.number for trial in study.trials]
        print(f"{workers} workers, {killed} killed in {seconds:.0f} s: {len(numbers)} trials")
        print(f"{undisturbed:.0f} s of processor time with one worker, {disturbed:.0f} s with kills")
        if numbers != list(range(1, trials + 1)):
            raise SystemExit(f"trials are lost or doubled: {numbers}")
        if differences:
            raise SystemExit(f"the study does not match its record: {differences[:5]}")
        one, other = contents(calm), contents(torn)
        unlike = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
        if unlike:
            raise SystemExit(f"{len(unlike)} of {len(one)} decisions, results and states differ: {sorted(unlike)[:5]}")
        print(f"all {len(one)} decisions, results and last states equal those of the undisturbed study")


def speed(preset: str, steps: int, trials: int) -> None:
    """Compare one worker with one process per trial, in turn."""
    with tempfile.TemporaryDirectory(prefix="hmx-speed-") as scratch:
        given = ["--preset", preset, "--steps", str(steps), "--confirm", "0", "--rungs", "1"]
        warm, folder = Path(scratch, "warm"), Path(scratch, "s")
        new(warm, 1, *given)
        subprocess.run([*HMX, "study", "work", str(warm), "--quiet"], check=True)
        new(folder, trials, *given)
        before = cpu()
        subprocess.run([*HMX, "study", "work", str(folder), "--quiet"], check=True)
        worker = cpu() - before
        before = cpu()
        for trial in read_study(folder).trials:
            config = ["--config", str(trial.folder / "run.toml"), "--set", f"run.root={scratch}/single"]
            subprocess.run([*HMX, "train", *config, "--quiet", "--name", trial.folder.name], check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
        single = cpu() - before
    print(f"{preset}, {trials} trials of {steps:,} steps: {worker / trials:.2f} s of processor time per trial with one")
    print(
        f"worker, {single / trials:.2f} s with a process per trial: {single / worker:.1f} times as many trials per hour"
    )


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kills", "speed"))
    parser.add_argument("--workers", type=int, default=40)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two kills")
    parser.add_argument("--preset", default="control")
    parser.add_argument("--steps", type=int, default=65_536)
    options = parser.parse_args()
    if options.what == "kills":
        kills(options.workers, options.trials, options.every)
    else:
        speed(options.preset, options.steps, options.trials)


if __name__ == "__main__":
    main()
