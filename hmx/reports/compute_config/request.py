"""The request of `hmx compute-config`; imports little, since the command line is built from it."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.config.option import OUTPUT_PANEL, opt

_PANEL = "Questions"


@dataclass(frozen=True, kw_only=True)
class SizesRequest:
    """The questions, as typed."""

    sps: str = opt("", "agent steps per second, to show how long the run takes", metavar="N,...", panel=_PANEL)
    gpu_mem: str = opt(
        "", "memory of the device, such as 80GB or 80GiB, to check that the run fits", metavar="SIZE", panel=_PANEL
    )
    parameters: int = opt(1_000_000, "parameters of the network, if none is configured", ge=1, panel=_PANEL)
    sweep: str | None = opt(None, "compare several values of one input", metavar="INPUT=N,...", panel=_PANEL)
    full: bool = opt(False, "show every value", panel=OUTPUT_PANEL)
    explain: bool = opt(False, "show every value and how it is computed", panel=OUTPUT_PANEL)

    @property
    def speeds(self) -> tuple[float, ...]:
        """Agent steps per second."""
        from hmx.render.quantities import speeds

        return speeds([self.sps]) if self.sps else ()

    @property
    def gpu_bytes(self) -> int | None:
        """Memory of the device, if given."""
        from hmx.render.quantities import memory_size

        return memory_size(self.gpu_mem) if self.gpu_mem else None
