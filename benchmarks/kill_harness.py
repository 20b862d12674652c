"""Kills training processes at random moments and shows that nothing is lost.

    python benchmarks/kill_harness.py [--kills 100] [--updates 150] [--seed 0] [--env ID] [--fork] [--keep-folder DIR]

An uninterrupted run is the reference. Runs of the same configuration are then killed with SIGKILL again and again, some
at any moment of their life and most while a checkpoint is being written, and resumed each time. After every kill all
checkpoints must be whole, the newest may not be older than before, and only the last line of metrics.jsonl may be torn.
At the end state and metrics must equal those of the reference, bit for bit, without a gap or a duplicate. With
`--fork`, reference and victims are forks of one run that has trained for half of the updates.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.config.codec import to_toml
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.errors import ExitCode
from hmx.records import checkpoints as records
from hmx.records.paths import RunPaths
from hmx.registry.load import load

BATCH = 16  # environment steps of an update
CLOCK = {"run", "elapsed", "wall_time", "train/steps_per_sec", "train/steps_per_cpu_sec"}
_LIFE = 600.0  # seconds a process may take before the harness calls it hung


class Lost(Exception):
    """A violation of the guarantees."""


@dataclasses.dataclass
class Tally:
    """Counts of kills and observations."""

    kills: int = 0
    while_saving: int = 0  # a checkpoint was half-written
    before_checkpoint: int = 0  # there was none yet, and the run started again
    torn_lines: int = 0  # metrics.jsonl ended in the middle of a line
    replayed: int = 0  # updates that had to be done again
    runs: int = 0  # that ended like the reference
    finished_first: int = 0  # processes that ended before they could be killed
    seconds: float = 0.0


def config(root: Path, name: str, updates: int, env: str = "corridor") -> Config:
    """A run of a few milliseconds per update that writes a checkpoint after each; `env` may be a simulator."""
    return Config(
        run=RunConfig(
            name=name,
            root=str(root),
            total_steps=updates * BATCH,
            updates_per_chunk=1,
            checkpoint_every=1,
            keep=2,
            keep_best=1,
            eval_episodes=0,
        ),
        env=EnvConfig(id=env, num_envs=4, max_steps=20 if env == "corridor" else 0),
        net=NetConfig(kind="mlp", hidden=(8,)),
        algo=AlgoConfig(num_steps=4),
        ppo=PpoConfig(update_epochs=1, num_minibatches=2),
    )


def environment(folder: Path) -> dict[str, str]:
    """That of the child processes: one processor, and compiled programs kept between them."""
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(folder / "jax")
    own = {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "NO_COLOR": "1",
    }
    return {**os.environ, **own}


def start(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """A separate process, with its output in a file."""
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "hmx", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment(folder),
        )


def finish(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Waits for a successful end."""
    if process.wait(_LIFE) != 0:
        said = (folder / "output.txt").read_text(errors="replace")[-2000:]
        raise Lost(f"a process ended with exit code {process.returncode}:\n{said}")


def kill(process: subprocess.Popen[bytes], paths: RunPaths, rng: random.Random, life: float) -> bool:
    """Kills a process at a random moment; False if it ended before.

    Three times out of four the moment is a little after a folder of an unfinished checkpoint has been seen, once enough
    have been written; otherwise it is any moment of a life of `life` seconds.
    """
    if rng.random() < 0.25:
        moment = rng.uniform(0, life)
        wait_for(process, lambda elapsed: elapsed >= moment)
    else:
        left, seen = rng.randrange(1, 12), ""

        def written(elapsed: float) -> bool:
            nonlocal left, seen
            now = next((p.name for p in half_written(paths, process.pid)), "")
            if now and now != seen:
                left, seen = left - 1, now
            return left <= 0

        wait_for(process, written)
        time.sleep(rng.uniform(0, 0.08))
    process.kill()
    return process.wait() < 0


def half_written(paths: RunPaths, pid: int) -> list[Path]:
    """The unfinished checkpoints of a process, without those of earlier killed processes."""
    return list(paths.checkpoints.glob(f".tmp-*-{pid}"))


def wait_for(process: subprocess.Popen[bytes], condition: Any) -> None:
    """Until the condition holds or the process has ended."""
    begun = time.monotonic()
    while process.poll() is None and not condition(time.monotonic() - begun):
        if time.monotonic() - begun > _LIFE:
            process.kill()
            raise Lost("a process hangs")
        time.sleep(0.001)


def examine(paths: RunPaths, pid: int, newest_before: int, tally: Tally) -> int:
    """Checks the files of a killed process; returns the newest update with a complete checkpoint, -1 for none."""
    tally.while_saving += bool(half_written(paths, pid))
    folders = records.listing(paths.checkpoints)
    broken = {path.name: found for path in folders if (found := records.faults(path))}
    if broken:
        raise Lost(f"a checkpoint with its name is not whole: {broken}")
    newest = int(folders[-1].name) if folders else -1
    if newest < newest_before:
        raise Lost(f"the newest checkpoint was {newest_before} and is now {newest}")
    if not paths.metrics.exists():
        return newest
    *whole, last = paths.metrics.read_bytes().split(b"\n")
    tally.torn_lines += bool(last)
    updates = [json.loads(line)["update"] for line in whole]
    if updates != list(range(1, len(updates) + 1)):
        raise Lost(f"metrics.jsonl has a gap or a duplicate: {updates}")
    if newest > len(updates):
        raise Lost(f"checkpoint {newest}, but metrics only up to update {len(updates)}")
    tally.replayed += len(updates) - max(newest, 0)
    return newest


