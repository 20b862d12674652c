"""The file formats of exported policies: each writes a policy and makes a function of the file again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import export, lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from hmx.algos.types import TrainState
from hmx.config.extras import needed
from hmx.errors import HmxError, one_line
from hmx.jobs.exported.program import PolicyProgram, make_program
from hmx.runs import weights
from hmx.runs.session import Session

Call = Callable[..., Sequence[Any]]
"""A policy as `PolicyProgram.call`."""

_PLATFORMS = ("cpu", "cuda", "tpu")
_ERRORS_ONLY = 3  # of the log levels of onnxruntime
_CALLS = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
"""The operations that call a program, and the parameter that holds it."""


class PolicyFile(NamedTuple):
    """A policy in the bytes of a file, and the function that the file is."""

    data: bytes
    call: Call


def to_safetensors(program: PolicyProgram, session: Session, state: TrainState, about: dict[str, str]) -> PolicyFile:
    """Return the weights; the function uses hmx's network."""
    data = weights.to_bytes(session, state, about)
    return PolicyFile(data, jax.jit(make_program(session, weights.from_bytes(state, data)).call))


def to_stablehlo(program: PolicyProgram, session: Session, state: TrainState, about: dict[str, str]) -> PolicyFile:
    """Return a program for any batch size, as `jax.export` stores it."""
    with needed("stablehlo", "--to stablehlo"):
        import flatbuffers  # noqa: F401 - of `serialize`
    inputs = _any_batch(program)
    exported = export.export(jax.jit(jaxpr_as_fun(_used(program, inputs))), platforms=_PLATFORMS)(*inputs)
    data = bytes(exported.serialize())
    return PolicyFile(data, export.deserialize(bytearray(data)).call)


def to_onnx(program: PolicyProgram, session: Session, state: TrainState, about: dict[str, str]) -> PolicyFile:
    """Return a model for any batch size, made by jax2onnx.

    Raises:
        HmxError: a package is missing, or the converter or onnxruntime does not support an operation of the policy.
    """
    if session.cfg.net.compute_dtype == "bfloat16":
        message = "cannot write this policy as ONNX: onnxruntime does not compute in bfloat16 (net.compute_dtype)"
        raise HmxError(message, "--to stablehlo")
    with needed("onnx", "--to onnx"):
        import jax2onnx
        import onnx
        import onnxruntime
    inputs = _any_batch(program)
    # Traced beforehand: the converter replaces the layers of Flax by its own operations, which vmap does not know.
    call = _convertible(_used(program, inputs))
    names = [[port.name for port in ports] for ports in (program.inputs, program.outputs)]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    logging.disable(logging.WARNING)  # it warns of shapes that it infers later
    try:
        model = jax2onnx.to_onnx(call, inputs, input_names=names[0], output_names=names[1])
        del model.graph.value_info[:]  # shapes of intermediate arrays, some of them wrong
        onnx.helper.set_model_props(model, about)
        data = bytes(model.SerializeToString())
        runtime = onnxruntime.InferenceSession(data, options)
    except Exception as problem:  # neither package lists what it raises for an operation it does not know
        message = f"cannot write this policy as ONNX: {one_line(problem)}"
        raise HmxError(message, "--to stablehlo writes every policy") from None
    finally:
        logging.disable(logging.NOTSET)

    def run(*arrays: Any) -> Sequence[Any]:
        outputs: Sequence[Any] = runtime.run(names[1], dict(zip(names[0], arrays, strict=True)))
        return outputs

    return PolicyFile(data, run)


FORMATS: Mapping[str, Callable[[PolicyProgram, Session, TrainState, dict[str, str]], PolicyFile]] = {
    "safetensors": to_safetensors,
    "stablehlo": to_stablehlo,
    "onnx": to_onnx,
}


def _any_batch(program: PolicyProgram) -> list[jax.ShapeDtypeStruct]:
    (batch,) = export.symbolic_shape("batch")
    return program.abstract_inputs(batch)


def _used(program: PolicyProgram, inputs: Sequence[jax.ShapeDtypeStruct]) -> ClosedJaxpr:
    """Trace a policy, and leave out what no output depends on: the draw of the action, and weights of the value."""
    traced = jax.make_jaxpr(program.call)(*inputs)
    used, _ = dce_jaxpr(traced.jaxpr, [True] * len(program.outputs), True)
    return ClosedJaxpr(used, traced.consts)


def _convertible(program: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Return the program in operations that jax2onnx knows.

    Calls are inlined, `stack` becomes `concatenate`, and what depends on no input is computed here: tables of integers
    among them, for which the converter has no operation.
    """

    def call(*arrays: Any) -> list[Any]:
        values = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        values.update(zip(program.jaxpr.invars, arrays, strict=True))

        def value(variable: Any) -> Any:
            return variable.val if isinstance(variable, Literal) else values[variable]

        for equation in program.jaxpr.eqns:
            results = _converted(equation, [value(variable) for variable in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [value(variable) for variable in program.jaxpr.outvars]

    return call


def _converted(equation: Any, arrays: list[Any]) -> list[Any]:
    """Return the results of one equation of `_convertible`."""
    primitive, params = equation.primitive, equation.params
    if primitive.name in _CALLS:
        return _convertible(params[_CALLS[primitive.name]])(*arrays)
    if primitive.name == "stack":
        axis = params["axis"]
        return [lax.concatenate([lax.expand_dims(array, [axis]) for array in arrays], axis)]
    if primitive.name == "select_n" and arrays[-1].dtype == jnp.uint32:  # onnxruntime 1.30 cannot
        signed = [lax.convert_element_type(array, jnp.int32) for array in arrays[1:]]
        return [lax.convert_element_type(lax.select_n(arrays[0], *signed), jnp.uint32)]
    sizes = [size for variable in equation.outvars for size in variable.aval.shape]
    if any(isinstance(array, jax.core.Tracer) for array in arrays) or not all(isinstance(size, int) for size in sizes):
        results = primitive.bind(*arrays, **params)
    else:
        with jax.ensure_compile_time_eval():
            results = primitive.bind(*arrays, **params)
    return results if primitive.multiple_results else [results]
