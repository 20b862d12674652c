"""The request of `hmx report`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from hmx.config.option import MAX_SEED, opt
from hmx.records.paths import DEFAULT_ROOT

EPISODES_PANEL = "Episodes"
EPISODES = 16


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """The runs and how to show them."""

    runs: tuple[str, ...] = ()  # names or paths
    root: Path = Path(DEFAULT_ROOT)  # runs folder, for names
    num_episodes: int | None = opt(
        None, "number of episodes to play; the page shows the best, the median and the worst; 0 for none (default: "
        f"those of the evaluation, or {EPISODES} new ones without an evaluation or with other options; 0 for several "
        "runs)", ge=0, le=256, flag="--episodes", panel=EPISODES_PANEL,
    )  # fmt: skip
    seed: int = opt(0, "seed of the episodes", ge=0, le=MAX_SEED, panel=EPISODES_PANEL)
    greedy: bool = opt(False, "take the most probable action instead of sampling", panel=EPISODES_PANEL)

    @property
    def of_evaluation(self) -> bool:
        """Whether the episodes are those of the evaluation, if there is one: no option asks for others."""
        return self == replace(ReportRequest(), runs=self.runs, root=self.root)
