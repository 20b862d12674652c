"""The findings of `hmx doctor` as a document, and as a table for CSV."""

from __future__ import annotations

from collections.abc import Iterator

from hmx.errors import counted
from hmx.render.blocks import Block, Column, Document, Heading, Paragraph, Row, Table, exact_table
from hmx.render.quantities import short
from hmx.reports.doctor.job import HealthFindings
from hmx.reports.doctor.monitor import Finding


def document(findings: HealthFindings) -> Document:
    """Build the report: what ended the run, the verdict, then each finding with its evidence and advice."""
    ended = [Paragraph(f"{findings.error[:1].upper()}{findings.error[1:]}.", "bad")] if findings.error else []
    ended += [Paragraph(f"Try: {findings.remedy}.", "strong")] if findings.remedy else []
    return Document(f"Health of {findings.run.name}", (*ended, *blocks(findings)))


def blocks(findings: HealthFindings) -> Iterator[Block]:
    """Yield the blocks of the report, also for the page of a run."""
    serious = any(finding.severity == "warning" for finding in findings.findings)
    yield Paragraph(findings.verdict, "bad" if serious else "good" if findings.updates else "warning")
    if findings.origin:
        yield Paragraph(f"The run was {findings.origin}; values before are those of that run.", "faint")
    for warning in findings.warnings:
        yield Paragraph(f"Warning: {warning}.", "warning")
    for finding in findings.findings:
        yield Heading(finding.title, 2)
        note = finding.severity == "note"
        name = f"{finding.rule}, a note" if note else finding.rule
        yield Paragraph(f"{_when(finding, findings)}: {finding.evidence}. ({name})", "faint" if note else "plain")
        yield Paragraph(f"Try: {finding.remedy}", "faint" if note else "strong")
    unmeasured = [rule for rule in findings.rules if rule.status == "not measured"]
    if findings.is_log and findings.updates:
        yield Heading(f"{counted(len(unmeasured), 'rule')} not checked", 2)
        columns = (Column("rule", "left"), Column("the log lacks", "left"))
        yield Table(columns, tuple(Row((rule.rule, rule.missing)) for rule in unmeasured))
        yield Paragraph("Advice names the options of hmx; the log is of another program.", "faint")
    elif unmeasured and findings.updates:
        names = ", ".join(rule.rule for rule in unmeasured)
        yield Paragraph(f"Not checked, because the run lacks their metrics: {names}.", "faint")


def table(findings: HealthFindings) -> Table:
    """Build the table of `--csv`, with a row for each finding."""
    names = ("rule", "severity", "since", "found", "until", "seeds", "evidence")
    rows = (
        (one.rule, one.severity, one.since, one.found, one.until, " ".join(map(str, one.seeds)), one.evidence)
        for one in findings.findings
    )
    return exact_table(names, rows)


def _when(finding: Finding, findings: HealthFindings) -> str:
    since = f"step {short(finding.since)}" if finding.since else "the start"
    which = f" for {len(finding.seeds)} of {findings.num_seeds} seeds" if findings.num_seeds > 1 else ""
    if findings.runs:
        which = f" in {', '.join(findings.runs[seed] for seed in finding.seeds)}"
    return f"From {since} to step {short(finding.until)}{which}" if finding.until else f"Since {since}{which}"
