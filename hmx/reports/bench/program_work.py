"""Count the work of a compiled program: operations, bytes and kernels, read from its optimised HLO text.

A kernel is an instruction that the device runs by itself: a fusion, a matrix product, a copy. It reads its operands
from memory and writes its results there, so the bytes of a program are those of its kernels. XLA's own cost analysis
counts the body of a loop once; here it counts as often as it runs, where XLA knows that number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "c64": 8, "c128": 16}
_SHAPE = re.compile(r"([a-z]+[0-9]*(?:e[0-9]+m[0-9]+[a-z]*)?)\[([0-9,]*)\]")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_NAME = re.compile(r"%([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_THREEFRY = re.compile(r"u32\[4\]\S*, (?:/\*index=\d+\*/)?u32\[4\]\S*\)$")
"""The state of JAX's loop of random bits ends with its rotations. On a GPU it is one kernel, so it counts as one."""

_BRANCHES = re.compile(
    r"(?:branch_computations=\{([^}]*)\}|true_computation=%?([\w.\-]+), false_computation=%?([\w.\-]+))"
)

_FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "optimization-barrier", "domain", "add-dependency",
})  # fmt: skip
_MOVES = frozenset({
    "broadcast", "copy", "slice", "dynamic-slice", "dynamic-update-slice", "concatenate", "reshape", "transpose", "pad",
    "reverse", "iota", "gather", "copy-start", "copy-done", "bitcast-convert",
})  # fmt: skip
_SLICES = frozenset({"slice", "dynamic-slice", "gather"})


Resource = Literal["operations", "bytes", "kernels"]


class ProgramWork(NamedTuple):
    """The work of one execution.

    A multiplication with an addition counts as two operations, and an operation on integers like one on floats.
    """

    operations: float = 0.0
    bytes: float = 0.0
    kernels: float = 0.0
    unknown_loops: int = 0  # loops whose number of iterations XLA does not know; they count once

    def plus(self, other: ProgramWork, times: float = 1.0) -> ProgramWork:
        """Add other work, done `times` times."""
        return ProgramWork(
            self.operations + times * other.operations,
            self.bytes + times * other.bytes,
            self.kernels + times * other.kernels,
            self.unknown_loops + other.unknown_loops,
        )


class Device(NamedTuple):
    """What a device can do at most, per second."""

    name: str
    operations: float
    bytes: float
    kernels: float


H100 = Device("H100", 67e12, 3.35e12, 4e5)
"""H100 SXM: float32 without tensor cores, and HBM3, by NVIDIA's data sheet; 2.5 microseconds a kernel are assumed."""


def bound(work: ProgramWork, device: Device) -> tuple[Resource, float]:
    """Return the resource that limits a device, and the fewest seconds that the work takes."""
    seconds: dict[Resource, float] = {
        "operations": work.operations / device.operations,
        "bytes": work.bytes / device.bytes,
        "kernels": work.kernels / device.kernels,
    }
    return max(seconds.items(), key=lambda item: item[1])


class _Instruction(NamedTuple):
    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    attributes: str


class _Computation(NamedTuple):
    instructions: Mapping[str, _Instruction]
    root: _Instruction
    parameters: tuple[_Instruction, ...]  # by number


Branch = Callable[[tuple[ProgramWork, ...]], ProgramWork]


def heaviest(branches: tuple[ProgramWork, ...]) -> ProgramWork:
    """Choose the branch of a condition with the most bytes."""
    return max(branches, key=lambda work: work.bytes)


def lightest(branches: tuple[ProgramWork, ...]) -> ProgramWork:
    """Choose the branch of a condition with the fewest bytes."""
    return min(branches, key=lambda work: work.bytes)


def count_work(text: str, branch: Branch = heaviest) -> ProgramWork:
    """Count the work of a program.

    Args:
        text: the optimised HLO, as `jax.stages.Compiled.as_text` returns it.
        branch: chooses the branch of each condition that counts.
    """
    computations, entry = _parse(text)
    return _Counter(computations, branch).work(entry)


