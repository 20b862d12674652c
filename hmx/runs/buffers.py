"""Save and load replay buffers, and check that they fit a policy and its environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.envs.protocol import Env, EnvSpec
from hmx.errors import ExitCode, HmxError
from hmx.records import buffer_file, meta
from hmx.records.buffer_file import RECORDS, BufferHeader, differences, settings_of
from hmx.records.sealed_arrays import DTYPES, ArrayForm, StoredArray
from hmx.replay import ReplayState, blank
from hmx.runs.checkpoint import Forms, from_host, host_forms, leaf_names, to_host

Host = np.ndarray[Any, Any]

OBS, LEGAL, ACTION = SCORED = "obs_t", "legal_t", "action_t"
"""The items that scoring needs: `[size, A, ...]`, `[size, A, num_actions]` and int32 `[size, A]`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Buffer:
    """A replay buffer in host memory; the first axis of every array is the transitions `[size, ...]`, by slot."""

    header: BufferHeader
    items: Mapping[str, Host]  # the learner's transitions by name; scoring needs those of `SCORED`
    env_states: Mapping[str, Host]  # before each step, by the path of each leaf; empty if not saved
    td_errors: Host  # float32, latest |TD error|
    consequence_scores: Host  # float32; meaningless where not `scored`
    scored: Host  # bool
    scored_at: Host  # uint32, `num_added` when scored; meaningless where not `scored`
    birth: Host  # uint32, transitions added before this one


def from_replay(state: ReplayState, cfg: Config, spec: EnvSpec, *, run: str = "", update: int = 0) -> Buffer:
    """Copy the filled slots of a replay buffer (of one agent) to host memory."""
    items, env_states = to_host(state.items), to_host(state.env_states)
    rest = {name: np.asarray(getattr(state, name)) for name in (*RECORDS, "position", "size", "num_added", "td_max")}
    size = int(rest["size"])
    header = header_of(
        cfg, spec,
        capacity=len(rest["birth"]), size=size, position=int(rest["position"]), num_added=int(rest["num_added"]),
        td_max=float(rest["td_max"]), run=run, update=update,
    )  # fmt: skip
    axes = [spec.state_axis % leaf.ndim for leaf in jax.tree.leaves(state.env_states)]
    named_axes = zip(env_states.items(), axes, strict=True)
    states = {name: np.moveaxis(leaf, axis, 0)[:size] for (name, leaf), axis in named_axes}
    return Buffer(
        header=header,
        items={name: leaf[:size] for name, leaf in items.items()},
        env_states=states,
        **{name: rest[name][:size] for name in RECORDS},
    )


def header_of(cfg: Config, spec: EnvSpec, **ring: object) -> BufferHeader:
    """Return the header of a buffer filled under a configuration; `ring` has the fields that `cfg` does not give."""
    facts: dict[str, Any] = {
        "env": cfg.env.id,
        "settings": settings_of(cfg),
        "num_actions": spec.num_actions,
        "num_agents": spec.num_agents,
        "obs_shape": tuple(spec.obs_shape),
        "obs_dtype": np.dtype(spec.obs_dtype).name,
        "num_envs": cfg.env.num_envs,
        "gamma": cfg.algo.gamma,
        "created": meta.now(),
    }
    return BufferHeader(**(facts | ring))


def save(path: Path, buffer: Buffer) -> None:
    """Write a buffer atomically, replacing an existing file."""
    buffer_file.write(path, buffer.header, {name: stored(leaf, name) for name, leaf in named(buffer).items()})


def load(path: Path) -> Buffer:
    """Load a saved buffer.

    Raises:
        HmxError: it is missing, damaged, of a newer schema, or not a buffer (exit code 3).
    """
    header, data = buffer_file.read(path)
    arrays = {name: loaded(array) for name, array in data.items()}
    items, env_states = (
        {name.removeprefix(group): leaf for name, leaf in arrays.items() if name.startswith(group)}
        for group in ("items/", "env_states/")
    )
    return Buffer(header=header, items=items, env_states=env_states, **{name: arrays[name] for name in RECORDS})


def stored(array: Host, name: str) -> StoredArray:
    """Return an array in the form in which files keep it; refuse a dtype that they cannot contain."""
    if array.dtype.name not in DTYPES:
        raise HmxError(f"cannot save {name}: files cannot contain {array.dtype.name}", "use plain numbers")
    plain = np.ascontiguousarray(array).astype(DTYPES[array.dtype.name], copy=False).reshape(-1)
    return StoredArray(ArrayForm(array.shape, array.dtype.name), plain.view(np.uint8).data if plain.size else b"")


def loaded(array: StoredArray) -> Host:
    """Return an array of a file."""
    return np.frombuffer(array.data, DTYPES[array.form.dtype]).reshape(array.form.shape)


