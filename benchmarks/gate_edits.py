"""Two rules for the same 30 edits of PPO: `hmx gate`, and keeping what raised the return of one seed.

    python benchmarks/gate_edits.py --root FOLDER [--env cartpole-discrete --env pendulum] [--greedy 1] [--edits 30]

The baseline has the default options of hmx and the sizes of the preset control. Each rule tries `EDITS` in their order
against its own current baseline, and measures the mean training return of the last tenth of a run. The greedy rule
trains each edit with one seed, the same for all, and keeps the edit if the number is above the best so far. In the end,
every configuration that a rule has had as its baseline trains on 20 seeds that neither rule has seen. The differences
are paired by seed, with Student's t interval and the p-value of the exact signed-rank test.

All is trained once: the same command continues, and prints the tables again. `edits.json` of each environment has the
figures.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from scipy import stats  # type: ignore[import-untyped]

import hmx
from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.fields import replace, values_of
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.gates.programs import load_changed
from hmx.gates.records import SETTINGS, find_gate
from hmx.records import meta as metas
from hmx.records.paths import RunPaths
from hmx.registry.derive import derive
from hmx.stats.intervals import mean, mean_interval
from hmx.study.measure import measure
from hmx.study.records import Objective

TASKS = {"cartpole-discrete": 20_000, "pendulum": 40_000}  # environment steps of a run: the baseline still learns
BASELINE: Mapping[str, object] = {
    "env.num_envs": 16, "net.hidden": (64, 64), "run.updates_per_chunk": 8, "run.eval_episodes": 0,
}  # fmt: skip
Edits = Sequence[Mapping[str, object]]
EDITS: Edits = (
    {"algo.learning_rate": 1e-3},
    {"ppo.ent_coef": 0.0},
    {"net.activation": "tanh"},
    {"algo.schedule_rate": 0.2},  # changes nothing: no schedule of the baseline reads it
    {"ppo.gae_lambda": 0.9},
    {"ppo.clip_eps": 0.1},
    {"net.shared_torso": False},
    {"algo.max_grad_norm": 1.0},
    {"ppo.value_target": "identity"},
    {"ppo.num_minibatches": 16},
    {"ppo.vf_coef": 1.0},
    {"algo.gamma": 0.98},
    {"algo.adam_eps": 1e-8},
    {"ppo.obs_norm": "network"},
    {"ppo.update_epochs": 10},
    {"ppo.norm_adv": False},
    {"algo.lr_schedule": "constant"},
    {"ppo.reward_scale": 0.1},
    {"ppo.vtrace_rho_clip": 2.0},  # changes nothing: advantages are not those of V-trace
    {"net.layer_norm": True},
    {"ppo.clip_vf_eps": 0.2},
    {"algo.learning_rate": 3e-3},
    {"ppo.gae_lambda": 0.98},
    {"net.hidden": (128, 128)},
    {"algo.num_steps": 32},
    {"ppo.clip_eps": 0.3},
    {"net.gain_policy": 1.0},
    {"algo.lr_warmup": 0.1},
    {"ppo.ent_coef": 0.003},
    {"ppo.update_epochs": 2},
)
LEAST = 6  # pairs for which a difference has an interval of 95 %
SEEDS_PER_RUN = 4  # of a run of the gate: side by side in one program
GREEDY_SEED, FRESH_SEED, FRESH = 5000, 9000, 20


class Trained:
    """The returns of configurations, each trained once; a file each keeps them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def returns(self, cfg: Config, seed: int, count: int = 1) -> list[float]:
        """Return the mean training return of the last tenth, of each seed; nan if training fails."""
        cfg = replace(cfg, {"run.seed": seed, "run.num_seeds": count})
        place = self._root / "returns" / f"{codec.digest(cfg)}.json"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(self._train(cfg)))
        found: list[float] = json.loads(place.read_text())
        return found

    def _train(self, cfg: Config) -> list[float]:
        sizes, count = derive(cfg), cfg.run.num_seeds
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = hmx.train(replace(cfg, {"run.name": "run", "run.root": folder}), progress=False)
            except HmxError as problem:
                print("failed:", problem.message, flush=True)
                return [float("nan")] * count
            if done.state != "finished":
                raise KeyboardInterrupt
            paths = RunPaths(done.run.parent, done.run.name)
            found = measure(paths, Objective(), 0, sizes.num_updates, sizes.total_env_steps, count)
        return [float("nan") if value is None else value for value in found.per_seed]


