"""Agents and environments for programs of the user."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.types import Algorithm, Carry, Decision, TrainState
from hmx.api.configs import resolve
from hmx.api.hints import for_python
from hmx.config.schema import Config
from hmx.envs import registry
from hmx.envs.protocol import Env
from hmx.errors import HmxError
from hmx.records.paths import DEFAULT_ROOT
from hmx.registry.load import ENV_SECTIONS
from hmx.registry.trust import trusting
from hmx.reports.check_env import job as checking
from hmx.reports.check_env.findings import CheckEnvFindings
from hmx.reports.check_env.request import CheckEnvRequest
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import check_agent
from hmx.runs.restoring import Run
from hmx.simulators.answers import Broken, truths
from hmx.types import Array, Key

__all__ = ["TrainedAgent", "check_env", "load_agent", "make_env"]

EnvName = str | Callable[..., object]
Numbers = Array | np.ndarray | list[float] | list[bool]


@dataclass(frozen=True, eq=False, repr=False)
class TrainedAgent:
    """A trained policy.

    Attributes:
        config: configuration of its run.
        env: its environment.
        update: update of the checkpoint.
    """

    config: Config
    env: Env
    update: int
    _algorithm: Algorithm
    _state: TrainState
    _jitted: Callable[..., tuple[Decision, Carry]]

    def __repr__(self) -> str:
        run, env = self.config.run.name, self.config.env.id
        return f"TrainedAgent(run={run!r}, env={env!r}, algorithm={self.config.algo.name!r}, update={self.update})"

    def act(self, obs: Numbers, legal: Numbers | None = None, key: Key | None = None) -> Array:
        """Choose actions; recurrent networks need `decide`, which takes and returns their carry.

        Args:
            obs: `[*B, *obs_shape]`, one observation or any batch of them.
            legal: `[*B, num_actions]` bool, or 0 and 1; None if every action is legal.
            key: to sample actions; None takes the most probable ones.

        Returns:
            `[*B]` int32, or `[*B, action_dim]` in [-1, 1] for continuous actions.

        Raises:
            HmxError: shapes do not fit the environment, or `legal` holds other numbers.
        """
        if jax.tree.leaves(self._algorithm.initial_carry((1, 1))):
            hint = "use agent.decide(obs, legal, key, carry, reset), which returns the next carry"
            raise HmxError("cannot act without an RNN carry: the network is recurrent", hint)
        return self.decide(obs, legal, key)[0].action

    def decide(
        self,
        obs: Numbers,
        legal: Numbers | None = None,
        key: Key | None = None,
        carry: Carry = None,
        reset: Numbers | None = None,
    ) -> tuple[Decision, Carry]:
        """Return the decision for `act`, with probabilities and values `[*B, ...]`, and the carry for the next call.

        `carry` is that of the last call, None at the first one; `reset [*B]` marks the observations that begin an
        episode.
        """
        spec = self.env.spec
        seen = jnp.asarray(obs, spec.obs_dtype)
        batch = _batch("obs", seen.shape, spec.obs_shape)
        mask = jnp.ones((*batch, spec.num_actions), bool) if legal is None else _truths("legal", legal)
        if _batch("legal", mask.shape, (spec.num_actions,)) != batch:
            raise HmxError(f"legal is {list(mask.shape)}, but obs is {list(seen.shape)}", "give both the same batch")
        count = math.prod(batch)
        first = jnp.zeros(count, bool) if reset is None else _truths("reset", reset).reshape(count)
        decision, carry = self._jitted(
            self._state,
            self._algorithm.initial_carry((count, 1)) if carry is None else carry,
            seen.reshape(count, 1, *spec.obs_shape),
            mask.reshape(count, 1, spec.num_actions),
            first,
            jax.random.key(0) if key is None else key,
            key is None,
        )
        shaped: Decision = jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[2:]), decision)
        return shaped, carry


def _truths(name: str, given: Numbers) -> Array:
    """Return truth values as bools; of numbers without values, in a program that is traced, only 1 is true."""
    if isinstance(given, jax.core.Tracer):
        return given if given.dtype == jnp.bool_ else given == 1
    try:
        return jnp.asarray(truths(given, name))
    except Broken as problem:
        raise HmxError(f"cannot act: {problem}", f"give {name} as an array of bools") from None


def _batch(name: str, shape: tuple[int, ...], end: tuple[int, ...]) -> tuple[int, ...]:
    """Return the leading axes of an array that must end with the axes `end`."""
    lead = len(shape) - len(end)
    if lead < 0 or shape[lead:] != end:
        raise HmxError(f"{name} is {list(shape)}, expected [..., {', '.join(map(str, end))}]", "see agent.env.spec")
    return shape[:lead]


@for_python
def load_agent(
    run: str | Path,
    *,
    checkpoint: int | None = None,
    index: int = 0,
    root: str | Path = DEFAULT_ROOT,
    trust: bool = False,
) -> TrainedAgent:
    """Load the policy of a run; it acts without a search.

    Args:
        run: name or path of the run.
        checkpoint: its update; None takes the newest intact one.
        index: index of the agent (seed), if a run trained several.
        root: runs folder, for a name.
        trust: whether to run code that the run names.

    Raises:
        HmxError: there is no such run, agent or intact checkpoint, or code is not trusted.
    """
    source = Run.find(run, root)
    check_agent(source.cfg.run, index)
    enable_cache()
    with trusting(trust):
        session = source.open()
    restored, algorithm = source.agent(session, index, checkpoint), session.algorithm
    for text in restored.warnings:
        warnings.warn(text, stacklevel=3)
    act = jax.jit(algorithm.act, static_argnums=6)
    return TrainedAgent(source.cfg, session.env, restored.update, algorithm, restored.state, act)


@for_python
def make_env(env: EnvName = "hackmatrix", values: Mapping[str, object] | None = None) -> Env:
    """Build an environment from its id, or from your own file or function.

    `values` are more settings by dotted key, such as `{"env.max_steps": 100}`.

    Raises:
        HmxError: there is no such environment, or its extra is not installed.
    """
    config = resolve({"env.id": env, **(values or {})}, check=ENV_SECTIONS).config
    return registry.make_env(config.env, config.reward)


@for_python
def check_env(
    env: EnvName, values: Mapping[str, object] | None = None, steps: int = CheckEnvRequest.steps
) -> CheckEnvFindings:
    """Check that an environment obeys the rules that training needs, as `hmx check-env` does.

    It is named as for `make_env`. The result has `passed`, and `hmx.show` prints it.

    Raises:
        HmxError: the environment cannot be built.
    """
    config = resolve({"env.id": env, **(values or {})}, check=ENV_SECTIONS).config
    return checking.check_env(config, CheckEnvRequest(steps=steps, speed=False))
