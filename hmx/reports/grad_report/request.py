"""Options of `hmx grad-report`."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.algos.gradients.request import MEASURE, PROBE, ProbeRequest
from hmx.config.option import MAX_SEED, opt

CHECKPOINTS = "Checkpoints"


@dataclass(frozen=True, kw_only=True)
class GradReportRequest(ProbeRequest):
    """The measurements, and the checkpoints."""

    checkpoint: int | None = opt(None, "checkpoint (the latest by default)", metavar="UPDATE", panel=CHECKPOINTS)
    all_checkpoints: bool = opt(False, "measure every checkpoint, and show the trend", panel=CHECKPOINTS)
    agent: int = opt(0, "index of the agent (seed) to measure", ge=0, panel=CHECKPOINTS)
    seed: int | None = opt(None, "seed of the probe (that of the run by default)", ge=0, le=MAX_SEED, panel=PROBE)
    from_buffer: str | None = opt(
        None, "saved buffer whose states are the start states; with --replay, whose transitions are measured",
        metavar="FILE", panel=PROBE,
    )  # fmt: skip
    reference: int | None = opt(
        None, "checkpoint that KL is measured from (by default the reference policy of the run, ppo.ref)",
        metavar="UPDATE", panel=MEASURE,
    )  # fmt: skip
    compare: str | None = opt(
        None, "run, checkpoint or saved JSON report to divide the norms by", metavar="OTHER", panel=MEASURE
    )
