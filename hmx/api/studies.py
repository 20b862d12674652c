"""Studies from Python."""

from __future__ import annotations

from pathlib import Path

from hmx.study.create import find_study
from hmx.study.report.findings import StudyFindings
from hmx.study.report.job import study_report as report
from hmx.study.request import STUDIES

__all__ = ["study_report"]


def study_report(study: str | Path, root: str | Path = STUDIES) -> StudyFindings:
    """Report on a study, as `hmx study report` does; `hmx.show` prints the result.

    Args:
        study: its name, or the path of its folder.
        root: folder of the studies, for names.

    Raises:
        HmxError: there is no such study, or one of its files is damaged.
    """
    return report(find_study(study, root))
