"""How fast replay draws and writes back, beside other structures, in one run.

    python benchmarks/replay_sampler.py [--capacity 100000 1000000] [--batch 32 256] [--rounds 9]

A step draws a batch in proportion to the priorities and writes a new priority for each of its slots, inside a compiled
loop. Beside `hmx.replay.forest`: a binary sum tree written the same way, and the sum tree of flashbax where that can be
imported, with the faster of its two ways of writing. The structures take turns; printed are microseconds (of
processor time on a CPU) per step (the least of all rounds), and the ratio to ours. Then a whole `sample` and
`set_priority` of `hmx.replay`, with importance weights, by TD error alone and in both ways of mixing. `distinct` is
without replacement, in hmx and by `jax.random.choice` alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hmx.config.learning import ReplayConfig
from hmx.replay import Replay, forest
from hmx.reports.bench.measure import device_clock

Array = jax.Array
Step = Callable[[Any, Array], tuple[Any, Array]]
STEPS = 200


def new_priority(index: Array, key: Array) -> Array:
    """Something to write that depends on what was drawn."""
    return jax.random.uniform(key, index.shape) + 0.1


def ours(leaves: Array, batch: int) -> tuple[Any, Step]:
    """Eight children to a node."""
    entry = jnp.arange(batch, dtype=jnp.int32)

    def step(state: Any, key: Array) -> tuple[Any, Array]:
        k_draw, k_new = jax.random.split(key)
        index = forest.draw(state, k_draw, jnp.zeros_like(entry), entry, jnp.full_like(entry, batch))
        return forest.update(state, 0, index, new_priority(index, k_new)), index

    return jax.jit(forest.build)(leaves[None]), step


def binary(leaves: Array, batch: int) -> tuple[Any, Step]:
    """Build a binary tree that draws with one float32 number and recomputes sums on the way up."""
    depth = (leaves.shape[0] - 1).bit_length()
    levels = [jnp.pad(leaves, (0, 2**depth - leaves.shape[0]))]
    while levels[0].shape[0] > 1:
        levels.insert(0, levels[0].reshape(-1, 2).sum(1))

    def step(state: Any, key: Array) -> tuple[Any, Array]:
        k_draw, k_new = jax.random.split(key)
        left = (jnp.arange(batch) + jax.random.uniform(k_draw, (batch,))) / batch * state[0][0]
        index = jnp.zeros(batch, jnp.int32)
        for level in state[1:]:
            first = level.at[2 * index].get(mode="promise_in_bounds")
            right = left >= first
            index, left = 2 * index + right, jnp.where(right, left - first, left)
        drawn = jnp.minimum(index, leaves.shape[0] - 1)
        state, at = list(state), drawn
        state[-1] = state[-1].at[at].set(new_priority(drawn, k_new), mode="promise_in_bounds")
        for level in range(depth, 0, -1):
            at = at // 2
            sums = state[level].reshape(-1, 2).at[at].get(mode="promise_in_bounds").sum(1)
            state[level - 1] = state[level - 1].at[at].set(sums, mode="promise_in_bounds")
        return tuple(state), drawn

    return tuple(levels), step


def of_flashbax(writes: str) -> Callable[[Array, int], tuple[Any, Step]]:
    """The sum tree of flashbax, written one by one (`scan`) or level by level (`bincount`)."""
    from flashbax.buffers import sum_tree

    write = {"scan": sum_tree.set_batch_scan, "bincount": sum_tree.set_batch_bincount}[writes]

    def make(leaves: Array, batch: int) -> tuple[Any, Step]:
        every = jnp.arange(leaves.shape[0])
        state = jax.jit(lambda x: sum_tree.set_batch_bincount(sum_tree.init(x.shape[0]), every, x))(leaves)

        def step(state: Any, key: Array) -> tuple[Any, Array]:
            k_draw, k_new = jax.random.split(key)
            index = sum_tree.stratified_sample(state, batch, k_draw)
            return write(state, index, new_priority(index, k_new)), index

        return state, step

    return make


def choice(leaves: Array, batch: int) -> tuple[Any, Step]:
    """Sample without replacement with a function of JAX, in time that grows with the capacity."""

    def step(state: Any, key: Array) -> tuple[Any, Array]:
        k_draw, k_new = jax.random.split(key)
        index = jax.random.choice(k_draw, state.shape[0], (batch,), replace=False, p=state / state.sum())
        return state.at[index].set(new_priority(index, k_new)), index

    return leaves, step


def whole(mixing: Any, replacement: bool = True) -> Callable[[Array, int], tuple[Any, Step]]:
    """`sample` and `set_priority` of a full buffer, a third of it scored."""

    def make(leaves: Array, batch: int) -> tuple[Any, Step]:
        capacity = leaves.shape[0]
        replay = Replay(capacity, capacity, ReplayConfig(mixing=mixing, replacement=replacement))

        @jax.jit
        def fill(leaves: Array) -> Any:
            items = {"obs": jnp.zeros((capacity, 8))}
            state = replay.add(replay.init(items, ()), items, ())
            every = jnp.arange(capacity, dtype=jnp.int32)
            state = replay.set_priority(state, every, state.birth, leaves)
            return replay.set_scores(state, every[::3], state.birth[::3], leaves[::3])

        def step(state: Any, key: Array) -> tuple[Any, Array]:
            k_draw, k_new = jax.random.split(key)
            drawn = replay.sample(state, k_draw, batch, 0.4)
            td_error = new_priority(drawn.index, k_new) + 0.0 * (drawn.weights + drawn.items["obs"].sum(1))
            return replay.set_priority(state, drawn.index, drawn.birth, td_error), drawn.index

        return fill(leaves), step

    return make


def compiled(state: Any, step: Step) -> tuple[Any, Any]:
    """The loop over steps, warmed up, and its state."""

    def body(carry: Any, key: Array) -> tuple[Any, None]:
        state, seen = carry
        state, index = step(state, key)
        return (state, seen + index.sum()), None

    def run(state: Any, key: Array) -> Any:
        return jax.lax.scan(body, (state, jnp.int32(0)), jax.random.split(key, STEPS))[0]

    loop = jax.jit(run, donate_argnums=0)
    state, _ = loop(state, jax.random.key(0))
    return loop, jax.block_until_ready(state)


def measure(candidates: dict[str, Any], capacity: int, batch: int, rounds: int) -> dict[str, float]:
    """Microseconds per step of each, taking turns."""
    leaves = jax.random.uniform(jax.random.key(9), (capacity,)) + 0.1
    loops = {name: compiled(*make(leaves, batch)) for name, make in candidates.items()}
    best = dict.fromkeys(loops, float("inf"))
    clock = device_clock()
    for turn in range(rounds):
        for name, (loop, state) in loops.items():
            start = clock()
            state, _ = jax.block_until_ready(loop(state, jax.random.key(turn)))
            best[name] = min(best[name], (clock() - start) / STEPS * 1e6)
            loops[name] = loop, state
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    candidates: dict[str, Any] = {"hmx.replay.forest": ours, "binary sum tree": binary}
    try:
        candidates |= {f"flashbax, {writes}": of_flashbax(writes) for writes in ("scan", "bincount")}
    except ImportError:
        print("flashbax cannot be imported: left out")
    candidates |= {f"whole replay, {mixing}": whole(mixing) for mixing in ("td", "additive")}
    candidates |= {f"{mixing}, distinct": whole(mixing, False) for mixing in ("td", "additive")}
    candidates["jax.random.choice, distinct"] = choice
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    for capacity in args.capacity:
        for batch in args.batch:
            print(f"capacity {capacity:,}, batch {batch}")
            found = measure(candidates, capacity, batch, args.rounds)
            for name, cost in found.items():
                print(f"  {name:<30} {cost:9.1f} us {cost / found['hmx.replay.forest']:8.2f} x")


if __name__ == "__main__":
    main()
