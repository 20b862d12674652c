"""Evidence of `hmx doctor` about the environment: its mask, and the ends of its episodes."""

from __future__ import annotations

import math

from hmx.registry.environments import extra_of, find_environment, known_sizes, step_limit
from hmx.reports.doctor.history import History


def inactive_mask(run: History) -> str:
    """Return the evidence that a mask never forbids an action."""
    entry = find_environment(run.cfg.env.id)
    sizes = known_sizes(run.cfg.env)
    if entry is None or not entry.masked or sizes is None:
        return ""
    actions = sizes.num_actions
    always = run["train/max_entropy"].low > math.log(actions) - 1e-4
    return f"all {actions} actions were legal at every step" * always


def no_episode_ends(run: History) -> str:
    """Return the evidence that an episode does not end."""
    limit, steps = step_limit(run.cfg.env), run.update * run.cfg.algo.num_steps
    if run["train/num_episodes"].high > 0 or steps <= max(1.5 * limit, 0 if limit else 1000):
        return ""
    return f"after {steps:,} steps, an environment is still in its first; the step limit is {limit or 'off'}"


def always_truncated(run: History) -> str:
    """Return the evidence that all episodes reach a step limit."""
    env, length, limit = run.cfg.env, run["train/mean_episode_length"], step_limit(run.cfg.env)
    entry = find_environment(env.id)
    if extra_of(env.id) or (entry is not None and entry.endless):
        return ""
    # The file of an own environment may have a lower limit, which makes all truncated episodes equally long.
    own = entry is None and length.constant and run["train/truncated_frac"].high > 0
    if not own and not (limit and length.low >= limit):
        return ""
    return f"every episode so far was truncated after {length.last:,.0f} steps"


def own(run: History) -> bool:
    """Return whether nothing says that episodes can end before the step limit."""
    return find_environment(run.cfg.env.id) is None


def unlimited(run: History) -> bool:
    """Return whether episodes may be long, or have no end at all."""
    return not step_limit(run.cfg.env)
