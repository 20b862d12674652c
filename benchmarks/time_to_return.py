"""Time of training until the mean return passes a threshold: hmx, changes of it, and peers.

    python benchmarks/time_to_return.py hackmatrix [--change "ppo.update_epochs=2"] [--seeds 5] [--limit 8M]
    python benchmarks/time_to_return.py cartpole-discrete --base "--preset sound" --peer rejax --peer "rejax num_envs=9"
    python benchmarks/time_to_return.py gymnasium/LunarLander-v3 --base "--preset lander" --peer sb3 --limit 1M
    python benchmarks/time_to_return.py gymnax/Acrobot-v1 --target=-100 --to-end --base "--preset control" --peer rejax

Thresholds: +5 on HackMatrix, 475 on cartpole-discrete, -200 on pendulum, 200 on LunarLander-v3; `--target` for others.
A seed has arrived when the mean return of the last episodes, at least `--episodes`, passes the threshold; these are all
that ended in the last few updates. One that does not arrive before its training ends, or within `--limit` steps or
`--seconds`, is reported as such, and medians count it as infinite.

Every variant has its own process, and all take turns with every seed, from seed 0. hmx trains as long as its
configuration says. A peer has the hyperparameters published with it for this environment, unless settings in its own
names follow its name. rejax and Stoix run without their evaluations; PureJaxRL trains to the end, and is charged for
the share of its updates until it arrived. Stable-Baselines3 (sb3) has the hyperparameters of RL Baselines3 Zoo, all
environments in one process as there, and one thread. `--peer-python` is the Python that has the packages of the peers.
PureJaxRL and Stoix need a clone of their repository, `--purejaxrl FOLDER` and `--stoix FOLDER`, and gymnax before 1.0
and distrax; Stoix also stoa-env, flashbax, jumanji, rlax, hydra-core and colorama.

Printed are the median over the seeds of processor seconds, wall seconds and environment steps, how many seeds arrived,
and the ratio of the median seconds to the first variant with a 95 % interval (bootstrap over seeds). These seconds, and
the lowest, highest and those of compiling, are of the processor, including worker processes, or of the wall clock on an
accelerator. Where most seeds of the first variant did not arrive, ratio and interval are bounds: those seeds count with
the seconds after which they were given up.

With `--to-end` a seed continues after it has arrived, and a second table has the mean return of the last episodes of
training, with a 95 % interval over the seeds (Student's t), and the seconds and steps of the whole training. These
episodes have sampled actions, and were played while the policy still changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from time_to_return_published import PUBLISHED
from time_to_return_task import End

from hmx.config.coerce import typed_number
from hmx.stats.intervals import mean_interval

TARGETS = {"hackmatrix": 5.0, "cartpole-discrete": 475.0, "pendulum": -200.0, "gymnasium/LunarLander-v3": 200.0}
SMALL = ("cartpole-discrete", "pendulum")
PEERS = {
    "rejax": (*SMALL, "gymnax/", "brax/", "navix/"),
    "purejaxrl": (*SMALL, "gymnax/", "brax/", "navix/"),
    "stoix": tuple(PUBLISHED["stoix"]),
    "sb3": (*SMALL, "gymnasium/"),
}
"""The environments on which each peer trains; a name that ends with a slash stands for a whole suite."""
CLONES = {"purejaxrl": "purejaxrl/ppo.py", "stoix": "stoix/systems/ppo/anakin/ff_ppo.py"}
"""A script of each peer that is used from a clone of its repository, below the folder of the clone."""


class Worker:
    """A variant in its own process; see time_to_return_worker.py."""

    def __init__(self, python: str, task: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name("time_to_return_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"},
        )
        self.compiled = self.ask(task)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        """End the process: it reads no more."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def ask(self, question: object) -> Any:
        """Send a line and return the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"error: a worker ended with exit status {self.process.wait()}; its message is above")
        return json.loads(answer)


def hmx_settings(env: str, base: str, change: str) -> dict[str, Any]:
    """Combine the preset and settings of `base` with those of `change`."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--preset")
    parser.add_argument("sets", nargs="*")
    given = parser.parse_args(shlex.split(f"{base} {change}"))
    return {"preset": given.preset, "sets": [f"env.id={env}", *given.sets]}


