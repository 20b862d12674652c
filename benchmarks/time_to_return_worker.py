"""One program of `time_to_return.py` or `many_seeds.py` in its own process: hmx, or a peer, which then needs no hmx.

It reads a `Task` as one line of JSON and writes what compiling took. Then it trains one seed for each number it reads,
and writes when that seed's mean return passed the threshold; for the text "speed" it writes how long some updates took.
Peers are called, not copied: rejax and Stable-Baselines3 must be installed; PureJaxRL is a clone of its repository, a
folder of scripts, whose configuration is read too.
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
from unittest import mock

import jax
import jax.interpreters.xla
import jax.numpy as jnp
import numpy as np

Series = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Of each update: how many episodes ended, and the sum of their returns."""


class Task(NamedTuple):
    """The training of a worker, and its limits."""

    program: str  # hmx, rejax, purejaxrl or sb3
    env: str
    settings: dict[str, Any]  # of hmx: preset and sets; of a peer: its own names
    limit: int  # environment steps after which a seed is given up
    seconds: float  # after which it is given up, of the processor, or of the wall clock on an accelerator
    target: float
    episodes: int  # the mean return is that of the last updates in which at least so many ended
    folder: str = ""  # of PureJaxRL
    together: int = 1  # seeds that one program trains
    updates: int = 0  # that one call of a program does; 0 leaves the number to the program


class Program(NamedTuple):
    """A program that is ready to train: `step` does some updates, and all numbers it returns are on the host.

    Where a program trains several seeds, its series has their sums.
    """

    start: Callable[[int], Any]  # the state of a seed, or of several from that one on
    step: Callable[[Any], tuple[Any, Series]]
    per_update: int  # environment steps
    total: int  # environment steps that a training lasts
    versions: str
    workers_cpu: Callable[[], float] = lambda: 0.0  # processor seconds of its worker processes
    memory_bytes: int = 0  # of arguments, results and everything between
    begin: Callable[[Any], Any] | None = None  # the part of `step` that is not training


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

