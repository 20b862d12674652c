"""How often `hmx gate` keeps a change that does not help, and how many pairs it needs for one that does.

Returns are drawn from those of recorded seeds, so their distributions are real: many ties, bounds, long tails. Each
attempt goes through the ledger and the verdicts of `hmx gate` itself; only the training is replaced.

    python benchmarks/gate_campaigns.py record           # trains the seeds, and writes gate_returns.json
    python benchmarks/gate_campaigns.py false            # campaigns that change nothing
    python benchmarks/gate_campaigns.py power            # changes that help, beside a test with a fixed number of pairs
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from hmx.gates.records import Attempt, GateProgram, GateSettings, Ledger, SeedPair, decide
from hmx.study.records import Objective

RETURNS = Path(__file__).with_name("gate_returns.json")
RECORDED: Mapping[str, Mapping[str, object]] = {
    "cartpole-discrete": {"run.total_steps": 20_000},
    "pendulum": {"run.total_steps": 40_000},
    "hackmatrix": {"run.total_steps": 40_000, "env.num_envs": 16, "env.max_steps": 100},
    "gymnax/Breakout-MinAtar": {"run.total_steps": 40_000, "env.num_envs": 16},
}
SEEDS = 32
Returns = np.ndarray[Any, Any]
EFFECTS = (0.5, 1.0, 2.0)  # in standard deviations of the seeds


def record(seeds: int) -> None:
    """Train each task with many seeds, and write the mean return of the last fifth of each."""
    import hmx

    found = json.loads(RETURNS.read_text()) if RETURNS.exists() else {}
    for name, values in RECORDED.items():
        if name in found:
            continue
        with tempfile.TemporaryDirectory() as folder:
            settings = {"env.id": name, **values, "run.num_seeds": seeds, "run.root": folder, "run.eval_episodes": 0}
            metrics = hmx.load_metrics(hmx.train(settings, progress=False).run)
        known = np.isfinite(metrics["train/mean_episode_return"])
        late = known & (metrics["env_steps"] > 0.8 * metrics["env_steps"].max())
        rows = (metrics["train/mean_episode_return"][late & (metrics["seed"] == seed)] for seed in range(seeds))
        found[name] = [float(row.mean()) for row in rows if len(row)]
        print(name, np.mean(found[name]), np.std(found[name]), flush=True)
        RETURNS.write_text(json.dumps(found, indent=1) + "\n")


def gate_of(settings: GateSettings, attempts: Sequence[Attempt]) -> Ledger:
    """Return a gate without files."""
    return Ledger(folder=Path("campaign"), settings=settings, attempts=tuple(attempts))


def attempt_of(number: int, level: float) -> Attempt:
    """Return an attempt without files."""
    return Attempt(number=number, program=GateProgram(text="", digest=""), baseline=0, first_seed=0, level=level)


def pairs_of(random: np.random.Generator, returns: Returns, count: int, effect: float) -> list[SeedPair]:
    """Draw pairs whose candidate is better by an effect."""
    before, after = random.choice(returns, (2, count))
    both = zip(before, after + effect * returns.std(), strict=True)
    return [SeedPair(seed=seed, baseline=float(one), candidate=float(other)) for seed, (one, other) in enumerate(both)]


def campaign(
    seed: int, returns: Sequence[float], attempts: int, settings: GateSettings
) -> tuple[bool, bool, bool, int]:
    """Run a campaign whose attempts change nothing.

    Returns:
        Whether the gate kept one, whether the greedy rule with one seed and that with three did, and the pairs used.
    """
    random, known = np.random.default_rng(seed), np.asarray(returns)
    ledger, used, kept = [attempt_of(0, 0.0)], 0, False
    for number in range(1, attempts + 1):
        one = attempt_of(number, gate_of(settings, ledger).levels[-1])
        verdict = decide(gate_of(settings, ledger), one, pairs_of(random, known, settings.max_seeds, 0.0))
        assert verdict is not None
        used += len(verdict.pairs)
        kept = kept or verdict.outcome == "keep"
        ledger.append(dataclasses.replace(one, verdict=verdict))
    greedy = [bool((random.choice(known, (attempts, count)).mean(-1) > random.choice(known, count).mean()).any())
              for count in (1, 3)]  # fmt: skip
    return kept, greedy[0], greedy[1], used


def false(campaigns: int, attempts: int, processes: int, settings: GateSettings) -> None:
    """Print how many campaigns keep a change that does nothing."""
    for name, returns in json.loads(RETURNS.read_text()).items():
        with ProcessPoolExecutor(processes) as pool:
            play = partial(campaign, returns=returns, attempts=attempts, settings=settings)
            rows = np.array(list(pool.map(play, range(campaigns), chunksize=20)), float)
        gate, one, three, pairs = rows.mean(0)
        print(f"{name:26s} gate {gate:.2%}  greedy, 1 seed {one:.1%}  greedy, 3 seeds {three:.1%}  "
              f"pairs per attempt {pairs / attempts:.1f}", flush=True)  # fmt: skip


def fixed_power(random: np.random.Generator, returns: Returns, effect: float, pairs: int, level: float) -> float:
    """Return the power of the signed-rank test with a fixed number of pairs, by 1,000 samples."""
    found = 0
    for _ in range(1000):
        before, after = random.choice(returns, (2, pairs))
        gains = after + effect * returns.std() - before
        gains = gains[gains != 0]
        if len(gains):
            found += stats.wilcoxon(gains, alternative="greater", method="exact").pvalue <= level
    return found / 1000


def power(samples: int, settings: GateSettings) -> None:
    """Print which share of changes with an effect is kept, the pairs used, and those of a fixed-sample test."""
    level = gate_of(settings, [attempt_of(0, 0.0)]).levels[-1]
    print(f"level of the first attempt {level:.4f}, at most {settings.max_seeds} pairs")
    tasks = {"normal": list(np.random.default_rng(0).normal(size=2000)), **json.loads(RETURNS.read_text())}
    for name, recorded in tasks.items():
        returns, random = np.asarray(recorded), np.random.default_rng(1)
        for effect in EFFECTS:
            gate, one = gate_of(settings, [attempt_of(0, 0.0)]), attempt_of(1, level)
            drawn = (pairs_of(random, returns, settings.max_seeds, effect) for _ in range(samples))
            verdicts = [verdict for pairs in drawn if (verdict := decide(gate, one, pairs)) is not None]
            kept = float(np.mean([verdict.outcome == "keep" for verdict in verdicts]))
            used = float(np.mean([len(verdict.pairs) for verdict in verdicts]))
            sizes = (size for size in range(4, 65) if fixed_power(random, returns, effect, size, level) >= kept)
            needed = next(sizes, None) if kept else None
            less = f"{needed} pairs, {1 - used / needed:.0%} fewer" if needed else "-"
            print(f"{name:26s} effect {effect:3.1f}  kept {kept:.1%}  pairs {used:.1f}  test of fixed size: {less}",
                  flush=True)  # fmt: skip


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["record", "false", "power"])
    parser.add_argument("--campaigns", type=int, default=2000)
    parser.add_argument("--attempts", type=int, default=50)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--max-seeds", type=int, default=16)
    parser.add_argument("--error", type=float, default=0.05)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    settings = GateSettings(objective=Objective(), max_seeds=given.max_seeds, error=given.error)
    if given.part == "record":
        record(SEEDS)
    elif given.part == "false":
        false(given.campaigns, given.attempts, given.processes, settings)
    else:
        power(given.samples, settings)


if __name__ == "__main__":
    main()
