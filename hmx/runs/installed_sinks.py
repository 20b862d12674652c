"""Sinks that installed packages add by name, through entry points of the group `hmx.sinks`."""

from __future__ import annotations

from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest
from hmx.registry.user_code import GROUPS, WHAT, explaining, file_of, find, registered
from hmx.runs.sinks import Sink

_KEY = "run.sink"


def installed_sinks(names: str) -> list[Sink]:
    """Build the sinks of comma-separated names; each entry point is a class or function without parameters.

    Raises:
        HmxError: there is no such sink, its package cannot be imported, or it builds no `Sink` (exit code 2).
    """
    return [_build(name) for name in dict.fromkeys(map(str.strip, names.split(","))) if name]


def _build(name: str) -> Sink:
    known = [point.name for point in registered(_KEY)]
    if name not in known:
        near = nearest(name, known)
        without = f"packages add sinks as entry points of {GROUPS[_KEY]}; --sink '' uses none"
        hint = f"did you mean --sink {near}?" if near else without
        there = f"; installed: {', '.join(map(quoted, known))}" if known else ""
        raise HmxError(f"cannot use the sink {quoted(name)}: no installed package adds it{there}", hint)
    make = find(name, _KEY)
    with explaining(file_of(make), f"cannot build {WHAT[_KEY]} {quoted(name)}"):
        sink = make()
    if not isinstance(sink, Sink):
        message = f"cannot use the sink {quoted(name)}: it builds {type(sink).__name__}"
        raise HmxError(message, "its entry point must return an hmx.runs.sinks.Sink")
    sink.required, sink.prints = False, False
    sink.name = quoted(name)
    return sink
