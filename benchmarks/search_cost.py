"""Cost of a search, against mctx, in one run.

    python benchmarks/search_cost.py [--env hackmatrix] [--num-envs 512] [--simulations 8 16 32 64] [--rounds 3]

Both search the same positions with the same untrained agent; `mctx` is the implementation by the authors of Gumbel
MuZero. They take turns; printed are decisions per second (of processor time on a CPU; the most of all rounds) and the
ratio.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mctx

from hmx.algos import search
from hmx.algos.build import make_algorithm
from hmx.envs.registry import make_env
from hmx.registry.load import load
from hmx.reports.bench.measure import device_clock
from hmx.rl.tree_search import Found, Judged, Scale, Simulate
from hmx.types import Array, Key


def by_mctx(
    key: Key,
    root: Judged,
    legal: Array,
    simulate: Simulate,
    scale: Scale,
    *,
    num_simulations: int,
    max_considered: int,
    axes: Any = 0,
    greedy: bool = False,
) -> Found:
    """Search as `hmx.rl.tree_search.search` does, with mctx."""

    def lead(position: Any) -> Any:  # mctx wants the batch first
        return jax.tree.map(lambda axis, part: jax.tree.map(partial(_move, axis, 0), part), axes, position)

    def unlead(position: Any) -> Any:
        return jax.tree.map(lambda axis, part: jax.tree.map(partial(_move, 0, axis), part), axes, position)

    def recurrent(_: None, key: Array, action: Array, position: Any) -> Any:
        found = simulate(jax.random.wrap_key_data(key), action, unlead(position))
        after = found.after
        output = mctx.RecurrentFnOutput(
            reward=found.reward, discount=found.discount, prior_logits=after.log_probs, value=after.value
        )
        return output, lead(after.position)

    def completed(tree: Any, node: Any = mctx.Tree.ROOT_INDEX) -> Array:
        scaled = mctx.qtransform_completed_by_mix_value(
            tree, node, value_scale=1.0, maxvisit_init=1.0, rescale_values=False
        )
        return scaled / (1.0 + tree.children_visits[node].max())

    def values(tree: Any, node: Array) -> Array:
        return scale(completed(tree, node), tree.children_visits[node].max())

    found = mctx.gumbel_muzero_policy(
        None,
        jax.random.key_data(key),
        mctx.RootFnOutput(prior_logits=root.log_probs, value=root.value, embedding=lead(root.position)),
        recurrent,
        num_simulations,
        invalid_actions=~legal,
        max_num_considered_actions=max_considered,
        qtransform=values,
        gumbel_scale=0.0 if greedy else 1.0,
    )
    tree = found.search_tree.summary()
    value = (found.action_weights * jax.vmap(completed)(found.search_tree)).sum(-1)
    return Found(found.action, found.action_weights, value, tree.visit_counts.astype(jnp.int32))


def _move(source: int, target: int, leaf: Array) -> Array:
    return jnp.moveaxis(leaf, source, target)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="hackmatrix")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--simulations", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    cfg = load(preset="gumbel", sets=[f"env.id={args.env}"]).config
    env = make_env(cfg.env, cfg.reward)
    algorithm = make_algorithm(cfg, env)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    position, seen = jax.jit(env.reset)(jax.random.split(jax.random.key(1), args.num_envs))
    carry, begins = algorithm.initial_carry((args.num_envs, 1)), jnp.ones(args.num_envs, bool)
    ours, clock = search.search, device_clock()
    print(f"{'simulations':>11} {'hmx':>9} {'mctx':>9} {'ratio':>7}   decisions per second")
    for simulations in args.simulations:
        best = {}
        compiled = []
        for name, used in (("hmx", ours), ("mctx", by_mctx)):
            search.search = used
            act = jax.jit(search.make_search(algorithm, env, cfg, simulations))
            jax.block_until_ready(act(state, position, carry, seen.obs, seen.legal, begins, jax.random.key(2)))
            compiled.append((name, act))
        for number in range(args.rounds):
            for name, act in compiled:
                began = clock()
                key = jax.random.key(3 + number)
                jax.block_until_ready(act(state, position, carry, seen.obs, seen.legal, begins, key))
                rate = args.num_envs / (clock() - began)
                best[name] = max(rate, best.get(name, 0.0))
        print(
            f"{simulations:>11} {best['hmx']:>9,.0f} {best['mctx']:>9,.0f} {best['hmx'] / best['mctx']:>7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
