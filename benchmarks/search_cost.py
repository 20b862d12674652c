"""Cost of a search, against mctx or another version of hmx, in one run.

    python benchmarks/search_cost.py [--env hackmatrix] [--num-envs 512] [--simulations 8 16 32 64] [--rounds 3]
    python benchmarks/search_cost.py --beside FOLDER

Both search the same positions with the same untrained agent; `mctx` is the implementation by the authors of Gumbel
MuZero, and FOLDER a clone of hmx, which searches in its own process. They take turns; printed are decisions per second
(of processor time on a CPU; the most of all rounds) and the ratio.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import mctx

from hmx.algos import search
from hmx.algos.build import make_algorithm
from hmx.envs.registry import make_env
from hmx.registry.load import load
from hmx.reports.bench.measure import device_clock
from hmx.rl.tree_search import Found, Judged, Scale, Simulate
from hmx.rl.tree_search import search as search_tree
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
        completed: Array = scaled / (1.0 + tree.children_visits[node].max())
        return completed

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


Play = Callable[[int], float]  # number of a round -> seconds that it took


def searches(args: argparse.Namespace, used: Callable[..., Found]) -> list[Play]:
    """Compile the search of `args.num_envs` positions for each number of simulations."""
    cfg = load(preset="gumbel", sets=[f"env.id={args.env}", "starts.share=0"]).config
    env = make_env(cfg.env, cfg.reward)
    algorithm = make_algorithm(cfg, env)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    position, seen = jax.jit(env.reset)(jax.random.split(jax.random.key(1), args.num_envs))
    carry, begins = algorithm.initial_carry((args.num_envs, 1)), jnp.ones(args.num_envs, bool)
    clock = device_clock()

    def timed(act: search.SearchAct, number: int) -> float:
        began = clock()
        jax.block_until_ready(act(state, position, carry, seen.obs, seen.legal, begins, jax.random.key(number)))
        return clock() - began

    compiled = [jax.jit(search.make_search(algorithm, env, cfg, count)) for count in args.simulations]
    with mock.patch.object(search, "search", used):
        for act in compiled:
            timed(act, 2)
    return [partial(timed, act) for act in compiled]


def serve(args: argparse.Namespace) -> None:
    """Time the searches that standard input asks for: a line holds the index of the search and the round."""
    plays = searches(args, search_tree)
    for line in sys.stdin:
        index, number = line.split()
        print(plays[int(index)](int(number)), flush=True)


class OtherVersion:
    """The searches of another version of hmx, in a process of its own."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", *sys.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": args.beside},
        )

    def play(self, index: int, number: int) -> float:
        """Return the seconds of a round of one search."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(index, number, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the process: it reads no more."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(args: argparse.Namespace, name: str, others: list[Play]) -> None:
    """Let the two take turns, and print a line for each number of simulations."""
    plays = searches(args, search_tree)
    print(f"{'simulations':>11} {'hmx':>9} {name:>9} {'ratio':>7}   decisions per second")
    for simulations, ours, theirs in zip(args.simulations, plays, others, strict=True):
        seconds = [(ours(number), theirs(number)) for number in range(3, 3 + args.rounds)]
        here, there = (args.num_envs / min(column) for column in zip(*seconds, strict=True))
        print(f"{simulations:>11} {here:>9,.0f} {there:>9,.0f} {here / there:>7.2f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="hackmatrix")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--simulations", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", default="", metavar="FOLDER", help="a clone of hmx to compare with, not mctx")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args)
    elif args.beside:
        other = OtherVersion(args)
        compare(args, "other", [partial(other.play, index) for index in range(len(args.simulations))])
        other.close()
    else:
        compare(args, "mctx", searches(args, by_mctx))


if __name__ == "__main__":
    main()
