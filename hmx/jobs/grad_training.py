"""Gradient reports during training, as metrics of the update that they are measured before."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import jax

from hmx.algos.gradients.buckets import ALL
from hmx.algos.gradients.measures import TOTAL
from hmx.algos.gradients.reporter import make_reporter
from hmx.algos.gradients.request import ProbeRequest
from hmx.algos.gradients.results import BucketReport, GradReport
from hmx.algos.types import TrainState
from hmx.config.schema import RunConfig
from hmx.envs.protocol import playable
from hmx.runs.loop import Record, Reports, seed_state
from hmx.runs.session import Session

STREAM = 2  # of the seed: 0 is that of training and 1 that of evaluation
KIND = ("measuring", "the gradient", "a gradient report")
PER_GROUP = 4
MAX_LENGTH = 256  # longest episode of such a report

_LOSS_NAMES = {"task": "policy"}


def request_of(run: RunConfig) -> ProbeRequest:
    """Return the settings of a run's reports: smaller than the defaults of `hmx grad-report`, since they repeat."""
    return ProbeRequest(
        groups=run.grad_report_groups, per_group=PER_GROUP, max_length=MAX_LENGTH, buckets=run.grad_report_buckets
    )


def make_reports(session: Session) -> tuple[Reports, ...]:
    """Build the gradient reports of a run; nothing if its configuration has none.

    All reports of a run, and all its agents, use the start states that `hmx grad-report` with the run's seed uses. The
    keys come from a separate stream, so nothing else in the run changes.
    """
    cfg = session.cfg
    if not cfg.run.grad_report_every:
        return ()
    reporter = make_reporter(cfg, playable(session.env, "run.grad_report_every"), request_of(cfg.run))

    def measure(state: TrainState, update: int) -> list[Record]:
        hypers, found = session.algorithm.hypers(update - 1), []
        if session.task.algorithm.replays:
            # Reports on episodes do not need the buffer, which would be copied for each agent.
            state = state._replace(learner=state.learner._replace(replay=None, overwritten=None))
        for agent in range(cfg.run.num_seeds):
            start = time.perf_counter()
            key = jax.random.fold_in(jax.random.key(cfg.run.seed), STREAM)
            report = reporter(seed_state(state, agent, cfg.run.num_seeds), hypers, key)
            found.append({**metrics(report), "train/grad_report_seconds": time.perf_counter() - start})
        return found

    every = cfg.run.grad_report_every
    return (Reports(range(every, session.sizes.num_updates + 1, every), measure, *KIND),)


def metrics(report: GradReport) -> Record:
    """Return the values of a report by metric name (see `hmx.records.metrics_table`), without unknown ones."""
    found: dict[str, float | None] = {"grad_norm/clip_scale": report.clip_scale}
    for bucket in (*report.buckets, report.whole):
        values = _of_bucket(bucket, bucket.samples / report.whole.samples)
        found |= {f"grad_norm/{bucket.name}/{name}": value for name, value in values}
    for layer, norm in report.whole.components[TOTAL].layers.items():
        found[f"grad_norm/{ALL}/layer/{layer}"] = norm
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def _of_bucket(bucket: BucketReport, samples: float) -> Iterator[tuple[str, float | None]]:
    yield "group_count", len(bucket.groups)
    yield "sample_count", bucket.samples
    yield "sample_pct", 100.0 * samples
    yield "token_count", bucket.steps
    for name in ("mean", "min", "max"):
        yield f"reward_std_{name}", getattr(bucket.reward_std, name)
    yield "return_mean", bucket.return_mean
    yield "truncated_frac", bucket.truncated_frac
    yield "share", bucket.share
    for name, part in bucket.components.items():
        yield name, part.norm
        yield f"per_sample/{name}", part.per_sample
        yield f"per_token/{name}", part.norm
        yield f"loss/{_LOSS_NAMES.get(name, name)}", part.loss
        yield f"cos_all/{name}", part.cos_all
        if name != TOTAL:
            yield f"component_share/{name}", part.share
    for name in (next(iter(bucket.components)), TOTAL):
        for figure in ("signal", "trace", "scale", "snr"):
            yield f"noise/{name}/{figure}", getattr(bucket.components[name].noise, figure)
    for name in ("value", "entropy"):
        if name in bucket.components:
            yield f"cos/task_{name}", bucket.cos["task"][name]
