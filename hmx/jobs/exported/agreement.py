"""Compare an exported policy with the policy it was made from, on random inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hmx.errors import ExitCode, HmxError, counted
from hmx.jobs.exported.formats import Call
from hmx.jobs.exported.program import PolicyProgram, Port
from hmx.rl import normaliser
from hmx.rl.normaliser import RunningStats

INPUTS = 1000
LIMIT = 1e-3
"""The largest difference of a policy that agrees: rounding stays below 1e-4, also for large random inputs."""

_STEPS = 25  # of the sequences for a recurrent policy
_OTHER_ACTIONS = INPUTS // 100  # most choices that may differ: two actions may be equally good but for rounding
_SMALLEST_SIZE = 1e-2  # of an output; a value near 0 everywhere has no digits to compare

HostArray = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far an exported policy is from the original.

    A difference is relative to the largest size of its output over all inputs. Where another discrete action is chosen,
    probabilities are not compared.
    """

    inputs: int
    sequences: int  # that contain the inputs; 0 for a policy without a hidden state
    largest_difference: float
    output: str  # with that difference
    other_actions: int  # inputs for which another discrete action is chosen

    def check(self) -> None:
        """Refuse (exit code 4) a policy that does not agree."""
        if self.largest_difference <= LIMIT and self.other_actions <= _OTHER_ACTIONS:
            return
        what = f"{self.output} differs by {self.largest_difference:.2g} (limit {LIMIT:g})"
        if self.other_actions > _OTHER_ACTIONS:
            what = f"it chooses another action for {counted(self.other_actions, 'input')}"
        message = f"cannot export this policy: on {self.inputs:,} random inputs the file does not agree with it: {what}"
        raise HmxError(message, "export it with another --to", ExitCode.CHECK_FAILED)


def measure(program: PolicyProgram, exported: Call, stats: RunningStats | None) -> Agreement:
    """Run both policies on the same inputs; a recurrent one on sequences, each with its own hidden states.

    Args:
        program: the original.
        exported: the function that the file is.
        stats: observation statistics; random ones have this distribution, or without it mean 0 and several scales.

    Raises:
        HmxError: the original returns numbers that are not finite (exit code 4).
    """
    steps = _STEPS if program.initial else 1
    batch, rng = INPUTS // steps, np.random.default_rng(0)
    drawn = program.inputs[: len(program.inputs) - len(program.initial)]
    start = [np.repeat(leaf[None], batch, axis=0) for leaf in program.initial]
    call, memories = jax.jit(program.call), (start, start)
    results: tuple[list[list[HostArray]], list[list[HostArray]]] = ([], [])
    for step in range(steps):
        begins = bool(program.initial) and step == 0
        inputs = [_draw(port, rng, batch, begins, stats) for port in drawn]
        with jax.default_matmul_precision("highest"):
            ours = [np.asarray(array) for array in call(*inputs, *memories[0])]
        theirs = [np.asarray(array) for array in exported(*inputs, *memories[1])]
        results[0].append(ours)
        results[1].append(theirs)
        first_hidden = len(program.outputs) - len(program.initial)
        memories = (ours[first_hidden:], theirs[first_hidden:])
    return _compared(program, *results, sequences=batch if program.initial else 0)


def _draw(port: Port, rng: np.random.Generator, batch: int, begins: bool, stats: RunningStats | None) -> HostArray:
    """Return a random input `[batch, ...]`; every part of a mask allows an action, and `begins` starts new episodes.

    Numbers have several scales, since a network may be saturated by all large ones.
    """
    shape = (batch, *port.shape)
    if port.name == "reset":
        return np.asarray((rng.random(shape) < 0.1) | begins)
    if port.name == "mask":
        sizes = port.parts or (shape[-1],)
        allowed = [rng.random((*shape[:-1], size)) < 0.6 for size in sizes]
        for part, size in zip(allowed, sizes, strict=True):
            np.put_along_axis(part, rng.integers(0, size, (*shape[:-1], 1)), True, axis=-1)
        return np.concatenate(allowed, axis=-1)
    dtype, each = np.dtype(port.dtype), (batch, *(1 for _ in port.shape))
    if not np.issubdtype(dtype, np.floating):
        largest = np.iinfo(dtype).max
        shift = rng.integers(0, int(largest).bit_length(), each, dtype)
        return rng.integers(0, largest, shape, dtype, endpoint=True) >> shift
    if stats is not None:
        return (np.asarray(stats.mean) + np.asarray(normaliser.std(stats)) * rng.normal(size=shape)).astype(dtype)
    return (10.0 ** rng.uniform(-1.0, 1.0, each) * rng.normal(size=shape)).astype(dtype)


def _compared(
    program: PolicyProgram, ours: Sequence[Sequence[HostArray]], theirs: Sequence[Sequence[HostArray]], sequences: int
) -> Agreement:
    """Compare the outputs, listed by step and port."""
    joined = {port.name: np.concatenate([step[i] for step in ours]) for i, port in enumerate(program.outputs)}
    if not all(np.isfinite(array).all() for array in joined.values()):
        message = "cannot export this policy: it returns numbers that are not finite"
        raise HmxError(message, "hmx doctor shows when the run went wrong", ExitCode.CHECK_FAILED)
    same = np.ones(INPUTS, bool)
    differences = {}
    for i, port in enumerate(program.outputs):
        original, other = joined[port.name], np.concatenate([step[i] for step in theirs])
        if other.shape != original.shape:
            differences[port.name] = float("inf")
        elif port.name == "action" and not np.issubdtype(original.dtype, np.floating):
            same = (original == other).reshape(INPUTS, -1).all(axis=1)
        else:
            compared = same if port.name == "probs" else np.ones(INPUTS, bool)
            size = max(float(np.abs(original).max()), _SMALLEST_SIZE)
            difference = np.abs(original - other)[compared].max(initial=0.0) / size
            differences[port.name] = float(difference) if np.isfinite(difference) else float("inf")
    output = max(differences, key=lambda name: differences[name])
    return Agreement(
        inputs=INPUTS,
        sequences=sequences,
        largest_difference=differences[output],
        output=output,
        other_actions=int((~same).sum()),
    )
