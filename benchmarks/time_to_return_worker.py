"""One program of `time_to_return.py` in its own process: hmx, or a peer, which then needs no hmx.

It reads a `Task` as one line of JSON and writes what compiling took. Then it trains one seed for each number it reads,
and writes when that seed's mean return passed the threshold. Peers are called, not copied: rejax and Stable-Baselines3
must be installed; PureJaxRL is a clone of its repository, a folder of scripts, whose configuration is read too.
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

    program: str  # hmx, rejax, purejaxrl or sb3
    env: str
    settings: dict[str, Any]  # of hmx: preset and sets; of a peer: its own names
    limit: int  # environment steps after which a seed is given up
    seconds: float  # after which it is given up, of the processor, or of the wall clock on an accelerator
    target: float
    episodes: int  # the mean return is that of the last updates in which at least so many ended
    folder: str = ""  # of PureJaxRL


class Program(NamedTuple):
    """A program that is ready to train: `step` does some updates, and all numbers it returns are on the host."""

    start: Callable[[int], Any]  # the state of a seed
    step: Callable[[Any], tuple[Any, Series]]
    per_update: int  # environment steps
    total: int  # environment steps that a training lasts
    versions: str
    workers_cpu: Callable[[], float] = lambda: 0.0  # processor seconds of its worker processes


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
    chunk = compile_chunk(algorithm, abstract_state(algorithm, 0, 1), cfg.run.updates_per_chunk)

    def start(seed: int) -> Seed:
        return Seed(algorithm, chunk, jax.block_until_ready(init_state(algorithm, seed, 1)))

    return Program(start, advance, cfg.env.num_envs * cfg.algo.num_steps, cfg.run.total_steps, versions("hmx"))


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
    records = [reduce_row(chunk.rows, values) for values in jax.device_get(result.packed)]
    counts = np.array([record["train/num_episodes"] for record in records])
    means = np.array([record.get("train/mean_episode_return", 0.0) for record in records])
    return seed._replace(state=result.state, done=done + chunk.length), (counts, counts * means)


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
        reply({"cpu": spent[0], "wall": spent[1], "versions": program.versions, "on_cpu": on_cpu()})
        for line in sys.stdin:
            reply(train(program, int(line), task))


if __name__ == "__main__":
    main()
