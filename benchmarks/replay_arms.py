"""What draws a transition from the replay buffer, compared at equal sharpness on deterministic FrozenLake 8x8.

    python benchmarks/replay_arms.py [--seeds 8] [--steps 100000] [--ess 0.6] [--arms uniform td ...] [--json]

Arms: `uniform`; `td`, prioritised replay; `qgap`, half of the draws by the gap of action values; `consequence`, all of
them by rollouts; `additive`, half of them; `multiplicative`, TD error times consequence. The exponents of every arm but
the first are scaled until the effective sample size is the share --ess of the buffer, so that no arm is merely sharper
than another. All seeds of an arm train side by side. An episode that reaches the goal returns 1, any other 0.

Per arm: the share of seeds whose greedy policy reaches the goal at the end; the mean return of the episodes of the
whole run (exploration included) and of its last tenth; each with a 95 % bootstrap interval over the seeds; the
effective sample size and the coverage at the end; and seconds, compilation included.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.evaluate import algorithm_policy, make_evaluator
from hmx.config.load import load
from hmx.config.schema import Config
from hmx.records.stats import bootstrap, mean
from hmx.runs.loop import eval_keys, init_state, seed_state
from hmx.runs.session import open_session

EVERY = 16  # updates between two scoring passes
SCORED = [f"score.every={EVERY}", "score.coverage=0.25", "score.rollouts=1", "score.horizon=50"]
ARMS: dict[str, list[str]] = {
    "uniform": ["replay.mixing=uniform"],
    "td": ["replay.mixing=td"],
    "qgap": ["replay.mixing=additive", "replay.mu=0.5", "score.kind=qgap", *SCORED],
    "consequence": ["replay.mixing=additive", "replay.mu=1.0", *SCORED],
    "additive": ["replay.mixing=additive", "replay.mu=0.5", *SCORED],
    "multiplicative": ["replay.mixing=multiplicative", *SCORED],
}
_EPISODES = 10  # of the greedy policy; the lake and the policy are deterministic, so one would do


def configure(arm: str, args: argparse.Namespace) -> Config:
    """The configuration of an arm; one rollout per action, since nothing is random in it."""
    sets = [
        f"run.total_steps={args.steps}", f"run.num_seeds={args.seeds}", "replay.capacity=16384", *ARMS[arm],
        f"replay.target_ess={args.ess}", f"replay.survey_every={EVERY}",
    ]  # fmt: skip
    return load(preset="lake", sets=sets, environ={}).config


def train(cfg: Config) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """The session, the last state of all seeds, and `[updates, seeds]` totals and counts of some metrics."""
    session = open_session(cfg)
    algorithm, updates, seeds = session.algorithm, session.sizes.num_updates, cfg.run.num_seeds
    rows = [algorithm.hypers(update) for update in range(updates)]
    hypers = {name: jnp.array([row[name] for row in rows], jnp.float32) for name in rows[0]}
    step = algorithm.update if seeds == 1 else jax.vmap(algorithm.update, in_axes=(0, None))
    wanted = ("train/mean_episode_return", "replay/ess", "replay/coverage")

    def one(state: Any, row: Any) -> tuple[Any, Any]:
        state, metrics = step(state, row)
        return state, {name: tuple(metrics[name]) for name in wanted if name in metrics}

    run = jax.jit(lambda state: jax.lax.scan(one, state, hypers), donate_argnums=0)
    state, found = run(init_state(algorithm, cfg.run.seed, seeds))
    found = {name: np.stack([np.asarray(x).reshape(updates, seeds) for x in pair]) for name, pair in found.items()}
    return session, state, found


def judge(arm: str, args: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    start = time.perf_counter()
    cfg = configure(arm, args)
    session, state, found = train(cfg)
    greedy = make_evaluator(session.env, algorithm_policy(session.algorithm, True), _EPISODES, _EPISODES)
    solved = []
    for index in range(args.seeds):
        # the buffer plays no part in acting, and slicing it out would copy it
        alone = seed_state(state._replace(replay=(), overwritten=()), index, args.seeds)
        solved.append(float(np.asarray(greedy(alone, eval_keys(0, 1)).total).mean()))
    totals, counts = found["train/mean_episode_return"]
    tenth = len(totals) // 10
    whole, last = (totals[part].sum(0) / counts[part].sum(0) for part in (slice(None), slice(-tenth, None)))
    row: dict[str, Any] = {"arm": arm, "seeds": args.seeds, "steps": session.sizes.total_env_steps}
    for name, values in (("solved", solved), ("whole", whole), ("last", last)):
        floats = [float(value) for value in values]
        row[name], row[f"{name}_interval"] = mean(floats), bootstrap(floats)
    for name in ("ess", "coverage"):
        if f"replay/{name}" in found:
            total, count = found[f"replay/{name}"]
            seen = np.flatnonzero(count[:, 0])[-1]
            row[name] = float((total[seen] / count[seen]).mean())
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    """Measure and print, an arm after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--ess", type=float, default=0.6)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--json", action="store_true", help="one object per arm")
    args = parser.parse_args()
    if not args.json:
        print(f"{'arm':<15}{'solved':>22}{'whole run':>22}{'last tenth':>22}{'ESS':>6}{'cover':>7}{'s':>7}")
    for arm in args.arms:
        row = judge(arm, args)
        if args.json:
            print(json.dumps(row), flush=True)
            continue
        cells = (f"{row[n]:.2f} ({row[f'{n}_interval'][0]:.2f}..{row[f'{n}_interval'][1]:.2f})" for n in COLUMNS)
        rest = f"{row['ess']:>6.2f}{row.get('coverage', 0.0):>7.2f}{row['seconds']:>7}"
        print(f"{arm:<15}" + "".join(f"{cell:>22}" for cell in cells) + rest, flush=True)


COLUMNS = ("solved", "whole", "last")

if __name__ == "__main__":
    main()
