"""Draw the pictures of the documentation with matplotlib.

python tools/pictures.py docs/img/compare.svg compare SIDE SIDE ...
python tools/pictures.py docs/img/grad-report.svg grad-report RUN 4 32 60 [--replay]
python tools/pictures.py docs/img/study-results.svg study STUDY results|configurations|cpu|KEY
python tools/pictures.py docs/img/replay-arms.svg replay-arms arms.jsonl

`python benchmarks/replay_arms.py --json > arms.jsonl` makes the last file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hmx.render.blocks import Aside, Axis, Plot, Series
from hmx.render.figures import save
from hmx.reports.compare.document import document
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest
from hmx.reports.grad_report.figures import by_bucket
from hmx.reports.grad_report.job import grad_report
from hmx.reports.grad_report.request import GradReportRequest
from hmx.stats.intervals import bootstrap, mean
from hmx.study.report import figures
from hmx.study.report.job import study_report

ARMS = {
    "uniform": "uniform", "td": "TD error", "consequence": "consequence", "additive": "additive",
}  # fmt: skip


def comparison(sides: Sequence[str]) -> list[Plot]:
    """Return the learning curves of the first environment."""
    asides = (block for block in document(compare(CompareRequest(sides=tuple(sides)))).blocks)
    inner = (block for aside in asides if isinstance(aside, Aside) for block in aside.blocks)
    return [next(block for block in inner if isinstance(block, Plot))]


def gradients(run: str, updates: Sequence[int], replay: bool) -> list[Plot]:
    """Return the plots of several checkpoints, a row per checkpoint."""
    requests = [GradReportRequest(checkpoint=update, replay=replay, crossfit=not replay) for update in updates]
    return [plot for request in requests for plot in by_bucket(grad_report(run, request).reports[0])]


def study(folder: str, name: str) -> list[Plot]:
    """Return a plot of a study's report by its name; any other name is the key of an option."""
    findings = study_report(folder)
    makers = {
        "results": figures.results, "configurations": figures.parallel, "cpu": figures.costs,
    }  # fmt: skip
    if name not in makers:
        return [figures.option(findings, next(one for one in findings.settings.space if one.key == name))]
    plot = makers[name](findings)
    assert plot is not None, "the runs of the study have no CPU times"
    return [plot]


def replay_arms(file: Path) -> list[Plot]:
    """Return the share of seeds whose greedy policy reaches the goal, and the mean return of the whole run."""
    rows = {row["arm"]: row for row in map(json.loads, file.read_text(encoding="utf-8").splitlines())}
    arms = [arm for arm in ARMS if arm in rows]
    seeds = next(iter(rows.values()))["seeds"]
    curves = [
        Series(ARMS[arm], tuple(rows[arm]["at_steps"]), tuple(map(mean, rows[arm]["solved_at"])), colour=i)
        for i, arm in enumerate(arms)
    ]
    means = []
    for i, arm in enumerate(arms):
        values = rows[arm]["whole"]
        low, high = (bootstrap(values) or (None, None))[:2]
        means.append(Series("", (float(i),), (mean(values),), "dots", (low,), (high,), i))
    title = f"Greedy policy reaches the goal, share of {seeds} seeds"
    steps, share = Axis("environment steps", format="count"), Axis("share", low=0.0, high=1.0)
    whole = Axis("mean and 95 % interval", low=0.0, high=1.0)
    return [
        Plot(title, steps, share, tuple(curves)),
        Plot("Return per episode over the whole run", Axis(""), whole, tuple(means),
             categories=tuple(ARMS[arm] for arm in arms)),
    ]  # fmt: skip


def main() -> None:
    """Draw one picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("kind", choices=("compare", "grad-report", "study", "replay-arms"))
    parser.add_argument("words", nargs="+")
    parser.add_argument("--replay", action="store_true", help="stored transitions instead of episodes")
    args = parser.parse_args()
    first, *others = args.words
    if args.kind == "compare":
        plots = comparison(args.words)
    elif args.kind == "grad-report":
        plots = gradients(first, [int(update) for update in others], args.replay)
    elif args.kind == "study":
        plots = study(first, others[0])
    else:
        plots = replay_arms(Path(first))
    columns = len(plots) // max(len(others), 1) if args.kind == "grad-report" else len(plots)
    save(plots, args.picture, columns, wide=True)


if __name__ == "__main__":
    main()
