"""What draws a transition from the replay buffer, compared at equal sharpness on deterministic FrozenLake 8x8.

    python benchmarks/replay_arms.py [--seeds 25] [--steps 102400] [--ess 0.6] [--arms uniform td ...] [--json]
    python benchmarks/replay_arms.py --from arms.jsonl          the table of what --json printed before
    python tools/replay_picture.py arms.jsonl > docs/img/replay-arms.svg

Arms: `uniform`; `td`, prioritised replay; `consequence`, all of the draws by rollouts; `additive`, half of them. The
exponents of every arm but the first are scaled until the effective sample size is the share --ess of the buffer, so
that no arm is merely sharper than another. All seeds of an arm train side by side. An episode that reaches the goal
returns 1, any other 0.

Per arm: the share of seeds whose greedy policy reaches the goal at the end; that share over the looks taken in the run,
on average; the mean return of the episodes of the whole run (exploration included); how much more that is than with
`td`, seed by seed; each with a 95 % bootstrap interval over the seeds; the effective sample size and the coverage at
the end; and seconds, compilation included. JSON has the values of every seed, and the curves over the run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.evaluate import TO_THE_END, Episodes, algorithm_policy, make_chunks, make_evaluation
from hmx.config.schema import Config
from hmx.registry.load import load
from hmx.runs.loop import eval_key, init_state
from hmx.runs.session import open_session
from hmx.stats.intervals import bootstrap, mean

EVERY = 16  # updates between two scoring passes
SCORED = [f"score.every={EVERY}", "score.coverage=0.25", "score.rollouts=1", "score.horizon=50"]
ARMS: dict[str, list[str]] = {
    "uniform": ["replay.mixing=uniform"],
    "td": ["replay.mixing=td"],
    "consequence": ["replay.mixing=additive", "replay.mu=1.0", *SCORED],
    "additive": ["replay.mixing=additive", "replay.mu=0.5", *SCORED],
}
LOOKS = 40  # at the greedy policy in the run; the lake and the policy are deterministic, so an episode each will do
Row = dict[str, Any]


def configure(arm: str, args: argparse.Namespace) -> Config:
    """The configuration of an arm; one rollout per action, since nothing is random in it."""
    sets = [
        f"run.total_steps={args.steps}", f"run.num_seeds={args.seeds}", "replay.capacity=16384", *ARMS[arm],
        f"replay.target_ess={args.ess}", f"replay.survey_every={EVERY}", *args.set,
    ]  # fmt: skip
    return load(preset="lake", sets=sets, environ={}).config


class Found(NamedTuple):
    """What training gave; `totals` and `counts` are `[updates, seeds]` by metric, `solved` is `[looks, seeds]`."""

    totals: dict[str, np.ndarray]
    counts: dict[str, np.ndarray]
    ends: list[int]  # updates done at each look
    solved: np.ndarray
    steps_per_update: int


def train(cfg: Config) -> Found:
    """All seeds side by side, with a look at the greedy policy of each after every one of `LOOKS` parts of the run."""
    session = open_session(cfg)
    algorithm, updates, seeds = session.algorithm, session.sizes.num_updates, cfg.run.num_seeds
    rows = [algorithm.hypers(update) for update in range(updates)]
    hypers = {name: np.array([row[name] for row in rows], np.float32) for name in rows[0]}
    step = algorithm.update if seeds == 1 else jax.vmap(algorithm.update, in_axes=(0, None))
    wanted = ("train/mean_episode_return", "replay/ess", "replay/coverage")

    def one(state: Any, row: Any) -> tuple[Any, Any]:
        state, metrics = step(state, row)
        return state, {name: tuple(metrics[name]) for name in wanted if name in metrics}

    run = jax.jit(lambda state, part: jax.lax.scan(one, state, part), donate_argnums=0)
    chunks = make_chunks(make_evaluation(session.env, algorithm_policy(algorithm, True), 1, 1))

    def episode(state: Any, key: Any) -> Episodes:
        play, k_steps = chunks.start(key)
        return chunks.advance(state, k_steps, play, TO_THE_END)[0].episodes

    greedy = jax.jit(episode if seeds == 1 else jax.vmap(episode, in_axes=(0, None)))
    state, ends = init_state(algorithm, cfg.run.seed, seeds), look_points(updates)
    parts, solved = [], []
    for first, end in zip([0, *ends], ends, strict=False):
        state, found = run(state, {name: jnp.asarray(values[first:end]) for name, values in hypers.items()})
        parts.append(jax.tree.map(np.asarray, found))
        # the buffer plays no part in acting
        solved.append(np.asarray(greedy(state._replace(replay=(), overwritten=()), eval_key(0)).total).reshape(seeds))
    whole = {
        name: [np.concatenate([p[name][i] for p in parts]).reshape(updates, seeds) for i in (0, 1)] for name in parts[0]
    }
    totals, counts = ({name: pair[i] for name, pair in whole.items()} for i in (0, 1))
    return Found(totals, counts, ends, np.stack(solved), session.sizes.total_env_steps // updates)


def look_points(updates: int) -> list[int]:
    """After how many updates the greedy policy is looked at: parts of two lengths at most, so that two are compiled."""
    length = -(-updates // LOOKS)
    return [*range(length, updates, length), updates]


def means(totals: np.ndarray, counts: np.ndarray) -> list[float | None]:
    """Per seed; None where there was nothing."""
    pairs = zip(totals.sum(0).tolist(), counts.sum(0).tolist(), strict=True)
    return [round(total / count, 6) if count else None for total, count in pairs]


def judge(arm: str, args: argparse.Namespace) -> Row:
    """What is known of an arm, with a value per seed."""
    start = time.perf_counter()
    found = train(configure(arm, args))
    totals, counts = found.totals["train/mean_episode_return"], found.counts["train/mean_episode_return"]
    tenth = len(totals) // 10
    parts = [slice(first, end) for first, end in zip([0, *found.ends], found.ends, strict=False)]
    row: Row = {
        "arm": arm,
        "seeds": args.seeds,
        "steps": found.ends[-1] * found.steps_per_update,
        "solved": found.solved[-1].tolist(),
        "looks": found.solved.mean(0).tolist(),
        "whole": means(totals, counts),
        "last": means(totals[-tenth:], counts[-tenth:]),
        "at_steps": [end * found.steps_per_update for end in found.ends],
        "solved_at": found.solved.tolist(),  # per look and seed
        "returns": [means(totals[part], counts[part]) for part in parts],  # none where no episode ended
    }
    for name in ("ess", "coverage"):
        if f"replay/{name}" in found.totals:
            total, count = found.totals[f"replay/{name}"], found.counts[f"replay/{name}"]
            seen = np.flatnonzero(count[:, 0])[-1]
            row[name] = float((total[seen] / count[seen]).mean())
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def cell(values: Sequence[float], sign: str = "") -> str:
    """Mean and interval."""
    interval = bootstrap(values)
    between = f" ({interval.low:{sign}.2f}..{interval.high:{sign}.2f})" if interval else ""
    return f"{mean(values):{sign}.2f}{between}"


def line(row: Row, td: Row | None) -> str:
    """A row of the table; `td` is the arm that is compared with, where it was measured."""
    cells = [cell(row[name]) for name in ("solved", "looks", "whole")]
    paired = td is not None and td["arm"] != row["arm"] and td["seeds"] == row["seeds"]
    cells.append(cell(np.subtract(row["whole"], td["whole"]).tolist(), "+") if td and paired else "")
    rest = f"{row['ess']:>6.2f}{row.get('coverage', 0.0):>7.2f}{row['seconds']:>7.0f}"
    return f"{row['arm']:<15}" + "".join(f"{text:>22}" for text in cells) + rest


def main() -> None:
    """Measure and print, an arm after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--steps", type=int, default=102_400)
    parser.add_argument("--ess", type=float, default=0.6, help="0 leaves the exponents as they are")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any option, of all arms")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--json", action="store_true", help="one object per arm")
    parser.add_argument(
        "--from", dest="before", type=Path, help="measure nothing: print the table of this file of --json"
    )
    args = parser.parse_args()
    if not args.json:
        columns = "".join(f"{name:>22}" for name in ("solved", "looks", "whole run", "more than td"))
        print(f"{'arm':<15}{columns}{'ESS':>6}{'cover':>7}{'s':>7}")
    if args.before:
        rows = [json.loads(text) for text in args.before.read_text(encoding="utf-8").splitlines()]
        td = next((row for row in rows if row["arm"] == "td"), None)
        print("\n".join(line(row, td) for row in rows))
        return
    td = None
    for arm in args.arms:
        row = judge(arm, args)
        td = row if arm == "td" else td
        print(json.dumps(row) if args.json else line(row, td), flush=True)


if __name__ == "__main__":
    main()
