"""Cost of scoring in a whole training run of Q-learning, against the same training without it.

    python benchmarks/scored_training.py [--env lake hackmatrix] [--passes 4] [--rounds 9] [--json]

Arms: `td`, replay by TD error; `rollouts`, additive replay with scores from playing on. `lake` and `hackmatrix` are the
presets `lake` and `dqn` with scores every 16 updates, `chunks` is `dqn` with 1,000 scores every 640 updates;
`consequence` and `consequence-smax` are the preset `consequence` as it is, and on smax/3m (extra smax). The buffers
have begun to learn, and the arms take turns: in a round, each trains for as many updates as `--passes` scoring passes
are apart. The buffer is surveyed as often as it is scored.

Printed are environment steps of training a second (median, lowest and highest of the rounds); the ratio of each round's
speed to that of the same round of `td` (median, lowest and highest), by the clock and by processor time, which other
programs on the machine disturb less and which means nothing on an accelerator; and how many steps of rollouts come on
one of training. Scoring takes 1 minus the ratio of the time of an arm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.algos.dqn.scoring import score_options
from hmx.algos.dqn.sizes import first_learning_update, scored_per_pass
from hmx.config.schema import Config
from hmx.registry.load import load
from hmx.runs.loop import init_state
from hmx.runs.session import Session, open_session
from hmx.scoring import env_steps


class Scored(NamedTuple):
    """A preset, and how it is scored."""

    preset: str
    every: int  # updates between two scoring passes
    sets: tuple[str, ...] = ()  # options of all arms
    passes: tuple[str, ...] = ()  # options of all arms that score
    rollouts: tuple[str, ...] = ()  # options of the arm with rollouts


PRESETS = {
    "lake": Scored("lake", 16, (), ("score.coverage=0.25",), ("score.rollouts=1", "score.horizon=50")),
    "hackmatrix": Scored(
        "dqn", 16, (), ("score.coverage=0.1",),
        ("score.rollouts=4", "score.horizon=20", "score.actions=sampled", "score.num_actions=4"),
    ),
    "chunks": Scored(  # a pass every ten chunks
        "dqn", 640, (), ("score.transitions=1000", "score.chunk=1000"),
        ("score.rollouts=4", "score.horizon=20", "score.actions=sampled", "score.num_actions=4"),
    ),
    "consequence": Scored("consequence", 100),
    "consequence-smax": Scored("consequence", 100, ("env.id=smax/3m",)),
}  # fmt: skip
ARMS = ("td", "rollouts")


def configure(name: str, arm: str) -> Config:
    """The configuration of an arm; the options of rollouts are left out where nothing is scored."""
    found = PRESETS[name]
    sets = ["run.total_steps=100_000_000", f"replay.survey_every={found.every}", *found.sets]
    if arm == "td":
        sets += ["replay.mixing=td", "score.every=0"]
    else:
        sets += ["replay.mixing=additive", f"score.every={found.every}", *found.passes, *found.rollouts]
    return load(preset=found.preset, sets=sets, environ={}).config


class Spent(NamedTuple):
    """Seconds of a round."""

    clock: float
    processor: float


def make_round(cfg: Config, updates: int) -> tuple[Callable[[], Spent], float]:
    """Trains until the buffer is learned from; then a function that trains a round, and rollout steps per step."""
    session = open_session(cfg)
    algorithm = session.algorithm

    def one(state: Any, hypers: dict[str, Any]) -> tuple[Any, Any]:
        state, metrics = algorithm.update(state, hypers)
        return state, metrics["train/total_loss"]

    run = jax.jit(lambda state, hypers: jax.lax.scan(one, state, hypers), donate_argnums=0)
    state, done = init_state(algorithm, 0, 1), 0

    def train() -> Spent:
        nonlocal state, done
        rows = [algorithm.hypers(update) for update in range(done, done + updates)]
        hypers = {name: jnp.array([row[name] for row in rows], jnp.float32) for name in rows[0]}
        start, start_processor = time.perf_counter(), time.process_time()
        state, _ = jax.block_until_ready(run(state, hypers))
        done += updates
        return Spent(time.perf_counter() - start, time.process_time() - start_processor)

    while done <= first_learning_update(cfg.dqn.learn_starts, session.sizes.batch_size) + updates:
        train()
    return train, _rollout_steps(cfg, session)


def _rollout_steps(cfg: Config, session: Session) -> float:
    """Steps of rollouts on one of training, at most."""
    if cfg.score.every == 0:
        return 0.0
    batch = session.sizes.batch_size
    options = score_options(cfg.score, cfg.algo.gamma)
    return env_steps(options, session.env.spec, scored_per_pass(cfg.score, batch)) / (cfg.score.every * batch)


def measure(name: str, passes: int, rounds: int) -> list[dict[str, Any]]:
    """A row per arm."""
    updates = passes * PRESETS[name].every
    seconds: dict[str, list[Spent]] = {arm: [] for arm in ARMS}
    trained = {arm: configure(name, arm) for arm in ARMS}
    made = {arm: make_round(cfg, updates) for arm, cfg in trained.items()}
    for _ in range(rounds):
        for arm, (train, _) in made.items():
            seconds[arm].append(train())
    rows = []
    for arm, cfg in trained.items():
        steps = updates * cfg.env.num_envs * cfg.algo.num_steps
        row = {"env": name, "arm": arm, "steps_per_s": spread([steps / s.clock for s in seconds[arm]])}
        for kind in Spent._fields:
            pairs = zip(seconds["td"], seconds[arm], strict=True)
            row[f"ratio_{kind}"] = spread([getattr(td, kind) / getattr(s, kind) for td, s in pairs])
        rows.append(row | {"rollout_steps": made[arm][1]})
    return rows


def spread(values: list[float]) -> list[float]:
    """Median, lowest and highest."""
    return [statistics.median(values), min(values), max(values)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", choices=PRESETS, default=["lake", "hackmatrix"])
    parser.add_argument("--passes", type=int, default=4, help="scoring passes per round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="one object per arm")
    args = parser.parse_args()
    if args.passes < 1:
        parser.error("--passes must be at least 1")
    if not args.json:
        print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {args.rounds} rounds of {args.passes} passes")
        print(f"{'':<18}{'arm':<10}{'steps/s':>28}{'ratio to td':>22}{'of processor time':>22}{'rollout steps':>15}")
    for name in args.env:
        for row in measure(name, args.passes, args.rounds):
            if args.json:
                print(json.dumps(row), flush=True)
                continue
            rate = "{:,.0f} ({:,.0f} to {:,.0f})".format(*row["steps_per_s"])
            ratios = "".join(
                "{:>8.2f} ({:.2f} to {:.2f})".format(*row[f"ratio_{kind}"]).rjust(22) for kind in Spent._fields
            )
            print(f"{name:<18}{row['arm']:<10}{rate:>28}{ratios}{row['rollout_steps']:>15.1f}", flush=True)


if __name__ == "__main__":
    main()