def changed(cfg: Config, edit: Mapping[str, object]) -> Config:
    """Return a configuration with an edit, checked."""
    return hmx.load_config({**values_of(cfg), **edit})


def greedy(trained: Trained, cfg: Config, seed: int, edits: Edits) -> tuple[list[dict[str, Any]], list[Config]]:
    """Keep each edit that raises the return of one seed.

    Returns:
        What became of each edit, and the baselines in their order.
    """
    best, chain, rows = trained.returns(cfg, seed)[0], [cfg], list[dict[str, Any]]()
    for edit in edits:
        candidate = changed(chain[-1], edit)
        found = trained.returns(candidate, seed)[0]
        rows.append({"edit": text_of(edit), "before": best, "after": found, "kept": found > best})
        print(f"greedy, seed {seed}: {rows[-1]}", flush=True)
        if found > best:
            best = found
            chain.append(candidate)
    return rows, chain


def campaign(place: Path, cfg: Config, edits: Edits, **options: object) -> None:
    """Try each edit with `hmx gate`, and adopt it if it is kept; a process that was killed is continued."""
    if not (place / SETTINGS).exists():
        hmx.new_gate(place, cfg, options=options)
    for number, edit in enumerate(edits, 1):
        done = next((one for one in hmx.gate_status(place).attempts if one.attempt == number), None)
        if done is None or not done.verdict:
            done = hmx.gate(place, edit, progress=False)
            print(f"gate: {done}", flush=True)
        assert done.attempt == number, f"{edit} was tried before, as attempt {done.attempt}"
        if done.verdict == "keep" and not done.adopted:
            hmx.adopt_attempt(place, number)


def gated(place: Path, cfg: Config, max_seeds: int, edits: Edits) -> tuple[list[dict[str, Any]], list[Config]]:
    """Try each edit with `hmx gate`; results as of `greedy`."""
    campaign(place, replace(cfg, {"run.num_seeds": SEEDS_PER_RUN}), edits, max_seeds=max_seeds)
    gate, rows = find_gate(place), list[dict[str, Any]]()
    for one, edit in zip(hmx.gate_status(place).attempts[: len(edits)], edits, strict=True):
        left = dataclasses.replace(gate, attempts=gate.attempts[: one.attempt + 1]).left
        rows.append({"edit": text_of(edit), "verdict": one.verdict, "pairs": one.pairs, "won": one.won,
                     "difference": one.difference, "e_value": one.e_value, "level": one.level,
                     "left": left})  # fmt: skip
    adopted = sorted((one for one in gate.attempts if one.adopted), key=lambda one: one.adopted)
    return rows, [cfg, *(replace(load_changed(one).config, {"run.num_seeds": 1}) for one in adopted)]


def steps_of(place: Path) -> int:
    """Return the environment steps of all runs of a gate."""
    runs = [run for one in find_gate(place).attempts for run in one.run(0).root.glob("[0-9]*")]
    return sum(metas.read(RunPaths(run.parent, run.name).meta).env_steps * SEEDS_PER_RUN for run in runs)


def difference(before: Sequence[float], after: Sequence[float]) -> dict[str, Any]:
    """Return the mean paired difference with its interval, and the p-value of the signed-rank test."""
    gains = [b - a for a, b in zip(before, after, strict=True)]
    known = [gain for gain in gains if gain]
    p = float(stats.wilcoxon(known, method="exact").pvalue) if known else 1.0
    return {"before": mean(before), "after": mean(after), "gain": mean(gains), "interval": mean_interval(gains), "p": p}


def missed(trained: Trained, place: Path) -> Iterator[dict[str, Any]]:
    """Compare, on fresh seeds, the edit with the most evidence among those that the gate saw too little of to keep."""
    gate, short = find_gate(place), ("not shown", "undecided")
    left = [(one.verdict.e_value, one) for one in gate.attempts if one.verdict and one.verdict.outcome in short]
    for _, most in sorted(left, key=itemgetter(0))[-1:]:
        before, after = (load_changed(one).config for one in (gate.attempts[most.baseline], most))
        fresh = (trained.returns(one, FRESH_SEED, FRESH) for one in (before, after))
        yield {"rule": "gate, not kept", "edit": most.program.text, **difference(*fresh)}