def peer_settings(given: Sequence[str]) -> dict[str, Any]:
    """Read settings KEY=VALUE; a value that is not a Python literal is a text."""
    found: dict[str, Any] = {}
    for setting in given:
        key, _, value = setting.partition("=")
        try:
            found[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[key] = value
    return found


def ratio(first: Sequence[float], other: Sequence[float], spent: Sequence[float] = ()) -> str:
    """Write the ratio of the medians and its bootstrap interval; bounds if most of `first` are infinite.

    Args:
        first: processor seconds of the first variant's seeds until they arrived, infinite for those that did not.
        other: those of another variant.
        spent: those of the first variant's seeds until they arrived or were given up.
    """
    if spent and np.isinf(np.median(first)) and np.isfinite(np.median(other)):
        value, low_high = ratio(spent, other).split(" ", 1)
        return f"< {value}, 95 %: < {low_high.split()[-1].rstrip(']')}"
    if not np.isfinite([np.median(first), np.median(other)]).all():
        return "not known"
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(first), (2, 2000, len(first)))
    medians = [np.median(np.array(values)[rows], axis=1) for values, rows in zip((other, first), draws, strict=True)]
    with np.errstate(invalid="ignore"):
        low, high = np.nanpercentile(medians[0] / medians[1], [2.5, 97.5], method="nearest")
    return f"{np.median(other) / np.median(first):.2f} [{low:.2f}, {high:.2f}]"


def show(found: dict[str, list[End]], compiled: dict[str, Any]) -> None:
    """Print the table; seconds that decide are those of the wall clock on an accelerator."""
    clock, unit = ("cpu", "CPU s") if compiled["default"]["on_cpu"] else ("wall", "wall s")
    heads = f"{'CPU s':>8} {'wall s':>8} {'lowest':>8} {'highest':>8} {'compile':>8} {'steps':>12} {'seeds':>5}"
    print(f"{heads}  {f'ratio of {unit}':<20} variant")
    first = [getattr(end, clock) if end.arrived else math.inf for end in found["default"]]
    for name, ends in found.items():
        reached = [end if end.arrived else End(False, *[math.inf] * 3) for end in ends]
        seconds = [getattr(end, clock) for end in reached]
        spent = [getattr(end, clock) for end in found["default"]]
        against = "1" if name == "default" else ratio(first, seconds, spent)
        times = f"{np.median([end.cpu for end in reached]):>8.2f} {np.median([end.wall for end in reached]):>8.2f}"
        numbers = f"{times} {min(seconds):>8.2f} {max(seconds):>8.2f} {compiled[name][clock]:>8.1f}"
        counts = f"{np.median([end.steps for end in reached]):>12,.0f} {sum(end.arrived for end in ends):>5}"
        print(f"{numbers} {counts}  {against:<20} {name}")


def show_returns(found: dict[str, list[End]], compiled: dict[str, Any]) -> None:
    """Print the returns at the end of training, with the time and the steps until there."""
    clock, unit = ("all_cpu", "CPU s") if compiled["default"]["on_cpu"] else ("all_wall", "wall s")
    print(f"{'return':>9} {'95 %':>20} {'lowest':>9} {unit:>8} {'steps':>12} {'seeds':>5}  variant")
    for name, ends in found.items():
        returns = [end.mean_return for end in ends if not math.isnan(end.mean_return)]
        interval = mean_interval(returns)
        shown = "not known" if interval is None else f"[{interval.low:.2f}, {interval.high:.2f}]"
        numbers = f"{np.mean(returns):>9.2f} {shown:>20} {min(returns):>9.2f}" if returns else f"{'none':>40}"
        seconds, steps = (np.median([getattr(end, field) for end in ends]) for field in (clock, "all_steps"))
        print(f"{numbers} {seconds:>8.1f} {steps:>12,.0f} {len(returns):>5}  {name}")


def add_variants(parser: argparse.ArgumentParser, base: str = "") -> None:
    """Add the options that choose what is measured: `base` is the default of all variants of hmx."""
    parser.add_argument("--base", default=base, help="preset and settings of all variants of hmx")
    parser.add_argument("--change", action="append", default=[], help="settings of one more variant, in quotes")
    parser.add_argument("--peer", action="append", default=[], help=f"{' or '.join(PEERS)}, and settings, in quotes")
    parser.add_argument("--peer-python", default=sys.executable, help="the Python that has the peers' packages")
    for name in CLONES:
        parser.add_argument(f"--{name}", default="", metavar="FOLDER", help=f"a clone of the repository of {name}")


