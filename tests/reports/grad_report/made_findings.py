"""Findings of gradient reports from random gradients, made without JAX."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from hmx.algos.gradients.buckets import reward_std, split
from hmx.algos.gradients.measures import Sums, measure
from hmx.algos.gradients.per_group import Layer
from hmx.algos.gradients.probe import ProbeEpisodes
from hmx.algos.gradients.results import BucketReport, Consistency, EpisodeReporter, GradReport, ReplaySample, summary
from hmx.config.schema import AlgoConfig
from hmx.reports.grad_report.findings import SCHEMA, CheckpointReport, GradFindings, notes, verdict, warnings
from hmx.reports.grad_report.request import GradReportRequest

PPO = {"task": 1.0, "entropy": 0.01, "kl": 0.0, "value": 0.5}
TD = {"td": 1.0}
PARAMS = {"torso": {"w": np.zeros(3)}, "value_head": {"w": np.zeros(2)}}
CONSISTENT = Consistency(ratio_error=0.0, approx_kl=0.0, clip_frac=0.0)


def random_sums(coefs: dict[str, float], groups: int, seed: int = 0) -> Sums:
    """Return random gradients with a common mean; the KL component of PPO has none."""
    random = np.random.default_rng(seed)
    size = sum(leaf.size for module in PARAMS.values() for leaf in module.values())
    scale = np.linspace(0.5, 3.0, groups)[:, None, None]
    grads = 0.3 * scale * random.normal(size=(groups, len(coefs), size)) + random.normal(size=(1, len(coefs), size))
    if "kl" in coefs:
        grads[:, 2] = 0.0
    steps = random.integers(20, 40, groups).astype(float)
    return Sums(random.normal(size=(groups, len(coefs))), grads * steps[:, None, None], steps, np.full(groups, 4.0))


def episodes_of(returns: np.ndarray[Any, Any], **changes: Any) -> ProbeEpisodes:
    """Return episodes of 20 steps with these returns, `[G, K]`."""
    found = ProbeEpisodes(
        returns, np.full(returns.shape, 20.0), np.zeros(returns.shape, bool), reward_std(returns), one_start=False
    )
    return found._replace(**changes)


def spread(std: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return returns `[G, 4]` with these standard deviations."""
    return 1.0 + np.outer(std, np.array([-1.0, 1.0, -1.0, 1.0])) * np.sqrt(3) / 2


def episode_report(
    coefs: dict[str, float] = PPO,
    sums: Sums | None = None,
    episodes: ProbeEpisodes | None = None,
    consistency: Consistency = CONSISTENT,
    seed: int = 0,
    **request: Any,
) -> GradReport:
    """Return a report on 32 groups of 4 episodes, of PPO or Q-learning."""
    asked = GradReportRequest(**{"groups": 32, "per_group": 4, "buckets": 4, **request})
    given = random_sums(coefs, asked.groups, seed) if sums is None else sums
    std = np.concatenate([[0.0, 0.0], np.linspace(0.1, 0.8, asked.groups - 2)])
    half = Sums(given.losses / 2, given.grads / 2, given.steps / 2, given.samples / 2)
    algo = AlgoConfig(name="ppo" if "task" in coefs else "dqn")
    reporter, played = EpisodeReporter(algo, asked, None), episodes or episodes_of(spread(std))
    report = reporter.report(played, None, given, lambda members: half, coefs, PARAMS, consistency)
    return dataclasses.replace(report, epsilon=None if "task" in coefs else 0.1)


def replay_report(prioritised: bool = True, seed: int = 0) -> GradReport:
    """Return a report on 4 groups of 4 transitions in each of 3 buckets."""
    request = GradReportRequest(groups=12, per_group=4, buckets=3, replay=True)
    sums, score = random_sums(TD, 12, seed), np.linspace(0.1, 2.0, 12)
    sums = sums._replace(steps=np.full(12, 4.0), samples=np.full(12, 4.0))
    buckets, layers = split(score, 3), (Layer("torso", ((0, 3),)), Layer("head", ((3, 5),)))
    uniform = measure(sums, buckets, TD, layers)
    weights = score[:, None, None] if prioritised else 1.0
    replayed = measure(sums._replace(grads=sums.grads * weights), buckets, TD, layers)
    density = score if prioritised else np.ones(12)

    def bucket(one: Any, other: Any) -> BucketReport:
        ids = list(one.groups)
        return BucketReport(
            **vars(one), score=summary(score[ids]), td_error=float(score[ids].mean()),
            draws=float(density[ids].sum() / density.sum()), replayed_share=other.share,
            replayed_norm=other.components["td"].norm,
        )  # fmt: skip

    return GradReport(
        request=request, algo="dqn", source="replay", rank="td", coefs=TD, clip_scale=1.0,
        consistency=Consistency(td_rank=0.25),
        buckets=tuple(bucket(a, b) for a, b in zip(uniform.buckets, replayed.buckets, strict=True)),
        whole=bucket(uniform.whole, replayed.whole), cos=uniform.cos, score=score, stored=96,
        replay=ReplaySample(0.4, prioritised, tuple(tuple(range(4 * g, 4 * g + 4)) for g in range(12))),
    )  # fmt: skip


def checkpoint(report: GradReport, update: int = 60, **changes: Any) -> CheckpointReport:
    """Return a report as that of a checkpoint."""
    found = CheckpointReport(
        **vars(report), update=update, env_steps=1000 * update, hash_before="0", hash_after="0",
        verdict=verdict(report), warnings=warnings(report), notes=notes(report),
    )  # fmt: skip
    return dataclasses.replace(found, **changes)


def findings(*reports: GradReport, **changes: Any) -> GradFindings:
    """Return findings with a checkpoint for each report, 20 updates apart."""
    points = tuple(checkpoint(report, 20 * (i + 1)) for i, report in enumerate(reports))
    request = reports[-1].request
    assert isinstance(request, GradReportRequest)
    found = GradFindings(
        schema=SCHEMA, path=Path("runs/learning"), env="corridor", seed=0, request=request, reports=points,
        compare=None, warnings=(),
    )  # fmt: skip
    return dataclasses.replace(found, **changes)
