"""contract.json: the description of an exported policy, for programs without hmx."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from hmx.algos.types import TrainState
from hmx.config.files import read_plain
from hmx.envs.protocol import EnvSpec
from hmx.errors import HmxError
from hmx.jobs.exported.program import PolicyProgram, Port
from hmx.records.plain import JsonResult
from hmx.rl import normaliser
from hmx.rl.normaliser import RunningStats
from hmx.runs import weights

CONTRACT = "contract.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyOrigin:
    """The checkpoint that a policy comes from."""

    run: str
    run_id: str  # "" if it is not known
    agent: int  # index of the seed
    update: int
    config_digest: str
    weights_sha256: str  # over names, types, shapes and numbers of all learned arrays


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normalisation:
    """What the program does to observations first: `(obs - mean) / std`, then limits of `-clip` and `clip`."""

    mean: Any
    std: Any
    clip: float  # 0 for no limit
    skips_reset: bool  # whether observations for which `reset` is true are read as they are


@dataclasses.dataclass(frozen=True, kw_only=True)
class HiddenState:
    """An array that the caller passes on from step to step, and the value that it starts an episode with."""

    input: str
    output: str
    initial: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contract(JsonResult):
    """The inputs and outputs of a policy; shapes leave out the axis of the batch, which comes first."""

    hmx: str
    origin: PolicyOrigin
    environment: str
    steps_per_second: float | None  # of simulated time; None if the environment states none
    normalisation: Normalisation | None  # inside the program
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    hidden: tuple[HiddenState, ...]

    def to_text(self) -> str:
        """Return the JSON text, with a line per list of numbers."""
        return re.sub(r"\[\n[^\[\]{}]*\n *\]", _on_one_line, json.dumps(self.to_json(), indent=1)) + "\n"


def _on_one_line(match: re.Match[str]) -> str:
    """Return JSON without its line breaks; none of them is inside a text."""
    return re.sub(r"\n *", "", re.sub(r",\n *", ", ", match[0]))


def make_contract(
    version: str, origin: PolicyOrigin, spec: EnvSpec, program: PolicyProgram, normalisation: Normalisation | None
) -> Contract:
    """Describe a program that hmx of a version has made."""
    hidden = zip(program.inputs[len(program.inputs) - len(program.initial) :], program.initial, strict=True)
    return Contract(
        hmx=version,
        origin=origin,
        environment=spec.id,
        steps_per_second=float(f"{1.0 / spec.step_seconds:.6g}") if spec.step_seconds else None,
        normalisation=normalisation,
        inputs=program.inputs,
        outputs=program.outputs,
        hidden=tuple(HiddenState(input=p.name, output=f"next_{p.name}", initial=start) for p, start in hidden),
    )


def describe_normalisation(
    stats: RunningStats | None, ddof: int, clip: float, skips_reset: bool
) -> Normalisation | None:
    """Return the numbers that observations are normalised with; None without statistics."""
    if stats is None:
        return None
    mean, std = np.asarray(stats.mean), np.asarray(normaliser.std(stats, ddof))
    return Normalisation(mean=mean, std=std, clip=clip, skips_reset=skips_reset)


def hash_weights(state: TrainState) -> str:
    """Return the SHA-256 of all learned arrays, the same in a checkpoint and in an exported policy."""
    digest = hashlib.sha256()
    for name, leaf in sorted(weights.named(state).items()):
        array = np.asarray(leaf)
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_contract(place: Path, text: str, force: bool) -> None:
    """Refuse (exit code 2) to replace the contract of another policy, unless `force`.

    Raises:
        OSError: it cannot be read.
    """
    if place.exists() and not force and read_plain(place).decode("utf-8", "replace") != text:
        message = f"cannot write {place}: it describes another policy"
        raise HmxError(message, "--force replaces it; --output names a file in another folder")
