"""What the environments of other libraries say of themselves; no JAX."""

from __future__ import annotations

from types import MappingProxyType

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.registry.environments import EnvEntry, Feature

SCENARIOS = MappingProxyType({
    "3m": (3, 3), "2s3z": (5, 5), "25m": (25, 25), "3s5z": (8, 8), "8m": (8, 8), "5m_vs_6m": (5, 6),
    "10m_vs_11m": (10, 11), "27m_vs_30m": (27, 30), "3s5z_vs_3s6z": (8, 9), "3s_vs_5z": (3, 5), "6h_vs_8z": (6, 8),
    "smacv2_5_units": (5, 5), "smacv2_10_units": (10, 10), "smacv2_20_units": (20, 20),
})  # fmt: skip
"""Allies and enemies of each scenario in JaxMARL 0.2; a test compares them with JaxMARL."""

SMAX_LIMIT = 100
"""Steps after which a battle is truncated, as published."""


def _world_state(cfg: EnvConfig) -> frozenset[Feature]:
    return frozenset({"world state"})


def _named(cfg: EnvConfig, weights: RewardWeights) -> tuple[str, int]:
    return cfg.id, cfg.max_steps


def _battle(name: str, num_agents: int = 1) -> EnvEntry:
    return EnvEntry(
        f"smax/{name}", "hmx.envs.suites.smax:make_smax", lambda cfg, _: (cfg.id, cfg.max_steps, cfg.world_state),
        limit=SMAX_LIMIT, num_agents=num_agents, masked=True, features=_world_state,
    )  # fmt: skip


ENTRIES = (
    EnvEntry("gymnax/", "hmx.envs.suites.gymnax:make_gymnax", _named, small=True),
    EnvEntry("brax/", "hmx.envs.suites.brax:make_brax", _named),
    EnvEntry("playground/", "hmx.envs.suites.playground:make_playground", _named),
    EnvEntry("craftax/", "hmx.envs.suites.craftax:make_craftax", _named),
    EnvEntry("navix/", "hmx.envs.suites.navix:make_navix", _named),
    EnvEntry("xminigrid/", "hmx.envs.suites.xminigrid:make_xminigrid", _named),
    EnvEntry("jumanji/", "hmx.envs.suites.jumanji:make_jumanji", _named),
    EnvEntry(
        "gymnasium/",
        "hmx.own.simulator:make_gymnasium",
        lambda cfg, _: (cfg,),
        small=True,
        stepped_by="workers",
        defaults=MappingProxyType({"env.max_steps": 0, "run.eval_episodes": 100}),
    ),
    *(_battle(name, allies) for name, (allies, _) in SCENARIOS.items()),
)
"""An id that ends in a slash stands for all environments of that extra that have no entry of their own."""
