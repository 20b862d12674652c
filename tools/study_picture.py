"""Draw a picture of docs/study.md or docs/study-report.md: a plot of a study's report.

python tools/study_picture.py STUDY results|configurations|fresh|cpu|KEY > docs/img/study-results.svg
"""

from __future__ import annotations

import sys

from compare_picture import picture
from hmx.render.blocks import Plot
from hmx.study.report import figures
from hmx.study.report.findings import StudyFindings
from hmx.study.report.job import study_report


def chosen(findings: StudyFindings, name: str) -> Plot:
    """Return a plot by its name; any other name is the key of an option."""
    makers = {
        "results": figures.results, "configurations": figures.parallel, "fresh": figures.curse, "cpu": figures.costs,
    }  # fmt: skip
    if name in makers:
        plot = makers[name](findings)
        assert plot is not None, "the runs of the study have no CPU times"
        return plot
    return figures.option(findings, next(one for one in findings.settings.space if one.key == name))


if __name__ == "__main__":
    sys.stdout.write(picture(chosen(study_report(sys.argv[1]), sys.argv[2])))
