"""What the environments of other libraries say of themselves; no JAX."""

from __future__ import annotations

from types import MappingProxyType

from hmx.config.option import ON_POLICY, opt
from hmx.registry.entry import EnvEntry

SCENARIOS = MappingProxyType({
    "3m": (3, 3), "2s3z": (5, 5), "25m": (25, 25), "3s5z": (8, 8), "8m": (8, 8), "5m_vs_6m": (5, 6),
    "10m_vs_11m": (10, 11), "27m_vs_30m": (27, 30), "3s5z_vs_3s6z": (8, 9), "3s_vs_5z": (3, 5), "6h_vs_8z": (6, 8),
    "smacv2_5_units": (5, 5), "smacv2_10_units": (10, 10), "smacv2_20_units": (20, 20),
})  # fmt: skip
"""Allies and enemies of each scenario in JaxMARL 0.2; a test compares them with JaxMARL."""

_WORLD_STATE = opt(
    False, "show a separate value network the state of every unit in SMAX (centralised critic)", applies=ON_POLICY,
    shape="if_not_default",
)  # fmt: skip

SMAX_LIMIT = 100
"""Steps after which a battle is truncated, as published."""


def _battle(name: str, num_agents: int = 1) -> EnvEntry:
    return EnvEntry(
        f"smax/{name}", "hmx.envs.suites.smax:make_smax", lambda cfg, _: (cfg.id, cfg.max_steps, cfg.world_state),
        "jaxmarl", MappingProxyType({"EnvConfig": {"world_state": (bool, _WORLD_STATE)}}),
        (("stats/win_rate", "share", "up", "mean", "share of the ended episodes that were won; SMAX only"),),
        limit=SMAX_LIMIT, num_agents=num_agents, masked=True,
    )  # fmt: skip


ENTRIES = (
    EnvEntry("gymnax/", "hmx.envs.suites.gymnax:make_gymnax", package="gymnax", small=True),
    EnvEntry("brax/", "hmx.envs.suites.brax:make_brax", package="brax"),
    EnvEntry("playground/", "hmx.envs.suites.playground:make_playground", package="mujoco_playground"),
    *(_battle(name, allies) for name, (allies, _) in SCENARIOS.items()),
    EnvEntry("craftax/", "hmx.envs.suites.craftax:make_craftax", package="craftax"),
    EnvEntry("navix/", "hmx.envs.suites.navix:make_navix", package="navix"),
    EnvEntry("xminigrid/", "hmx.envs.suites.xminigrid:make_xminigrid", package="xminigrid"),
    EnvEntry("jumanji/", "hmx.envs.suites.jumanji:make_jumanji", package="jumanji"),
    EnvEntry(
        "gymnasium/",
        "hmx.own.simulator:make_gymnasium",
        lambda cfg, _: (cfg,),
        "gymnasium",
        small=True,
        simulated=True,
        defaults=MappingProxyType({"env.max_steps": 0, "run.eval_episodes": 100}),
    ),
)
"""An id that ends in a slash stands for all environments of that extra that have no entry of their own."""
