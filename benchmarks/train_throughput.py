"""How fast PPO trains on HackMatrix, and what share of the machine's matrix speed it reaches.

    python benchmarks/train_throughput.py [--num-envs 512] [--num-steps 64] [--rounds 7]

Measures whole updates of the default configuration, the policy alone, and a 2048 x 2048 matrix product, in one run.
The share is the floating-point work of the network's layers per second over the speed of that product.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hmx.agents import make_algorithm
from hmx.config.load import load
from hmx.env.registry import make_env


def timed(program: Callable[..., Any], *args: Any, rounds: int) -> float:
    """Median seconds of a call."""
    jax.block_until_ready(program(*args))
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(program(*args))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def matrix_speed(rounds: int, size: int = 2048) -> float:
    """Floating-point operations per second of a square product."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    return 2 * size**3 / timed(jax.jit(jnp.matmul), a, a, rounds=rounds)


def layer_work(params: Any, cells: int) -> float:
    """Operations of one forward pass for one sample: twice the weights, the cell layer once per cell."""
    work = 0.0
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        times = cells if "_cells" in jax.tree_util.keystr(path) else 1
        work += 2 * math.prod(leaf.shape) * times if leaf.ndim == 2 else 0
    return work


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--num-steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the configuration")
    args = parser.parse_args()

    sizes = [f"env.num_envs={args.num_envs}", f"algo.num_steps={args.num_steps}"]
    cfg = load(environ={}, sets=[*sizes, *args.set]).config
    env = make_env(cfg.env, cfg.reward)
    algorithm = make_algorithm(cfg, env)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    start = time.perf_counter()
    hypers = {name: jnp.float32(value) for name, value in algorithm.hypers(0).items()}
    update = jax.jit(algorithm.update).lower(state, hypers).compile()
    compile_s = time.perf_counter() - start
    samples = args.num_envs * args.num_steps
    seconds = timed(update, state, hypers, rounds=args.rounds)
    acting = jax.jit(lambda s, key: algorithm.act(s, s.carry, s.obs, s.legal, s.reset, key))
    act = timed(acting, state, jax.random.key(1), rounds=args.rounds)
    cells = jax.eval_shape(env.spec.cells, state.actors.obs)[1].shape[-2] if env.spec.cells else 1
    forward = layer_work(state.params, cells)
    work = samples * forward * (1 + 3 * cfg.ppo.update_epochs)  # a backward pass is two forward ones
    ceiling = matrix_speed(args.rounds)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {args.num_envs} x {args.num_steps} steps an update")
    print(f"update             {samples / seconds:>12,.0f} steps/s   (compiled in {compile_s:.1f} s)")
    print(f"acting alone       {args.num_envs / act:>12,.0f} steps/s")
    print(f"matrix product     {ceiling / 1e9:>12,.1f} GFLOP/s")
    print(f"layers, forward    {forward / 1e6:>12,.2f} MFLOP per sample")
    print(f"share reached      {work / seconds / ceiling:>12.0%} of the matrix product's speed")


if __name__ == "__main__":
    main()
