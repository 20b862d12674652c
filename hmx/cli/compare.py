"""`hmx compare`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import argument, ask, with_options
from hmx.cli.output import Outputs, write_outputs
from hmx.config.coerce import typed_number
from hmx.config.textfile import quoted
from hmx.errors import HmxError
from hmx.reports.compare.request import MEASURE_PANEL, CompareOptions, CompareRequest, Window

_LARGEST = 1e100  # of the values that runs report

Sides = Annotated[
    list[str] | None,
    argument(
        "SIDE",
        "Two or more: a run, a folder of runs, a metrics file, a configuration or a preset. NAME=PATH,PATH names "
        "a side and joins runs.",
        completion.sides,
    ),
]
Metric = Annotated[
    str,
    ask(
        "--metric",
        "NAME",
        "Metric to compare, or evaluation for the return in the evaluation at the end of each run.",
        MEASURE_PANEL,
        autocompletion=completion.metrics,
    ),
]
Last = Annotated[
    str, ask("--last", "PART", "Final part of each run to average: a share (10%) or a number of steps.", MEASURE_PANEL)
]
Threshold = Annotated[
    list[str] | None,
    ask("--threshold", "[ENV=]X,...", "Report when each threshold is first reached (repeatable).", MEASURE_PANEL),
]
Range = Annotated[
    list[str] | None,
    ask("--range", "ENV=LOW:HIGH", "Values that count as 0 and 1 when tasks are combined (repeatable).", MEASURE_PANEL),
]
FailIf = Annotated[
    list[str] | None,
    ask("--fail-if", "EXPR", 'Exit with code 4 if a condition such as "P(A>B) < 0.4" holds (repeatable).', "Check"),
]


@with_options()
def compare(
    sides: Sides = None,
    metric: Metric = CompareRequest.metric,
    last: Last = f"{CompareRequest.last.share:.0%}",
    threshold: Threshold = None,
    ranges_: Range = None,
    *,
    options: CompareOptions,
    fail_if: FailIf = None,
    outputs: Outputs,
) -> None:
    """Compare runs: how they differ, and which is better.

    Reports the verdict, where the configurations differ, the results on every environment with intervals over seeds,
    and speed. Changes nothing.

    Example: hmx compare runs/one runs/another --html comparison.html
    """
    from hmx.console.progress import status

    request = CompareRequest(
        **vars(options), sides=tuple(sides or ()), metric=metric, last=window(last),
        thresholds=tuple(thresholds(threshold or ())), ranges=tuple(ranges(ranges_ or ())),
        fail_if=tuple(fail_if or ()),
    )  # fmt: skip
    outputs.check()

    from hmx.reports.compare.conditions import failure
    from hmx.reports.compare.document import document
    from hmx.reports.compare.job import compare as job
    from hmx.reports.compare.numbers import table

    with status("compiling and computing") if request.impl else contextlib.nullcontext():
        findings = job(request)
    write_outputs(findings, document(findings), table(findings), outputs)
    if findings.failed:
        raise failure(findings.failed)


def window(text: str) -> Window:
    """Return the final part of a run from `10%` or a number of steps."""
    value = _number(text.strip().removesuffix("%"))
    if text.strip().endswith("%") and value is not None and 0 < value <= 100:
        return Window(share=value / 100)
    if not text.strip().endswith("%") and value is not None and 1 <= value <= 2**53 and value == int(value):
        return Window(steps=int(value))
    raise HmxError(f"--last {_given(text)}: expected a share or a number of steps", "--last 10% or --last 20_000")


def thresholds(texts: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield environment ("" for all) and value of each threshold."""
    for text in texts:
        env = ""
        for part in text.split(","):
            name, equals, number = part.rpartition("=")
            env = name.strip() if equals else env
            value = _number(number)
            if value is None:
                hint = "--threshold 0.8,0.9 or --threshold corridor=0.8"
                raise HmxError(f"--threshold {_given(text)}: expected numbers", hint)
            yield env, value


def ranges(texts: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """Yield environment, the value that counts as 0 and the one that counts as 1."""
    for text in texts:
        parts = re.fullmatch(r"([^=]+)=([^:]+):([^:]+)", text)
        low, high = (_number(parts[2]), _number(parts[3])) if parts else (None, None)
        if parts is None or low is None or high is None or low == high:
            hint = "--range corridor=-1:0.93"
            raise HmxError(f"--range {_given(text)}: expected an environment and two different numbers", hint)
        yield parts[1].strip(), low, high


def _given(text: str) -> str:
    return quoted(text) or repr(text)


def _number(text: str) -> float | None:
    value = typed_number(text)
    return None if isinstance(value, str) or abs(value) > _LARGEST else float(value)
