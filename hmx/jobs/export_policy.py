"""`hmx export`: only the policy of a run, as weights, as a StableHLO program or as an ONNX model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from hmx.config import codec
from hmx.envs.protocol import EnvSpec
from hmx.errors import HmxError
from hmx.jobs.exported.agreement import Agreement, measure
from hmx.jobs.exported.contract import (
    CONTRACT,
    PolicyOrigin,
    check_contract,
    describe_normalisation,
    hash_weights,
    make_contract,
)
from hmx.jobs.exported.formats import FORMATS
from hmx.jobs.exported.program import make_program, policy_numbers
from hmx.jobs.requests import PolicyRequest
from hmx.records import meta
from hmx.records.atomic import check_new, write_bytes, write_text, writing
from hmx.records.layout import check_own
from hmx.records.paths import REPORTS
from hmx.records.plain import JsonResult
from hmx.rl.normaliser import RunningStats
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import check_agent
from hmx.runs.restoring import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyExport(JsonResult):
    """The files that were written, and how well the policy in them agrees with that of the run."""

    run: Path
    output: Path
    contract: Path
    update: int
    size: int  # bytes of the policy
    inputs: tuple[str, ...]  # names, in order
    outputs: tuple[str, ...]
    agreement: Agreement
    warnings: tuple[str, ...]


def export_policy(run: str | Path, request: PolicyRequest) -> PolicyExport:
    """Write the policy of a run, or of a path of checkpoints, by default to `policy.FORMAT` among its reports.

    `contract.json` beside it describes the policy.

    Raises:
        HmxError: a file exists or cannot be written, the format does not support the policy, or a package is not
            installed (exit code 2); no such run or no intact checkpoint (3); the file does not agree with the policy,
            so nothing is written (4).
    """
    source = Run.find(run)
    if request.output is None and source.paths:
        check_own(source.paths.reports, "--output")
    place = request.output or source.folder / (REPORTS if source.paths else "") / f"policy.{request.to}"
    contract_place = place.with_name(CONTRACT)
    if place == contract_place:
        raise HmxError(f"cannot write {place}: the description of the policy has this name", "--output another name")
    with writing("the policy", place):
        check_new(place, request.force, f"policy.{request.to}")
    cfg = source.cfg
    check_agent(cfg.run, request.agent)
    enable_cache()
    session = source.open()
    restored = source.agent(session, request.agent, request.checkpoint)
    state, update = restored.state, restored.update
    program, stats = make_program(session, state), _policy_stats(session.env.spec, state.actors.obs_stats)
    origin = PolicyOrigin(
        run=source.folder.name,
        run_id=source.run_id,
        agent=request.agent,
        update=update,
        config_digest=codec.digest(cfg),
        weights_sha256=hash_weights(state),
    )
    norm = describe_normalisation(stats, cfg.ppo.obs_norm_ddof, cfg.ppo.obs_norm_clip, cfg.ppo.obs_norm == "env")
    contract = make_contract(meta.versions().get("hmx", ""), origin, session.env.spec, program, norm).to_text()
    with writing("the description of the policy", contract_place):
        check_contract(contract_place, contract, request.force)
    file = FORMATS[request.to](program, session, state, _about(codec.to_dict(cfg), origin))
    agreement = measure(program, file.call, stats)
    agreement.check()
    with writing("the policy", place):
        write_bytes(place, file.data)
    with writing("the description of the policy", contract_place):
        write_text(contract_place, contract)
    return PolicyExport(
        run=source.folder,
        output=place,
        contract=contract_place,
        update=update,
        size=len(file.data),
        inputs=tuple(port.name for port in program.inputs),
        outputs=tuple(port.name for port in program.outputs),
        agreement=agreement,
        warnings=tuple(restored.warnings),
    )


def _policy_stats(spec: EnvSpec, stats: RunningStats | None) -> RunningStats | None:
    """Return the statistics of what the policy reads of an observation."""
    read = policy_numbers(spec)
    return None if stats is None else stats._replace(mean=stats.mean[..., :read], var=stats.var[..., :read])


def _about(config: dict[str, Any], origin: PolicyOrigin) -> dict[str, str]:
    """Return the metadata of the file itself."""
    del config["run"]["root"]  # a folder on the user's machine
    return {
        "run": origin.run,
        "update": str(origin.update),
        "weights_sha256": origin.weights_sha256,
        "config": json.dumps(config),
    }
