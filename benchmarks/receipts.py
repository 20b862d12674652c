"""Forge runs so that no checksum shows it, and count how many `hmx runs verify --replay` finds.

    python benchmarks/receipts.py [--tampered 50] [--seed 0] [--keep-folder DIR]

Ten honest runs are made: PPO, Q-learning and Gumbel MuZero on small environments, some of them killed with SIGKILL and
resumed, one with settings changed on the way, one forked. All their stretches are replayed; none may be accused. Then
copies of them are forged in several ways, and every digest that hmx keeps is computed again, so that `hmx runs verify`
alone finds nothing. A forgery counts as found if a replay of all stretches says that one differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from kill_harness import environment, finish, start, wait_for

from hmx.config import codec, fields
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.errors import ExitCode
from hmx.jobs.requests import VerifyRequest
from hmx.jobs.runs import verify
from hmx.records import checkpoints, frozen, jsonl
from hmx.records import meta as metas
from hmx.records.checkpoints import CheckpointInfo
from hmx.records.metrics_table import MEASURED
from hmx.records.paths import CONFIG, META, RunPaths
from hmx.records.verify import RunReplay
from hmx.runs.checkpoint import ARRAYS

UPDATES, BATCH = 24, 32
SMALL = Config(
    run=RunConfig(
        total_steps=UPDATES * BATCH, updates_per_chunk=2, checkpoint_every=2, keep=4, keep_best=0, eval_episodes=0
    ),
    env=EnvConfig(id="corridor", num_envs=4, max_steps=20),
    net=NetConfig(kind="mlp", hidden=(8,)),
    algo=AlgoConfig(num_steps=8),
    ppo=PpoConfig(update_epochs=1, num_minibatches=2),
)
DQN: dict[str, object] = {
    "algo.name": "dqn", "dqn.learn_starts": 64, "dqn.batch_size": 8, "replay.capacity": 256, "ppo.update_epochs": 4,
    "ppo.num_minibatches": 8,
}  # fmt: skip
GUMBEL: dict[str, object] = {"algo.name": "gumbel", "gumbel.num_simulations": 2}
CARTPOLE: dict[str, object] = {"env.id": "cartpole-discrete", "env.max_steps": 100}
RUNS: dict[str, dict[str, object]] = {
    "ppo": {},
    "ppo-killed": {"run.seed": 1},
    "ppo-two-seeds": {"run.num_seeds": 2},
    "ppo-changed": {"run.seed": 3},
    "cartpole": CARTPOLE,
    "cartpole-killed": {**CARTPOLE, "run.seed": 1},
    "dqn": DQN,
    "dqn-killed": {**DQN, "run.seed": 1},
    "gumbel": GUMBEL,
    "fork": {},  # of ppo
}
ALL = VerifyRequest(replay=10**9, seed=0)


def make(name: str, folder: Path, rng: random.Random) -> RunPaths:
    """Train an honest run as its name says."""
    paths = RunPaths(folder / "runs", name)
    values = {"run.name": name, "run.root": str(paths.root), **RUNS[name]}
    (folder / f"{name}.toml").write_text(codec.to_toml(fields.replace(SMALL, values)))
    begin = ["train", "--config", str(folder / f"{name}.toml")]
    if name == "fork":
        begin = ["fork", str(paths.root / "ppo"), "--at", "12", "--name", name, "--set", "algo.learning_rate=0.001"]
    elif name.endswith("changed"):
        finish(start([*begin, "--set", f"run.total_steps={14 * BATCH}"], folder), folder)
        begin = ["resume", str(paths.folder), "--steps", str(UPDATES * BATCH), "--set", "algo.learning_rate=0.002"]
    process = start(begin, folder)
    while name.endswith("killed"):
        wanted = rng.randrange(2, UPDATES)  # killed once this checkpoint is there, or a newer one
        wait_for(process, lambda _: any(int(p.name) >= wanted for p in checkpoints.listing(paths.checkpoints)))  # noqa: B023
        process.kill()
        ended = process.wait() == 0
        begin = ["resume", str(paths.folder)]
        process = start(begin, folder)
        if not ended:
            break
    finish(process, folder)
    return paths


# Forgeries: each changes the files of a run, and says what it has done.


def edit_last_digit(paths: RunPaths, rng: random.Random) -> str:
    """Change one value of one record in its last digit."""
    records = _records(paths)
    record = rng.choice(records)
    names = [name for name, value in record.items() if isinstance(value, float) and name not in MEASURED]
    name = rng.choice(names)
    record[name] = float(np.nextafter(record[name], np.inf))
    _write(paths, records)
    return f"{name} of update {record['update']}"


def raise_returns(paths: RunPaths, rng: random.Random) -> str:
    """Raise every return of the second half."""
    records = _records(paths)
    for record in records[len(records) // 2 :]:
        if "train/mean_episode_return" in record:
            record["train/mean_episode_return"] += 0.1
    _write(paths, records)
    return "returns"


def flip_bit(paths: RunPaths, rng: random.Random) -> str:
    """Change one bit of one array of a checkpoint."""
    folder = rng.choice(checkpoints.listing(paths.checkpoints))
    arrays = _arrays(folder)
    name = rng.choice([name for name, array in arrays.items() if name.startswith("params") and array.size])
    flat = arrays[name].copy()
    flat.reshape(-1).view(np.uint8)[rng.randrange(flat.nbytes // 4) * 4] ^= 1
    _rewrite(folder, {**arrays, name: flat})
    return f"{name} of checkpoint {folder.name}"


def better_network(paths: RunPaths, rng: random.Random) -> str:
    """Replace the parameters of the newest checkpoint by other ones."""
    folder = checkpoints.listing(paths.checkpoints)[-1]
    arrays = _arrays(folder)
    _rewrite(folder, {n: array * 1.01 if n.startswith("params") else array for n, array in arrays.items()})
    return f"parameters of checkpoint {folder.name}"


def learning_rate(paths: RunPaths, rng: random.Random) -> str:
    """Claim another learning rate."""
    return _configure(paths, "algo.learning_rate", float(frozen.read_config(paths).algo.learning_rate * 1.0001))


def seed(paths: RunPaths, rng: random.Random) -> str:
    """Claim another seed, in run.toml and in every record."""
    cfg = frozen.read_config(paths)
    _write(paths, [{**record, "seed": record["seed"] + 7} for record in _records(paths)])
    return _configure(paths, "run.seed", cfg.run.seed + 7)


def cut_short(paths: RunPaths, rng: random.Random) -> str:
    """Remove the newest checkpoint and the records after the one before it, and call the rest a finished run."""
    *_, kept, newest = checkpoints.listing(paths.checkpoints)
    shutil.rmtree(newest)
    update = int(kept.name)
    _write(paths, [record for record in _records(paths) if record["update"] <= update])
    meta = metas.read(paths.meta)
    metas.write(paths.meta, dataclasses.replace(meta, update=update, env_steps=update * BATCH))
    return f"updates after {update}"


def shorter(paths: RunPaths, rng: random.Random) -> str:
    """Cut a run short, and claim that it was planned so, which its schedules deny."""
    return f"{cut_short(paths, rng)}, {_configure(paths, 'run.total_steps', metas.read(paths.meta).env_steps)}"


FORGERIES: tuple[Callable[[RunPaths, random.Random], str], ...] = (
    edit_last_digit, raise_returns, flip_bit, better_network, learning_rate, seed, cut_short, shorter,
)  # fmt: skip


def _records(paths: RunPaths) -> list[dict[str, Any]]:
    return [json.loads(line) for line in paths.metrics.read_text().splitlines()]


def _write(paths: RunPaths, records: list[dict[str, Any]]) -> None:
    paths.metrics.write_text("".join(jsonl.encode(record) + "\n" for record in records))


def _arrays(folder: Path) -> dict[str, Any]:
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as reader:
        return {name: np.asarray(array) for name, array in reader.restore((folder / ARRAYS).absolute()).items()}


def _rewrite(folder: Path, arrays: dict[str, Any]) -> None:
    import orbax.checkpoint as ocp

    shutil.rmtree(folder / ARRAYS)
    with ocp.PyTreeCheckpointer() as writer:
        writer.save((folder / ARRAYS).absolute(), arrays)


def _configure(paths: RunPaths, key: str, value: object) -> str:
    """Change a value of run.toml, and all digests of it."""
    cfg = fields.replace(frozen.read_config(paths), {key: value})
    meta = metas.read(paths.meta)
    text = metas.with_history(codec.to_toml(cfg), meta.resumes)
    digests: dict[str, Any] = {"config_digest": codec.digest(cfg), "shape_digest": codec.shape_digest(cfg)}
    paths.config.write_text(text)
    metas.write(paths.meta, dataclasses.replace(meta, config_sha256=metas.sha256(text), **digests))
    for folder in checkpoints.listing(paths.checkpoints):
        (folder / CONFIG).write_text(text)
        copied = dataclasses.replace(metas.read(folder / META), config_sha256=metas.sha256(text), **digests)
        metas.write(folder / META, copied)
    return f"{key} = {value}"


def reseal(paths: RunPaths) -> None:
    """Compute the digests of every checkpoint again, and its mark of the records."""
    lines = paths.metrics.read_bytes().splitlines(keepends=True)
    for folder in checkpoints.listing(paths.checkpoints):
        manifest = checkpoints.read_manifest(folder)
        part = b"".join(line for line in lines if json.loads(line)["update"] <= manifest.update)
        own = {field.name: getattr(manifest, field.name) for field in dataclasses.fields(CheckpointInfo)}
        meta = metas.read(folder / META)
        own |= {"config_digest": meta.config_digest, "shape_digest": meta.shape_digest}
        with tempfile.TemporaryDirectory() as scratch:
            Path(scratch, "part").write_bytes(part)
            own["metrics"] = jsonl.Marker(Path(scratch, "part")).mark()
        checkpoints.write_manifest(folder, manifest.update, manifest.leaves, CheckpointInfo(**own))


def replayed(paths: RunPaths) -> RunReplay:
    """Replay all stretches of a run whose files look intact."""
    found = verify(paths.folder, ALL)
    assert found.replay is not None, f"the files themselves show it: {found.damage}"
    return found.replay


def main() -> int:
    """Make, forge, replay and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tampered", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep-folder", type=Path, help="where the runs lie and stay; else a temporary folder")
    args = parser.parse_args()
    rng, tally, begun = random.Random(args.seed), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep_folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.update({**environment(folder), "HMX_LOWERED": "1"})
        for name in RUNS:
            replay = replayed(make(name, folder, rng))
            outcomes = Counter(stretch.outcome for stretch in replay.stretches)
            tally["intact runs"] += 1
            tally["intact runs accused"] += "different" in outcomes
            tally["their stretches"] += replay.of
            tally["their stretches that are equal"] += outcomes["equal"]
            print(f"{name:>20}  {dict(outcomes)}", *[s.reason for s in replay.stretches if s.reason], flush=True)
        for number in range(args.tampered):
            forge, name = FORGERIES[number % len(FORGERIES)], list(RUNS)[number % len(RUNS)]
            paths = RunPaths(folder / "forged", f"{number:03}-{name}")
            shutil.copytree(folder / "runs" / name, paths.folder)
            what = forge(paths, rng)
            reseal(paths)
            replay = replayed(paths)
            different = replay.with_outcome("different")
            tally["forged runs"] += 1
            tally["forged runs found"] += bool(different)
            where = f"{different[0].quantity} of update {different[0].update}" if different else f"NOT FOUND: {replay}"
            print(f"{number:>4} {name:>15} {forge.__name__:>15}  {what}: {where}", flush=True)
    for what, count in tally.items():
        print(f"{what:>32} {count:>6}")
    print(f"{'seconds':>32} {time.monotonic() - begun:>6.0f}")
    missed = tally["forged runs"] - tally["forged runs found"] + tally["intact runs accused"]
    return int(ExitCode.CHECK_FAILED if missed else ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
