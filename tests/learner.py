"""Options of a learner, sorted into the sections of the configuration."""

import dataclasses

from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig

ALGO_OPTIONS = {field.name for field in dataclasses.fields(AlgoConfig)}


def learner(**options):
    """Return the sections `algo` and `ppo` with these options, as keyword arguments of `Config`."""
    algo = {name: value for name, value in options.items() if name in ALGO_OPTIONS}
    ppo = {name: value for name, value in options.items() if name not in ALGO_OPTIONS}
    return {"algo": AlgoConfig(**algo), "ppo": PpoConfig(**ppo)}
