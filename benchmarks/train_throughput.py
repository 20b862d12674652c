"""Speed of PPO on HackMatrix, and its share of the machine's matrix speed.

    python benchmarks/train_throughput.py [--num-envs 512] [--num-steps 64] [--rounds 7]

Measures whole updates of the default configuration, the policy alone, and a 2048 x 2048 matrix product in float32 and
in bfloat16, in one run. The share is the floating-point work of the network's layers per second over the speed of the
product in float32.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import jax
import jax.numpy as jnp

from hmx.algos.types import TrainState
from hmx.registry.load import load
from hmx.reports.bench.measure import Updates, time_in_turn
from hmx.runs.session import open_session
from hmx.stats.intervals import median

MATRIX = 2048


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
    session = open_session(cfg)
    updates = Updates(session)
    a = jax.random.normal(jax.random.key(0), (MATRIX, MATRIX))
    half = a.astype(jnp.bfloat16)
    product = jax.jit(jnp.matmul)

    @jax.jit
    def act(state: TrainState) -> Any:
        at = state.actors
        return session.algorithm.act(state, at.carry, at.obs, at.legal, at.reset, jax.random.key(1))

    works = {
        "update": lambda: updates.update(1),
        "act": lambda: act(updates.state),
        "product": lambda: product(a, a),
        "half": lambda: product(half, half),
    }
    seconds = {name: median(found) for name, found in time_in_turn(works, args.rounds).items()}
    observe, obs = session.env.spec.cells, updates.state.actors.obs
    cells = jax.eval_shape(observe, obs)[1].shape[-2] if observe else 1
    forward = layer_work(updates.state.params, cells)
    work = updates.steps * forward * (1 + 3 * cfg.ppo.update_epochs)  # a backward pass is two forward ones
    ceiling = 2 * MATRIX**3 / seconds["product"]
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {args.num_envs} x {args.num_steps} steps an update")
    compiling = f"(compiled in {updates.compilation.seconds:.1f} s)"
    print(f"update             {updates.steps / seconds['update']:>12,.0f} steps/s   {compiling}")
    print(f"acting alone       {args.num_envs / seconds['act']:>12,.0f} steps/s")
    print(f"matrix product     {ceiling / 1e9:>12,.1f} GFLOP/s")
    print(f"in bfloat16        {2e-9 * MATRIX**3 / seconds['half']:>12,.1f} GFLOP/s")
    print(f"layers, forward    {forward / 1e6:>12,.2f} MFLOP per sample")
    print(f"share reached      {work / seconds['update'] / ceiling:>12.0%} of the matrix product's speed")


if __name__ == "__main__":
    main()