def task(root: Path, env: str, edits: Edits, seeds: int, max_seeds: int) -> dict[str, Any]:
    """Let both rules try all edits, and compare their baselines on fresh seeds."""
    trained = Trained(root)
    cfg = hmx.load_config({**BASELINE, "env.id": env, "run.total_steps": TASKS[env]})
    sides: dict[str, dict[str, Any]] = {}
    for seed in range(GREEDY_SEED, GREEDY_SEED + seeds):
        rows, chain = greedy(trained, cfg, seed, edits)
        steps = (len(edits) + 1) * derive(cfg).total_env_steps
        sides[f"greedy, seed {seed}"] = {"edits": rows, "chain": chain, "steps": steps}
    place = root / "gates" / "edits"
    rows, chain = gated(place, cfg, max_seeds, edits)
    differences = hmx.verify_gate(place).differences
    sides["gate"] = {"edits": rows, "chain": chain, "steps": steps_of(place), "differences": len(differences)}
    sides["gate"]["missed"] = list(missed(trained, place))
    first = trained.returns(cfg, FRESH_SEED, FRESH)
    last = {name: trained.returns(side["chain"][-1], FRESH_SEED, FRESH) for name, side in sides.items()}
    for name, side in sides.items():
        kept = [row["edit"] for row in side["edits"] if row.get("kept") or row.get("verdict") == "keep"]
        fresh = [trained.returns(one, FRESH_SEED, FRESH) for one in side.pop("chain")]
        side["kept"] = [{"edit": edit, **difference(before, after)}
                        for edit, (before, after) in zip(kept, itertools.pairwise(fresh), strict=True)]  # fmt: skip
        side["final"] = difference(first, last[name])
        if name != "gate":
            side["gate - this"] = difference(last[name], last["gate"])
    return {"env": env, "steps of a run": derive(cfg).total_env_steps, "first": mean(first), "sides": sides}


def text_of(edit: Mapping[str, object]) -> str:
    """Return an edit as on a command line."""
    return " ".join(f"{key}={show(value)}" for key, value in edit.items())


def tables(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tables of a task as Markdown."""
    sides = found["sides"]
    yield f"\n{found['env']}, {found['steps of a run']:,} steps per run; first baseline {found['first']:.4g}\n"
    others = [name for name in sides if name != "gate"]
    yield f"| edit | verdict | won of pairs | difference | e-value | needed | budget left | {' | '.join(others)} |"
    yield "|---" * (7 + len(others)) + "|"
    for number, row in enumerate(sides["gate"]["edits"]):
        gain = "{:+.3g} [{:+.3g}, {:+.3g}]".format(*row["difference"]) if row["pairs"] >= LEAST else "-"
        cells = [f"`{row['edit']}`", row["verdict"], f"{row['won']} of {row['pairs']}", gain, f"{row['e_value']:.3g}",
                 f"{1 / row['level']:.0f}", f"{row['left']:.4f}"]  # fmt: skip
        single = [sides[name]["edits"][number] for name in others]
        cells += [f"{one['after'] - one['before']:+.3g}{', kept' * one['kept']}" for one in single]
        yield f"| {' | '.join(cells)} |"
    yield "\n| rule | change | before | after | difference | p |\n|---|---|---|---|---|---|"
    for name, side in sides.items():
        named = [*side["kept"], {"edit": "all", **side["final"]}, *side.get("missed", [])]
        if name != "gate":
            named.append({"edit": "what the gate ends with instead", **side["gate - this"]})
        for one in named:
            ends = "{:+.3g} [{:+.3g}, {:+.3g}]".format(one["gain"], *one["interval"])
            rule = one.get("rule", name)
            yield f"| {rule} | `{one['edit']}` | {one['before']:.4g} | {one['after']:.4g} | {ends} | {one['p']:.2g} |"
    yield "\nsteps: " + ", ".join(f"{name} {side['steps']:,}" for name, side in sides.items())


def main() -> None:
    """Run each task, write its figures, and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="where the gates and the returns lie")
    parser.add_argument("--env", action="append", choices=TASKS, help="environment; several may be given")
    parser.add_argument("--greedy", type=int, default=1, help="greedy campaigns, each with another seed")
    parser.add_argument("--edits", type=int, default=len(EDITS), help="number of edits, from the first one on")
    parser.add_argument("--max-seeds", type=int, default=16)
    given = parser.parse_args()
    for env in given.env or TASKS:
        found = task(given.root / env, env, EDITS[: given.edits], given.greedy, given.max_seeds)
        (given.root / env / "edits.json").write_text(json.dumps(found, indent=1) + "\n")
        print("\n".join(tables(found)), flush=True)


if __name__ == "__main__":
    main()
