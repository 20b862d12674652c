"""Suites of other libraries whose environments are functions: Craftax; each as a `Single` of `hmx.env.single`."""

from __future__ import annotations

from typing import Any

import jax

from hmx.config.extras import needed
from hmx.config.textfile import quoted
from hmx.env.extras import near_or_known
from hmx.env.gymnax import as_single
from hmx.env.protocol import Env
from hmx.env.single import Single, from_single
from hmx.errors import HmxError
from hmx.types import Array, Key

NEVER = 1 << 30
"""For the step limit of a suite that ends an episode there as if it had terminated: `hmx.env.autoreset` truncates."""

CRAFTAX = ("Craftax-Symbolic-v1", "Craftax-Classic-Symbolic-v1")


def make_craftax(env_id: str, max_steps: int) -> Env:
    """Build `craftax/NAME` of Craftax (Matthews et al. 2024, arXiv:2402.16801) with its default parameters.

    Args:
        env_id: such as `craftax/Craftax-Classic-Symbolic-v1`; images (`Pixels`) are refused.
        max_steps: steps after which an episode is truncated; Craftax's own 10,000 (Classic) or 100,000 at most.

    Raises:
        HmxError: Craftax is missing, or it has no such environment.
    """
    with needed("craftax"):
        from craftax.craftax_env import make_craftax_env_from_name
    name = _named(env_id, CRAFTAX)
    theirs = make_craftax_env_from_name(name, auto_reset=False)
    if "Classic" in name:
        from craftax.craftax_classic.constants import Action
    else:
        from craftax.craftax.constants import Action
    params = theirs.default_params
    single = as_single(env_id, theirs, params.replace(max_timesteps=NEVER))
    names = tuple(action.name.lower() for action in Action)
    return _built(env_id, single._replace(actions=names, limit=params.max_timesteps), max_steps)


def _named(env_id: str, known: Any) -> str:
    """Return the part of an id that names an environment of its suite.

    Raises:
        HmxError: the suite has none of this name.
    """
    suite, _, name = env_id.partition("/")
    if name not in known:
        raise HmxError(f"{suite} has no environment {quoted(name)}", near_or_known(name, known, f"{suite}/"))
    return name


def _built(env_id: str, single: Single, max_steps: int) -> Env:
    """Build the environment, whose keys are given as numbers, since these suites keep them in their states."""

    def reset(key: Key) -> Any:
        return single.reset(jax.random.key_data(key))

    def step(state: Any, action: Array, key: Key) -> Any:
        return single.step(state, action, jax.random.key_data(key))

    return from_single(env_id, single._replace(reset=reset, step=step, costly_reset=True), max_steps)
