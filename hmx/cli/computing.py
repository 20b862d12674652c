"""What `hmx compute-config` does with its options, and the forms its answer takes."""

from __future__ import annotations

import csv as csvlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hmx.cli import compute_tables
from hmx.cli.boundary import print_json, say
from hmx.errors import ExitCode, HmxError
from hmx.reports.quantities import memory_size, speeds, whole
from hmx.reports.sizes import job
from hmx.reports.sizes.job import Asks, ComputeResult, Source
from hmx.sizing.batch import FORMULAS, INPUT_FIELDS, BatchProblem

_APART = {
    "--fix": ("--sweep", "--json", "--csv", "--explain"),
    "--csv": ("--json", "--explain"),
    "--explain": ("--json", "--sweep"),
}
_UNREADABLE = {"E_NOT_INT", "E_NOT_POSITIVE", "E_TOO_LARGE", "E_UNKNOWN_FIELD"}


def refuse_together(given: Mapping[str, bool]) -> None:
    """Refuses options that ask for different forms of the answer.

    Raises:
        HmxError: two such options.
    """
    for one, others in _APART.items():
        for other in others:
            if given[one] and given[other]:
                raise HmxError(f"{one} and {other} ask for different answers", "give one of the two")


def options(given: Mapping[str, str | None], forward_target: str | None = None) -> dict[str, Any]:
    """The inputs that were given, whole numbers where they are.

    Args:
        given: text by input.
        forward_target: the text of `forward_pass_minibatch_target_size` under its short name.

    Raises:
        HmxError: that input under both names.
    """
    name = "forward_pass_minibatch_target_size"
    if forward_target is not None and given[name] is not None:
        raise HmxError(f"--forward-target and --{name.replace('_', '-')} are the same input", "give one of the two")
    texts = {**given, name: given[name] if forward_target is None else forward_target}
    return {name: whole(text) for name, text in texts.items() if text is not None}


def asks(sps: Iterable[str], gpu_mem: str | None, parameters: str | None) -> Asks:
    """What else is to be answered.

    Raises:
        HmxError: a speed, a size or a number of parameters that is none.
    """
    number = None if parameters is None else whole(parameters)
    if number is not None and (not isinstance(number, int) or number < 1):
        raise HmxError(f"--parameters {parameters}: must be a whole number from 1", "--parameters 1_000_000")
    return Asks(speeds(sps), None if gpu_mem is None else memory_size(gpu_mem), number)


def source(preset: str | None, config: Path | None, run: Path | None) -> Source:
    """Where the inputs start from; see `hmx.reports.sizes.source.read_source`."""
    return job.read_source(preset, config, run)


def print_one(source: Source, given: Mapping[str, Any], asked: Asks, *, explain: bool, csv: bool, json: bool) -> None:
    """One configuration as tables, comma-separated values or JSON; what is wrong or worth knowing on stderr.

    Raises:
        HmxError: it has problems; all of them are named.
    """
    found = job.compute_config(source, given, asked)
    if json:
        print_json(found.to_json())
    if not found.valid:
        raise refusal(found)
    if csv:
        _write_csv(("group", "name", "value", "unit"), _rows(found))
    elif not json:
        compute_tables.show(found, explain)
    _tell(found.warnings)


def print_sweep(source: Source, text: str, given: Mapping[str, Any], asked: Asks, *, csv: bool, json: bool) -> None:
    """One column for each value of an input; refused values are columns too.

    Raises:
        HmxError: no such input, or no values.
    """
    field, _, values = text.partition("=")
    field = field.strip().removeprefix("--").replace("-", "_")
    listed = [whole(part) for part in values.split(",")] if values.strip() else []
    found = job.sweep(source, field, listed, given, asked)
    if json:
        print_json([result.to_json() for result in found])
    elif csv:
        names = list(dict.fromkeys(name for result in found for name in result.derived or ()))
        _write_csv(
            [*INPUT_FIELDS, "valid", "errors", "warnings", *_ordered(names)], _sweep_rows(found, _ordered(names))
        )
    else:
        compute_tables.show_sweep(field, found)


def print_fixed(source: Source, given: Mapping[str, Any]) -> None:
    """The nearest valid configuration, as the TOML that `hmx train --config` takes."""
    sys.stdout.write(job.fix(source, given).to_toml())


def refusal(found: ComputeResult) -> HmxError:
    """All problems as one error, with the values that repair them."""
    lines = [f"{p.code}: {p.message}{_ways(p) if p.code in _UNREADABLE else ''}" for p in found.errors]
    if found.suggestions:
        ways = ", ".join(compute_tables.as_option(*pair) for pair in found.suggestions)
        lines.append(f"{'any one of these' if len(found.suggestions) > 1 else 'this'} repairs it: {ways}")
    number = len(found.errors)
    text = "\n  ".join([f"{number} problems", *lines] if number > 1 else lines)
    if _UNREADABLE.intersection(p.code for p in found.errors):
        hint = "sizes are whole numbers from 1 to 2^53 - 1, such as 524_288"
    elif found.only_sizes:
        hint = "the same command with --fix prints the nearest configuration that works"
    else:
        hint = "set these in the configuration; `hmx train --set` changes them for one run"
    return HmxError(text, hint, ExitCode.USAGE)


def _ways(problem: BatchProblem) -> str:
    ways = " or ".join(compute_tables.as_option(*pair) for pair in problem.fixes)
    return f"; try {ways}" if ways else ""


def _tell(warnings: Sequence[BatchProblem]) -> None:
    for warning in warnings:
        say("warning", f"{warning.code}: {warning.message}{_ways(warning)}")


def _ordered(names: Iterable[str]) -> list[str]:
    known = list(FORMULAS)
    return sorted(names, key=known.index)


def _rows(found: ComputeResult) -> Iterable[tuple[Any, ...]]:
    for name, value in found.inputs.items():
        yield "inputs", name, value, INPUT_FIELDS[name].unit
    for name in _ordered(found.derived or ()):
        yield FORMULAS[name].group, name, (found.derived or {})[name], FORMULAS[name].unit
    if found.memory:
        for part in found.memory.parts:
            yield "memory estimate", part.key, part.bytes, "bytes"
        yield "memory estimate", "total_bytes", found.memory.total, "bytes"


def _sweep_rows(results: Iterable[ComputeResult], names: Sequence[str]) -> Iterable[list[Any]]:
    for found in results:
        codes = (" ".join(p.code for p in problems) for problems in (found.errors, found.warnings))
        derived = found.derived or {}
        yield [
            *(found.inputs[name] for name in INPUT_FIELDS),
            found.valid,
            *codes,
            *(derived.get(name) for name in names),
        ]


def _write_csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csvlib.writer(sys.stdout, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
