"""The entry of Gumbel MuZero in the registry: it trains like PPO, and differs where it searches; imports no JAX."""

from __future__ import annotations

from hmx.algos.gumbel import checks
from hmx.algos.ppo import entry as ppo
from hmx.config.schema import Config
from hmx.registry.algorithms import PartName


def advice(cfg: Config, part: PartName) -> str:
    """Say what makes acting or learning faster."""
    if part != "network":
        return ppo.advice(cfg, part)
    return (
        f"Use fewer simulations (gumbel.num_simulations is {cfg.gumbel.num_simulations}), a smaller network "
        "(net.hidden), or more environments, since larger batches use a processor better."
    )


def simulations(cfg: Config) -> int:
    """Play with as many simulations as in training."""
    return cfg.gumbel.num_simulations


ENTRY = ppo.ENTRY._replace(
    name="gumbel",
    make="hmx.algos.gumbel.update:make_gumbel",
    schedules=("learning_rate", "ent_coef", "start_share", "ref_kl_coef"),
    advice=advice,
    check=checks.check,
    warn=checks.warn,
    evaluated_by="search",
    simulations=simulations,
    reporter="",
    simulators=False,
)
