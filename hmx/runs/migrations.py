"""What a checkpoint of an earlier schema lacks or has too much, and what takes its place.

Nothing on disk is changed: the next checkpoint of the run is of the present schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmx.config.codec import SHAPE_KEYS
from hmx.records.checkpoints import Leaf, Manifest

# Schema 1 counted steps in the state, and knew neither memory nor agents that are done before their episode.
# An environment counts as in the midst of an episode, which only a network with memory would notice.
_DROPPED_SINCE_1 = ("env_steps",)
_ADDED_SINCE_1 = ("reset", "agent_done")
_SHAPE_KEYS_SINCE_1 = ("env.num_agents", "net.rnn", "net.rnn_hidden")


class Migrated(NamedTuple):
    """`read`: the saved leaves that are still needed. `zeros`: those that begin as zeros, or False."""

    read: tuple[Leaf, ...]
    zeros: tuple[Leaf, ...]


def migrate(manifest: Manifest, wanted: Sequence[Leaf]) -> Migrated:
    """How the leaves of a checkpoint become those of a state of today."""
    if manifest.schema > 1:
        return Migrated(manifest.leaves, ())
    known = {leaf.path for leaf in manifest.leaves}
    return Migrated(
        read=tuple(leaf for leaf in manifest.leaves if leaf.path not in _DROPPED_SINCE_1),
        zeros=tuple(leaf for leaf in wanted if leaf.path in _ADDED_SINCE_1 and leaf.path not in known),
    )


def shape_keys(schema: int) -> tuple[str, ...]:
    """The keys that the shape digest of a manifest of that schema is made of."""
    return SHAPE_KEYS if schema > 1 else tuple(key for key in SHAPE_KEYS if key not in _SHAPE_KEYS_SINCE_1)
