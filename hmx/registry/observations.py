"""How observations are read: which are images, the order of named parts, and which network reads which part.

Named parts are joined to one vector. The policy reads `policy`, the value function reads `critic`, and both read every
other part (asymmetric actor-critic, Pinto et al. 2017, arXiv:1710.06542). Without `critic` the value function reads
what the policy reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

POLICY, CRITIC = "policy", "critic"


def is_image(shape: Sequence[int]) -> bool:
    """Return whether arrays of a shape are images `[H, W, C]`."""
    return len(shape) == 3


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return the order in which the parts are joined: `policy`, others by name, `critic`."""
    return tuple(sorted(names, key=lambda name: (name == CRITIC, name != POLICY, name)))


def policy_only(sizes: Mapping[str, int]) -> int:
    """Return how many numbers at the start only the policy reads, given the size of each part."""
    return sizes.get(POLICY, 0) if CRITIC in sizes else 0


def value_only(sizes: Mapping[str, int]) -> int:
    """Return how many numbers at the end only the value function reads, given the size of each part."""
    return sizes.get(CRITIC, 0)
