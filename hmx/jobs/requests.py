"""The requests of `hmx runs` and `hmx export`; imports nothing heavy, since the command line is built from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from hmx.config.option import OUTPUT_PANEL, RUN_PANEL, checkpoint_option, opt

State = Literal["running", "finished", "interrupted", "failed", "crashed", "unknown"]
"""crashed: running, but no process holds the lock; unknown: meta.json is unreadable."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForkRequest:
    """The checkpoint that a new run continues from, and the name of that run."""

    at: int | None = opt(
        None, "checkpoint to continue from (the latest by default)", ge=0, metavar="UPDATE", panel=RUN_PANEL
    )
    name: str = opt("", "name of the new run (RUN-fork-001 and so on by default)", metavar="NAME", panel=RUN_PANEL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListRequest:
    """Which runs to list, and in which order."""

    state: State | None = opt(None, "list only the runs in this state", panel="Filter")
    match: str = opt(
        "", "list only the runs whose name matches a pattern, such as 'corridor-*'", metavar="PATTERN", panel="Filter"
    )
    sort: Literal[
        "name", "environment", "algorithm", "state", "steps", "return", "steps/s", "remaining", "size", "age"
    ] = opt("age", "order: ages and remaining times from the shortest, other numbers from the highest", panel="Filter")
    reverse: bool = opt(False, "reverse the order", panel="Filter")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """Which parts of a run are trained again."""

    replay: int = opt(
        0, "number of stretches between kept checkpoints, drawn at random, to train again and compare bit for bit",
        ge=0, words={"all": 10**9}, panel="Replay",
    )  # fmt: skip
    seed: int | None = opt(None, "seed of that draw (another one each time by default)", ge=0, panel="Replay")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """The format of the records, and where they go; without an `output`, into the run folder."""

    to: Literal["csv", "tensorboard"] = opt("csv", "format", panel=OUTPUT_PANEL)
    names: Literal["hmx", "sb3", "cleanrl"] = opt(
        "hmx", "names of the metrics that Stable-Baselines3 or CleanRL has too", panel=OUTPUT_PANEL
    )
    force: bool = opt(False, "replace an existing output", panel=OUTPUT_PANEL)
    output: Path | None = opt(
        None, "file, or folder of event files, to write; - prints CSV (default: in the run folder)", metavar="FILE",
        panel=OUTPUT_PANEL,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """The format of a policy, the agent and checkpoint to export, and where it goes."""

    to: Literal["safetensors", "stablehlo", "onnx"] = opt("safetensors", "format", panel=OUTPUT_PANEL)
    checkpoint: int | None = checkpoint_option("Policy")
    agent: int = opt(0, "index of the agent (seed) to export", ge=0, panel="Policy")
    force: bool = opt(False, "replace an existing file", panel=OUTPUT_PANEL)
    output: Path | None = opt(
        None, "file to write (default: policy.FORMAT in the reports of the run)", metavar="FILE", panel=OUTPUT_PANEL
    )
