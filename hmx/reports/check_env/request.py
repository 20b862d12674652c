"""Options of `hmx check-env`."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.config.option import MAX_SEED, opt

_PANEL = "Checks"


@dataclass(frozen=True, kw_only=True)
class CheckEnvRequest:
    """The length of the play, and the tolerance."""

    steps: int = opt(128, "random steps to play", ge=8, le=100_000, panel=_PANEL)
    num_envs: int = opt(8, "environments side by side", ge=2, le=4096, panel=_PANEL)
    seed: int = opt(0, "seed of keys and actions", ge=0, le=MAX_SEED, panel=_PANEL)
    tolerance: float = opt(
        0.0, "largest difference between a batch and its members, for engines that round by batch size", ge=0, le=1,
        panel=_PANEL,
    )  # fmt: skip
    speed: bool = opt(True, "measure compile time, speed and memory", panel=_PANEL)
