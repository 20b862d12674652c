"""`hmx doctor`: read the metrics of a run and check the rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, counted, nearest
from hmx.jobs.runs import state_of
from hmx.records import jsonl
from hmx.records import meta as metas
from hmx.records.artefact import words
from hmx.records.frozen import read_config
from hmx.records.layout import find_run
from hmx.records.paths import DEFAULT_ROOT
from hmx.reports.health.monitor import HealthFindings, Monitor
from hmx.reports.health.rules import RULES

ANY = "any"
"""`--fail-on any`: every rule whose findings are warnings."""


def doctor(run: str | Path, fail_on: Sequence[str] = (), root: str | Path = DEFAULT_ROOT) -> HealthFindings:
    """Check the metrics of a run; only reads, and needs no JAX. `fail_on` are rules that must not be broken, or `any`.

    Raises:
        HmxError: no such rule (exit code 2) or run, or its configuration is damaged (3).
    """
    known = [rule.name for rule in RULES]
    for name in fail_on:
        if name not in (*known, ANY):
            near = nearest(name, [*known, ANY])
            hint = f"did you mean {near}?" if near else f"the rules are {', '.join(known)}"
            raise HmxError(f"cannot fail on {quoted(name) or repr(name)}: no such rule", hint)
    paths = find_run(run, root)
    monitor = Monitor(read_config(paths))
    damaged, warnings = 0, []
    try:
        for _, line, record in jsonl.scan(paths.metrics):
            damaged += record is None and line.endswith(b"\n")
            for _ in monitor.add(record or {}):
                pass
    except FileNotFoundError:
        pass
    except OSError as problem:
        hint = "check that it is a regular file, and its permissions"
        raise HmxError(f"cannot read {paths.metrics}: {words(problem)}", hint, ExitCode.ARTEFACT) from None
    if damaged:
        warnings.append(f"skipped {counted(damaged, 'damaged line')} of {paths.metrics}")
    findings = monitor.findings()
    broken = [finding.rule for finding in findings if finding.rule in fail_on]
    broken += [finding.rule for finding in findings if ANY in fail_on and finding.severity == "warning"]
    return HealthFindings(
        run=paths.folder,
        env=monitor.cfg.env.id,
        state=state_of(paths, metas.find(paths.meta)),
        updates=monitor.updates,
        total_updates=monitor.total_updates,
        env_steps=monitor.env_steps,
        num_seeds=monitor.num_seeds,
        findings=findings,
        rules=tuple(monitor.statuses()),
        warnings=tuple(warnings),
        failed=tuple(dict.fromkeys(broken)),
    )


def failure(findings: HealthFindings) -> HmxError:
    """Return the error that ends a command whose `--fail-on` rules are broken."""
    return HmxError(
        f"{findings.run} breaks {', '.join(findings.failed)}",
        "the report above says what to try",
        ExitCode.CHECK_FAILED,
    )
