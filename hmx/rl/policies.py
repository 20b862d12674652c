"""Policy heads: one interface for discrete and continuous actions.

`output [..., width]` is the output of the policy head; `legal [..., num_actions]` are the legal actions, with
`num_actions` 0 for continuous ones. A *raw* action is stored and determines the importance ratios: the action itself if
discrete, the number before squashing if continuous.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from hmx.rl import distributions, tanh_normal
from hmx.rl.divergences import categorical_kl
from hmx.rl.tanh_normal import Std
from hmx.types import Array, Key


class PolicyHead(NamedTuple):
    """A family of distributions over actions.

    - `sample(key, output, legal) -> raw action` and `mode(output, legal) -> raw action`.
    - `to_action(raw) -> action`, as the environment takes it: `[...]` int32, or `[..., D]` float32 in [-1, 1].
    - `log_prob(output, legal, raw) -> [...]`.
    - `entropy(output, legal, key) -> [...]` in nats, as in the loss; `key` is used only by estimates from samples, for
      which None takes the expectation.
    - `max_entropy(legal) -> [...]`: of the uniform distribution.
    - `probs(output, legal) -> [..., num_actions]`, 0 where illegal; empty for continuous actions.
    - `kl(output, reference, legal) -> [...]`: KL(output || reference); the reference is a constant.
    - `std(output) -> [..., D]`: standard deviations before squashing; empty for discrete actions.
    """

    sample: Callable[[Key, Array, Array], Array]
    mode: Callable[[Array, Array], Array]
    to_action: Callable[[Array], Array]
    log_prob: Callable[[Array, Array, Array], Array]
    entropy: Callable[[Array, Array, Key | None], Array]
    max_entropy: Callable[[Array], Array]
    probs: Callable[[Array, Array], Array]
    kl: Callable[[Array, Array, Array], Array]
    std: Callable[[Array], Array]


def categorical() -> PolicyHead:
    """Return the head of discrete actions; illegal ones are masked (`hmx.rl.distributions`)."""
    return PolicyHead(
        sample=distributions.sample,
        mode=distributions.mode,
        to_action=lambda raw: raw,
        log_prob=distributions.log_prob,
        entropy=lambda output, legal, key: distributions.entropy(output, legal),
        max_entropy=lambda legal: jnp.log(legal.sum(-1).astype(jnp.float32)),
        probs=distributions.probs,
        kl=categorical_kl,
        std=lambda output: output[..., :0],
    )


CATEGORICAL = categorical()


def multi_categorical(parts: tuple[int, ...]) -> PolicyHead:
    """Return the head of actions with several discrete parts, which are independent of each other.

    Outputs and masks hold the choices of the first part, then those of the second, and so on; an action is int32
    `[..., P]`.

    Args:
        parts: choices of each part.
    """
    ends = [sum(parts[: i + 1]) for i in range(len(parts) - 1)]

    def split(array: Array) -> list[Array]:
        return jnp.split(array, ends, axis=-1)

    def each(function: Callable[..., Array], *arrays: Array) -> list[Array]:
        return [function(*pieces) for pieces in zip(*map(split, arrays), strict=True)]

    def sample(key: Key, output: Array, legal: Array) -> Array:
        keys = jax.random.split(key, len(parts))
        pairs = zip(split(output), split(legal), strict=True)
        return jnp.stack([distributions.sample(keys[i], *pair) for i, pair in enumerate(pairs)], axis=-1)

    def log_prob(output: Array, legal: Array, raw: Array) -> Array:
        pairs = zip(split(output), split(legal), strict=True)
        return jnp.stack([distributions.log_prob(*pair, raw[..., i]) for i, pair in enumerate(pairs)]).sum(0)

    def total(function: Callable[..., Array], *arrays: Array) -> Array:
        return jnp.stack(each(function, *arrays)).sum(0)

    return PolicyHead(
        sample=sample,
        mode=lambda output, legal: jnp.stack(each(distributions.mode, output, legal), axis=-1),
        to_action=lambda raw: raw,
        log_prob=log_prob,
        entropy=lambda output, legal, key: total(distributions.entropy, output, legal),
        max_entropy=lambda legal: total(CATEGORICAL.max_entropy, legal),
        probs=lambda output, legal: jnp.concatenate(each(distributions.probs, output, legal), axis=-1),
        kl=lambda output, reference, legal: total(categorical_kl, output, reference, legal),
        std=lambda output: output[..., :0],
    )


Entropy = Literal["gaussian", "tanh_sample", "tanh_quadrature"]


def tanh_gaussian(
    action_dim: int, std: Std = "softplus", std_min: float = 1e-3, entropy: Entropy = "tanh_sample"
) -> PolicyHead:
    """Return the head of continuous actions in [-1, 1] (`hmx.rl.tanh_normal`).

    Args:
        action_dim: numbers of an action, D; the head has 2D outputs.
        std: how standard deviations follow from the output, see `tanh_normal.split`.
        std_min: added to every standard deviation.
        entropy: `gaussian` (before squashing), `tanh_sample` (one sample per state) or `tanh_quadrature` (exact).
    """

    def moments(output: Array) -> tuple[Array, Array]:
        return tanh_normal.split(output, std, std_min)

    def sample(key: Key, output: Array, legal: Array) -> Array:
        mean, scale = moments(output)
        return mean + scale * jax.random.normal(key, mean.shape, mean.dtype)

    def entropy_of(output: Array, legal: Array, key: Key | None) -> Array:
        mean, scale = moments(output)
        if entropy == "gaussian":
            return tanh_normal.gaussian_entropy(scale)
        if entropy == "tanh_sample" and key is not None:
            return tanh_normal.sampled_entropy(key, mean, scale)
        return tanh_normal.entropy(mean, scale)

    return PolicyHead(
        sample=sample,
        mode=lambda output, legal: moments(output)[0],
        to_action=jnp.tanh,
        log_prob=lambda output, legal, raw: tanh_normal.log_prob(*moments(output), raw),
        entropy=entropy_of,
        max_entropy=lambda legal: jnp.full(legal.shape[:-1], action_dim * math.log(2.0), jnp.float32),
        probs=lambda output, legal: output[..., :0],
        kl=lambda output, reference, legal: tanh_normal.kl(
            *moments(output), *moments(jax.lax.stop_gradient(reference))
        ),
        std=lambda output: moments(output)[1],
    )
