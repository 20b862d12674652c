"""The options that a study varies: `KEY=LOW..HIGH`, `KEY=LOW..HIGH:log` and `KEY=A|B|C`.

The types, ranges and rules of the options decide what is allowed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from hmx.config import codec
from hmx.config.coerce import BadValue, check_range, coerce, show, typed_number
from hmx.config.fields import FIELDS, is_own, replace
from hmx.config.problem import UNKNOWN, Problem, error
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest
from hmx.records.plain import JsonValue, plain
from hmx.registry.check import error_of, known_problems
from hmx.study.records import CONFIG_KEY, Confirmation, Parameter, Study, Trial

SPACE = "--space"
OWNED: Mapping[str, str] = {
    "run.name": "the number of the trial",
    "run.root": "the study folder",
    "run.seed": "the same in all trials",
    "run.num_seeds": "set by --seeds",
    "run.devices": "set when a worker starts",
}
"""Keys that a study cannot vary, and what decides them instead."""

NumberKind = Literal["float", "int"]
_NUMERIC: Mapping[str, NumberKind] = {"float": "float", "int": "int"}


def parse_space(texts: Iterable[str]) -> tuple[Parameter, ...]:
    """Read the texts of `--space`.

    Raises:
        HmxError: lists every unknown key, and every value that its option does not take.
    """
    parameters: dict[str, Parameter] = {}
    problems: list[Problem] = []
    for text in texts:
        key, equals, values = text.partition("=")
        key = codec.current(key.strip())[0]
        problem: Problem | None = None
        if not equals or not key:
            problem = Problem("syntax", (), f"{SPACE} {quoted(text)}: expected KEY=LOW..HIGH or KEY=A|B|C")
        elif key in OWNED:
            problem = Problem("owned", (key,), f"a study cannot vary it: it is {OWNED[key]}", (), values, SPACE)
        elif key in parameters:
            problem = Problem("twice", (key,), f"{SPACE} names it twice", (), values, SPACE)
        elif key not in FIELDS and not is_own(key):
            near = nearest(key, FIELDS)
            message = f"unknown key; did you mean {near}?" if near else "unknown key"
            problem = Problem(UNKNOWN, (key,), message, (), values, SPACE)
        else:
            try:
                parameters[key] = _parameter(key, values.strip())
            except BadValue as bad:
                problem = Problem("value", (key,), bad.message, (), values, SPACE)
        problems += [problem] if problem else []
    if problems:
        failure, (key, *_) = error(problems), (*problems[0].keys, key)
        given = problems[0].value if problems[0].code in (UNKNOWN, "value") else ""
        raise HmxError(failure.message, failure.hint if len(problems) > 1 else example(key, given))
    return tuple(parameters.values())


def example(key: str, given: str = "") -> str:
    """Return a `--space` that works, of an option or of the one with the nearest name, and like the `given` values."""
    if key not in FIELDS or key in OWNED:
        key = nearest(key, FIELDS.keys() - OWNED.keys()) or "algo.learning_rate"
    for meant in _meant(key, given):
        with contextlib.suppress(BadValue):
            _parameter(key, meant)
            return f"{SPACE} {shlex.quote(f'{key}={meant}')}"
    field, values = FIELDS[key], "A|B|C"
    if field.choices or field.kind == "bool":
        values = "|".join(show(choice) for choice in field.choices[:2] or (False, True))
    elif field.kind in _NUMERIC and field.default:
        low, high = sorted((field.default / 2, 2 * field.default))
        low, high = max(low, low if field.ge is None else field.ge), min(high, high if field.le is None else field.le)
        values = f"{math.ceil(low)}..{high:.0f}" if field.kind == "int" else f"{low:g}..{high:g}"
    return f"{SPACE} {shlex.quote(f'{key}={values}')}"


def _meant(key: str, given: str) -> Iterator[str]:
    """Yield what may have been meant by a range: its ends in order, within the limits of the option, no logarithm."""
    yield given
    first, _, rest = given.partition("..")
    last, colon, scale = rest.partition(":")
    ends = [typed_number(first.strip()), typed_number(last.strip())]
    low, high = (None if isinstance(end, str) else end for end in ends)
    if low is None or high is None:
        return
    yield f"{last}..{first}{colon}{scale}"
    least, most = FIELDS[key].ge, FIELDS[key].le
    low, high = low if least is None else max(low, least), high if most is None else min(high, most)
    yield f"{low:g}..{high:g}{colon}{scale}"
    yield f"{low:g}..{high:g}"


def text_of(parameter: Parameter) -> str:
    """Write the values of a parameter as `parse_space` reads them."""
    if parameter.kind == "choice":
        return "|".join(show(_listed(choice)) for choice in parameter.choices)
    return f"{parameter.low!r}..{parameter.high!r}{':log' if parameter.log else ''}"


def space_texts(space: Mapping[str, str | Sequence[object]]) -> list[str]:
    """Write a space as `parse_space` reads it: a text stays as it is, and a list becomes choices."""
    choices = {key: value for key, value in space.items() if not isinstance(value, str)}
    listed = {key: "|".join(show(_listed(plain(choice))) for choice in value) for key, value in choices.items()}
    return [f"{key}={listed.get(key, value)}" for key, value in space.items()]


def value_at(parameter: Parameter, u: float) -> JsonValue:
    """Return the value at a place in [0, 1): a uniform `u` gives a uniform value, or a log-uniform one."""
    if parameter.kind == "choice":
        return parameter.choices[int(u * len(parameter.choices))]
    assert parameter.low is not None and parameter.high is not None
    low, high = parameter.low, parameter.high
    if parameter.kind == "int":  # each whole number has an interval of its own around it
        low, high = low - 0.5, high + 0.5
    value = low * (high / low) ** u if parameter.log else low + u * (high - low)
    value = round(value) if parameter.kind == "int" else float(f"{value:.6g}")
    return min(max(value, parameter.low), parameter.high)


def grid(space: Sequence[Parameter]) -> Iterator[dict[str, JsonValue]]:
    """Yield every combination of the choices; the last key varies fastest."""
    for values in itertools.product(*(parameter.choices for parameter in space)):
        yield {parameter.key: value for parameter, value in zip(space, values, strict=True)}


def with_values(configs: Mapping[str, Config], values: Mapping[str, JsonValue]) -> Config:
    """Return the configuration of a trial: one of `configs` with its values.

    Raises:
        HmxError: lists every value that its option does not take.
    """
    base = configs[str(values[CONFIG_KEY])] if CONFIG_KEY in values else next(iter(configs.values()))
    own = {key: value for key, value in values.items() if key != CONFIG_KEY}
    resolved, problems = codec.resolve(own)
    if problems:
        raise error(problems)
    return replace(base, resolved)


def config_of(study: Study, run: Trial | Confirmation) -> Config:
    """Return the configuration of a run; errors as of `with_values`."""
    config = with_values(study.configs, study.by_number[run.number].values)
    if isinstance(run, Confirmation):
        config = replace(config, {"run.seed": run.seeds[0], "run.num_seeds": len(run.seeds)})
    return config


def check_space(space: Sequence[Parameter], configs: Mapping[str, Config]) -> None:
    """Check the ends of every range and every choice, alone, on every configuration.

    A rule that involves another key of the space is left to the trials, since the other value may satisfy it.

    Raises:
        HmxError: the problems of the first value that no trial could have.
    """
    varied = {parameter.key for parameter in space}
    for parameter, cfg in ends(space, configs):
        alone = [p for p in known_problems(cfg) if not _involves_others(p.keys, varied, parameter.key)]
        if alone:
            raise error_of(alone, codec.flatten(codec.to_dict(cfg)), {parameter.key: SPACE})


def ends(space: Sequence[Parameter], configs: Mapping[str, Config]) -> Iterator[tuple[Parameter, Config]]:
    """Yield each configuration with each end of a range or choice, alone."""
    for base in configs.values():
        for parameter in space:
            values = (parameter.low, parameter.high) if parameter.kind != "choice" else parameter.choices
            for value in values if parameter.key != CONFIG_KEY else ():
                yield parameter, with_values({"": base}, {parameter.key: plain(value)})


def _involves_others(keys: Iterable[str], varied: set[str], key: str) -> bool:
    """Return whether a problem involves another key that the study varies."""
    return bool((varied - {key}).intersection(keys))


def _parameter(key: str, text: str) -> Parameter:
    low, dots, high = text.partition("..")
    numeric = _NUMERIC.get(FIELDS[key].kind) if key in FIELDS else _kind_of_own(low, high)
    if dots and "|" not in text and numeric:
        return _range(key, numeric, low, high)
    if dots and "|" not in text and key in FIELDS and FIELDS[key].kind != "str":
        raise BadValue(f"has no range; list its values: {key}=A|B", None)
    choices = [_value(key, choice) for choice in text.split("|")]
    if len(choices) < 2:
        raise BadValue(f"a choice needs two values; --set {key}={text} sets it in all trials", None)
    if len({show(_listed(choice)) for choice in choices}) < len(choices):
        raise BadValue("lists a value twice", None)
    return Parameter(key=key, kind="choice", choices=tuple(choices))


def _range(key: str, kind: NumberKind, first: str, rest: str) -> Parameter:
    last, colon, scale = rest.partition(":")
    if colon and scale != "log":
        raise BadValue(f"unknown scale {quoted(scale)}: a range is linear, or logarithmic with :log", None)
    low, high = _value(key, first), _value(key, last)
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        raise BadValue("the ends of a range must be numbers", None)
    if not low < high:
        raise BadValue("the low end must come first", None)
    if colon and low <= 0:
        raise BadValue("a logarithmic range must begin above 0", None)
    return Parameter(key=key, kind=kind, low=low, high=high, log=bool(colon))


def _kind_of_own(low: str, high: str) -> NumberKind | None:
    """Return the type of a user's option by the ends of its range; None if they are not numbers."""
    ends = [typed_number(low), typed_number(high.partition(":")[0])]
    if any(isinstance(end, str) for end in ends):
        return None
    return "int" if all(isinstance(end, int) for end in ends) else "float"


def _value(key: str, text: str) -> JsonValue:
    """Return the value of an option that a text stands for, as JSON."""
    text = text.strip()
    if key not in FIELDS:
        return {"true": True, "false": False}.get(text, typed_number(text))
    field = FIELDS[key]
    value: Any = coerce(field, text, text=True)
    try:
        check_range(field, value)
    except BadValue as bad:
        raise BadValue(f"{text} {bad.message}", bad.works) from None
    return plain(value)


def _listed(value: JsonValue) -> object:
    """Return a list as a tuple, which `show` writes without brackets."""
    return tuple(value) if isinstance(value, list) else value
