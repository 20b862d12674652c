"""How fast HackMatrix steps: random legal play with mask, observation, reward terms and auto-reset.

    python benchmarks/env_throughput.py [--num-envs 1024] [--chunks 7] [--steps 100]

Prints steps per second (median, lowest and highest of the chunks), compile time and bytes of state per environment,
for the packed observation and for the 1,545 floats it stands for, and the same loop without the environment: what
choosing random legal actions costs by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.env.hackmatrix import make_hackmatrix


def random_legal(legal: jax.Array, key: jax.Array) -> jax.Array:
    """A uniformly random legal action, [E, A], from a mask [E, A, num_actions]."""
    count = legal.sum(-1)
    pick = jax.random.randint(key, count.shape, 0, 1 << 30) % count
    return (jnp.cumsum(legal, -1) <= pick[..., None]).sum(-1)


def play(obs: str, num_envs: int, num_steps: int) -> tuple[Any, Any]:
    """The compiled loop and its first state; the loop returns what keeps every output alive."""
    env = make_hackmatrix(EnvConfig(obs=obs), RewardWeights())

    def step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        state, timestep, seen = carry
        k_act, k_env = jax.random.split(key)
        action = random_legal(timestep.legal, k_act)
        state, timestep = env.step(state, action, jax.random.split(k_env, num_envs))
        seen = jax.tree.map(lambda total, x: total + x.sum(), seen, timestep.terms)
        return (state, timestep, seen), (timestep.terminated.sum(), timestep.final_obs.max())

    @jax.jit
    def loop(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        return jax.lax.scan(step, carry, jax.random.split(key, num_steps))

    state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(0), num_envs))
    seen = {name: jnp.float32(0) for name in timestep.terms}
    return loop, (state, timestep, seen)


def only_choosing(num_envs: int, num_steps: int) -> tuple[Any, Any]:
    """The same loop over a mask that stays as it is."""
    legal = jnp.ones((num_envs, 1, 28), bool)

    def step(legal: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        k_act, k_env = jax.random.split(key)
        action = random_legal(legal, k_act)
        words = jax.vmap(lambda k: jax.random.bits(k, ()))(jax.random.split(k_env, num_envs))
        return legal.at[:, 0, 5].set((words & 1) == 0), action.sum()

    @jax.jit
    def loop(carry: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.scan(step, carry, jax.random.split(key, num_steps))

    return loop, legal


def measure(name: str, loop: Any, carry: Any, num_envs: int, num_steps: int, chunks: int) -> None:
    """Compile, warm up, time the chunks and print a line."""
    start = time.perf_counter()
    compiled = loop.lower(carry, jax.random.key(0)).compile()
    compile_s = time.perf_counter() - start
    carry, _ = compiled(carry, jax.random.key(1))
    rates = []
    for i in range(chunks):
        start = time.perf_counter()
        carry, _ = jax.block_until_ready(compiled(carry, jax.random.key(2 + i)))
        rates.append(num_envs * num_steps / (time.perf_counter() - start))
    print(f"{name:>16} {statistics.median(rates):>12,.0f} {min(rates):>12,.0f} {max(rates):>12,.0f} {compile_s:>10.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100, help="steps per chunk")
    parser.add_argument("--chunks", type=int, default=7)
    args = parser.parse_args()

    env = make_hackmatrix(EnvConfig(), RewardWeights())
    state, _ = jax.eval_shape(env.reset, jax.random.split(jax.random.key(0), args.num_envs))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) / args.num_envs
    print(
        f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {args.num_envs} environments, {size:,.0f} bytes each"
    )
    print(f"{'observation':>16} {'steps/s':>12} {'lowest':>12} {'highest':>12} {'compile s':>10}")
    for obs in ("packed", "flat"):
        measure(obs, *play(obs, args.num_envs, args.steps), args.num_envs, args.steps, args.chunks)
    measure("no environment", *only_choosing(args.num_envs, args.steps), args.num_envs, args.steps, args.chunks)


if __name__ == "__main__":
    main()
