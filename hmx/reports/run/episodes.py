"""Play episodes with the trained agent, and keep the best, the median and the worst with all their positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.types import Decision
from hmx.env.protocol import EnvSpec, take
from hmx.records.frozen import read_config
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonValue
from hmx.reports.run.findings import PlayedEpisode, PlayedEpisodes, PlayedStep
from hmx.reports.run.request import ReportOptions
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import seed_state
from hmx.runs.restoring import restore
from hmx.runs.session import Session, open_session
from hmx.runs.signals import interruptible
from hmx.types import Timestep

LONGEST = 1000  # steps of an episode, at most

_NUMBERS = 32  # of an observation, at most
_STREAM = 4  # of the seed: 0 to 3 are for training, evaluation, gradient reports and scores

Progress = Callable[[str, int, int], None]


class _Recorded(NamedTuple):
    """One step of all environments, on the host."""

    env_state: Any  # before the action
    obs: Any  # before the action; None where the environment describes or renders its states
    decision: Decision
    timestep: Timestep  # after it


def play_episodes(paths: RunPaths, options: ReportOptions, episodes: int, progress: Progress) -> PlayedEpisodes:
    """Play episodes from the newest intact checkpoint; of several agents the first one plays.

    Args:
        paths: of the run.
        options: seed, and whether to play greedily.
        episodes: how many, at least 1.
        progress: called after every step with the number of ended episodes.

    Raises:
        HmxError: the environment cannot be made (exit code 2), or there is no intact checkpoint (3).
    """
    cfg = read_config(paths)
    enable_cache()
    session = open_session(cfg)
    spec = session.env.spec
    restored = restore(session, paths)
    state = seed_state(restored.state, 0, cfg.run.num_seeds)
    steps, ends = interruptible(lambda: _play(session, state, options, episodes, progress))
    totals = np.stack([step.timestep.reward.sum(-1) for step in steps])
    returns = np.array([totals[: end + 1, e].sum() for e, end in enumerate(ends)])
    order = np.argsort(returns, kind="stable")
    chosen = {"best": order[-1], "median": order[(len(order) - 1) // 2], "worst": order[0]}
    if len(order) < len(chosen):
        chosen = {"best": order[-1]}
    shown = tuple(_episode(spec, place, steps, int(e), int(ends[e])) for place, e in chosen.items())
    ranked = tuple(sorted(float(x) for x in returns))
    return PlayedEpisodes(restored.update, options.seed, options.greedy, episodes, ranked, shown)


def _play(
    session: Session, state: Any, options: ReportOptions, episodes: int, progress: Progress
) -> tuple[list[_Recorded], np.ndarray[Any, Any]]:
    """Return the steps until all episodes have ended, and the last step of each environment's first episode."""
    env, algorithm = session.env, session.algorithm
    k_reset, k_steps = jax.random.split(jax.random.fold_in(jax.random.key(options.seed), _STREAM))

    @jax.jit
    def advance(
        env_state: Any, timestep: Timestep, carry: Any, reset: jax.Array, number: jax.Array
    ) -> tuple[Any, Timestep, Any, Decision]:
        k_act, k_env = jax.random.split(jax.random.fold_in(k_steps, number))
        seen = (carry, timestep.obs, timestep.legal, reset)
        decision, carry = algorithm.act(state, *seen, k_act, options.greedy)
        env_state, timestep = env.step(env_state, decision.action, jax.random.split(k_env, episodes))
        return env_state, timestep, carry, decision

    progress("compiling and playing episodes", 0, episodes)
    env_state, timestep = jax.jit(env.reset)(jax.random.split(k_reset, episodes))
    carry, reset = algorithm.initial_carry((episodes, env.spec.num_agents)), jnp.ones(episodes, bool)
    ends = np.full(episodes, -1)
    steps: list[_Recorded] = []
    longest = min(env.spec.max_steps or LONGEST, LONGEST)
    while (ends < 0).any() and len(steps) < longest:
        before = env_state, None if env.spec.describe or env.spec.render else timestep.obs
        env_state, timestep, carry, decision = advance(env_state, timestep, carry, reset, jnp.int32(len(steps)))
        reset = timestep.terminated | timestep.truncated
        lean = timestep._replace(obs=None, legal=None, final_obs=None, final_legal=None)
        steps.append(_Recorded(*jax.device_get((*before, decision, lean))))
        ends = np.where((ends < 0) & np.asarray(reset), len(steps) - 1, ends)
        progress("compiling and playing episodes", int((ends >= 0).sum()), episodes)
    return steps, np.where(ends < 0, len(steps) - 1, ends)


def _episode(spec: EnvSpec, place: str, steps: list[_Recorded], e: int, end: int) -> PlayedEpisode:
    played = tuple(_step(spec, step, e) for step in steps[: end + 1])
    last = steps[end].timestep
    won = any(name.startswith("wins") and value[e] > 0 for name, value in last.info.items())
    ending = "won" if won else "ended" if last.terminated[e] else "step limit" if last.truncated[e] else "not finished"
    return PlayedEpisode(place, sum(step.reward for step in played), len(played), ending, played)


def _step(spec: EnvSpec, step: _Recorded, e: int) -> PlayedStep:
    actions, probs = step.decision.action[e], step.decision.probs[e]
    value = float(np.mean(step.decision.value[e]))
    names = spec.action_names
    if spec.action_dim:
        action = ", ".join(f"{x:+.2f}" for x in np.asarray(actions).reshape(-1))
    else:
        action = ", ".join(names[int(index)] if int(index) < len(names) else str(int(index)) for index in actions)
    terms = {name: round(float(values[e]), 6) for name, values in step.timestep.terms.items() if values[e]}
    return PlayedStep(
        state=_state(spec, step, e),
        action=action,
        probabilities={names[i]: float(p) for i, p in enumerate(probs[0]) if p > 0} if len(probs) == 1 else {},
        value=value if np.isfinite(value) else None,
        reward=round(float(step.timestep.reward[e].sum()), 6),
        terms=terms,
    )


def _state(spec: EnvSpec, step: _Recorded, e: int) -> Mapping[str, JsonValue]:
    """Describe a position as the environment does, or else by its text or by the start of its observation."""
    if step.obs is None:
        state = take(spec, step.env_state, np.array([e]))
        if spec.describe is not None:
            return spec.describe(state)
        if spec.render is not None:
            return {"text": spec.render(state)}
    return {"observation": [[float(x) for x in agent.reshape(-1)[:_NUMBERS]] for agent in step.obs[e]]}
