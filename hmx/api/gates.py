"""Gates from Python: changes that are kept only if they help."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hmx.api.configs import NO_VALUES, Settings, resolve
from hmx.api.hints import for_python
from hmx.config.fields import fields_of
from hmx.errors import HmxError
from hmx.gates import campaign, records, report, verify
from hmx.gates.records import GateRequest
from hmx.gates.report import AttemptFacts, GateStatus
from hmx.gates.verify import GateVerification
from hmx.registry import user_code
from hmx.registry.load import read_request

__all__ = ["adopt_attempt", "gate", "gate_status", "new_gate", "verify_gate"]


@for_python
def new_gate(
    name: str | Path,
    settings: Settings | None = None,
    *,
    preset: str | None = None,
    command: Sequence[str] = (),
    options: Mapping[str, object] = NO_VALUES,
) -> GateStatus:
    """Make a gate: the baseline that changes are compared with, what they must improve, and how sure that must be.

    Args:
        name: a name below `gates/`, or the path of a folder.
        settings: the baseline, see `hmx.train`.
        preset: see `hmx.load_config`.
        command: another trainer as the baseline, with `{seed}` and `{file}` in its words.
        options: options of `hmx gate new` by name, such as `{"max_seeds": 8}`.

    Raises:
        HmxError: an option or the configuration is not valid, or there is a gate; nothing has been written.
    """
    flags = {f"--{key.replace('_', '-')}": value for key, value in options.items()}
    if unknown := flags.keys() - fields_of(GateRequest):
        raise HmxError(f"unknown option {min(unknown)[2:]}", "docs/gate.md lists the options of a gate")
    loaded = None if command and settings is None and preset is None else resolve(settings or {}, preset)
    place = records.PLACES.place(name)
    return report.gate_status(campaign.new_gate(place, read_request(GateRequest, flags), loaded, command))


@for_python
def gate(
    name: str | Path,
    changes: Mapping[str, object] = NO_VALUES,
    *,
    source: str | Path | None = None,
    command: Sequence[str] = (),
    abandon: bool = False,
    progress: bool = True,
) -> AttemptFacts:
    """Try a change: train it and the baseline on the same seeds, pair by pair, until the verdict is clear.

    The result has `verdict`: `keep` if the change helps.

    Args:
        name: name or path of the gate.
        changes: new values by dotted key, such as `{"algo.learning_rate": 3e-3}`; a function stands for your own
            environment, network or algorithm. Without any change, the attempt that is open continues.
        source: a checkout of hmx that trains the candidate.
        command: another trainer, with `{seed}` and `{file}` in its words.
        abandon: whether to end the attempt that is open; the pair that has begun counts as lost.
        progress: whether to write a line for each pair.

    Raises:
        HmxError: the change is not valid, or the baseline cannot run.
        KeyboardInterrupt: Ctrl-C stopped it after a checkpoint; the same call continues.
    """

    def tell(line: str) -> None:
        stream = sys.stdout if "ipykernel" in sys.modules else sys.stderr
        stream.write(f"pair {line}\n")

    flags = {key: user_code.adopt(value) if callable(value) else value for key, value in changes.items()}
    change = campaign.Change((), flags, Path(source) if source else None, command, abandon)
    shown = tell if progress else lambda line: None
    now, attempt = campaign.try_change(records.find_gate(name), change, tell=shown)
    return report.attempt_facts(now, attempt)


@for_python
def gate_status(name: str | Path) -> GateStatus:
    """Return all attempts of a gate, the error budget that is left, and what to do next.

    Raises:
        HmxError: there is no such gate, or one of its files is damaged.
    """
    return report.gate_status(records.find_gate(name))


@for_python
def adopt_attempt(name: str | Path, attempt: int) -> GateStatus:
    """Make a kept change the baseline of the next attempts.

    Raises:
        HmxError: it was not kept, or was compared with an earlier baseline; or see `gate_status`.
    """
    return report.gate_status(records.adopt(records.find_gate(name), attempt))


@for_python
def verify_gate(name: str | Path) -> GateVerification:
    """Compute every pair, level and verdict of a gate again; errors as of `gate_status`."""
    return verify.verify_gate(records.find_gate(name))
