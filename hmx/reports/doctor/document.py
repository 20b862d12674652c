"""The findings of `hmx doctor` as a document, and as a table for CSV."""

from __future__ import annotations

from collections.abc import Iterator

from hmx.render.blocks import Block, Document, Heading, Paragraph, Table, exact_table
from hmx.render.quantities import short
from hmx.reports.doctor.job import Finding, HealthFindings


def document(findings: HealthFindings) -> Document:
    """Build the report: the verdict, then each finding with its evidence and advice."""
    return Document(f"Health of {findings.run.name}", tuple(blocks(findings)))


def blocks(findings: HealthFindings) -> Iterator[Block]:
    """Yield the blocks of the report, also for the page of a run."""
    serious = any(finding.severity == "warning" for finding in findings.findings)
    yield Paragraph(findings.verdict, "bad" if serious else "good" if findings.updates else "warning")
    for warning in findings.warnings:
        yield Paragraph(f"Warning: {warning}.", "warning")
    for finding in findings.findings:
        yield Heading(finding.title, 2)
        name = f"{finding.rule}, a note" if finding.severity == "note" else finding.rule
        yield Paragraph(f"{_when(finding, findings.num_seeds)}: {finding.evidence}. ({name})")
        yield Paragraph(f"Try: {finding.remedy}", "strong" if finding.severity == "warning" else "plain")
    unmeasured = [rule.rule for rule in findings.rules if rule.status == "not measured"]
    if unmeasured and findings.updates:
        yield Paragraph(f"Not checked, because the run lacks their metrics: {', '.join(unmeasured)}.", "faint")


def table(findings: HealthFindings) -> Table:
    """Build the table of `--csv`, with a row for each finding."""
    names = ("rule", "severity", "since", "found", "until", "seeds", "evidence")
    rows = (
        (one.rule, one.severity, one.since, one.found, one.until, " ".join(map(str, one.seeds)), one.evidence)
        for one in findings.findings
    )
    return exact_table(names, rows)


def _when(finding: Finding, seeds: int) -> str:
    since = f"step {short(finding.since)}" if finding.since else "the start"
    which = f" for {len(finding.seeds)} of {seeds} seeds" if seeds > 1 else ""
    return f"From {since} to step {short(finding.until)}{which}" if finding.until else f"Since {since}{which}"