class _Counter:
    def __init__(self, computations: Mapping[str, _Computation], branch: Branch) -> None:
        self._computations, self._branch = computations, branch
        self._known: dict[str, ProgramWork] = {}

    def work(self, name: str) -> ProgramWork:
        """Return the work of a computation whose instructions are kernels."""
        if name not in self._known:
            computation, total = self._computations[name], ProgramWork()
            for instruction in computation.instructions.values():
                total = total.plus(self._of(instruction, computation))
            self._known[name] = total
        return self._known[name]

    def _of(self, instruction: _Instruction, computation: _Computation) -> ProgramWork:
        opcode, attributes = instruction.opcode, instruction.attributes
        if opcode in _FREE or opcode.endswith("-done"):
            return ProgramWork()
        if opcode == "while":
            known = _TRIPS.search(attributes)
            if known and _THREEFRY.search(instruction.shape):
                return ProgramWork(0.0, 2 * _size(instruction.shape), 1)
            loop = self.work(_called(attributes, "body")).plus(self.work(_called(attributes, "condition")))
            trips = int(known[1]) if known else 1
            return ProgramWork(unknown_loops=int(known is None)).plus(loop, trips)
        if opcode == "conditional":
            return self._branch(tuple(self.work(name) for name in _branches(attributes)))
        if opcode in ("call", "async-start"):
            return self.work(_called(attributes, "to_apply" if opcode == "call" else "calls"))
        operations = self._operations(instruction, computation)
        if opcode == "fusion":
            moved = _fusion_bytes(self._computations[_called(attributes, "calls")])
        else:
            moved = _kernel_bytes(instruction, computation)
        return ProgramWork(operations, moved, 1)

    def _operations(self, instruction: _Instruction, computation: _Computation) -> float:
        opcode = instruction.opcode
        if opcode == "fusion":
            inner = self._computations[_called(instruction.attributes, "calls")]
            return sum(self._operations(part, inner) for part in inner.instructions.values())
        if opcode in _FREE or opcode in _MOVES:
            return 0.0
        if opcode == "dot":
            dims = _dims(computation.instructions[instruction.operands[0]].shape)
            contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.attributes)
            axes = [int(axis) for axis in contracted[1].split(",") if axis] if contracted else []
            return 2.0 * _elements(instruction.shape) * math.prod(dims[axis] for axis in axes)
        if opcode == "convolution":
            kernel = computation.instructions[instruction.operands[1]].shape
            labels = re.search(r"dim_labels=\w+_(\w+)->", instruction.attributes)
            features = _dims(kernel)[labels[1].index("o")] if labels else 1
            return 2.0 * _elements(instruction.shape) * _elements(kernel) / features
        if opcode.startswith("reduce") and instruction.operands:
            return _elements(computation.instructions[instruction.operands[0]].shape)
        return _elements(instruction.shape)


def _parse(text: str) -> tuple[dict[str, _Computation], str]:
    """Return the computations by name, and the name of the first one to run."""
    computations: dict[str, _Computation] = {}
    entry, name, lines = "", "", list[tuple[_Instruction, bool]]()
    for line in text.splitlines():
        if line.startswith("}") and name:
            computations[name] = _computation(lines)
            name, lines = "", []
        elif header := _COMPUTATION.match(line):
            name = header[1]
            if line.startswith("ENTRY"):
                entry = name
        elif name and (begun := _INSTRUCTION.match(line)):
            lines.append((_instruction(begun[1], line[begun.end() :]), "ROOT " in line[: begun.end()]))
    return computations, entry


def _computation(lines: list[tuple[_Instruction, bool]]) -> _Computation:
    root = next((instruction for instruction, is_root in lines if is_root), lines[-1][0])
    parameters = [instruction for instruction, _ in lines if instruction.opcode == "parameter"]
    parameters.sort(key=lambda parameter: int(parameter.attributes))
    return _Computation({instruction.name: instruction for instruction, _ in lines}, root, tuple(parameters))


