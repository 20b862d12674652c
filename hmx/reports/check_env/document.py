"""The certificate of an environment as a document, and its checks as one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hmx.envs.checks.run import CHECKS
from hmx.errors import ExitCode, HmxError
from hmx.render.blocks import Block, Cell, Column, Document, Paragraph, Row, Table, Tone, facts
from hmx.render.quantities import data_size, duration, short
from hmx.reports.check_env.findings import CheckEnvFindings, EnvCost
from hmx.simulators import checks as simulators

_TONES: dict[str, Tone] = {"passed": "good", "failed": "bad", "skipped": "faint"}


def document(findings: CheckEnvFindings) -> Document:
    """Build the report: the verdict, the checks, the failures with their fixes, sizes and costs."""
    return Document(f"Environment check: {findings.env}", tuple(_blocks(findings)))


def failure(findings: CheckEnvFindings) -> HmxError:
    """Return the error that ends a command whose checks failed."""
    names = ", ".join(check.check for check in findings.failed)
    text = f"{findings.env} fails {len(findings.failed)} of {len(findings.checks)} checks: {names}"
    return HmxError(text, findings.failed[0].hint, ExitCode.CHECK_FAILED)


def checks_table(findings: CheckEnvFindings) -> Table:
    """Build a row per check."""
    promises: Mapping[Any, tuple[str, str]] = simulators.CHECKS if _is_simulator(findings) else CHECKS
    columns = (Column("check", "left"), Column("result", "left"), Column("promise", "left"))
    rows = [
        Row((check.check, Cell(check.status, tone=_TONES[check.status]), promises[check.check][0]))
        for check in findings.checks
    ]
    return Table(columns, tuple(rows))


def _is_simulator(findings: CheckEnvFindings) -> bool:
    return findings.checks[0].check in simulators.CHECKS


def values(findings: CheckEnvFindings) -> Table:
    """Build the table that `--csv` writes."""
    table = checks_table(findings)
    rows = [Row((*row.cells, check.detail)) for row, check in zip(table.rows, findings.checks, strict=True)]
    return Table((*table.columns, Column("detail", "left")), tuple(rows))


def _blocks(findings: CheckEnvFindings) -> Iterator[Block]:
    failed, checks = findings.failed, findings.checks
    skipped = sum(check.status == "skipped" for check in checks)
    more = f", {skipped} skipped" if skipped else ""
    if failed:
        yield Paragraph(f"{len(failed)} of {len(checks)} checks failed{more}.", "bad")
    else:
        yield Paragraph(f"{len(checks) - skipped} of {len(checks)} checks passed{more}.", "strong")
    yield checks_table(findings)
    for check in failed:
        yield Paragraph(f"{check.check}: {check.detail}. Fix: {check.hint}.", "bad")
    reasons: dict[str, list[str]] = {}
    for check in checks:
        if check.status == "skipped":
            reasons.setdefault(check.detail, []).append(check.check)
    for reason, names in reasons.items():
        verb = "was" if len(names) == 1 else "were"
        yield Paragraph(f"{', '.join(names)} {verb} skipped: {reason}.", "faint")
    yield _sizes(findings)
    if findings.cost:
        yield from _cost(findings.cost)


def _sizes(found: CheckEnvFindings) -> Table:
    limit = f"{found.max_steps:,} steps" if found.max_steps else "none"
    if found.checked_max_steps != found.max_steps:
        limit += f"; checked with {found.checked_max_steps}"
    agents = f", {found.num_agents} agents" if found.num_agents > 1 else ""
    continuous = f"{found.action_dim} continuous, in [-1, 1]"
    played = f"{found.request.num_envs} environments x {found.request.steps:,} steps, seed {found.request.seed}"
    cost = found.simulator
    speed = []
    if _is_simulator(found):
        played = f"{found.request.steps:,} steps, seed {found.request.seed}" if cost else "until the failure"
    if cost is not None:
        resets = duration(cost.reset_seconds)
        speed = [("speed", f"{short(cost.steps_per_sec)} steps/s in one process; {resets} per reset")]
    return facts(
        (
            ("observation", f"{found.obs_dtype} {list(found.obs_shape)}{agents}"),
            ("actions", f"{found.num_actions} discrete" if found.num_actions else continuous),
            ("reward terms", ", ".join(found.reward_terms)),
            ("step limit", limit),
            ("played", played),
            ("episodes", f"{found.terminated:,} terminated, {found.truncated:,} truncated"),
            *speed,
        )
    )


def _cost(cost: EnvCost) -> Iterator[Block]:
    yield facts(
        (
            ("compile", duration(round(cost.compile_seconds, 2))),
            ("speed", f"{short(cost.steps_per_sec)} steps/s"),
            ("state", f"{data_size(cost.state_bytes)} per environment"),
            ("observation", f"{data_size(cost.obs_bytes)} per environment"),
        )
    )
    yield Paragraph(f"Measured with random legal play in {cost.num_envs} environments on this machine.", "faint")