def named(buffer: Buffer) -> dict[str, Host]:
    """Return all arrays by their names in the file."""
    return {
        **{f"items/{name}": leaf for name, leaf in buffer.items.items()},
        **{f"env_states/{name}": leaf for name, leaf in buffer.env_states.items()},
        **{name: getattr(buffer, name) for name in RECORDS},
    }


def check(buffer: Buffer, cfg: Config, env: Env, what: str, learned: bool = False) -> None:
    """Check that a buffer fits a policy and its environment.

    `what` names the file. A buffer that is `learned` from by Q-learning needs all of `Experience`; one that is scored
    needs environment states.

    Raises:
        HmxError: it does not fit (each difference is named), or lacks something (exit code 3).
    """
    header = buffer.header
    other = "give the run that filled this buffer, or a buffer that this run filled"

    def refusal(why: str, hint: str, lines: Sequence[str] = ()) -> HmxError:
        return HmxError("\n  ".join([f"{what} {why}", *lines[:10]]), hint, ExitCode.ARTEFACT)

    if header.env != cfg.env.id:
        raise refusal(f"was filled in {quoted(header.env)}, but the policy plays {cfg.env.id}", other)
    if found := differences(header, settings_of(cfg)):
        raise refusal("was filled under other options than the policy:", other, found)
    if not buffer.env_states and not learned:
        raise refusal("has no environment states, which scoring needs", "save the buffer with its states")
    if not header.size:
        raise refusal("is empty", "save it after some training")
    items = _items_of(env.spec)
    wanted = {f"items/{name}": items[name] for name in (items if learned else SCORED)}
    wanted |= {} if learned else _states_of(env)
    problems = [_mismatch(name, form, named(buffer).get(name), header.size) for name, form in wanted.items()]
    extra = [name for name in named(buffer) if name.startswith("env_states/") and name not in wanted and not learned]
    problems += [f"{name}: not part of the environment's state" for name in extra]
    if found := [problem for problem in problems if problem]:
        raise refusal(f"does not fit {cfg.env.id}:", other, found)
    if illegal := _illegal_actions(buffer):
        raise refusal(f"is damaged: {illegal}", "use an intact copy")
    if learned and not np.isfinite(buffer.items["reward_tp1"]).all():
        raise refusal("is damaged: it has rewards that are not finite", "use an intact copy")


def env_states(buffer: Buffer, env: Env, index: Host) -> Any:
    """Return the environment states of some slots, as `env.step` takes them."""
    spec, abstract = env.spec, _abstract_state(env)
    leaves = {}
    for name, leaf in zip(leaf_names(abstract), jax.tree.leaves(abstract), strict=True):
        axis = spec.state_axis % leaf.ndim
        leaves[name] = np.moveaxis(buffer.env_states[name][index], 0, axis)
    return from_host(leaves, abstract)


def _abstract_state(env: Env) -> Any:
    return jax.eval_shape(lambda key: env.reset(jax.random.split(key, 1))[0], jax.random.key(0))


def _states_of(env: Env) -> Forms:
    """Return the shape and dtype of each leaf of one state, by path; typed keys as their data."""
    abstract = _abstract_state(env)
    found = {}
    for (name, form), leaf in zip(host_forms(abstract).items(), jax.tree.leaves(abstract), strict=True):
        axis = env.spec.state_axis % leaf.ndim
        found[f"env_states/{name}"] = form.update(shape=(*form.shape[:axis], *form.shape[axis + 1 :]))
    return found


def _items_of(spec: EnvSpec) -> Forms:
    items = jax.eval_shape(partial(blank, 1, spec.num_agents, spec.obs_shape, spec.obs_dtype, spec.num_actions))
    return {name: leaf.update(shape=leaf.shape[1:]) for name, leaf in items._asdict().items()}


def _mismatch(name: str, form: jax.ShapeDtypeStruct, found: Host | None, size: int) -> str:
    shape = (size, *form.shape)
    if found is None:
        return f"{name}: missing"
    if (found.shape, found.dtype) != (shape, form.dtype):
        return f"{name}: {found.dtype}{list(found.shape)}, needed as {form.dtype}{list(shape)}"
    return ""


def _illegal_actions(buffer: Buffer) -> str:
    """Return the first illegal action, if any: it would silently be played as another one."""
    action, legal = buffer.items[ACTION], buffer.items[LEGAL]
    inside = (action >= 0) & (action < legal.shape[-1])
    taken = np.take_along_axis(legal, np.where(inside, action, 0)[..., None].astype(np.int64), -1)[..., 0]
    bad = np.argwhere(~(inside & taken))
    return f"the action of slot {bad[0, 0]} is not legal ({len(bad):,} such)" if len(bad) else ""
