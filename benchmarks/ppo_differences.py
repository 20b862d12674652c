"""Sizes of three differences between implementations of PPO: rows 2.1, 2.2 and 2.3 of docs/ppo.md.

    python benchmarks/ppo_differences.py [--of library|passes|devices] [--rounds 15]

`library` (2.3) compares Flax NNX with Linen: tracing, compiling and 16 gradient steps on minibatches of 1,024, on the
value network of the presets `brax` and `scs`: five layers of 256 units, here on 24 numbers of an observation. NNX
merges the module in every step of the scan, as SCS does. `passes` (2.1) computes the value loss of 256 sequences of 30
steps with that network, with 31 values per sequence (the next value is that of the next step) or 60 (every next state
is evaluated too). Programs run in turn; ratios are medians over the rounds. FLOPs are XLA's own count. `devices` (2.2)
normalises the advantages of minibatches on 8 devices separately, as Brax does, and together, and prints how far apart
they are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

from hmx.algos.collector import RolloutOptions, collect
from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.ppo.update import make_batch, policy_of
from hmx.registry.load import load
from hmx.reports.bench.measure import device_clock, time_in_turn
from hmx.rl.advantages import normalise
from hmx.runs.session import open_session
from hmx.stats.intervals import median

HIDDEN, FEATURES, BATCH, STEPS = (256,) * 5, 24, 1024, 16
SEQUENCES, LENGTH, GAMMA = 256, 30, 0.99
NUM_DEVICES = 8


class LinenValue(nn.Module):
    """The value network in Linen."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Return values `[...]` of observations `[..., F]`."""
        for width in HIDDEN:
            x = nn.swish(nn.Dense(width)(x))
        return nn.Dense(1)(x)[..., 0]


