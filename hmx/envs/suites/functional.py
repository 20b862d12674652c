"""Suites of other libraries whose environments are functions: Craftax, navix, XLand-MiniGrid and Jumanji.

Each function builds `extra/NAME` as a `Single` of `hmx.envs.single`, whose episodes are truncated after `max_steps`
steps, or at the environment's own limit if that is shorter. It raises an HmxError if the package is missing, has no
such environment, or the environment cannot be built.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.textfile import quoted
from hmx.envs.protocol import Env
from hmx.envs.single import Single, from_single, joined, named
from hmx.envs.suites.gymnax import as_single
from hmx.envs.suites.physics import importing
from hmx.errors import ExitCode, HmxError
from hmx.types import Array, Key

NEVER = 1 << 30
"""Replaces the step limit of a suite that reports it as a termination: `hmx.envs.autoreset` truncates."""

_NAVIX_CELL = (11, 6, 4)
"""Kinds of entities, colours, and states of a door or directions of the player."""

_MINIGRID_ACTIONS = ("move_forward", "turn_right", "turn_left", "pick_up", "put_down", "toggle")


def make_craftax(env_id: str, max_steps: int) -> Env:
    """Build `craftax/NAME` of Craftax (Matthews et al. 2024, arXiv:2402.16801) with its default parameters.

    Its own limit is 10,000 steps (Classic) or 100,000. Images (`Pixels`) are refused.
    """
    with importing("craftax"):
        from craftax.craftax import constants
        from craftax.craftax.envs.craftax_symbolic_env import CraftaxSymbolicEnvNoAutoReset
        from craftax.craftax_classic import constants as classic
        from craftax.craftax_classic.envs.craftax_symbolic_env import CraftaxClassicSymbolicEnvNoAutoReset
    known = {
        "Craftax-Symbolic-v1": (CraftaxSymbolicEnvNoAutoReset(), constants.Action),
        "Craftax-Classic-Symbolic-v1": (CraftaxClassicSymbolicEnvNoAutoReset(), classic.Action),
    }
    theirs, actions = known[named(env_id, list(known))]
    params = theirs.default_params
    single = as_single(env_id, theirs, params.replace(max_timesteps=NEVER))
    names = tuple(action.name.lower() for action in actions)
    return _built(env_id, single._replace(actions=names, limit=params.max_timesteps), max_steps)


def make_navix(env_id: str, max_steps: int) -> Env:
    """Build `navix/NAME` of navix (Pignatelli et al. 2024, arXiv:2407.19396) as `navix.make` does."""
    with importing("navix"):
        import navix
    theirs = navix.make(named(env_id, list(navix.registry())))
    actions = tuple(action.__name__ for action in theirs.action_set)

    def reset(key: Key) -> Any:
        timestep = theirs.reset(key)
        return timestep, _one_hot(timestep.observation, _NAVIX_CELL)

    def step(timestep: Any, action: Array, key: Key) -> Any:
        # _step, not step: the latter resets too; random numbers come from the key in the state, which the reset set
        after = theirs._step(timestep, action)
        return after, _one_hot(after.observation, _NAVIX_CELL), after.reward, after.is_termination()

    return _built(env_id, Single(reset, step, actions, limit=theirs.max_steps), max_steps)


def make_xminigrid(env_id: str, max_steps: int) -> Env:
    """Build `xminigrid/MiniGrid-NAME` of XLand-MiniGrid (Nikulin et al. 2023, arXiv:2312.12044).

    `XLand-MiniGrid-...` is refused: without a ruleset from a benchmark, which xminigrid downloads, it has no goal and
    pays nothing.
    """
    with importing("xminigrid"):
        import xminigrid
        from xminigrid.core.constants import NUM_COLORS, NUM_TILES
    names = xminigrid.registered_environments()
    if env_id.removeprefix("xminigrid/") in names and "/XLand" in env_id:
        words = f"{env_id} needs rulesets that xminigrid downloads; without them it has no goal"
        raise HmxError(words, "choose xminigrid/MiniGrid-NAME, such as xminigrid/MiniGrid-DoorKey-8x8")
    theirs, params = xminigrid.make(named(env_id, [name for name in names if name.startswith("MiniGrid")]))
    sizes = (NUM_TILES, NUM_COLORS)

    def reset(key: Key) -> Any:
        timestep = theirs.reset(params, key)
        return timestep, _one_hot(timestep.observation, sizes)

    def step(timestep: Any, action: Array, key: Key) -> Any:
        after = theirs.step(params, timestep, action)
        return after, _one_hot(after.observation, sizes), after.reward, after.discount == 0

    return _built(env_id, Single(reset, step, _MINIGRID_ACTIONS, limit=params.max_steps), max_steps)


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
    return _built(env_id, single, max_steps)


def _one_hot(cells: Array, sizes: tuple[int, ...]) -> Array:
    """Return the vector of a grid `[H, W, K]` whose K numbers per cell are categories of the given sizes."""
    return jnp.concatenate([jax.nn.one_hot(cells[..., i], size).reshape(-1) for i, size in enumerate(sizes)])


def _built(env_id: str, single: Single, max_steps: int) -> Env:
    """Build the environment, whose keys are given as numbers, since these suites keep them in their states."""

    def reset(key: Key) -> Any:
        return single.reset(jax.random.key_data(key))

    def step(state: Any, action: Array, key: Key) -> Any:
        return single.step(state, action, jax.random.key_data(key))

    return from_single(env_id, single._replace(reset=reset, step=step, costly_reset=True), max_steps)
