"""Options that the user's code declares as a dataclass: `env.my.NAME`, `net.my.NAME` and `algo.my.NAME`.

The configuration stores them unchecked until the code may run; `read_options` then checks them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from hmx.config.coerce import BadValue, check_range, coerce, fitting, show
from hmx.config.fields import own_fields, own_key
from hmx.config.problem import UNKNOWN, Problem, error, fix
from hmx.config.schema import OwnOptions
from hmx.errors import HmxError, nearest

DATACLASS, PARAMETER = "Options", "options"
"""Names of the user's dataclass and of the parameter that gets an instance of it."""

Options = Any  # an instance of a dataclass of the user


def declared(function: Callable[..., Any]) -> type[Any] | None:
    """Return the dataclass of a function's parameter `options`: its annotation, or `Options` of its module.

    None for a function without this parameter.
    """
    parameter = inspect.signature(function).parameters.get(PARAMETER)
    if parameter is None:
        return None
    names = getattr(function, "__globals__", None) or vars(sys.modules[function.__module__])
    kind = parameter.annotation
    kind = names.get(kind) if isinstance(kind, str) else kind
    named = isinstance(kind, type) and kind is not inspect.Parameter.empty
    return kind if named else names.get(DATACLASS)


def read_options(kind: type[Any] | None, section: str, owner: str, what: str, given: OwnOptions) -> Options | None:
    """Return an instance of the user's dataclass with the values `given` in the configuration, all of them checked.

    Args:
        kind: the dataclass; None if the code declares no options.
        section: of the configuration.
        owner: the value that names the code, such as `./game.py`.
        what: the loaded object, for error messages, such as `environment ./game.py`.
        given: the values.

    Raises:
        HmxError: it is not a dataclass of options, or values are unknown or wrong, all of them named.
    """
    if kind is None:
        known = {}
    elif not dataclasses.is_dataclass(kind):
        words = f"cannot load {what}: {kind.__name__} is not a dataclass"
        raise HmxError(words, "write @dataclass(frozen=True) above it")
    else:
        try:
            known = own_fields(kind, section)
        except (ValueError, NameError) as problem:
            raise HmxError(f"cannot load {what}: {problem}", "write for example: size: int = 5") from None
    values, problems = {}, []
    for name, value in given:
        key = own_key(section, name)
        if name not in known:
            near = nearest(name, known)
            words = f"{owner} has no such option; it has {', '.join(known) or 'none'}"
            works = fix(own_key(section, near), fitting(known[near], show(value))) if near else ()
            problems.append(Problem(UNKNOWN, (key,), words, works, show(value)))
            continue
        try:
            values[name] = coerce(known[name], value, text=True)
            check_range(known[name], values[name])
        except BadValue as bad:
            problems.append(Problem("value", (key,), bad.message, fix(key, bad.works), show(value) or '""'))
    if problems:
        raise error(problems)
    return None if kind is None else kind(**values)


def pairs(options: Options | None) -> OwnOptions:
    """Return every option with its value, as the configuration stores them."""
    return tuple(sorted(vars(options).items())) if options is not None else ()


def with_options(function: Callable[..., Any], options: Options | None) -> Callable[..., Any]:
    """Return the function with its parameter `options` set, if it has one."""
    if options is not None and PARAMETER in inspect.signature(function).parameters:
        return functools.partial(function, **{PARAMETER: options})
    return function
