"""Gradient reports of a run while it trains, as metrics of the updates they are measured before."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import jax

from hmx.agents.types import TrainState
from hmx.analysis.buckets import ALL
from hmx.analysis.measures import TOTAL, Measured
from hmx.analysis.report import make_reporter
from hmx.analysis.spec import GradReport, Spec
from hmx.config.schema import Config
from hmx.runs.loop import Record, Reports, seed_state
from hmx.runs.session import Session

STREAM = 2  # of the seed: 0 is training's and 1 evaluation's
PER_GROUP = 4
MAX_LENGTH = 256  # steps of an episode that a report plays

_LOSS_NAMES = {"task": "policy"}


def spec_of(cfg: Config) -> Spec:
    """What a run measures: less than `hmx grad-report` does by default, since it does so again and again."""
    return Spec(groups=cfg.run.grad_report_groups, per_group=PER_GROUP, max_length=MAX_LENGTH)


def make_reports(session: Session) -> Reports | None:
    """The gradient reports that a configuration asks for; None where it asks for none.

    All reports of a run, and all agents trained side by side, meet the start states that `hmx grad-report` with the
    run's own seed meets. Nothing of the run's state is used up: the keys are of a stream of their own.
    """
    cfg = session.cfg
    if not cfg.run.grad_report_every:
        return None
    reporter = make_reporter(cfg, session.env, spec_of(cfg))

    def measure(state: TrainState, update: int) -> list[Record]:
        hypers, found = session.algorithm.hypers(update - 1), []
        if cfg.algo.name == "dqn":
            # episodes need no buffer, of which each agent's would be copied
            state = state._replace(replay=(), overwritten=())
        for agent in range(cfg.run.num_seeds):
            start = time.perf_counter()
            key = jax.random.fold_in(jax.random.key(cfg.run.seed), STREAM)
            report = reporter(seed_state(state, agent, cfg.run.num_seeds), hypers, key)
            found.append({**metrics(report), "train/grad_report_seconds": time.perf_counter() - start})
        return found

    return Reports(cfg.run.grad_report_every, measure)


def metrics(report: GradReport) -> Record:
    """A report by the names of `hmx.records.metrics_table`; what is not known is left out."""
    measures = report.measures
    found: dict[str, float | None] = {"grad_norm/clip_scale": report.clip_scale}
    for bucket in (*measures.buckets, measures.whole):
        found |= {f"grad_norm/{bucket.name}/{name}": value for name, value in _of_bucket(report, bucket)}
    for layer, norm in measures.whole.parts[TOTAL].layers.items():
        found[f"grad_norm/{ALL}/layer/{layer}"] = norm
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def _of_bucket(report: GradReport, bucket: Measured) -> Iterator[tuple[str, float | None]]:
    ids, parts = list(bucket.groups), bucket.parts
    std = report.reward_std[ids]
    yield "group_count", len(ids)
    yield "sample_count", bucket.samples
    yield "sample_pct", 100.0 * bucket.samples / report.measures.whole.samples
    yield "token_count", bucket.steps
    yield "reward_std_mean", std.mean()
    yield "reward_std_min", std.min()
    yield "reward_std_max", std.max()
    yield "return_mean", report.returns[ids].mean()
    yield "truncated_frac", report.cut[ids].mean()
    yield "share", bucket.share
    for name, part in parts.items():
        yield name, part.norm
        yield f"per_sample/{name}", part.per_sample
        yield f"per_token/{name}", part.norm
        yield f"loss/{_LOSS_NAMES.get(name, name)}", part.loss
        yield f"cos_all/{name}", part.cos_all
        if name != TOTAL:
            yield f"component_share/{name}", part.share
    for name in (next(iter(parts)), TOTAL):
        noise = parts[name].noise
        yield f"noise/{name}/signal", noise.signal
        yield f"noise/{name}/trace", noise.trace
        yield f"noise/{name}/scale", noise.scale
        yield f"noise/{name}/snr", noise.snr
    for name in ("value", "entropy"):
        if name in parts:
            yield f"cos/task_{name}", bucket.cos["task"][name]
