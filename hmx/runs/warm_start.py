"""Read the networks of other runs: the one to start from (`run.init_from`), and the reference policy (`ppo.ref`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from hmx.config import codec, fields
from hmx.config.coerce import show
from hmx.envs.protocol import EnvSpec
from hmx.errors import HmxError, counted
from hmx.runs import weights
from hmx.runs.checkpoint import has_reference
from hmx.runs.restoring import Run
from hmx.runs.session import Session

Changes = Mapping[str, tuple[object, object]]
Learned = dict[str, Any]
"""Parameters and statistics of observations and values by their path, with an axis of seeds if there are several."""


class _Use(NamedTuple):
    """What a network of another run is for, in messages."""

    key: str  # of the option that names the run
    cannot: str
    with_config: str  # hint: what to do with the configuration of that run
    option: str  # of a command, up to the name of the run
    each: str  # what several seeds do with several networks


_INIT = _Use("run.init_from", "start from", "start from its configuration too", "--init-from ", "starts each seed from")
_REF = _Use(
    "ppo.ref", "keep close to", "train its network", "--set ppo.ref_kl_coef=0.1 --set ppo.ref=",
    "keeps each seed close to",
)  # fmt: skip


def read_learned(session: Session) -> tuple[Session, Learned, list[str]]:
    """Read the network that `run.init_from` names.

    Returns:
        The session, whose `run.init_from` now names the exact checkpoint; the arrays, one for each seed: those of the
        seed in the same position, or of the only seed; and warnings about newer checkpoints that cannot be used.

    Raises:
        HmxError: the network does not fit this configuration (exit code 2), or there is no such run or no intact
            checkpoint (3).
    """
    return _read(session, _INIT)


def read_reference(session: Session) -> tuple[Session, Learned, list[str]]:
    """Read the reference policy that `ppo.ref` names; results and errors as of `read_learned`.

    Only its policy counts, so its discount, scale of rewards and transformation of values may differ.
    """
    if not has_reference(session.abstract):
        name = session.cfg.algo.name
        raise HmxError(f"cannot use ppo.ref: {name} has no reference policy in its state", "--set ppo.ref=")
    return _read(session, _REF)


def _read(session: Session, use: _Use) -> tuple[Session, Learned, list[str]]:
    cfg = session.cfg
    name = str(fields.get(cfg, use.key))
    source = Run.find(name, cfg.run.root)
    other = source.open()
    config, option = shlex.quote(str(source.folder)), use.option
    hint = f"{use.with_config}: hmx train --config {config} {option}{shlex.quote(name)}"
    if use is _REF and (apart := _other_spaces(other.env.spec, session.env.spec)):
        raise HmxError(f"cannot {use.cannot} {name}: {apart}", hint)
    restored = source.policy(other)
    learned = _for_seeds(session, weights.named(restored.state), source.cfg.run.num_seeds, use)
    if problems := weights.differences(session.abstract, learned):
        more = f" (and {counted(len(problems) - 1, 'more difference')})" if len(problems) > 1 else ""
        raise HmxError(f"cannot {use.cannot} {name}: its {problems[0]}{more}", hint)
    changed = {key: pair for key, pair in codec.diff(source.cfg, cfg).items() if not fields.own_parts(key)}
    fixed = {*codec.shape_keys(cfg), *codec.shape_keys(source.cfg)} - {"ppo.reward_scale"}
    _check_meaning(f"cannot {use.cannot} {name}", changed, fixed - ({"ppo.value_target"} if use is _REF else set()))
    scales = [key for key in ("algo.gamma", "ppo.reward_scale") if key in changed and use is _INIT]
    what = f"the values that the network of {name} predicts have another meaning here"
    warnings = [*restored.warnings, *([f"{what}: {_became(changed, scales)}"] if scales else [])]
    if source.checkpoints.is_dir():
        session = session.changed({use.key: str(source.checkpoints / str(restored.update))})
    return session, learned, warnings


def _other_spaces(there: EnvSpec, here: EnvSpec) -> str:
    """Describe the first difference between the observations and actions of two environments; empty without any."""
    for what, name in _SPACES.items():
        found, wanted = (_shown(getattr(spec, name)) for spec in (there, here))
        if found != wanted:
            return f"{what.format(found)} in {there.id}, where it played, but {wanted} in {here.id}"
    return ""


def _shown(value: Any) -> str:
    """Show a shape, a number or a data type."""
    if isinstance(value, tuple):
        return str(list(value))
    return str(value if isinstance(value, int) else np.dtype(value).name)


_SPACES = {
    "observations have the shape {}": "obs_shape",
    "observations are {}": "obs_dtype",
    "there are {} discrete actions": "num_actions",
    "the parts of an action have {} choices": "action_parts",
    "continuous actions have {} numbers": "action_dim",
}


def _check_meaning(cannot: str, changed: Changes, fixed: Set[str]) -> None:
    """Refuse a network that would compute other results here from the same parameters (exit code 2).

    Args:
        cannot: beginning of the message.
        changed: keys with another value than there, with both values.
        fixed: keys that decide what a network computes from its parameters.
    """
    wrong = [key for key in changed if key in fixed and key.startswith(("net.", "ppo."))]
    if wrong:
        settings = " ".join(f"--set {key}={show(changed[key][0])}" for key in wrong)
        raise HmxError(f"{cannot}: {_became(changed, wrong)}", settings)


def _became(changed: Changes, keys: Sequence[str]) -> str:
    return ", ".join(f"{key} was {show(changed[key][0])} and is {show(changed[key][1])}" for key in keys)


def _for_seeds(session: Session, learned: Learned, there: int, use: _Use) -> Learned:
    here = session.cfg.run.num_seeds
    if here == there:
        return learned
    if there > 1:
        name = fields.get(session.cfg, use.key)
        what = f"cannot {use.cannot} {name}: it has {there} seeds, this run {here}"
        raise HmxError(what, f"--seeds {there} {use.each} one of them")
    return {name: np.repeat(np.asarray(leaf)[None], here, 0) for name, leaf in learned.items()}
