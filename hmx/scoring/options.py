"""How positions are scored, and the actions to try: the one taken, and its alternatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from hmx.config.learning import ScoreConfig
from hmx.envs.protocol import EnvSpec
from hmx.errors import HmxError

TeamReward = Literal["mean", "sum"]

MOST_JOINT_ACTIONS = 4096


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ScoreConfig):
    """How the consequence of an action is measured: the options of `[score]`, and settings of the run."""

    gamma: float  # discount per step of the learner
    team_reward: TeamReward  # how the learner combines the rewards of several agents
    null: bool = False  # also try the action taken with other random numbers, to measure the noise floor
    corrected: bool = False  # subtract the noise floor from scores
    redrawn: bool = False  # draw again what the player cannot see, where the environment offers it

    @property
    def is_binned(self) -> bool:
        """Whether distances are between histograms, which always have the distance of the null subtracted."""
        return self.metric.endswith("_bins")

    @property
    def needs_null(self) -> bool:
        """Whether the action taken is also tried with other random numbers."""
        return self.null or self.is_binned

    @property
    def needs_probs(self) -> bool:
        """Whether scores depend on the probabilities of the policy."""
        return self.actions == "topk" or self.aggregate == "policy"


def check_options(options: ScoreOptions, spec: EnvSpec, has_probs: bool, has_value: bool) -> None:
    """Refuse options that cannot work with an environment or policy (exit code 2)."""
    if options.needs_probs and not has_probs:
        name = "score.actions = topk" if options.actions == "topk" else "score.aggregate = policy"
        raise HmxError(
            f"cannot score with {name}: it needs probabilities of actions, and a greedy policy has none",
            "use a softmax or epsilon continuation, or other actions and another aggregate",
        )
    if options.bootstrap and not has_value:
        raise HmxError("cannot bootstrap rollouts: the policy has no value function", "set score.bootstrap = false")
    joint = spec.num_actions**spec.num_agents
    if options.actions == "all" and joint > MOST_JOINT_ACTIONS:
        raise HmxError(
            f"cannot try all actions: {spec.num_agents} agents have {joint:,} joint actions",
            "use score.actions = single, sampled or topk",
        )


def num_candidates(options: ScoreOptions, spec: EnvSpec) -> int:
    """Return the number of actions tried per position, including the one taken."""
    if options.actions == "all":
        return int(spec.num_actions**spec.num_agents)
    if options.actions == "single":
        return 1 + spec.num_agents * (spec.num_actions - 1)
    if options.actions == "sampled" and spec.num_agents == 1:
        return 1 + min(options.num_actions, spec.num_actions - 1)
    return 1 + min(options.num_actions, int(spec.num_actions**spec.num_agents) - 1)


def live_environments(options: ScoreOptions, spec: EnvSpec) -> int:
    """Return the number of environments for one position."""
    return (num_candidates(options, spec) + options.needs_null) * options.rollouts


def env_steps(options: ScoreOptions, spec: EnvSpec, num_positions: int) -> int:
    """Return the highest number of environment steps that scoring takes."""
    return num_positions * live_environments(options, spec) * options.horizon


class Candidates(NamedTuple):
    """Joint actions to try in each position; the first is the one taken.

    An entry that is not `valid` is illegal or a duplicate, and repeats the action taken.
    """

    action: Int[Array, "S K A"]
    valid: Bool[Array, "S K"]


def candidates(
    options: ScoreOptions,
    spec: EnvSpec,
    taken: Int[Array, "S A"],
    legal: Bool[Array, "S A num_actions"],
    keys: Key[Array, " S"],
    probs: Float[Array, "S A num_actions"] | None,
) -> Candidates:
    """Choose the actions to try."""
    number = num_candidates(options, spec) - 1
    if options.actions == "all":
        alternatives = _all(taken, spec.num_actions, number)
    elif options.actions == "single":
        alternatives = _single(taken, spec.num_actions)
    elif options.actions == "sampled":
        alternatives = _sampled(taken, legal, keys, number)
    else:
        assert probs is not None
        alternatives = _likeliest(jnp.where(legal, probs, 0.0), number + 1)
    allowed = jnp.take_along_axis(legal, alternatives.transpose(0, 2, 1), axis=2).all(1)
    actions = jnp.concatenate([taken[:, None], alternatives], 1)
    same = (actions[:, :, None] == actions[:, None]).all(-1)
    # The first equal entry comes earlier. A mask of pairs instead is miscompiled by XLA 0.10.2 for CPUs if there are
    # two actions.
    again = same.argmax(-1) < jnp.arange(actions.shape[1])[None]
    valid = jnp.concatenate([jnp.ones_like(allowed[:, :1]), allowed], 1) & ~again
    if options.actions == "topk":
        # One more than needed was chosen, in case the action taken is among them; the last valid one is dropped.
        order = jnp.argsort(~valid, axis=1, stable=True)[:, : number + 1]
        actions = jnp.take_along_axis(actions, order[..., None], 1)
        valid = jnp.take_along_axis(valid, order, 1)
    return Candidates(jnp.where(valid[..., None], actions, taken[:, None]), valid)


def joint_probs(probs: Float[Array, "S A num_actions"], actions: Int[Array, "S K A"]) -> Float[Array, "S K"]:
    """Compute the probabilities of joint actions under a policy of independent agents."""
    return jnp.take_along_axis(probs, actions.transpose(0, 2, 1), axis=2).prod(1)


def _all(taken: Array, num_actions: int, number: int) -> Array:
    """Enumerate all joint actions except the one taken, by counting in base `num_actions` with one digit per agent."""
    place = num_actions ** jnp.arange(taken.shape[1] - 1, -1, -1, dtype=jnp.int32)
    skipped = (taken * place[None]).sum(-1)[:, None]
    other = jnp.arange(number, dtype=jnp.int32)[None]
    joint = other + (other >= skipped)
    return joint[..., None] // place[None, None] % num_actions


def _single(taken: Array, num_actions: int) -> Array:
    """Enumerate the joint actions in which exactly one agent acts differently."""
    agents = taken.shape[1]
    agent = jnp.repeat(jnp.arange(agents), num_actions - 1)
    other = jnp.tile(jnp.arange(num_actions - 1, dtype=jnp.int32), agents)[None]
    replaced = other + (other >= taken[:, agent])
    is_agent = (agent[:, None] == jnp.arange(agents)[None])[None]
    return jnp.where(is_agent, replaced[..., None], taken[:, None])


def _sampled(taken: Array, legal: Array, keys: Array, number: int) -> Array:
    """Sample legal actions: without replacement for one agent, independently per agent for several."""
    shape = legal.shape[1:]
    if taken.shape[1] == 1:
        noise = jax.vmap(lambda key: jax.random.uniform(key, shape))(keys)
        is_other = legal & (jnp.arange(shape[1])[None, None] != taken[..., None])
        return jax.lax.top_k(jnp.where(is_other, noise, -1.0)[:, 0], number)[1].astype(jnp.int32)[..., None]
    noise = jax.vmap(lambda key: jax.random.uniform(key, (number, *shape)))(keys)
    return jnp.where(legal[:, None], noise, -1.0).argmax(-1).astype(jnp.int32)


def _likeliest(probs: Array, number: int) -> Array:
    """Find the most probable joint actions, agent by agent: extensions of the best prefixes contain the best."""
    best, chosen = jnp.ones((probs.shape[0], 1)), jnp.zeros((probs.shape[0], 1, 0), jnp.int32)
    for agent in range(probs.shape[1]):
        product = (best[..., None] * probs[:, None, agent]).reshape(probs.shape[0], -1)
        best, index = jax.lax.top_k(product, min(number, product.shape[1]))
        before, action = jnp.divmod(index, probs.shape[2])
        earlier = jnp.take_along_axis(chosen, before[..., None], 1)
        chosen = jnp.concatenate([earlier, action[..., None].astype(jnp.int32)], -1)
    return chosen
