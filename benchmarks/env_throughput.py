"""Speed of HackMatrix: random legal play with mask, observation, reward terms and auto-reset.

    python benchmarks/env_throughput.py [--num-envs 1024] [--chunks 7] [--steps 100]

Prints steps per second (median, lowest and highest of the chunks), compile time and bytes of state per environment,
for the packed observation and for the 1,545 floats it stands for, and the same loop without the environment, which
shows the cost of choosing random legal actions.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hmx.algos.evaluate import random_actions
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix.env import make_hackmatrix
from hmx.reports.bench.measure import EnvPlayer, Work, time_in_turn
from hmx.stats.intervals import median


def only_choosing(num_envs: int, num_steps: int) -> tuple[Any, Any]:
    """The same loop over a mask that stays as it is."""
    legal = jnp.ones((num_envs, 1, 28), bool)

    def step(legal: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        k_act, k_env = jax.random.split(key)
        action = random_actions(k_act, legal, 0)
        words = jax.vmap(lambda k: jax.random.bits(k, ()))(jax.random.split(k_env, num_envs))
        return legal.at[:, 0, 5].set((words & 1) == 0), action.sum()

    @jax.jit
    def loop(carry: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.scan(step, carry, jax.random.split(key, num_steps))

    return loop, legal


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100, help="steps per chunk")
    parser.add_argument("--chunks", type=int, default=7)
    args = parser.parse_args()

    players = {}
    for obs in ("packed", "flat"):
        players[obs] = EnvPlayer(make_hackmatrix(EnvConfig(obs=obs), RewardWeights()), args.num_envs, 0)
    choose, legal = only_choosing(args.num_envs, args.steps)
    works: dict[str, Work] = {obs: partial(player.play, args.steps) for obs, player in players.items()}
    works["no environment"] = lambda: choose(legal, jax.random.key(1))
    leaves = jax.tree.leaves(players["packed"].actors.env_state)
    size = sum(leaf.nbytes for leaf in leaves) / args.num_envs
    print(
        f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {args.num_envs} environments, {size:,.0f} bytes each"
    )
    print(f"{'observation':>16} {'steps/s':>12} {'lowest':>12} {'highest':>12} {'compile s':>10}")
    for name, seconds in time_in_turn(works, args.chunks).items():
        rates = [args.num_envs * args.steps / t for t in seconds]
        compile_s = f"{players[name].compilation.seconds:>10.1f}" if name in players else ""
        print(f"{name:>16} {median(rates):>12,.0f} {min(rates):>12,.0f} {max(rates):>12,.0f} {compile_s}")


if __name__ == "__main__":
    main()
