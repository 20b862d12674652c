"""Measure the environments of hmx with default options, for `hmx/registry/sizes.json`."""

from __future__ import annotations

import json

from hmx.config.schema import ENV_IDS, EnvConfig, RewardWeights
from hmx.envs.registry import make_env, sizes_of
from hmx.errors import HmxError
from hmx.registry.environments import find_environment, names_in, stored_sizes
from hmx.registry.sizes import Sizes


def text() -> str:
    """Return the file; environments whose package is not installed keep the sizes that it has."""
    ids = [*ENV_IDS, *(f"smax/{name}" for name in names_in("smax"))]
    rows = [f"  {json.dumps(env_id)}: {json.dumps(_row(_measured(env_id)))}" for env_id in ids]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _row(sizes: Sizes) -> dict[str, object]:
    """Return the sizes of an environment in JAX."""
    return {name: value for name, value in sizes._asdict().items() if name != "statistics"}  # only of simulators


def _measured(env_id: str) -> Sizes:
    entry = find_environment(env_id)
    assert entry is not None
    try:
        return sizes_of(make_env(EnvConfig(id=env_id, num_agents=entry.num_agents or 1), RewardWeights()))
    except HmxError:  # of an extra that is not installed
        return stored_sizes()[env_id]
