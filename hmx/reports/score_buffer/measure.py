"""Compute every figure of the report from the scores and the buffer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.dqn.gradient_terms import in_blocks
from hmx.config.learning import ReplayConfig
from hmx.envs.pictures import described
from hmx.envs.protocol import Env, EnvSpec
from hmx.errors import HmxError
from hmx.records.plain import JsonValue
from hmx.replay import Experience
from hmx.replay.offline import probabilities
from hmx.reports.score_buffer import findings
from hmx.reports.score_buffer.findings import Noise, ScoreFindings, TopPosition, TriedAction
from hmx.reports.score_buffer.request import ScoreRequest
from hmx.reports.score_buffer.run import METRICS, ScoreTable, part_size
from hmx.reports.score_buffer.source import Agent, ScoreTask
from hmx.rl import distributions
from hmx.runs import buffers
from hmx.runs.buffers import OBS, Buffer, Host
from hmx.runs.signals import interruptible
from hmx.scoring import ScoreOptions, env_steps
from hmx.scoring.options import live_environments
from hmx.stats import ranks as stats
from hmx.types import Array

_MOST_POINTS = 400  # in plots

Columns = Mapping[str, Host]


def measure(task: ScoreTask, table: ScoreTable, updated: Buffer, out: Path) -> ScoreFindings:
    """Compute the findings, without gates, verdict and warnings."""
    agent, buffer, request, columns = task.agent, task.buffer, task.request, table.columns
    score, header = columns["score"], buffer.header
    td = buffer.td_errors[columns["index"]]
    fresh = fresh_errors(agent, buffer, columns["index"])
    return ScoreFindings(
        path=str(task.path),
        env=agent.cfg.env.id,
        out=out,
        policy=findings.ContinuationPolicy(agent.run, agent.update, request.agent, *task.policy),
        buffer=findings.BufferFacts(
            header.size, header.capacity, header.num_added, task.origin == "collected", header.run, header.update
        ),
        seed=task.seed,
        options=dataclasses.replace(task.options, horizon=table.header.horizon),
        request=request,
        positions=len(score),
        scores=_distribution(score),
        metrics={name: _summary(columns[f"c_{name}"], score) for name in METRICS},
        noise=noise(columns, task.options),
        rollouts=_rollouts(task, table),
        td=stats.correlation(score, td, task.seed),
        td_fresh=None if fresh is None else stats.correlation(score, fresh, task.seed),
        proxy=findings.Baseline(
            "Q-gap" if agent.network.are_values else "value gap",
            float(np.median(columns["proxy"])),
            stats.correlation(score, columns["proxy"], task.seed),
        ),
        stakes=findings.Stakes(float(columns["spread"].max()), stats.middle_share(columns["spread"])),
        replay_before=replay_facts(buffer, request),
        replay_after=replay_facts(updated, request),
        coverage=_coverage(buffer, updated, request.target_coverage),
        cost=_cost(task, table),
        top=_top_positions(task, columns),
        points=_points(score, td, columns["proxy"]),
        columns={**columns, "td_error": td},
    )


def errors(columns: Columns, options: ScoreOptions) -> Host | None:
    """Compute the standard error of each score; None for a single rollout.

    The halves of the rollouts are independent, so half of their difference has the standard deviation of their mean.
    An uncorrected score also has its bias. A single error has one degree of freedom and is mostly too small, so only
    their mean over positions is reported.
    """
    if options.rollouts < 2:
        return None
    first, second = columns["halves"].T.astype(np.float64)
    bias = 0.0 if options.corrected else columns["bias"].astype(np.float64)
    found: Host = np.sqrt(np.square((first - second) / 2) + np.square(bias))
    return found


def noise(columns: Columns, options: ScoreOptions) -> Noise:
    """Measure the reliability of the scores."""
    error, (first, second) = errors(columns, options), columns["halves"].T
    return Noise(
        reliability=None if error is None else stats.spearman(first, second),
        standard_error=None if error is None else float(np.sqrt(np.square(error).mean())),
        bias=float(columns["bias"].mean(dtype=np.float64)),
        null=float(columns["null"].mean(dtype=np.float64)),
    )


def replay_facts(buffer: Buffer, request: ScoreRequest) -> findings.ReplayFacts:
    """Compute the sampling of a buffer by replay."""
    scored, scores = buffer.scored, np.where(buffer.scored, buffer.consequence_scores, np.float32(0.0))
    if request.unscored == "zero":
        scored = np.ones_like(scored)
    how = ReplayConfig(
        mixing=request.mixing, mu=request.mu, alpha_td=request.alpha_td, alpha_c=request.alpha_c,
        eps_td=request.eps_td, target_ess=request.target_ess,
    )  # fmt: skip
    drawn, ess, alphas = probabilities(jnp.asarray(buffer.td_errors), jnp.asarray(scores), jnp.asarray(scored), how)
    probs = np.asarray(drawn, np.float64)
    weights = 1.0 / (len(probs) * probs)
    return findings.ReplayFacts(
        ess=float(ess),
        prob_ratio=float(probs.max() / probs.min()),
        is_weight_min=float(weights.min()),
        is_weight_max=float(weights.max()),
        alpha_td=float(alphas[0]),
        alpha_c=float(alphas[1]),
    )


def action_name(spec: EnvSpec, action: Host) -> str:
    """Return the name of a joint action, with the agents in order."""
    return "+".join(spec.action_names[int(a)] for a in action)


def _distribution(score: Host) -> findings.Distribution:
    ordered = np.sort(score.astype(np.float64))[::-1]
    total = ordered.sum()
    tenth = max(len(ordered) // 10, 1)
    zeros, bins = stats.log_histogram(score)
    return findings.Distribution(
        mean=float(score.mean(dtype=np.float64)),
        quantiles=stats.quantiles(score),
        zero_share=float((score == 0.0).mean()),
        distinct=len(np.unique(score)),
        tied_share=stats.tied_share(score),
        gini=stats.gini(score),
        top_tenth_share=float(ordered[:tenth].sum() / total) if total > 0.0 else None,
        zeros=zeros,
        bins=tuple(bins),
    )


def _summary(values: Host, score: Host) -> findings.MetricSummary:
    return findings.MetricSummary(
        mean=float(values.mean(dtype=np.float64)),
        median=float(np.median(values)),
        zero_share=float((values == 0.0).mean()),
        spearman=stats.spearman(values, score),
    )


def _rollouts(task: ScoreTask, table: ScoreTable) -> findings.RolloutFacts:
    header, columns = table.header, table.columns
    played = len(task.slots) * live_environments(task.options, task.agent.env.spec)
    return findings.RolloutFacts(
        horizon=header.horizon,
        auto=task.request.horizon is None,
        median_length=float(np.quantile(header.lengths, 0.5)),
        p99_length=float(np.quantile(header.lengths, 0.99)),
        truncated_share=float(1.0 - columns["ended"].mean()),
        mean_steps=float(columns["steps"].sum(dtype=np.int64) / played),
    )


def _coverage(before: Buffer, after: Buffer, target: float) -> findings.Coverage:
    age = (after.header.num_added - after.scored_at.astype(np.int64))[after.scored]
    p50, p90 = (float(x) for x in np.quantile(age, (0.5, 0.9))) if len(age) else (None, None)
    return findings.Coverage(float(before.scored.mean()), float(after.scored.mean()), target, p50, p90)


def _cost(task: ScoreTask, table: ScoreTable) -> findings.Cost:
    header = table.header
    steps = int(table.columns["steps"].sum(dtype=np.int64))
    options = dataclasses.replace(task.options, horizon=header.horizon)
    spec = task.agent.env.spec
    live = live_environments(options, spec)
    return findings.Cost(
        env_steps=steps,
        seconds=header.seconds,
        compile_seconds=header.compile_seconds,
        steps_per_second=steps / header.seconds if header.seconds > 0.0 else None,
        most_env_steps=env_steps(options, spec, header.total),
        environments_per_position=live,
        live_environments=part_size(options, spec) * live,
    )


def _points(score: Host, td: Host, proxy: Host) -> tuple[findings.Point, ...]:
    """Return positions for plots, spread evenly over all."""
    chosen = np.unique(np.linspace(0, len(score) - 1, min(_MOST_POINTS, len(score))).astype(int))
    return tuple(findings.Point(float(score[i]), float(td[i]), float(proxy[i])) for i in chosen)


def _top_positions(task: ScoreTask, columns: Columns) -> tuple[TopPosition, ...]:
    """Return the positions with the highest scores; among equal ones, older positions come first.

    Of positions that look the same and have the same action taken, only the first is reported, with their number.
    """
    order = [int(row) for row in np.lexsort((columns["birth"], -columns["score"].astype(np.float64)))]
    same: dict[bytes, list[int]] = {}
    for row in order:
        if columns["score"][row] > 0.0:
            look = task.buffer.items[OBS][columns["index"][row]].tobytes() + columns["action"][row][0].tobytes()
            same.setdefault(look, []).append(row)
    return tuple(_top_position(task, columns, rows) for rows in [*same.values()][: task.request.top])


def _top_position(task: ScoreTask, columns: Columns, rows: list[int]) -> TopPosition:
    env, row = task.agent.env, rows[0]
    mean = columns["mean"][row]
    action = columns["action"][row]
    slot = int(columns["index"][row])
    valid = np.flatnonzero(columns["valid"][row])
    others = valid[valid != 0]
    best = int(others[np.argmax(mean[others])])
    return TopPosition(
        slot=slot,
        birth=int(columns["birth"][row]),
        times=len(rows),
        score=float(columns["score"][row]),
        td_error=float(task.buffer.td_errors[slot]),
        taken=action_name(env.spec, action[0]),
        best=action_name(env.spec, action[best]),
        gap=float(mean[best] - mean[0]),
        actions=tuple(
            TriedAction(
                action_name(env.spec, action[k]), bool(k == 0), float(mean[k]), float(columns["sd"][row][k]),
                float(columns["divergence"][row][k]),
            )
            for k in sorted(valid, key=lambda k: -mean[k])
        ),
        state=state_of(env, task.buffer, slot),
    )  # fmt: skip


def state_of(env: Env, buffer: Buffer, slot: int) -> Mapping[str, JsonValue]:
    """Describe a position: `position`, `map` or `battle`, or else its `text` or the start of the `observation`."""
    return described(env.spec, buffers.env_states(buffer, env, np.array([slot])), buffer.items[OBS][slot])


def fresh_errors(agent: Agent, buffer: Buffer, slots: Host) -> Host | None:
    """Compute the one-step `|r + gamma max Q(s', .) - Q(s, a)|`, summed over agents; None if it is not known."""
    if not agent.network.are_values:
        return None
    try:
        buffers.check(buffer, agent.cfg, agent.env, "the buffer", learned=True)
    except HmxError:
        return None  # a saved buffer may lack the results of its steps
    program = jax.jit(partial(_errors, agent))

    def part(index: Array) -> tuple[Array]:
        rows = {name: buffer.items[name][np.asarray(index)] for name in Experience._fields}
        return (interruptible(partial(program, agent.params, Experience(**rows))),)

    return in_blocks(part, slots)[0]


def _errors(agent: Agent, params: object, items: Experience) -> Array:
    values = agent.network.outputs(params, items.obs_t)
    after = agent.network.outputs(params, items.obs_tp1)
    taken = jnp.take_along_axis(values, items.action_t[..., None], -1)[..., 0]
    best = jnp.take_along_axis(after, distributions.mode(after, items.legal_tp1)[..., None], -1)[..., 0]
    following = jnp.where(items.agent_done_tp1, 0.0, best).sum(-1)
    target = items.reward_tp1 + agent.cfg.algo.gamma * following
    return jnp.abs(target - jnp.where(items.alive_t, taken, 0.0).sum(-1))
