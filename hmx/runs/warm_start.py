"""Start a run from the network of another (`run.init_from`)."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence, Set
from typing import Any

import jax.numpy as jnp

from hmx.algos.types import TrainState
from hmx.config import codec, fields
from hmx.config.coerce import show
from hmx.errors import HmxError, counted
from hmx.runs import weights
from hmx.runs.restoring import find
from hmx.runs.session import Session, open_session

Changes = Mapping[str, tuple[object, object]]
Learned = dict[str, Any]
"""Parameters and statistics of observations and values by their path, with an axis of seeds if there are several."""


def read_learned(session: Session) -> tuple[Session, Learned, list[str]]:
    """Read the network that `run.init_from` names.

    Returns:
        The session, whose `run.init_from` now names the exact checkpoint; the arrays, one for each seed: those of the
        seed in the same position, or of the only seed; and warnings about newer checkpoints that cannot be used.

    Raises:
        HmxError: the network does not fit this configuration (exit code 2), or there is no such run or no intact
            checkpoint (3).
    """
    cfg = session.cfg
    source = find(cfg.run.init_from, cfg.run.root)
    other = open_session(source.cfg, source.paths)
    state, update, warnings = source.state(other, None)
    learned = _for_seeds(session, weights.named(state), source.cfg.run.num_seeds)
    if problems := weights.differences(session.abstract, learned):
        more = f" (and {counted(len(problems) - 1, 'more difference')})" if len(problems) > 1 else ""
        message = f"cannot start from {cfg.run.init_from}: its {problems[0]}{more}"
        config, other_run = shlex.quote(str(source.folder)), shlex.quote(cfg.run.init_from)
        hint = f"start from its configuration too: hmx train --config {config} --init-from {other_run}"
        raise HmxError(message, hint)
    changed = {key: pair for key, pair in codec.diff(source.cfg, cfg).items() if not fields.own_parts(key)}
    fixed = {*codec.shape_keys(cfg), *codec.shape_keys(source.cfg)} - {"ppo.reward_scale"}
    warnings = [*warnings, *_check_meaning(cfg.run.init_from, changed, fixed)]
    if source.checkpoints.is_dir():
        run = dataclasses.replace(cfg.run, init_from=str(source.checkpoints / str(update)))
        session = session._replace(cfg=dataclasses.replace(cfg, run=run))
    return session, learned, warnings


def _check_meaning(source: str, changed: Changes, fixed: Set[str]) -> list[str]:
    """Return a warning if a learned network predicted values of another meaning.

    Args:
        source: the run of the network.
        changed: keys with another value than there, with both values.
        fixed: keys that decide what a network computes from its parameters.

    Raises:
        HmxError: the network would compute other results from the same parameters.
    """
    wrong = [key for key in changed if key in fixed and key.startswith(("net.", "ppo."))]
    if wrong:
        settings = " ".join(f"--set {key}={show(changed[key][0])}" for key in wrong)
        raise HmxError(f"cannot start from {source}: {_became(changed, wrong)}", settings)
    scales = [key for key in ("algo.gamma", "ppo.reward_scale") if key in changed]
    what = f"the values that the network of {source} predicts have another meaning here"
    return [f"{what}: {_became(changed, scales)}"] if scales else []


def _became(changed: Changes, keys: Sequence[str]) -> str:
    return ", ".join(f"{key} was {show(changed[key][0])} and is {show(changed[key][1])}" for key in keys)


def start_from(state: TrainState, learned: Learned) -> TrainState:
    """Return a new state with a learned network; everything else, such as the optimiser, stays as it is."""
    return weights.replace(state, {name: jnp.array(leaf) for name, leaf in learned.items()})


def _for_seeds(session: Session, learned: Learned, there: int) -> Learned:
    here = session.cfg.run.num_seeds
    if here == there:
        return learned
    if there > 1:
        what = f"cannot start from {session.cfg.run.init_from}: it has {there} seeds, this run {here}"
        raise HmxError(what, f"--seeds {there} starts each seed from one of them")
    return {name: jnp.repeat(jnp.asarray(leaf)[None], here, 0) for name, leaf in learned.items()}
