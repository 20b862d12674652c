"""The other reports that the page of a run shows: `hmx grad-report` and `hmx score-buffer` keep them in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np

from hmx.config.textfile import quoted
from hmx.errors import HmxError
from hmx.records.artefact import read_json
from hmx.records.paths import GRADIENTS, SCORE_REPORT, SCORES, RunPaths
from hmx.records.plain import typed
from hmx.reports.blocks import Document


def other_reports(paths: RunPaths, warnings: list[str]) -> Iterator[Document]:
    """Yield the reports in the folder of a run; one that cannot be read adds to `warnings`."""
    for name, read in ((GRADIENTS, _gradients), (f"{SCORES}/{SCORE_REPORT}", _scores)):
        file = paths.reports / name
        try:
            if file.exists():
                yield read(file)
        except HmxError as problem:
            warnings.append(f"cannot read {name}: {quoted(problem.message, 200)}")
        except (TypeError, KeyError, AttributeError, ValueError):
            warnings.append(f"cannot read {name}: not a report of this version; run the command again")


def _gradients(file: Path) -> Document:
    from hmx.analysis.request import ProbeRequest
    from hmx.reports.gradients.document import document  # needs JAX, as all reports on gradients and scores
    from hmx.reports.gradients.findings import SCHEMA, GradFindings

    data = read_json(file, SCHEMA, "", "")
    probe = {field.name: data["request"][field.name] for field in fields(ProbeRequest)}
    data["reports"] = [{**report, "request": probe} for report in data["reports"]]
    return document(typed(GradFindings, data, {np.ndarray: lambda values: np.asarray(values, float)}))


def _scores(file: Path) -> Document:
    from hmx.reports.consequence.document import document
    from hmx.reports.consequence.findings import SCHEMA, ScoreFindings

    return document(typed(ScoreFindings, read_json(file, SCHEMA, "", "")))
