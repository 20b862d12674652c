"""The gradient report of stored transitions, which shows the ones that drive the update of Q-learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.dqn import gradient_terms as q_terms
from hmx.algos.dqn.learning import DqnComponents
from hmx.algos.dqn.update import DqnState, make_dqn_components
from hmx.algos.gradients import results
from hmx.algos.gradients.buckets import Bucket, Floats, Host, Ints, split
from hmx.algos.gradients.measures import BucketGradients, Sums, clip_scale, measure
from hmx.algos.gradients.per_group import GroupGradients, layers
from hmx.algos.gradients.request import ProbeRequest, RankBy
from hmx.algos.gradients.stored import Stored, drawn, episodes, seed_of
from hmx.algos.types import Params
from hmx.errors import HmxError
from hmx.replay import ReplayState
from hmx.replay.offline import history
from hmx.stats.ranks import spearman
from hmx.types import Key

_UNKNOWN: dict[RankBy, tuple[str, str]] = {
    "consequence": ("none has a score", "--by td, or score them: hmx score-buffer RUN --write-back"),
    "return": ("it holds no whole episode", "--by td"),
    "reward_std": ("no two whole episodes in it start from the same observation", "--by td"),
}


def of_state(parts: DqnComponents, replay: ReplayState) -> Stored:
    """Return the buffer of a train state."""
    size = int(replay.size)
    full = make_dqn_components(parts.cfg, parts.env).replay
    return Stored(
        name="the buffer of this checkpoint",
        num_envs=parts.cfg.env.num_envs,
        num_added=int(replay.num_added),
        birth=np.asarray(replay.birth)[:size],
        items=replay.items,
        td_errors=np.asarray(replay.td_errors)[:size],
        scored=np.asarray(replay.scored)[:size],
        scores=np.asarray(replay.consequence_scores)[:size],
        probs=np.asarray(jax.jit(full.probs)(replay))[:size],
    )


class ReplayReporter:
    """Report as `make_reporter` says on transitions drawn uniformly from the state's buffer or a saved one.

    The transitions themselves are ranked; those of a bucket are assigned to groups at random, so that the differences
    between groups measure the noise in a bucket.
    """

    def __init__(self, components: DqnComponents, request: ProbeRequest, stored: Stored | None) -> None:
        num_envs = components.cfg.env.num_envs if stored is None else stored.num_envs
        self.request, self.stored = request, stored
        self.parts = q_terms.with_num_envs(components, num_envs)
        self.functions = q_terms.make_td_functions(self.parts, True, request.chunk)

    def __call__(
        self, state: DqnState, hypers: Mapping[str, float], key: Key, reference: Params | None = None
    ) -> results.GradReport:
        """Report on `state`."""
        request, algo = self.request, self.parts.cfg.algo
        results.check_no_reference(reference)
        results.check_gradient_memory(request, state.params, 2)
        stored = self.stored or of_state(self.parts, state.learner.replay)
        assert stored.probs is not None and stored.td_errors is not None
        seed = seed_of(key)
        slots = drawn(stored, request.groups * request.per_group, [*seed, 0])
        found = self._targets(state, stored, slots)
        error = np.abs(found.td_error.astype(np.float64))
        figure = self._figure(stored, slots, error)
        buckets, groups = _in_groups(request, figure, seed)
        beta = float(hypers.get("is_beta", 0.0))
        density = stored.probs[slots].astype(np.float64) * stored.size
        target, weight = np.zeros((2, stored.size), np.float32)
        target[slots], weight[slots] = found.target, density ** (1.0 - beta)
        chosen = [slots[group] for group in groups]
        grads = q_terms.group_gradients(self.functions, state.params, stored.items, chosen, target, weight)
        steps = np.array([len(group) for group in groups], np.float64)
        uniform, replayed = (
            measure(_component(grads, c, steps), buckets, q_terms.COEFS, layers(state.params)) for c in range(2)
        )
        score = np.array([figure[group].mean() for group in groups])
        weighted = {found.name: found for found in (*replayed.buckets, replayed.whole)}

        def bucket(found: BucketGradients) -> results.BucketReport:
            members = np.concatenate([groups[g] for g in found.groups])
            return results.BucketReport(
                **vars(found),
                score=results.summary(score[list(found.groups)]),
                td_error=float(error[members].mean()),
                draws=float(density[members].sum() / density.sum()),
                replayed_share=weighted[found.name].share,
                replayed_norm=weighted[found.name].components[q_terms.TD].norm,
            )

        return results.GradReport(
            request=request,
            algo=algo.name,
            source="replay",
            rank=request.rank,
            coefs=q_terms.COEFS,
            clip_scale=clip_scale(replayed, algo.max_grad_norm),
            consistency=results.Consistency(td_rank=spearman(stored.td_errors[slots], error)),
            buckets=tuple(map(bucket, uniform.buckets)),
            whole=bucket(uniform.whole),
            cos=uniform.cos,
            score=score,
            stored=stored.size,
            replay=results.ReplaySample(
                beta=beta,
                prioritised=bool(np.ptp(density) > 1e-6),
                slots=tuple(tuple(int(slot) for slot in group) for group in chosen),
            ),
        )

    def _targets(self, state: DqnState, stored: Stored, slots: Ints) -> q_terms.TdTargets:
        # An empty slot has the birth of the very first transition, which follows no other.
        birth = np.pad(stored.birth, (0, len(jax.tree.leaves(stored.items)[0]) - stored.size))
        past = history(stored.items, jnp.asarray(birth))
        return q_terms.td_targets_of(self.functions, state.params, state.learner.target_params, past, slots)

    def _figure(self, stored: Stored, slots: Ints, error: Floats) -> Floats:
        """Return the values that rank the transitions, `[n]`; NaN where unknown."""
        figure: Floats = np.asarray(self._value(stored, slots, error), np.float64)
        if np.isnan(figure).all():
            by = self.request.rank
            why, hint = _UNKNOWN[by]
            number = f" among {len(slots):,} of {stored.size:,}" if by == "consequence" else ""
            raise HmxError(f"cannot rank the transitions of {stored.name} by {by}: {why}{number}", hint)
        return figure

    def _value(self, stored: Stored, slots: Ints, error: Floats) -> Host:
        assert stored.probs is not None and stored.scores is not None and stored.scored is not None
        match self.request.rank:
            case "td":
                return error
            case "priority":
                return stored.probs[slots] * np.float64(stored.size)
            case "age":
                return np.asarray(np.uint32(stored.num_added % 2**32) - stored.birth[slots])
            case "consequence":
                return np.where(stored.scored, stored.scores, np.nan)[slots]
            case "return":
                return episodes(stored)[0][slots]
            case "reward_std":
                return episodes(stored)[1][slots]


def _component(grads: GroupGradients, component: int, steps: Floats) -> Sums:
    """Return the sums of one component; each transition counts as one sample and one step."""
    chosen = slice(component, component + 1)
    return Sums(grads.losses[:, chosen], grads.grads[:, chosen], steps, steps)


def _in_groups(request: ProbeRequest, figure: Floats, seed: Sequence[int]) -> tuple[tuple[Bucket, ...], list[Ints]]:
    """Rank transitions into buckets, and divide each bucket at random into groups of `per_group` and a remainder."""
    shuffled = np.random.default_rng([*seed, 1]).permutation(len(figure))
    place = np.argsort(shuffled)
    buckets: list[Bucket] = []
    groups: list[Ints] = []
    for bucket in split(figure, request.buckets, request.own_zero):
        members = np.array(bucket.groups)
        members = members[np.argsort(place[members])]
        first = len(groups)
        groups += [members[i : i + request.per_group] for i in range(0, len(members), request.per_group)]
        buckets.append(Bucket(bucket.name, tuple(range(first, len(groups)))))
    return tuple(buckets), groups
