"""A trained policy as a function of arrays alone, with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from hmx.algos.types import TrainState
from hmx.envs.protocol import EnvSpec, Quantity
from hmx.registry.observations import is_image
from hmx.runs.session import Session
from hmx.types import Array

Arrays = tuple[Any, ...]


class Port(NamedTuple):
    """An input or output of an exported policy: an array `[B, *shape]`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    meaning: str
    low: float | None = None  # of every element; None if there is no limit, or `quantities` have their own
    high: float | None = None
    names: tuple[str, ...] = ()  # of the discrete actions that it numbers or has one element for
    parts: tuple[int, ...] = ()  # choices of each part of an action that has several, side by side in masks
    quantities: tuple[Quantity, ...] = ()  # its elements in order, if the environment describes them


class PolicyProgram(NamedTuple):
    """A policy as a function of batches.

    `call` takes and returns arrays in the order of the ports. A recurrent policy takes its hidden state as the last
    inputs and returns the next one as the last outputs; `initial` has the arrays that an episode starts from.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    initial: tuple[np.ndarray, ...]
    call: Callable[..., Arrays]

    def abstract_inputs(self, batch: Any) -> list[jax.ShapeDtypeStruct]:
        """Return shapes and dtypes of the inputs for a batch size, which may be symbolic."""
        return [jax.ShapeDtypeStruct((batch, *port.shape), port.dtype) for port in self.inputs]


def make_program(session: Session, state: TrainState) -> PolicyProgram:
    """Return the policy of one agent's state, with everything that acting needs inside.

    It takes the most probable action, in the units of the environment; PPO also returns the probabilities that it
    samples from. If only the value reads a part of the observations, the inputs leave out that part, and the outputs
    leave out the value. The input `reset` and hidden states are left out if no output depends on them.
    """
    spec, algorithm = session.env.spec, session.algorithm
    agents = () if spec.num_agents == 1 else (spec.num_agents,)
    lead = (0, 0) if spec.num_agents == 1 else (0,)
    hidden, structure = jax.tree.flatten(algorithm.initial_carry((1, spec.num_agents)))
    initial = tuple(np.asarray(leaf[lead]) for leaf in hidden)
    hidden_ports = [
        Port(f"hidden_{i}", leaf.shape, str(leaf.dtype), "hidden state; ignored where reset is true")
        for i, leaf in enumerate(initial)
    ]
    names = [port.name for port in hidden_ports]

    def widened(array: Array) -> Array:
        return jnp.expand_dims(array, range(len(lead)))

    def unbatched(kept: Sequence[str], arrays: dict[str, Array]) -> Arrays:
        # A batch of one: the networks see known sizes even if the batch size is unknown.
        before = [arrays.get(name, jnp.asarray(start)) for name, start in zip(names, initial, strict=True)]
        carry = jax.tree.unflatten(structure, [widened(leaf) for leaf in before])
        mask = arrays.get("mask", jnp.zeros((*agents, 0), bool))
        reset = arrays.get("reset", jnp.zeros((), bool))
        key = jax.random.key(0)  # of the action, which is not drawn
        obs = widened(_completed(spec, arrays["obs"]))
        decision, after = algorithm.act(state, carry, obs, widened(mask), reset[None], key, True)
        action = decision.action if spec.num_actions else within_limits(decision.action, action_quantities(spec))
        chosen = [action, decision.probs] if spec.num_actions else [action]
        value = () if spec.value_only else (decision.value,)
        remembered = [leaf for name, leaf in zip(names, jax.tree.leaves(after), strict=True) if name in kept]
        return tuple(leaf[lead] for leaf in (*chosen, *value, *remembered))

    def program(inputs: list[Port], kept: Sequence[str]) -> PolicyProgram:
        def call(*arrays: Array) -> Arrays:
            by_name = dict(zip([port.name for port in inputs], arrays, strict=True))
            return jax.vmap(partial(unbatched, kept))(by_name)

        starts = tuple(start for name, start in zip(names, initial, strict=True) if name in kept)
        made = PolicyProgram(tuple(inputs), (), starts, call)
        shapes = jax.eval_shape(call, *made.abstract_inputs(1))
        return made._replace(outputs=_outputs(spec, shapes, kept))

    inputs = [*_inputs(spec, agents), *hidden_ports]
    kept: list[str] = []
    while True:
        used = _used_inputs(program(inputs, kept))
        needed = [name for name in names if name in used]
        if needed == kept:
            break
        kept = needed
    optional = {"reset", *names} - used
    return program([port for port in inputs if port.name not in optional], kept)


def _completed(spec: EnvSpec, obs: Array) -> Array:
    """Return an observation with zeros in place of what only the value reads."""
    if not spec.value_only:
        return obs
    return jnp.concatenate([obs, jnp.zeros((*obs.shape[:-1], spec.value_only), obs.dtype)], axis=-1)


def policy_numbers(spec: EnvSpec) -> int | None:
    """Return how many numbers at the start of an observation the policy reads; None for all."""
    return spec.obs_shape[-1] - spec.value_only if spec.value_only else None


def action_quantities(spec: EnvSpec) -> tuple[Quantity, ...]:
    """Return the numbers of a continuous action; without a description they are in [-1, 1] without a unit."""
    unknown = tuple(Quantity(f"action_{i}", "", -1.0, 1.0) for i in range(spec.action_dim))
    return spec.action_quantities or unknown


def within_limits(action: Array, quantities: tuple[Quantity, ...]) -> Array:
    """Return actions `[..., D]` in the units of the environment, given those in [-1, 1]."""
    shape = (*(1 for _ in action.shape[:-1]), -1)
    low = np.array([quantity.low for quantity in quantities], np.float32).reshape(shape)
    high = np.array([quantity.high for quantity in quantities], np.float32).reshape(shape)
    scaled = (high + low) / 2 + (high - low) / 2 * jnp.clip(action, -1.0, 1.0)
    return jnp.clip(scaled, low, high)  # rounding may have passed a limit


def _inputs(spec: EnvSpec, agents: tuple[int, ...]) -> list[Port]:
    """Return the inputs that are not the hidden state."""
    meaning, dtype, read = "observation of the environment", str(jnp.dtype(spec.obs_dtype)), policy_numbers(spec)
    shape = spec.obs_shape if read is None else (*spec.obs_shape[:-1], read)
    if is_image(shape):
        meaning += " [height, width, channels]"
    if read is not None:
        meaning += f", without its last {spec.value_only} numbers, which only the value reads"
    meaning += ", before any normalisation"
    ports = [Port("obs", (*agents, *shape), dtype, meaning, quantities=spec.obs_quantities[:read])]
    if spec.num_actions:
        shape, parts = (*agents, spec.num_actions), spec.action_parts
        ports.append(Port("mask", shape, "bool", "whether each action is legal", names=spec.action_names, parts=parts))
    return [*ports, Port("reset", (), "bool", "whether the observation is the first of an episode")]


def _outputs(spec: EnvSpec, shapes: Arrays, hidden: Sequence[str]) -> tuple[Port, ...]:
    def port(name: str, meaning: str, **facts: Any) -> Port:
        shape = next(left)
        return Port(name, shape.shape[1:], str(shape.dtype), meaning, **facts)

    left = iter(shapes)
    if spec.num_actions:
        about: dict[str, Any] = {"names": spec.action_names, "parts": spec.action_parts}
        last = max(spec.action_parts or (spec.num_actions,)) - 1.0
        what = "number of the most probable action" + (" of each part" if spec.action_parts else "")
        ports = [
            port("action", what, low=0.0, high=last, **about),
            port("probs", "probability of each action, 0 where illegal", low=0.0, high=1.0, **about),
        ]
    else:
        ports = [port("action", "most probable action, squashed and scaled", quantities=action_quantities(spec))]
    if not spec.value_only:
        ports.append(port("value", "expected return, as the value function was trained"))
    return (*ports, *(port(f"next_{name}", f"{name} of the next step") for name in hidden))


def _used_inputs(program: PolicyProgram) -> set[str]:
    """Return the names of the inputs that some output depends on."""
    traced = jax.make_jaxpr(program.call)(*program.abstract_inputs(1)).jaxpr
    _, used = dce_jaxpr(traced, [True] * len(traced.outvars), False)
    return {port.name for port, is_used in zip(program.inputs, used, strict=True) if is_used}
