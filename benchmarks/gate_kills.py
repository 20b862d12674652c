"""Kill a campaign of `hmx gate` at random moments, and compare its ledger with that of an undisturbed one.

    python benchmarks/gate_kills.py [--kills 20] [--seed 0] [--keep-folder DIR]

A campaign tries `EDITS` on a tiny environment, where all kinds of verdicts occur. It runs once undisturbed. The second
time its process is killed with SIGKILL, half of the times at any moment, half of the times up to 50 ms after a new file
of the ledger has been seen, and started again. In the end, the files of the ledger must equal those of the first
campaign byte for byte, and the last states of all runs bit for bit. `hmx gate verify` must find nothing in either.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from gate_edits import campaign
from study_workers import ended

import hmx
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.errors import ExitCode
from hmx.gates.records import RUNS, find_gate
from hmx.gates.worker import same_states
from hmx.records import checkpoints
from hmx.records.paths import RunPaths

BASELINE = Config(
    run=RunConfig(total_steps=48 * 32, updates_per_chunk=4, checkpoint_every=8, keep=2, keep_best=0, eval_episodes=0),
    env=EnvConfig(id="corridor", num_envs=4, max_steps=20),
    net=NetConfig(kind="mlp", hidden=(8,)),
    algo=AlgoConfig(num_steps=8, learning_rate=1e-6, max_grad_norm=1e6),
    ppo=PpoConfig(update_epochs=1, num_minibatches=2),
)
EDITS: tuple[Mapping[str, object], ...] = (
    {"algo.learning_rate": 1e-6},  # same
    {"algo.learning_rate": 0.02},  # keep
    {"algo.learning_rate": 1e-6},  # worse
    {"algo.max_grad_norm": 1e7},  # same results
    {"algo.gamma": 0.98},
    {"algo.learning_rate": 1e30},  # failed
    {"ppo.update_epochs": 4},
    {"ppo.ent_coef": 0.0},
)
OPTIONS = {"max_seeds": 12, "error": 0.5, "attempts": 1}  # much may be staked, so that few pairs decide
LIFE = 300.0  # seconds after which a process counts as hung


class Unequal(Exception):
    """A kill has changed something."""


def start(place: Path) -> int:
    """Start a process that continues the campaign: a copy of this one, which has not started JAX's backend."""
    process = os.fork()
    if process:
        return process
    try:
        campaign(place, BASELINE, EDITS, **OPTIONS)
    finally:
        os._exit(int(sys.exc_info()[0] is not None))


def ledger(place: Path) -> dict[str, bytes]:
    """Return the files of a gate by path, without those of the runs."""
    try:
        paths = [path for path in place.rglob("*") if path.is_file() and RUNS not in path.relative_to(place).parts]
        return {str(path.relative_to(place)): path.read_bytes() for path in paths}
    except FileNotFoundError:  # a file was renamed in between
        return ledger(place)


def runs_of(place: Path) -> dict[str, RunPaths]:
    """Return the runs of a gate by path."""
    found = (run for one in find_gate(place).attempts for run in one.run(0).root.glob("[0-9]*"))
    return {str(run.relative_to(place)): RunPaths(run.parent, run.name) for run in found}


def kill(process: int, place: Path, rng: random.Random, mean: float) -> bool:
    """Kill a process at a random moment of a life of about `mean` seconds; False if it ended before."""
    begun, left, known = time.monotonic(), rng.randrange(1, 4), set(ledger(place))
    moment = rng.uniform(0, 2 * mean) if rng.random() < 0.5 else None
    while (code := ended(process)) is None:
        elapsed = time.monotonic() - begun
        now = set(ledger(place))
        left, known = left - (len(now - known) > 0), now
        if elapsed > LIFE or (elapsed >= moment if moment is not None else left <= 0):
            time.sleep(rng.uniform(0, 0.05) if moment is None else 0)
            break
        time.sleep(0.002)
    if code is None:
        os.kill(process, 9)
        code = ended(process, wait=True)
    if code not in (0, -9):
        raise Unequal(f"the process ended with exit code {code}")
    return code == -9


def where(place: Path) -> str:
    """Name the moment at which a process was killed, as the files of its gate show it."""
    try:
        now = find_gate(place)
    except hmx.HmxError:
        return "before the gate was there"
    unfinished = [path for path in place.rglob("*") if path.name.startswith(".tmp")]
    if now.open is None:
        return "between two attempts"
    return "in an attempt, a file or checkpoint half-written" if unfinished else "in an attempt"


def harness(folder: Path, kills: int, seed: int = 0) -> Counter[str]:
    """Run both campaigns below `folder`, and return what was counted.

    Raises:
        Unequal: the ledger, a state or a verification is different.
    """
    place, calm, tally, rng = folder / "gate", folder / "calm", Counter[str](), random.Random(seed)
    begun = time.monotonic()
    if ended(start(place), wait=True):
        raise Unequal("the undisturbed campaign failed")
    seconds = time.monotonic() - begun
    place.rename(calm)  # both have the same path, which the verdict of a candidate that fails quotes
    while tally["kills"] < kills and kill(start(place), place, rng, seconds / kills):
        tally["kills"] += 1
        tally[where(place)] += 1
    if ended(start(place), wait=True):
        raise Unequal("the killed campaign does not continue")
    compare(calm, place, tally)
    for gate in (calm, place):
        if found := hmx.verify_gate(gate).differences:
            raise Unequal(f"{gate} does not match its record: {found[:3]}")
    for attempt in hmx.gate_status(place).attempts:
        tally[f"verdicts: {attempt.verdict}"] += 1
        tally["pairs"] += attempt.pairs
    tally["seconds, undisturbed"] = round(seconds)
    return tally


def compare(calm: Path, torn: Path, tally: Counter[str]) -> None:
    """Compare the files of two ledgers, and the last states of their runs."""
    one, other = ledger(calm), ledger(torn)
    if different := sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name)):
        raise Unequal(f"{len(different)} files of {len(one)} differ: {different[:5]}")
    runs, again = runs_of(calm), runs_of(torn)
    if runs.keys() != again.keys():
        raise Unequal(f"the runs differ: {sorted(runs.keys() ^ again.keys())}")
    failed = [name for name, run in runs.items() if not checkpoints.listing(run.checkpoints)]
    if different := [name for name in runs if name not in failed and not same_states(runs[name], again[name])]:
        raise Unequal(f"the last states of {len(different)} runs of {len(runs)} differ: {different[:5]}")
    tally |= {"files of the ledger that are equal": len(one), "last states that are equal": len(runs) - len(failed)}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep-folder", type=Path, help="where the gates lie and stay; else a temporary folder")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            tally = harness(args.keep_folder or Path(scratch), args.kills, args.seed)
    except Unequal as problem:
        print(f"UNEQUAL: {problem}")
        return int(ExitCode.CHECK_FAILED)
    for what, count in tally.items():
        print(f"{what:>50} {count:>6}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
