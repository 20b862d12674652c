"""`hmx compare`."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hmx.cli import completion
from hmx.cli.boundary import check_reports, print_json, write_report
from hmx.cli.options import MAX_SEED, OUTPUT_PANEL, Json, ask, switch
from hmx.config.textfile import quoted
from hmx.errors import HmxError

if TYPE_CHECKING:
    from hmx.reports.compare.scores import Window

_MEASURE, _CHECK = "Measure", "Check"
STDOUT = Path("-")

Sides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SIDE",
        help="Two or more: a run, a folder of runs, a metrics file, a configuration, a preset; NAME=PATH,PATH joins.",
        show_default=False,
        autocompletion=completion.sides,
    ),
]
Metric = Annotated[
    str,
    ask(
        "--metric",
        "NAME",
        "What is compared: a metric of the runs, or evaluation, the return of the evaluation that ended each.",
        _MEASURE,
        autocompletion=completion.metrics,
    ),
]
Last = Annotated[str, ask("--last", "PART", "What counts as the end: a share, as 10%, or steps, as 20_000.", _MEASURE)]
Threshold = Annotated[
    list[str] | None,
    ask("--threshold", "[ENV=]X,...", "Values whose first time is told; may be repeated.", _MEASURE),
]
Range = Annotated[
    list[str] | None,
    ask("--range", "ENV=LOW:HIGH", "What counts as 0 and 1 where tasks are put together; may be repeated.", _MEASURE),
]
OwnEnd = Annotated[
    bool, switch("--own-end", "Take each run at its own end, not where the shortest one ends.", _MEASURE)
]
Samples = Annotated[int, ask("--samples", "N", "Redraws of the bootstrap.", _MEASURE, min=1)]
Seed = Annotated[int, ask("--seed", "N", "Seed of the redraws.", _MEASURE, min=0, max=MAX_SEED)]
Impl = Annotated[
    bool, switch("--impl", "Put one batch through the loss of every side, term by term; takes a minute.", _MEASURE)
]
FailIf = Annotated[
    list[str] | None,
    ask("--fail-if", "EXPR", 'End with exit code 4 if it holds, as "P(A>B) < 0.4"; may be repeated.', _CHECK),
]
Html = Annotated[Path | None, ask("--html", "FILE", "Write a page with learning curves.", OUTPUT_PANEL)]
Markdown = Annotated[Path | None, ask("--md", "FILE", "Write the report as Markdown; - prints it.", OUTPUT_PANEL)]
Csv = Annotated[Path | None, ask("--csv", "FILE", "Write a table of all figures; - prints it.", OUTPUT_PANEL)]


def compare(
    sides: Sides = None,
    metric: Metric = "train/mean_episode_return",
    last: Last = "10%",
    threshold: Threshold = None,
    ranges_: Range = None,
    own_end: OwnEnd = False,
    samples: Samples = 10_000,
    seed: Seed = 0,
    impl: Impl = False,
    fail_if: FailIf = None,
    html: Html = None,
    md: Markdown = None,
    csv: Csv = None,
    json: Json = False,
) -> None:
    """Say how runs differ, and which is better if that can be said.

    Tells whether the sides may be compared, where their configurations differ, what each reached on every task with
    intervals over seeds, and how fast. Only reads.
    """
    from rich.console import Console

    from hmx.cli import compare_html, compare_text
    from hmx.reports.compare.conditions import failure
    from hmx.reports.compare.job import compare as job
    from hmx.reports.compare.tasks import Spec

    spec = Spec(
        metric=metric, last=window(last), thresholds=tuple(thresholds(threshold or ())), own_end=own_end,
        ranges=tuple(ranges(ranges_ or ())), samples=samples, seed=seed,
    )  # fmt: skip
    _one_answer(json, md, csv)
    check_reports(html, md, csv)
    eyes = Console(stderr=True)
    with eyes.status("compiling and computing") if impl and eyes.is_terminal else contextlib.nullcontext():
        result = job(sides or (), spec=spec, fail_if=fail_if or (), impl=impl)
    found = result.to_json()
    printed = False
    for file, text in ((html, compare_html.page), (md, compare_text.markdown), (csv, compare_text.table)):
        printed |= _write(file, found, text)
    if json:
        print_json(found)
    elif not printed:
        _show(found)
    if result.failed:
        raise failure(list(result.failed))


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console

    from hmx.cli.compare_text import render

    console = Console(highlight=False)
    console.print(render(found, console.options.ascii_only))


def _one_answer(json: bool, md: Path | None, csv: Path | None) -> None:
    if [json, md == STDOUT, csv == STDOUT].count(True) > 1:
        raise HmxError("only one of --json, --md - and --csv - can be printed", "write the others to files")


def _write(file: Path | None, found: dict[str, Any], text: Callable[[dict[str, Any]], str]) -> bool:
    """Whether it was printed rather than written to a file, or not asked for."""
    if file == STDOUT:
        sys.stdout.write(text(found))
        return True
    if file is not None:
        write_report(file, text(found))
    return False


def window(text: str) -> Window:
    """How far back the end goes, from `10%` or a number of steps.

    Raises:
        HmxError: neither, or nothing.
    """
    from hmx.reports.compare.scores import Window

    value = _number(text.strip().removesuffix("%"))
    if text.strip().endswith("%") and value is not None and 0 < value <= 100:
        return Window(share=value / 100)
    if not text.strip().endswith("%") and value is not None and 1 <= value <= 2**53 and value == int(value):
        return Window(steps=int(value))
    raise HmxError(
        f"--last {quoted(text) or repr(text)}: must be a share or a number of steps", "--last 10% or --last 20_000"
    )


def thresholds(texts: list[str] | tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Environment ("" for all) and value of each threshold.

    Raises:
        HmxError: something that is no number.
    """
    for text in texts:
        env = ""
        for part in text.split(","):
            name, equals, number = part.rpartition("=")
            env = name.strip() if equals else env
            value = _number(number)
            if value is None:
                words = f"--threshold {quoted(text) or repr(text)}: must be numbers"
                raise HmxError(words, "--threshold 0.8,0.9 or --threshold corridor=0.8")
            yield env, value


def ranges(texts: list[str] | tuple[str, ...]) -> Iterator[tuple[str, float, float]]:
    """Environment, what counts as 0 and what as 1.

    Raises:
        HmxError: something else, or both are equal.
    """
    for text in texts:
        parts = re.fullmatch(r"([^=]+)=([^:]+):([^:]+)", text)
        low, high = (_number(parts[2]), _number(parts[3])) if parts else (None, None)
        if parts is None or low is None or high is None or low == high:
            given = quoted(text) or repr(text)
            raise HmxError(f"--range {given}: must be an environment and two numbers", "--range corridor=-1:0.93")
        yield parts[1].strip(), low, high


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
