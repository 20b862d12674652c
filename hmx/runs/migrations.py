"""Migrate the leaves of a checkpoint of an earlier schema.

Nothing on disk is changed; the next checkpoint of the run has the present schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmx.records.checkpoints import Leaf, Manifest

# Schema 1 counted steps in the state, and had neither recurrent networks nor agents that are done before their episode.
# Its environments count as inside an episode, which matters to recurrent networks only.
_DROPPED_SINCE_1 = ("env_steps",)
_ADDED_SINCE_1 = ("reset", "agent_done")


# Schema 3 nests the training state: path of the new parent -> leaves that were at the top before.
_NESTED_SINCE_3 = {
    "actors": ("env_state", "obs", "legal", "episode", "carry", "reset", "agent_done", "obs_stats", "starts"),
    "learner": ("value_stats", "target_params", "replay", "overwritten", "gradient_steps"),
}
_PARENTS = {name: parent for parent, names in _NESTED_SINCE_3.items() for name in names}


class Migrated(NamedTuple):
    """Where the leaves of a state of today come from."""

    leaves: dict[str, Leaf]  # path in the checkpoint -> the leaf with its path of today
    zeros: tuple[Leaf, ...]  # new leaves, which start as zeros, or False


def migrate(manifest: Manifest, wanted: Sequence[Leaf]) -> Migrated:
    """Return how to make the leaves of a present state from those of a checkpoint."""
    saved = {leaf.path: leaf for leaf in manifest.leaves}
    if manifest.schema > 2:
        return Migrated(saved, ())
    leaves = {path: leaf._replace(path=_nested(path)) for path, leaf in saved.items()}
    if manifest.schema > 1:
        return Migrated(leaves, ())
    added = {_nested(name) for name in _ADDED_SINCE_1} - {leaf.path for leaf in leaves.values()}
    return Migrated(
        leaves={path: leaf for path, leaf in leaves.items() if path not in _DROPPED_SINCE_1},
        zeros=tuple(leaf for leaf in wanted if leaf.path in added),
    )


def _nested(path: str) -> str:
    """Return the path of today of a leaf of schema 1 or 2."""
    parent = _PARENTS.get(path.partition("/")[0])
    return path if parent is None else f"{parent}/{path}"
