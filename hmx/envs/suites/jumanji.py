"""Environments of Jumanji (github.com/instadeepai/jumanji)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.textfile import quoted
from hmx.envs.protocol import Env
from hmx.envs.single import Single, joined, named
from hmx.envs.suites.functional import NEVER, built
from hmx.envs.suites.importing import importing
from hmx.errors import ExitCode, HmxError
from hmx.types import Array, Key


def make_jumanji(env_id: str, max_steps: int) -> Env:
    """Build `jumanji/NAME` of Jumanji (Bonnet et al. 2024, arXiv:2306.09884) with its default arguments.

    All arrays of an observation are joined, except the mask. If an action consists of several choices and the mask has
    an entry for each combination, an action here is a combination. Several agents, and actions that are not a choice,
    are refused.
    """
    with importing("jumanji"):
        import jumanji
    name = named(env_id, sorted(jumanji.registered_environments()))
    try:
        theirs = jumanji.make(name)
        limit = getattr(theirs, "time_limit", 0)
        if limit:
            theirs = jumanji.make(name, time_limit=NEVER)  # it would report its limit as a termination
    except OSError as error:  # Sokoban downloads its levels
        words = f"{env_id} cannot be built: {quoted(str(error))}"
        raise HmxError(words, "it needs the network the first time", ExitCode.ARTEFACT) from error
    choices = np.atleast_1d(getattr(theirs.action_spec, "num_values", ()))
    shown = jax.eval_shape(lambda: theirs.reset(jax.random.key_data(jax.random.key(0)))[1])
    mask = getattr(shown.observation, "action_mask", None)
    if not choices.size or shown.reward.shape or (mask is not None and mask.shape != tuple(choices)):
        raise HmxError(f"{env_id} has several agents, or actions that are not a single choice", "choose another env.id")

    def given(state: Any, timestep: Any) -> Any:
        seen = timestep.observation
        mask = seen.action_mask if hasattr(seen, "action_mask") else jnp.ones(choices, bool)
        mask |= ~mask.any()  # FlatPack lasts a fixed number of steps, also when no block fits any more
        rest = {name: value for name, value in seen._asdict().items() if name != "action_mask"}
        return (state, mask.reshape(-1)), joined(rest)

    def step(before: Any, action: Array, key: Key) -> Any:
        chosen = jnp.stack(jnp.unravel_index(action, tuple(choices))).astype(jnp.int32)
        state, timestep = theirs.step(before[0], chosen.reshape(theirs.action_spec.shape))
        return *given(state, timestep), timestep.reward, timestep.last()

    single = Single(
        lambda key: given(*theirs.reset(key)), step, int(choices.prod()), limit=limit, legal=lambda state: state[1]
    )
    return built(env_id, single, max_steps)