def clones_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the folder that was given for each peer in `CLONES`; empty without one."""
    return {name: getattr(args, name) for name in CLONES}


def read_peer(
    parser: argparse.ArgumentParser, args: argparse.Namespace, peer: str, env: str
) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a peer; end with an error if it is unknown or cannot train on `env`."""
    name, *given = shlex.split(peer)
    if name not in PEERS:
        parser.error(f"--peer: expected {' or '.join(PEERS)}, got {name}")
    if not any(env.startswith(known) if known.endswith("/") else env == known for known in PEERS[name]):
        suites = [f"{known}..." if known.endswith("/") else known for known in PEERS[name]]
        parser.error(f"{name} trains on {', '.join(suites)}, not on {env}")
    if not given and env not in PUBLISHED[name]:
        parser.error(f"{name} publishes no hyperparameters for {env}: add settings in its own names")
    folder = clones_of(args).get(name)
    if folder is not None and not Path(folder, CLONES[name]).is_file():
        parser.error(f"--{name}: expected a folder with {CLONES[name]}, got {folder!r}")
    return name, peer_settings(given)


def measure(
    tasks: Mapping[str, tuple[str, str, dict[str, Any]]], common: Mapping[str, Any], seeds: int
) -> tuple[dict[str, list[End]], dict[str, Any]]:
    """Compile all variants and train their seeds in turn: the ends of the seeds, and what compiling took.

    Args:
        tasks: program, Python and settings of every variant, by its name.
        common: what the tasks of all variants have in common.
        seeds: how many, from 0.
    """
    workers: dict[str, Worker] = {}
    found: dict[str, list[End]] = {name: [] for name in tasks}
    with contextlib.ExitStack() as stack:
        for name, (program, python, settings) in tasks.items():
            task = {"program": program, "settings": settings, **common}
            worker = workers[name] = stack.enter_context(Worker(python, task))
            compiled = worker.compiled
            print(f"{name}: compiled in {compiled['cpu']:.1f} s of processor time, {compiled['versions']}", flush=True)
        for seed in range(seeds):
            for name, worker in workers.items():
                end = End(*worker.ask(seed))
                found[name].append(end)
                how = "" if end.arrived else "given up after "
                times = f"{end.cpu:.1f} s of processor time, {end.wall:.1f} s, {end.steps:,.0f} steps"
                last = f"; at the end {end.mean_return:.4g} after {end.all_cpu:.1f} s" if common["to_end"] else ""
                print(f"seed {seed}, {name}: {how}{times}{last}", flush=True)
    return found, {name: worker.compiled for name, worker in workers.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    add_variants(parser)
    parser.add_argument("--target", type=float)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", default="8M", help="environment steps after which a seed is given up")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which it is given up")
    parser.add_argument("--to-end", action="store_true", help="train every seed to its end, and show the returns there")
    parser.add_argument("--episodes", type=int, default=100, help="episodes that are averaged, at least")
    args = parser.parse_args()
    target = TARGETS.get(args.env) if args.target is None else args.target
    limit = typed_number(args.limit)
    if target is None:
        parser.error(f"{args.env} has no threshold of its own: add --target")
    if not isinstance(limit, int):
        parser.error(f"--limit: expected a number such as 8M, got {args.limit}")
    limits = {"limit": limit, "seconds": args.seconds, "target": target, "episodes": args.episodes}
    common = {"env": args.env, "folders": clones_of(args), "to_end": args.to_end, **limits}
    tasks = {
        change or "default": ("hmx", sys.executable, hmx_settings(args.env, args.base, change))
        for change in ["", *args.change]
    }
    for peer in args.peer:
        name, settings = read_peer(parser, args, peer, args.env)
        tasks[peer] = (name, args.peer_python, settings)
    ends, compiled = measure(tasks, common, args.seeds)
    print(f"\n{args.env} to {target:+g}, mean of at least {args.episodes} episodes, {args.seeds} seeds")
    show(ends, compiled)
    if args.to_end:
        print()
        show_returns(ends, compiled)


if __name__ == "__main__":
    main()
