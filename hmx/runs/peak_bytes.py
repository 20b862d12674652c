"""Estimate the bytes that a program holds at once, from its trace: nothing is compiled.

The compiler fuses operations on single elements into whatever reads their result, so their results take no memory
unless something needs them as a whole: a matrix product, a loop, a sort, or the end of the program. Results that exist
are held from the operation that writes them to the last that reads them. Loops and updates of slices write in place.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr

_LOOPS = frozenset({"scan", "while", "cond"})
_UPDATES = frozenset({"dynamic_update_slice", "sort", *(f"scatter{kind}" for kind in ("", "-add", "_add", "_mul"))})
# What reads and writes whole arrays. Everything else is fused, reductions with what they read.
_WHOLE = (
    _LOOPS
    | _UPDATES
    | {"dot_general", "conv_general_dilated", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "top_k"}
    | {"random_bits", "threefry2x32", "rng_bit_generator", "pure_callback", "optimization_barrier"}
)
_REDUCTIONS = ("reduce_", "arg")  # first letters
_LOOKUPS = frozenset({"gather", "dynamic_slice"})  # read a whole array, and are fused
_COSTLY = frozenset({"exp", "expm1", "log", "log1p", "tanh", "logistic", "pow", "erf", "sin", "cos", "sqrt", "rsqrt"})
_VIEWS = frozenset(
    {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "transpose", "bitcast_convert_type"}
)


class _Buffer:
    """An array of the program; compared by identity."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class _Step(NamedTuple):
    name: str
    reads: list[_Buffer]
    writes: list[_Buffer]
    params: dict[str, Any]

    @property
    def is_whole(self) -> bool:
        return self.name in _WHOLE

    @property
    def is_reduction(self) -> bool:
        return self.name.startswith(_REDUCTIONS)


def peak_bytes(program: ClosedJaxpr, first: int = 0, number: int = 0) -> int:
    """Return the largest number of bytes held at once, without the arguments.

    `number` arguments from `first` may be overwritten.
    """
    from jax.interpreters.partial_eval import dce_jaxpr  # not promised by JAX: only an estimate may fail without it

    jaxpr, _ = dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars), instantiate=True)
    arguments = [_Buffer(_size(variable)) for variable in jaxpr.invars]
    constants = [_Buffer(_size(variable)) for variable in jaxpr.constvars]
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))
    steps: list[_Step] = []
    results = [buffer for buffer in _flatten(jaxpr, known, steps) if buffer is not None]
    outside = {*constants, *arguments}
    kept = outside - set(arguments[first : first + number])  # never overwritten, never freed
    exist = outside | set(results) | _needed_whole(steps)
    reads = _reads_of(steps, exist)
    last = {buffer: i for i, step in enumerate(steps) if exist.intersection(step.writes) for buffer in reads[i]}
    last |= dict.fromkeys(results, len(steps))
    held = dict.fromkeys(outside, 0)
    now = peak = 0
    for i, step in enumerate(steps):
        written = [buffer for buffer in step.writes if buffer in exist]
        if not written:
            continue
        freed = [buffer for buffer in reads[i] if last[buffer] == i and buffer not in kept]
        in_place = step.name in _LOOPS | _UPDATES or not (step.is_whole or step.is_reduction)
        for buffer in written:
            place = next((old for old in freed if old.size == buffer.size), None) if in_place else None
            if place is None:
                held[buffer] = buffer.size
                now += buffer.size
            else:
                freed.remove(place)
                held[buffer] = held.pop(place, 0)
        peak = max(peak, now + _inside(step))
        now -= sum(held.pop(buffer, 0) for buffer in freed)  # constants were never counted
        now -= sum(held.pop(buffer) for buffer in written if buffer not in last)
    return peak


def _inside(step: _Step) -> int:
    """Return the bytes that a step holds while it runs, apart from what it reads and writes."""
    params, written = step.params, sum(buffer.size for buffer in step.writes)
    match step.name:
        case "scan":
            return peak_bytes(params["jaxpr"], *carry_of(params))
        case "while":
            return peak_bytes(params["body_jaxpr"], params["body_nconsts"], len(step.writes))
        case "cond":
            return max(max(peak_bytes(branch, 0, len(step.reads)) - written, 0) for branch in params["branches"])
        case "random_bits":  # the counters that they are computed from
            return written
        case _:
            return 0


def carry_of(params: dict[str, Any]) -> tuple[int, int]:
    """Return the first argument that a scan carries, and how many it carries."""
    if "ft_in" in params:  # JAX 0.11
        constants, carry, _ = params["ft_in"].unpack()
        return len(constants), len(carry)
    return params["num_consts"], params["num_carry"]


def _flatten(jaxpr: Jaxpr, known: dict[Any, _Buffer], steps: list[_Step]) -> list[_Buffer | None]:
    """Append the steps of a program, those of the functions that it calls included; return its results."""
    from jax.extend.core import ClosedJaxpr, Literal

    def read(atom: Any) -> _Buffer | None:
        return None if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        operands = [read(atom) for atom in equation.invars]
        called = None if name in _LOOPS else params.get("jaxpr", params.get("call_jaxpr"))
        if called is not None:
            inner = called.jaxpr if isinstance(called, ClosedJaxpr) else called
            names = {variable: _Buffer(_size(variable)) for variable in inner.constvars}
            names |= {variable: old or _Buffer(0) for variable, old in zip(inner.invars, operands, strict=True)}
            returned = [buffer or _Buffer(0) for buffer in _flatten(inner, names, steps)]
        elif name in _VIEWS and operands[0] is not None and operands[0].size == _size(equation.outvars[0]):
            returned = [operands[0]]
        else:
            returned = [_Buffer(_size(variable)) for variable in equation.outvars]
            steps.append(_Step(name, [buffer for buffer in operands if buffer is not None], returned, params))
        known |= zip(equation.outvars, returned, strict=True)
    return [read(atom) for atom in jaxpr.outvars]


def _needed_whole(steps: list[_Step]) -> set[_Buffer]:
    """Return the buffers that are not fused away."""
    readers = Counter(buffer for step in steps for buffer in step.reads)
    found: set[_Buffer] = set()
    for step in steps:
        if step.is_whole or step.is_reduction:
            found.update(step.writes)
        if step.is_whole:
            found.update(step.reads)
        elif step.name in _LOOKUPS:
            found.update(step.reads[:1])
        elif step.name in _COSTLY:  # not computed twice
            found.update(buffer for buffer in step.writes if readers[buffer] > 1)
    return found


def _reads_of(steps: list[_Step], exist: set[_Buffer]) -> list[tuple[_Buffer, ...]]:
    """Return the buffers that each step reads, directly or through what is fused into it."""
    behind: dict[_Buffer, tuple[_Buffer, ...]] = {}
    found = []
    for step in steps:
        sources = dict.fromkeys(
            source for buffer in step.reads for source in ((buffer,) if buffer in exist else behind.get(buffer, ()))
        )
        found.append(tuple(sources))
        behind |= dict.fromkeys(step.writes, tuple(sources))
    return found


def _size(variable: Any) -> int:
    shape, dtype = getattr(variable.aval, "shape", ()), getattr(variable.aval, "dtype", None)
    return 0 if dtype is None else math.prod(shape) * dtype.itemsize
