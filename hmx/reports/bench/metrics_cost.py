"""The cost of the reward, action and event metrics: whole updates with and without them, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

import jax

from hmx.algos.build import make_algorithm
from hmx.envs.protocol import Env, EnvState
from hmx.reports.bench.findings import MetricsCost
from hmx.reports.bench.hosted import make_updates
from hmx.reports.bench.measure import Updates, calls_for, estimate, time_in_turn
from hmx.runs.loop import abstract_state
from hmx.types import Array, Key, Timestep

_ROUNDS, _MOST_ROUNDS = 12, 40


def metrics_cost(updates: Updates, seconds: float) -> MetricsCost:
    """Compile the updates again without these metrics, and measure both programs in turn for about `seconds`."""
    session = updates.session
    env, run = silent(session.env), session.cfg.run
    algorithm = make_algorithm(session.cfg, env)
    # Not from disk, where programs are kept by their configuration, which is the same.
    abstract = abstract_state(algorithm, run.seed, run.num_seeds)
    quiet = session._replace(env=env, algorithm=algorithm, abstract=abstract, lowered=None)
    with closing(make_updates(quiet)) as without:
        calls = calls_for(updates.update, updates.length)
        works = {"with": partial(updates.update, calls), "without": partial(without.update, calls)}
        cpu = jax.default_backend() == "cpu"
        clock = partial(_cpu_seconds, updates, without) if cpu else time.perf_counter
        found = time_in_turn(works, _ROUNDS, most=_MOST_ROUNDS, seconds=seconds, clock=clock)
    pairs = [(one / calls, other / calls) for one, other in zip(found["with"], found["without"], strict=True)]
    return MetricsCost(
        rounds=len(pairs),
        seconds=estimate([one for one, _ in pairs]),
        without=estimate([other for _, other in pairs]),
        share=estimate([1 - other / one for one, other in pairs]),
    )


def _cpu_seconds(*updates: Updates) -> float:
    """Return the processor time of this process and of all workers, on which other programs have little effect."""
    own = time.process_time()
    return own + sum(each.cpu_seconds() - own for each in updates)


def silent(env: Env) -> Env:
    """Return the same environment without reward terms, kinds of actions and events.

    The compiler then removes everything that only they need. The episode metrics and the mean reward stay.
    """

    def quiet(timestep: Timestep) -> Timestep:
        return timestep._replace(terms={}, info={})

    def starting(reset: Callable[[Key], tuple[EnvState, Timestep]]) -> Callable[[Key], tuple[EnvState, Timestep]]:
        def begin(keys: Key) -> tuple[EnvState, Timestep]:
            state, timestep = reset(keys)
            return state, quiet(timestep)

        return begin

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        state, timestep = env.step(state, action, keys)
        return state, quiet(timestep)

    later = env.spec.later_reset
    spec = env.spec._replace(reward_terms=(), action_groups=(), later_reset=later and starting(later))
    return env._replace(spec=spec, reset=starting(env.reset), step=step)
