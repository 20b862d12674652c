"""SMAX of JaxMARL (github.com/FLAIROx/JaxMARL, Rutherford et al. 2024), version 0.2, behind our contract."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.extras import install, needed
from hmx.envs.autoreset import TeamGame, batched
from hmx.envs.protocol import Env, EnvSpec, settled
from hmx.envs.single import named
from hmx.envs.suites.entries import SCENARIOS, SMAX_LIMIT
from hmx.errors import HmxError
from hmx.types import Array, Key

_BRAX = "jaxmarl.environments.mabrax"

MOVES = ("north", "east", "south", "west", "stop")
"""Actions of every unit; a dead unit can only stop. The other actions attack one enemy each, within reach."""


KINDS = ("marine", "marauder", "stalker", "zealot", "zergling", "hydralisk")
"""Units by JaxMARL's number of their kind."""


def make_smax(env_id: str, max_steps: int, world_state: bool = False) -> Env:
    """Build the battle `smax/SCENARIO` against JaxMARL's heuristic enemy, with its default rules.

    Every ally gets the reward of the team, also after its death: the share of the enemy's health that a step took,
    and 1 for a victory. So the return of an episode, summed over agents, is at most two per ally. The battle terminates
    when one side is dead; its step limit truncates it. `info` says which episodes were won: all enemies are dead and an
    ally is not.

    Args:
        env_id: such as `smax/3m`.
        max_steps: steps after which an episode is truncated, at most the 100 of the published task; 0 for these.
        world_state: whether each observation ends with the state of the whole battle, for the value alone: that of
            JaxMARL, positions as shares of the map.

    Raises:
        HmxError: JaxMARL is missing or not of version 0.2, or there is no such scenario.
    """
    name = named(env_id, list(SCENARIOS))
    allies, enemies = SCENARIOS[name]
    smax = _made(name)
    world = int(smax.state_size) if world_state else 0
    spec = EnvSpec(
        id=env_id,
        obs_shape=(int(smax.obs_size) + world,),
        num_actions=len(MOVES) + enemies,
        num_agents=allies,
        max_steps=min(max_steps or SMAX_LIMIT, SMAX_LIMIT),
        reward_terms=("damage", "win"),
        action_groups=(("move", 0, 4), ("stop", 4, 5), ("attack", 5, 5 + enemies)),
        action_names=(*MOVES, *(f"attack_{i}" for i in range(enemies))),
        value_only=world,
        describe=lambda state: {"battle": units(state.core.state, allies)},
        render=lambda state: _render(units(state.core.state, allies)),
    )
    return batched(spec, _game(smax, allies, world_state))


def units(battles: Any, num_allies: int) -> list[dict[str, Any]]:
    """Return the living units of a battle: side and number, kind, health, and place on the map of 32 by 32.

    Args:
        battles: JaxMARL's state of the units of a batch; the first battle is described.
        num_allies: units of the first side; an enemy has the number of the attack on it.
    """
    battle = jax.tree.map(lambda leaf: np.asarray(leaf)[0], battles)
    return [
        {
            "side": "ally" if i < num_allies else "enemy",
            "number": i if i < num_allies else i - num_allies,
            "kind": KINDS[int(battle.unit_types[i])],
            "health": float(battle.unit_health[i]),
            "x": float(battle.unit_positions[i][0]),
            "y": float(battle.unit_positions[i][1]),
        }
        for i in range(len(battle.unit_alive))
        if battle.unit_alive[i]
    ]


def _render(battle: list[dict[str, Any]]) -> str:
    """Draw the map with allies as capitals and enemies as small letters, and list the living units."""
    rows = [["."] * 32 for _ in range(16)]
    for unit in battle:
        row, column = 15 - min(max(int(unit["y"] / 2), 0), 15), min(max(int(unit["x"]), 0), 31)
        letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[unit["number"] % 26]
        rows[row][column] = letter if unit["side"] == "ally" else letter.lower()
    alive = {side: [u for u in battle if u["side"] == side] for side in ("ally", "enemy")}
    lines = [f"{side:5}  {len(us)} alive, health {sum(u['health'] for u in us):.0f}" for side, us in alive.items()]
    return "\n".join([*("".join(row) for row in rows), *lines])


def _game(smax: Any, num_allies: int, world_state: bool) -> TeamGame:
    def start(key: Key) -> Any:
        return settled(smax.reset(key)[1])

    def standing(core: Any) -> tuple[Array, Array]:
        alive = core.state.unit_alive
        return alive[:num_allies].any(), alive[num_allies:].any()

    def move(core: Any, action: Array, key: Key) -> tuple[Any, dict[str, Array], Array]:
        # step_env, not step: the latter would replace a finished battle by a new one here already
        _, after, rewards, _, _ = smax.step_env(key, core, dict(zip(smax.agents, action, strict=True)))
        ours, theirs = standing(after)
        won = jnp.where(ours & ~theirs, smax.won_battle_bonus, 0.0)
        everyone = jnp.ones(num_allies, jnp.float32)
        terms = {"damage": (rewards[smax.agents[0]] - won) * everyone, "win": won * everyone}
        return settled(after), terms, jnp.full(num_allies, ~(ours & theirs))

    def observe(core: Any) -> Array:
        seen = _by_agent(smax, smax.get_obs(core)).astype(jnp.float32)
        if not world_state:
            return seen
        world = smax.get_world_state(core).astype(jnp.float32) / _world_scale(smax)
        return jnp.concatenate([seen, jnp.broadcast_to(world, (num_allies, *world.shape))], axis=-1)

    def legal(core: Any) -> Array:
        return _by_agent(smax, smax.get_avail_actions(core)).astype(bool)

    def info(core: Any) -> dict[str, Array]:
        ours, theirs = standing(core)
        won = (ours & ~theirs).astype(jnp.int32)
        return {"wins_sum": won, "win_rate_episode": won}

    return TeamGame(start, move, observe, legal, info)


def _made(name: str) -> Any:
    with needed("smax"), _quietly():
        import jaxmarl
        from jaxmarl.environments.smax import HeuristicEnemySMAX, map_name_to_scenario
    # before 0.2 dead units kept moving and observations had other scales
    if not jaxmarl.__version__.startswith("0.2."):
        raise HmxError(f"the jaxmarl that is installed is {jaxmarl.__version__}, not 0.2", install("smax"))
    return HeuristicEnemySMAX(scenario=map_name_to_scenario(name), max_steps=SMAX_LIMIT)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the output of JaxMARL to stdout while it is imported.

    It lists the environments that it finds, and its Brax adapter permanently replaces `sys.stdout` and `sys.stderr`.
    That adapter is therefore not imported: hmx does not need it.
    """
    first = _BRAX not in sys.modules
    if first:
        sys.modules[_BRAX] = None  # type: ignore[assignment]  # what is None here is not found
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        if first:
            del sys.modules[_BRAX]


def _by_agent(smax: Any, of: dict[str, Array]) -> Array:
    return jnp.stack([of[agent] for agent in smax.agents])


def _world_scale(smax: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the divisor of each number of the world state: the size of the map for positions, otherwise 1."""
    unit = np.ones(len(smax.own_features), np.float32)
    unit[1:3] = smax.map_width, smax.map_height
    num_units = smax.num_allies + smax.num_enemies
    return np.concatenate([np.tile(unit, num_units), np.ones(2 * num_units, np.float32)])
