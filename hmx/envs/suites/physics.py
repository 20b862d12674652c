"""Environments of Brax and of MuJoCo Playground: both move a `State` of the same five parts."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hmx.config.extras import install, needed
from hmx.config.textfile import quoted
from hmx.envs.protocol import Env, settled
from hmx.envs.single import Single, from_single, named
from hmx.errors import HmxError
from hmx.types import Array, Key

STATE = "state"
"""The part of an observation for the policy; the other parts are images, or for value networks only."""


def make_physics(env_id: str, theirs: Any, max_steps: int) -> Env:
    """Wrap an environment of Brax or Playground as an environment of `hmx`.

    Their wrappers that count steps, repeat actions and reset are left out: those replace the last observation of an
    episode by the first of the next. Here `hmx.envs.autoreset` truncates and resets episodes, each to a new start
    state. Actions are clipped to [-1, 1], the range of their environments, which have no step limit.

    A simulation that leaves the finite numbers has terminated: the step pays nothing if its reward is not finite,
    and the last observation is that before it.

    Raises:
        HmxError: its observations are images.
    """
    key = jax.eval_shape(jax.random.key, 0)
    with quiet():
        seen = jax.eval_shape(lambda key: theirs.reset(jax.random.key_data(key)), key).obs
    if isinstance(seen, Mapping) and STATE not in seen:
        words = f"{env_id} shows {', '.join(map(quoted, seen))}, and networks here take one vector"
        raise HmxError(words, "choose another env.id")

    def reset(key: Key) -> tuple[Any, Array]:
        with quiet():
            # as numbers, since some keep it in their state, and read it more than once
            state = settled(theirs.reset(jax.random.key_data(key)))
        return state, _vector(state.obs)

    def step(before: Any, action: Array, key: Key) -> tuple[Any, Array, Array, Array]:
        own = jax.tree.map(lambda leaf: leaf, before)  # some write into the dicts of the state they are given
        with quiet():
            after = theirs.step(own, jnp.clip(action, -1.0, 1.0))
        state = jax.tree.map(lambda now, then: jnp.asarray(now).astype(then.dtype), after, before)
        obs, reward = _vector(state.obs), jnp.asarray(state.reward, jnp.float32)
        finite = jnp.isfinite(obs).all() & jnp.isfinite(reward)
        paid = jnp.where(jnp.isfinite(reward), reward, 0.0)
        return state, jnp.where(finite, obs, _vector(before.obs)), paid, (state.done > 0) | ~finite

    return from_single(env_id, Single(reset, step, action_dim=int(theirs.action_size)), max_steps)


@contextlib.contextmanager
def importing(extra: str) -> Iterator[None]:
    """Raise an error with the command to install an extra if an import inside fails.

    Raises:
        HmxError: it is not installed, or does not work with the installed JAX; the hint installs it.
    """
    try:
        with needed(extra), quiet():
            yield
    except (ImportError, AttributeError) as error:
        words = f"the {extra} that is installed does not work with JAX {jax.__version__}: {quoted(str(error))}"
        raise HmxError(words, install(extra)) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of importing, building and tracing: deprecations within Brax, JAXopt, MJX and models.

    Users cannot act on them, and MuJoCo would write them into MUJOCO_LOG.TXT of the current folder.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        mujoco = sys.modules.get("mujoco")
        if mujoco is None:  # no package is imported yet, so no model was built
            yield
            return
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda message: None)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def _vector(obs: Any) -> Array:
    vector = obs[STATE] if isinstance(obs, Mapping) else obs
    return jnp.asarray(vector, jnp.float32).reshape(-1)


BACKENDS = ("generalized", "mjx", "positional", "spring")
"""Brax's own names of its physics."""


class OldNumpy:
    """`jax.numpy` for one module of Brax, whose `clip` takes its bounds by their former names too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    @staticmethod
    def clip(array: Array, a_min: Any = None, a_max: Any = None) -> Array:
        """Call `jax.numpy.clip`."""
        return jnp.clip(array, a_min, a_max)


def make_brax(env_id: str, max_steps: int) -> Env:
    """Build `brax/NAME` on the default physics of Brax (Freeman et al. 2021, arXiv:2106.13281), or `brax/NAME@BACKEND`.

    Two parts of the wheel of Brax 0.14.2 are older than JAX 0.10. The drag of fluids, only in swimmer, uses old names
    for the bounds of `clip`; see `OldNumpy`. The trainers call `jax.device_put_replicated`, which no longer exists; hmx
    imports only the environments, which do not call it.

    Raises:
        HmxError: Brax is missing, or it has no such environment or backend.
    """
    wanted, at, backend = env_id.partition("@")
    if at and backend not in BACKENDS:
        raise HmxError(f"Brax has no backend {quoted(backend)}", f"known: {', '.join(BACKENDS)}")
    with importing("brax"):
        from brax import envs, fluid
    fluid.jp = OldNumpy()
    name = named(wanted, list(envs._envs), "Brax")  # the only list of them
    try:
        with quiet():
            theirs = envs.get_environment(name, **({"backend": backend} if at else {}))
    except ValueError as error:  # swimmer runs on one of the four
        raise HmxError(f"{wanted} cannot be built: {quoted(str(error))}", f"env.id={wanted}") from error
    return make_physics(env_id, theirs, max_steps)


OVERRIDES = {"impl": "jax"}
"""MJX in JAX, on any device. Playground's default is Warp, which compiles its own kernels at first use."""


def make_playground(env_id: str, max_steps: int) -> Env:
    """Build `playground/NAME` of MuJoCo Playground (Zakka et al. 2025, arXiv:2502.08844), simulated by MJX.

    It is an environment of the DeepMind control suite, in Playground's default configuration.

    Locomotion and manipulation are refused: to build one, Playground clones the robots of MuJoCo Menagerie from
    GitHub into its own installation.

    Raises:
        HmxError: Playground is missing, or its control suite has no such environment.
    """
    with importing("playground"):
        import mujoco_playground as playground
    suite = playground.dm_control_suite
    known, robots = list(suite.ALL_ENVS), set(playground.registry.ALL_ENVS).difference(suite.ALL_ENVS)
    if env_id.partition("/")[2] in robots:
        words = f"{env_id} needs robots that Playground downloads from GitHub when it is built"
        raise HmxError(f"{words}; taken are the environments of its control suite", f"known: {', '.join(known)}")
    name = named(env_id, known, "Playground's control suite")
    with quiet():
        theirs = suite.load(name, config_overrides=OVERRIDES)
    return make_physics(env_id, theirs, max_steps)
