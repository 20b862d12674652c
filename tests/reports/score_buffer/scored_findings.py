"""Made-up findings on consequence scores, with a position of every kind of drawing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from hmx.reports.score_buffer import findings
from hmx.reports.score_buffer.findings import ScoreFindings, TopPosition, TriedAction, judged
from hmx.reports.score_buffer.request import ScoreRequest
from hmx.scoring import ScoreOptions
from hmx.stats import ranks
from hmx.stats.ranks import Correlation

STATES = json.loads((Path(__file__).parent / "states.json").read_text())
SIZE = 64


def made(warnings: tuple[str, ...] = (), scale: float = 1.0, **changes: Any) -> ScoreFindings:
    """Findings on 64 positions of HackMatrix; a scale of 0 makes all scores 0."""
    rng = np.random.default_rng(0)
    score = scale * np.where(rng.random(SIZE) < 0.1, 0.0, rng.lognormal(-1.0, 1.5, SIZE))
    td, proxy = rng.random(SIZE), score + 0.3 * rng.random(SIZE)
    top_tenth = float(np.sort(score)[-6:].sum() / score.sum()) if scale else None
    zeros, bins = ranks.log_histogram(score)
    replay = findings.ReplayFacts(0.92, 4.1, 0.37, 6.26, 0.6, 0.6)
    columns = {name: np.arange(SIZE) / 8 for name in ("score", "bias", "c_w1", "c_dmean", "c_tv", "c_js", "spread")}
    columns |= {name: np.arange(SIZE) / 4 for name in ("null", "proxy", "td_error", "ended")}
    columns |= {name: np.arange(SIZE) for name in ("index", "birth", "steps")}
    found = ScoreFindings(
        path="runs/hm", env="hackmatrix", out=Path("runs/hm/reports/scores"), seed=0, positions=SIZE,
        policy=findings.ContinuationPolicy("hm", 128, 0, "softmax", 1.0),
        buffer=findings.BufferFacts(1024, 1024, 1024, True, "hm", 128),
        options=ScoreOptions(rollouts=8, horizon=187, gamma=0.99, team_reward="mean", null=True),
        request=ScoreRequest(rollouts=8, positions=64),
        scores=findings.Distribution(
            mean=float(score.mean()), quantiles=ranks.quantiles(score), zero_share=float((score == 0).mean()),
            distinct=len(np.unique(score)), tied_share=ranks.tied_share(score), gini=ranks.gini(score),
            top_tenth_share=top_tenth, zeros=zeros, bins=tuple(bins),
        ),
        metrics={name: findings.MetricSummary(0.4, 0.2, 0.1, 0.9) for name in ("w1", "dmean", "tv", "js")},
        noise=findings.Noise(reliability=0.86, standard_error=0.21, bias=0.12, null=0.05),
        rollouts=findings.RolloutFacts(187, True, 50.0, 187.0, 0.03, 53.5),
        td=ranks.correlation(score, td), td_fresh=None,
        proxy=findings.Baseline("value gap", 0.3, ranks.correlation(score, proxy)),
        stakes=findings.Stakes(6.7, 0.33), replay_before=replay, replay_after=replay,
        coverage=findings.Coverage(0.0, 0.0625, 0.0, 12.0, 30.0),
        cost=findings.Cost(794_000, 67.0, 159.0, 11_850.0, 1_200_000, 40, 4096),
        top=tuple(_top(place, state) for place, state in enumerate(STATES)),
        points=tuple(findings.Point(*map(float, point)) for point in zip(score, td, proxy, strict=True)),
        columns=columns,
    )  # fmt: skip
    return judged(dataclasses.replace(found, **changes), warnings)


def _top(place: int, state: dict[str, Any]) -> TopPosition:
    actions = (TriedAction("siphon", False, 1.5, 0.5, 0.75), TriedAction("<right>", True, 0.75, 0.25, 0.0))
    return TopPosition(
        slot=800 + place, birth=17, times=1 + place, score=6.0 - place, td_error=0.125, taken="<right>", best="siphon",
        gap=0.75, actions=actions, state=state,
    )  # fmt: skip


UNKNOWN = {
    "noise": findings.Noise(reliability=None, standard_error=None, bias=0.0, null=0.0),
    "td": Correlation(None),
    "td_fresh": Correlation(0.5),
    "top": (),
    "coverage": findings.Coverage(0.0, 0.0, 0.0, None, None),
    "cost": findings.Cost(0, 0.0, 0.0, None, 0, 0, 0),
}
"""Values that may not be known."""