class NnxValue(nnx.Module):
    """The value network in NNX."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        widths = (FEATURES, *HIDDEN, 1)
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(widths)])

    def __call__(self, x: Any) -> Any:
        """Return values `[...]` of observations `[..., F]`."""
        for layer in self.layers[:-1]:
            x = nn.swish(layer(x))
        return self.layers[-1](x)[..., 0]


def linen_update(optimizer: optax.GradientTransformation) -> tuple[Callable[..., Any], Any]:
    """Return gradient steps `(state, batches) -> state`, and the first state."""
    net = LinenValue()
    params = net.init(jax.random.key(0), jnp.zeros((1, FEATURES)))

    def step(state: Any, batch: Any) -> tuple[Any, None]:
        params, opt_state = state
        obs, target = batch
        grads = jax.grad(lambda p: jnp.square(net.apply(p, obs) - target).mean())(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    return lambda state, batches: jax.lax.scan(step, state, batches)[0], (params, optimizer.init(params))


def nnx_update(optimizer: optax.GradientTransformation) -> tuple[Callable[..., Any], Any]:
    """Return gradient steps as `linen_update` does; the module is merged in every step."""
    graph, params = nnx.split(NnxValue(nnx.Rngs(0)))

    def step(state: Any, batch: Any) -> tuple[Any, None]:
        params, opt_state = state
        obs, target = batch
        model = nnx.merge(graph, params)
        _, grads = nnx.value_and_grad(lambda m: jnp.square(m(obs) - target).mean())(model)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    return lambda state, batches: jax.lax.scan(step, state, batches)[0], (params, optimizer.init(params))


def compiled(run: Callable[..., Any], *args: Any) -> tuple[Any, float, float]:
    """Return a compiled program, and the seconds of tracing it and of compiling it."""
    jax.clear_caches()
    times, jitted = [time.perf_counter()], jax.jit(run)
    lowered = jitted.lower(*args)
    times.append(time.perf_counter())
    program = lowered.compile()
    return program, times[1] - times[0], time.perf_counter() - times[1]


def library(rounds: int) -> None:
    """Compare NNX with Linen."""
    k_obs, k_target = jax.random.split(jax.random.key(1))
    batches = jax.random.normal(k_obs, (STEPS, BATCH, FEATURES)), jax.random.normal(k_target, (STEPS, BATCH))
    found: dict[str, dict[str, list[float]]] = {}
    programs: dict[str, tuple[Any, Any]] = {}
    for _ in range(rounds):
        for name, make in (("linen", linen_update), ("nnx", nnx_update)):
            run, state = make(optax.adam(1e-3))
            program, trace, build = compiled(run, state, batches)
            programs[name] = program, state
            for what, value in (("trace", trace), ("compile", build)):
                found.setdefault(what, {}).setdefault(name, []).append(value)
    works = {name: partial(program, state, batches) for name, (program, state) in programs.items()}
    found["step"] = time_in_turn(works, rounds, clock=device_clock())
    flops = {name: program.cost_analysis()["flops"] for name, (program, _) in programs.items()}
    print(f"FLOPs of a gradient step: linen {flops['linen']:.4g}, nnx {flops['nnx']:.4g}")
    for what, times in found.items():
        report(what, times["nnx"], times["linen"])


def passes(rounds: int) -> None:
    """Compare 60 value passes per sequence with 31."""
    net: Any = LinenValue()
    params = net.init(jax.random.key(0), jnp.zeros((1, FEATURES)))
    obs = jax.random.normal(jax.random.key(1), (LENGTH + 1, SEQUENCES, FEATURES))

    def shift(params: Any) -> tuple[Any, Any]:
        value, last = net.apply(params, obs[:-1]), net.apply(params, obs[-1:])
        return value, jnp.concatenate([value[1:], last])

    def both(params: Any) -> tuple[Any, Any]:
        return net.apply(params, obs[:-1]), net.apply(params, obs[1:])

    def loss(values: Callable[[Any], tuple[Any, Any]], params: Any) -> Any:
        value, value_tp1 = values(params)
        return jnp.square(jax.lax.stop_gradient(1.0 + GAMMA * value_tp1) - value).mean()

    ways = {"shift": shift, "both": both}
    learned = {name: jax.grad(partial(loss, way)) for name, way in ways.items()}
    for what, functions in (("forward", ways), ("loss and gradient", learned)):
        programs: dict[str, Any] = {name: jax.jit(way).lower(params).compile() for name, way in functions.items()}
        flops = {name: program.cost_analysis()["flops"] for name, program in programs.items()}
        works = {name: partial(program, params) for name, program in programs.items()}
        times = time_in_turn(works, rounds, clock=device_clock())
        print(f"FLOPs, {what}: 60 passes {flops['both']:.4g}, 31 passes {flops['shift']:.4g}, "
              f"ratio {flops['both'] / flops['shift']:.3f}")  # fmt: skip
        report(f"time, {what}", times["both"], times["shift"])


def devices(rounds: int) -> None:
    """Compare advantages that each device normalises with those normalised together."""
    sets = ["env.id=pendulum", "ppo.advantage_when=rollout", "env.num_envs=512"]
    session = open_session(load(preset="brax", sets=sets, environ={}).config)
    cfg, algorithm, env = session.cfg, session.algorithm, session.env
    parts = make_ppo_components(cfg, env)
    state = algorithm.init(jax.random.key(0))
    options = RolloutOptions(final_obs=True, final_value=True)

    def advantages(key: Any) -> Any:
        rollout = collect(env, policy_of(parts, state), state.actors, key, cfg.algo.num_steps, 1, options)[1]
        return make_batch(rollout, cfg, parts.horizon).advantage  # [steps of a sequence, sequences]

    played = jax.jit(advantages)(jax.random.key(1))
    apart, of_means = [], []
    for i in range(rounds):
        chosen = jax.random.permutation(jax.random.key(i), played.shape[1])[:BATCH]
        together = normalise(played[:, chosen])
        shards = jnp.stack(jnp.split(played[:, chosen], NUM_DEVICES, 1))
        alone = jnp.concatenate(list(jax.vmap(normalise)(shards)), 1)
        apart.append(float(jnp.sqrt(jnp.square(alone - together).mean())))
        of_means.append(float(shards.mean((1, 2)).std() / played[:, chosen].std()))
    spread = f"{median(apart):.3f} ({min(apart):.3f} to {max(apart):.3f})"
    print(f"{NUM_DEVICES} devices, {rounds} minibatches of {BATCH} sequences, in standard deviations of an advantage:")
    print(f"root mean square difference {spread}, standard deviation of the means {median(of_means):.3f}")


def report(what: str, slow: list[float], fast: list[float]) -> None:
    """Print medians in milliseconds, and the median of the ratios of the rounds with their range."""
    ratios = sorted(a / b for a, b in zip(slow, fast, strict=True))
    spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    print(f"{what}: {1e3 * median(slow):.4g} ms against {1e3 * median(fast):.4g} ms, ratio {spread}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=("library", "passes", "devices"))
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    for measure in (library, passes, devices):
        if given.of in (None, measure.__name__):
            measure(given.rounds)
