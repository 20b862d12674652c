"""What metrics cost: whole training updates with them and without them, side by side.

    python benchmarks/metrics_cost.py [--of breakdown|dormant] [--num-envs 512] [--num-steps 64] [--rounds 15]

`breakdown` is that of the reward: without it, the environment reports neither reward terms nor counts, so that the
compiler removes everything that only they need. `dormant` is the share of dormant units. Both programs run in turn, and
the ratio of each pair is reported.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from hmx.agents import make_algorithm, ppo
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.env.registry import make_env
from hmx.nets import Net, make_net
from hmx.types import Timestep


def silent(env: Env) -> Env:
    """The same environment without reward terms, counts of actions and other reports."""

    def quiet(timestep: Timestep) -> Timestep:
        return timestep._replace(terms={}, info={})

    def reset(keys: jax.Array) -> tuple[Any, Timestep]:
        state, timestep = env.reset(keys)
        return state, quiet(timestep)

    def step(state: Any, action: jax.Array, keys: jax.Array) -> tuple[Any, Timestep]:
        state, timestep = env.step(state, action, keys)
        return state, quiet(timestep)

    return Env(env.spec._replace(reward_terms=(), action_groups=()), reset, step)


def unmeasured(*args: Any) -> Net:
    """A network that does not tell its hidden activations, so that no dormant units are counted."""
    return make_net(*args)._replace(hidden=None)


def compiled(cfg: Config, env: Env) -> tuple[Any, Any]:
    """The update as one program, and a first state."""
    algorithm = make_algorithm(cfg, env)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    hypers = {name: jnp.float32(value) for name, value in algorithm.hypers(0).items()}
    program = jax.jit(algorithm.update).lower(state, hypers).compile()
    return lambda state: program(state, hypers), state


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=("breakdown", "dormant"), default="breakdown")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--num-steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()

    cfg = Config()
    cfg = dataclasses.replace(
        cfg,
        env=dataclasses.replace(cfg.env, num_envs=args.num_envs),
        algo=dataclasses.replace(cfg.algo, num_steps=args.num_steps),
    )
    env = make_env(cfg.env, cfg.reward)
    programs = {"with": compiled(cfg, env)}
    with mock.patch.object(ppo, "make_net", unmeasured if args.of == "dormant" else make_net):
        programs["without"] = compiled(cfg, silent(env) if args.of == "breakdown" else env)
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for i in range(args.rounds + 1):
        for name, (program, state) in programs.items():
            start = time.perf_counter()
            state, _ = jax.block_until_ready(program(state))
            if i:
                seconds[name].append(time.perf_counter() - start)
            programs[name] = (program, state)
    steps = args.num_envs * args.num_steps
    for name, times in seconds.items():
        print(f"{name:>8} {args.of}: {steps / statistics.median(times):>10,.0f} steps/s (median of {len(times)})")
    ratios = sorted(a / b for a, b in zip(seconds["with"], seconds["without"], strict=True))
    low, high = ratios[0], ratios[-1]
    print(f"ratio of times, pair by pair: median {statistics.median(ratios):.3f}, from {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
