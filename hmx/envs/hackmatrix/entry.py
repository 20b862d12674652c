"""What HackMatrix says of itself; no JAX."""

from __future__ import annotations

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.registry.environments import EnvEntry, Feature


def features(cfg: EnvConfig) -> frozenset[Feature]:
    """Offer a board and later starts, and board cells if observations are packed."""
    always: frozenset[Feature] = frozenset({"board", "later starts"})
    return always | {"cells"} if cfg.obs == "packed" else always


def _arguments(cfg: EnvConfig, weights: RewardWeights) -> tuple[EnvConfig, RewardWeights]:
    return cfg, weights


ENTRIES = (
    EnvEntry(
        "hackmatrix",
        "hmx.envs.hackmatrix.env:make_hackmatrix",
        _arguments,
        masked=True,
        weighted=True,
        steady_terms=("step_penalty",),
        features=features,
    ),
)
