"""What a gradient report costs: operations and time against training updates, and memory by groups in flight.

    python benchmarks/grad_report_cost.py [--env hackmatrix] [--num-envs 512] [--groups 64] [--per-group 8] [--rounds 5]

Prints the floating-point operations of one update's gradient steps and of one report, the median times of both and
their parts, the share of a run that reports every 50 updates spend on reporting, the scratch memory of the compiled
gradients by chunk size, and the same gradients as one program and backward pass per component, which computes the
forward pass anew for each. Operations are XLA's own count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.ppo import fit_codec, make_parts, make_ppo, policy_advantage, policy_of, ppo_loss
from hmx.agents.rows import take_rows
from hmx.analysis.buckets import reward_std, split
from hmx.analysis.components import Group, coefficients, live, ppo_sums
from hmx.analysis.gradients import GroupGradients, gather, layers, make_group_gradients
from hmx.analysis.measures import Sums, measure
from hmx.analysis.probe import Probe, by_group, group_index, in_parts, make_prober, part_width, play
from hmx.config.schema import AlgoConfig, Config, EnvConfig, RunConfig
from hmx.env.registry import make_env

EVERY = 50
CHUNKS = (1, 2, 4, 8, 16)


def timed(work: Callable[[], Any], rounds: int) -> float:
    """Median seconds of a call, after one to warm up."""
    jax.block_until_ready(work())
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(work())
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def flops(compiled: Any) -> float:
    """Floating-point operations of one call, as XLA counts them."""
    analysis = compiled.cost_analysis()
    return float((analysis[0] if isinstance(analysis, list) else analysis)["flops"])


def only(sums: Callable[..., Any], component: int) -> Callable[..., Any]:
    """The losses of one component."""

    def one(*args: Any) -> tuple[jax.Array, Any]:
        losses, more = sums(*args)
        return losses[component][None], more

    return one


class Costs:
    """An update and a report of one configuration, compiled and played once."""

    def __init__(self, cfg: Config, args: argparse.Namespace) -> None:
        env = make_env(cfg.env, cfg.reward)
        self.cfg, self.args = cfg, args
        self.parts, self.algorithm = make_parts(cfg, env), make_ppo(cfg, env)
        self.state = jax.jit(self.algorithm.init)(jax.random.key(0))
        self.hypers = {name: jnp.float32(value) for name, value in self.algorithm.hypers(0).items()}
        self.prober = make_prober(
            env, partial(policy_of, self.parts), self.parts.net, num_groups=args.groups, per_group=args.per_group,
            horizon=self.parts.horizon, limit=args.max_length,
        )  # fmt: skip
        self.probe = self.play()
        self.params, self.stats = jax.jit(partial(fit_codec, self.parts))(self.state, self.probe.batch)
        advantage = policy_advantage(cfg.algo, self.probe.batch, jnp.ones_like(self.probe.batch.advantage))
        width = part_width(self.probe.batch, args.groups)
        index, real, self.owner = in_parts(*group_index(self.probe.batch, self.probe.group, args.groups), width)
        self.groups = Group(by_group(self.probe.batch._replace(advantage=advantage), index, real), None)
        each = np.asarray(self.groups.batch.weight, np.float64).sum((1, 2))
        self.steps = np.bincount(self.owner, each, args.groups)
        self.num_places = index.size * self.parts.horizon
        self.num_params = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        sums, there = ppo_sums(self.parts, "analytic"), live("analytic", False)
        self.several = make_group_gradients(sums, there)
        self.apart = [make_group_gradients(only(sums, c)) for c, alive in enumerate(there) if alive]

    def play(self) -> Probe:
        """The probe rollout."""
        return play(self.prober, self.state, jax.random.key(1), self.cfg.algo, self.parts.horizon)

    def gradients(self, several: Callable[..., Any]) -> GroupGradients:
        """The gradients of all groups."""
        rest = (self.stats, self.hypers)
        return gather(several, self.params, self.groups, *rest, chunk=self.args.chunk, owner=self.owner)

    def times(self, rounds: int) -> dict[str, float]:
        """Median seconds of an update and of each part of a report."""
        # not donated, so that the state can be used again
        update = jax.jit(self.algorithm.update)
        found = self.gradients(self.several)
        sums = Sums(found.losses, found.grads, self.steps, np.full(self.args.groups, float(self.args.per_group)))
        coefs = coefficients(self.cfg.algo.vf_coef, self.algorithm.hypers(0), 0.0)
        buckets = split(reward_std(self.probe.returns), 4)
        work: dict[str, Callable[[], Any]] = {
            "update": lambda: update(self.state, self.hypers),
            "probe": lambda: self.play().batch,
            "gradients": lambda: self.gradients(self.several).grads,
            "measures": lambda: bool(measure(sums, buckets, coefs, layers(self.params))),
            "apart": lambda: [self.gradients(one).grads for one in self.apart],
        }
        return {name: timed(function, rounds) for name, function in work.items()}

    def compiled(self, function: Any, chunk: int) -> Any:
        """A program for that many groups."""
        part = jax.tree.map(lambda leaf: leaf[:chunk], self.groups)
        return function.lower(self.params, part, self.stats, self.hypers).compile()

    def operations(self) -> tuple[float, float, float]:
        """Of an update's gradient steps, of a report, and of one with a program per component."""
        algo = self.cfg.algo
        num_rows = self.cfg.env.num_envs * algo.num_steps // self.parts.horizon // algo.num_minibatches
        rows = jax.eval_shape(lambda: take_rows(self.probe.batch, jnp.arange(num_rows), jnp.ones(num_rows)))
        gradient = jax.jit(jax.grad(partial(ppo_loss, self.parts), has_aux=True))
        step = gradient.lower(self.params, self.stats, self.hypers, rows).compile()
        calls = -(-len(self.owner) // self.args.chunk)
        together = flops(self.compiled(self.several, self.args.chunk)) * calls
        apart = sum(flops(self.compiled(one, self.args.chunk)) for one in self.apart) * calls
        return flops(step) * algo.update_epochs * algo.num_minibatches, together, apart


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="hackmatrix")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--per-group", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=0, help="steps of an episode at most")
    parser.add_argument("--chunk", type=int, default=8, help="parts of groups in flight")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    cfg = Config(run=RunConfig(), env=EnvConfig(id=args.env, num_envs=args.num_envs), algo=AlgoConfig())
    costs = Costs(cfg, args)
    times = costs.times(args.rounds)
    report_s = times["probe"] + times["gradients"] + times["measures"]
    update_flops, report_flops, apart_flops = costs.operations()

    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {args.env}, {costs.num_params:,} parameters")
    print(f"update: {cfg.env.num_envs * cfg.algo.num_steps:,} steps; report: {int(costs.steps.sum()):,} steps of")
    print(f"  {args.groups} groups of {args.per_group} episodes, filled up to {costs.num_places:,}")
    print(f"gradient operations  update {update_flops:.3g}  report {report_flops:.3g}")
    print(f"                     {report_flops / update_flops:.1%} of an update's")
    print(f"seconds              update {times['update']:.3f}  report {report_s:.3f}")
    print(
        "  of the report      " + "  ".join(f"{name} {times[name]:.3f}" for name in ("probe", "gradients", "measures"))
    )
    share = report_s / (EVERY * times["update"] + report_s)
    print(f"share of a run that reports every {EVERY} updates: {share:.2%}")
    slower = times["apart"] / times["gradients"]
    print(f"one program per component: {times['apart']:.3f} s, {slower:.2f} times as long,")
    print(f"  and {apart_flops / report_flops:.2f} times as many operations")
    print("scratch memory by parts of groups in flight:")
    for chunk in (c for c in CHUNKS if c <= len(costs.owner)):
        temporary = costs.compiled(costs.several, chunk).memory_analysis().temp_size_in_bytes
        print(f"  {chunk:>3}  {temporary / 2**20:>8.1f} MiB")


if __name__ == "__main__":
    main()
