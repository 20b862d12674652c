"""One program of `time_to_return.py` in its own process: hmx, or a peer, which then needs no hmx.

It reads a `Task` as one line of JSON and writes what compiling took. Then it trains one seed for each number it reads,
and writes when that seed's mean return passed the threshold. Peers are called, not copied: rejax must be installed;
PureJaxRL is a clone of its repository, a folder of scripts, whose configuration is read too.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Series = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Of each update: how many episodes ended, and the sum of their returns."""


class Task(NamedTuple):
    """The training of a worker, and its limits."""

    program: str  # hmx, rejax or purejaxrl
    env: str
    settings: dict[str, Any]  # of hmx: preset and sets; of a peer: its own names
    limit: int  # environment steps after which a seed is given up
    seconds: float  # after which it is given up, of the processor, or of the wall clock on an accelerator
    target: float
    episodes: int  # the mean return is that of the last updates in which at least so many ended
    folder: str = ""  # of PureJaxRL


class Program(NamedTuple):
    """A compiled program: `step` does some updates, and all numbers it returns are on the host."""

    start: Callable[[int], Any]  # the state of a seed
    step: Callable[[Any], tuple[Any, Series]]
    per_update: int  # environment steps
    total: int  # environment steps that a training lasts
    versions: str


GYMNAX = {"cartpole-discrete": "CartPole-v1", "pendulum": "Pendulum-v1"}
"""The same environments in gymnax; there, the step limit is a terminal state."""

# configs/gymnax/ of rejax, which its package lacks; what is missing is the default of its PPO
REJAX: dict[str, dict[str, Any]] = {
    "cartpole-discrete": {
        "agent_kwargs": {"activation": "tanh"},
        "num_envs": 5,
        "num_steps": 100,
        "num_epochs": 5,
        "num_minibatches": 5,
        "learning_rate": 7.5e-4,
        "max_grad_norm": 0.5,
    },
    "pendulum": {
        "num_envs": 100,
        "num_steps": 100,
        "num_epochs": 10,
        "num_minibatches": 10,
        "learning_rate": 1e-3,
        "max_grad_norm": 10,
        "gamma": 0.995,
        "ent_coef": 0.0,
        "normalize_observations": True,
    },
}


def arrival(series: Series, target: float, episodes: int) -> int | None:
    """Return the number of updates after which the mean return of the last episodes has passed the target.

    The last episodes are those of the fewest last updates in which at least `episodes` ended.
    """
    counts, sums = (np.concatenate([[0.0], np.cumsum(values)]) for values in series)
    before = np.searchsorted(counts, counts - episodes, side="right") - 1
    (enough,) = np.nonzero(before >= 0)
    before = before[enough]
    (passed,) = np.nonzero((sums[enough] - sums[before]) / (counts[enough] - counts[before]) > target)
    return int(enough[passed[0]]) if len(passed) else None


def on_cpu() -> bool:
    """Whether seconds are those of the processor."""
    return jax.default_backend() == "cpu"


def train(program: Program, seed: int, task: Task) -> tuple[bool, float, float, float]:
    """Train one seed until it arrives or is given up: whether it did, processor seconds, wall seconds and steps.

    Where several updates run in one call, each counts as the same share of its time.
    """
    state = program.start(seed)
    series: Series = (np.zeros(0), np.zeros(0))
    cpu = wall = 0.0
    most = min(program.total, task.limit) // program.per_update
    while len(series[0]) < most and (cpu if on_cpu() else wall) < task.seconds:
        began = time.process_time(), time.perf_counter()
        state, new = program.step(state)
        spent = time.process_time() - began[0], time.perf_counter() - began[1]
        before = len(series[0])
        series = np.append(series[0], new[0]), np.append(series[1], new[1])
        update = arrival(series, task.target, task.episodes)
        share = 1.0 if update is None else (update - before) / len(new[0])
        cpu, wall = cpu + share * spent[0], wall + share * spent[1]
        if update is not None:
            return True, cpu, wall, float(update * program.per_update)
    return False, cpu, wall, float(len(series[0]) * program.per_update)


