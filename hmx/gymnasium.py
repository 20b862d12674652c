"""Register the built-in environments with Gymnasium: import this, then `gymnasium.make("hmx/HackMatrix-v0")`.

`gymnasium.make("hmx.gymnasium:hmx/HackMatrix-v0")` imports it too. JAX is loaded when an environment is made.
"""

from __future__ import annotations

from types import MappingProxyType

from hmx.config.extras import needed

with needed("gymnasium", "hmx.gymnasium"):
    import gymnasium

IDS = MappingProxyType({
    "HackMatrix": "hackmatrix", "Counting": "counting", "Corridor": "corridor", "FrozenLake": "frozenlake",
    "FrozenLakeSlippery": "frozenlake-slippery", "Recall": "recall", "Pendulum": "pendulum", "CartPole": "cartpole",
    "CartPoleDiscrete": "cartpole-discrete",
})  # fmt: skip
"""Name in Gymnasium, without `hmx/` and `-v0` -> id of the environment; every built-in one with a single agent."""

for _name, _id in IDS.items():
    gymnasium.register(
        f"hmx/{_name}-v0",
        entry_point="hmx.envs.to_gymnasium:GymnasiumEnv",
        vector_entry_point="hmx.envs.to_gymnasium:GymnasiumVectorEnv",
        kwargs={"env_id": _id},
    )
