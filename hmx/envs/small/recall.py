"""Recall: a cue is shown once, and asked for later; only an agent with memory can answer."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import Env, EnvSpec
from hmx.types import Array, Key

NUM_CUES = 3
CHANCE = 2.0 / NUM_CUES - 1.0  # mean return of every policy without memory, for delays of at least 1


class Recall(NamedTuple):
    """The cue, and the steps since it was shown."""

    cue: Array
    step: Array


def make_recall(max_steps: int, delay: int) -> Env:
    """Build a task that shows one of three cues at the first step and asks for it `delay` steps later.

    The right answer pays 1, a wrong one -1, and the episode ends, `delay + 1` steps long. Until then the only legal
    action is `wait`, and then only the answers are legal. The observation is the cue, one-hot, at the first step and
    zeros afterwards, and a flag that is 1 when the answer is due; with a delay of 0 both are seen at once.
    """
    answers = tuple(f"cue_{i}" for i in range(NUM_CUES))
    spec = EnvSpec(
        id="recall",
        obs_shape=(NUM_CUES + 1,),
        num_actions=NUM_CUES + 1,
        max_steps=max_steps,
        reward_terms=("answer",),
        action_groups=(("wait", 0, 1), ("answer", 1, NUM_CUES + 1)),
        action_names=("wait", *answers),
    )

    def start(key: Key) -> Recall:
        return Recall(jax.random.randint(key, (), 0, NUM_CUES), jnp.int32(0))

    def move(now: Recall, action: Array, key: Key) -> tuple[Recall, dict[str, Array], Array]:
        asked = now.step == delay
        worth = jnp.where(action == now.cue + 1, 1.0, -1.0)
        return now._replace(step=now.step + 1), {"answer": jnp.where(asked, worth, 0.0)}, asked

    def observe(now: Recall) -> Array:
        shown = jax.nn.one_hot(now.cue, NUM_CUES) * (now.step == 0)
        return jnp.append(shown, (now.step == delay).astype(jnp.float32))

    def legal(now: Recall) -> Array:
        answering = jnp.arange(NUM_CUES + 1) > 0
        return answering == (now.step == delay)

    return batched(spec, Game(start, move, observe, legal))
