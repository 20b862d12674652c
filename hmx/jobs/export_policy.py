"""`hmx export`: only the policy of a run, as weights, as a StableHLO program or as an ONNX model."""

from __future__ import annotations

import dataclasses
import json
import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from hmx.algos.types import TrainState
from hmx.config import codec
from hmx.config.extras import needed
from hmx.errors import HmxError
from hmx.jobs.requests import PolicyRequest
from hmx.records.atomic import check_new, write_bytes, writing
from hmx.records.paths import REPORTS
from hmx.records.plain import JsonResult
from hmx.runs import weights
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import check_agent, seed_state
from hmx.runs.restoring import find
from hmx.runs.session import Session, open_session
from hmx.types import Array

Policy = Callable[[Array, Array], tuple[Array, Array]]
"""`(obs [B, *obs_shape], mask [B, num_actions]) -> (probs [B, num_actions], value [B])`.

Several agents add an axis of agents after `B`.
"""

_PLATFORMS = ("cpu", "cuda", "tpu")
_INPUTS, _OUTPUTS = ("obs", "mask"), ("probs", "value")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyExport(JsonResult):
    """The files that were written; shapes are those of a batch of one."""

    run: Path
    output: Path
    update: int
    obs: tuple[tuple[int, ...], str]  # shape and dtype
    mask: tuple[int, ...]
    size: int  # bytes
    warnings: tuple[str, ...]


def export_policy(run: str | Path, request: PolicyRequest, output: Path | None = None) -> PolicyExport:
    """Write the policy of a run, or of a path of checkpoints, by default to `policy.FORMAT` among its reports.

    Raises:
        HmxError: the file exists or cannot be written, the policy is not a function of observation and mask,
            or a package is not installed (exit code 2); no such run or no intact checkpoint (3).
    """
    source = find(run)
    place = output or source.folder / (REPORTS if source.paths else "") / f"policy.{request.to}"
    with writing("the policy", place):
        check_new(place, request.force, f"policy.{request.to}")
    cfg = source.cfg
    if cfg.net.rnn != "none":
        message = f"cannot export a recurrent policy ({cfg.net.rnn}): it also reads and writes an RNN carry"
        raise HmxError(message, f"hmx evaluate {shlex.quote(str(run))} plays it")
    check_agent(cfg.run, request.agent)
    enable_cache()
    session = open_session(cfg)
    if session.env.spec.action_dim:
        message = "cannot export a policy of continuous actions: it has no action probabilities"
        raise HmxError(message, f"hmx evaluate {shlex.quote(str(run))} plays it")
    state, update, warnings = source.state(session, request.checkpoint)
    state = seed_state(state, request.agent, cfg.run.num_seeds)
    obs, mask = _inputs(session, 1)
    config = codec.to_dict(cfg)
    del config["run"]["root"]  # a folder on the user's machine
    about = {
        "run": source.folder.name, "update": str(update), "config": json.dumps(config),
        "obs_shape": json.dumps(obs.shape[1:]), "mask_shape": json.dumps(mask.shape[1:]),
    }  # fmt: skip
    if request.to == "safetensors":
        data = weights.to_bytes(session, state, about)
    elif request.to == "stablehlo":
        data = _stablehlo(session, state)
    else:
        data = _onnx(session, state)
    with writing("the policy", place):
        write_bytes(place, data)
    return PolicyExport(
        run=source.folder,
        output=place,
        update=update,
        obs=(obs.shape, str(obs.dtype)),
        mask=mask.shape,
        size=len(data),
        warnings=tuple(warnings),
    )


def make_policy(session: Session, state: TrainState) -> Policy:
    """Return the policy of a state as a function of only observations and masks.

    The probabilities are those that PPO samples from; Q-learning takes the best action.
    """
    solo = session.env.spec.num_agents == 1

    def single(obs: Array, mask: Array) -> tuple[Array, Array]:
        # A batch of one: the networks see known sizes even if the batch size is unknown.
        obs, mask = (obs[None, None], mask[None, None]) if solo else (obs[None], mask[None])
        key = jax.random.key(0)  # of the action, which is not returned
        decision, _ = session.algorithm.act(state, None, obs, mask, jnp.zeros(1, bool), key, True)
        return (decision.probs[0, 0], decision.value[0, 0]) if solo else (decision.probs[0], decision.value[0])

    return jax.vmap(single)


def _inputs(session: Session, batch: Any) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Return shapes and dtypes of a batch of observations and masks."""
    spec = session.env.spec
    agents = () if spec.num_agents == 1 else (spec.num_agents,)
    obs = jax.ShapeDtypeStruct((batch, *agents, *spec.obs_shape), spec.obs_dtype)
    return obs, jax.ShapeDtypeStruct((batch, *agents, spec.num_actions), jnp.bool_)


def _stablehlo(session: Session, state: TrainState) -> bytes:
    """Return a program for any batch size, as `jax.export` stores it."""
    with needed("stablehlo", "--to stablehlo"):
        import flatbuffers  # noqa: F401 - of `serialize`
    (batch,) = export.symbolic_shape("batch")
    program = export.export(jax.jit(make_policy(session, state)), platforms=_PLATFORMS)(*_inputs(session, batch))
    return bytes(program.serialize())


def _onnx(session: Session, state: TrainState) -> bytes:
    """Return a model for any batch size, made by jax2onnx."""
    with needed("onnx", "--to onnx"):
        from jax2onnx import to_onnx
    (batch,) = export.symbolic_shape("batch")
    inputs = _inputs(session, batch)
    # Traced beforehand: the converter replaces the layers of Flax by its own operations, which vmap does not know.
    # The draw of the action, on which no output depends, is left out: the converter knows no random numbers.
    traced = jax.make_jaxpr(make_policy(session, state))(*inputs)
    needed_part, _ = dce_jaxpr(traced.jaxpr, [True, True], True)
    program = jaxpr_as_fun(ClosedJaxpr(needed_part, traced.consts))
    logging.disable(logging.WARNING)  # it warns of shapes that it infers later
    try:
        model = to_onnx(program, list(inputs), input_names=_INPUTS, output_names=_OUTPUTS)
    except NotImplementedError as problem:
        message = f"cannot write this policy as ONNX: {problem}"
        raise HmxError(message, "--to stablehlo; for HackMatrix, train with --set env.obs=flat") from None
    finally:
        logging.disable(logging.NOTSET)
    return bytes(model.SerializeToString())
