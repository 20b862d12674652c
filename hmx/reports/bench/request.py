"""Options of `hmx bench`."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.config.option import opt

_PANEL = "Benchmark"


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """The time to measure."""

    seconds: float = opt(60.0, "time to spend, compiling included; three rounds are measured in any case", "seconds",
        ge=1, le=86_400, panel=_PANEL)  # fmt: skip
    metrics: bool = opt(
        False,
        "also measure the share of an update that the reward, action and event metrics cost; compiles twice",
        panel=_PANEL,
    )
