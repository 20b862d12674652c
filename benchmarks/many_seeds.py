"""Speed of PPO with many seeds in one program: hmx, changes of it, and peers of the same sizes.

    python benchmarks/many_seeds.py --seeds 1,16,128 --peer rejax --peer purejaxrl --purejaxrl FOLDER
    python benchmarks/many_seeds.py --envs 4,64,1024 --change "ppo.obs_norm=none"

Every number of seeds is measured with every number of environments. A variant trains all seeds of a row in one program
of its own process, `--updates` updates per call; the processes take turns, `--rounds` times. Peers get the sizes of
hmx: environments, steps, epochs, minibatches, and two networks of two layers of 64 tanh units, which `--base` must not
change. The peers, `--peer-python`, `--purejaxrl` and `--stoix` are those of time_to_return.py; Stoix trains one seed.

Printed are environment steps per second of processor time (of the wall clock on an accelerator), over all seeds: the
fastest round, since a busy machine only adds time, and its ratio to the fastest round of hmx. hmx is charged for its
metrics on the host; PureJaxRL is not charged for initialising. Memory is that of the compiled program, per seed.
Compiling counts tracing too, in processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from time_to_return import Worker, add_variants, clones_of, hmx_settings, read_peer

from hmx.config.schema import Config
from hmx.registry.load import load

ENV = "cartpole-discrete"
SIZES = {
    "rejax": ("num_envs", "num_steps", "num_epochs", "num_minibatches"),
    "purejaxrl": ("NUM_ENVS", "NUM_STEPS", "UPDATE_EPOCHS", "NUM_MINIBATCHES"),
    "stoix": ("arch.total_num_envs", "system.rollout_length", "system.epochs", "system.num_minibatches"),
}
"""The names of the sizes in the peers."""
STOIX_NETWORK = {
    f"network.{network}.pre_torso.{name}": value
    for network in ("actor_network", "critic_network")
    for name, value in (("layer_sizes", "[64,64]"), ("activation", "tanh"))
}


def sizes_of(peer: str, cfg: Config) -> dict[str, Any]:
    """Return the sizes of a configuration in the names of a peer."""
    sizes = cfg.env.num_envs, cfg.algo.num_steps, cfg.ppo.update_epochs, cfg.ppo.num_minibatches
    return {**dict(zip(SIZES[peer], sizes, strict=True)), **(STOIX_NETWORK if peer == "stoix" else {})}


def tasks_of(
    args: argparse.Namespace, peers: Mapping[str, tuple[str, dict[str, Any]]], envs: int, seeds: int
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the Python and the task of every variant, by its name."""
    base = f"{args.base} env.num_envs={envs}"
    common = {"env": ENV, "limit": 0, "seconds": 0, "target": 0, "episodes": 0}
    common |= {"folders": clones_of(args), "together": seeds, "updates": args.updates}
    tasks: dict[str, tuple[str, dict[str, Any]]] = {}
    for change in ["", *args.change]:
        task = {"program": "hmx", "settings": hmx_settings(ENV, base, change), **common}
        tasks[change or "hmx"] = sys.executable, task
    cfg = load(environ={}, **hmx_settings(ENV, base, "")).config
    for peer, (name, given) in peers.items():
        settings = {**sizes_of(name, cfg), **given}
        tasks[peer] = args.peer_python, {"program": name, "settings": settings, **common}
    return tasks


def measure(tasks: Mapping[str, tuple[str, dict[str, Any]]], rounds: int) -> Iterator[dict[str, Any]]:
    """Compile all variants, time them in turn, and yield a row for each."""
    speeds: dict[str, list[float]] = {name: [] for name in tasks}
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(python, task)) for name, (python, task) in tasks.items()}
        for _ in range(rounds):
            for name, worker in workers.items():
                cpu, wall, steps = worker.ask("speed")
                speeds[name].append(steps / (cpu if worker.compiled["on_cpu"] else wall))
        best = max(speeds["hmx"])
        for name, worker in workers.items():
            seeds, fastest, compiled = tasks[name][1]["together"], max(speeds[name]), worker.compiled
            row = {"variant": name, "seeds": seeds, "steps_per_sec": fastest, "ratio": fastest / best}
            row |= {"compile_seconds": compiled["cpu"], "bytes_per_seed": compiled["memory"] / seeds}
            yield {**row, "versions": compiled["versions"]}


def line_of(row: Mapping[str, Any]) -> str:
    """Return a row of the table."""
    numbers = f"{row['steps_per_sec']:>11,.0f} {row['ratio']:>6.2f} {row['compile_seconds']:>8.1f}"
    return f"{row['seeds']:>6} {numbers} {row['bytes_per_seed'] / 2**10:>9,.0f}  {row['variant']} ({row['versions']})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,16,128", help="seeds in one program, separated by commas")
    parser.add_argument("--envs", default="16", help="environments of each seed, separated by commas")
    add_variants(parser, "--preset control")
    parser.add_argument("--updates", type=int, default=4, help="updates per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one object per row")
    args = parser.parse_args()
    peers = {peer: read_peer(parser, args, peer, ENV) for peer in args.peer}
    for name, _ in peers.values():
        if name not in SIZES:
            parser.error(f"--peer: expected {' or '.join(SIZES)}, got {name}")
        if name == "stoix" and args.seeds != "1":
            parser.error("Stoix trains one seed in a program: --seeds 1")
    for envs in map(int, args.envs.split(",")):
        for seeds in map(int, args.seeds.split(",")):
            if not args.json:
                print(f"\n{ENV}, {envs} environments per seed, {args.updates} updates, best of {args.rounds} rounds")
                print(f"{'seeds':>6} {'steps/s':>11} {'ratio':>6} {'compile':>8} {'KiB/seed':>9}  variant")
            for row in measure(tasks_of(args, peers, envs, seeds), args.rounds):
                print(json.dumps({"envs": envs, **row}) if args.json else line_of(row), flush=True)


if __name__ == "__main__":
    main()
