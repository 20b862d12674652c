"""`hmx compare --impl`: what the losses of several configurations make of one batch. The only part that needs JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.reports.compare.read import Side


def compare_impl(sides: Sequence[Side], seed: int = 0) -> dict[str, Any]:
    """The losses of every side on one batch, as plain values.

    Args:
        sides: each with a configuration; of several, the first counts.
        seed: of network and play.

    Raises:
        HmxError: a side without a configuration, a network with a memory, value heads that differ, or sizes that a
            side cannot run with.
    """
    configs = [_config(side) for side in sides]
    _check(sides, configs)

    from hmx.analysis.losses import COMPONENTS, CUT, LATER, NUM_ENVS, NUM_STEPS, compare_losses, on_one_scale
    from hmx.env.registry import make_env

    scaled = on_one_scale(configs)
    found = compare_losses(scaled, make_env(scaled[0].env, scaled[0].reward), seed)
    return {
        "env": configs[0].env.id,
        "network": sides[0].letter,
        "parameters": found.parameters,
        "num_envs": NUM_ENVS,
        "num_steps": NUM_STEPS,
        "cut_after": CUT,
        "cut_frac": found.cut_frac,
        "ended_frac": found.ended_frac,
        "gradient_steps": [0, LATER],
        "components": list(COMPONENTS),
        "sides": [
            {"letter": side.letter, "moments": [first._asdict(), later._asdict()]}
            for side, first, later in zip(sides, found.first, found.later, strict=True)
        ],
    }


def _config(side: Side) -> Config:
    if not side.configs:
        hint = "give runs, configurations or presets, as hmx compare --impl brax scs"
        raise HmxError(f"side {side.letter} has no configuration, so its loss is not known", hint)
    return side.configs[0]


def _check(sides: Sequence[Side], configs: Sequence[Config]) -> None:
    if configs[0].net.rnn != "none":
        words = f"side {sides[0].letter} has a network with a memory, for which losses are not compared"
        raise HmxError(words, "put a side with net.rnn = none first: its network is the one that is used")
    kinds = {config.algo.value_target == "two_hot" for config in configs}
    if len(kinds) > 1:
        words = "some sides have two_hot values and some have not: no network has both heads"
        raise HmxError(words, "compare sides whose algo.value_target is two_hot, or none of which")
