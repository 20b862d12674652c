"""Cost of a gradient report: operations and time against training updates, and memory by groups in flight.

    python benchmarks/grad_report_cost.py [--run RUN] [--groups 32] [--per-group 4] [--max-length 256] [--rounds 3]

Prints the median times of an update and of a report as training makes it, taken turn by turn, and the share of a run
that reports every 50 updates spends on reporting; then the floating-point operations of one update's gradient steps
and of one report, the times of its parts, the scratch memory of the compiled gradients by chunk size, and the same
gradients as one program and backward pass per component, which computes the forward pass again for each. Operations are
XLA's own count. The cost of a report grows with the length of the episodes: with --run the policy is that of a run's
newest checkpoint, otherwise an untrained one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.gradients.buckets import split
from hmx.algos.gradients.measures import Sums, measure
from hmx.algos.gradients.per_group import GroupGradients, gather, layers, make_group_gradients
from hmx.algos.gradients.probe import Probe, group_index, in_parts, make_prober, part_width, play
from hmx.algos.gradients.reporter import make_reporter
from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.ppo.gradients import GroupBatch, at_rows, coefficients, components, ppo_sums
from hmx.algos.ppo.loss import policy_advantage, ppo_loss
from hmx.algos.ppo.update import fit_codec, make_ppo
from hmx.algos.sequences import take_sequences
from hmx.config.schema import AlgoConfig, Config, EnvConfig, RunConfig
from hmx.envs.registry import make_env
from hmx.jobs.grad_training import MAX_LENGTH, PER_GROUP, request_of
from hmx.reports.bench.measure import Work, time_in_turn
from hmx.runs.restoring import Run
from hmx.stats.intervals import median

EVERY = 50
CHUNKS = (1, 2, 4, 8, 16)


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

    def __init__(self, cfg: Config, args: argparse.Namespace, state: Any) -> None:
        env = make_env(cfg.env, cfg.reward)
        self.cfg, self.args = cfg, args
        self.parts, self.algorithm = make_ppo_components(cfg, env), make_ppo(cfg, env)
        self.state = jax.jit(self.algorithm.init)(jax.random.key(0)) if state is None else state
        # not donated, so that the state can be used again
        self.update = jax.jit(self.algorithm.update)
        request = dataclasses.replace(
            request_of(cfg.run), groups=args.groups, per_group=args.per_group, max_length=args.max_length
        )
        self.reporter = make_reporter(cfg, env, request)
        self.hypers = {name: jnp.float32(value) for name, value in self.algorithm.hypers(0).items()}
        self.prober = make_prober(self.parts, request)
        self.probe = self.play()
        self.params, self.stats = jax.jit(partial(fit_codec, self.parts))(self.state, self.probe.batch)
        advantage = policy_advantage(
            cfg.ppo, cfg.algo.gamma, self.probe.batch, jnp.ones_like(self.probe.batch.advantage)
        )
        width = part_width(self.probe.batch, args.groups)
        index, real, self.owner = in_parts(*group_index(self.probe.batch, self.probe.group, args.groups), width)
        self.places, self.whole = (
            (index, real),
            GroupBatch(self.probe.batch._replace(advantage=advantage), None),
        )
        each = (np.asarray(self.probe.batch.weight, np.float64).sum(0)[index] * real).sum(1)
        self.steps = np.bincount(self.owner, each, args.groups).astype(np.float64)
        self.num_places = index.size * self.parts.horizon
        self.num_params = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        sums, self.names = at_rows(ppo_sums(self.parts, "analytic")), components("analytic", False)
        self.several = make_group_gradients(sums)
        self.apart = [make_group_gradients(only(sums, c)) for c in range(len(self.names))]

    def play(self) -> Probe:
        """The probe rollout."""
        return play(self.prober, self.parts, self.state, jax.random.key(1))

    def gradients(self, several: Callable[..., Any]) -> GroupGradients:
        """The gradients of all groups."""
        rest = (self.whole, self.stats, self.hypers)
        return gather(several, self.params, self.places, *rest, chunk=self.args.chunk, owner=self.owner)

    def in_turn(self, rounds: int) -> tuple[float, float, float]:
        """Median seconds of an update and of a report, one after the other, and seconds of the first report."""
        hypers = self.algorithm.hypers(0)
        works: dict[str, Work] = {
            "report": lambda: jax.tree.leaves(self.reporter(self.state, hypers, jax.random.key(1))),
            "update": lambda: self.update(self.state, self.hypers),
        }
        begun = time.perf_counter()
        works["report"]()
        first = time.perf_counter() - begun
        seconds = time_in_turn(works, rounds)
        return median(seconds["update"]), median(seconds["report"]), first

    def times(self, rounds: int) -> dict[str, float]:
        """Median seconds of each part of a report, and of a program per component."""
        found = self.gradients(self.several)
        sums = Sums(found.losses, found.grads, self.steps, np.full(self.args.groups, float(self.args.per_group)))
        coefs = coefficients(self.names, self.cfg.ppo.vf_coef, self.algorithm.hypers(0), 0.0)
        buckets = split(self.probe.episodes.reward_std, 4)
        work: dict[str, Callable[[], Any]] = {
            "probe": lambda: self.play().batch,
            "gradients": lambda: self.gradients(self.several).grads,
            "measures": lambda: bool(measure(sums, buckets, coefs, layers(self.params))),
            "apart": lambda: [self.gradients(one).grads for one in self.apart],
        }
        return {name: median(seconds) for name, seconds in time_in_turn(work, rounds).items()}

    def compiled(self, function: Any, chunk: int) -> Any:
        """A program for that many groups."""
        part = jax.tree.map(lambda leaf: leaf[:chunk], self.places)
        return function.lower(self.params, part, self.whole, self.stats, self.hypers).compile()

    def operations(self) -> tuple[float, float, float]:
        """Of an update's gradient steps, of a report, and of one with a program per component."""
        algo, ppo = self.cfg.algo, self.cfg.ppo
        num_rows = self.cfg.env.num_envs * algo.num_steps // self.parts.horizon // ppo.num_minibatches
        rows = jax.eval_shape(lambda: take_sequences(self.probe.batch, jnp.arange(num_rows), jnp.ones(num_rows)))
        gradient = jax.jit(jax.grad(partial(ppo_loss, self.parts), has_aux=True))
        step = gradient.lower(self.params, self.stats, self.hypers, rows).compile()
        calls = -(-len(self.owner) // self.args.chunk)
        together = flops(self.compiled(self.several, self.args.chunk)) * calls
        apart = sum(flops(self.compiled(one, self.args.chunk)) for one in self.apart) * calls
        return flops(step) * self.cfg.ppo.update_epochs * self.cfg.ppo.num_minibatches, together, apart


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="whose configuration and newest policy are used, instead of the defaults")
    parser.add_argument("--groups", type=int, default=RunConfig().grad_report_groups)
    parser.add_argument("--per-group", type=int, default=PER_GROUP)
    parser.add_argument("--max-length", type=int, default=MAX_LENGTH, help="steps of an episode at most")
    parser.add_argument("--chunk", type=int, default=8, help="parts of groups in flight")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-envs", type=int, default=EnvConfig().num_envs, help="of an update, without --run")
    parser.add_argument("--short", action="store_true", help="only times of an update and of a report")
    parser.add_argument("--json", action="store_true", help="print these times as an object, and nothing else")
    args = parser.parse_args()

    cfg, state = Config(run=RunConfig(), env=EnvConfig(num_envs=args.num_envs), algo=AlgoConfig()), None
    if args.run:
        source = Run.find(args.run, "runs")
        cfg = source.cfg
        state = source.agent(source.open()).state
    costs = Costs(cfg, args, state)
    update_s, report_s, first_s = costs.in_turn(args.rounds)
    share = report_s / (EVERY * update_s + report_s)
    if args.json:
        print(json.dumps({"update_seconds": update_s, "report_seconds": report_s, "share": share}))
        return
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {cfg.env.id}, {costs.num_params:,} parameters")
    print(f"update: {cfg.env.num_envs * cfg.algo.num_steps:,} steps; report: {int(costs.steps.sum()):,} steps of")
    print(f"  {args.groups} groups of {args.per_group} episodes, filled up to {costs.num_places:,}")
    print(
        f"seconds              update {update_s:.3f}  report {report_s:.3f}, the first with compilation {first_s:.1f}"
    )
    print(f"share of a run that reports every {EVERY} updates: {share:.2%}")
    if not args.short:
        details(costs, args)


def details(costs: Costs, args: argparse.Namespace) -> None:
    """Print the parts of the time, and the alternatives."""
    times = costs.times(args.rounds)
    update_flops, report_flops, apart_flops = costs.operations()
    print("  of the report      " + "  ".join(f"{name} {times[name]:.3f}" for name in times if name != "apart"))
    print(f"gradient operations  update {update_flops:.3g}  report {report_flops:.3g}")
    print(f"                     {report_flops / update_flops:.1%} of an update's")
    slower = times["apart"] / times["gradients"]
    print(f"one program per component: {times['apart']:.3f} s, {slower:.2f} times as long,")
    print(f"  and {apart_flops / report_flops:.2f} times as many operations")
    print("scratch memory by parts of groups in flight:")
    for chunk in (c for c in CHUNKS if c <= len(costs.owner)):
        temporary = costs.compiled(costs.several, chunk).memory_analysis().temp_size_in_bytes
        print(f"  {chunk:>3}  {temporary / 2**20:>8.1f} MiB")


if __name__ == "__main__":
    main()
