"""The rules of HackMatrix in pure JAX: no observation, no reward.

    state = reset(key)
    mask = legal(state)
    state, events = step(state, action, key)

A batch of games lies along the trailing axis of every leaf, with one key per game.
"""

from hmx.envs.hackmatrix.rules.play import legal, reset, step
from hmx.envs.hackmatrix.rules.state import Events, Rules, State
from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES, NUM_ACTIONS, PROGRAMS

__all__ = ["ACTION_NAMES", "NUM_ACTIONS", "PROGRAMS", "Events", "Rules", "State", "legal", "reset", "step"]
