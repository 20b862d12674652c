"""The gradient report of stored transitions: which of them drive what Q-learning learns from its buffer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.dqn import TrainState, make_parts
from hmx.agents.q_learning import Parts
from hmx.analysis.buckets import Bucket, Floats, split
from hmx.analysis.gradients import GroupGradients, layers
from hmx.analysis.measures import Sums, clip_scale, measure
from hmx.analysis.q_terms import COEFS, Networks, Terms, at, group_gradients, judged, make_terms
from hmx.analysis.ranking import check_rank
from hmx.analysis.spec import GradReport, Replayed, Reporter, Spec, check_memory, check_q, no_reference
from hmx.analysis.stored import Stored, drawn, episodes, seed_of
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.replay import ReplayState
from hmx.replay.offline import history
from hmx.stats.ranks import spearman
from hmx.types import Key

Host = np.ndarray[Any, Any]

OWN_ZERO = ("td", "consequence", "reward_std")
"""Figures for which 0 means something of its own."""

_NONE_KNOWN = {
    "consequence": ("none has a score", "--by td, or score them: hmx score-buffer RUN --write-back"),
    "return": ("it holds no whole episode", "--by td"),
    "length": ("it holds no whole episode", "--by td"),
    "reward_std": ("no two whole episodes in it begin with the same observation", "--by td"),
}


class _Kit(NamedTuple):
    parts: Parts
    spec: Spec
    stored: Stored | None
    terms: Terms


def make_replay_reporter(cfg: Config, env: Env, spec: Spec, stored: Stored | None = None) -> Reporter:
    """A reporter as of `make_reporter`, for transitions drawn evenly from a buffer: that of the state, or a saved one.

    Each figure ranks the transitions themselves; those of a bucket are dealt into groups at random, so that groups say
    how much chance there is in a bucket.

    Raises:
        HmxError: the request makes no sense (exit code 2).
    """
    check_q(spec)
    check_rank(spec.by, env.spec, has_memory=False)
    parts = make_parts(cfg, env)
    parts = at(parts, cfg.env.num_envs if stored is None else stored.num_envs)
    return partial(_report, _Kit(parts, spec, stored, make_terms(parts, True)))


def of_state(parts: Parts, replay: ReplayState) -> Stored:
    """The buffer that a train state carries."""
    size = int(replay.size)
    from_full = make_parts(parts.cfg, parts.env).replay
    return Stored(
        name="the buffer of this checkpoint",
        num_envs=parts.cfg.env.num_envs,
        num_added=int(replay.num_added),
        birth=np.asarray(replay.birth)[:size],
        items=replay.items,
        td_errors=np.asarray(replay.td_errors)[:size],
        scored=np.asarray(replay.scored)[:size],
        scores=np.asarray(replay.consequence_scores)[:size],
        probs=np.asarray(jax.jit(from_full.probs)(replay))[:size],
    )


def _report(kit: _Kit, state: TrainState, hypers: Mapping[str, float], key: Key, reference: Any = None) -> GradReport:
    spec, algo = kit.spec, kit.parts.cfg.algo
    no_reference(reference)
    check_memory(spec, state.params, 2)
    stored = kit.stored or of_state(kit.parts, state.replay)
    seed = seed_of(key)
    slots = drawn(stored, spec.groups * spec.per_group, [*seed, 0])
    # an empty slot has the birth of the first transition of all, which follows none
    birth = np.pad(stored.birth, (0, len(jax.tree.leaves(stored.items)[0]) - stored.size))
    past = history(stored.items, jnp.asarray(birth))
    found = judged(kit.terms, Networks(state.params, state.target_params), past, slots)
    error = np.abs(found.td_error.astype(np.float64))
    figure = _figures(kit, stored, slots, error)
    buckets, groups = _dealt(spec, figure, seed)
    beta = float(hypers.get("is_beta", 0.0))
    density = stored.probs[slots].astype(np.float64) * stored.size
    target, weight = np.zeros((2, stored.size), np.float32)
    target[slots], weight[slots] = found.target, density ** (1.0 - beta)
    taken = [slots[group] for group in groups]
    grads = group_gradients(kit.terms, state.params, stored.items, taken, target, weight, spec.chunk)
    steps = np.array([len(group) for group in groups], np.float64)
    uniform, replayed = (measure(_one(grads, c, steps), buckets, COEFS, layers(state.params)) for c in range(2))
    return GradReport(
        spec=spec,
        algo=algo.name,
        coefs=COEFS,
        measures=uniform,
        clip_scale=clip_scale(replayed, algo.max_grad_norm),
        **_no_episodes(len(groups)),
        score=np.array([figure[group].mean() for group in groups]),
        stored=stored.size,
        replay=Replayed(
            measures=replayed,
            beta=beta,
            prioritised=bool(np.ptp(density) > 1e-6),
            draws={b.name: _share(density, groups, b) for b in buckets},
            slots=tuple(tuple(int(slot) for slot in group) for group in taken),
            td_rank=spearman(stored.td_errors[slots], error),
            td_error=np.array([error[group].mean() for group in groups]),
        ),
    )


def _one(grads: GroupGradients, component: int, steps: Floats) -> Sums:
    """The sums of one component alone; a transition is a sample and a step."""
    chosen = slice(component, component + 1)
    return Sums(grads.losses[:, chosen], grads.grads[:, chosen], steps, steps)


def _no_episodes(num_groups: int) -> dict[str, Any]:
    """The fields of a report that are about episodes."""
    unknown = np.full((num_groups, 1), np.nan)
    return {
        "returns": unknown,
        "lengths": unknown,
        "cut": np.zeros((num_groups, 1), bool),
        "reward_std": unknown[:, 0],
        "rv_action": None,
        "one_start": False,
        "ratio_error": None,
        "crossfit": None,
    }


def _figures(kit: _Kit, stored: Stored, slots: Host, error: Floats) -> Floats:
    """What ranks each of the transitions, `[n]`; NaN where that is not known."""
    figure: Floats = np.asarray(_figure(kit, stored, slots, error), np.float64)
    if np.isnan(figure).all():
        why, hint = _NONE_KNOWN[kit.spec.by]
        number = f" among {len(slots):,} of {stored.size:,}" if kit.spec.by == "consequence" else ""
        raise HmxError(f"the transitions of {stored.name} cannot be ranked by {kit.spec.by}: {why}{number}", hint)
    return figure


def _figure(kit: _Kit, stored: Stored, slots: Host, error: Floats) -> Any:
    spec = kit.parts.env.spec
    match kit.spec.by:
        case "td":
            return error
        case "priority":
            return stored.probs[slots] * np.float64(stored.size)
        case "age":
            return np.uint32(stored.num_added % 2**32) - stored.birth[slots]
        case "level":
            assert spec.level is not None
            return np.asarray(spec.level(stored.items.obs_t[slots])).max(-1)
        case "consequence":
            return np.where(stored.scored, stored.scores, np.nan)[slots]
    whole = episodes(stored)
    return {"return": whole.ret, "length": whole.length, "reward_std": whole.start_std}[kit.spec.by][slots]


def _dealt(spec: Spec, figure: Floats, seed: list[int]) -> tuple[tuple[Bucket, ...], list[Host]]:
    """Buckets of transitions by rank, each dealt at random into groups of `per_group` and one of what remains."""
    own = spec.by in OWN_ZERO and not spec.rank_zeros
    order = np.random.default_rng([*seed, 1]).permutation(len(figure))
    place = np.empty(len(figure), int)
    place[order] = np.arange(len(figure))
    buckets: list[Bucket] = []
    groups: list[Host] = []
    for bucket in split(figure, spec.buckets, own):
        members = np.array(bucket.groups)
        members = members[np.argsort(place[members])]
        first = len(groups)
        groups += [members[i : i + spec.per_group] for i in range(0, len(members), spec.per_group)]
        buckets.append(Bucket(bucket.name, tuple(range(first, len(groups)))))
    return tuple(buckets), groups


def _share(density: Floats, groups: list[Host], bucket: Bucket) -> float:
    return float(sum(density[groups[g]].sum() for g in bucket.groups) / density.sum())