# hyperparams/ppo.yml of RL Baselines3 Zoo, which runs all environments in one process unless asked otherwise
ZOO: dict[str, dict[str, Any]] = {
    "gymnasium/LunarLander-v3": {
        "n_envs": 16,
        "n_steps": 1024,
        "batch_size": 64,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "n_epochs": 4,
        "ent_coef": 0.01,
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

    def clocks() -> tuple[float, float]:
        return time.process_time() + program.workers_cpu(), time.perf_counter()

    state = program.start(seed)
    series: Series = (np.zeros(0), np.zeros(0))
    cpu = wall = 0.0
    most = min(program.total, task.limit) // program.per_update
    while len(series[0]) < most and (cpu if on_cpu() else wall) < task.seconds:
        began = clocks()
        state, new = program.step(state)
        spent = [now - then for now, then in zip(clocks(), began, strict=True)]
        before = len(series[0])
        series = np.append(series[0], new[0]), np.append(series[1], new[1])
        update = arrival(series, task.target, task.episodes)
        share = 1.0 if update is None else (update - before) / len(new[0])
        cpu, wall = cpu + share * spent[0], wall + share * spent[1]
        if update is not None:
            return True, cpu, wall, float(update * program.per_update)
    return False, cpu, wall, float(len(series[0]) * program.per_update)


def speed(program: Program, task: Task) -> tuple[float, float, float]:
    """Time one call of a program: processor seconds, wall seconds, and environment steps over all seeds."""
    state = program.start(0)
    times = time.process_time(), time.perf_counter()
    if program.begin is not None:
        program.begin(state)
    after = time.process_time(), time.perf_counter()
    _, series = program.step(state)
    cpu, wall = time.process_time() - after[0], time.perf_counter() - after[1]
    steps = len(series[0]) * program.per_update * task.together
    return cpu - (after[0] - times[0]), wall - (after[1] - times[1]), float(steps)


def side_by_side(function: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return a function of one seed for all seeds of a task: their arrays have a leading axis if there are several."""
    return function if task.together == 1 else jax.vmap(function)


def keys_of(make: Callable[[Any], jax.Array], seed: int, task: Task) -> jax.Array:
    """Return the key of a seed, or of several from that one on."""
    return make(seed) if task.together == 1 else jax.vmap(make)(seed + jnp.arange(task.together))


def over_seeds(values: np.ndarray[Any, Any], task: Task) -> np.ndarray[Any, Any]:
    """Return the sums over the seeds, which are the leading axis if there are several."""
    return values if task.together == 1 else values.sum(0)


def memory_bytes_of(compiled: jax.stages.Compiled) -> int:
    """Return the bytes of arguments, results and everything between; 0 where the backend does not say.

    The same as `hmx.runs.chunk.memory_bytes_of`, which the Python of a peer does not have.
    """
    sizes = compiled.memory_analysis()
    if sizes is None:
        return 0
    total = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return int(total - sizes.alias_size_in_bytes)


def versions(*packages: str) -> str:
    """Name the installed ones of some packages with their versions, and the device."""
    found = []
    for name in (*packages, "jax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return f"{', '.join(found)} on {jax.devices()[0].device_kind}"


class Seed(NamedTuple):
    """The training of a seed by hmx."""

    algorithm: Any
    chunk: Any
    state: Any
    done: int = 0  # updates


def hmx(task: Task) -> Program:
    """Compile hmx: chunks of updates with metrics on the host, as `hmx train` runs them."""
    from hmx.algos.build import make_algorithm
    from hmx.envs.registry import make_env
    from hmx.registry.load import load
    from hmx.runs.chunk import compile_chunk
    from hmx.runs.loop import abstract_state, init_state

    cfg = load(environ={}, **task.settings).config
    env = make_env(cfg.env, cfg.reward)
    if env.spec.simulator is not None:
        return hmx_on_simulators(cfg)
    algorithm = make_algorithm(cfg, env)
    seeds, length = task.together, task.updates or cfg.run.updates_per_chunk
    chunk = compile_chunk(algorithm, abstract_state(algorithm, 0, seeds), length, seeds)

    def start(seed: int) -> Seed:
        return Seed(algorithm, chunk, jax.block_until_ready(init_state(algorithm, seed, seeds)))

    per_update = cfg.env.num_envs * cfg.algo.num_steps
    return Program(start, advance, per_update, cfg.run.total_steps, versions("hmx"), memory_bytes=chunk.memory_bytes)


def hmx_on_simulators(cfg: Any) -> Program:
    """Compile hmx for simulators: a seed has workers of its own, and compiles again before its clock starts."""
    from hmx.config.fields import replace
    from hmx.runs.hosted import Host, compile_hosted
    from hmx.runs.session import first_state, open_host, open_session
    from hmx.runs.signals import SignalGuard

    hosts: list[Host] = []  # that of the current seed

    def start(seed: int) -> Seed:
        for ended in hosts:
            ended.close()
        session = open_session(replace(cfg, {"run.seed": seed}))
        host = open_host(session, SignalGuard(), print)
        assert host is not None
        hosts[:] = [host]
        state, _ = host.begin(first_state(session))
        chunk = compile_hosted(session.algorithm, host, session.abstract, cfg.algo.num_steps, cfg.run.on_nonfinite)
        return Seed(session.algorithm, chunk, state)

    start(0)  # which shows how long compiling takes
    per_update = cfg.env.num_envs * cfg.algo.num_steps
    named = versions("hmx", "gymnasium")
    return Program(start, advance, per_update, cfg.run.total_steps, named, lambda: hosts[0].cpu_seconds())


def advance(seed: Seed) -> tuple[Seed, Series]:
    """Run a chunk of hmx."""
    from hmx.runs.chunk import reduce_row

    chunk, done = seed.chunk, seed.done
    hypers = [seed.algorithm.hypers(done + i) for i in range(chunk.length)]
    rows = {name: np.array([row[name] for row in hypers], np.float32) for name in hypers[0]}
    result = chunk.call(seed.state, rows, np.int32(chunk.length))
    packed = jax.device_get(result.packed).reshape(chunk.length * chunk.num_seeds, -1)
    records = [reduce_row(chunk.rows, values) for values in packed]
    counts = np.array([record["train/num_episodes"] for record in records])
    means = np.array([record.get("train/mean_episode_return", 0.0) for record in records])
    sums = [values.reshape(chunk.length, chunk.num_seeds).sum(1) for values in (counts, counts * means)]
    return seed._replace(state=result.state, done=done + chunk.length), (sums[0], sums[1])


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


def repair_imports() -> None:
    """Let distrax and the scripts of PureJaxRL be imported where what they need is newer or missing.

    tensorflow-probability 0.25, of distrax, reads a table that JAX has moved. The wrappers of PureJaxRL import Brax and
    navix, which its scripts for the environments of gymnax do not use.
    """
    tables: Any = jax.interpreters.xla
    if not hasattr(tables, "pytype_aval_mappings"):
        tables.pytype_aval_mappings = importlib.import_module("jax._src.core").pytype_aval_mappings
    for name in ("navix", "brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training"):
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = mock.MagicMock()


def draw_weights_one_by_one() -> None:
    """Let flax draw the orthogonal weights of several seeds one after another.

    A batched QR factorisation can wait forever on a CPU with two threads (jaxlib 0.10.2): without this, PureJaxRL with
    128 seeds never began to train.
    """
    initialisers = importlib.import_module("flax.linen.initializers")
    orthogonal = initialisers.orthogonal

    def sequential(*options: Any) -> Callable[..., jax.Array]:
        draw = orthogonal(*options)

        def init(key: jax.Array, shape: Any, dtype: Any = jnp.float32, **_: Any) -> jax.Array:
            one_by_one: Callable[[jax.Array], jax.Array]
            one_by_one = jax.custom_batching.sequential_vmap(lambda k: draw(k, shape, dtype))
            return one_by_one(key)

        return init

    initialisers.orthogonal = sequential  # type: ignore[attr-defined]


def rejax(task: Task) -> Program:
    """Compile the training iterations of rejax's PPO, without its evaluations: chunks of about 8,192 steps."""
    repair_imports()
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
        return jax.lax.scan(iteration, state, None, task.updates or max(1, 8192 // per_update))

    # an empty scan gives the state the types that it has after an iteration
    begin = jax.jit(side_by_side(lambda key: jax.lax.scan(iteration, algo.init_state(key), None, 0)[0], task))
    example = jax.eval_shape(begin, keys_of(jax.random.key, 0, task))
    compiled = jax.jit(side_by_side(chunk, task), donate_argnums=0).lower(example).compile()

    def start(seed: int) -> Any:
        return jax.block_until_ready(begin(keys_of(jax.random.key, seed, task)))

    def step(state: Any) -> tuple[Any, Series]:
        state, (counts, returns) = compiled(state)
        return state, (over_seeds(jax.device_get(counts), task), over_seeds(jax.device_get(returns), task))

    memory = memory_bytes_of(compiled)
    return Program(start, step, per_update, task.limit, versions("rejax", "gymnax", "flax"), memory_bytes=memory)


def purejaxrl(task: Task) -> Program:
    """Compile a whole training of PureJaxRL, which has no smaller part; needs gymnax before 1.0.

    Its script for continuous actions takes environments of Brax only. Here it gets gymnax's pendulum in that place,
    with the action in units of the greatest torque, because the script clips actions to [-1, 1].
    """
    repair_imports()
    draw_weights_one_by_one()
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
    per_update = int(config["NUM_ENVS"] * config["NUM_STEPS"])
    if task.updates:
        config["TOTAL_TIMESTEPS"] = task.updates * per_update
    config["NUM_UPDATES"] = int(config["TOTAL_TIMESTEPS"]) // per_update
    example = keys_of(jax.random.PRNGKey, 0, task)

    def training(steps: int) -> Any:
        train = module.make_train({**config, "TOTAL_TIMESTEPS": steps})

        def whole(key: jax.Array) -> tuple[Any, Any]:
            result = train(key)
            ended = result["metrics"]["returned_episode"]
            returns = (result["metrics"]["returned_episode_returns"] * ended).sum((1, 2))
            # the state is a result, or the compiler would leave out what only it needs
            return result["runner_state"], (ended.sum((1, 2)), returns)

        return jax.jit(side_by_side(whole, task)).lower(example).compile()

    compiled = training(config["TOTAL_TIMESTEPS"])
    without_updates = functools.cache(lambda: training(0))

    def step(key: Any) -> tuple[Any, Series]:
        _, (counts, returns) = jax.block_until_ready(compiled(key))
        return key, (over_seeds(jax.device_get(counts), task), over_seeds(jax.device_get(returns), task))

    return Program(
        lambda seed: keys_of(jax.random.PRNGKey, seed, task),
        step,
        per_update,
        config["NUM_UPDATES"] * per_update,
        f"PureJaxRL, {versions('gymnax', 'flax')}",
        memory_bytes=memory_bytes_of(compiled),
        begin=lambda key: jax.block_until_ready(without_updates()(key)),
    )


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


def sb3(task: Task) -> Program:
    """Make PPO of Stable-Baselines3 with the hyperparameters of RL Baselines3 Zoo, in one thread."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)  # for networks of this size, more threads take more processor time
    settings = {**ZOO[task.env], **task.settings}
    num_envs = settings.pop("n_envs")
    per_update = num_envs * settings["n_steps"]

    def start(seed: int) -> Any:
        envs = make_vec_env(task.env.removeprefix("gymnasium/"), num_envs, seed=seed)
        return PPO("MlpPolicy", envs, seed=seed, device="cpu", stats_window_size=per_update, **settings)

    def step(model: Any) -> tuple[Any, Series]:
        if model.ep_info_buffer is not None:
            model.ep_info_buffer.clear()
        model.learn(per_update, reset_num_timesteps=False)  # one update; episodes continue
        returns = [episode["r"] for episode in model.ep_info_buffer]
        return model, (np.array([len(returns)]), np.array([sum(returns)]))

    return Program(start, step, per_update, task.limit, versions("stable-baselines3", "torch", "gymnasium"))


PROGRAMS: dict[str, Callable[[Task], Program]] = {"hmx": hmx, "rejax": rejax, "purejaxrl": purejaxrl, "sb3": sb3}


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
        memory = program.memory_bytes
        reply({"cpu": spent[0], "wall": spent[1], "versions": program.versions, "on_cpu": on_cpu(), "memory": memory})
        for line in sys.stdin:
            question = json.loads(line)
            reply(speed(program, task) if question == "speed" else train(program, question, task))


if __name__ == "__main__":
    main()
