"""Cost of metrics: whole training updates with and without them, in turn.

    python benchmarks/metrics_cost.py [--of breakdown|dormant] [--num-envs 512] [--num-steps 64] [--rounds 15]

`breakdown` is that of the reward: without it, the environment reports neither reward terms nor counts, so that the
compiler removes everything that only they need. `dormant` is the share of dormant units. Both programs run in turn, and
the ratio of each pair is reported.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any
from unittest import mock

import jax

from hmx.algos.ppo import update as ppo
from hmx.envs.protocol import Env
from hmx.nets import Net, make_net
from hmx.registry.load import load
from hmx.reports.bench.measure import Updates, time_in_turn
from hmx.runs.session import make_session, open_session
from hmx.stats.intervals import median
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
    """A network that does not return its hidden activations, so that no dormant units are counted."""
    return make_net(*args)._replace(hidden=None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=("breakdown", "dormant"), default="breakdown")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--num-steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()

    sizes = {"env.num_envs": args.num_envs, "algo.num_steps": args.num_steps}
    session = open_session(load(environ={}, values=sizes).config)
    cfg, env = session.cfg, session.env
    with mock.patch.object(ppo, "make_net", unmeasured if args.of == "dormant" else make_net):
        without = make_session(cfg, silent(env) if args.of == "breakdown" else env)
    programs = {"with": Updates(session), "without": Updates(without)}
    seconds = time_in_turn({name: partial(updates.update, 1) for name, updates in programs.items()}, args.rounds)
    steps = args.num_envs * args.num_steps
    for name, times in seconds.items():
        print(f"{name:>8} {args.of}: {steps / median(times):>10,.0f} steps/s (median of {len(times)})")
    ratios = sorted(a / b for a, b in zip(seconds["with"], seconds["without"], strict=True))
    low, high = ratios[0], ratios[-1]
    print(f"ratio of times, pair by pair: median {median(ratios):.3f}, from {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
