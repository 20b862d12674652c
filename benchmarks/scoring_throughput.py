"""Environment steps per second of scoring, against stepping alone, on HackMatrix.

    python benchmarks/scoring_throughput.py [--positions 32] [--actions 4] [--rollouts 8] [--steps 50] [--rounds 7]

Both play at random, with one random word per environment and step for the choice of the action, in as many
environments: positions x actions x rollouts. `stepping` is a compiled loop over steps from freshly reset games.
`scoring` tries the actions in those games and continues for as many steps, with separate keys for each rollout,
returns, and distances. Printed are steps a second (median, lowest and highest of the rounds, which take turns), and the
ratio of the medians. Steps of rollouts whose episode is over count like any other: while one continues, all do.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix.env import make_hackmatrix
from hmx.envs.protocol import Env
from hmx.reports.bench.measure import time_in_turn
from hmx.scoring import Continuation, Positions, ScoreOptions, env_steps, make_scorer
from hmx.stats.intervals import median

Array = jax.Array


def random_legal(params: Any, obs: Array, legal: Array, keys: Array) -> Array:
    """A random legal action, [E, A], from one word per environment."""
    count = legal.sum(-1)
    words = jax.vmap(lambda key: jax.random.bits(key, (1,)))(keys)
    pick = (words >> 1).astype(jnp.int32) % count
    return (jnp.cumsum(legal, -1) <= pick[..., None]).sum(-1)


def stepping(env: Env, num_envs: int, num_steps: int) -> Any:
    """The loop without scoring; returns what keeps every reward alive."""

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        state, shown, total = carry
        k_act, k_env = jax.random.split(key)
        action = random_legal(None, shown.obs, shown.legal, jax.random.split(k_act, num_envs))
        state, shown = env.step(state, action, jax.random.split(k_env, num_envs))
        return (state, shown, total + shown.reward.sum()), None

    @jax.jit
    def loop(carry: Any, key: Array) -> Any:
        return jax.lax.scan(step, (*carry, jnp.float32(0)), jax.random.split(key, num_steps))[0][2]

    return loop


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=32)
    parser.add_argument("--actions", type=int, default=4, help="tried per position, the one taken included")
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50, help="horizon, and steps per loop")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()

    env = make_hackmatrix(EnvConfig(), RewardWeights())
    num_envs = args.positions * args.actions * args.rollouts
    options = ScoreOptions(
        actions="sampled", num_actions=args.actions - 1, rollouts=args.rollouts, horizon=args.steps, bootstrap=False,
        gamma=1.0, team_reward="mean",
    )  # fmt: skip
    score = make_scorer(env, Continuation(random_legal), options)
    loop = stepping(env, num_envs, args.steps)
    reset = jax.jit(env.reset)
    carry = reset(jax.random.split(jax.random.key(0), num_envs))
    state, shown = reset(jax.random.split(jax.random.key(1), args.positions))
    taken = shown.legal.argmax(-1).astype(jnp.int32)
    positions = Positions(state, shown.obs, shown.legal, taken, jnp.arange(args.positions, dtype=jnp.uint32))
    steps = env_steps(options, env.spec, args.positions)
    runs = {
        "stepping": lambda key: loop(carry, key),
        "scoring": lambda key: score(None, positions, key),
    }
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {num_envs} environments, {args.steps} steps")
    keys = itertools.cycle(jax.random.split(jax.random.key(0), args.rounds))
    seconds = time_in_turn({name: lambda run=run: run(next(keys)) for name, run in runs.items()}, args.rounds)
    rates = {name: [steps / s for s in taken] for name, taken in seconds.items()}
    for name, found in rates.items():
        print(f"{name:>10}: {median(found):12,.0f} steps/s ({min(found):,.0f} to {max(found):,.0f})")
    ratio = median(rates["scoring"]) / median(rates["stepping"])
    ended = float(score(None, positions, jax.random.key(0)).ended.mean())
    print(f"scoring runs at {100 * ratio:.0f} % of stepping alone; {100 * ended:.0f} % of its episodes ended in time")


if __name__ == "__main__":
    main()