def versions(*packages: str) -> str:
    """Name the installed ones of some packages with their versions, and the device."""
    found = []
    for name in (*packages, "jax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return f"{', '.join(found)} on {jax.devices()[0].device_kind}"


def hmx(task: Task) -> Program:
    """Compile hmx: chunks of updates with metrics on the host, as `hmx train` runs them."""
    from hmx.algos.build import make_algorithm
    from hmx.envs.registry import make_env
    from hmx.registry.load import load
    from hmx.runs.chunk import compile_chunk, reduce_row
    from hmx.runs.loop import abstract_state, init_state

    cfg = load(environ={}, **task.settings).config
    algorithm = make_algorithm(cfg, make_env(cfg.env, cfg.reward))
    chunk = compile_chunk(algorithm, abstract_state(algorithm, 0, 1), cfg.run.updates_per_chunk)

    def start(seed: int) -> Any:
        return jax.block_until_ready(init_state(algorithm, seed, 1)), 0

    def step(carry: Any) -> tuple[Any, Series]:
        state, done = carry
        hypers = [algorithm.hypers(done + i) for i in range(chunk.length)]
        rows = {name: np.array([row[name] for row in hypers], np.float32) for name in hypers[0]}
        result = chunk.call(state, rows, np.int32(chunk.length))
        records = [reduce_row(chunk.rows, values) for values in jax.device_get(result.packed)]
        counts = np.array([record["train/num_episodes"] for record in records])
        means = np.array([record.get("train/mean_episode_return", 0.0) for record in records])
        return (result.state, done + chunk.length), (counts, counts * means)

    return Program(start, step, cfg.env.num_envs * cfg.algo.num_steps, cfg.run.total_steps, versions("hmx"))


class Tally(NamedTuple):
    """The state of an environment, and what ended in it."""

    inner: Any
    so_far: jax.Array
    episodes: jax.Array
    returns: jax.Array


class Counted:
    """A gymnax environment that counts its episodes in its state; its step is that of gymnax before 1.0."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy is asked for those before it has an inner environment
            raise AttributeError(name)
        return getattr(self.inner, name)

    def reset(self, key: Any, params: Any) -> Any:
        """Reset, with nothing counted."""
        obs, state = self.inner.reset(key, params)
        return obs, Tally(state, jnp.float32(0), jnp.float32(0), jnp.float32(0))

    def step(self, key: Any, state: Tally, action: Any, params: Any) -> Any:
        """Step, and count an episode that ends."""
        obs, inner, reward, *ends, info = self.inner.step(key, state.inner, action, params)
        done = functools.reduce(jnp.logical_or, ends)
        total = state.so_far + jnp.squeeze(reward)
        ended = Tally(inner, total * (1 - done), state.episodes + done, state.returns + total * done)
        return obs, ended, reward, done, info


def rejax(task: Task) -> Program:
    """Compile the training iterations of rejax's PPO, without its evaluations: chunks of about 8,192 steps."""
    import gymnax
    from rejax import PPO

    env, params = gymnax.make(GYMNAX[task.env])
    algo = PPO.create(env=Counted(env), env_params=params, **{**REJAX[task.env], **task.settings})
    per_update = algo.num_envs * algo.num_steps

    def iteration(state: Any, _: None) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        state = algo.train_iteration(state)
        tally = state.env_state
        zero = jnp.zeros_like(tally.episodes)
        cleared = state.replace(env_state=tally._replace(episodes=zero, returns=zero))
        return cleared, (tally.episodes.sum(), tally.returns.sum())

    def chunk(state: Any) -> Any:
        return jax.lax.scan(iteration, state, None, max(1, 8192 // per_update))

    # an empty scan gives the state the types that it has after an iteration
    begin = jax.jit(lambda key: jax.lax.scan(iteration, algo.init_state(key), None, 0)[0])
    example = begin(jax.random.key(0))
    compiled = jax.jit(chunk, donate_argnums=0).lower(example).compile()

    def start(seed: int) -> Any:
        return jax.block_until_ready(begin(jax.random.key(seed)))

    def step(state: Any) -> tuple[Any, Series]:
        state, series = compiled(state)
        return state, jax.device_get(series)

    return Program(start, step, per_update, task.limit, versions("rejax", "gymnax", "flax"))


def purejaxrl(task: Task) -> Program:
    """Compile a whole training of PureJaxRL, which has no smaller part; needs gymnax before 1.0.

    Its script for continuous actions takes environments of Brax only. Here it gets gymnax's pendulum in that place,
    with the action in units of the greatest torque, because the script clips actions to [-1, 1].
    """
    script = "ppo" if task.env == "cartpole-discrete" else "ppo_continuous_action"
    folder = Path(task.folder) / "purejaxrl"
    sys.path[:0] = [task.folder, str(folder)]
    module = importlib.import_module(script)

    class InPlaceOfBrax(Counted):
        def __init__(self, name: str) -> None:
            import gymnax

            inner, self.params = gymnax.make(name)
            super().__init__(inner)

        def reset(self, key: Any, params: None = None) -> Any:
            return self.inner.reset(key, self.params)

        def step(self, key: Any, state: Any, action: Any, params: None = None) -> Any:
            obs, state, reward, done, info = self.inner.step(key, state, 2.0 * action, self.params)
            return obs, state, jnp.squeeze(reward), done, info

        def observation_space(self, params: None) -> Any:
            return self.inner.observation_space(self.params)

    module.BraxGymnaxWrapper = InPlaceOfBrax  # type: ignore[attr-defined]
    published = configuration((folder / f"{script}.py").read_text(encoding="utf-8"))
    if task.env == "pendulum":
        published["TOTAL_TIMESTEPS"] = task.limit
    config = {**published, "ENV_NAME": GYMNAX[task.env], "DEBUG": False, **task.settings}
    train = module.make_train(config)

    def whole(key: jax.Array) -> Series:
        info = train(key)["metrics"]
        ended = info["returned_episode"]
        return ended.sum((1, 2)), (info["returned_episode_returns"] * ended).sum((1, 2))

    compiled = jax.jit(whole).lower(jax.random.PRNGKey(0)).compile()
    per_update = int(config["NUM_ENVS"] * config["NUM_STEPS"])

    def step(key: Any) -> tuple[Any, Series]:
        return key, jax.device_get(compiled(key))

    total = int(config["NUM_UPDATES"]) * per_update
    return Program(jax.random.PRNGKey, step, per_update, total, f"PureJaxRL, {versions('gymnax', 'flax')}")


def configuration(script: str) -> dict[str, Any]:
    """Read the literal that the script assigns to `config` where it runs as a program."""
    for node in ast.walk(ast.parse(script)):
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "config"
            and isinstance(node.value, ast.Dict)
        ):
            found: dict[str, Any] = ast.literal_eval(node.value)
            return found
    raise ValueError("the script assigns no dictionary to config")


PROGRAMS: dict[str, Callable[[Task], Program]] = {"hmx": hmx, "rejax": rejax, "purejaxrl": purejaxrl}


@contextlib.contextmanager
def replies() -> Iterator[Callable[[object], None]]:
    """Keep standard output for replies: output of libraries goes to standard error."""
    with os.fdopen(os.dup(1), "w") as file:
        os.dup2(2, 1)
        yield lambda value: print(json.dumps(value), file=file, flush=True)


def main() -> None:
    """Compile, then train the seeds asked for."""
    with replies() as reply:
        task = Task(**json.loads(sys.stdin.readline()))
        began = time.process_time(), time.perf_counter()
        program = PROGRAMS[task.program](task)
        spent = time.process_time() - began[0], time.perf_counter() - began[1]
        reply({"cpu": spent[0], "wall": spent[1], "versions": program.versions, "on_cpu": on_cpu()})
        for line in sys.stdin:
            reply(train(program, int(line), task))


if __name__ == "__main__":
    main()
