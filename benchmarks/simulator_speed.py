"""Speed of PPO on simulators of Gymnasium: hmx, Stable-Baselines3 and CleanRL, and the simulators alone.

    python benchmarks/simulator_speed.py [ENV ...] [--rounds 3] [--python PYTHON] [--cleanrl FOLDER]

Every variant trains with 8 environments, updates of 8 x 128 steps, 4 epochs of 4 minibatches, and two hidden layers of
64 units for policy and value each. `hmx` has as many workers as cores, and `hmx, 8 workers` one process per environment
as SB3's SubprocVecEnv. `random actions` steps Gymnasium's AsyncVectorEnv without a policy, and so is the bound of
trainers with a process per environment. CleanRL steps its environments in its own process.

Each variant runs in a process of its own, twice per round: with `--short` steps (four times as many for hmx and random
actions, which are faster) and with four times that. The speed is the difference of steps over that of seconds, so that
imports, compiling and the end of a run do not count. Variants take turns; printed are medians over the rounds of steps
per second, on the wall clock and of processor time with all worker processes, and the speed of hmx over theirs.

`--python` is the Python that has stable-baselines3 and the packages of the environments, by default this one. Peers use
one thread for PyTorch, which is faster for networks of this size. `--cleanrl` is a clone of CleanRL's repository; a
variant that fails, as CleanRL's continuous PPO with Gymnasium 1.0, is left out with its error.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

ENVS, STEPS, EPOCHS, MINIBATCHES = 8, 128, 4, 4
DEFAULT = ("CartPole-v1", "LunarLander-v3", "HalfCheetah-v5")
CONTINUOUS = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Swimmer", "Pendulum", "BipedalWalker")


class Seconds(NamedTuple):
    """The time that a process took, with its children."""

    wall: float
    cpu: float


def play_random(env_id: str, steps: int) -> None:
    """Step environments in processes of their own with random actions."""
    import gymnasium

    envs = gymnasium.make_vec(env_id, num_envs=ENVS, vectorization_mode="async")
    envs.reset(seed=0)
    for _ in range(steps // ENVS):
        envs.step(envs.action_space.sample())
    envs.close()


def play_sb3(env_id: str, steps: int) -> None:
    """Train PPO of Stable-Baselines3."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import SubprocVecEnv

    envs = make_vec_env(env_id, n_envs=ENVS, seed=0, vec_env_cls=SubprocVecEnv)
    sizes = {"n_steps": STEPS, "batch_size": ENVS * STEPS // MINIBATCHES, "n_epochs": EPOCHS}
    PPO("MlpPolicy", envs, seed=0, device="cpu", **sizes).learn(steps)
    envs.close()


PLAYS: Mapping[str, Callable[[str, int], None]] = {"random": play_random, "sb3": play_sb3}


def hmx_command(python: str, env_id: str, steps: int, root: str, workers: int) -> list[str]:
    """Return the command of a training of hmx."""
    sets = {
        "run.root": root,
        "env.num_workers": workers,
        "algo.num_steps": STEPS,
        "ppo.update_epochs": EPOCHS,
        "ppo.num_minibatches": MINIBATCHES,
        "net.hidden": "64,64",
        "net.activation": "tanh",
        "net.shared_torso": "false",
    }
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    sizes = ["--steps", str(steps), "--num-envs", str(ENVS), "--eval-episodes", "0"]
    return [python, "-m", "hmx", "train", "--env", f"gymnasium/{env_id}", *sizes, *words]


def cleanrl_command(python: str, folder: Path, env_id: str, steps: int) -> list[str]:
    """Return the command of a training of CleanRL."""
    file = "ppo_continuous_action.py" if env_id.startswith(CONTINUOUS) else "ppo.py"
    sizes = ["--num-envs", str(ENVS), "--num-steps", str(STEPS), "--total-timesteps", str(steps)]
    epochs = ["--update-epochs", str(EPOCHS), "--num-minibatches", str(MINIBATCHES)]
    return [python, str(folder / "cleanrl" / file), "--env-id", env_id, "--no-cuda", *sizes, *epochs]


def run(command: list[str], folder: str) -> Seconds | None:
    """Run a command to its end; None if it fails."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    begun = time.monotonic()
    with open(Path(folder, "output.txt"), "wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=os.environ | threads, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        lines = Path(folder, "output.txt").read_text(errors="replace").strip().splitlines()
        print(f"{' '.join(command)} ended with {process.returncode}: {lines[-1] if lines else ''}", file=sys.stderr)
        return None
    return Seconds(time.monotonic() - begun, usage.ru_utime + usage.ru_stime)


Command = Callable[[int], list[str]]  # of a number of steps


def variants(args: argparse.Namespace, env_id: str, folder: str) -> dict[str, tuple[int, Command]]:
    """Return the steps of the shorter run, and the command, of every variant."""

    def own(play: str) -> Command:
        here = [args.python, str(Path(__file__).resolve()), "--play", play, env_id]
        return lambda steps: [*here, "--steps", str(steps)]

    found: dict[str, tuple[int, Command]] = {
        "hmx": (4 * args.short, lambda steps: hmx_command(args.python, env_id, steps, folder, 0)),
        f"hmx, {ENVS} workers": (4 * args.short, lambda steps: hmx_command(args.python, env_id, steps, folder, ENVS)),
        "SB3": (args.short, own("sb3")),
        "random actions": (4 * args.short, own("random")),
    }
    if args.cleanrl is not None:
        clone = args.cleanrl.resolve()
        found["CleanRL"] = (args.short, lambda steps: cleanrl_command(args.python, clone, env_id, steps))
    return found


def measure(args: argparse.Namespace, env_id: str) -> dict[str, list[Seconds]]:
    """Return the seconds per step of every variant in every round."""
    per_step: dict[str, list[Seconds]] = {}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, (short, command) in variants(args, env_id, folder).items():
                few, many = run(command(short), folder), run(command(4 * short), folder)
                if few is None or many is None:
                    continue
                steps = 3 * short
                pair = Seconds((many.wall - few.wall) / steps, (many.cpu - few.cpu) / steps)
                per_step.setdefault(name, []).append(pair)
                print(f"{env_id} {name}: {1 / pair.wall:,.0f} steps/s, {1 / pair.cpu:,.0f} per CPU second", flush=True)
    return per_step


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", nargs="*", default=list(DEFAULT))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", type=int, default=8192, help="steps of the shorter run")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cleanrl", type=Path)
    parser.add_argument("--play", choices=PLAYS, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play:
        PLAYS[args.play](args.env[0], args.steps)
        return
    found = {env_id: measure(args, env_id) for env_id in args.env}
    print(f"{'':16} {'':16} {'steps/s':>10} {'hmx / it':>8} {'per CPU s':>10} {'hmx / it':>8}")
    for env_id, measured in found.items():
        base = Seconds(*(median(column) for column in zip(*measured["hmx"], strict=True)))
        for name, pairs in measured.items():
            wall, cpu = (median(column) for column in zip(*pairs, strict=True))
            ratios = wall / base.wall, cpu / base.cpu
            print(f"{env_id:16} {name:16} {1 / wall:10,.0f} {ratios[0]:8.2f} {1 / cpu:10,.0f} {ratios[1]:8.2f}")


if __name__ == "__main__":
    main()
