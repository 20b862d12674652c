"""Parts of the time of a PPO update on HackMatrix, and its layers' share of the matrix speed.

    python benchmarks/update_parts.py [--rounds 7] [--set algo.num_steps=128]

Times whole updates, the rollout, one gradient step, and the parts of a gradient step, each compiled alone, in turn. A
layer is timed forwards and backwards, and its speed compared with that of matrix products of the same shapes and of
2048 x 2048. Everything but the rollout and the update repeats inside a compiled loop, as in an update: a separate
program would also pay for new pages of memory. Parts that are compiled alone pass their results through memory, so
their times can add up to more than the whole. Seconds are of the processor on a CPU.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.ppo.loss import ppo_loss
from hmx.algos.sequences import Batch, take_sequences
from hmx.nets.build import features
from hmx.nets.layers import Cells, Torso
from hmx.registry.load import load
from hmx.reports.bench.measure import Updates, device_clock, time_in_turn
from hmx.runs.session import open_session
from hmx.stats.intervals import median

MATRIX = 2048
REPEATS = 16
WHOLE = ("update", "rollout", "gradient step")


def repeated(fn: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """`REPEATS` calls of `fn` in a compiled loop."""

    @jax.jit
    def run(number: jax.Array, args: Any) -> Any:
        def body(i: jax.Array, _: Any) -> Any:
            now, _ = jax.lax.optimization_barrier((args, i))  # else the compiler would move the work out of the loop
            return fn(*now)

        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(fn, *args))
        return jax.lax.fori_loop(0, number, body, blank)

    return lambda: run(jnp.int32(REPEATS), args)


def forth_and_back(apply: Callable[..., Any], over_inputs: bool, params: Any, x: Any, cotangent: Any) -> Any:
    """A layer's output, and its gradients over the parameters and, unless it is the first, over the inputs."""
    out, pull = jax.vjp(apply, params, x) if over_inputs else jax.vjp(lambda p: apply(p, x), params)
    return out, pull(cotangent)


def products(over_inputs: bool, x: jax.Array, w: jax.Array, g: jax.Array) -> Any:
    """The matrix products of a linear layer forwards and backwards."""
    return (x @ w, x.T @ g, *((g @ w.T,) if over_inputs else ()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any configuration key")
    args = parser.parse_args()
    session = open_session(load(environ={}, sets=args.set).config)
    cfg, net, updates = session.cfg, session.cfg.net, Updates(session)
    updates.update(1)
    parts, state, spec = make_ppo_components(cfg, session.env), jax.tree.map(jnp.copy, updates.state), session.env.spec
    hypers = {name: jnp.float32(value) for name, value in session.algorithm.hypers(1).items()}
    rollout = jax.jit(session.algorithm.experience)
    batch = Batch(**rollout(state, hypers), carry=None)
    number, steps = batch.weight.size // cfg.ppo.num_minibatches, cfg.ppo.update_epochs * cfg.ppo.num_minibatches
    index = jax.random.permutation(jax.random.key(0), batch.weight.size)[:number]
    loss = partial(ppo_loss, parts)

    def step(params: Any, opt_state: Any, batch: Batch, index: jax.Array) -> Any:
        taken = take_sequences(batch, index, jnp.ones(number))
        grads, metrics = jax.grad(loss, has_aux=True)(params, state.learner.value_stats, hypers, taken)
        return parts.optimiser.step(params, opt_state, grads, hypers["learning_rate"]), metrics

    obs, learned = batch.obs[:, index], (state.params, state.opt_state)
    works = {
        "update": lambda: updates.update(1),
        "rollout": lambda: rollout(state, hypers),
        "gradient step": repeated(step, *learned, batch, index),
        "gather": repeated(take_sequences, batch, index, jnp.ones(number)),
        "unpack": repeated(lambda obs: features("cells", spec, obs, number), obs),
        "optimiser": repeated(parts.optimiser.step, *learned, state.params, hypers["learning_rate"]),
    }
    seen: Any = features("cells", spec, obs, number)
    flops: dict[str, float] = {}
    layers: dict[str, Any] = {"cell layer": Cells(net)}
    layers |= {f"layer {i + 1}": Torso((width,), net) for i, width in enumerate(net.hidden)}
    torso = state.params["torso"]
    for i, (name, module) in enumerate(layers.items()):
        params = {"dense_0": torso[f"dense_{i - 1}"]} if i else state.params["torso_cells"]
        apply = partial(lambda module, p, x: module.apply({"params": p}, x), module)
        out = apply(params, seen)
        works[name] = repeated(partial(forth_and_back, apply, i > 0), params, seen, jnp.ones_like(out))
        (w,) = (leaf for leaf in jax.tree.leaves(params) if leaf.ndim == 2)
        x = seen if i else seen[1].reshape(-1, w.shape[0])
        flops[name] = 2 * math.prod(x.shape) * w.shape[1] * (3 if i else 2)
        works[f"products of {name}"] = repeated(partial(products, i > 0), x, w, jnp.ones((x.shape[0], w.shape[1])))
        seen = out
    a = jax.random.normal(jax.random.key(0), (MATRIX, MATRIX))
    works["matrix"] = partial(jax.jit(jnp.matmul), a, a)
    once = ("update", "rollout", "matrix")

    clock = device_clock()
    found = time_in_turn(works, args.rounds, clock=clock)
    seconds = {name: median(times) / (1 if name in once else REPEATS) for name, times in found.items()}
    ceiling = 2 * MATRIX**3 / seconds["matrix"]
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {steps} gradient steps of {number} an update")
    kind = "processor" if clock is time.process_time else "wall"
    print(f"2048 x 2048: {ceiling / 1e9:.0f} GFLOP/s; medians of {kind} time")
    print(f"{'':<14} {'ms':>8} {'of the update':>14} {'GFLOP/s':>8} {'products alone':>15}")
    for name in (*WHOLE, "gather", "unpack", *layers, "optimiser"):
        share = seconds[name] * (1 if name in WHOLE[:2] else steps) / seconds["update"]
        speeds = ""
        if name in flops:
            alone = flops[name] / seconds[f"products of {name}"]
            speeds = f"{flops[name] / seconds[name] / 1e9:>8.0f} {alone / 1e9:>15.0f}"
        print(f"{name:<14} {1e3 * seconds[name]:>8.2f} {share:>14.1%} {speeds}")
    alone = sum(seconds[name] for name in ("gather", "unpack", *layers, "optimiser"))
    print(f"the rest of a gradient step: {1e3 * (seconds['gradient step'] - alone):.2f} ms (loss, heads, metrics)")
    print(f"the layers reach {sum(flops.values()) / seconds['gradient step'] / ceiling:.0%} of the matrix speed")


if __name__ == "__main__":
    main()
