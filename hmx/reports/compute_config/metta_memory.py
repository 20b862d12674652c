"""Memory of the Metta training equations, where only the number of parameters of the network is known.

Parts that follow from shapes alone are exact. Activations depend on what the compiler keeps and recomputes.
"""

from __future__ import annotations

from hmx.reports.compute_config.derived import size
from hmx.reports.compute_config.inputs import BatchInputs
from hmx.runs.memory_parts import Memory, MemoryPart, add_up

WORD = 4  # bytes of a float32 or an int32
PARAMETER_BYTES = 4 * WORD  # a parameter, its gradient and the two moments of Adam
TOKEN_BYTES = 200 * 3  # an observation of the Metta environments: 200 tokens of 3 bytes
_METTA_CARRY = 2 * 2 * 128 * WORD  # of the LSTM of Metta's agents: two arrays, two layers, 128 units
METTA_FLOATS = 10_000  # that one sample keeps for the gradient, roughly


def buffer_memory(inputs: BatchInputs, parameters: int) -> Memory:
    """Compute the memory of a Metta trainer: observations of tokens, two int32 actions, and an LSTM.

    The observations of the equations (one float32 per cell) are listed, but not part of the total.
    """
    steps, minibatch = size(inputs, "stored_agent_steps"), size(inputs, "samples_per_update")
    # two actions, six scalars, advantages and importance ratios
    scalars = (2 + 6 + 2) * WORD
    cells = "bptt_horizon x obs_width x obs_height x 4 B"
    published = (
        ("obs_bytes_seed", "observations, 1 float per cell", f"segments x {cells}"),
        ("minibatch_obs_bytes_seed", "the same in a minibatch", f"minibatch_segments x {cells}"),
        ("scalar_bytes_f32_x8", "eight floats per step", "segments x bptt_horizon x 8 x 4 B"),
    )
    parts = [
        *(MemoryPart(name, label, size(inputs, name), text, counted=False) for name, label, text in published),
        MemoryPart("obs_bytes", "observations, tokens", steps * TOKEN_BYTES, f"{steps:,} agent steps x 200 x 3 B"),
        _each("scalar_bytes", "rest of the buffer", steps, scalars, " agent steps"),
        _each("model_bytes", "parameters, gradient, Adam", parameters, PARAMETER_BYTES),
        _each("carry_bytes", "recurrent state", size(inputs, "total_agents"), _METTA_CARRY, " agents"),
        _each("minibatch_bytes", "minibatch copy", minibatch, TOKEN_BYTES, " agent steps"),
        MemoryPart(
            "activation_bytes",
            "activations",
            minibatch * METTA_FLOATS * WORD,
            f"{minibatch:,} samples x about {METTA_FLOATS:,} floats",
            exact=False,
        ),
    ]
    return add_up(parts, parameters)


def _each(key: str, label: str, count: int, size: int, unit: str = "") -> MemoryPart:
    """Return a part of so many units of one size."""
    return MemoryPart(key, label, count * size, f"{count:,}{unit} x {size:,} B")