def _instruction(name: str, text: str) -> _Instruction:
    """Read `SHAPE OPCODE(OPERANDS), ATTRIBUTES`. A parameter has its number as attributes."""
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    shape, rest = text[:end], text[end:].lstrip()
    begin = rest.index("(")
    opcode, close = rest[:begin], _closing(rest, begin)
    inside = rest[begin + 1 : close]
    if opcode == "parameter":
        return _Instruction(name, shape, opcode, (), inside)
    return _Instruction(name, shape, opcode, tuple(_NAME.findall(inside)), rest[close + 1 :])


def _closing(text: str, begin: int) -> int:
    """Return where the parenthesis that opens at `begin` closes."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, begin):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.start()
    return len(text)


def _called(attributes: str, key: str) -> str:
    named = re.search(rf"\b{key}=%?([\w.\-]+)", attributes)
    return named[1] if named else ""


def _branches(attributes: str) -> Iterator[str]:
    named = _BRANCHES.search(attributes)
    if named and named[1]:
        yield from (name.strip().lstrip("%") for name in named[1].split(","))
    elif named:
        yield from (named[2], named[3])


def _dims(shape: str) -> list[int]:
    named = _SHAPE.search(shape)
    return [int(size) for size in named[2].split(",") if size] if named else []


def _elements(shape: str) -> float:
    return sum(math.prod(int(size) for size in dims.split(",") if size) for _, dims in _SHAPE.findall(shape))


def _size(shape: str) -> float:
    """Return the bytes of an array, or of all arrays of a tuple."""
    total = 0.0
    for dtype, dims in _SHAPE.findall(shape):
        bits = re.search(r"\d+", dtype)
        width = _BYTES.get(dtype) or (int(bits[0]) // 8 if bits else 0)
        total += width * math.prod(int(size) for size in dims.split(",") if size)
    return total


def _kernel_bytes(instruction: _Instruction, computation: _Computation) -> float:
    """Return the bytes of an instruction other than a fusion; a slice does not touch the rest of its array."""
    shapes = [computation.instructions[name].shape for name in instruction.operands]
    if instruction.opcode in _SLICES:
        return 2 * _size(instruction.shape)
    if instruction.opcode == "dynamic-update-slice":
        return 2 * _size(shapes[1])
    return _size(instruction.shape) + sum(_size(shape) for shape in shapes)


def _fusion_bytes(inner: _Computation) -> float:
    """Return the bytes that a fusion reads and writes, given its instructions."""
    users: dict[str, list[_Instruction]] = {}
    for instruction in inner.instructions.values():
        for operand in instruction.operands:
            users.setdefault(operand, []).append(instruction)
    read = sum(_read(parameter, users) for parameter in inner.parameters)
    root = inner.root
    outputs = [inner.instructions[name] for name in root.operands] if root.opcode == "tuple" else [root]
    return read + sum(_written(output, inner) for output in outputs)


def _read(parameter: _Instruction, users: Mapping[str, list[_Instruction]]) -> float:
    """Return the bytes that a fusion reads of a parameter: the slices, if it uses slices only."""
    total = 0.0
    for user in users.get(parameter.name, []):
        first = user.operands[0] == parameter.name
        if user.opcode == "bitcast":
            total += _read(user._replace(shape=parameter.shape), users)
        elif user.opcode in _SLICES and first:
            total += _size(user.shape)
        elif not (user.opcode == "dynamic-update-slice" and first):
            return _size(parameter.shape)
    return min(total, _size(parameter.shape))


def _written(output: _Instruction, inner: _Computation) -> float:
    """Return the bytes that a fusion writes of a result: the slice, if it updates one in place."""
    at = output
    while at.opcode == "bitcast":
        at = inner.instructions[at.operands[0]]
    if at.opcode == "dynamic-update-slice":
        return _size(inner.instructions[at.operands[1]].shape)
    return _size(output.shape)
