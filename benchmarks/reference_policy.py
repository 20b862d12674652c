"""Fine-tune the champion of HackMatrix under changed rules, with and without a penalty for the distance from it.

    python benchmarks/reference_policy.py [--seeds 3] [--coefs 0 0.2 1] [--root ref-runs]

Every arm starts from the champion, which was trained under the rules `designed`, and trains with PPO under the rules
`original`. `0` is the arm without a reference; the others set `ppo.ref=champion` and `ppo.ref_kl_coef`. Then every
agent and the champion play whole games under both rules with sampled actions and without a search. Printed are the
share of games won and the mean return of each seed, their means over seeds with 95 % intervals of Student's t, and the
wins under the old rules as a share of those of the champion. Finished arms and evaluations are kept in the folder, so
that the command continues after an interruption.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmx.stats.intervals import t_quantile

OLD, NEW = "designed", "original"
CHAMPION = Path(__file__).parent.parent / "hmx" / "agents" / "champion"
SETTINGS = {
    "env.rules": NEW, "env.num_envs": 256, "algo.num_steps": 64, "algo.learning_rate": 5e-4, "ppo.num_minibatches": 8,
    "ppo.update_epochs": 4, "starts.share": 0, "starts.share_schedule": "constant", "starts.share_end": 1,
    "gumbel.num_simulations": 8, "gumbel.value_scale": 3, "run.eval_episodes": 0,
}  # fmt: skip
"""Defaults of PPO and of its sizes, but for the network, the rewards, gamma and lambda, which are the champion's."""


def hmx(*words: object) -> str:
    """Run a command of hmx, and return what it prints."""
    command = [sys.executable, "-m", "hmx", *map(str, words)]
    print("$ hmx", *words, file=sys.stderr, flush=True)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(folder: Path, coef: float, seeds: int, steps: int) -> None:
    """Train an arm, unless it has finished."""
    meta = folder / "meta.json"
    if meta.is_file() and json.loads(meta.read_text())["state"] == "finished":
        return
    if meta.is_file():
        hmx("resume", folder, "--quiet")
        return
    settings = {**SETTINGS, "run.root": folder.parent, "run.updates_per_chunk": 4}
    if coef:
        settings |= {"ppo.ref": "champion", "ppo.ref_kl_coef": coef}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    more = ("--algo", "ppo", "--seeds", seeds, "--steps", steps, "--name", folder.name, "--quiet")
    hmx("train", "--config", CHAMPION, "--init-from", "champion", *more, *sets)


def play(run: str | Path, rules: str, episodes: int, file: Path) -> list[dict[str, Any]]:
    """Return the evaluation of every seed of a run under these rules."""
    if not file.is_file():
        words = ("--policy", "sampled", "--episodes", episodes, "--seed", 1000, "--set", f"env.rules={rules}")
        text = hmx("evaluate", run, *words, "--quiet", "--json")
        file.write_text(text)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for line in rows for row in line.get("policies", [line]) if row.get("policy") == "sampled"]


def mean(values: Sequence[float]) -> tuple[float, float]:
    """Return a mean over seeds, and half of its 95 % interval; NaN for one seed."""
    count, middle = len(values), math.fsum(values) / len(values)
    if count < 2:
        return middle, math.nan
    std = math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (count - 1))
    return middle, t_quantile(0.975, count - 1) * std / math.sqrt(count)


def kept(won: int, games: int, of: int, of_games: int) -> tuple[float, float, float]:
    """Return the ratio of two win rates with its 95 % interval (Katz, on the log scale): of games, not of seeds."""
    ratio = won / games / (of / of_games)
    half = 1.96 * math.sqrt(1 / won - 1 / games + 1 / of - 1 / of_games) if won else math.inf
    return ratio, ratio * math.exp(-half), ratio * math.exp(half)


def main() -> None:
    """Train, evaluate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=327_680, help="environment steps per seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=3000, help="games of each seed under the old rules")
    parser.add_argument("--new-episodes", type=int, default=1500, help="games of each seed under the new rules")
    parser.add_argument("--coefs", type=float, nargs="+", default=[0.0, 0.2, 1.0])
    parser.add_argument("--root", type=Path, default=Path("ref-runs"))
    args = parser.parse_args()
    args.root.mkdir(parents=True, exist_ok=True)
    runs: dict[str, str | Path] = {"champion": "champion"}
    for coef in args.coefs:
        name = f"kl-{coef:g}" if coef else "plain"
        runs[name] = args.root / name
        train(args.root / name, coef, args.seeds, args.steps)
    found = {}
    for name, run in runs.items():
        agents = args.seeds if run == "champion" else 1  # one agent plays as many games as the seeds of an arm
        for rules, games in ((OLD, args.episodes), (NEW, args.new_episodes)):
            found[name, rules] = play(run, rules, games * agents, args.root / f"{name}-{rules}.json")
    of, of_games = (sum(row[key] for row in found["champion", OLD]) for key in ("wins", "episodes"))
    for name in runs:
        for rules in (OLD, NEW):
            rows = found[name, rules]
            rates, returns = [row["wins"] / row["episodes"] for row in rows], [row["return_mean"] for row in rows]
            won, games = (sum(row[key] for row in rows) for key in ("wins", "episodes"))
            (rate, rate_half), (ret, ret_half) = mean(rates), mean(returns)
            line = f"{name:>9} {rules:>9} won {rate:6.2%} ± {rate_half:.2%} ({won:,} of {games:,})"
            line += f", return {ret:.2f} ± {ret_half:.2f}"
            if rules == OLD:
                line += " | of the champion's wins {:.1%} [{:.1%}, {:.1%}]".format(*kept(won, games, of, of_games))
            print(
                line,
                "| seeds",
                *(f"{rate:.2%} {ret:.2f};" for rate, ret in zip(rates, returns, strict=True)),
                flush=True,
            )


if __name__ == "__main__":
    main()
