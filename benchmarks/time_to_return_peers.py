"""The peers of `time_to_return.py`, as programs that train a seed.

Peers are called, not copied: rejax and Stable-Baselines3 must be installed; PureJaxRL and Stoix are clones of their
repositories, whose configurations are read too.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import pdb
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.interpreters.xla
import jax.numpy as jnp
import numpy as np
from time_to_return_program import Program, Series, keys_of, memory_bytes_of, over_seeds, side_by_side, versions
from time_to_return_published import PUREJAXRL, REJAX, STOIX_FILES, ZOO
from time_to_return_task import Task

NAMES = {"cartpole-discrete": "CartPole-v1", "pendulum": "Pendulum-v1"}
"""The same environments in gymnax and Gymnasium. In gymnax, the step limit is a terminal state."""


def peers_name(env: str) -> str:
    """Return the name of an environment without the prefix that names its suite."""
    return NAMES.get(env, env.partition("/")[2])


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


def repair_distrax() -> None:
    """Let distrax be imported: tensorflow-probability 0.25, which it needs, reads a table that JAX has moved."""
    tables: Any = jax.interpreters.xla
    if not hasattr(tables, "pytype_aval_mappings"):
        tables.pytype_aval_mappings = importlib.import_module("jax._src.core").pytype_aval_mappings


def replace_unused(env: str) -> None:
    """Let the wrappers of PureJaxRL be imported without navix and Brax where the environment needs neither."""
    for name in ("navix", "brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training"):
        if not env.startswith(name.partition(".")[0] + "/"):
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
    repair_distrax()
    from rejax import PPO
    from rejax.compat import create

    settings = {**REJAX.get(task.env, {}), **task.settings}
    own = NAMES.get(task.env, task.env.removeprefix("gymnax/"))  # it has prefixes for all suites but gymnax
    env, params = create(own, **settings.pop("env_kwargs", {}))
    algo = PPO.create(env=Counted(env), env_params=params, **settings)
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
    with the action in units of the greatest torque, because the script clips actions to [-1, 1]. Its script for navix
    stops in a debugger, which is left out.
    """
    repair_distrax()
    replace_unused(task.env)
    draw_weights_one_by_one()
    pdb.set_trace = mock.MagicMock()
    script = script_of(task.env)
    clone = task.folders["purejaxrl"]
    folder = Path(clone) / "purejaxrl"
    sys.path[:0] = [clone, str(folder)]
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

    published = configuration((folder / f"{script}.py").read_text(encoding="utf-8"))
    if task.env == "pendulum":
        module.BraxGymnaxWrapper = InPlaceOfBrax  # type: ignore[attr-defined]
        published["TOTAL_TIMESTEPS"] = task.limit
    published |= {"ENV_NAME": peers_name(task.env), "DEBUG": False, **PUREJAXRL.get(task.env, {})}
    config = {**published, **task.settings}
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


def script_of(env: str) -> str:
    """Return the script of PureJaxRL that trains on an environment."""
    if env.startswith("navix/"):
        return "ppo_minigrid"
    return "ppo_continuous_action" if env == "pendulum" or env.startswith("brax/") else "ppo"


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


def stoix(task: Task) -> Program:
    """Compile the updates of Stoix's PPO, without its evaluations: chunks of about 8,192 steps.

    Its logger and its checkpoints, which need many more packages, are left out.
    """
    repair_distrax()
    for name in ("logger", "checkpointing"):
        sys.modules[f"stoix.utils.{name}"] = mock.MagicMock()
    clone = Path(task.folders["stoix"]).resolve()
    sys.path.insert(0, str(clone))
    with contextlib.redirect_stdout(sys.stderr):  # answers go to stdout
        system = importlib.import_module("stoix.systems.ppo.anakin.ff_ppo")
        config = configuration_of_stoix(clone, task)
        system.check_total_timesteps(config)
        env, _ = system.environments.make(config)
    per_update = int(config.arch.total_num_envs * config.system.rollout_length)
    config.arch.num_updates_per_eval = task.updates or max(1, 8192 // per_update)

    def setup(seed: int) -> tuple[Any, Any]:
        keys = jax.random.split(jax.random.PRNGKey(seed), 3)
        learn, _, state = system.learner_setup(env, tuple(keys), config)
        return learn, state

    learn, example = setup(0)

    def chunk(state: Any) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        result = learn(state)
        ended = result.episode_metrics["is_terminal_step"]  # [device, update, batch, step, environment]
        returns = (result.episode_metrics["episode_return"] * ended).sum((0, 2, 3, 4))
        return result.learner_state, (ended.sum((0, 2, 3, 4)), returns)

    compiled = jax.jit(chunk).lower(example).compile()

    def step(state: Any) -> tuple[Any, Series]:
        state, series = compiled(state)
        return state, jax.device_get(series)

    return Program(
        lambda seed: jax.block_until_ready(setup(seed)[1]),
        step,
        per_update,
        int(config.arch.num_updates) * per_update,
        f"Stoix, {versions('stoa-env', 'gymnax', 'flax')}",
        memory_bytes=memory_bytes_of(compiled),
    )


def configuration_of_stoix(clone: Path, task: Task) -> Any:
    """Return the configuration of Stoix's PPO on an environment of gymnax, with the settings of a task."""
    hydra, omegaconf = importlib.import_module("hydra"), importlib.import_module("omegaconf")
    settings = {"env": f"gymnax/{STOIX_FILES[task.env]}", "arch.num_evaluation": 1, **task.settings}
    folder = str(clone / "stoix" / "configs" / "default" / "anakin")
    # its configurations name others by paths below the clone
    with contextlib.chdir(clone), hydra.initialize_config_dir(folder, version_base="1.2"):
        config = hydra.compose("default_ff_ppo", [f"{name}={value}" for name, value in settings.items()])
    omegaconf.OmegaConf.set_struct(config, False)
    config.num_devices = 1
    return config


def sb3(task: Task) -> Program:
    """Make PPO of Stable-Baselines3 with the hyperparameters of RL Baselines3 Zoo, in one thread."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)  # for networks of this size, more threads take more processor time
    settings = {"n_timesteps": task.limit, **ZOO.get(task.env, {}), **task.settings}
    num_envs, total = settings.pop("n_envs"), int(settings.pop("n_timesteps"))
    per_update = num_envs * settings["n_steps"]
    left = {"share": 1.0}  # of the training after the update that runs
    for name, value in settings.items():
        if str(value).startswith("lin_"):
            settings[name] = linear(float(value.removeprefix("lin_")), left)

    def start(seed: int) -> Any:
        envs = make_vec_env(peers_name(task.env), num_envs, seed=seed)
        return PPO("MlpPolicy", envs, seed=seed, device="cpu", stats_window_size=per_update, **settings)

    def step(model: Any) -> tuple[Any, Series]:
        if model.ep_info_buffer is not None:
            model.ep_info_buffer.clear()
        left["share"] = max(0.0, 1 - (model.num_timesteps + per_update) / total)
        model.learn(per_update, reset_num_timesteps=False)  # one update; episodes continue
        returns = [episode["r"] for episode in model.ep_info_buffer]
        return model, (np.array([len(returns)]), np.array([sum(returns)]))

    return Program(start, step, per_update, total, versions("stable-baselines3", "torch", "gymnasium"))


def linear(start: float, left: Mapping[str, float]) -> Callable[[float], float]:
    """Return a linear decay by the share of the training that is left; each update is a training of its own to SB3."""
    return lambda _: start * left["share"]