def state_of(paths: RunPaths) -> dict[str, Any]:
    """The arrays of the newest checkpoint."""
    from hmx.runs.checkpoint import to_host
    from hmx.runs.restoring import restore
    from hmx.runs.session import open_session

    return to_host(restore(open_session(load(file=paths.config, environ={}).config), paths).state)


def metrics_of(paths: RunPaths) -> list[dict[str, Any]]:
    """The records, without what depends on the clock."""
    lines = paths.metrics.read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCK} for line in lines]


def compare(paths: RunPaths, state: Mapping[str, Any], metrics: list[dict[str, Any]]) -> None:
    """Raises `Lost` unless a finished run equals the reference."""
    found = state_of(paths)
    if list(found) != list(state):
        raise Lost("the states have different leaves")
    if different := [name for name in state if found[name].tobytes() != state[name].tobytes()]:
        raise Lost(f"{paths.folder} ends in another state: {different}")
    if metrics_of(paths) != metrics:
        raise Lost(f"{paths.folder} has other metrics than the reference")


def beginning(cfg: Config, folder: Path, parent: RunPaths | None) -> list[str]:
    """Return the command that starts a run: training, or a fork of `parent` with the same number of updates."""
    if parent:
        every = f"run.checkpoint_every={cfg.run.checkpoint_every}"
        steps = ["--steps", str(cfg.run.total_steps), "--set", every]
        return ["fork", str(parent.folder), "--name", cfg.run.name, *steps, "--trust-env"]
    (folder / f"{cfg.run.name}.toml").write_text(to_toml(cfg))
    return ["train", "--config", str(folder / f"{cfg.run.name}.toml"), "--force", "--trust-env"]


def torment(
    cfg: Config, folder: Path, kills: int, rng: random.Random, tally: Tally, parent: RunPaths | None
) -> RunPaths:
    """One run from its start to its end, killed on the way as often as `kills` allows."""
    paths, updates = RunPaths(folder / "runs", cfg.run.name), cfg.run.total_steps // BATCH
    begin = beginning(cfg, folder, parent)
    arguments, newest, life = begin, -1, 8.0
    while tally.kills < kills:
        begun = time.monotonic()
        process = start(arguments, folder)
        try:
            if not kill(process, paths, rng, life):
                tally.finished_first += 1
                finish(process, folder)
                return paths
        finally:
            process.kill()
            process.wait()
        life = 0.7 * life + 0.3 * (time.monotonic() - begun) * 1.2
        tally.kills += 1
        newest = examine(paths, process.pid, newest, tally)
        if newest == updates:  # killed on its way out: there is nothing left to resume
            return paths
        if newest < 0:
            tally.before_checkpoint += 1
        arguments = begin if newest < 0 else ["resume", str(paths.folder), "--trust-env"]
    finish(start(arguments, folder), folder)
    return paths


def harness(
    folder: Path, kills: int, updates: int, seed: int = 0, env: str = "corridor", *, fork: bool = False
) -> Tally:
    """Runs all kills below `folder`.

    Raises:
        Lost: data was lost.
    """
    rng, tally, begun = random.Random(seed), Tally(), time.monotonic()
    root, parent = folder / "runs", None
    if fork:
        parent = RunPaths(root, "parent")
        finish(start(beginning(config(root, "parent", updates // 2, env), folder, None), folder), folder)
    reference, whole = RunPaths(root, "reference"), config(root, "reference", updates, env)
    whole = dataclasses.replace(whole, run=dataclasses.replace(whole.run, checkpoint_every=10**6))
    finish(start(beginning(whole, folder, parent), folder), folder)
    state, metrics = state_of(reference), metrics_of(reference)
    if [record["update"] for record in metrics] != list(range(1, updates + 1)):
        raise Lost("the reference itself is not complete")
    while tally.kills < kills:
        victim = config(root, f"victim-{tally.runs + 1}", updates, env)
        paths = torment(victim, folder, kills, rng, tally, parent)
        compare(paths, state, metrics)
        tally.runs += 1
    tally.seconds = time.monotonic() - begun
    return tally


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--env", default="corridor", help="the environment, which may be a simulator")
    parser.add_argument("--fork", action="store_true", help="kill forks of a run that has done half of the updates")
    parser.add_argument("--keep-folder", type=Path, help="where the runs lie and stay; else a temporary folder")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = args.keep_folder or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            tally = harness(folder, args.kills, args.updates, args.seed, args.env, fork=args.fork)
    except Lost as lost:
        print(f"LOST: {lost}")
        return int(ExitCode.CHECK_FAILED)
    for field in dataclasses.fields(tally):
        print(f"{field.name:>20} {getattr(tally, field.name):>10,.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
