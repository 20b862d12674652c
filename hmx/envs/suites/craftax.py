"""Environments of Craftax (github.com/MichaelTMatthews/Craftax)."""

from __future__ import annotations

from hmx.envs.protocol import Env
from hmx.envs.single import named
from hmx.envs.suites.functional import NEVER, built
from hmx.envs.suites.gymnax import as_single
from hmx.envs.suites.importing import importing


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
    return built(env_id, single._replace(actions=names, limit=params.max_timesteps), max_steps)
